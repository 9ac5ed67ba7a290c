//! A real server, and commands run against it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;

use serde_json::Value;
use tempfile::TempDir;

use crate::process_support::{PATIENCE, wait_for};

/// How long a command may take.
pub(crate) const LIMIT_SECONDS: &str = "120";

pub(crate) struct Server {
    pub(crate) process: Child,
    pub(crate) url: String,
    pub(crate) data: Option<TempDir>,
}

pub(crate) fn punctual() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.stdin(Stdio::null());
    command
}

/// A command that is ended and fails when it goes on for too long; signals are passed on to it.
fn bounded() -> Command {
    let mut command = Command::new("timeout");
    command.args(["--foreground", LIMIT_SECONDS, env!("CARGO_BIN_EXE_punctual")]);
    command.stdin(Stdio::null());
    command
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::on(TempDir::new().expect("a directory"))
    }

    pub(crate) fn on(data: TempDir) -> Self {
        Self::at("127.0.0.1:0", data)
    }

    /// At an address, which must be free.
    pub(crate) fn at(address: &str, data: TempDir) -> Self {
        Self::with(&["--http", address], data)
    }

    /// With these arguments.
    pub(crate) fn with(arguments: &[&str], data: TempDir) -> Self {
        // Unless somebody cares, the system chooses the port for Kafka clients too.
        let kafka = ["--kafka", "127.0.0.1:0"];
        let unsaid = !arguments.contains(&kafka[0]);
        let mut process = punctual()
            .arg("serve")
            .args(arguments)
            .args(kafka.iter().filter(|_| unsaid))
            .arg("--data")
            .arg(data.path().join("data"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let log = BufReader::new(process.stderr.take().expect("a pipe")).lines();
        let (tell, told) = mpsc::channel();
        // All of it is read, so that the server never waits for somebody to read it.
        let read = move || {
            let said = log.map_while(Result::ok).filter(|line| line.contains("ready"));
            said.for_each(|line| drop(tell.send(line)));
        };
        std::thread::Builder::new().spawn(read).expect("a thread");
        let ready = told.recv_timeout(PATIENCE);
        if ready.is_err() {
            let _ended = process.kill().is_err();
        }
        let ready = ready.expect("it says ready");
        let address = ready.split("http=").nth(1).and_then(|rest| rest.split(' ').next());
        let url = format!("http://{}", address.expect("it says where"));
        Self { process, url, data: Some(data) }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        bounded().args(arguments).env("PUNCTUAL_SERVER", &self.url).output().expect("it runs")
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?} {}", text(&output.stderr));
        let lines = text(&output.stdout);
        lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Ends it without a chance to tidy up, and starts another on the same data.
    pub(crate) fn kill_and_restart(mut self) -> Self {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
        Self::on(self.data.take().expect("taken once"))
    }

    /// The same at the same address, where others look for it.
    pub(crate) fn kill_and_return(mut self) -> Self {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
        let address = self.url.trim_start_matches("http://").to_owned();
        Self::at(&address, self.data.take().expect("taken once"))
    }

    /// Starts a command that goes on until it is stopped, with its output in a pipe.
    pub(crate) fn start_command(&self, arguments: &[&str]) -> Child {
        let mut command = bounded();
        command.args(arguments).env("PUNCTUAL_SERVER", &self.url);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    }

    /// Waits for it to end by itself.
    pub(crate) fn wait_for_end(&mut self) -> ExitStatus {
        wait_for("the server to end", || self.process.try_wait().expect("its own child")).0
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(&self.process, name);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.process.kill().is_err();
        let _gone = self.process.wait().is_err();
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn signal(process: &Child, name: &str) {
    let id = process.id().to_string();
    let status = Command::new("kill").args(["-s", name, &id]).status().expect("kill");
    assert!(status.success());
}
