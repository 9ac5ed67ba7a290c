//! A call on its way to its handler, and who asks: for plain gRPC, and for the unary form of Triple.

use std::future::Future;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use hyper::body::Incoming;
use punctual_api::{Code, Problem};
use punctual_model::{GroupName, TopicName};

use crate::access::{Caller, Target};
use crate::grpc::answers::{self, Out};
use crate::grpc::method::Method;
use crate::grpc::sent::topic_name;
use crate::grpc::triple;
use crate::grpc::wire::{Answer, Ask, Frame, Frames, framed};
use crate::http::audit::Asker;
use crate::http::body::hold;
use crate::http::reply::{Reply, UNCOUNTED_BYTES_MAX};
use crate::http::shared::Shared;
use crate::http::socket::Peer;

/// What is asked, and by whom.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) shared: Arc<Shared>,
    pub(crate) asker: Asker,
    pub(crate) method: Method,
    /// The other side, where somebody has to look whether it is still there.
    pub(crate) peer: Option<Peer>,
}

impl Asked {
    /// Who asks.
    pub(crate) const fn caller(&self) -> &Caller {
        self.asker.caller()
    }

    /// Refuses what the caller may not do with that.
    pub(crate) fn require(&self, target: Target<'_>) -> Result<(), Problem> {
        self.caller().require(self.method.operation().rule().permission, target)
    }

    /// The topic of that name, which the caller must have the right on; refuses what nobody can do
    /// with it here.
    pub(crate) fn topic(&self, text: &str) -> Result<TopicName, Problem> {
        let topic = topic_name(text)?;
        self.require(Target::Topic(&topic))?;
        self.shared.consuming().check(self.method.operation(), &topic, None)?;
        Ok(topic)
    }

    /// The group of those names, which the caller must have the right on; refuses what nobody can do
    /// with it here.
    pub(crate) fn group(
        &self,
        topic: &str,
        group: &str,
    ) -> Result<(TopicName, GroupName), Problem> {
        let (topic, group) = (topic_name(topic)?, group_name(group)?);
        self.require(Target::Group(&topic, &group))?;
        self.shared.consuming().check(self.method.operation(), &topic, Some(&group))?;
        Ok((topic, group))
    }

    /// The producer group of that name, which the caller must have the right on.
    pub(crate) fn producer_group(&self, text: &str) -> Result<GroupName, Problem> {
        let group = group_name(text)?;
        self.require(Target::ProducerGroup(&group))?;
        Ok(group)
    }
}

/// The group of that name.
pub(crate) fn group_name(text: &str) -> Result<GroupName, Problem> {
    GroupName::new(text).map_err(|error| Problem::new(Code::InvalidGroupName, error.to_string()))
}

/// How a call is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// In frames.
    Grpc,
    /// A bare message.
    Proto,
    /// A bare message as JSON.
    Json,
}

/// A call on its way to its handler.
pub(crate) struct Call {
    pub(crate) asked: Asked,
    pub(crate) form: Form,
    pub(crate) parts: Parts,
    pub(crate) body: Incoming,
}

impl Call {
    /// Answers a call of one message with one message.
    pub(crate) async fn unary<Q, A, F>(self, handler: impl FnOnce(Asked, Q) -> F) -> Reply
    where
        Q: Ask,
        A: Answer,
        F: Future<Output = Result<A, Problem>> + Send,
    {
        let (asked, form) = (self.asked.clone(), self.form);
        match self.answered(handler).await {
            Ok((bytes, frame)) => shown(&asked, form, bytes, frame),
            Err(problem) => refused(form, &problem),
        }
    }

    /// The answer, and the request, which goes on being held.
    async fn answered<Q, A, F>(
        self,
        handler: impl FnOnce(Asked, Q) -> F,
    ) -> Result<(Bytes, Frame), Problem>
    where
        Q: Ask,
        A: Answer,
        F: Future<Output = Result<A, Problem>> + Send,
    {
        let (asked, form) = (self.asked.clone(), self.form);
        let mut frame = self.take().await?;
        let request = Q::read(&frame.bytes)?;
        frame.bytes = Bytes::new();
        let answer = handler(asked.clone(), request).await?;
        let bytes = match form {
            Form::Grpc => framed(&answer),
            Form::Proto | Form::Json => {
                let mut bytes = BytesMut::new();
                answer.write(&mut bytes);
                bytes.freeze()
            }
        };
        // What was only looked at may be refused still, what was done may not.
        if asked.method.is_question() && bytes.len() > UNCOUNTED_BYTES_MAX {
            frame.permits.extend(hold(&asked.shared, bytes.len())?);
        }
        answer.sent();
        Ok((bytes, frame))
    }

    /// Takes the one message of the call in.
    async fn take(self) -> Result<Frame, Problem> {
        let (shared, bytes_max) = (&self.asked.shared, self.asked.method.request_bytes_max());
        match self.form {
            Form::Grpc => {
                let frames =
                    Frames::new(Arc::clone(shared), self.body, &self.parts.headers, bytes_max)?;
                frames.only().await
            }
            Form::Proto | Form::Json => triple::take(self).await,
        }
    }

    /// Answers a call of many messages with many.
    pub(crate) fn stream<F>(self, work: impl FnOnce(Asked, Frames, Out) -> F) -> Reply
    where
        F: Future<Output = Result<(), Problem>> + Send + 'static,
    {
        let bytes_max = self.asked.method.request_bytes_max();
        if self.form != Form::Grpc {
            let detail = "a stream needs gRPC over HTTP/2";
            return refused(self.form, &Problem::new(Code::RouteNotFound, detail));
        }
        let shared = Arc::clone(&self.asked.shared);
        match Frames::new(shared, self.body, &self.parts.headers, bytes_max) {
            Ok(frames) => answers::stream(|out| work(self.asked, frames, out)),
            Err(problem) => answers::refusal(&problem),
        }
    }
}

fn shown(asked: &Asked, form: Form, bytes: Bytes, frame: Frame) -> Reply {
    let bytes = if frame.permits.is_empty() {
        bytes
    } else {
        Bytes::from_owner(Counted { bytes, _permits: frame.permits })
    };
    match form {
        Form::Grpc => answers::one(bytes),
        Form::Proto | Form::Json => triple::shown(asked.method, form, bytes),
    }
}

/// A refusal in the form of the call.
pub(crate) fn refused(form: Form, problem: &Problem) -> Reply {
    match form {
        Form::Grpc => answers::refusal(problem),
        Form::Proto | Form::Json => triple::refusal(problem),
    }
}

/// Bytes of an answer that count as held until the last of them has left.
struct Counted {
    bytes: Bytes,
    _permits: Vec<tokio::sync::OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
