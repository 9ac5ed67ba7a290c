//! How much an app may do: messages and bytes in a second, and messages that are pending.
//!
//! Rates are buckets that fill steadily and hold what one second brings. A batch that is larger than
//! a whole bucket waits for a full one and is then owed, so the rate holds and no batch is refused
//! for ever. What is pending is counted by the broker; that count is asked for seldom, and what was
//! let in since is added to it.

use std::time::Duration;

use parking_lot::Mutex;
use punctual_api::{Code, Problem};
use punctual_broker::{Request, Scheduled};
use punctual_model::Message;
use tokio::time::Instant;

/// A count of what is pending is taken anew after this time.
const COUNTED_FOR: Duration = Duration::from_millis(100);
/// Before anybody is refused it is taken anew, if it is at least this old.
const COUNTED_FOR_LEAST: Duration = Duration::from_millis(10);
/// What one message or byte costs, in the units that a rate of one brings in a nanosecond.
const UNITS: i128 = 1_000_000_000;

/// How much an app may do; what is not said has no bound. None of them is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quotas {
    /// Messages sent in a second.
    pub(crate) messages_per_second: Option<u64>,
    /// Bytes of messages sent in a second.
    pub(crate) bytes_per_second: Option<u64>,
    /// Messages pending in the topics that it may send to.
    pub(crate) pending: Option<u64>,
    /// Connections at one time.
    pub(crate) connections: Option<u64>,
}

/// What somebody wants to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Cost {
    /// What these messages cost.
    pub(crate) fn of<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Self {
        let add = |cost: Self, message: &Message| cost.plus(1, message.weight() as u64);
        messages.into_iter().fold(Self::default(), add)
    }

    /// So much more.
    pub(crate) const fn plus(self, messages: u64, bytes: u64) -> Self {
        Self { messages: self.messages + messages, bytes: self.bytes.saturating_add(bytes) }
    }
}

/// What messages cost, for whoever learns only later which of them were new.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    pub(crate) cost: Cost,
    /// The bytes of each, where one of them has a name and may be known already.
    bytes: Vec<u64>,
}

impl Sending {
    /// What these cost.
    pub(crate) fn of(requests: &[Request]) -> Self {
        let cost = Cost::of(requests.iter().map(|request| &request.message));
        let has_names = requests.iter().any(|request| request.own_id.is_some());
        let weigh = |request: &Request| request.message.weight() as u64;
        let bytes = if has_names { requests.iter().map(weigh).collect() } else { Vec::new() };
        Self { cost, bytes }
    }

    /// What those cost that were new, by what was answered.
    pub(crate) fn new_ones(&self, answers: &[Scheduled]) -> Cost {
        if self.bytes.is_empty() {
            return self.cost;
        }
        let new = answers.iter().zip(&self.bytes).filter(|(answer, _)| !answer.duplicate);
        new.fold(Cost::default(), |cost, (_, bytes)| cost.plus(1, *bytes))
    }
}

/// What an app has used.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    messages: Bucket,
    bytes: Bucket,
    pending: Pending,
}

/// What is pending, as far as is known.
#[derive(Debug, Default)]
struct Pending {
    counted: u64,
    counted_at: Option<Instant>,
    /// Let in and accepted since.
    since: u64,
    /// Let in, and not answered yet.
    under_way: u64,
}

impl Meter {
    /// Lets so much in, or says why not and when it might be.
    pub(crate) fn charge(
        &self,
        quotas: &Quotas,
        cost: Cost,
        now: Instant,
        count: impl FnOnce() -> u64,
    ) -> Result<(), Problem> {
        let mut used = self.used.lock();
        let used = &mut *used;
        if let Some(most) = quotas.pending {
            used.pending.check(most, cost.messages, now, count)?;
        }
        let rates = [
            (quotas.messages_per_second, &mut used.messages, cost.messages, "messages"),
            (quotas.bytes_per_second, &mut used.bytes, cost.bytes, "bytes"),
        ];
        for (rate, bucket, cost, what) in rates {
            let Some(rate) = rate else { continue };
            bucket.fill(rate, now);
            if let Some(wait) = bucket.wait(rate, cost) {
                let detail = format!("the app may send {rate} {what} in a second");
                return Err(Problem::new(Code::QuotaExceeded, detail).after(wait));
            }
        }
        used.messages.take(quotas.messages_per_second, cost.messages);
        used.bytes.take(quotas.bytes_per_second, cost.bytes);
        if quotas.pending.is_some() {
            used.pending.under_way += cost.messages;
        }
        Ok(())
    }

    /// Lets so much in, of which some becomes pending, and says how long whoever sent it has to pause
    /// until the rates hold again. Only what is pending is a reason to refuse.
    pub(crate) fn charge_on_credit(
        &self,
        quotas: &Quotas,
        (cost, pending): (Cost, u64),
        now: Instant,
        count: impl FnOnce() -> u64,
    ) -> Result<Duration, Problem> {
        let mut used = self.used.lock();
        let used = &mut *used;
        if let Some(most) = quotas.pending.filter(|_| pending > 0) {
            used.pending.check(most, pending, now, count)?;
            used.pending.under_way += pending;
        }
        let rates = [
            (quotas.messages_per_second, &mut used.messages, cost.messages),
            (quotas.bytes_per_second, &mut used.bytes, cost.bytes),
        ];
        let mut pause = Duration::ZERO;
        for (rate, bucket, cost) in rates {
            let Some(rate) = rate else { continue };
            bucket.fill(rate, now);
            bucket.take(Some(rate), cost);
            pause = pause.max(bucket.debt(rate));
        }
        Ok(pause)
    }

    /// How long it takes until the rates hold again after what was sent on credit.
    pub(crate) fn owed(&self, quotas: &Quotas, now: Instant) -> Duration {
        let mut used = self.used.lock();
        let used = &mut *used;
        let rates = [
            (quotas.messages_per_second, &mut used.messages),
            (quotas.bytes_per_second, &mut used.bytes),
        ];
        let owed = rates.into_iter().filter_map(|(rate, bucket)| {
            let rate = rate?;
            bucket.fill(rate, now);
            Some(bucket.debt(rate))
        });
        owed.max().unwrap_or_default()
    }

    /// What was let in has been answered.
    pub(crate) fn answered(&self, messages: u64) {
        let pending = &mut self.used.lock().pending;
        pending.under_way = pending.under_way.saturating_sub(messages);
        pending.since = pending.since.saturating_add(messages);
    }
}

impl Pending {
    fn check(
        &mut self,
        most: u64,
        more: u64,
        now: Instant,
        count: impl FnOnce() -> u64,
    ) -> Result<(), Problem> {
        let age = self.counted_at.map_or(Duration::MAX, |at| now.saturating_duration_since(at));
        let over = |pending: &Self| pending.total().saturating_add(more) > most;
        if age >= COUNTED_FOR || (age >= COUNTED_FOR_LEAST && over(self)) {
            self.counted = count();
            self.since = 0;
            self.counted_at = Some(now);
        }
        if !over(self) {
            return Ok(());
        }
        let detail = format!("the app may have {most} messages pending");
        Err(Problem::new(Code::QuotaExceeded, detail).after(1))
    }

    fn total(&self) -> u64 {
        self.counted.saturating_add(self.since).saturating_add(self.under_way)
    }
}

/// What is left of a rate.
#[derive(Debug, Default)]
struct Bucket {
    /// Below zero when something larger than the bucket was let in.
    left: i128,
    filled_at: Option<Instant>,
}

impl Bucket {
    fn fill(&mut self, rate: u64, now: Instant) {
        let full = full(rate);
        self.left = match self.filled_at {
            None => full,
            Some(before) => {
                let passed = now.saturating_duration_since(before).as_nanos();
                let passed = i128::try_from(passed).unwrap_or(i128::MAX);
                self.left.saturating_add(passed.saturating_mul(i128::from(rate))).min(full)
            }
        };
        self.filled_at = Some(now);
    }

    /// In how many seconds so much fits; `None` when it does now.
    fn wait(&self, rate: u64, cost: u64) -> Option<u64> {
        let needed = i128::from(cost).saturating_mul(UNITS).min(full(rate));
        let missing = needed.saturating_sub(self.left);
        if missing <= 0 {
            return None;
        }
        let second = full(rate).max(1);
        let seconds = missing.saturating_add(second - 1) / second;
        Some(u64::try_from(seconds).unwrap_or(u64::MAX).max(1))
    }

    /// How long it takes until nothing is owed any more.
    fn debt(&self, rate: u64) -> Duration {
        let nanos = self.left.saturating_neg().max(0) / i128::from(rate.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn take(&mut self, rate: Option<u64>, cost: u64) {
        if rate.is_some() {
            self.left = self.left.saturating_sub(i128::from(cost).saturating_mul(UNITS));
        }
    }
}

/// What one second brings.
fn full(rate: u64) -> i128 {
    i128::from(rate) * UNITS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing_counted() -> u64 {
        panic!("no count is asked for")
    }

    fn cost(messages: u64, bytes: u64) -> Cost {
        Cost { messages, bytes }
    }

    /// The seconds to wait; 0 for what is let in.
    fn charged(meter: &Meter, quotas: &Quotas, cost: Cost, now: Instant) -> u64 {
        match meter.charge(quotas, cost, now, nothing_counted) {
            Ok(()) => 0,
            Err(problem) => {
                assert_eq!(problem.code, Code::QuotaExceeded);
                problem.retry_after.expect("a time")
            }
        }
    }

    #[test]
    fn g41_a_rate_holds_and_says_when_to_come_again() {
        let quotas = Quotas { messages_per_second: Some(10), ..Quotas::default() };
        let (meter, start) = (Meter::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        for _ in 0..10 {
            assert_eq!(charged(&meter, &quotas, cost(1, 1), at(0)), 0);
        }
        assert_eq!(charged(&meter, &quotas, cost(1, 1), at(0)), 1);
        assert_eq!(charged(&meter, &quotas, cost(1, 1), at(99)), 1);
        assert_eq!(charged(&meter, &quotas, cost(1, 1), at(100)), 0);
        assert_eq!(charged(&meter, &quotas, cost(10, 1), at(200)), 1);
        assert_eq!(charged(&meter, &quotas, cost(10, 1), at(1100)), 0);
        // An hour of silence brings no more than a second of it.
        assert_eq!(charged(&meter, &quotas, cost(10, 1), at(3_600_000)), 0);
        assert_eq!(charged(&meter, &quotas, cost(1, 1), at(3_600_000)), 1);
    }

    #[test]
    fn a_batch_larger_than_a_second_is_let_in_and_owed() {
        let quotas = Quotas { bytes_per_second: Some(100), ..Quotas::default() };
        let (meter, start) = (Meter::default(), Instant::now());
        let at = |secs: u64| start + Duration::from_secs(secs);
        assert_eq!(charged(&meter, &quotas, cost(1, 1000), at(0)), 0);
        assert_eq!(charged(&meter, &quotas, cost(1, 1000), at(0)), 10);
        assert_eq!(charged(&meter, &quotas, cost(1, 1), at(0)), 10);
        assert_eq!(charged(&meter, &quotas, cost(1, 100), at(9)), 1);
        assert_eq!(charged(&meter, &quotas, cost(1, 100), at(10)), 0);
    }

    #[test]
    fn what_is_sent_on_credit_is_paid_by_a_pause() {
        let quotas = Quotas {
            messages_per_second: Some(10),
            bytes_per_second: Some(100),
            pending: Some(3),
            ..Quotas::default()
        };
        let (meter, start) = (Meter::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let charge = |cost, pending, ms| {
            meter.charge_on_credit(&quotas, (cost, pending), at(ms), || 0).map_err(|no| no.code)
        };
        assert_eq!(charge(cost(10, 1), 0, 0), Ok(Duration::ZERO));
        assert_eq!(charge(cost(5, 1), 0, 0), Ok(Duration::from_millis(500)));
        assert_eq!(charge(cost(5, 1), 0, 500), Ok(Duration::from_millis(500)));
        assert_eq!(charge(cost(1, 500), 0, 10_000), Ok(Duration::from_secs(4)));
        assert_eq!(charge(cost(1, 1), 3, 20_000), Ok(Duration::ZERO));
        assert_eq!(charge(cost(1, 1), 1, 20_000), Err(Code::QuotaExceeded));
        assert_eq!(charge(cost(1, 1), 0, 20_000), Ok(Duration::ZERO));
        // What one way in owes, the other has to wait for.
        assert_eq!(charge(cost(30, 1), 0, 40_000), Ok(Duration::from_secs(2)));
        meter.answered(3);
        let waits = meter.charge(&quotas, cost(1, 1), at(40_000), || 0).unwrap_err();
        assert_eq!(waits.retry_after, Some(3));
    }

    #[test]
    fn what_one_bound_refuses_is_not_taken_from_the_other() {
        let quotas = Quotas {
            messages_per_second: Some(1),
            bytes_per_second: Some(10),
            ..Quotas::default()
        };
        let (meter, start) = (Meter::default(), Instant::now());
        assert_eq!(charged(&meter, &quotas, cost(1, 1), start), 0);
        for _ in 0..20 {
            assert_eq!(charged(&meter, &quotas, cost(1, 1), start), 1);
        }
        let more = Quotas { messages_per_second: Some(100), ..quotas };
        let later = start + Duration::from_millis(10);
        assert_eq!(charged(&meter, &more, cost(1, 9), later), 0);
    }

    #[test]
    fn what_is_pending_is_counted_now_and_then_and_added_up_between() {
        let quotas = Quotas { pending: Some(10), ..Quotas::default() };
        let (meter, start) = (Meter::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let ask = |messages, ms, counted: Option<u64>| {
            let count = || counted.expect("no count is asked for");
            meter.charge(&quotas, cost(messages, 1), at(ms), count).is_ok()
        };
        assert!(ask(4, 0, Some(0)));
        assert!(ask(6, 0, None), "both are under way");
        assert!(!ask(1, 0, None));
        meter.answered(10);
        assert!(!ask(1, 9, None));
        assert!(!ask(1, 10, Some(10)), "before a refusal it is counted anew");
        assert!(ask(3, 20, Some(7)), "some were delivered");
        meter.answered(3);
        assert!(!ask(1, 29, None));
        assert!(ask(1, 120, Some(9)));
        meter.answered(1);
        let refused = meter.charge(&quotas, cost(11, 1), at(300), || 0).unwrap_err();
        assert_eq!((refused.code, refused.retry_after), (Code::QuotaExceeded, Some(1)));
    }
}
