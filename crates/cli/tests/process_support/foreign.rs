//! Programs that other people wrote, fetched and run by the scripts in `scripts/`.
//!
//! A program whose language is not on the machine says so and is left out; in CI that is a failure.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// What a script answers where the language of a program is not there.
const NOT_THERE: i32 = 3;

/// A program that finds its own libraries: cargo tells those who run tests where those of the build are,
/// a librdkafka among them, and others would take it for theirs.
fn program(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    command.env_remove("LD_LIBRARY_PATH");
    command
}

/// The Kafka client of the machine.
pub fn kcat() -> Command {
    program("kcat")
}

/// A call of a script in the directory `scripts`.
#[derive(Debug)]
pub struct Foreign {
    command: Command,
    what: String,
}

impl Foreign {
    pub fn new(script: &str, arguments: &[&str]) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(script);
        let mut command = program(path);
        command.args(arguments).env("CARGO_TARGET_DIR", target_dir());
        Self { command, what: format!("{script} {}", arguments.join(" ")) }
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it to its end; answers what it printed, or nothing where it is not there.
    pub fn run(mut self) -> Option<String> {
        let outcome = self.command.stdin(Stdio::null()).output().expect("a shell");
        self.judge(&outcome)
    }

    /// Starts it; it reads from us until [`Running::finish`].
    pub fn start(mut self) -> Running {
        let piped = self.command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = piped.stderr(Stdio::piped()).spawn().expect("a shell");
        Running { foreign: self, child }
    }

    fn judge(&self, outcome: &Output) -> Option<String> {
        let said = String::from_utf8_lossy(&outcome.stdout);
        let told = String::from_utf8_lossy(&outcome.stderr);
        if outcome.status.code() == Some(NOT_THERE) && std::env::var_os("CI").is_none() {
            eprintln!("{} was not tried: {}", self.what, told.trim());
            return None;
        }
        assert!(outcome.status.success(), "{}: {}\n{said}{told}", self.what, outcome.status);
        Some(said.into_owned())
    }
}

/// One that runs beside the test.
#[derive(Debug)]
pub struct Running {
    foreign: Foreign,
    child: Child,
}

impl Running {
    /// Closes what it reads, which tells it to come to an end; answers what it printed.
    pub fn finish(mut self) -> Option<String> {
        drop(self.child.stdin.take());
        let outcome = self.child.wait_with_output().expect("it was started");
        self.foreign.judge(&outcome)
    }
}

/// Where cargo builds, and the scripts keep what they fetch.
fn target_dir() -> PathBuf {
    // target/debug/deps/this-test
    let this = std::env::current_exe().expect("a path");
    this.ancestors().nth(3).expect("it was built somewhere").to_path_buf()
}
