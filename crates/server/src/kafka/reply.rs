//! What becomes of a request: what is sent back, and what happens then.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use punctual_kafka_wire::frame;
use punctual_kafka_wire::{Piece, Request, WireError};
use punctual_model::ports::SliceFile;
use tracing::error;

/// What becomes of a request.
pub(crate) enum Reply {
    /// It is not answered.
    Nothing,
    /// A whole answer.
    Bytes(Bytes),
    /// A whole answer, part of which lies in files.
    Parts(Vec<Part>),
    /// The answer comes later. Further requests of the same kind may be begun meanwhile; answers
    /// keep the order of requests all the same.
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
    /// A whole answer, and the last one: the connection ends.
    Last(Bytes),
    /// The connection ends without an answer.
    Close,
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// These bytes.
    Bytes(Bytes),
    /// A stretch of a file.
    File {
        /// The file.
        file: Arc<dyn SliceFile>,
        /// Where the stretch begins.
        position: u64,
        /// How long it is.
        length: u64,
    },
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Bytes(_) => "Bytes",
            Self::Parts(_) => "Parts",
            Self::Later(_) => "Later",
            Self::Last(_) => "Last",
            Self::Close => "Close",
        })
    }
}

/// How a request is answered: by which number it is known, and in which version.
#[derive(Debug)]
pub(crate) struct Answering<Q> {
    pub(crate) correlation_id: i32,
    pub(crate) version: i16,
    request: PhantomData<fn() -> Q>,
}

impl<Q> Clone for Answering<Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q> Copy for Answering<Q> {}

impl<Q: Request> Answering<Q> {
    pub(crate) const fn new(correlation_id: i32, version: i16) -> Self {
        Self { correlation_id, version, request: PhantomData }
    }

    /// The whole answer.
    pub(crate) fn reply(self, response: &Q::Response) -> Reply {
        match self.bytes(response) {
            Some(bytes) => Reply::Bytes(bytes),
            None => Reply::Close,
        }
    }

    /// The whole answer, after which the connection ends.
    pub(crate) fn last(self, response: &Q::Response) -> Reply {
        match self.bytes(response) {
            Some(bytes) => Reply::Last(bytes),
            None => Reply::Close,
        }
    }

    /// The answer, cut where files fill it.
    pub(crate) fn pieces(self, response: &Q::Response) -> Option<Vec<Piece>> {
        self.written(response).map(frame::Answer::pieces)
    }

    /// What is asked for, by name.
    pub(crate) const fn name(self) -> &'static str {
        Q::NAME
    }

    fn bytes(self, response: &Q::Response) -> Option<Bytes> {
        self.written(response)?.into_bytes().map_err(Self::failed).ok()
    }

    fn written(self, response: &Q::Response) -> Option<frame::Answer> {
        frame::response::<Q>(self.correlation_id, self.version, response).map_err(Self::failed).ok()
    }

    fn failed(error: WireError) {
        error!(%error, api = Q::NAME, "an answer cannot be written");
    }
}
