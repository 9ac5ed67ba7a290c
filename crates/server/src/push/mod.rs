//! Pushes the messages of groups that have an endpoint: each as an HTTP request whose answer is the
//! ack.
//!
//! One pusher per such group, started and ended here as groups come, change and go. A push reaches
//! public addresses only, and whatever the configuration lists besides: see `address.rs`, which
//! judges addresses, `endpoint.rs`, which reads them, and `connect.rs`, the only way out.

mod address;
mod endpoint;
mod sign;
mod request;
mod connect;
mod client;
mod verdict;
mod breaker;
mod figures;
mod pusher;
mod callback;
mod notice;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use punctual_broker::group::Consumers;
use punctual_model::group::Push;
use punctual_model::{Clock, Group, GroupId, Span, TopicName};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::push::endpoint::Endpoint;
use crate::push::pusher::{Means, Pusher};
use crate::tasks::Tasks;

pub(crate) use self::callback::Asking;
pub(crate) use self::connect::Connector;
pub use self::connect::TrustError;
#[cfg(feature = "cluster")]
pub(crate) use self::connect::{client_tls, read_authorities};
pub use self::endpoint::Allowed;
pub(crate) use self::endpoint::URL_CHARS_MAX;
pub(crate) use self::figures::{Counts, Figures};
pub(crate) use self::notice::{Notice, Unsent, send as send_notice};
pub use self::sign::Secret;
use self::sign::Signer;

/// Requests under way at once, for a group that says nothing about it.
pub(crate) const CONCURRENCY_DEFAULT: u16 = 8;
/// Most requests under way at once that a group may ask for.
pub(crate) const CONCURRENCY_MAX: u16 = 256;
/// Time-out of a request, for a group that says nothing about it.
pub(crate) const TIMEOUT_DEFAULT: Span = Span::from_secs(30);
/// Shortest time-out a group may ask for.
pub(crate) const TIMEOUT_MIN: Span = Span::from_secs(1);
/// Longest time-out a group may ask for.
pub(crate) const TIMEOUT_MAX: Span = Span::from_secs(5 * 60);

/// A setting that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub(crate) struct Refused {
    pub(crate) field: &'static str,
    pub(crate) reason: String,
}

/// Whether messages can be pushed like that, as far as it can be told without asking anybody.
pub(crate) fn check(push: &Push, allowed: &Allowed) -> Result<(), Refused> {
    check_url(&push.url, allowed)?;
    if let Some(secret) = &push.secret {
        refuse("push.secret", Signer::new(secret))?;
    }
    if !(1..=CONCURRENCY_MAX).contains(&push.concurrency) {
        let reason = format!("it is a number from 1 to {CONCURRENCY_MAX}");
        return Err(Refused { field: "push.concurrency", reason });
    }
    if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&push.timeout) {
        let reason = format!("it is from {TIMEOUT_MIN} to {TIMEOUT_MAX}");
        return Err(Refused { field: "push.timeout", reason });
    }
    Ok(())
}

/// Whether the address can be that of an endpoint, as far as it can be told without asking anybody.
pub(crate) fn check_url(url: &str, allowed: &Allowed) -> Result<(), Refused> {
    refuse("push.url", Endpoint::read(url, allowed)).map(drop)
}

fn refuse<T, E: ToString>(field: &'static str, read: Result<T, E>) -> Result<T, Refused> {
    read.map_err(|error| Refused { field, reason: error.to_string() })
}

/// Starts to push for all groups that have an endpoint, now and from now on, until the tasks are
/// asked to stop.
pub(crate) fn start(
    consumers: Consumers,
    connector: Arc<Connector>,
    tasks: &Tasks,
    clock: Arc<dyn Clock>,
) -> Arc<Figures> {
    let figures = Arc::new(Figures::default());
    let means =
        Arc::new(Means { connector, tasks: tasks.clone(), clock, figures: Arc::clone(&figures) });
    tasks.spawn(watch(consumers, means));
    figures
}

/// Keeps the pushers in step with the groups.
async fn watch(consumers: Consumers, means: Arc<Means>) {
    let mut running = HashMap::new();
    let mut allowed = means.connector.allowed();
    loop {
        let changed = consumers.changed();
        follow(&mut running, &consumers, &means);
        tokio::select! {
            () = means.tasks.stopped() => break,
            () = changed => {}
            // All are started anew: what was allowed may be no longer, and the other way round.
            Ok(()) = allowed.changed() => {
                running.drain().for_each(|(_, pusher): (GroupId, Running)| pusher.end());
            }
        }
    }
    running.values().for_each(Running::end);
}

/// A pusher, or a group that cannot have one, with the settings it was started for.
#[derive(Debug)]
struct Running {
    push: Push,
    ended: CancellationToken,
}

impl Running {
    fn end(&self) {
        self.ended.cancel();
    }
}

fn follow(running: &mut HashMap<GroupId, Running>, consumers: &Consumers, means: &Arc<Means>) {
    let mut wanted = HashSet::new();
    for (topic, group) in consumers.list() {
        let Some(push) = group.settings.push.as_ref().filter(|_| !group.settings.paused) else {
            continue;
        };
        wanted.insert(group.id);
        if running.get(&group.id).is_some_and(|pusher| pusher.push == *push) {
            continue;
        }
        let ended = CancellationToken::new();
        begin(consumers, (&topic, &group), push, means, ended.clone());
        if let Some(old) = running.insert(group.id, Running { push: push.clone(), ended }) {
            old.end();
        }
    }
    running.retain(|id, pusher| {
        let stays = wanted.contains(id);
        if !stays {
            pusher.end();
        }
        stays
    });
}

/// Starts the pusher of a group. One that cannot be started leaves its messages where they are.
fn begin(
    consumers: &Consumers,
    (topic, group): (&TopicName, &Group),
    push: &Push,
    means: &Arc<Means>,
    ended: CancellationToken,
) {
    let Ok(consumer) = consumers.find(topic, &group.name) else {
        debug!(%topic, group = %group.name, "a group is gone before anything was pushed");
        return;
    };
    match Pusher::new(consumer, push, Arc::clone(means)) {
        Ok(pusher) => means.tasks.spawn(Arc::new(pusher).run(ended)),
        Err(refused) => {
            warn!(%topic, group = %group.name, %refused, "messages of a group cannot be pushed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push() -> Push {
        Push {
            url: "https://hooks.example/in".into(),
            secret: Some("secret".into()),
            concurrency: CONCURRENCY_DEFAULT,
            timeout: TIMEOUT_DEFAULT,
        }
    }

    fn refused(push: &Push) -> &'static str {
        check(push, &Allowed::default()).unwrap_err().field
    }

    #[test]
    fn settings_are_checked_one_by_one() {
        assert_eq!(check(&push(), &Allowed::default()), Ok(()));
        assert_eq!(refused(&Push { url: "http://127.1/".into(), ..push() }), "push.url");
        assert_eq!(refused(&Push { secret: Some("whsec_?".into()), ..push() }), "push.secret");
        assert_eq!(refused(&Push { secret: Some("".into()), ..push() }), "push.secret");
        for concurrency in [0, 257] {
            assert_eq!(refused(&Push { concurrency, ..push() }), "push.concurrency");
        }
        for millis in [0, 999, 300_001] {
            let timeout = Span::from_millis(millis);
            assert_eq!(refused(&Push { timeout, ..push() }), "push.timeout");
        }
        let allowed = Allowed::read("127.0.0.1:80").unwrap();
        assert_eq!(check_url("http://127.1/", &allowed), Ok(()));
        let refused = check_url("http://127.1/", &Allowed::default()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "push.url: loopback addresses must be listed in push.allow"
        );
    }
}
