//! Opens what a crash left behind and holds it against the ledger, then delivers everything and
//! looks again.

use std::collections::BTreeSet;

use punctual_engine::Options;
use punctual_engine::journal::change::Draft;
use punctual_engine::store::{Outcome, Request, Store};
use punctual_model::{Basis, Entry, Lane, MessageId, Partition, Timestamp};
use punctual_testkit::forgetful::ForgetfulDisk;

use super::ledger::{Ledger, Moment, Seen};
use super::look::{Look, drain};
use super::{message, open};

/// What was done before a crash, and the settings it was done with.
#[derive(Debug)]
pub struct Past {
    /// What was asked and answered.
    pub ledger: Ledger,
    /// The settings.
    pub options: Options,
}

impl Past {
    /// Starts on `image`, compares, delivers everything, compares again.
    pub fn examine(&self, image: &ForgetfulDisk, moment: Moment) -> Result<(), String> {
        let store = self.start(image)?;
        let seen = self.ledger.check(&store, moment)?;
        self.end(&store, &seen)?;
        go_on(&store, &seen)
    }

    /// As [`examine`](Self::examine), and one restart more.
    pub fn examine_twice(&self, image: &ForgetfulDisk, moment: Moment) -> Result<(), String> {
        let store = self.start(image)?;
        let seen = self.ledger.check(&store, moment)?;
        self.end(&store, &seen)?;
        let after = image.reopen();
        drop(store);
        let store = self.start(&after)?;
        let again = self.ledger.check(&store, Moment { drained: true, ..moment })?;
        if again.logged != seen.all() || !again.pending.is_empty() {
            return Err(differ("after another restart", &seen.all(), &again.logged));
        }
        go_on(&store, &again)
    }

    /// As [`examine`](Self::examine), where an earlier start has shown `shown` already.
    pub fn examine_shown(
        &self,
        image: &ForgetfulDisk,
        moment: Moment,
        shown: &Seen,
    ) -> Result<(), String> {
        let store = self.start(image)?;
        let seen = self.ledger.check(&store, moment)?;
        if seen.all() != shown.all() {
            return Err(differ("after the second start", &shown.all(), &seen.all()));
        }
        self.end(&store, &seen)
    }

    /// Starts and delivers everything, and answers what was there and after how many operations
    /// the start was complete.
    pub fn recover(&self, image: &ForgetfulDisk, moment: Moment) -> Result<(Seen, u64), String> {
        let store = self.start(image)?;
        let started = image.ops();
        let seen = self.ledger.check(&store, moment)?;
        self.end(&store, &seen)?;
        store.checkpoint(Timestamp::MAX).map_err(|error| format!("checkpoint: {error}"))?;
        Ok((seen, started))
    }

    fn start(&self, image: &ForgetfulDisk) -> Result<Store, String> {
        open(image, &self.options).map_err(|error| format!("does not start: {error}"))
    }

    /// Delivers everything: what was there is then in the logs, once, and nothing else.
    fn end(&self, store: &Store, seen: &Seen) -> Result<(), String> {
        drain(store).map_err(|error| format!("drain: {error}"))?;
        let look = Look::at(store)?;
        look.compare_counts(store)?;
        let logged: BTreeSet<MessageId> = look.logged.keys().copied().collect();
        if logged != seen.all() || !look.pending.is_empty() {
            return Err(differ("after delivering everything", &seen.all(), &logged));
        }
        if let Some((id, _)) = look.logged.iter().find(|(_, copies)| copies.len() != 1) {
            return Err(format!("{id} is in the log twice after delivering everything"));
        }
        let altered = |id: &&MessageId| {
            let place = self.ledger.place(id.key.sequence);
            let sent = place.map(|place| &self.ledger.sent[place]);
            sent.is_none_or(|sent| look.logged[*id].first() != Some(&sent.message))
        };
        logged.iter().find(altered).map_or(Ok(()), |id| Err(format!("{id} was altered")))
    }
}

/// The store takes new messages, and gives them new numbers.
fn go_on(store: &Store, seen: &Seen) -> Result<(), String> {
    let Some(topic) = store.topics().pop() else { return Ok(()) };
    let entry = Entry {
        topic: topic.id,
        partition: Partition::new(0).unwrap(),
        due: Timestamp::MAX,
        basis: Basis::Date,
        message: message(1),
        extra: None,
    };
    for lane in Lane::ALL {
        let request = Request::Schedule(Draft::new(std::slice::from_ref(&entry), lane));
        match store.commit(vec![request]).remove(0) {
            Ok(Outcome::Scheduled(first)) => {
                let known = seen
                    .all()
                    .iter()
                    .map(|id| id.key.sequence)
                    .max_by_key(|known| (known.lane() == lane, *known));
                if first.lane() != lane || known.is_some_and(|k| k.lane() == lane && k >= first) {
                    return Err(format!("sequence {} is given out again", first.get()));
                }
            }
            other => return Err(format!("does not accept: {other:?}")),
        }
    }
    Ok(())
}

fn differ(when: &str, expected: &BTreeSet<MessageId>, found: &BTreeSet<MessageId>) -> String {
    let lost: Vec<_> = expected.difference(found).collect();
    let extra: Vec<_> = found.difference(expected).collect();
    format!("{when}: lost {lost:?}, too much {extra:?}")
}
