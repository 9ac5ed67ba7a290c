//! Runs a command for a message, and keeps the message meanwhile.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{Work, body};
use crate::output::{field, remark};

/// How long a message is kept at a time, and how often that is renewed.
const LEASE: &str = "60s";
const RENEWAL: Duration = Duration::from_secs(20);
/// Most bytes of the last line of standard error that are passed on.
const ERROR_BYTES_MAX: u64 = 1024;

impl Work {
    pub(super) fn execute(&self, command: &str, message: &Value) -> anyhow::Result<()> {
        let (done, ends) = channel::<()>();
        let outcome = std::thread::scope(|scope| {
            scope.spawn(move || self.keep(message, &ends));
            let outcome = run(command, message);
            drop(done);
            outcome
        });
        let failure = match outcome {
            Ok((status, _)) if status.success() => {
                let acked =
                    self.patiently(|| self.session.ack(&self.group, std::slice::from_ref(message)));
                return self.told(acked);
            }
            Ok((status, last_line)) if last_line.is_empty() => status.to_string(),
            Ok((_, last_line)) => last_line,
            Err(error) => format!("{error:#}"),
        };
        remark(&format!("{}: {failure}", field(message, "id")));
        let nack = json!({"receipts": [&message["receipt"]], "error": failure});
        let path = format!("{}/nack", self.group);
        let nacked = self.patiently(|| self.session.client.post(&path, &nack).map(drop));
        self.told(nacked)
    }

    /// Renews the lease until the command has ended.
    fn keep(&self, message: &Value, ends: &Receiver<()>) {
        let ask = json!({"receipts": [&message["receipt"]], "lease": LEASE});
        let path = format!("{}/extend", self.group);
        let mut length = Duration::ZERO;
        while ends.recv_timeout(length) == Err(RecvTimeoutError::Timeout) {
            if let Err(error) = self.session.client.post(&path, &ask) {
                remark(&format!("{}: not extended: {error:#}", field(message, "id")));
            }
            length = RENEWAL;
        }
    }
}

/// Runs the command to its end; how it ended, and the last line that it wrote as an error.
fn run(command: &str, message: &Value) -> anyhow::Result<(ExitStatus, String)> {
    let mut child = Command::new("sh");
    // A group of its own: an interrupt at the terminal is for this program, which then lets the
    // command finish.
    child.arg("-c").arg(command).process_group(0);
    child.stdin(Stdio::piped()).stderr(Stdio::piped());
    for (name, value) in [
        ("PUNCTUAL_ID", "id"),
        ("PUNCTUAL_TOPIC", "topic"),
        ("PUNCTUAL_PARTITION", "partition"),
        ("PUNCTUAL_OFFSET", "offset"),
        ("PUNCTUAL_KEY", "key"),
        ("PUNCTUAL_DUE", "due"),
        ("PUNCTUAL_ATTEMPT", "attempt"),
    ] {
        child.env(name, variable(&message[value]));
    }
    let mut child = child.spawn().context("sh cannot be run")?;
    let body = body(message)?;
    let (fed, last_line) = std::thread::scope(|scope| {
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let feeding = scope.spawn(move || stdin.map_or(Ok(()), |mut pipe| pipe.write_all(&body)));
        let last_line = stderr.map(pass_on).unwrap_or_default();
        (feeding.join(), last_line)
    });
    let status = waited(&mut child)?;
    // A command need not read what it is given.
    if let Ok(Err(error)) = fed
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(error).context("the body was not passed on");
    }
    Ok((status, last_line))
}

fn waited(child: &mut Child) -> anyhow::Result<ExitStatus> {
    child.wait().context("the command was lost")
}

/// What a variable of the environment can hold of a value; nothing where there is none.
fn variable(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.replace('\0', "")
}

/// Passes standard error on, and keeps its last line that says anything.
fn pass_on(pipe: impl Read) -> String {
    let mut pipe = BufReader::new(pipe);
    let mut last = String::new();
    loop {
        let mut piece = Vec::new();
        // A line without end comes in pieces.
        match pipe.by_ref().take(ERROR_BYTES_MAX).read_until(b'\n', &mut piece) {
            Ok(0) | Err(_) => return last,
            Ok(_) => {}
        }
        // Nobody to read it is fine.
        let _unread = io::stderr().lock().write_all(&piece).is_err();
        let text = String::from_utf8_lossy(&piece);
        if !text.trim().is_empty() {
            last = text.trim().to_owned();
        }
    }
}
