//! Does the program behave when its disk is full, in use, or not to be written?
//!
//! A small file system is mounted and filled for real, which takes the rights of root; without
//! them those tests say so and are skipped.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a failed step may stop the test, which is about real time"
)]

mod process_support;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use process_support::http::Client;
use process_support::ledger::{Cancel, Ledger, Outcome, body};
use process_support::process::{Launch, Process};
use process_support::{logs, wait_for, wall_ms};
use serde_json::{Value, json};
use tempfile::TempDir;

const TOPIC: &str = "full";
const PARTITIONS: u64 = 2;
const DISK_BYTES: u64 = 320 << 20;
/// How long the disk stays full.
const FULL: Duration = Duration::from_secs(6);
/// How soon after there is room again messages have to be accepted.
const RESUME_MAX: Duration = Duration::from_secs(10);
/// How late a message may be while the disk is full.
const LATE_MS_MAX: u64 = 2000;

/// A small file system of its own.
struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    /// Mounts one of that kind; nothing where that is not possible.
    fn mount(kind: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let disk = directory.path().join("disk");
        std::fs::create_dir(&disk).unwrap();
        let image = directory.path().join("image");
        let mut mount = Command::new("mount");
        if kind == "tmpfs" {
            mount.args(["-t", "tmpfs", "-o", &format!("size={DISK_BYTES}"), "tmpfs"]);
        } else {
            File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
            let mut make = Command::new(format!("mkfs.{kind}"));
            if !succeeds(make.args(["-q", "-m", "0"]).arg(&image)) {
                eprintln!("skipped: there is no mkfs.{kind}");
                return None;
            }
            mount.args(["-o", "loop"]).arg(&image);
        }
        if !succeeds(mount.arg(&disk)) {
            eprintln!("skipped: mounting a {kind} is not permitted");
            return None;
        }
        Some(Self { directory })
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    /// Takes all the room there is, but for a rest that the file system may need for itself. It is
    /// taken at once: whoever went on taking would get what the broker gives up for itself.
    fn fill(&self) {
        let room = Command::new("df").args(["-B1", "--output=avail"]).arg(self.path()).output();
        let room = String::from_utf8(room.unwrap().stdout).unwrap();
        let room: u64 = room.lines().last().unwrap().trim().parse().unwrap();
        let take = |rest: &u64| {
            let mut take = Command::new("fallocate");
            take.args(["-l", &(room - rest).to_string()]).arg(self.path().join("filler"));
            succeeds(&mut take)
        };
        assert!([0, 64 << 10, 1 << 20, 4 << 20].iter().any(take), "there is no room to take");
    }

    fn free(&self) {
        std::fs::remove_file(self.path().join("filler")).unwrap();
    }

    fn make_read_only(&self) {
        assert!(succeeds(Command::new("mount").args(["-o", "remount,ro"]).arg(self.path())));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if !succeeds(Command::new("umount").arg(self.path())) {
            eprintln!("{} is still mounted", self.path().display());
        }
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A client with its ledger.
struct Producer {
    client: Client,
    ledger: Ledger,
    next_serial: u64,
}

impl Producer {
    /// Schedules a batch with these delays; answers whether it was accepted.
    fn send(&mut self, delays_ms: &[u64]) -> bool {
        let first = self.next_serial;
        let count = u64::try_from(delays_ms.len()).unwrap();
        self.next_serial += count;
        let message = |(serial, delay): (u64, &u64)| json!({"body": body(serial), "delay": delay});
        let messages: Vec<Value> = (first..).zip(delays_ms).map(message).collect();
        let path = format!("/v1/topics/{TOPIC}/messages");
        let answer = self.client.post(&path, &json!({ "messages": messages })).unwrap();
        if answer.status == 507 {
            assert_eq!(answer.code(), "storage_full");
        }
        self.ledger.note_schedule(first, count, Some(&answer));
        answer.status == 201
    }

    fn send_some(&mut self) -> bool {
        let delays: Vec<u64> = (0..100).map(|number| number * 50).collect();
        self.send(&delays)
    }

    fn cancel(&mut self, id: String) {
        let answer = self.client.delete(&format!("/v1/messages/{id}")).unwrap();
        let outcome = Cancel::of(&answer);
        assert_eq!(outcome, Cancel::Cancelled, "cancels go on");
        self.ledger.cancels.push((id, outcome));
    }

    /// The ids of the last accepted batch.
    fn last_ids(&self) -> Vec<String> {
        match self.ledger.requests.last() {
            Some((_, _, Outcome::Accepted(ids))) => ids.iter().map(|(id, _)| id.clone()).collect(),
            _ => Vec::new(),
        }
    }

    /// Waits until nothing is due, and compares everything with the ledger.
    fn check(&mut self) {
        let last_ms = wall_ms() + 60_000;
        wait_for("everything due to be delivered", || {
            (!logs::has_overdue(&mut self.client, TOPIC, last_ms)).then_some(())
        });
        let figures = self.ledger.check(&mut self.client, &[(TOPIC.to_owned(), PARTITIONS)]);
        eprintln!("{figures:?}");
        assert!(figures.accepted > 0 && figures.delivered > 0 && figures.refused > 0);
    }
}

/// The largest lateness of what was delivered in a window, and how much that was.
fn lateness(client: &mut Client, from_ms: u64, to_ms: u64) -> (u64, u64) {
    let (mut largest, mut count) = (0, 0);
    for partition in 0..PARTITIONS {
        logs::read_log(client, TOPIC, partition, |message| {
            if (from_ms..to_ms).contains(&message.due_ms) {
                largest = largest.max(message.delivered_ms - message.due_ms);
                count += 1;
            }
        });
    }
    (largest, count)
}

/// Fills the disk under load and waits until nothing more is accepted.
fn fill(disk: &SmallDisk, producer: &mut Producer) {
    // Some to fall due all the while.
    let delays: Vec<u64> = (0..1000).map(|number| number * 20).collect();
    assert!(producer.send(&delays));
    std::thread::scope(|scope| {
        let filling = scope.spawn(|| disk.fill());
        while !filling.is_finished() {
            producer.send_some();
        }
        filling.join().unwrap();
    });
    // What the broker had set aside may carry it for one more file.
    let mut refused_since = Instant::now();
    let (_, took) = wait_for("schedules to be refused", || {
        if producer.send_some() {
            refused_since = Instant::now();
        }
        (refused_since.elapsed() > Duration::from_secs(2)).then_some(())
    });
    eprintln!("refused for good after {:?}", took.saturating_sub(Duration::from_secs(2)));
}

/// While the disk is full next to nothing is accepted, and everything else goes on. The broker may
/// give back room of its own now and then, and fill it again.
fn stay_full(producer: &mut Producer, cancellable: &mut Vec<String>) {
    let from_ms = wall_ms();
    let started = Instant::now();
    let (mut accepted, mut refused) = (0, 0);
    while started.elapsed() < FULL {
        *if producer.send_some() { &mut accepted } else { &mut refused } += 1;
        producer.cancel(cancellable.pop().unwrap());
        producer.client.get("/v1/topics").unwrap().expect(200);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(refused > 4 * accepted, "{accepted} accepted and {refused} refused on a full disk");
    let to_ms = wall_ms() - LATE_MS_MAX;
    let (largest_ms, count) = lateness(&mut producer.client, from_ms, to_ms);
    eprintln!("{count} delivered on a full disk, at most {largest_ms} ms late");
    assert!(largest_ms <= LATE_MS_MAX && count > 0, "{count} delivered, {largest_ms} ms late");
    assert!(!logs::has_overdue(&mut producer.client, TOPIC, to_ms), "deliveries go on");
}

fn resume(disk: &SmallDisk, producer: &mut Producer) {
    disk.free();
    let (_, took) = wait_for("messages to be accepted", || producer.send_some().then_some(()));
    eprintln!("accepted again {took:?} after there was room");
    assert!(took <= RESUME_MAX, "{took:?}");
}

fn launch_on(disk: &SmallDisk) -> Launch {
    Launch::on(disk.path().join("data")).with("PUNCTUAL_STORE__MEMORY", "16MiB")
}

fn fill_and_free(kind: &str) {
    let Some(disk) = SmallDisk::mount(kind) else {
        return;
    };
    let launch = launch_on(&disk);
    let mut process = launch.start();
    let mut producer =
        Producer { client: process.client(), ledger: Ledger::default(), next_serial: 0 };
    let settings = json!({ "partitions": PARTITIONS });
    producer.client.put(&format!("/v1/topics/{TOPIC}"), &settings).unwrap().expect(201);
    assert!(producer.send(&[3_600_000; 300]));
    let mut cancellable = producer.last_ids();

    fill(&disk, &mut producer);
    stay_full(&mut producer, &mut cancellable);
    resume(&disk, &mut producer);
    fill(&disk, &mut producer);
    // It comes up on a full disk as well.
    process.kill();
    process.check_log();
    process = launch.start();
    producer.client = process.client();
    stay_full(&mut producer, &mut cancellable);
    resume(&disk, &mut producer);
    producer.check();
    process.kill();
    process.check_log();
    process = launch.start();
    producer.client = process.client();
    producer.check();
    process.check_log();
}

#[test]
fn g6_a_full_ext4_refuses_schedules_and_nothing_else() {
    fill_and_free("ext4");
}

#[test]
fn g6_a_full_tmpfs_refuses_schedules_and_nothing_else() {
    fill_and_free("tmpfs");
}

/// Starts it where it cannot run; answers what it said.
fn refusal(data: &Path) -> String {
    let mut process: Process = Launch::on(data).spawn();
    assert_eq!(process.wait_for_end().code(), Some(1));
    // The last line may arrive a moment after the end.
    let name = data.to_str().unwrap();
    wait_for("the reason", || {
        let log = process.log();
        (log.contains(name) && !log.contains("panicked")).then_some(log)
    })
    .0
}

#[test]
fn g8_a_directory_in_use_is_refused_and_its_owner_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let owner = Launch::on(&data).start();
    assert!(refusal(&data).contains("in use"));
    let message = json!({ "body": "still here", "delay": "1h" });
    owner.client().post("/v1/topics/t/messages", &message).unwrap().expect(201);
}

#[test]
fn a_directory_that_cannot_be_written_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "not a directory").unwrap();
    eprintln!("{}", refusal(&file));
    eprintln!("{}", refusal(&file.join("data")));
    std::fs::create_dir(directory.path().join("strange")).unwrap();
    std::fs::write(directory.path().join("strange/notes"), "not a store").unwrap();
    eprintln!("{}", refusal(&directory.path().join("strange")));
    if let Some(disk) = SmallDisk::mount("tmpfs") {
        let mut process = launch_on(&disk).start();
        process.kill();
        disk.make_read_only();
        eprintln!("{}", refusal(&disk.path().join("data")));
        eprintln!("{}", refusal(&disk.path().join("other")));
    }
}
