//! When which slot went to another owner, as the nodes tell, and which duplicates that explains.
//!
//! A message may come twice only because its slot went to another owner while it was on its way to Kafka.
//! The slot of a message follows from its id. Each owner has a slot under a term of its own, so a move is
//! known by its term even where nobody looked while it happened. It happened between two looks at a node, of
//! which only the second told of it; so a machine on which looks are far apart explains no less.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_model::MessageId;
use serde_json::Value;

use super::oracle::{Received, Sent};
use crate::process_support::http::Client;
use crate::process_support::wall_ms;

/// How often each node is asked.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Longest wait for an answer; a node may have been stopped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How much later than others a node may know of a move, and how far clocks may be apart.
const TOLERANCE_MS: u64 = 1_000;
/// The low bits of a sequence that are the slot.
const SLOT_MASK: u64 = 0xffff;

/// The owners that the slots have had.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    /// Of each slot, by term.
    slots: BTreeMap<u64, BTreeMap<u64, Term>>,
}

/// A slot as one owner had it.
#[derive(Clone, Debug)]
struct Term {
    /// For whoever looks for the cause of a failure.
    #[expect(dead_code, reason = "told when a duplicate is not explained")]
    owner: String,
    /// When it began, as far as that is known.
    began_ms: RangeInclusive<u64>,
}

impl Moves {
    /// A node says that the owner has the slot under that term, and did not say so at the beginning
    /// of this time.
    pub fn note(&mut self, slot: u64, term: u64, owner: &str, within_ms: RangeInclusive<u64>) {
        let terms = self.slots.entry(slot).or_default();
        let known = terms
            .entry(term)
            .or_insert_with(|| Term { owner: owner.to_owned(), began_ms: within_ms.clone() });
        let since_ms = *known.began_ms.start().min(within_ms.start());
        known.began_ms = since_ms..=*known.began_ms.end().min(within_ms.end());
    }

    fn note_all(&mut self, view: &Value, within_ms: &RangeInclusive<u64>) {
        for place in view["assignment"].as_array().into_iter().flatten() {
            let number = |name: &str| place[name].as_u64();
            if let (Some(slot), Some(term), Some(owner)) =
                (number("slot"), number("term"), place["owner"].as_str())
            {
                self.note(slot, term, owner, within_ms.clone());
            }
        }
    }

    /// Whether the slot of these records went to another owner between the time at which the message
    /// was due, before which it was not on its way, and the last of them.
    pub fn explain(&self, sent: &Sent, records: &[&Received]) -> bool {
        let last_ms = records.iter().map(|record| record.taken_ms).max().unwrap_or_default();
        let is_meanwhile = |term: &Term| {
            let (since_ms, seen_ms) = (*term.began_ms.start(), *term.began_ms.end());
            since_ms <= last_ms + TOLERANCE_MS && seen_ms + TOLERANCE_MS >= sent.due_ms
        };
        // The first owner of a slot took it from nobody.
        self.terms(slot_of(&records[0].id)).skip(1).any(is_meanwhile)
    }

    /// What is known of the slot of a message, for whoever looks for the cause of a failure.
    pub fn tell(&self, id: &str) -> String {
        let slot = slot_of(id);
        format!("slot {slot}: {:?}", self.terms(slot).collect::<Vec<_>>())
    }

    fn terms(&self, slot: u64) -> impl Iterator<Item = &Term> {
        self.slots.get(&slot).into_iter().flat_map(BTreeMap::values)
    }
}

fn slot_of(id: &str) -> u64 {
    let id: MessageId = id.parse().unwrap_or_else(|error| panic!("the id {id}: {error}"));
    id.key.sequence.get() & SLOT_MASK
}

/// Asks the nodes all the time, until it is dropped.
#[derive(Debug, Default)]
pub struct Watch {
    seen: Arc<Mutex<Moves>>,
    is_over: Arc<AtomicBool>,
}

impl Watch {
    /// Asks that node as well, also after it was away.
    pub fn follow(&self, node: SocketAddr) {
        let (seen, is_over) = (Arc::clone(&self.seen), Arc::clone(&self.is_over));
        let run = move || {
            let mut follower = Follower { node, connection: None, looked_ms: None };
            while !is_over.load(Ordering::Relaxed) {
                follower.look(&seen);
                std::thread::sleep(LOOK_INTERVAL);
            }
        };
        let name = format!("watch {node}");
        std::thread::Builder::new().name(name).spawn(run).unwrap();
    }

    /// What was seen so far.
    pub fn seen(&self) -> Moves {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Asks one node.
struct Follower {
    node: SocketAddr,
    connection: Option<Client>,
    /// When it was asked last, if it answered.
    looked_ms: Option<u64>,
}

impl Follower {
    /// Asks once; whoever does not answer is asked anew the next time.
    fn look(&mut self, seen: &Mutex<Moves>) -> Option<()> {
        let (now_ms, before_ms) = (wall_ms(), self.looked_ms.take());
        let connect = || Client::connect(self.node)?.patience(ANSWER_TIMEOUT);
        let mut connection = self.connection.take().or_else(|| connect().ok())?;
        let answer = connection.get("/v1/cluster?slots=true").ok()?;
        seen.lock().unwrap().note_all(&answer.json, &(before_ms.unwrap_or(now_ms)..=wall_ms()));
        (self.connection, self.looked_ms) = (Some(connection), Some(now_ms));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::{Key, Partition, Sequence, Timestamp, TopicId};

    use super::super::oracle::Cancel;
    use super::*;

    /// Of these messages.
    const SLOT: u64 = 5;

    fn moves(seen: &[(u64, u64)]) -> Moves {
        let mut moves = Moves::default();
        for (term, seen_ms) in seen {
            moves.note(SLOT, *term, &format!("owner of term {term}"), *seen_ms - 200..=*seen_ms);
        }
        moves
    }

    fn explains(moves: &Moves, due_ms: u64, taken_ms: [u64; 2]) -> bool {
        let sent = Sent {
            id: Some(id()),
            due_ms,
            due_for_certain_ms: Some(due_ms),
            cancel: Cancel::Never,
        };
        let records = taken_ms.map(|taken_ms| Received { taken_ms, id: id(), body: String::new() });
        moves.explain(&sent, &[&records[0], &records[1]])
    }

    fn id() -> String {
        let sequence = Sequence::new((77 << 16) | SLOT).expect("56 bits");
        let key = Key { due: Timestamp::from_millis(49_000).expect("48 bits"), sequence };
        let (topic, partition) =
            (TopicId::new(1).expect("a topic"), Partition::new(2).expect("one"));
        MessageId { key, topic, partition }.to_string()
    }

    #[test]
    fn a_duplicate_is_explained_by_a_move_while_it_was_on_its_way_and_by_nothing_else() {
        let one_move = moves(&[(1, 1_000), (7, 50_000)]);
        assert!(explains(&one_move, 49_000, [49_001, 51_000]));
        // Stopped before it sent, and went on when another had sent.
        assert!(explains(&one_move, 45_000, [51_000, 80_000]));
        assert!(!explains(&one_move, 30_000, [30_001, 40_000]), "it moved later");
        assert!(!explains(&one_move, 60_000, [60_001, 61_000]), "it moved before");
        assert!(!explains(&moves(&[(1, 50_000)]), 49_000, [49_001, 51_000]), "it never moved");
        assert!(!explains(&Moves::default(), 49_000, [49_001, 51_000]), "nothing is known");
    }

    #[test]
    fn a_move_is_as_old_as_the_first_who_told_of_it() {
        let mut told = moves(&[(1, 1_000), (7, 90_000)]);
        assert!(!explains(&told, 49_000, [49_001, 51_000]));
        told.note(SLOT, 7, "owner of term 7", 49_800..=50_000);
        told.note(SLOT, 7, "owner of term 7", 94_800..=95_000);
        assert!(explains(&told, 49_000, [49_001, 51_000]));
        assert!(!explains(&told, 60_000, [60_001, 61_000]), "it was seen before");
    }

    #[test]
    fn a_move_that_was_seen_late_may_have_been_soon_after_the_look_before() {
        let mut seldom = moves(&[(1, 1_000)]);
        seldom.note(SLOT, 7, "owner of term 7", 50_500..=70_000);
        assert!(explains(&seldom, 49_000, [49_001, 51_000]));
        assert!(!explains(&seldom, 40_000, [40_001, 45_000]), "the look before did not show it");
    }

    #[test]
    fn the_slot_of_a_message_is_the_low_part_of_its_sequence() {
        let view = serde_json::json!({ "assignment": [
            { "slot": 5, "owner": "a-1", "term": 3 }, { "slot": 6, "owner": null, "term": 0 },
        ]});
        let mut moves = Moves::default();
        moves.note_all(&view, &(7..=9));
        assert_eq!(moves.tell(&id()), "slot 5: [Term { owner: \"a-1\", began_ms: 7..=9 }]");
    }
}
