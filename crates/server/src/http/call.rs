//! A request on its way to its handler: what its path names, and who asks.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;

use http::request::Parts;
use punctual_api::request::decode_path;
use punctual_api::{Code, Problem};
use punctual_model::{GroupName, MessageId, TopicName};

use crate::access::{Caller, Operation, Scope, Target};
use crate::http::audit::Asker;
use crate::http::body::Arriving;
use crate::http::routes::Place;
use crate::http::shared::Shared;
use crate::http::socket::Peer;

/// A request on its way to its handler.
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) parts: Parts,
    pub(crate) body: Arriving,
    /// The other side, where somebody has to look whether it is still there.
    pub(crate) peer: Option<Peer>,
    pub(crate) asker: Asker,
    pub(crate) place: Place,
}

impl Call {
    fn part(&self, range: (usize, usize)) -> Result<Cow<'_, str>, Problem> {
        decode_path(self.parts.uri.path().get(range.0..range.1).unwrap_or_default())
    }

    /// The topic of the path; `None` on a route without one.
    pub(crate) fn topic(&self) -> Result<Option<TopicName>, Problem> {
        let Some(range) = self.place.topic else {
            return Ok(None);
        };
        let illegal = |detail: String| Problem::new(Code::InvalidTopicName, detail);
        let text = self.part(range).map_err(|problem| illegal(problem.detail.into_owned()))?;
        TopicName::new(&text).map(Some).map_err(|error| illegal(error.to_string()))
    }

    /// The topic of the path, on a route that has one.
    pub(crate) fn topic_named(&self) -> Result<TopicName, Problem> {
        self.topic()?.ok_or_else(|| Code::InvalidTopicName.into())
    }

    /// The topic and the group of the path.
    pub(crate) fn group_named(&self) -> Result<(TopicName, GroupName), Problem> {
        Ok((self.topic_named()?, self.producer_group()?))
    }

    /// The producer group of the path.
    pub(crate) fn producer_group(&self) -> Result<GroupName, Problem> {
        let illegal = |detail: String| Problem::new(Code::InvalidGroupName, detail);
        let text = self.part(self.place.group.unwrap_or_default());
        let text = text.map_err(|problem| illegal(problem.detail.into_owned()))?;
        GroupName::new(&text).map_err(|error| illegal(error.to_string()))
    }

    /// Who asks, for the record.
    pub(crate) fn asker(&self) -> Asker {
        self.asker.clone()
    }

    /// Who asks.
    pub(crate) const fn caller(&self) -> &Caller {
        self.asker.caller()
    }

    /// Refuses what the caller may not do, as far as the path tells, and what nobody can do here.
    pub(crate) fn admit(&self, operation: Operation) -> Result<(), Problem> {
        let rule = operation.rule();
        let require = |target| self.caller().require(rule.permission, target);
        match rule.scope {
            Scope::Open => Ok(()),
            Scope::Whole => require(Target::Whole),
            Scope::Topic => {
                let topic = self.topic_named()?;
                require(Target::Topic(&topic))?;
                self.shared.consuming().check(operation, &topic, None)
            }
            Scope::Group => {
                let (topic, group) = self.group_named()?;
                require(Target::Group(&topic, &group))?;
                self.shared.consuming().check(operation, &topic, Some(&group))
            }
            Scope::ProducerGroup => require(Target::ProducerGroup(&self.producer_group()?)),
            // Somewhere at least; what exactly is decided when it is known.
            Scope::Anything | Scope::Found | Scope::Content | Scope::Visible => {
                require(Target::Anything)?;
                match self.topic()? {
                    Some(topic) => require(Target::Topic(&topic)),
                    None => Ok(()),
                }
            }
        }
    }

    /// The job of the path. What is not an id of ours names no job.
    pub(crate) fn job<T: FromStr>(&self) -> Result<T, Problem> {
        let text = self.part(self.place.job.unwrap_or_default());
        text.ok().and_then(|text| text.parse().ok()).ok_or_else(|| Code::JobNotFound.into())
    }

    /// The message of the path. What is not an id of ours names no message.
    pub(crate) fn id(&self) -> Result<MessageId, Problem> {
        let id = self.id_text().and_then(|text| text.parse().ok());
        id.ok_or_else(|| Code::NotFound.into())
    }

    /// What the path calls the message; `None` where it is no text.
    pub(crate) fn id_text(&self) -> Option<Cow<'_, str>> {
        self.part(self.place.id.unwrap_or_default()).ok()
    }

    /// What the path calls the app; `None` where it is no text.
    pub(crate) fn app_text(&self) -> Option<Cow<'_, str>> {
        self.part(self.place.app.unwrap_or_default()).ok()
    }

    /// The partition of the path.
    pub(crate) fn partition(&self) -> Result<u16, Problem> {
        let text = self.part(self.place.partition.unwrap_or_default())?;
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten();
        number.ok_or_else(|| Code::NoSuchPartition.into())
    }

    /// The query string.
    pub(crate) fn query(&self) -> Option<&str> {
        self.parts.uri.query()
    }
}
