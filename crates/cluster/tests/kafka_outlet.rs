//! The outlet to a real Kafka: it keeps the promises of the seam, and what one topic refuses holds
//! up no other.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod kafka_support;

use std::sync::Arc;
use std::time::Duration;

use punctual_cluster::kafka::{KafkaOptions, KafkaOutlet, KafkaTopics, Shape, TopicsInKafka};
use punctual_model::ports::{Armed, Fate, Outlet, Topics, Untaken};
use punctual_model::{Lane, TopicId, TopicName, TopicSettings};
use punctual_testkit::conformance::{self, Stage};
use punctual_testkit::{Reference, services};

use kafka_support::{
    PATIENCE, armed, block_on, delete_topic, handle, make_topic, now, read_partition, read_topic,
    unique, wait_until,
};

/// An outlet with a catalogue, and Kafka behind it.
struct Scene {
    brokers: String,
    catalogue: Arc<Reference>,
    outlet: KafkaOutlet,
    next: u64,
}

impl Scene {
    fn new() -> Option<Self> {
        let brokers = services::kafka()?.to_string();
        let catalogue = Arc::new(Reference::new());
        let topics: Arc<dyn Topics> = catalogue.clone();
        let mut options = KafkaOptions::new(&brokers);
        // A partition that is only slow is not to be taken for a silent one.
        options.patience = Duration::from_secs(10);
        let longer = ("topic.metadata.propagation.max.ms".to_owned(), "15000".to_owned());
        options.properties.push(longer);
        let outlet = KafkaOutlet::start(&options, topics, handle()).unwrap();
        Some(Self { brokers, catalogue, outlet, next: 0 })
    }

    /// A topic of the catalogue alone.
    fn topic(&self, name: &TopicName, partitions: u16) -> TopicId {
        let settings = TopicSettings { partitions, ..TopicSettings::default() };
        self.catalogue.put(name, settings).unwrap().id
    }

    fn batch(&mut self, places: &[(TopicId, u16)]) -> Vec<Armed> {
        let mut entry = |&(topic, partition): &(TopicId, u16)| {
            self.next += 1;
            armed(self.next, topic, partition, self.next.to_string())
        };
        places.iter().map(&mut entry).collect()
    }

    /// Delivers, and again while Kafka as a whole does not answer.
    fn deliver(&self, batch: &[Armed]) -> Vec<Untaken> {
        let mut untaken = Vec::new();
        wait_until("Kafka answers", || {
            let delivered = block_on(self.outlet.deliver(batch, now()));
            if let Err(error) = &delivered {
                assert!(error.passes(), "{error}");
            }
            let answered = delivered.is_ok();
            untaken = delivered.unwrap_or_default();
            answered
        });
        untaken
    }

    /// Delivers, and again after each refusal, until everything is taken.
    fn deliver_all(&self, batch: &[Armed]) {
        let mut left = batch.to_vec();
        let mut open: Vec<Armed> = Vec::new();
        wait_until("everything is taken", || {
            for told in self.outlet.told(Lane::Message) {
                // One that is not of this batch is of no interest here.
                let place = open.iter().position(|armed| armed.key == told.key);
                let armed = place.map(|place| open.remove(place));
                left.extend(told.later.and(armed));
            }
            let untaken = self.deliver(&left);
            let mut later = Vec::new();
            for Untaken { index, fate } in untaken {
                match fate {
                    Fate::Later(_) => later.push(left[index].clone()),
                    Fate::Open => open.push(left[index].clone()),
                }
            }
            left = later;
            left.is_empty() && open.is_empty()
        });
    }

    fn texts(&self, topic: &TopicName, partitions: i32) -> Vec<String> {
        let read = read_topic(&self.brokers, topic.as_str(), partitions);
        read.iter().map(kafka_support::Read::text).collect()
    }
}

#[test]
fn the_kafka_outlet_is_an_outlet() {
    let Some(address) = services::kafka() else { return };
    let brokers = address.to_string();
    let catalogue = Arc::new(Reference::new());
    let mut options = KafkaOptions::new(&brokers);
    options.patience = PATIENCE;
    let kafka = KafkaTopics::connect(&options, handle()).unwrap();
    let make = || {
        let topics = TopicsInKafka::new(catalogue.clone(), kafka.clone());
        let settings = TopicSettings { partitions: 4, ..TopicSettings::default() };
        let ids = ["one", "two"].map(|what| {
            let made = topics.put(&unique(what), settings.clone()).unwrap();
            wait_until("Kafka tells of the topic", || {
                block_on(kafka.partitions(&made.name)) == Ok(Some(4))
            });
            made.id
        });
        let outlet = KafkaOutlet::start(&options, catalogue.clone(), handle()).unwrap();
        Stage { subject: outlet, topics: ids }
    };
    conformance::outlet(make, |_, topic, partition| {
        let name = catalogue.by_id(topic).unwrap().name.clone();
        let read = read_partition(&brokers, name.as_str(), i32::from(partition.get()));
        read.iter().map(|read| (read.id(), read.message())).collect()
    });
}

#[test]
fn a_missing_topic_holds_up_no_other_and_is_delivered_once_it_is_there() {
    let Some(mut scene) = Scene::new() else { return };
    let (good, missing) = (unique("good"), unique("missing"));
    make_topic(&scene.brokers, &good, 2, &[]);
    let ids = [scene.topic(&good, 2), scene.topic(&missing, 1)];
    let batch = scene.batch(&[(ids[0], 0), (ids[1], 0), (ids[0], 1), (ids[1], 0)]);
    let untaken = scene.deliver(&batch);
    assert_eq!(untaken.iter().map(|one| one.index).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(scene.texts(&good, 2), ["1", "3"]);
    // What Kafka has said no to is held back at once; what it has not answered for is told later.
    wait_until("Kafka has refused the topic", || {
        let more = scene.batch(&[(ids[0], 0), (ids[1], 0)]);
        let untaken = scene.deliver(&more);
        scene.outlet.told(Lane::Message);
        matches!(untaken[..], [Untaken { index: 1, fate: Fate::Later(_) }])
    });
    make_topic(&scene.brokers, &missing, 1, &[]);
    let last = scene.batch(&[(ids[1], 0), (ids[0], 1), (ids[1], 0)]);
    scene.deliver_all(&last);
    let arrived = scene.texts(&missing, 1);
    assert_eq!(
        arrived[arrived.len() - 2..],
        [last[0].message.body.clone(), last[2].message.body.clone()]
    );
}

#[test]
fn a_topic_that_is_deleted_and_made_again_loses_nothing_that_was_not_taken() {
    let Some(mut scene) = Scene::new() else { return };
    let (name, other) = (unique("deleted"), unique("other"));
    make_topic(&scene.brokers, &name, 1, &[]);
    make_topic(&scene.brokers, &other, 1, &[]);
    let ids = [scene.topic(&name, 1), scene.topic(&other, 1)];
    let first = scene.batch(&[(ids[0], 0), (ids[1], 0)]);
    scene.deliver_all(&first);
    delete_topic(&scene.brokers, &name);
    let batch = scene.batch(&[(ids[0], 0), (ids[1], 0), (ids[0], 0)]);
    let untaken = scene.deliver(&batch);
    let places: Vec<usize> = untaken.iter().map(|one| one.index).collect();
    assert_eq!(places, [0, 2], "the other topic goes on");
    make_topic(&scene.brokers, &name, 1, &[]);
    // Those are known to the outlet already, or come again.
    let mut open: Vec<Armed> = Vec::new();
    let mut later: Vec<Armed> = Vec::new();
    for Untaken { index, fate } in untaken {
        let pile = if fate == Fate::Open { &mut open } else { &mut later };
        pile.push(batch[index].clone());
    }
    wait_until("the open ones are answered for", || {
        for told in scene.outlet.told(Lane::Message) {
            let place = open.iter().position(|armed| armed.key == told.key).unwrap();
            let armed = open.remove(place);
            later.extend(told.later.map(|_| armed));
        }
        open.is_empty()
    });
    scene.deliver_all(&later);
    let mut arrived = scene.texts(&name, 1);
    arrived.sort();
    assert_eq!(arrived, ["3", "5"]);
    assert_eq!(scene.texts(&other, 1), ["2", "4"]);
}

#[test]
fn a_message_that_is_too_large_is_put_off_and_the_rest_of_its_topic_goes_on() {
    let Some(mut scene) = Scene::new() else { return };
    let name = unique("small");
    make_topic(&scene.brokers, &name, 1, &[("max.message.bytes", "20000")]);
    let id = scene.topic(&name, 1);
    let mut batch = scene.batch(&[(id, 0), (id, 0), (id, 0)]);
    batch[1].message.body = vec![b'x'; 100_000].into();
    scene.deliver_all(&batch[..1]);
    let untaken = scene.deliver(&batch[1..2]);
    let minute = Fate::Later(punctual_model::Span::from_secs(60));
    assert_eq!(untaken, [Untaken { index: 0, fate: minute }]);
    scene.deliver_all(&batch[2..]);
    assert_eq!(scene.texts(&name, 1), ["1", "3"]);
}

#[test]
fn fewer_partitions_in_kafka_are_shared() {
    let Some(mut scene) = Scene::new() else { return };
    let name = unique("few");
    make_topic(&scene.brokers, &name, 2, &[]);
    let id = scene.topic(&name, 5);
    let batch = scene.batch(&[(id, 0), (id, 1), (id, 2), (id, 3), (id, 4)]);
    scene.deliver_all(&batch);
    let mut arrived = scene.texts(&name, 2);
    arrived.sort();
    assert_eq!(arrived, ["1", "2", "3", "4", "5"]);
}

#[test]
fn topics_are_made_adopted_and_grown() {
    let Some(address) = services::kafka() else { return };
    let brokers = address.to_string();
    let kafka = KafkaTopics::connect(&KafkaOptions::new(&brokers), handle()).unwrap();
    let (new, old) = (unique("new"), unique("old"));
    let shape = |partitions| Shape { partitions, retention: None };
    assert_eq!(block_on(kafka.partitions(&new)), Ok(None));
    assert_eq!(kafka.make_blocking(&new, shape(3)), Ok(3));
    wait_until("Kafka tells of the topic", || block_on(kafka.partitions(&new)) == Ok(Some(3)));
    assert_eq!(block_on(kafka.make(&new, shape(1))), Ok(3), "it stays as it is");
    assert_eq!(block_on(kafka.make(&new, shape(4))), Ok(4));
    make_topic(&brokers, &old, 6, &[]);
    let catalogue = Arc::new(Reference::new());
    let topics = TopicsInKafka::new(catalogue, kafka.clone());
    let adopted = topics.put(&old, TopicSettings::default()).unwrap();
    assert_eq!(adopted.settings.partitions, 6);
    assert_eq!(topics.make(&old, TopicSettings::default()).unwrap().settings.partitions, 6);
    assert_eq!(block_on(kafka.delete(&old)), Ok(true));
    wait_until("it is gone", || block_on(kafka.delete(&old)) == Ok(false));
}

#[test]
fn settings_that_promises_depend_on_are_not_for_others() {
    for (name, value) in [("acks", "1"), ("enable.idempotence", "false"), ("no.such", "x")] {
        let mut options = KafkaOptions::new("127.0.0.1:1");
        options.properties.push((name.to_owned(), value.to_owned()));
        let started = KafkaOutlet::start(&options, Arc::new(Reference::new()), handle());
        assert!(started.is_err(), "{name} was taken");
    }
}

#[test]
fn while_there_is_no_kafka_nothing_is_taken_and_nothing_moved() {
    let catalogue = Arc::new(Reference::new());
    let mut options = KafkaOptions::new("127.0.0.1:1");
    options.patience = Duration::from_millis(100);
    let id = catalogue.put(&unique("nowhere"), TopicSettings::default()).unwrap().id;
    let outlet = KafkaOutlet::start(&options, catalogue, handle()).unwrap();
    let batch = [armed(1, id, 0, "1"), armed(2, id, 0, "2")];
    for _ in 0..2 {
        let error = block_on(outlet.deliver(&batch, now())).unwrap_err();
        assert!(error.passes(), "{error}");
    }
    assert!(outlet.told(Lane::Message).is_empty());
    assert!(!outlet.is_reachable());
}
