//! The real services that tests run against: etcd, MariaDB, ZooKeeper, Kafka and Cassandra.
//!
//! `scripts/services` installs, starts and ends them; this asks it. Shared ones are started by whoever
//! comes first, serve every test of a build directory and are ended by `make test`; so a test makes
//! names of its own in them. A test that stops a service takes a [`Private`] one, which ends with it.
//! Where a service cannot be had that is said in one line and the test is left out; in CI it fails.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the script answers where a service cannot be had.
const NOT_THERE: i32 = 3;

/// How often it is looked whether a process has ended.
const LOOK: Duration = Duration::from_millis(10);

/// A service that can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// One member, over plain HTTP.
    Etcd,
    /// The user `root` has no password.
    MariaDb,
    /// One server.
    ZooKeeper,
    /// One broker, which makes no topics of its own accord.
    Kafka,
    /// One node, without passwords.
    Cassandra,
}

impl Service {
    /// As the script calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::MariaDb => "mariadb",
            Self::ZooKeeper => "zookeeper",
            Self::Kafka => "kafka",
            Self::Cassandra => "cassandra",
        }
    }

    /// Where the shared one listens, started if need be; nothing where it cannot be had.
    ///
    /// # Panics
    /// If it does not start, and in CI also if it cannot be had.
    #[must_use]
    pub fn shared(self) -> Option<SocketAddr> {
        up(&mut script(&["up", self.name()], None))
    }
}

/// The shared etcd; an endpoint is `http://` and this.
#[must_use]
pub fn etcd() -> Option<SocketAddr> {
    Service::Etcd.shared()
}

/// The shared MariaDB, user `root` without a password; make a database of your own.
#[must_use]
pub fn mariadb() -> Option<SocketAddr> {
    Service::MariaDb.shared()
}

/// The shared ZooKeeper; work below a path of your own.
#[must_use]
pub fn zookeeper() -> Option<SocketAddr> {
    Service::ZooKeeper.shared()
}

/// The shared Kafka; make topics of your own.
#[must_use]
pub fn kafka() -> Option<SocketAddr> {
    Service::Kafka.shared()
}

/// The shared Cassandra; make a keyspace of your own.
#[must_use]
pub fn cassandra() -> Option<SocketAddr> {
    Service::Cassandra.shared()
}

/// A service for one test alone, which may stop it. It ends with this value; its address stays the same
/// when it is started again, and so does its data.
#[derive(Debug)]
pub struct Private {
    service: Service,
    directory: PathBuf,
    address: SocketAddr,
    settings: String,
    namespace: Option<String>,
}

impl Private {
    /// Starts one in that directory; nothing where it cannot be had.
    ///
    /// # Panics
    /// If it does not start, and in CI also if it cannot be had.
    #[must_use]
    pub fn start(service: Service, directory: &Path) -> Option<Self> {
        Self::start_with(service, directory, "")
    }

    /// The same with more settings, which only Kafka takes: `name=value`, separated by spaces.
    ///
    /// # Panics
    /// As [`Private::start`].
    #[must_use]
    pub fn start_with(service: Service, directory: &Path, settings: &str) -> Option<Self> {
        Self::start_as(service, directory, settings, None)
    }

    /// The same in that network namespace, where etcd and ZooKeeper can be reached at every address;
    /// without one, as [`Private::start`].
    ///
    /// # Panics
    /// As [`Private::start`].
    #[must_use]
    pub fn start_within(
        service: Service,
        directory: &Path,
        namespace: Option<&str>,
    ) -> Option<Self> {
        Self::start_as(service, directory, "", namespace)
    }

    fn start_as(
        service: Service,
        directory: &Path,
        settings: &str,
        namespace: Option<&str>,
    ) -> Option<Self> {
        let (directory, settings) = (directory.to_owned(), settings.to_owned());
        let namespace = namespace.map(str::to_owned);
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut service = Self { service, directory, address: unknown, settings, namespace };
        service.address = up(&mut service.up_command())?;
        Some(service)
    }

    fn up_command(&self) -> Command {
        let arguments = ["up", self.service.name()];
        let mut command = script(&arguments, Some(&self.directory));
        if let Some(namespace) = &self.namespace {
            command = within(namespace, &command);
            command.arg("--everywhere");
        }
        command.env("KAFKA_PROPERTIES", &self.settings);
        command
    }

    /// Where it listens, also after it was started again; in a namespace, its loopback address there.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends its process the signal of that name: `STOP`, `CONT`, `KILL`. One that is killed has ended
    /// when this returns.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal(&self, name: &str) {
        let path = self.directory.join(self.service.name()).join("pid");
        let text = std::fs::read_to_string(path).expect("it was started");
        let id = text.split(' ').next().expect("the process comes first");
        let status = Command::new("kill").args(["-s", name, id]).status().expect("a shell");
        assert!(status.success(), "{} does not run", self.service.name());
        // Until then the script takes it for one that runs, and its address is taken.
        while name == "KILL" && is_alive(id) {
            std::thread::park_timeout(LOOK);
        }
    }

    /// Ends it in an orderly way and waits for that.
    pub fn stop(&self) {
        let _said = call(&mut script(&["down", self.service.name()], Some(&self.directory)));
    }

    /// Starts it again after it was stopped or killed, and waits until it is ready.
    pub fn again(&self) {
        assert_eq!(up(&mut self.up_command()), Some(self.address));
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let mut command = script(&["down", self.service.name()], Some(&self.directory));
        // A test that fails must not fail again while it cleans up.
        let _ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    }
}

/// Whether a process, or one of its threads, is still there: one that ended may not be collected yet.
fn is_alive(id: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { return false };
    // The name comes before, in parentheses; then the state, and further on the number of threads.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let threads = fields.get(17).and_then(|count| count.parse::<u32>().ok()).unwrap_or(0);
    !matches!(fields[0], "Z" | "X") || threads > 1
}

/// The file in the project that starts them.
fn script(arguments: &[&str], directory: Option<&Path>) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/services");
    let mut command = Command::new(path);
    command.args(arguments).env("CARGO_TARGET_DIR", target_dir()).stdin(Stdio::null());
    if let Some(directory) = directory {
        command.arg("--dir").arg(directory);
    }
    command
}

/// The same command, carried out in a network namespace.
fn within(namespace: &str, command: &Command) -> Command {
    let mut outer = Command::new("ip");
    outer.args(["netns", "exec", namespace]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        outer.env(name, value.unwrap_or_default());
    }
    outer.stdin(Stdio::null());
    outer
}

fn up(command: &mut Command) -> Option<SocketAddr> {
    let said = call(command)?;
    let address = said.split_whitespace().nth(1).and_then(|text| text.parse().ok());
    Some(address.expect("the script says where it listens"))
}

/// What the script printed, or nothing where the service cannot be had.
#[expect(clippy::print_stderr, reason = "whoever reads the output must see what was left out")]
fn call(command: &mut Command) -> Option<String> {
    let outcome = command.output().expect("a shell");
    let said = String::from_utf8_lossy(&outcome.stderr);
    if outcome.status.code() == Some(NOT_THERE) && std::env::var_os("CI").is_none() {
        eprintln!("left out: {}", said.lines().last().unwrap_or_default());
        return None;
    }
    assert!(outcome.status.success(), "{command:?}: {said}");
    Some(String::from_utf8_lossy(&outcome.stdout).into_owned())
}

/// Where cargo builds, and the services are kept.
fn target_dir() -> PathBuf {
    // target/debug/deps/this-test
    let this = std::env::current_exe().expect("a path");
    this.ancestors().nth(3).expect("it was built somewhere").to_path_buf()
}
