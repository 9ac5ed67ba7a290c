//! ShareFetch: a member acknowledges what it has, and acquires more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use punctual_broker::group::{Consumer, Receipt};
use punctual_kafka_wire::Records;
use punctual_kafka_wire::error::ErrorCode;
use punctual_kafka_wire::messages::share_fetch::{
    FetchTopic, LeaderIdAndEpoch, PartitionData, ShareFetchRequest, ShareFetchResponse,
    ShareFetchableTopicResponse,
};
use punctual_model::limits::{LEASE_DEFAULT, RECEIVE_WAIT_MAX};
use punctual_model::{GroupName, Partition, TopicId};
use tokio::time::Instant;

use super::MemberKey;
use super::gather::{Ask, Gathered, gather, pause};
use super::heartbeat::{is_consumed, may_consume};
use super::records::{self, Written};
use super::sessions::{Part, Place, Ticket};
use super::settle::{Said, settle};
use crate::kafka::call::Call;
use crate::kafka::metadata::LEADER_EPOCH;
use crate::kafka::refusal::Refusal;
use crate::kafka::shared::NODE_ID;
use crate::kafka::topic_id::TopicUuid;
use crate::receiving;

/// The epoch that opens a session.
const OPENS: i32 = 0;
/// The epoch that closes one.
pub(super) const CLOSES: i32 = -1;

/// A member acknowledges what it has, and acquires more.
pub(crate) async fn share_fetch(call: &Call, request: ShareFetchRequest) -> ShareFetchResponse {
    fetched(call, request).await.unwrap_or_else(|refusal| ShareFetchResponse {
        error_code: refusal.code.code(),
        error_message: refusal.message,
        ..ShareFetchResponse::default()
    })
}

async fn fetched(call: &Call, request: ShareFetchRequest) -> Result<ShareFetchResponse, Refusal> {
    let group = request.group_id.as_deref().unwrap_or_default();
    let key = MemberKey::of(call, group, request.member_id.as_deref().unwrap_or_default())?;
    let epoch = request.share_session_epoch;
    let ticket = begin(call, &key, &request)?;
    let ask = ask(&request);
    let forgotten: Vec<Part> = request
        .forgotten_topics_data
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|number| (topic.topic_id, *number)))
        .filter_map(|(id, number)| Some((call.shared.cluster.number(&id)?, partition(number)?)))
        .collect();
    let mut answers = Answers::default();
    let asked = answers.read(call, &key.group, request.topics);
    let said: Vec<Said> = asked.iter().filter_map(|asked| asked.1.clone()).collect();
    let codes = settle(call, &ticket, said, request.is_renew_ack).await;
    let with_said = asked.iter().filter(|asked| asked.1.is_some());
    for ((part, _), code) in with_said.zip(codes) {
        answers.entry(call, *part).acknowledge_error_code = code.code();
    }
    let mut lock = LEASE_DEFAULT.as_millis();
    if epoch == CLOSES {
        call.shared.shares.close(&key);
    } else {
        let added = asked.iter().map(|(part, _)| *part);
        let listed = call.shared.shares.inner.sessions.lock().list(&ticket, added, &forgotten);
        let listed = listed.ok_or(ErrorCode::SHARE_SESSION_NOT_FOUND)?;
        let groups = groups(call, &key.group, &listed).await;
        let leases = groups.iter().map(|(_, group)| group.group().settings.lease.as_millis());
        lock = leases.min().unwrap_or(lock);
        // Who only renews wants no more.
        if !request.is_renew_ack {
            acquire(call, &ticket, (&groups, &listed), ask, &mut answers).await?;
        }
    }
    Ok(ShareFetchResponse {
        acquisition_lock_timeout_ms: i32::try_from(lock).unwrap_or(i32::MAX),
        responses: answers.into_topics(),
        ..ShareFetchResponse::default()
    })
}

/// Opens a session, or finds the one that goes on.
fn begin(call: &Call, key: &MemberKey, request: &ShareFetchRequest) -> Result<Ticket, ErrorCode> {
    let shares = &call.shared.shares;
    let number = call.connection.number;
    match request.share_session_epoch {
        OPENS => {
            let acknowledges = |topic: &FetchTopic| {
                topic.partitions.iter().any(|part| !part.acknowledgement_batches.is_empty())
            };
            if request.topics.iter().any(acknowledges) {
                return Err(ErrorCode::INVALID_REQUEST);
            }
            let (ticket, given) = shares.inner.sessions.lock().open(key, number)?;
            shares.give_back(given);
            shares.follow(call);
            Ok(ticket)
        }
        CLOSES => shares.inner.sessions.lock().of(key),
        epoch => {
            let ticket = shares.inner.sessions.lock().go_on(key, epoch, number)?;
            shares.follow(call);
            Ok(ticket)
        }
    }
}

fn ask(request: &ShareFetchRequest) -> Ask {
    let size = |number: i32| usize::try_from(number).unwrap_or_default();
    let wait = u64::try_from(request.max_wait_ms).unwrap_or_default();
    let wait = Duration::from_millis(wait.min(RECEIVE_WAIT_MAX.as_millis()));
    Ask {
        max: size(request.max_records),
        bytes_max: size(request.max_bytes),
        bytes_min: size(request.min_bytes),
        until: Instant::now() + wait,
        turn: size(request.share_session_epoch),
    }
}

pub(super) fn partition(number: i32) -> Option<Partition> {
    Partition::new(u16::try_from(number).ok()?)
}

/// The partition that a request names, if there is one and the caller may consume it.
pub(super) fn part_of(
    call: &Call,
    group: &GroupName,
    (id, number): (&TopicUuid, i32),
) -> Result<Part, ErrorCode> {
    let topic = call.shared.cluster.topic(&**call.shared.broker.topics(), id);
    let topic = topic.filter(is_consumed).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
    may_consume(call, &topic.name, group)?;
    let partition =
        partition(number).filter(|partition| partition.get() < topic.settings.partitions);
    Ok((topic.id, partition.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?))
}

/// The groups of a member, one on each topic. One that cannot be opened at the moment gives nothing.
async fn groups(
    call: &Call,
    group: &GroupName,
    listed: &BTreeSet<Part>,
) -> Vec<(TopicId, Consumer)> {
    let topics: BTreeSet<TopicId> = listed.iter().map(|part| part.0).collect();
    let mut groups = Vec::with_capacity(topics.len());
    for id in topics {
        let Some(topic) = call.shared.broker.topics().by_id(id) else { continue };
        let opened = receiving::open(&call.shared.shared, topic.name.clone(), group.clone()).await;
        groups.extend(opened.ok().map(|consumer| (id, consumer)));
    }
    groups
}

/// Acquires records for a member, and puts them into the answer.
async fn acquire(
    call: &Call,
    ticket: &Ticket,
    (groups, listed): (&[(TopicId, Consumer)], &BTreeSet<Part>),
    mut ask: Ask,
    answers: &mut Answers,
) -> Result<(), Refusal> {
    ask.max = ask.max.min(call.shared.shares.inner.sessions.lock().room(ticket));
    if ask.max == 0 || ask.bytes_max == 0 {
        if answers.by_part.is_empty() {
            pause(ask.until).await;
        }
        return Ok(());
    }
    let gathered = gather(call, groups, &ask).await?;
    let picked = pick(call, ticket, groups, listed, &gathered);
    let work = move || {
        let written = picked.write(&gathered);
        (gathered, picked, written)
    };
    let (gathered, picked, written) = call.shared.tasks.blocking(work).await?;
    let written = written
        .map_err(|error| Refusal::new(ErrorCode::UNKNOWN_SERVER_ERROR, error.to_string()))?;
    if !call.shared.shares.inner.sessions.lock().hold(ticket, picked.held) {
        return Err(ErrorCode::SHARE_SESSION_NOT_FOUND.into());
    }
    gathered.taken.into_iter().for_each(|(_, taken)| taken.sent());
    for (topic, receipts) in picked.refused {
        call.shared.shares.release(&ticket.member.group, topic, &receipts);
    }
    let nothing = written.is_empty();
    for (part, Written { records, acquired }) in written {
        let entry = answers.entry(call, part);
        entry.records = Some(Records::Here(records));
        entry.acquired_records = acquired;
    }
    if nothing && answers.by_part.is_empty() {
        pause(ask.until).await;
    }
    Ok(())
}

/// What of the messages that were taken is sent.
#[derive(Debug, Default)]
struct Picked {
    /// Where each is among those taken, by partition and offset.
    places: BTreeMap<Place, (usize, usize)>,
    held: Vec<(Place, Receipt)>,
    /// Those that go back.
    refused: BTreeMap<TopicId, Vec<Receipt>>,
}

/// Picks the messages of partitions that the member fetches. One that it holds already, which has
/// come a second time to where it was, waits until that is settled.
fn pick(
    call: &Call,
    ticket: &Ticket,
    groups: &[(TopicId, Consumer)],
    listed: &BTreeSet<Part>,
    gathered: &Gathered,
) -> Picked {
    let mut picked = Picked::default();
    for (at, (topic, taken)) in gathered.taken.iter().enumerate() {
        let group = groups.iter().find(|(id, _)| id == topic).map(|(_, group)| group);
        for (index, leased) in taken.messages().iter().enumerate() {
            let place = Place { part: (*topic, leased.partition), offset: leased.offset };
            let before = call.shared.shares.inner.sessions.lock().receipt(ticket, place);
            let still_held = before.is_some_and(|receipt| {
                let mut receipts = vec![receipt];
                group.is_some_and(|group| {
                    group.held(&mut receipts);
                    !receipts.is_empty()
                })
            });
            let fetched = listed.contains(&place.part) && i64::try_from(place.offset).is_ok();
            if still_held || !fetched || picked.places.contains_key(&place) {
                picked.refused.entry(*topic).or_default().push(leased.receipt);
                continue;
            }
            picked.places.insert(place, (at, index));
            picked.held.push((place, leased.receipt));
        }
    }
    picked
}

impl Picked {
    fn write(
        &self,
        gathered: &Gathered,
    ) -> Result<BTreeMap<Part, Written>, punctual_kafka_wire::records::BatchError> {
        let mut by_part: BTreeMap<Part, Vec<_>> = BTreeMap::new();
        for (place, (at, index)) in &self.places {
            let taken = gathered.taken.get(*at).map(|(_, taken)| taken.messages());
            let leased = taken.and_then(|messages| messages.get(*index));
            by_part.entry(place.part).or_default().extend(leased);
        }
        by_part.into_iter().map(|(part, messages)| Ok((part, records::write(&messages)?))).collect()
    }
}

/// What is answered about partitions.
#[derive(Debug, Default)]
struct Answers {
    by_part: BTreeMap<(TopicUuid, i32), PartitionData>,
}

impl Answers {
    /// The partitions that a request names, and what it says about them; those that it may not name
    /// are answered at once.
    fn read(
        &mut self,
        call: &Call,
        group: &GroupName,
        topics: Vec<FetchTopic>,
    ) -> Vec<(Part, Option<Said>)> {
        let mut asked = Vec::new();
        for topic in topics {
            for named in topic.partitions {
                let place = (&topic.topic_id, named.partition_index);
                match part_of(call, group, place) {
                    Ok(part) => {
                        let stretches: Vec<_> =
                            named.acknowledgement_batches.into_iter().map(Into::into).collect();
                        let said = (!stretches.is_empty()).then_some(Said { part, stretches });
                        asked.push((part, said));
                    }
                    Err(code) => {
                        let refused = PartitionData {
                            partition_index: named.partition_index,
                            error_code: code.code(),
                            ..leading()
                        };
                        self.by_part.insert((topic.topic_id, named.partition_index), refused);
                    }
                }
            }
        }
        asked
    }

    fn entry(&mut self, call: &Call, (topic, partition): Part) -> &mut PartitionData {
        let partition_index = i32::from(partition.get());
        let key = (call.shared.cluster.uuid(topic), partition_index);
        self.by_part.entry(key).or_insert_with(|| PartitionData { partition_index, ..leading() })
    }

    fn into_topics(self) -> Vec<ShareFetchableTopicResponse> {
        let mut topics: Vec<ShareFetchableTopicResponse> = Vec::new();
        for ((topic_id, _), data) in self.by_part {
            match topics.last_mut() {
                Some(last) if last.topic_id == topic_id => last.partitions.push(data),
                _ => topics.push(ShareFetchableTopicResponse { topic_id, partitions: vec![data] }),
            }
        }
        topics
    }
}

/// An answer about a partition of which there is nothing to say yet.
fn leading() -> PartitionData {
    let current_leader = LeaderIdAndEpoch { leader_id: NODE_ID, leader_epoch: LEADER_EPOCH };
    PartitionData { current_leader, ..PartitionData::default() }
}
