//! What the HTTP listener answers while the server waits for what it stands on: that it lives, and
//! why it takes nothing yet.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use punctual_api::{Code, Problem};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::app::listeners::Listener;
use crate::http::{answer_live, problem};
use crate::net::{Opened, open};
use crate::tasks::Tasks;

/// Connections at one time.
const CONNECTIONS_MAX: usize = 64;
/// Longest time for a handshake, for a request's head, and between two tries.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// The same trouble is told again after so many tries.
const TELL_EVERY: u32 = 30;

/// Why the server takes nothing yet.
#[derive(Clone, Debug)]
pub(super) struct Waiting(watch::Sender<Arc<str>>);

/// What a try came to.
pub(super) enum Failed<E> {
    /// It passes by itself.
    ForNow(String),
    /// It does not.
    ForGood(E),
}

impl Default for Waiting {
    fn default() -> Self {
        Self(watch::Sender::new("the server is starting".into()))
    }
}

impl Waiting {
    /// Tries until it works, or never will. Each new trouble is told in the log, and to whoever asks.
    pub(super) async fn until<T, E, F>(
        &self,
        what: impl fmt::Display,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, E>
    where
        F: Future<Output = Result<T, Failed<E>>>,
    {
        let mut last: Option<String> = None;
        for tries in 0u32.. {
            match attempt().await {
                Ok(done) => {
                    if last.is_some() {
                        info!("{what} is there");
                    }
                    return Ok(done);
                }
                Err(Failed::ForGood(error)) => return Err(error),
                Err(Failed::ForNow(why)) => {
                    if last.as_ref() != Some(&why) || tries % TELL_EVERY == 0 {
                        warn!(why, "waiting for {what}");
                    }
                    self.0.send_replace(format!("waiting for {what}: {why}").into());
                    last = Some(why);
                }
            }
            let _always_late = tokio::time::timeout(PAUSE, std::future::pending::<()>()).await;
        }
        unreachable!("nobody tries as often as that")
    }

    /// Answers on the listener until it is dropped.
    pub(super) async fn answer(&self, listener: &Listener, tasks: &Tasks) -> Infallible {
        let mut connections = JoinSet::new();
        loop {
            while connections.len() >= CONNECTIONS_MAX {
                connections.join_next().await;
            }
            let stream = match listener.socket.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "a connection could not be accepted");
                    let _always_late =
                        tokio::time::timeout(PAUSE, std::future::pending::<()>()).await;
                    continue;
                }
            };
            let (reason, tls, tasks) = (self.0.subscribe(), listener.tls.clone(), tasks.clone());
            connections.spawn(async move {
                let opened = open(stream, tls.as_deref(), Some(PATIENCE), &tasks).await;
                let Opened::Ready(stream) = opened else { return };
                let service = service_fn(|request: Request<Incoming>| {
                    let reply = match request.uri().path() {
                        "/health/live" => answer_live(),
                        _ => {
                            let why = reason.borrow().to_string();
                            problem::reply(&Problem::new(Code::Unavailable, why))
                        }
                    };
                    std::future::ready(Ok::<_, Infallible>(reply))
                });
                let served = http1::Builder::new()
                    .keep_alive(false)
                    .timer(TokioTimer::new())
                    .header_read_timeout(PATIENCE)
                    .serve_connection(TokioIo::new(stream), service);
                // Whoever asked may be gone.
                drop(tokio::time::timeout(PATIENCE * 2, served).await);
            });
        }
    }
}
