//! What members say about records that they hold.
//!
//! What is said about one partition counts as a whole: when it names a record that the member does
//! not hold, nothing of it is done. What is done is done even if the member is gone before it could
//! be told.

use std::collections::BTreeMap;

use punctual_broker::group::{Consumer, Failure, NackOutcome, Receipt};
use punctual_kafka_wire::error::ErrorCode;
use punctual_kafka_wire::messages::{share_acknowledge, share_fetch};
use punctual_model::TopicId;
use punctual_model::ports::GroupError;
use tokio::sync::oneshot;
use tracing::warn;

use super::sessions::{Part, Place, Sessions, Ticket};
use crate::kafka::call::Call;
use crate::tasks::Tasks;

/// What a member says about a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) part: Part,
    pub(super) stretches: Vec<Stretch>,
}

/// What it says about a stretch of offsets: one thing about all, or one about each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    first: i64,
    last: i64,
    types: Vec<i8>,
}

impl From<share_fetch::AcknowledgementBatch> for Stretch {
    fn from(batch: share_fetch::AcknowledgementBatch) -> Self {
        let share_fetch::AcknowledgementBatch { first_offset, last_offset, acknowledge_types } =
            batch;
        Self { first: first_offset, last: last_offset, types: acknowledge_types }
    }
}

impl From<share_acknowledge::AcknowledgementBatch> for Stretch {
    fn from(batch: share_acknowledge::AcknowledgementBatch) -> Self {
        let share_acknowledge::AcknowledgementBatch {
            first_offset,
            last_offset,
            acknowledge_types,
        } = batch;
        Self { first: first_offset, last: last_offset, types: acknowledge_types }
    }
}

/// What is to become of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Accept,
    Release,
    Reject,
    Renew,
}

/// A record that was taken out of a session to be settled.
struct Claimed {
    /// Which of the things said it belongs to.
    said: usize,
    place: Place,
    receipt: Receipt,
}

type Work = BTreeMap<(TopicId, Verdict), Vec<Claimed>>;

/// Does what a member says; answers how each thing said went.
pub(super) async fn settle(
    call: &Call,
    ticket: &Ticket,
    said: Vec<Said>,
    may_renew: bool,
) -> Vec<ErrorCode> {
    if said.is_empty() {
        return Vec::new();
    }
    let mut codes = Vec::with_capacity(said.len());
    let mut work = Work::new();
    {
        let mut sessions = call.shared.shares.inner.sessions.lock();
        for (index, said) in said.iter().enumerate() {
            let verdicts = judge(&mut sessions, ticket, said, may_renew);
            codes.push(verdicts.as_ref().err().copied().unwrap_or(ErrorCode::NONE));
            for (place, verdict) in verdicts.unwrap_or_default() {
                if let Some(receipt) = sessions.claim(ticket, place) {
                    let claimed = Claimed { said: index, place, receipt };
                    work.entry((place.part.0, verdict)).or_default().push(claimed);
                }
            }
        }
    }
    let (done, outcome) = oneshot::channel();
    let (call, ticket, fallback) = (call.clone(), ticket.clone(), codes.len());
    call.shared.tasks.clone().spawn(async move {
        for ((topic, verdict), claimed) in work {
            carry_out(&call, &ticket, (topic, verdict), claimed, &mut codes).await;
        }
        // Whoever has asked may be gone.
        drop(done.send(codes));
    });
    outcome.await.unwrap_or_else(|_broken| vec![ErrorCode::UNKNOWN_SERVER_ERROR; fallback])
}

/// What is to become of each record, if all of them are held.
fn judge(
    sessions: &mut Sessions,
    ticket: &Ticket,
    said: &Said,
    may_renew: bool,
) -> Result<Vec<(Place, Verdict)>, ErrorCode> {
    let mut verdicts = Vec::new();
    let mut behind = 0;
    for stretch in &said.stretches {
        let first = u64::try_from(stretch.first).map_err(|_below| ErrorCode::INVALID_REQUEST)?;
        let last = u64::try_from(stretch.last).map_err(|_below| ErrorCode::INVALID_REQUEST)?;
        // Stretches ascend, so nothing is said twice about a record.
        if first < behind || last < first {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        behind = last.saturating_add(1);
        let held = sessions.held_in(ticket, said.part, (first, last));
        let judged = match stretch.types.as_slice() {
            [kind] => judge_all(&held, (first, last), verdict(*kind, may_renew)?)?,
            kinds => judge_each(&held, (first, last), kinds, may_renew)?,
        };
        let place = |offset| Place { part: said.part, offset };
        verdicts.extend(judged.into_iter().map(|(offset, verdict)| (place(offset), verdict)));
    }
    Ok(verdicts)
}

/// One thing about a whole stretch.
fn judge_all(
    held: &[u64],
    (first, last): (u64, u64),
    verdict: Option<Verdict>,
) -> Result<Vec<(u64, Verdict)>, ErrorCode> {
    let all = u64::try_from(held.len()).is_ok_and(|held| held == (last - first).saturating_add(1));
    if verdict.is_some() && !all {
        return Err(ErrorCode::INVALID_RECORD_STATE);
    }
    let verdict = verdict.unwrap_or(Verdict::Accept);
    Ok(held.iter().map(|offset| (*offset, verdict)).collect())
}

/// One thing about each offset of a stretch.
fn judge_each(
    held: &[u64],
    (first, last): (u64, u64),
    kinds: &[i8],
    may_renew: bool,
) -> Result<Vec<(u64, Verdict)>, ErrorCode> {
    let as_many =
        u64::try_from(kinds.len()).is_ok_and(|kinds| kinds == (last - first).saturating_add(1));
    if !as_many {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    let mut judged = Vec::with_capacity(held.len());
    for (offset, kind) in (first..=last).zip(kinds) {
        let verdict = verdict(*kind, may_renew)?;
        match (held.binary_search(&offset).is_ok(), verdict) {
            (true, verdict) => judged.push((offset, verdict.unwrap_or(Verdict::Accept))),
            (false, None) => {}
            (false, Some(_)) => return Err(ErrorCode::INVALID_RECORD_STATE),
        }
    }
    Ok(judged)
}

/// What a number means; nothing for a gap, where there is no record to speak of.
const fn verdict(kind: i8, may_renew: bool) -> Result<Option<Verdict>, ErrorCode> {
    match kind {
        0 => Ok(None),
        1 => Ok(Some(Verdict::Accept)),
        2 => Ok(Some(Verdict::Release)),
        3 => Ok(Some(Verdict::Reject)),
        4 if may_renew => Ok(Some(Verdict::Renew)),
        _ => Err(ErrorCode::INVALID_REQUEST),
    }
}

async fn carry_out(
    call: &Call,
    ticket: &Ticket,
    (topic, verdict): (TopicId, Verdict),
    claimed: Vec<Claimed>,
    codes: &mut [ErrorCode],
) {
    let receipts: Vec<Receipt> = claimed.iter().map(|claimed| claimed.receipt).collect();
    let outcome = match find(call, ticket, topic) {
        Ok(consumer) => apply(&call.shared.tasks, consumer, verdict, receipts).await,
        Err(code) => Err(code),
    };
    let mut kept = Vec::new();
    for (index, claimed) in claimed.into_iter().enumerate() {
        let code = match &outcome {
            Ok(held) if held.get(index).copied().unwrap_or(false) => {
                if verdict == Verdict::Renew {
                    kept.push((claimed.place, claimed.receipt));
                }
                continue;
            }
            // It ran out, or somebody settled it otherwise.
            Ok(_) => ErrorCode::INVALID_RECORD_STATE,
            Err(code) => {
                kept.push((claimed.place, claimed.receipt));
                *code
            }
        };
        if let Some(answer) = codes.get_mut(claimed.said) {
            *answer = code;
        }
    }
    // When the session is over meanwhile, the leases run out by themselves.
    let _over = call.shared.shares.inner.sessions.lock().hold(ticket, kept);
}

fn find(call: &Call, ticket: &Ticket, topic: TopicId) -> Result<Consumer, ErrorCode> {
    let topics = call.shared.broker.topics();
    let topic = topics.by_id(topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    let group = &ticket.member.group;
    call.shared.broker.consumers().find(&topic.name, group).map_err(|error| code_of(&error))
}

/// True for each record that was still held.
async fn apply(
    tasks: &Tasks,
    consumer: Consumer,
    verdict: Verdict,
    receipts: Vec<Receipt>,
) -> Result<Vec<bool>, ErrorCode> {
    let outcome = match verdict {
        Verdict::Accept => consumer.ack(&receipts).await,
        Verdict::Renew => {
            let lease = consumer.group().settings.lease;
            Ok(consumer.extend(&receipts, lease))
        }
        Verdict::Release | Verdict::Reject => {
            let failure = Failure { reject: verdict == Verdict::Reject, ..Failure::default() };
            let work = tasks.blocking(move || consumer.nack(&receipts, &failure)).await;
            let held = |outcome: &NackOutcome| *outcome != NackOutcome::NotHeld;
            work.map_err(|_broken_off| ErrorCode::UNKNOWN_SERVER_ERROR)?
                .map(|outcomes| outcomes.iter().map(held).collect())
        }
    };
    outcome.map_err(|error| {
        warn!(%error, ?verdict, "records of a share group could not be settled");
        code_of(&error)
    })
}

/// What a refusal of the group is called.
pub(super) const fn code_of(error: &GroupError) -> ErrorCode {
    match error {
        GroupError::TopicNotFound => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        GroupError::NotFound => ErrorCode::GROUP_ID_NOT_FOUND,
        GroupError::NameTaken(_) | GroupError::NameTooLong => ErrorCode::INVALID_GROUP_ID,
        GroupError::TooMany => ErrorCode::GROUP_MAX_SIZE_REACHED,
        GroupError::Store(_) => ErrorCode::KAFKA_STORAGE_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_about_all_needs_all_of_them() {
        let accept = Some(Verdict::Accept);
        let all = judge_all(&[4, 5, 6], (4, 6), accept);
        assert_eq!(all, Ok(vec![(4, Verdict::Accept), (5, Verdict::Accept), (6, Verdict::Accept)]));
        assert_eq!(judge_all(&[4, 6], (4, 6), accept), Err(ErrorCode::INVALID_RECORD_STATE));
        assert_eq!(judge_all(&[], (0, u64::MAX), accept), Err(ErrorCode::INVALID_RECORD_STATE));
        // A gap says that there is nothing; what is there all the same is done with.
        assert_eq!(judge_all(&[6], (4, 6), None), Ok(vec![(6, Verdict::Accept)]));
    }

    #[test]
    fn one_thing_about_each_needs_those_it_is_about() {
        let said = judge_each(&[4, 6], (4, 6), &[2, 0, 3], false);
        assert_eq!(said, Ok(vec![(4, Verdict::Release), (6, Verdict::Reject)]));
        let missing = judge_each(&[4, 6], (4, 6), &[2, 1, 3], false);
        assert_eq!(missing, Err(ErrorCode::INVALID_RECORD_STATE));
        for kinds in [&[][..], &[1, 1], &[1, 1, 1, 1], &[1, 0, 5], &[4, 0, 1]] {
            let refused = judge_each(&[4, 6], (4, 6), kinds, false);
            assert_eq!(refused, Err(ErrorCode::INVALID_REQUEST), "{kinds:?}");
        }
        let renewed = judge_each(&[4, 6], (4, 6), &[4, 0, 1], true);
        assert_eq!(renewed, Ok(vec![(4, Verdict::Renew), (6, Verdict::Accept)]));
    }
}
