//! What the tests of the real program share: starting and ending its process, and talking to it.
//!
//! The tests know only what a client knows: what they asked for, what they were told, and when.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "each test file uses a part of this, real time is what these tests are about, and a \
              failed set-up may stop a test"
)]

pub mod dice;
pub mod faked;
pub mod foreign;
pub mod http;
pub mod ledger;
pub mod logs;
pub mod process;

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use dice::Dice;

/// Longest wait for anything; only a failing test waits so long.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How often something is looked at that gives no signal.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Asks until there is an answer; answers how long it took.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> (T, Duration) {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return (answer, started.elapsed());
        }
        assert!(started.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The number in the environment variable of that name, or else `absent`.
pub fn number_from_environment(name: &str, absent: u64) -> u64 {
    std::env::var(name).map_or(absent, |text| text.parse().unwrap())
}

/// The machine's wall clock in epoch milliseconds, rounded down.
pub fn wall_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// A free port that no outgoing connection is given, so that a client which knocks while the server
/// is down never meets itself.
pub fn free_address(dice: &mut Dice) -> SocketAddr {
    let attempt = || {
        let port = u16::try_from(dice.within(20_000, 32_000)).unwrap();
        TcpListener::bind(("127.0.0.1", port)).ok()?.local_addr().ok()
    };
    wait_for("a free port", attempt).0
}
