//! The conformance suites, run against the simplest implementations: a suite that these do not
//! pass asks for something that the contract does not say.

use std::sync::Arc;

use punctual_model::ports::{LogPosition, Solo, Topics};
use punctual_model::{Message, MessageId, Partition, SystemClock, Timestamp, TopicId};
use punctual_model::{TopicName, TopicSettings};
use punctual_testkit::conformance::{self, Company, Stage};
use punctual_testkit::{ManualClock, Reference};

fn stage() -> Stage<Reference> {
    let subject = Reference::new();
    let topics = ["orders", "bills"].map(|name| {
        let name = TopicName::new(name).expect("a legal name");
        let settings = TopicSettings {
            partitions: Stage::<Reference>::PARTITIONS,
            ..TopicSettings::default()
        };
        subject.put(&name, settings).expect("a new topic").id
    });
    Stage { subject, topics }
}

fn read_back(
    outlet: &Reference,
    topic: TopicId,
    partition: Partition,
) -> Vec<(MessageId, Message)> {
    let start = LogPosition { topic, partition, offset: 0 };
    let log = outlet.read(start, usize::MAX).expect("the partition is there");
    log.into_iter().map(|delivered| (delivered.id, delivered.message)).collect()
}

#[test]
fn the_reference_is_a_timeline() {
    conformance::timeline(stage);
}

#[test]
fn the_reference_takes_changes() {
    conformance::changes(stage);
    conformance::lasting_changes(stage, Reference::restarted);
}

#[test]
fn the_reference_is_an_outlet() {
    conformance::outlet(stage, read_back);
}

#[test]
fn the_reference_keeps_topics() {
    conformance::topics(Reference::new);
}

#[test]
fn the_reference_is_a_whole_store() {
    conformance::store(Reference::new);
}

#[test]
fn the_reference_has_groups() {
    conformance::groups(Reference::new, Reference::restarted);
}

/// A cluster with room for one.
struct Alone {
    taken: bool,
}

impl Company for Alone {
    type Member = Solo;

    const SLOTS: u32 = 1;

    fn join(&mut self) -> Option<Arc<Solo>> {
        (!std::mem::replace(&mut self.taken, true)).then(|| Arc::new(Solo::default()))
    }

    fn leave(&mut self, _member: Arc<Solo>) {
        self.taken = false;
    }
}

#[test]
fn one_machine_alone_is_a_coordinator() {
    conformance::coordinator(|| Alone { taken: false });
}

#[test]
fn the_clocks_are_clocks() {
    conformance::clock(SystemClock::new);
    conformance::clock(|| ManualClock::new(Timestamp::MIN));
}
