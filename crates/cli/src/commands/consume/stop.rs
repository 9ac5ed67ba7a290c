//! How a program that follows is asked to stop, and when it may end.
//!
//! It may end when it was asked to, or a worker failed, and no worker has messages at hand. From
//! then on no worker is let in, so nothing is begun that the end would break off.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::signal::unix::{SignalKind, signal};

/// What a shell shows for a program that a second interrupt ended.
const INTERRUPTED: i32 = 130;

/// Shared by all workers and whoever waits for them.
pub(super) struct Stop(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    asked: bool,
    ending: bool,
    workers: usize,
    busy: usize,
    failure: Option<anyhow::Error>,
}

/// A worker has messages at hand until this is dropped.
pub(super) struct Busy<'a>(&'a Inner);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.state.lock().busy -= 1;
        self.0.changed.notify_all();
    }
}

impl Stop {
    /// Asked by an interrupt or a polite kill.
    pub(super) fn on_signal() -> anyhow::Result<Self> {
        let inner = Arc::new(Inner::default());
        let asked = Arc::clone(&inner);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // The handlers stand before anything is received.
        let entered = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        drop(entered);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    asked.ask();
                }
            });
        })?;
        Ok(Self(inner))
    }

    pub(super) fn is_asked(&self) -> bool {
        self.0.state.lock().asked
    }

    /// Waits so long, or until asked to stop.
    pub(super) fn pause(&self, length: Duration) {
        let mut state = self.0.state.lock();
        if !state.asked {
            self.0.changed.wait_for(&mut state, length);
        }
    }

    /// Lets a worker work on messages; not when the program is ending.
    pub(super) fn enter(&self) -> Option<Busy<'_>> {
        let mut state = self.0.state.lock();
        if state.ending {
            return None;
        }
        state.busy += 1;
        Some(Busy(&self.0))
    }

    /// A worker was started.
    pub(super) fn started(&self) {
        self.0.state.lock().workers += 1;
    }

    /// A worker has ended; its failure is that of the program.
    pub(super) fn ended(&self, outcome: anyhow::Result<()>) {
        let mut state = self.0.state.lock();
        state.workers -= 1;
        if let Err(error) = outcome {
            state.asked = true;
            state.failure.get_or_insert(error);
        }
        self.0.changed.notify_all();
    }

    /// Waits until the program may end.
    pub(super) fn wait(&self) -> anyhow::Result<()> {
        let mut state = self.0.state.lock();
        while !(state.workers == 0 || state.asked && state.busy == 0) {
            self.0.changed.wait(&mut state);
        }
        state.ending = true;
        state.failure.take().map_or(Ok(()), Err)
    }
}

impl Inner {
    #[expect(clippy::disallowed_methods, reason = "the second interrupt is to end it at once")]
    fn ask(&self) {
        let mut state = self.state.lock();
        if state.asked {
            std::process::exit(INTERRUPTED);
        }
        state.asked = true;
        self.changed.notify_all();
    }
}
