//! Does a node of a cluster keep its word over real etcd and real ZooKeeper, also when they stop,
//! come back or cannot be reached, and when the node itself is stopped?

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use punctual_cluster::coordinator::{Cluster, JoinOptions, Service};
use punctual_model::ports::{Coordinator, CoordinatorError, Holding};
use punctual_model::{Span, SystemClock};
use punctual_testkit::conformance::{self, Company};
use punctual_testkit::services::{self, Private};
use tokio::runtime::Runtime;

const SLOTS: u32 = 12;

/// As short as etcd allows, where it is to end soon.
const LEASE: Span = Span::from_secs(2);

/// As long as ZooKeeper allows, where it is not to end although the machine stands still at times.
const LONG_LEASE: Span = Span::from_secs(10);

/// How long something may take on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A kind of service, so that each test is written once.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Etcd,
    ZooKeeper,
}

impl Kind {
    fn at(self, address: &str) -> Service {
        let endpoints = vec![address.to_owned()];
        match self {
            Self::Etcd => Service::Etcd { endpoints },
            Self::ZooKeeper => Service::ZooKeeper { endpoints },
        }
    }

    fn shared(self) -> Option<String> {
        let address = match self {
            Self::Etcd => services::etcd(),
            Self::ZooKeeper => services::zookeeper(),
        };
        address.map(|address| address.to_string())
    }

    fn private(self, directory: &std::path::Path) -> Option<Private> {
        let service = match self {
            Self::Etcd => services::Service::Etcd,
            Self::ZooKeeper => services::Service::ZooKeeper,
        };
        Private::start(service, directory)
    }
}

/// A cluster of its own on a service.
struct Real {
    runtime: Runtime,
    service: Service,
    cluster: String,
    lease: Span,
    joined: usize,
}

impl Real {
    fn new(service: Service, lease: Span) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let cluster = format!("test-{:016x}", getrandom::u64().unwrap());
        Self { runtime: runtime.unwrap(), service, cluster, lease, joined: 0 }
    }

    fn member(&mut self) -> Arc<Cluster> {
        self.joined += 1;
        let options = options(&self.cluster, &format!("node{}", self.joined), self.lease);
        let clock = Arc::new(SystemClock::new());
        Cluster::join(options, self.service.clone(), clock, self.runtime.handle()).unwrap()
    }
}

fn options(cluster: &str, node: &str, lease: Span) -> JoinOptions {
    JoinOptions {
        cluster: cluster.into(),
        node: node.into(),
        address: format!("http://{node}:8080"),
        version: "1.2.3".into(),
        slots: SLOTS,
        lease,
        rebalance_delay: Span::from_millis(300),
    }
}

impl Company for Real {
    type Member = Cluster;

    const SLOTS: u32 = SLOTS;

    fn join(&mut self) -> Option<Arc<Cluster>> {
        Some(self.member())
    }

    fn leave(&mut self, member: Arc<Cluster>) {
        self.runtime.block_on(member.leave());
    }
}

/// Waits until something is so.
fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let (_never, pause) = sync_channel::<()>(0);
    let mut left = PATIENCE;
    while !so() {
        left = left.checked_sub(LOOK).unwrap_or_else(|| panic!("in vain: {what}"));
        let _elapsed = pause.recv_timeout(LOOK);
    }
}

/// Lets go of what is to leave, and answers how many slots are held for certain.
fn certain(member: &Cluster) -> usize {
    let holding = member.holding();
    for held in holding.slots.iter().filter(|held| held.leaving) {
        member.released(held.slot, held.term);
    }
    if member.is_certain() { member.holding().slots.len() } else { 0 }
}

fn wait_for_shares(members: &[&Cluster], shares: &[usize]) {
    wait_for(&format!("shares of {shares:?}"), || {
        members.iter().map(|member| certain(member)).eq(shares.iter().copied())
    });
}

fn newest(holding: &Holding) -> u64 {
    holding.slots.iter().map(|held| held.term).max().unwrap()
}

fn conforms(kind: Kind) {
    let Some(address) = kind.shared() else { return };
    conformance::coordinator(|| Real::new(kind.at(&address), LONG_LEASE));
}

#[test]
fn etcd_is_a_coordinator() {
    conforms(Kind::Etcd);
}

#[test]
fn zookeeper_is_a_coordinator() {
    conforms(Kind::ZooKeeper);
}

/// The service is stopped for longer than a lease: nobody holds anything meanwhile, and then it
/// goes on by itself. Then it is killed and started again.
fn survives_an_outage(kind: Kind) {
    let directory = tempfile::tempdir().unwrap();
    let Some(private) = kind.private(directory.path()) else { return };
    let mut real = Real::new(kind.at(&private.address().to_string()), LEASE);
    let (first, second) = (real.member(), real.member());
    let half = usize::try_from(SLOTS / 2).unwrap();
    wait_for_shares(&[&first, &second], &[half, half]);
    let before = [first.holding(), second.holding()].map(|holding| newest(&holding));

    private.signal("STOP");
    wait_for("both stop by themselves", || !first.is_certain() && !second.is_certain());
    private.signal("CONT");
    wait_for_shares(&[&first, &second], &[half, half]);

    private.signal("KILL");
    wait_for("both stop again", || !first.is_certain() && !second.is_certain());
    private.again();
    wait_for_shares(&[&first, &second], &[half, half]);
    let after = [first.holding(), second.holding()].map(|holding| newest(&holding));
    assert!(before.iter().max() <= after.iter().max(), "terms went back: {before:?}, {after:?}");
    // Refused while the node joins anew, as it may on a machine that stands still for a while.
    wait_for("it takes another number", || {
        let asked = real.runtime.block_on(first.resize(SLOTS + 2));
        assert!(matches!(asked, Ok(()) | Err(CoordinatorError::Unavailable(_))), "{asked:?}");
        asked.is_ok()
    });
    wait_for_shares(&[&first, &second], &[half + 1, half + 1]);
}

#[test]
fn an_outage_of_etcd_ends_by_itself() {
    survives_an_outage(Kind::Etcd);
}

#[test]
fn an_outage_of_zookeeper_ends_by_itself() {
    survives_an_outage(Kind::ZooKeeper);
}

/// The time since the machine was started, in milliseconds: the same in all processes.
fn boot_millis() -> u128 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).unwrap().as_millis()
}

/// What a member in another process says of itself.
#[derive(Clone, Debug)]
struct Said {
    /// When it began to look.
    at: u128,
    name: String,
    certain: bool,
    slots: usize,
    newest: u64,
}

/// A member in a process of its own, so that it can be stopped.
struct Process {
    child: Child,
    said: Receiver<Said>,
}

impl Process {
    fn start(kind: Kind, address: &str, cluster: &str) -> Self {
        let this = std::env::current_exe().unwrap();
        let mut child = Command::new(this)
            .args(["--exact", "a_member_for_another_process", "--ignored", "--nocapture"])
            .env("COORDINATOR_MEMBER", format!("{kind:?} {address} {cluster}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, said) = sync_channel(1_000_000);
        let read = move || {
            for line in output.lines().map_while(Result::ok) {
                let words: Vec<&str> = line.split(' ').collect();
                let ["member", at, name, certain, slots, newest] = words[..] else { continue };
                let said = Said {
                    at: at.parse().unwrap(),
                    name: name.into(),
                    certain: certain == "true",
                    slots: slots.parse().unwrap(),
                    newest: newest.parse().unwrap(),
                };
                if sender.send(said).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("said".into()).spawn(read).unwrap();
        Self { child, said }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// What it says until something is so.
    fn listen(&self, what: &str, so: impl Fn(&Said) -> bool) -> Vec<Said> {
        let mut all = Vec::new();
        loop {
            let said = self.said.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what}"));
            all.push(said.clone());
            if so(&said) {
                return all;
            }
            assert!(all.len() < 1_000_000, "in vain: {what}");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Runs as a member until it is killed, if it was started for that.
#[test]
#[ignore = "a process of the tests beside it"]
fn a_member_for_another_process() {
    let Some(told) = std::env::var_os("COORDINATOR_MEMBER") else { return };
    let told = told.into_string().unwrap();
    let words: Vec<&str> = told.split(' ').collect();
    let [kind, address, cluster] = words[..] else { panic!("{told}") };
    let kind = if kind == "Etcd" { Kind::Etcd } else { Kind::ZooKeeper };
    let mut real = Real::new(kind.at(address), LEASE);
    real.cluster = cluster.into();
    let member = real.member();
    let (_never, pause) = sync_channel::<()>(0);
    // Ends when nobody listens any more: the process that started it is gone.
    loop {
        let at = boot_millis();
        let slots = certain(&member);
        let holding = member.holding();
        let newest = holding.slots.iter().map(|held| held.term).max().unwrap_or(0);
        let name = member.name().unwrap_or_else(|| "nobody".into());
        println!("member {at} {name} {} {slots} {newest}", member.is_certain());
        let _elapsed = pause.recv_timeout(Duration::from_millis(5));
    }
}

/// A member is stopped for longer than its lease: it says at once that it is not certain any more,
/// and comes back under another name with higher terms.
fn rejoins_after_a_stop(kind: Kind) {
    let Some(address) = kind.shared() else { return };
    let mut real = Real::new(kind.at(&address), LEASE);
    let stays = real.member();
    let other = Process::start(kind, &address, &real.cluster);
    let (half, all) = (usize::try_from(SLOTS / 2).unwrap(), usize::try_from(SLOTS).unwrap());
    wait_for("the other is there", || {
        certain(&stays);
        stays.view().nodes.len() == 2
    });
    wait_for("each has half", || certain(&stays) == half);
    let said = other.listen("half of it", |said| said.certain && said.slots == half);
    let before = said.last().unwrap().clone();
    other.signal("STOP");
    wait_for("its slots are taken over", || certain(&stays) == all);
    let stopped_until = boot_millis();
    other.signal("CONT");
    wait_for("each has half again", || certain(&stays) == half);
    let said = other.listen("half of it again", |said| {
        said.at > stopped_until && said.certain && said.slots == half
    });
    for said in said.iter().filter(|said| said.at > stopped_until) {
        assert!(said.name != before.name || said.slots == 0, "certain after a stop: {said:?}");
    }
    let after = said.last().unwrap();
    assert_ne!(before.name, after.name);
    assert!(after.newest > before.newest, "{after:?} after {before:?}");

    // Killed without a word, it is not waited for longer than its lease.
    other.signal("KILL");
    wait_for("its slots are taken over again", || certain(&stays) == all);
}

#[test]
fn a_member_on_etcd_that_was_stopped_comes_back_as_another() {
    rejoins_after_a_stop(Kind::Etcd);
}

#[test]
fn a_member_on_zookeeper_that_was_stopped_comes_back_as_another() {
    rejoins_after_a_stop(Kind::ZooKeeper);
}
