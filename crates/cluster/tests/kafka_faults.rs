//! Kafka is stopped, killed and started again in the middle of deliveries: nothing is lost, and where
//! nothing else fails nothing comes twice.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod kafka_support;

use std::sync::Arc;
use std::time::Duration;

use punctual_cluster::kafka::{KafkaOptions, KafkaOutlet};
use punctual_model::ports::{Armed, Fate, Outlet, StoreError, Topics, Untaken};
use punctual_model::{Lane, TopicId, TopicName, TopicSettings};
use punctual_testkit::Reference;
use punctual_testkit::services::{Private, Service};

use kafka_support::{armed, block_on, handle, make_topic, now, read_partition, unique, wait_until};

const PARTITIONS: u16 = 3;
const BATCH: u64 = 500;

struct Scene {
    kafka: Private,
    brokers: String,
    outlet: KafkaOutlet,
    name: TopicName,
    topic: TopicId,
    next: u64,
    open: Vec<Armed>,
    _directory: tempfile::TempDir,
}

impl Scene {
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let kafka = Private::start(Service::Kafka, directory.path())?;
        let brokers = kafka.address().to_string();
        let name = unique("faults");
        make_topic(&brokers, &name, i32::from(PARTITIONS), &[]);
        let catalogue = Arc::new(Reference::new());
        let settings = TopicSettings { partitions: PARTITIONS, ..TopicSettings::default() };
        let topic = catalogue.put(&name, settings).unwrap().id;
        let options = KafkaOptions::new(&brokers);
        let outlet = KafkaOutlet::start(&options, catalogue, handle()).unwrap();
        let (next, open) = (0, Vec::new());
        Some(Self { kafka, brokers, outlet, name, topic, next, open, _directory: directory })
    }

    fn batch(&mut self) -> Vec<Armed> {
        let first = self.next;
        self.next += BATCH;
        let entry = |number: u64| {
            let partition = u16::try_from(number % u64::from(PARTITIONS)).unwrap();
            armed(number, self.topic, partition, number.to_string())
        };
        (first..self.next).map(entry).collect()
    }

    /// Offers a batch once. Answers what has to be offered again.
    fn offer(&mut self, batch: Vec<Armed>) -> Result<Vec<Armed>, (StoreError, Vec<Armed>)> {
        let mut left = Vec::new();
        for told in self.outlet.told(Lane::Message) {
            let place = self.open.iter().position(|armed| armed.key == told.key).unwrap();
            let armed = self.open.remove(place);
            left.extend(told.later.map(|_| armed));
        }
        match block_on(self.outlet.deliver(&batch, now())) {
            Err(error) => Err((error, batch)),
            Ok(untaken) => {
                for Untaken { index, fate } in untaken {
                    let pile = if fate == Fate::Open { &mut self.open } else { &mut left };
                    pile.push(batch[index].clone());
                }
                Ok(left)
            }
        }
    }

    fn offer_until_taken(&mut self, mut batch: Vec<Armed>) {
        wait_until("the batch is taken", || {
            let offered = self.offer(std::mem::take(&mut batch));
            batch = offered.unwrap_or_else(|(_, batch)| batch);
            batch.is_empty() && self.open.is_empty()
        });
    }

    /// Everything arrived once, in the order of each partition.
    fn check(&self) {
        for partition in 0..u64::from(PARTITIONS) {
            let number = i32::try_from(partition).unwrap();
            let read = read_partition(&self.brokers, self.name.as_str(), number);
            let read: Vec<u64> = read.iter().map(|read| read.text().parse().unwrap()).collect();
            let here = |number: &u64| number % u64::from(PARTITIONS) == partition;
            let sent: Vec<u64> = (0..self.next).filter(here).collect();
            assert!(read == sent, "partition {partition}: {} of {}", read.len(), sent.len());
        }
    }
}

#[test]
fn a_kafka_that_hangs_and_goes_on_gets_everything_once() {
    let Some(mut scene) = Scene::new() else { return };
    let batch = scene.batch();
    scene.offer_until_taken(batch);
    scene.kafka.signal("STOP");
    let mut batch = scene.batch();
    for _ in 0..2 {
        let (error, again) = scene.offer(batch).unwrap_err();
        assert!(error.passes(), "{error}");
        batch = again;
    }
    assert!(scene.open.is_empty(), "nothing was moved while it hung");
    assert!(!scene.outlet.is_reachable());
    scene.kafka.signal("CONT");
    scene.offer_until_taken(batch);
    assert!(scene.outlet.is_reachable());
    for _ in 0..3 {
        let batch = scene.batch();
        scene.offer_until_taken(batch);
    }
    scene.check();
}

#[test]
fn a_kafka_that_is_killed_and_started_again_gets_everything_once() {
    let Some(mut scene) = Scene::new() else { return };
    let batch = scene.batch();
    scene.offer_until_taken(batch);
    for _ in 0..2 {
        // In the middle of a batch: the client has it, and Kafka may have some of it.
        let batch = scene.batch();
        let brokers = scene.brokers.clone();
        let killed = std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                std::thread::park_timeout(Duration::from_millis(1));
                scene.kafka.signal("KILL");
            });
            let first = block_on(scene.outlet.deliver(&batch, now()));
            killer.join().unwrap();
            first
        });
        let mut left = batch.clone();
        match killed {
            Ok(untaken) => {
                let mut again = Vec::new();
                for Untaken { index, fate } in untaken {
                    let pile = if fate == Fate::Open { &mut scene.open } else { &mut again };
                    pile.push(batch[index].clone());
                }
                left = again;
            }
            Err(error) => assert!(error.passes(), "{error}"),
        }
        if !left.is_empty() {
            let offered = scene.offer(left);
            left = offered.unwrap_or_else(|(_, left)| left);
        }
        scene.kafka.again();
        assert_eq!(scene.kafka.address().to_string(), brokers);
        scene.offer_until_taken(left);
        let batch = scene.batch();
        scene.offer_until_taken(batch);
    }
    scene.check();
}
