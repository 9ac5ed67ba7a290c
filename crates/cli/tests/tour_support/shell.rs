//! A shell in an empty directory, and the broker beside it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use tempfile::TempDir;

use crate::command_support::{punctual, signal};
use crate::process_support::http::Client;
use crate::process_support::{PATIENCE, logs, wait_for, wall_ms};

/// The address that pages name.
const SERVER_SHOWN: &str = "http://127.0.0.1:7070";
/// How a line begins that only the test prints.
const ENDED: &str = "-- ended with ";

/// Who lists dead letters finds them all: what has failed is on its way to them for a moment.
fn wait_for_dead_letters(url: &str, command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    let ["punctual", "dead", "list", topic, "--group", group] = words[..] else { return };
    let mut client = Client::connect(url.trim_start_matches("http://").parse().unwrap()).unwrap();
    let dead = format!("{topic}.{group}.dead");
    wait_for("dead letters to arrive", || {
        (!logs::has_overdue(&mut client, &dead, wall_ms() + 60_000)).then_some(())
    });
}

pub struct Shell {
    directory: TempDir,
    process: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    server: Option<(Child, String)>,
}

impl Shell {
    pub fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_punctual")).parent().unwrap();
        let mut process = Command::new("bash")
            .args(["--norc", "--noprofile"])
            .current_dir(directory.path())
            .env("BINARY", binary)
            .env("TZ", "UTC")
            .env_remove("PUNCTUAL_TOKEN")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("bash");
        let mut input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (tell, lines) = mpsc::channel();
        let read =
            move || output.lines().map_while(Result::ok).for_each(|line| drop(tell.send(line)));
        std::thread::Builder::new().spawn(read).unwrap();
        writeln!(input, r#"exec 2>&1; PATH="$BINARY:$PATH""#).unwrap();
        Self { directory, process, input, lines, server: None }
    }

    /// Runs a command and answers what it printed. It must end well, unless it prints a reason.
    pub fn run(&mut self, command: &str) -> String {
        if let Some(variables) = command.trim().strip_suffix("make run") {
            self.serve(variables);
            return String::new();
        }
        let (_, url) = self.server.as_ref().expect("the broker is started first");
        wait_for_dead_letters(url, command);
        let command = command.replace(SERVER_SHOWN, url);
        // Commands that read their input do not read those that follow.
        writeln!(self.input, "{{\n{command}}} </dev/null\nprintf '\\n{ENDED}%s\\n' $?").unwrap();
        let mut printed = String::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => match line.strip_prefix(ENDED) {
                    Some(code) => {
                        let explained = printed.lines().any(|line| line.starts_with("punctual: "));
                        assert!(code == "0" || explained, "{command}ended with {code}:\n{printed}");
                        // The line before the end is ours when the last of theirs was whole.
                        let text = printed.trim_end_matches('\n');
                        return if text.is_empty() { String::new() } else { format!("{text}\n") };
                    }
                    None => {
                        printed.push_str(&line);
                        printed.push('\n');
                    }
                },
                Err(RecvTimeoutError::Timeout) => panic!("{command}has not ended:\n{printed}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the shell is gone:\n{printed}"),
            }
        }
    }

    /// Starts the broker as the page says, after the one before has ended as by Ctrl-C.
    fn serve(&mut self, variables: &str) {
        if let Some((mut before, _)) = self.server.take() {
            signal(&before, "INT");
            let status = wait_for("the broker to end", || before.try_wait().unwrap()).0;
            assert_eq!(status.code(), Some(0));
        }
        let variables = variables.split_whitespace().filter_map(|word| word.split_once('='));
        let mut server = punctual()
            .args(["serve", "--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0"])
            .envs(variables)
            .current_dir(self.directory.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
        let (tell, told) = mpsc::channel();
        let read = move || {
            log.filter(|line| line.contains("ready")).for_each(|line| drop(tell.send(line)));
        };
        std::thread::Builder::new().spawn(read).unwrap();
        let ready = told.recv_timeout(PATIENCE);
        let address = ready.as_ref().ok().and_then(|line| line.split("http=").nth(1));
        let address = address.and_then(|rest| rest.split(' ').next()).map(str::to_owned);
        let Some(address) = address else {
            let _ended = server.kill().is_err();
            panic!("the broker does not say where it listens: {ready:?}");
        };
        let url = format!("http://{address}");
        writeln!(self.input, "export PUNCTUAL_SERVER={url}").unwrap();
        self.server = Some((server, url));
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for process in
            self.server.as_mut().map(|(server, _)| server).into_iter().chain([&mut self.process])
        {
            let _ended = process.kill().is_err();
            let _gone = process.wait().is_err();
        }
    }
}
