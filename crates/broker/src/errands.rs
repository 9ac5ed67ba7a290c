//! One thread for calls that may block on the disk and are too rare for a pool.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use futures_channel::oneshot;
use parking_lot::Mutex;
use punctual_model::ports::StoreError;

/// Errands that may wait; more are refused as busy.
const WAITING_MAX: usize = 1024;

type Errand = Box<dyn FnOnce() + Send>;

/// Runs errands one after the other.
#[derive(Debug)]
pub(crate) struct Errands {
    sender: Mutex<Option<SyncSender<Errand>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Errands {
    /// Starts the thread.
    ///
    /// # Errors
    /// As the operating system says.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel::<Errand>(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("punctual-errand".to_owned())
            .spawn(move || receiver.into_iter().for_each(|errand| errand()))?;
        Ok(Self { sender: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) })
    }

    /// Runs `errand` and answers what it answered.
    ///
    /// # Errors
    /// [`StoreError::Busy`] when too many wait, [`StoreError::Closed`] at the end.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        errand: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, StoreError> {
        let (answer, receiver) = oneshot::channel();
        // Whoever asked may have gone; the errand is done all the same.
        let errand: Errand = Box::new(move || drop(answer.send(errand())));
        let sent = match &*self.sender.lock() {
            Some(sender) => sender.try_send(errand),
            None => return Err(StoreError::Closed),
        };
        match sent {
            Ok(()) => receiver.await.map_err(|_gone| StoreError::Closed),
            Err(TrySendError::Full(_)) => Err(StoreError::Busy),
            Err(TrySendError::Disconnected(_)) => Err(StoreError::Closed),
        }
    }

    /// Finishes what waits and ends the thread.
    pub(crate) fn close(&self) {
        self.sender.lock().take();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("an errand ended by a panic");
        }
    }
}
