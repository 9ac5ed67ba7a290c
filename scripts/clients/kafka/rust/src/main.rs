//! The crate rdkafka against a broker: `rdkafka-check HOST:PORT`.
//!
//! A check that fails ends the program with the reason. With PLAIN set the broker is one that does
//! not delay.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Header, Headers as _, Message as _, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use rdkafka::{Offset, TopicPartitionList};

const PARTITIONS: i32 = 3;
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a busy machine takes to send what must be written before it is due.
const DELAY_MS: u128 = 5000;

type Outcome = Result<(), String>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let outcome = match arguments.as_slice() {
        [address] => runtime.block_on(Check { address: address.clone() }.run()),
        [address, role, topic, group] if role == "member" => {
            Check { address: address.clone() }.be_member(topic, group)
        }
        _ => Err("usage: rdkafka-check HOST:PORT".to_owned()),
    };
    if let Err(reason) = outcome {
        eprintln!("FAILED: {reason}");
        std::process::exit(1);
    }
}

fn expect(condition: bool, reason: impl FnOnce() -> String) -> Outcome {
    if condition { Ok(()) } else { Err(reason()) }
}

fn until(what: &str, mut ask: impl FnMut() -> Result<bool, String>) -> Outcome {
    let end = Instant::now() + PATIENCE;
    while !ask()? {
        expect(Instant::now() < end, || format!("waited too long for {what}"))?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn name(kind: &str) -> String {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
    format!("rust-{kind}-{nanos}")
}

struct Check {
    address: String,
}

impl Check {
    async fn run(&self) -> Outcome {
        self.administer().await?;
        self.compress().await?;
        self.idempotent().await?;
        if std::env::var_os("PLAIN").is_none() {
            self.delay().await?;
        }
        self.resume().await?;
        self.rebalance().await?;
        println!("all is well");
        Ok(())
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.address);
        config
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>, String> {
        self.config().create().map_err(text)
    }

    fn producer(&self, settings: &[(&str, &str)]) -> Result<FutureProducer, String> {
        let mut config = self.config();
        config.set("linger.ms", "20");
        for (key, value) in settings {
            config.set(*key, *value);
        }
        config.create().map_err(text)
    }

    fn consumer(&self, group: &str) -> Result<BaseConsumer, String> {
        let mut config = self.config();
        config
            .set("group.id", group)
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.commit", "false")
            .set("session.timeout.ms", "15000")
            .set("heartbeat.interval.ms", "500");
        config.create().map_err(text)
    }

    async fn topic(&self, partitions: i32) -> Result<String, String> {
        let made = name("topic");
        let admin = self.admin()?;
        let topic = NewTopic::new(&made, partitions, TopicReplication::Fixed(1));
        let results = admin.create_topics([&topic], &AdminOptions::new()).await.map_err(text)?;
        for result in results {
            result.map_err(|(topic, code)| format!("{topic}: {code}"))?;
        }
        Ok(made)
    }

    fn partitions(&self, topic: &str) -> Result<usize, String> {
        let metadata = self.admin()?.inner().fetch_metadata(None, PATIENCE).map_err(text)?;
        let found = metadata.topics().iter().find(|one| one.name() == topic);
        Ok(found.map_or(0, |one| one.partitions().len()))
    }

    async fn administer(&self) -> Outcome {
        let (made, options) = (self.topic(PARTITIONS).await?, AdminOptions::new());
        let admin = self.admin()?;
        until("the topic", || Ok(self.partitions(&made)? == 3))?;
        let again = NewTopic::new(&made, 1, TopicReplication::Fixed(1));
        let results = admin.create_topics([&again], &options).await.map_err(text)?;
        expect(matches!(results[0], Err((_, RDKafkaErrorCode::TopicAlreadyExists))), || format!("twice: {results:?}"))?;
        admin.create_partitions([&NewPartitions::new(&made, 4)], &options).await.map_err(text)?;
        until("the new partition", || Ok(self.partitions(&made)? == 4))?;
        let changed = AlterConfig::new(ResourceSpecifier::Topic(&made)).set("retention.ms", "3600000");
        for result in admin.alter_configs([&changed], &options).await.map_err(text)? {
            result.map_err(|(_, code)| format!("changing settings: {code}"))?;
        }
        let described = admin.describe_configs([&ResourceSpecifier::Topic(&made)], &options).await.map_err(text)?;
        let settings = described.into_iter().next().ok_or("nothing described")?.map_err(text)?;
        let retention = settings.get("retention.ms").and_then(|entry| entry.value.clone());
        expect(retention.as_deref() == Some("3600000"), || format!("retention.ms: {retention:?}"))?;
        for result in admin.delete_topics(&[&made], &options).await.map_err(text)? {
            result.map_err(|(_, code)| format!("deleting: {code}"))?;
        }
        until("the topic to be gone", || Ok(self.partitions(&made)? == 0))?;
        println!("  topics are made, changed, described and deleted");
        Ok(())
    }

    fn take(&self, reader: &BaseConsumer, count: usize) -> Result<Vec<OwnedMessage>, String> {
        let mut records = Vec::new();
        until(&format!("{count} records"), || {
            if let Some(record) = reader.poll(Duration::from_millis(500)) {
                records.push(record.map_err(text)?.detach());
            }
            Ok(records.len() >= count)
        })?;
        Ok(records)
    }

    fn read(&self, topic: &str, count: usize) -> Result<Vec<OwnedMessage>, String> {
        let reader = self.consumer(&name("reader"))?;
        let mut assignment = TopicPartitionList::new();
        for partition in 0..i32::try_from(self.partitions(topic)?).map_err(text)? {
            assignment.add_partition_offset(topic, partition, Offset::Beginning).map_err(text)?;
        }
        reader.assign(&assignment).map_err(text)?;
        self.take(&reader, count)
    }

    /// Sends the numbers of a range and waits for the answers.
    async fn send(&self, producer: &FutureProducer, topic: &str, numbers: std::ops::Range<i32>, partitions: i32) -> Outcome {
        let mut answers = Vec::new();
        for number in numbers {
            let (key, value) = (number.to_string(), body(number));
            let record = FutureRecord::to(topic).key(&key).payload(&value).partition(number % partitions).headers(headers());
            answers.push(producer.send_result(record).map_err(|(error, _)| text(error))?);
        }
        for answer in answers {
            answer.await.map_err(text)?.map_err(|(error, _)| text(error))?;
        }
        Ok(())
    }

    async fn compress(&self) -> Outcome {
        for codec in ["none", "gzip", "snappy", "lz4"] {
            let topic = self.topic(1).await?;
            let producer = self.producer(&[("compression.type", codec)])?;
            self.send(&producer, &topic, 0..200, 1).await?;
            for (number, record) in (0..).zip(self.read(&topic, 200)?) {
                let key = number.to_string();
                expect(record.key() == Some(key.as_bytes()), || format!("{codec}: key {:?}", record.key()))?;
                expect(record.payload() == Some(body(number).as_bytes()), || format!("{codec}: value"))?;
                expect(record.offset() == i64::from(number), || format!("{codec}: offset {}", record.offset()))?;
                let found = record.headers().map(shown);
                expect(found == Some(shown(&headers())), || format!("{codec}: headers {found:?}"))?;
            }
        }
        println!("  none, gzip, snappy, lz4: keys, values and headers come back byte for byte");
        Ok(())
    }

    async fn idempotent(&self) -> Outcome {
        let topic = self.topic(PARTITIONS).await?;
        let producer = self.producer(&[("enable.idempotence", "true"), ("batch.num.messages", "50")])?;
        self.send(&producer, &topic, 0..3000, PARTITIONS).await?;
        for (number, acks) in (0..).zip(["0", "1"]) {
            let other = self.producer(&[("acks", acks)])?;
            self.send(&other, &topic, 3000 + 3 * number..3003 + 3 * number, PARTITIONS).await?;
            other.flush(PATIENCE).map_err(text)?;
        }
        let records = self.read(&topic, 3006)?;
        for partition in 0..PARTITIONS {
            let found: Vec<i32> = records.iter().filter(|one| one.partition() == partition).map(number_of).collect();
            let wanted: Vec<i32> = (partition..3006).step_by(3).collect();
            expect(found == wanted, || format!("the order of partition {partition}"))?;
        }
        println!("  an idempotent producer and acks of 0 and 1: each record once, in order");
        Ok(())
    }

    async fn delay(&self) -> Outcome {
        let (topic, begun) = (self.topic(1).await?, now_ms());
        let producer = self.producer(&[("enable.idempotence", "true")])?;
        let mut answers = Vec::new();
        for number in 0..4 {
            let value = number.to_string();
            let mut record = FutureRecord::<(), _>::to(&topic).payload(&value).partition(0);
            if number < 3 {
                let headers = OwnedHeaders::new()
                    .insert(Header { key: "punctual-delay", value: Some(&DELAY_MS.to_string()) })
                    .insert(Header { key: "kept", value: Some("as it was") });
                record = record.headers(headers);
            }
            answers.push(producer.send_result(record).map_err(|(error, _)| text(error))?);
        }
        for (wanted, answer) in (0..).zip(answers) {
            let delivery = answer.await.map_err(text)?.map_err(|(error, _)| text(error))?;
            expect(delivery.offset == wanted, || format!("{wanted} was acknowledged at {}", delivery.offset))?;
        }
        let records = self.read(&topic, 4)?;
        let found: Vec<(i32, i64)> = records.iter().map(|one| (number_of(one), one.offset())).collect();
        expect(found == [(3, 3), (0, 4), (1, 5), (2, 6)], || format!("numbers and offsets {found:?}"))?;
        for record in &records[1..] {
            let headers = record.headers().ok_or("no headers")?;
            let value = |key| headers.iter().find(|one| one.key == key).and_then(|one| one.value).map(String::from_utf8_lossy);
            let due: u128 = value("punctual-due").ok_or("no punctual-due")?.parse().map_err(text)?;
            expect(due >= begun + DELAY_MS && now_ms() >= due, || format!("due {due}, sent after {begun}"))?;
            expect(value("punctual-id").is_some() && value("punctual-delay").is_none(), || format!("{headers:?}"))?;
            expect(value("kept").as_deref() == Some("as it was"), || format!("{headers:?}"))?;
        }
        println!("  delayed records come, not early, at new offsets, with their headers");
        Ok(())
    }

    async fn resume(&self) -> Outcome {
        let (topic, group) = (self.topic(1).await?, name("group"));
        self.send(&self.producer(&[])?, &topic, 0..20, 1).await?;
        let reader = self.consumer(&group)?;
        reader.subscribe(&[&topic]).map_err(text)?;
        self.take(&reader, 20)?;
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset(&topic, 0, Offset::Offset(7)).map_err(text)?;
        reader.commit(&offsets, CommitMode::Sync).map_err(text)?;
        let groups = reader.fetch_group_list(Some(&group), PATIENCE).map_err(text)?;
        let found = groups.groups().first().ok_or("the group is not listed")?;
        expect((found.state(), found.members().len()) == ("Stable", 1), || format!("the group is {}", found.state()))?;
        drop(reader);
        let reader = self.consumer(&group)?;
        reader.subscribe(&[&topic]).map_err(text)?;
        let first = number_of(&self.take(&reader, 13)?[0]);
        expect(first == 7, || format!("resumed at {first}, committed was 7"))?;
        drop(reader);
        for result in self.admin()?.delete_groups(&[&group], &AdminOptions::new()).await.map_err(text)? {
            result.map_err(|(_, code)| format!("deleting the group: {code}"))?;
        }
        println!("  commits are kept, and reading resumes there");
        Ok(())
    }

    async fn rebalance(&self) -> Outcome {
        let (topic, group) = (self.topic(PARTITIONS).await?, name("group"));
        let (first, second) = (self.consumer(&group)?, self.consumer(&group)?);
        first.subscribe(&[&topic]).map_err(text)?;
        until("the first member", || Ok(holds(&first)? == 3))?;
        second.subscribe(&[&topic]).map_err(text)?;
        until("both members to share", || {
            let (one, other) = (holds(&first)?, holds(&second)?);
            Ok(one > 0 && other > 0 && one + other == 3)
        })?;
        drop(second);
        until("the partitions of the one that left", || Ok(holds(&first)? == 3))?;
        let mut other = Command::new(std::env::current_exe().map_err(text)?)
            .args([&self.address, "member", &topic, &group])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(text)?;
        let (tell, told) = mpsc::channel();
        let said = BufReader::new(other.stdout.take().ok_or("no output")?);
        std::thread::spawn(move || tell.send(said.lines().next()));
        until("the other process to hold some", || Ok(holds(&first).is_ok() && told.try_recv().is_ok()))?;
        other.kill().map_err(text)?;
        other.wait().map_err(text)?;
        until("the partitions of the one that crashed", || Ok(holds(&first)? == 3))?;
        self.send(&self.producer(&[])?, &topic, 0..30, PARTITIONS).await?;
        let found: BTreeSet<i32> = self.take(&first, 30)?.iter().map(number_of).collect();
        expect(found == (0..30).collect(), || format!("the last member got {found:?}"))?;
        println!("  members join, leave and crash");
        Ok(())
    }

    /// The other process: joins, says so, and stays until it is killed.
    fn be_member(&self, topic: &str, group: &str) -> Outcome {
        let reader = self.consumer(group)?;
        reader.subscribe(&[topic]).map_err(text)?;
        until("an assignment", || Ok(holds(&reader)? > 0))?;
        println!("assigned");
        loop {
            holds(&reader)?;
        }
    }
}

/// Polls, as a member must, and says how many partitions it holds.
fn holds(member: &BaseConsumer) -> Result<usize, String> {
    if let Some(record) = member.poll(Duration::from_millis(50)) {
        record.map_err(text)?;
    }
    Ok(member.assignment().map_err(text)?.count())
}

fn body(number: i32) -> String {
    format!("{number}:{}", "x".repeat(200))
}

fn number_of(record: &OwnedMessage) -> i32 {
    let body = String::from_utf8_lossy(record.payload().unwrap_or_default());
    body.split(':').next().and_then(|number| number.parse().ok()).unwrap_or(-1)
}

fn headers() -> OwnedHeaders {
    OwnedHeaders::new()
        .insert(Header { key: "twice", value: Some(b"first".as_slice()) })
        .insert(Header { key: "twice", value: Some(b"second".as_slice()) })
        .insert(Header { key: "nothing", value: None::<&[u8]> })
        .insert(Header { key: "empty", value: Some(b"".as_slice()) })
        .insert(Header { key: "bytes", value: Some([0, 255, 128].as_slice()) })
}

fn shown(headers: &OwnedHeaders) -> Vec<(String, Option<Vec<u8>>)> {
    headers.iter().map(|one| (one.key.to_owned(), one.value.map(<[u8]>::to_vec))).collect()
}
