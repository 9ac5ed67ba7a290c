//! Who asks, and what they were granted.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use punctual_api::{Code, Problem};
use punctual_broker::Request;
use punctual_model::{GroupName, TopicName};

use crate::access::Permission;
use crate::access::gate::{App, Gate};
use crate::access::quota::Cost;

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// Somebody on this machine, where no authentication is configured.
    Local,
    /// Nobody has looked: what is asked for is open to anybody.
    Nobody,
    /// An app that has shown its secret.
    App(Known),
}

/// An app that has shown its secret. What it may do is looked up each time, so a change counts at
/// once, also for whoever is connected.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(super) app: Arc<App>,
    pub(super) gate: Gate,
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
    /// A group of consumers of a topic; or one of producers that sends to it.
    Group(&'a TopicName, &'a GroupName),
    /// A group of producers, which decides about its transactions.
    ProducerGroup(&'a GroupName),
}

impl Caller {
    /// Whether the caller has that right on that target.
    pub(crate) fn may(&self, permission: Permission, target: Target<'_>) -> bool {
        match (self, permission) {
            (_, Permission::Anybody) => true,
            (Self::Nobody, _) => false,
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
            (Self::App(known), permission) => known.may(permission, target),
        }
    }

    /// Refuses what the caller may not do.
    pub(crate) fn require(
        &self,
        permission: Permission,
        target: Target<'_>,
    ) -> Result<(), Problem> {
        if self.may(permission, target) {
            return Ok(());
        }
        match self {
            Self::Nobody => Err(unauthenticated()),
            Self::Local | Self::App(_) => Err(Code::Forbidden.into()),
        }
    }

    /// Lets so much be sent, within the caller's quotas. The answer is kept until the broker has
    /// answered, for what is under way counts as pending.
    ///
    /// # Errors
    /// [`Code::QuotaExceeded`] with the time to wait; [`Code::Unauthenticated`] when the app was
    /// disabled or deleted meanwhile.
    pub(crate) fn charge(&self, cost: Cost) -> Result<Charged, Problem> {
        self.still_stands()?;
        match self {
            Self::Local | Self::Nobody => Ok(Charged::default()),
            Self::App(known) => {
                let charged = known.gate.charge(&known.app, cost);
                let counted = charged.map_err(|problem| known.refused(cost, problem))?;
                let under_way = if counted { cost.messages } else { 0 };
                Ok(Charged { app: Some(Arc::clone(&known.app)), cost, under_way })
            }
        }
    }

    /// The same for whoever pauses afterwards instead of being refused, and for how long. So many of
    /// the messages become pending.
    ///
    /// # Errors
    /// [`Code::QuotaExceeded`] when too much would be pending; [`Code::Unauthenticated`] as above.
    pub(crate) fn charge_on_credit(
        &self,
        cost: Cost,
        pending: u64,
    ) -> Result<(Charged, Duration), Problem> {
        self.still_stands()?;
        let Self::App(known) = self else { return Ok((Charged::default(), Duration::ZERO)) };
        let charged = known.gate.charge_on_credit(&known.app, cost, pending);
        let (counted, pause) = charged.map_err(|problem| known.refused(cost, problem))?;
        let under_way = if counted { pending } else { 0 };
        Ok((Charged { app: Some(Arc::clone(&known.app)), cost, under_way }, pause))
    }

    /// How long the caller has to pause for what it sent on credit, on whatever connection.
    pub(crate) fn owed(&self) -> Duration {
        match self {
            Self::App(known) => Gate::owed(&known.app),
            Self::Local | Self::Nobody => Duration::ZERO,
        }
    }

    /// Refuses an app that was disabled or deleted since it was let in.
    pub(crate) fn still_stands(&self) -> Result<(), Problem> {
        match self {
            Self::App(known) if !known.app.stands() => Err(unauthenticated()),
            Self::App(_) | Self::Local | Self::Nobody => Ok(()),
        }
    }

    /// Notes on messages who sends them.
    pub(crate) fn sign<'a>(&self, requests: impl IntoIterator<Item = &'a mut Request>) {
        if let Self::App(known) = self {
            let key = known.app.key();
            requests.into_iter().for_each(|request| request.sender = Some(key.text()));
        }
    }

    /// What the record of changes calls the caller.
    pub(crate) fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Local => "local".into(),
            Self::Nobody => "nobody".into(),
            Self::App(known) => known.app.key().to_string().into(),
        }
    }
}

impl Known {
    fn may(&self, permission: Permission, target: Target<'_>) -> bool {
        self.app.stands() && self.gate.grants(&self.app, permission, target)
    }

    /// Counts what a quota has refused.
    fn refused(&self, cost: Cost, problem: Problem) -> Problem {
        if problem.code == Code::QuotaExceeded {
            self.app.refused(cost.messages);
        }
        problem
    }
}

/// The refusal of whoever has not said who they are, whatever was wrong about it.
pub(crate) fn unauthenticated() -> Problem {
    let detail = "send authorization: Bearer KEY.SECRET, with the key and the secret of an app";
    Problem::new(Code::Unauthenticated, detail)
}

/// Something that was let in, and is under way until this is dropped.
#[must_use = "what was let in is under way until this is dropped"]
#[derive(Debug, Default)]
pub(crate) struct Charged {
    app: Option<Arc<App>>,
    cost: Cost,
    /// Messages that count as pending meanwhile.
    under_way: u64,
}

impl Charged {
    /// All of it was stored.
    pub(crate) fn stored(&self) {
        self.stored_part(self.cost);
    }

    /// So much of it was stored and was not known before.
    pub(crate) fn stored_part(&self, cost: Cost) {
        if let Some(app) = &self.app {
            app.stored(cost);
        }
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        if let Some(app) = self.app.take().filter(|_| self.under_way > 0) {
            app.answered(self.under_way);
        }
    }
}
