//! The contract of [`Coordinator`].
//!
//! The members of a cluster are put through it together; one machine alone is a cluster that has
//! room for one. Members do real waiting, so the suite waits for them, but never by the clock alone:
//! each wait ends as soon as a member says that something has changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use futures_executor::block_on;
use punctual_model::ports::{Coordinator, CoordinatorError, Held};

/// How long something may take on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked at even if no member says anything.
const LOOK: Duration = Duration::from_millis(50);

/// A cluster that nobody has joined yet.
pub trait Company {
    /// What a member has of it.
    type Member: Coordinator;

    /// The slots that it starts with.
    const SLOTS: u32;

    /// One more joins; `None` when there is no room for more.
    fn join(&mut self) -> Option<Arc<Self::Member>>;

    /// A member goes, in order.
    fn leave(&mut self, member: Arc<Self::Member>);
}

/// Holds a coordinator to its contract.
///
/// # Panics
/// Where the coordinator breaks it.
pub fn coordinator<P: Company>(make: impl Fn() -> P) {
    the_first_gets_everything(&mut make());
    members_share_evenly_and_know_each_other(&mut make());
    a_slot_moves_only_after_its_owner_let_go(&mut make());
    the_slots_of_one_that_leaves_go_to_others(&mut make());
    the_number_of_slots_changes(&mut make());
}

/// Members that are looked at together.
struct Members<M: Coordinator> {
    all: Vec<Arc<M>>,
    changed: (SyncSender<()>, Receiver<()>),
    /// The highest term that was seen of each slot.
    terms: BTreeMap<u32, u64>,
}

impl<M: Coordinator> Members<M> {
    fn of<P: Company<Member = M>>(company: &mut P, count: usize) -> Option<Self> {
        let mut members =
            Self { all: Vec::new(), changed: sync_channel(1), terms: BTreeMap::new() };
        (0..count).all(|_| members.join(company)).then_some(members)
    }

    fn join<P: Company<Member = M>>(&mut self, company: &mut P) -> bool {
        let Some(member) = company.join() else { return false };
        let changed = self.changed.0.clone();
        // One that nobody has seen yet is enough.
        member.listen(Arc::new(move || {
            let _full = changed.try_send(());
        }));
        self.all.push(member);
        true
    }

    /// Waits until something is so.
    fn wait_for(&mut self, what: &str, so: impl Fn(&[Arc<M>]) -> bool) {
        let mut left = PATIENCE;
        loop {
            self.check();
            if so(&self.all) {
                return;
            }
            if self.changed.1.recv_timeout(LOOK).is_err() {
                left = left.saturating_sub(LOOK);
                assert!(!left.is_zero(), "in vain: {what}");
            }
        }
    }

    /// No slot is held twice, and terms grow.
    fn check(&mut self) {
        let before: Vec<Vec<Held>> = self.all.iter().map(|member| certain(&**member)).collect();
        let after: Vec<Vec<Held>> = self.all.iter().map(|member| certain(&**member)).collect();
        let mut owners: BTreeMap<u32, usize> = BTreeMap::new();
        // What a member held at both looks, it held while all others were looked at.
        for (member, (before, after)) in before.iter().zip(&after).enumerate() {
            for held in before {
                if !after.iter().any(|it| (it.slot, it.term) == (held.slot, held.term)) {
                    continue;
                }
                let other = owners.insert(held.slot, member);
                assert_eq!(other, None, "slot {} is held by {other:?} and {member}", held.slot);
            }
        }
        for (held, member) in after
            .iter()
            .zip(&self.all)
            .flat_map(|(slots, member)| slots.iter().map(move |held| (held, member)))
        {
            assert!(held.term > 0, "slot {} has no term", held.slot);
            let last = self.terms.entry(held.slot).or_insert(0);
            // One that is behind has lost it by now, unless it is the very same look.
            let still = member.holding().slots.iter().any(|it| it == held) && member.is_certain();
            assert!(*last <= held.term || !still, "{held:?} after term {last}");
            *last = (*last).max(held.term);
        }
    }
}

/// What a member may begin something with.
fn certain<M: Coordinator>(member: &M) -> Vec<Held> {
    let before = member.holding();
    let certain = member.is_certain();
    let after = member.holding();
    // Unless it is the same before and after, the answer between is for neither.
    if certain && before == after { before.slots.clone() } else { Vec::new() }
}

fn shares<M: Coordinator>(members: &[Arc<M>]) -> Vec<usize> {
    members.iter().map(|member| certain(&**member).len()).collect()
}

/// Whether all slots are held, evenly, and nothing is on its way.
fn at_rest<M: Coordinator>(members: &[Arc<M>], slots: u32) -> bool {
    let shares = shares(members);
    let even = shares.iter().max().zip(shares.iter().min());
    let moving = members.iter().flat_map(|member| certain(&**member)).any(|held| held.leaving);
    let all = usize::try_from(slots).expect("few slots");
    even.is_some_and(|(most, least)| most - least <= 1)
        && !moving
        && shares.iter().sum::<usize>() == all
}

/// Lets go of whatever is to be let go of.
fn let_go<M: Coordinator>(members: &[Arc<M>]) {
    for member in members {
        for held in member.holding().slots.iter().filter(|held| held.leaving) {
            member.released(held.slot, held.term);
        }
    }
}

fn the_first_gets_everything<P: Company>(company: &mut P) {
    let mut members = Members::of(company, 1).expect("there is room for one");
    members.wait_for("it holds every slot", |members| at_rest(members, P::SLOTS));
    let held = members.all[0].holding();
    let numbers: Vec<u32> = held.slots.iter().map(|held| held.slot).collect();
    assert_eq!(numbers, (0..P::SLOTS).collect::<Vec<_>>(), "by number, each once");
    let view = members.all[0].view();
    assert_eq!((view.slots_wanted, view.slots.len()), (P::SLOTS, numbers.len()));
    for (held, seen) in held.slots.iter().zip(&view.slots) {
        assert_eq!((held.slot, held.term), (seen.slot, seen.term));
    }
    let refused = block_on(members.all[0].resize(0));
    let known = [CoordinatorError::Alone, CoordinatorError::SlotsOutOfRange];
    assert!(refused.is_err_and(|error| known.contains(&error)), "no cluster has no slots");
    // What was never held or has another term is nothing to let go of.
    members.all[0].released(0, u64::MAX);
    members.all[0].drained(0, u64::MAX);
    assert_eq!(members.all[0].holding(), held);
}

fn members_share_evenly_and_know_each_other<P: Company>(company: &mut P) {
    let Some(mut members) = Members::of(company, 3) else { return };
    members.wait_for("all slots are held", |members| {
        let_go(members);
        at_rest(members, P::SLOTS)
    });
    members.wait_for("they see the same", |members| {
        members.iter().all(|member| member.view() == members[0].view())
    });
    let view = members.all[0].view();
    let mut names: Vec<Arc<str>> = view.nodes.iter().map(|node| node.name.clone()).collect();
    assert!(names.is_sorted(), "nodes are listed by name");
    names.dedup();
    assert_eq!(names.len(), 3);
    assert!(view.leader.as_ref().is_some_and(|leader| names.contains(leader)));
    assert_eq!(view.slots.len(), usize::try_from(P::SLOTS).expect("few slots"));
    for slot in &view.slots {
        assert!(slot.owner.as_ref().is_some_and(|owner| names.contains(owner)), "{slot:?}");
        assert_eq!(slot.next, None);
    }
}

fn a_slot_moves_only_after_its_owner_let_go<P: Company>(company: &mut P) {
    let Some(mut members) = Members::of(company, 1) else { return };
    members.wait_for("it holds every slot", |members| at_rest(members, P::SLOTS));
    if !members.join(company) {
        return;
    }
    let half = usize::try_from(P::SLOTS / 2).expect("few slots");
    let leaving = |member: &P::Member| -> Vec<Held> {
        member.holding().slots.iter().filter(|held| held.leaving).copied().collect()
    };
    members.wait_for("half is to leave", |members| leaving(&members[0]).len() == half);
    let moving = leaving(&members.all[0]);
    assert_eq!(members.all[1].holding().slots, [], "nobody has let go");
    let first = moving[0];
    members.all[0].released(first.slot, first.term);
    let still = members.all[0].holding();
    assert!(still.slots.iter().all(|held| held.slot != first.slot), "let go of at once");
    members.wait_for("it has come over", |members| !members[1].holding().slots.is_empty());
    let came: Vec<Held> = members.all[1].holding().slots.clone();
    assert_eq!(came.len(), 1, "only what was let go of: {came:?}");
    assert_eq!(came[0].slot, first.slot);
    assert!(came[0].term > first.term, "{came:?} after {first:?}");
    members.wait_for("the rest follows", |members| {
        let_go(members);
        at_rest(members, P::SLOTS)
    });
}

fn the_slots_of_one_that_leaves_go_to_others<P: Company>(company: &mut P) {
    let Some(mut members) = Members::of(company, 2) else { return };
    members.wait_for("all slots are held", |members| {
        let_go(members);
        at_rest(members, P::SLOTS)
    });
    let gone = members.all.remove(0);
    let had = certain(&*gone);
    company.leave(gone.clone());
    assert_eq!(gone.holding().slots, [], "it holds nothing any more");
    assert!(!gone.is_certain());
    members.wait_for("the other has everything", |members| at_rest(members, P::SLOTS));
    let now = members.all[0].holding();
    for before in had {
        let after = now.slots.iter().find(|held| held.slot == before.slot).expect("it has all");
        assert!(after.term > before.term, "{after:?} after {before:?}");
    }
}

fn the_number_of_slots_changes<P: Company>(company: &mut P) {
    let mut members = Members::of(company, 1).expect("there is room for one");
    let _alone = !members.join(company);
    members.wait_for("all slots are held", |members| {
        let_go(members);
        at_rest(members, P::SLOTS)
    });
    match block_on(members.all[0].resize(P::SLOTS + 3)) {
        Err(CoordinatorError::Alone) => return,
        asked => assert_eq!(asked, Ok(())),
    }
    members.wait_for("there are more", |members| at_rest(members, P::SLOTS + 3));
    assert_eq!(block_on(members.all[0].resize(P::SLOTS - 2)), Ok(()));
    let retired = |members: &[Arc<P::Member>]| -> Vec<(usize, Held)> {
        let held = |(index, member): (usize, &Arc<P::Member>)| {
            let slots = member.holding().slots.clone();
            slots.into_iter().map(move |held| (index, held))
        };
        let all = members.iter().enumerate().flat_map(held);
        all.filter(|(_, held)| held.retired).collect()
    };
    members.wait_for("five are retired", |members| {
        let_go(members);
        let moving = members.iter().flat_map(|member| certain(&**member)).any(|held| held.leaving);
        retired(members).len() == 5 && !moving
    });
    let drained = retired(&members.all);
    assert!(drained.iter().all(|(_, held)| held.slot >= P::SLOTS - 2), "{drained:?}");
    for (index, held) in drained {
        members.all[index].drained(held.slot, held.term);
    }
    members.wait_for("they have ended", |members| {
        let left = P::SLOTS - 2;
        let seen = |member: &Arc<P::Member>| member.view().slots.len() == left as usize;
        members.iter().all(seen) && at_rest(members, left)
    });
}
