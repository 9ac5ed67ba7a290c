//! Who asks, and what they were granted.

use std::borrow::Cow;

use punctual_api::{Code, Problem};
use punctual_model::{GroupName, TopicName};

use crate::access::Permission;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Somebody on this machine, where no authentication is configured.
    Local,
}

/// What something is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// The whole broker.
    Whole,
    /// Nothing in particular: it is enough to have the right somewhere.
    Anything,
    /// A topic, whether or not it exists.
    Topic(&'a TopicName),
    /// A group of consumers of a topic.
    Group(&'a TopicName, &'a GroupName),
    /// A group of producers, which decides about its transactions.
    ProducerGroup(&'a GroupName),
}

impl Caller {
    /// Whether the caller has that right on that target.
    pub(crate) fn may(&self, permission: Permission, _target: Target<'_>) -> bool {
        match (self, permission) {
            (_, Permission::Anybody) => true,
            // Every permission is named: a new one is refused until somebody decides.
            (
                Self::Local,
                Permission::Observe
                | Permission::Send
                | Permission::Read
                | Permission::Cancel
                | Permission::Change
                | Permission::Consume
                | Permission::See
                | Permission::Manage
                | Permission::Audit
                | Permission::Admin,
            ) => true,
        }
    }

    /// Refuses what the caller may not do.
    pub(crate) fn require(
        &self,
        permission: Permission,
        target: Target<'_>,
    ) -> Result<(), Problem> {
        if self.may(permission, target) { Ok(()) } else { Err(Code::Forbidden.into()) }
    }

    /// What the record of changes calls the caller.
    pub(crate) fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Local => "local".into(),
        }
    }
}
