//! What an assignment promises, over histories of nodes and sizes that nobody has thought of, and at
//! the size for which it was made.

use proptest::prelude::*;

use super::super::document::{decode_assignment, encode_assignment, encode_word};
use super::*;

/// Something that happens to a cluster.
#[derive(Clone, Debug)]
enum Happening {
    Joins(u8),
    Goes(prop::sample::Index),
    /// Every node lets go of what it is to let go of, if its slot's number is a multiple of this.
    Releases(u32),
    /// Nodes let go of slots that nobody wants from them.
    GivesUp(u32),
    Drains(u32),
    Resizes(u32),
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => any::<u8>().prop_map(Happening::Joins),
        3 => any::<prop::sample::Index>().prop_map(Happening::Goes),
        4 => (1..3_u32).prop_map(Happening::Releases),
        1 => (2..9_u32).prop_map(Happening::GivesUp),
        2 => (1..3_u32).prop_map(Happening::Drains),
        2 => (1..40_u32).prop_map(Happening::Resizes),
    ]
}

/// A cluster in which time does not pass.
struct Cluster {
    present: Present,
    wanted: u32,
    stands: Assignment,
}

impl Cluster {
    fn new(slots: u32, nodes: impl IntoIterator<Item = Name>) -> Self {
        let present = nodes.into_iter().map(|name| (name, Word::default())).collect();
        Self { present, wanted: slots, stands: Assignment::new(slots, 0) }
    }

    fn happens(&mut self, happening: &Happening) {
        match happening {
            Happening::Joins(number) => {
                self.present.insert(format!("n{number}").into(), Word::default());
            }
            Happening::Goes(index) => {
                if !self.present.is_empty() {
                    let name = self.present.keys().nth(index.index(self.present.len())).cloned();
                    self.present.remove(&name.unwrap());
                }
            }
            Happening::Releases(every) => {
                self.say(|word, slot, place, _| {
                    if slot % every == 0 && place.next.is_some() {
                        word.released.insert(Tenancy { slot, term: place.term });
                    }
                });
            }
            Happening::GivesUp(every) => self.say(|word, slot, place, _| {
                if slot % every == 1 {
                    word.released.insert(Tenancy { slot, term: place.term });
                }
            }),
            Happening::Drains(every) => self.say(|word, slot, place, stands| {
                if slot % every == 0 && stands.is_retired(slot) {
                    word.drained.insert(Tenancy { slot, term: place.term });
                }
            }),
            Happening::Resizes(slots) => self.wanted = *slots,
        }
    }

    /// Lets every owner say something of each of its slots.
    fn say(&mut self, say: impl Fn(&mut Word, u32, &Place, &Assignment)) {
        for (slot, place) in self.stands.slots() {
            let owner = place.owner.as_ref().and_then(|owner| self.present.get_mut(owner));
            if let Some(word) = owner {
                say(word, slot, place, &self.stands);
            }
        }
    }

    /// Lets the leader do what follows, to the end, and answers how many slots changed hands.
    fn rest(&mut self) -> usize {
        let mut moved = 0;
        loop {
            self.happens(&Happening::Releases(1));
            let settled = settle(&self.stands, &self.present);
            let after = balance(&settled, &self.present, self.wanted);
            if after == self.stands {
                return moved;
            }
            moved += changes(&self.stands, &after);
            self.stands = after;
        }
    }
}

/// How many slots have another owner.
fn changes(before: &Assignment, after: &Assignment) -> usize {
    let owner = |place: Option<&Place>| place.and_then(|place| place.owner.clone());
    after.slots().filter(|(slot, place)| owner(before.place(*slot)) != place.owner).count()
}

/// How many slots each node has or is to have, of those in use and of the retired.
fn counts(assignment: &Assignment, present: &Present) -> [BTreeMap<Name, usize>; 2] {
    let none: BTreeMap<Name, usize> = present.keys().map(|name| (name.clone(), 0)).collect();
    let mut counts = [none.clone(), none];
    for (slot, place) in assignment.slots() {
        let kind = usize::from(assignment.is_retired(slot));
        // One who was to have it and is gone does not count.
        let mut heirs = place.next.iter().chain(&place.owner);
        if let Some(heir) = heirs.find(|heir| present.contains_key(*heir)) {
            *counts[kind].get_mut(heir).unwrap() += 1;
        }
    }
    counts
}

/// The fewest slots that have to move so that the nodes differ by one at most, found by trying.
fn fewest(counts: &BTreeMap<Name, usize>, slots: usize) -> usize {
    let (share, extra) = (slots / counts.len(), slots % counts.len());
    let choices = (0..1_u32 << counts.len()).filter(|who| who.count_ones() as usize == extra);
    let moves = choices.map(|who| {
        let given = (0..)
            .zip(counts.values())
            .map(|(index, count)| count.saturating_sub(share + usize::from(who >> index & 1 == 1)));
        given.sum()
    });
    moves.min().unwrap()
}

/// A slot changes hands only when its owner is gone or has let go, and then with a new term.
fn check_hands(before: &Assignment, after: &Assignment, present: &Present) {
    assert!(before.term <= after.term);
    for (slot, place) in after.slots() {
        let Some(was) = before.place(slot) else {
            assert!(place.owner.is_none() || place.term > before.term, "slot {slot}");
            continue;
        };
        if was.owner == place.owner {
            assert_eq!(was.term, place.term, "slot {slot} has another term with the same owner");
            continue;
        }
        let free = was.owner.as_ref().is_none_or(|owner| {
            let tenancy = Tenancy { slot, term: was.term };
            present.get(owner).is_none_or(|word| word.gives_up(&tenancy))
        });
        assert!(free, "slot {slot} was taken from {:?}", was.owner);
        if place.owner.is_some() {
            assert!(place.term > before.term && place.term == after.term, "slot {slot}");
        }
    }
}

/// A slot ends only when it is retired and its owner has said that nothing is left.
fn check_ends(before: &Assignment, after: &Assignment, present: &Present) {
    for (slot, place) in before.slots().filter(|(slot, _)| after.place(*slot).is_none()) {
        assert!(after.is_retired(slot), "slot {slot} is in use and has ended");
        let word = place.owner.as_ref().and_then(|owner| present.get(owner));
        let tenancy = Tenancy { slot, term: place.term };
        let drained = word.is_some_and(|word| word.drained.contains(&tenancy));
        assert!(place.term == 0 || drained, "slot {slot} had something");
    }
}

/// What a balanced assignment has to be.
fn check_balance(before: &Assignment, after: &Assignment, present: &Present, wanted: u32) {
    assert_eq!(after.wanted, wanted);
    assert!((0..wanted).all(|slot| after.place(slot).is_some()));
    assert_eq!(balance(after, present, wanted), *after, "what is balanced stays");
    if present.is_empty() {
        return;
    }
    for (slot, place) in after.slots() {
        let here = |name: &Option<Name>| name.as_ref().is_some_and(|n| present.contains_key(n));
        assert!(here(&place.owner), "slot {slot} is nobody's");
        assert!(place.next.is_none() || here(&place.next) && place.next != place.owner);
    }
    // By the sizes as they are afterwards, so that a slot that is retired counts as that.
    let resized = Assignment { wanted, ..before.clone() };
    for (was, is) in counts(&resized, present).iter().zip(&counts(after, present)) {
        let (least, most) = (is.values().min().unwrap(), is.values().max().unwrap());
        assert!(most - least <= 1, "uneven: {is:?}");
        let left: usize = was.iter().map(|(name, was)| was.saturating_sub(is[name])).sum();
        let slots = is.values().sum();
        assert!(left <= fewest(was, slots), "{left} slots moved from {was:?} to {is:?}");
    }
}

proptest! {
    #[test]
    fn slots_are_even_move_no_more_than_needed_and_never_without_their_owner(
        history in prop::collection::vec(any_happening(), 1..40),
        delays in prop::collection::vec(any::<bool>(), 40),
    ) {
        let mut cluster = Cluster::new(12, ["n1", "n2"].map(Name::from));
        for (happening, delayed) in history.iter().zip(delays) {
            // Few enough for `fewest` to try all choices.
            if cluster.present.len() < 7 || !matches!(happening, Happening::Joins(_)) {
                cluster.happens(happening);
            }
            let settled = settle(&cluster.stands, &cluster.present);
            check_hands(&cluster.stands, &settled, &cluster.present);
            check_ends(&cluster.stands, &settled, &cluster.present);
            prop_assert_eq!(&settle(&settled, &cluster.present), &settled);
            cluster.stands = settled;
            if delayed {
                continue;
            }
            let after = balance(&cluster.stands, &cluster.present, cluster.wanted);
            check_hands(&cluster.stands, &after, &cluster.present);
            check_ends(&cluster.stands, &after, &cluster.present);
            check_balance(&cluster.stands, &after, &cluster.present, cluster.wanted);
            prop_assert_eq!(decode_assignment(&encode_assignment(&after)), Ok(after.clone()));
            cluster.stands = after;
        }
    }
}

fn nodes(numbers: std::ops::Range<u32>) -> impl Iterator<Item = Name> {
    // As long as names are with a host name and a random part.
    numbers.map(|n| format!("node-{n:04}.cluster.example.com-{:016x}", u64::from(n) * 7919).into())
}

/// Prints what a change has cost.
#[expect(clippy::disallowed_methods, reason = "prints how long it took, decides nothing by it")]
fn costs(what: &str, cluster: &mut Cluster) -> usize {
    let started = std::time::Instant::now();
    let moved = cluster.rest();
    let bytes = encode_assignment(&cluster.stands).len();
    println!("{what}: {moved} slots moved, {bytes} bytes, {:?}", started.elapsed());
    // ZooKeeper takes 1,048,575 bytes with the rest of the request.
    assert!(bytes < 1_000_000, "{what}: {bytes} bytes");
    let [in_use, retired] = counts(&cluster.stands, &cluster.present);
    for counts in [in_use, retired] {
        let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
        assert!(most - least <= 1, "{what}: between {least} and {most} slots");
    }
    moved
}

#[test]
fn a_thousand_nodes_share_65536_slots_and_few_of_them_move() {
    const SLOTS: u32 = 65_536;
    // Terms as they are after years: the assignment is to be small then too.
    let mut cluster = Cluster::new(SLOTS, nodes(0..1000));
    cluster.stands.term = 1_800_000_000_000;
    assert_eq!(costs("1,000 nodes start together", &mut cluster), 65_536);
    for node in nodes(1000..1001) {
        cluster.present.insert(node, Word::default());
    }
    let moved = costs("one more", &mut cluster);
    assert!(moved <= 66, "a new node's share is 65 or 66 slots, not {moved}");
    cluster.present.pop_first();
    let moved = costs("one goes", &mut cluster);
    assert!(moved <= 66, "a node's share, not {moved}");
    let rack: Vec<Name> = cluster.present.keys().take(40).cloned().collect();
    cluster.present.retain(|name, _| !rack.contains(name));
    let moved = costs("a rack of 40 goes", &mut cluster);
    assert!(moved <= 40 * 66, "their slots, not {moved}");
    cluster.present.extend(rack.into_iter().map(|name| (name, Word::default())));
    let moved = costs("and comes back", &mut cluster);
    assert!(moved <= 40 * 66, "their share, not {moved}");

    cluster.wanted = SLOTS / 2;
    assert_eq!(cluster.stands.slots().count(), 65_536);
    let moved = costs("half the slots", &mut cluster);
    assert!(moved < 8_000, "the rest was nearly even already, but {moved} moved");
    cluster.happens(&Happening::Drains(1));
    let said: usize = cluster.present.values().map(|word| encode_word(word).len()).max().unwrap();
    println!("  the longest word has {said} bytes");
    assert_eq!(costs("all drained", &mut cluster), 0);
    assert_eq!(cluster.stands.slots().count(), 32_768);
    cluster.wanted = SLOTS;
    assert_eq!(costs("twice the slots", &mut cluster), 32_768, "new ones alone");
    churn(&mut cluster);
}

/// One node after another comes and goes, as in a rolling restart.
fn churn(cluster: &mut Cluster) {
    let mut moved = 0;
    let names: Vec<Name> = cluster.present.keys().step_by(250).cloned().collect();
    for name in &names {
        cluster.present.remove(name);
        moved += cluster.rest();
        cluster.present.insert(format!("{name}-again").into(), Word::default());
        moved += cluster.rest();
    }
    println!("{} nodes restarted one by one: {moved} slots moved", names.len());
    assert!(moved <= names.len() * 2 * 66, "each twice its share, not {moved} in all");
    costs("at rest", cluster);
}

#[test]
fn one_owner_of_everything_lets_go_of_half_in_one_word() {
    let mut cluster = Cluster::new(65_536, [Name::from("first")]);
    cluster.stands.term = 1_800_000_000_000;
    cluster.rest();
    cluster.present.insert("second".into(), Word::default());
    cluster.stands = balance(&cluster.stands, &cluster.present, cluster.wanted);
    cluster.happens(&Happening::Releases(1));
    let bytes = encode_word(&cluster.present["first"]).len();
    assert!(bytes < 1_000_000, "a word is one value in ZooKeeper too: {bytes} bytes");
}
