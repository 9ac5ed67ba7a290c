//! The Rust client of Punctual, the message broker that keeps time.
//!
//! ```no_run
//! use std::time::Duration;
//! use punctual_client::{Client, Message};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("http://127.0.0.1:7070").await?;
//! let producer = client.producer();
//! let receipt = producer
//!     .send_delayed("orders", Message::new("close order 42").key("42"), Duration::from_secs(1800))
//!     .await?;
//! producer.cancel(&receipt.id).await?; // it was paid
//!
//! client
//!     .consumer("orders", "billing")
//!     .run(|delivery| async move {
//!         println!("{}: {}", delivery.id, delivery.text()?);
//!         Ok(())
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it takes care of
//!
//! - **Connections.** A [`Client`] is made once and cloned. When the broker goes away, everything
//!   under way waits with growing pauses and goes on when it is back.
//! - **Sending.** A [`Producer`] gathers messages into batches and keeps several of them under way. A
//!   full queue makes senders wait. Every message has an own id, made up if need be, so a batch whose
//!   answer was lost is sent again and yet stored once. A message that the broker refuses takes no
//!   other of its batch along.
//! - **Consuming.** A [`Consumer`] runs handlers at the same time, extends leases while they run,
//!   acks what they handled, gives back what failed, and drains in order when it is stopped. An ack
//!   that was lost with its connection is sent again.
//! - **Transactions.** A [`Transaction`] delivers messages if and only if the local work was done; a
//!   [`Checker`] answers the broker's questions about those that a crash left open.
//!
//! # What it leaves to you
//!
//! A message is handled at least once. It may come again after a crash of either side, with the same
//! [`Delivery::id`].
//!
//! Every awaitable method says what happens when its future is dropped. The runtime is tokio's, with
//! its clock and its network switched on.
//!
//! # Errors
//!
//! There is one enum per kind of operation. Each has a stable [`code`](SendError::code) and says
//! whether the same may succeed later ([`is_retriable`](SendError::is_retriable)); what passes by
//! itself was repeated before you see it.
//!
//! # Traces
//!
//! Work happens in the spans `punctual.send`, `punctual.receive`, `punctual.handle`,
//! `punctual.transaction` and `punctual.check` of the crate `tracing`. A W3C `traceparent` given with
//! [`Message::header`] travels with the message, and a handler finds it with [`Delivery::header`].

#![deny(missing_docs, clippy::missing_errors_doc)]

mod client;
mod message;
mod level;
mod producer;
mod pending;
mod consumer;
mod transaction;
mod checker;
mod error;
mod connection;
mod link;
mod fault;
mod backoff;
mod names;
mod tasks;
mod wire;

pub use crate::backoff::RetryPolicy;
pub use crate::checker::{Check, CheckedMessage, Checker};
pub use crate::client::{Client, ClientBuilder};
pub use crate::consumer::{Consumer, ConsumerHandle, Delivery, Failure, Reject, Retry, Settled};
pub use crate::error::{
    CancelError, ChangeError, ConnectError, ConsumeError, Problem, ReadError, RunError, SendError,
    TransactionError,
};
pub use crate::level::DelayLevel;
pub use crate::message::{Header, Message, Repeat};
pub use crate::pending::{Cancel, Change, Filter, Name, Pages, State, StoredMessage};
pub use crate::producer::{Producer, ProducerOptions, Receipt, Sending};
pub use crate::transaction::{Decision, Prepared, Transaction};
