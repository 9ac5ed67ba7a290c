//! Does the live view show what is going on, and leave the terminal as it was?
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    reason = "the support module serves several tests, and helpers of tests may stop them"
)]

mod command_support;
mod process_support;

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use command_support::{LIMIT_SECONDS, Server, text};
use process_support::{PATIENCE, wait_for};

/// What takes the screen, and what gives it back.
const ENTERED: &str = "\u{1b}[?1049h";
const LEFT: &str = "\u{1b}[?1049l";
const CURSOR_SHOWN: &str = "\u{1b}[?25h";

fn server() -> Server {
    let server = Server::start();
    server.json(&["groups", "create", "orders", "billing"]);
    for number in 0..3 {
        server.json(&["send", "orders", "later", "--delay", "1h"]);
        server.json(&["send", "orders", &format!("now {number}")]);
    }
    // What is due at once is on its way for a moment.
    wait_for("three deliveries", || {
        let group = server.json(&["groups", "show", "orders", "billing"]).remove(0);
        let stats = server.json(&["stats"]).remove(0);
        (group["lag"] == 3 && stats["pending"] == 3).then_some(())
    });
    server
}

#[test]
fn one_frame_is_printed_as_text() {
    let server = server();
    let output = server.run(&["top", "--once"]);
    let frame = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for part in ["per second", "scheduled", "delivered", "acked", "3 pending", "lateness", "p99"] {
        assert!(frame.contains(part), "{part} is not in\n{frame}");
    }
    let due = frame.lines().find(|line| line.contains(" 6h ")).expect("what is due");
    assert!(due.trim_end().ends_with(" 3"), "{frame}");
    let group = frame.lines().find(|line| line.contains("orders/billing")).expect("the group");
    assert!(group.split_whitespace().any(|word| word == "3"), "its lag: {frame}");
    assert!(!frame.contains('\u{1b}'), "{frame:?}");
    let piped = server.run(&["top"]);
    assert_eq!(piped.status.code(), Some(0), "in a pipe it is one frame as well");
    assert_eq!(server.json(&["top"])[0]["pending"], 3);
    assert_eq!(server.json(&["stats"])[0]["totals"]["scheduled"], 6);
    let shown = text(&server.run(&["stats"]).stdout);
    assert!(shown.contains("orders/billing") || shown.contains("billing"), "{shown}");
    let cluster = server.json(&["cluster"]).remove(0);
    assert_eq!(cluster["nodes"].as_array().map(Vec::len), Some(1));
    assert!(text(&server.run(&["cluster"]).stdout).starts_with("NODE"));
}

#[test]
fn one_machine_shows_its_only_slot_and_has_none_to_divide() {
    let server = Server::start();
    let shown = text(&server.run(&["cluster", "show", "--slots"]).stdout);
    assert!(
        shown.lines().any(|line| line.split_whitespace().eq(["0", "single", "1", "-"])),
        "{shown}"
    );
    assert!(shown.ends_with("mode single, 1 slot, 0 without an owner\n"), "{shown}");
    let refused = server.run(&["cluster", "set", "--slots", "2"]);
    assert_eq!(refused.status.code(), Some(1));
    let told = text(&refused.stderr);
    assert!(told.contains("no slots to divide") && told.contains("docs/CLUSTER.md"), "{told}");
}

#[test]
fn a_server_is_measured_on_a_topic_that_goes_away() {
    let server = Server::start();
    let bench = ["bench", "--messages", "2500", "--batch", "100", "--connections", "2"];
    let phases = server.json(&[&bench[..], &["--consume"]].concat());
    assert_eq!((&phases[0]["phase"], &phases[0]["requests"]), (&"send".into(), &25.into()));
    assert_eq!((&phases[1]["phase"], &phases[1]["messages"]), (&"consume".into(), &2500.into()));
    assert!(phases.iter().all(|phase| phase["per_second"].as_u64() > Some(0)), "{phases:?}");
    assert!(server.json(&["topics", "list"]).is_empty(), "it cleans up");
    assert_eq!(server.json(&["stats"])[0]["totals"]["acked"], 2500);
    let kept = server.run(&[&bench[..], &["--topic", "kept", "--keep"]].concat());
    assert!(text(&kept.stdout).starts_with("PHASE"), "{}", text(&kept.stderr));
    assert_eq!(kept.stderr.len(), 0, "no bar in a pipe: {}", text(&kept.stderr));
    let again = server.run(&[&bench[..], &["--topic", "kept"]].concat());
    assert!(text(&again.stderr).contains("there already"), "{}", text(&again.stderr));
    assert_eq!(server.json(&["topics", "list"]).len(), 1, "what was there stays");
    let refused = server.run(&["bench", "--delay", "3 moons"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(server.json(&["topics", "list"]).len(), 1, "it cleans up after a refusal too");
}

/// The view on a terminal of its own.
struct Watched {
    child: Child,
    printed: mpsc::Receiver<String>,
    seen: String,
}

impl Watched {
    fn start(server: &Server) -> Self {
        let line = format!("stty cols 100 rows 30; exec timeout {LIMIT_SECONDS} \"$BINARY\" top");
        let mut child = Command::new("script")
            .args(["-qefc", &line, "/dev/null"])
            .env("BINARY", env!("CARGO_BIN_EXE_punctual"))
            .envs([("PUNCTUAL_SERVER", server.url.as_str()), ("TERM", "xterm-256color")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script");
        let mut output = child.stdout.take().expect("a pipe");
        let (tell, printed) = mpsc::channel();
        let read = move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut piece) {
                if tell.send(text(&piece[..length])).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().spawn(read).expect("a thread");
        Self { child, printed, seen: String::new() }
    }

    fn until(&mut self, part: &str) {
        while !self.seen.contains(part) {
            match self.printed.recv_timeout(PATIENCE) {
                Ok(piece) => self.seen.push_str(&piece),
                Err(error) => panic!("{part:?} never came ({error}): {:?}", self.seen),
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.child.stdin.as_mut().expect("a pipe").write_all(keys.as_bytes()).expect("it listens");
    }

    /// Waits for its end, and checks that the terminal is as it was.
    fn ended(mut self) -> Option<i32> {
        self.until(LEFT);
        self.until(CURSOR_SHOWN);
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ended = self.child.kill().is_err();
    }
}

#[test]
fn keys_change_the_view_and_end_it() {
    let server = server();
    let mut watched = Watched::start(&server);
    watched.until(ENTERED);
    watched.until("orders/billing");
    watched.press("s");
    // Only what has changed is written: the last letter was there already.
    watched.until("backlo");
    watched.press("p");
    watched.until("paused");
    watched.press("q");
    assert_eq!(watched.ended(), Some(0));
}

#[test]
fn a_server_that_goes_away_is_told_and_the_view_stays() {
    let mut server = server();
    let mut watched = Watched::start(&server);
    watched.until("orders/billing");
    server.process.kill().expect("it runs");
    server.process.wait().expect("it ends");
    watched.until("no answer from");
    watched.press("\u{3}");
    assert_eq!(watched.ended(), Some(0), "an interrupt is a key");
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let server = server();
    let mut watched = Watched::start(&server);
    watched.until("orders/billing");
    // The program in the terminal is the only child of the one that made it.
    let children = format!("/proc/{0}/task/{0}/children", watched.child.id());
    let children = std::fs::read_to_string(children).expect("its children");
    let child = children.split_whitespace().next().expect("one");
    assert!(Command::new("kill").args(["-s", "TERM", child]).status().expect("kill").success());
    watched.ended();
}

#[test]
fn without_a_server_the_screen_is_not_taken() {
    let mut server = server();
    server.process.kill().expect("it runs");
    server.process.wait().expect("it ends");
    let mut watched = Watched::start(&server);
    watched.until("punctual serve");
    assert!(!watched.seen.contains(ENTERED), "{:?}", watched.seen);
    assert_eq!(watched.child.wait().expect("it ends").code(), Some(1));
}
