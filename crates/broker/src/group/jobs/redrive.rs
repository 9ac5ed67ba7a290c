//! Redrive: dead letters go back to their group and start again at attempt 1.
//!
//! A letter leaves the list and is scheduled in one durable step. When each of them is due is fixed
//! in that step, so a rate or a start time holds across a restart, and the job itself is through
//! long before the last one is due.

use bytes::Bytes;
use punctual_model::{Basis, Entry, Header, Message, Partition, Span, Timestamp, limits};

use super::{JobError, MoveResult, Moved, Worker};
use crate::bounds::InForce;
use crate::group::TTL_HEADER;
use crate::group::dead::{DeadFilter, DeadLetter, DeadList};
use crate::group::history::History;
use crate::place::SENDER_HEADER;
use crate::schedule::Invalid;

/// Which dead letters to send again, and how.
#[derive(Clone, Debug, Default)]
pub struct Redrive {
    /// Which letters, of those that are there now.
    pub filter: DeadFilter,
    /// So many a second; all at once if nothing is said.
    pub rate: Option<u32>,
    /// Not before this.
    pub at: Option<Timestamp>,
    /// What to change in the one message whose id the filter names.
    pub edit: Option<Edit>,
}

/// What to change in a message; what is not named stays.
#[derive(Clone, Debug, Default)]
pub struct Edit {
    /// Another body.
    pub body: Option<Bytes>,
    /// Other headers, instead of all that there were.
    pub headers: Option<Vec<Header>>,
    /// Another key, or none.
    pub key: Option<Option<Bytes>>,
}

impl Edit {
    fn check(&self, body_bytes_max: usize) -> Result<(), Invalid> {
        if self.body.as_ref().is_some_and(|body| body.len() > body_bytes_max) {
            return Err(Invalid::BodyTooLarge { max: body_bytes_max });
        }
        let headers = self.headers.as_deref().unwrap_or_default();
        if headers.len() > limits::HEADERS_MAX {
            return Err(Invalid::TooManyHeaders);
        }
        let bytes = headers.iter().map(|header| header.name.len() + header.value.len());
        if bytes.sum::<usize>() > limits::HEADER_BYTES_MAX {
            return Err(Invalid::HeadersTooLarge);
        }
        let key = self.key.as_ref().and_then(Option::as_ref);
        if key.is_some_and(|key| key.len() > limits::KEY_BYTES_MAX) {
            return Err(Invalid::KeyTooLarge);
        }
        Ok(())
    }

    fn apply(&self, message: &mut Message) {
        if let Some(body) = &self.body {
            message.body = body.clone();
        }
        if let Some(headers) = &self.headers {
            message.headers.retain(|header| header.name == SENDER_HEADER);
            let given = headers.iter().filter(|header| header.name != SENDER_HEADER);
            message.headers.splice(0..0, given.cloned());
        }
        if let Some(key) = &self.key {
            message.key.clone_from(key);
        }
    }
}

impl Redrive {
    pub(super) fn check(&self, now: Timestamp, bounds: &InForce) -> Result<(), JobError> {
        let (body_bytes_max, delay_max) = (bounds.body_bytes_max(), bounds.delay_max());
        if self.rate == Some(0) {
            return Err(JobError::NoRate);
        }
        if self.at.is_some_and(|at| at.since(now) > delay_max) {
            return Err(JobError::At(Invalid::DelayTooLong { max: delay_max }));
        }
        if let Some(edit) = &self.edit {
            if self.filter.id.is_none() {
                return Err(JobError::EditWithoutId);
            }
            edit.check(body_bytes_max).map_err(JobError::Edit)?;
        }
        Ok(())
    }

    /// When the letter that is the `index`-th of all is due.
    fn due(&self, start: Timestamp, index: u64) -> Timestamp {
        let rate = self.rate.map_or(u64::MAX, u64::from);
        let wait = u128::from(index) * 1000 / u128::from(rate);
        start.saturating_add(Span::from_millis(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}

/// The work of the job.
pub(super) fn run(
    worker: &Worker,
    list: &DeadList,
    order: &Redrive,
    now: Timestamp,
) -> Result<(), JobError> {
    let start = order.at.map_or(now, |at| at.max(now));
    let mut scan = list.scan(&order.filter, None)?;
    let mut count = 0;
    while !scan.finished() {
        let letters = worker.step(|| {
            let held = list.deciding.lock();
            let before = scan.place();
            let letters = scan.decide(&held)?;
            let entries = letters.iter().zip(count..);
            let entries = entries
                .map(|((_, letter), index)| entry(list, order, letter, order.due(start, index)))
                .collect();
            list.take_off(&held, &letters, entries).inspect_err(|_| scan.go_back(before))?;
            Ok(letters)
        })?;
        worker.note(letters.iter().zip(count..).map(|((_, letter), index)| Moved {
            id: letter.history.id,
            result: MoveResult::Redriven,
            due: Some(order.due(start, index)),
        }));
        count += letters.len() as u64;
        if order.filter.id.is_some() && count > 0 {
            return Ok(());
        }
    }
    let missing = order.filter.id.filter(|_| count == 0);
    worker.note(missing.map(|id| Moved { id, result: MoveResult::Gone, due: None }));
    Ok(())
}

fn entry(list: &DeadList, order: &Redrive, letter: &DeadLetter, due: Timestamp) -> Entry {
    let mut message = letter.message.clone();
    // It is sent round again by hand, long after it was due: its time to live means nothing now.
    message.headers.retain(|header| header.name != TTL_HEADER);
    if let Some(edit) = &order.edit {
        edit.apply(&mut message);
    }
    let history = History {
        failed: 0,
        first_error: None,
        last_error: None,
        reason: None,
        ..letter.history.clone()
    };
    history.attach(&mut message);
    Entry {
        topic: list.group.retry,
        partition: Partition::new(0).expect("every topic has a partition 0"),
        due,
        basis: if order.at.is_some() { Basis::Date } else { Basis::Delay },
        message,
        extra: None,
    }
}
