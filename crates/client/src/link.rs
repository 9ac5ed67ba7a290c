//! One stream in both directions, with a task that reads it.
//!
//! What must hold: the owner never waits to write, because it never has more requests under way
//! than the link has room for; dropping a link ends its stream.

use std::future::Future;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming};

use crate::fault::Fault;
use crate::tasks::Owned;

/// Answers that wait to be looked at; the server is slowed down beyond that.
const ANSWERS_MAX: usize = 64;

/// A stream of requests `Q` and answers `A`.
#[derive(Debug)]
pub(crate) struct Link<Q, A> {
    requests: mpsc::Sender<Q>,
    answers: mpsc::Receiver<Result<A, Fault>>,
    _reader: Owned,
}

impl<Q: Send + 'static, A: Send + 'static> Link<Q, A> {
    /// Opens a stream with room for so many requests; opening it may take so long at most.
    pub(crate) fn open<F>(
        room: usize,
        patience: Duration,
        open: impl FnOnce(ReceiverStream<Q>) -> F,
    ) -> Self
    where
        F: Future<Output = Result<Response<Streaming<A>>, Status>> + Send + 'static,
    {
        let (requests, taken) = mpsc::channel(room);
        let (told, answers) = mpsc::channel(ANSWERS_MAX);
        let opening = open(ReceiverStream::new(taken));
        let reader = Owned::start(async move {
            let fault = read(patience, opening, &told).await;
            // The owner may have let go of the link meanwhile.
            let _unheard = told.send(Err(fault)).await.is_err();
        });
        Self { requests, answers, _reader: reader }
    }

    /// Sends a request. False when the stream has ended, which its answers tell too, or when there
    /// is no room.
    pub(crate) fn send(&self, request: Q) -> bool {
        self.requests.try_send(request).is_ok()
    }

    /// Whether a request can be sent now.
    pub(crate) fn has_room(&self) -> bool {
        self.requests.capacity() > 0
    }

    /// The next answer, or why there is none any more. Where room for requests is wanted, `None`
    /// says that there is some.
    pub(crate) async fn next_or_room(&mut self, wants_room: bool) -> Option<Result<A, Fault>> {
        let has_room = tokio::select! {
            answer = self.answers.recv() => {
                return Some(answer.unwrap_or_else(|| Err(Fault::ended())));
            }
            room = self.requests.reserve(), if wants_room => room.is_ok(),
        };
        // A stream that has ended says so by its answers, which are to come.
        if has_room { None } else { Some(self.next().await) }
    }

    /// The next answer, or why there is none any more.
    pub(crate) async fn next(&mut self) -> Result<A, Fault> {
        self.answers.recv().await.unwrap_or_else(|| Err(Fault::ended()))
    }
}

/// The next answer of a link, if there is one; otherwise waits for ever.
pub(crate) async fn next<Q: Send + 'static, A: Send + 'static>(
    link: &mut Option<Link<Q, A>>,
) -> Result<A, Fault> {
    match link {
        Some(link) => link.next().await,
        None => std::future::pending().await,
    }
}

async fn read<A>(
    patience: Duration,
    opening: impl Future<Output = Result<Response<Streaming<A>>, Status>>,
    told: &mpsc::Sender<Result<A, Fault>>,
) -> Fault {
    let mut stream = match tokio::time::timeout(patience, opening).await {
        Ok(Ok(opened)) => opened.into_inner(),
        Ok(Err(status)) => return status.into(),
        Err(_elapsed) => return Fault::late(),
    };
    loop {
        match stream.message().await {
            Ok(Some(answer)) => {
                if told.send(Ok(answer)).await.is_err() {
                    return Fault::ended();
                }
            }
            Ok(None) => return Fault::ended(),
            Err(status) => return status.into(),
        }
    }
}
