//! The way in from a real Kafka: nothing is lost and nothing accepted twice, whatever happens between
//! accepting and committing; what is bad stops nobody; while nothing is taken nothing is read.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may panic")]

mod kafka_support;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_cluster::kafka::{
    Accept, Accepted, Incoming, IngressOptions, KafkaIngress, KafkaOptions,
};
use punctual_model::ports::{Done, OnConflict, Order, Revised, StoreError, Timeline, Topics};
use punctual_model::{
    Basis, Entry, Extra, Lane, Message, OwnId, Partition, Timestamp, TopicId, TopicName,
    TopicSettings,
};
use punctual_testkit::{Reference, services};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};

use kafka_support::{block_on, handle, make_topic, read_topic, unique, wait_until};

const PARTITIONS: i32 = 3;

struct Scene {
    brokers: String,
    name: TopicName,
    timeline: Reference,
    topic: TopicId,
    options: IngressOptions,
}

impl Scene {
    fn new() -> Option<Self> {
        let brokers = services::kafka()?.to_string();
        let name = unique("in");
        make_topic(&brokers, &name, PARTITIONS, &[]);
        let timeline = Reference::new();
        let out = TopicName::new("out").unwrap();
        let topic = timeline.put(&out, TopicSettings::default()).unwrap().id;
        let options = IngressOptions {
            kafka: KafkaOptions::new(&brokers),
            topics: vec![name.as_str().to_owned()],
            group: format!("group-of-{name}"),
        };
        Some(Self { brokers, name, timeline, topic, options })
    }

    fn send(&self, numbers: std::ops::Range<u32>) {
        let mut config = ClientConfig::new();
        let producer: FutureProducer =
            config.set("bootstrap.servers", &self.brokers).create().unwrap();
        let sends: Vec<_> = numbers
            .map(|number| {
                let body = number.to_string();
                let headers =
                    OwnedHeaders::new().insert(Header { key: "number", value: Some(&body) });
                let partition = i32::try_from(number).unwrap() % PARTITIONS;
                let record: FutureRecord<'_, (), str> = FutureRecord::to(self.name.as_str());
                let record = record.partition(partition).payload(&body).headers(headers);
                producer.send_result(record).unwrap()
            })
            .collect();
        for sent in sends {
            block_on(sent).unwrap().unwrap();
        }
    }

    fn start(&self, accept: Accept) -> KafkaIngress {
        KafkaIngress::start(&self.options, accept, handle()).unwrap()
    }

    /// What waits in the timeline.
    fn accepted(&self) -> u64 {
        self.timeline.counts(Lane::Message).iter().map(|(_, count)| count).sum()
    }

    /// What the group has committed of all partitions together.
    fn committed(&self) -> i64 {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.brokers)
            .set("group.id", &self.options.group)
            .create()
            .unwrap();
        let mut places = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            places.add_partition(self.name.as_str(), partition);
        }
        let mut committed = TopicPartitionList::new();
        wait_until("Kafka tells what was committed", || {
            let told = consumer.committed_offsets(places.clone(), Duration::from_secs(30));
            let answered = told.is_ok();
            committed = told.unwrap_or_default();
            answered
        });
        let offset = |offset| if let Offset::Offset(offset) = offset { offset } else { 0 };
        committed.elements().iter().map(|place| offset(place.offset())).sum()
    }
}

/// Puts a record on the timeline unless it is there; one that says so is bad.
async fn store(timeline: &Reference, topic: TopicId, record: &Incoming) -> Accepted {
    let body = record.body.clone().unwrap();
    if body == "7" {
        return Accepted::Bad("seven is unlucky".to_owned());
    }
    let own_id = OwnId { text: record.own_id().into(), print: 1 };
    let entry = Entry {
        topic,
        partition: Partition::new(0).unwrap(),
        due: Timestamp::from_millis_saturating(4_000_000_000_000),
        basis: Basis::Date,
        message: Message { body, ..Message::default() },
        extra: Some(Box::new(Extra { own_id: Some(own_id), ..Extra::default() })),
    };
    let order = Order::Schedule { lane: Lane::Message, entry, conflict: OnConflict::Reject };
    match timeline.revise(vec![order]).await.unwrap() {
        Revised::Done(done) => assert!(matches!(done[0], Done::Stored(_) | Done::Known(_))),
        Revised::Refused { reason, .. } => panic!("{reason:?}"),
    }
    Accepted::Taken
}

/// Stores a batch, then answers what `verdict` says.
fn accept(
    scene: &Scene,
    verdict: impl Fn(&[Incoming]) -> Result<(), (bool, StoreError)> + Send + Sync + 'static,
) -> Accept {
    let (timeline, topic, verdict) = (scene.timeline.clone(), scene.topic, Arc::new(verdict));
    Arc::new(move |batch: Arc<Vec<Incoming>>| {
        let (timeline, verdict) = (timeline.clone(), Arc::clone(&verdict));
        Box::pin(async move {
            let verdict = verdict(&batch);
            if let Err((false, error)) = verdict {
                return Err(error);
            }
            let mut accepted = Vec::new();
            for record in batch.iter() {
                accepted.push(store(&timeline, topic, record).await);
            }
            verdict.map(|()| accepted).map_err(|(_, error)| error)
        })
    })
}

#[test]
fn what_was_accepted_and_not_committed_is_read_again_and_accepted_once() {
    let Some(scene) = Scene::new() else { return };
    scene.send(10..110);
    // Everything is stored, and then the process is as good as dead.
    let dies = accept(&scene, |_| Err((true, StoreError::Closed)));
    let ingress = scene.start(dies);
    wait_until("some records are stored", || scene.accepted() > 0);
    ingress.stop();
    let before = scene.accepted();
    assert_eq!(scene.committed(), 0, "nothing was committed");
    let again = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&again);
    let ingress = scene.start(accept(&scene, move |batch| {
        *seen.lock() += batch.len();
        Ok(())
    }));
    wait_until("all is stored and committed", || {
        scene.accepted() == 100 && scene.committed() == 100
    });
    ingress.stop();
    assert!(before > 0 && *again.lock() >= 100, "what was stored before was read again");
    assert_eq!(scene.accepted(), 100);
    // What was committed is not read again.
    *again.lock() = 0;
    let seen = Arc::clone(&again);
    let ingress = scene.start(accept(&scene, move |batch| {
        *seen.lock() += batch.len();
        Ok(())
    }));
    scene.send(110..120);
    wait_until("the new ones are there", || scene.accepted() == 110);
    ingress.stop();
    assert_eq!(*again.lock(), 10);
}

#[test]
fn a_bad_record_is_a_dead_letter_and_stops_nobody() {
    let Some(scene) = Scene::new() else { return };
    scene.send(0..20);
    let ingress = scene.start(accept(&scene, |_| Ok(())));
    wait_until("all is dealt with", || scene.accepted() == 19 && scene.committed() == 20);
    ingress.stop();
    let dead = read_topic(&scene.brokers, &format!("{}.dead", scene.name), 1);
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].text(), "7");
    assert_eq!(dead[0].header("number"), Some(&b"7"[..]));
    assert_eq!(dead[0].header("punctual-reason"), Some(&b"seven is unlucky"[..]));
    assert!(dead[0].header("punctual-origin").is_some());
}

#[test]
fn while_the_timeline_takes_nothing_nothing_is_lost_or_committed() {
    let Some(scene) = Scene::new() else { return };
    scene.send(10..40);
    let busy = Arc::new(Mutex::new((true, 0)));
    let state = Arc::clone(&busy);
    let ingress = scene.start(accept(&scene, move |_| {
        let mut state = state.lock();
        state.1 += 1;
        if state.0 { Err((false, StoreError::Unavailable("told to be".into()))) } else { Ok(()) }
    }));
    wait_until("it was refused three times", || busy.lock().1 >= 3);
    scene.send(40..50);
    let tries = busy.lock().1;
    wait_until("it was refused again", || busy.lock().1 > tries + 1);
    assert_eq!((scene.accepted(), scene.committed()), (0, 0));
    busy.lock().0 = false;
    wait_until("all is dealt with", || scene.accepted() == 40 && scene.committed() == 40);
    ingress.stop();
}
