//! Sending messages, and everything that can be done to them until they are delivered.
//!
//! What must hold: a message that was accepted by `send` is sent even if nobody waits for the
//! outcome; one that is sent twice because an answer was lost has the same own id both times.

mod outbox;
mod parcel;
mod pipeline;
mod pending;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use punctual_proto::v1;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::connection::Connection;
use crate::error::{Problem, SendError};
use crate::level::DelayLevel;
use crate::message::Message;
use crate::names::Names;
use crate::tasks::spawn;
use crate::wire;

use self::outbox::{Entry, Limits};
use self::parcel::{Ledger, Outcome};
use self::pipeline::Command;

/// Calls that wait for the task to look at them.
const COMMANDS_MAX: usize = 1024;
/// Largest message and largest batch that are sent at all, in bytes.
const BATCH_BYTES_CEILING: usize = 32 << 20;
/// Most messages of a batch that the broker takes.
const BATCH_MESSAGES_CEILING: usize = 10_000;

/// How a producer gathers and repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerOptions {
    /// How long a batch waits for more messages while others are under way. A batch goes at once
    /// when none is.
    pub linger: Duration,
    /// Most messages of a batch, up to 10,000.
    pub batch_messages: usize,
    /// Most bytes of a batch, up to 32 MiB. A larger message goes alone.
    pub batch_bytes: usize,
    /// Batches that may be under way at the same time. With 1 the messages of a topic are stored in
    /// the order in which they were sent, whatever happens; with more, a batch that is refused for
    /// a while may be overtaken by the next.
    pub batches_under_way: usize,
    /// Bytes of all messages that wait or are under way. When there are so many, sending waits.
    pub queue_bytes: usize,
    /// Whether messages without an own id get one, so that sending them again after a lost answer
    /// makes no second message. Without, a lost answer is [`SendError::Unanswered`] for them.
    pub idempotent: bool,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self {
            linger: Duration::from_millis(2),
            batch_messages: 1000,
            batch_bytes: 1 << 20,
            batches_under_way: 8,
            queue_bytes: 64 << 20,
            idempotent: true,
        }
    }
}

/// What the broker answers for a message it has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The broker's id of the message, unique across topics.
    pub id: String,
    /// When it will be delivered.
    pub due: SystemTime,
    /// The same message was there before, and no second one came into being.
    pub duplicate: bool,
}

impl From<v1::Sent> for Receipt {
    fn from(sent: v1::Sent) -> Self {
        Self { id: sent.id, due: wire::from_time(sent.due), duplicate: sent.duplicate }
    }
}

/// Sends messages. Clones share one stream and one queue.
///
/// Messages are gathered into batches, several of which are under way at the same time. A batch
/// that the broker refuses for a while, or whose answer is lost, is sent again with growing waits
/// until [`RetryPolicy::give_up_after`](crate::RetryPolicy::give_up_after).
#[derive(Clone, Debug)]
pub struct Producer {
    core: Arc<Core>,
}

#[derive(Debug)]
struct Core {
    connection: Connection,
    names: Arc<Names>,
    options: ProducerOptions,
    /// Bytes of the queue that are free.
    room: Arc<Semaphore>,
    room_bytes: u32,
    ledger: Arc<Ledger>,
    /// To the task, which is started by the first message.
    commands: OnceLock<mpsc::Sender<Command>>,
}

impl Producer {
    pub(crate) fn new(
        connection: Connection,
        names: Arc<Names>,
        mut options: ProducerOptions,
    ) -> Self {
        options.batch_messages = options.batch_messages.clamp(1, BATCH_MESSAGES_CEILING);
        options.batch_bytes = options.batch_bytes.clamp(1, BATCH_BYTES_CEILING);
        options.batches_under_way = options.batches_under_way.max(1);
        let room_bytes = u32::try_from(options.queue_bytes.max(1)).unwrap_or(u32::MAX);
        let permits = usize::try_from(room_bytes).unwrap_or(Semaphore::MAX_PERMITS);
        let room = Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        let ledger = Arc::default();
        let commands = OnceLock::new();
        let core = Core { connection, names, options, room, room_bytes, ledger, commands };
        Self { core: Arc::new(core) }
    }

    /// Sends a message; answered when it is on the broker's disk.
    ///
    /// Waits while the queue is full. If the future is dropped before the message is in the queue,
    /// it is not sent; after that it is sent all the same.
    ///
    /// # Errors
    /// When the broker refuses it, or is not there in time; see [`SendError`].
    pub async fn send(&self, topic: &str, message: Message) -> Result<Receipt, SendError> {
        let span = tracing::debug_span!("punctual.send", topic);
        async {
            let outcomes = self.enqueue(topic, vec![message]).await?;
            let mut outcomes = outcomes.await.map_err(|_dropped| SendError::Closed)?;
            outcomes.pop().unwrap_or(Err(SendError::Closed))
        }
        .instrument(span)
        .await
    }

    /// Sends a message that is delivered after `delay`.
    ///
    /// A dropped future does what that of [`Producer::send`] does.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub async fn send_delayed(
        &self,
        topic: &str,
        message: Message,
        delay: Duration,
    ) -> Result<Receipt, SendError> {
        self.send(topic, message.delay(delay)).await
    }

    /// Sends a message that is delivered at that time.
    ///
    /// A dropped future does what that of [`Producer::send`] does.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub async fn send_at(
        &self,
        topic: &str,
        message: Message,
        when: SystemTime,
    ) -> Result<Receipt, SendError> {
        self.send(topic, message.deliver_at(when)).await
    }

    /// Sends a message that is delivered after the delay of a level.
    ///
    /// A dropped future does what that of [`Producer::send`] does.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub async fn send_with_level(
        &self,
        topic: &str,
        message: Message,
        level: DelayLevel,
    ) -> Result<Receipt, SendError> {
        self.send(topic, message.level(level)).await
    }

    /// Sends many messages; answered when each of them has an outcome, in their order. They are not
    /// one unit: some may be stored and others refused.
    ///
    /// If the future is dropped, those that are in the queue are sent all the same, and the others
    /// are not.
    ///
    /// # Errors
    /// Each message has an outcome of its own; see [`SendError`].
    pub async fn send_all(
        &self,
        topic: &str,
        messages: impl IntoIterator<Item = Message>,
    ) -> Vec<Result<Receipt, SendError>> {
        let span = tracing::debug_span!("punctual.send", topic);
        let mut messages = messages.into_iter();
        async {
            let mut waiting = Vec::new();
            let mut chunk: Vec<Message> = self.chunk(&mut messages);
            while !chunk.is_empty() {
                let count = chunk.len();
                waiting.push((count, self.enqueue(topic, chunk).await));
                chunk = self.chunk(&mut messages);
            }
            let mut outcomes = Vec::new();
            for (count, parcel) in waiting {
                let told = match parcel {
                    Ok(parcel) => parcel.await.map_err(|_dropped| SendError::Closed),
                    Err(error) => Err(error),
                };
                outcomes.extend(told.unwrap_or_else(|error| vec![Err(error); count]));
            }
            outcomes
        }
        .instrument(span)
        .await
    }

    /// Puts a message into the queue without waiting for its outcome, which comes by the returned
    /// [`Sending`]. Waits while the queue is full.
    ///
    /// If the future is dropped, the message is not sent.
    ///
    /// # Errors
    /// [`SendError::Closed`], and [`SendError::Refused`] for a message that is too large to be sent.
    pub async fn begin(&self, topic: &str, message: Message) -> Result<Sending, SendError> {
        self.enqueue(topic, vec![message]).await.map(Sending)
    }

    /// Waits until every message that was in the queue before has an outcome. Nothing of it waits
    /// for more to come any longer.
    ///
    /// If the future is dropped, the messages are sent all the same.
    pub async fn flush(&self) {
        let Some(commands) = self.core.commands.get() else { return };
        // A task that has ended has sent everything.
        let _ended = commands.send(Command::Hurry).await.is_err();
        self.core.ledger.flushed().await;
    }

    /// Takes no more messages and waits until every message in the queue has an outcome. It closes
    /// all clones.
    ///
    /// If the future is dropped, the messages are sent all the same.
    pub async fn close(&self) {
        self.core.room.close();
        let Some(commands) = self.core.commands.get() else { return };
        // A task that has ended has sent everything.
        let _ended = commands.send(Command::Close).await.is_err();
        self.core.ledger.flushed().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.core.room.is_closed()
    }

    /// The next messages that go into the queue together.
    fn chunk(&self, messages: &mut impl Iterator<Item = Message>) -> Vec<Message> {
        let ProducerOptions { batch_messages, batch_bytes, .. } = self.core.options;
        let mut chunk = Vec::new();
        let mut bytes = 0;
        while chunk.len() < batch_messages && bytes < batch_bytes {
            let Some(message) = messages.next() else { break };
            bytes += message.weight();
            chunk.push(message);
        }
        chunk
    }

    async fn enqueue(
        &self,
        topic: &str,
        messages: Vec<Message>,
    ) -> Result<oneshot::Receiver<Vec<Outcome>>, SendError> {
        let core = &*self.core;
        let weights: Vec<usize> = messages.iter().map(Message::weight).collect();
        if weights.iter().any(|weight| *weight > BATCH_BYTES_CEILING) {
            let problem = Problem::of_client("body_too_large", "the message is too large");
            return Err(SendError::Refused(problem));
        }
        let bytes = u32::try_from(weights.iter().sum::<usize>()).unwrap_or(u32::MAX);
        let room = Arc::clone(&core.room).acquire_many_owned(bytes.min(core.room_bytes)).await;
        let room = room.map_err(|_closed| SendError::Closed)?;
        let commands = core.commands.get_or_init(|| self.start());
        let permit = commands.reserve().await.map_err(|_ended| SendError::Closed)?;
        let expires = Instant::now() + core.connection.retry.give_up_after;
        let (slots, outcomes) = parcel::parcel(messages.len(), room, core.ledger.open());
        let entries = messages.into_iter().zip(weights).zip(slots);
        let entries = entries.map(|((message, weight), slot)| {
            let mut message = message.into_wire();
            if core.options.idempotent && message.id.is_none() {
                message.id = Some(core.names.next());
            }
            Entry { message, weight, slot, expires }
        });
        permit.send(Command::Send { topic: Arc::from(topic), entries: entries.collect() });
        Ok(outcomes)
    }

    fn start(&self) -> mpsc::Sender<Command> {
        let ProducerOptions { linger, batch_messages, batch_bytes, batches_under_way, .. } =
            self.core.options;
        let limits = Limits {
            messages: batch_messages,
            bytes: batch_bytes,
            linger,
            under_way: batches_under_way,
            retry: self.core.connection.retry,
        };
        let (commands, taken) = mpsc::channel(COMMANDS_MAX);
        // Not owned: it ends when the last producer is gone and what it was given is sent.
        drop(spawn(pipeline::run(self.core.connection.clone(), limits, taken)));
        commands
    }
}

/// A message that is in the queue.
#[derive(Debug)]
pub struct Sending(oneshot::Receiver<Vec<Outcome>>);

impl Sending {
    /// What became of the message.
    ///
    /// If the future, or this, is dropped, the message is sent all the same.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub async fn outcome(self) -> Result<Receipt, SendError> {
        let mut outcomes = self.0.await.map_err(|_dropped| SendError::Closed)?;
        outcomes.pop().unwrap_or(Err(SendError::Closed))
    }
}
