//! Fetch: batches of records, as they lie in the logs.
//!
//! What is asked for is looked at once, and if there is not enough of it, again whenever one of its
//! topics has grown, until the time is up. Nobody polls: a fetch joins those who wait for its topics
//! before it looks, so that nothing which arrives in between is missed. Records are not read: the
//! answer names stretches of files, which go out as they are.
//!
//! There is one broker and one leader epoch, so that epochs of a request are not held against it;
//! there are no transactions, so that what is stable ends where the log ends.

mod budget;
mod list_offsets;
mod part;
mod place;
mod read;
mod session;

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use punctual_kafka_wire::ErrorCode;
use punctual_kafka_wire::codec::Piece;
use punctual_kafka_wire::message::Records;
use punctual_kafka_wire::messages::fetch::{
    FetchRequest, FetchResponse, FetchTopic, FetchableTopicResponse, ForgottenTopic, PartitionData,
};
use tokio::time::{Instant, timeout_at};

use crate::kafka::call::Call;
use crate::kafka::fetch::budget::enough;
use crate::kafka::fetch::read::{Found, Look};
use crate::kafka::fetch::session::{Asked, Opening, Refusal, Seen, Shown, TopicKey};
use crate::kafka::reply::{Answering, Part, Reply};

pub(crate) use self::list_offsets::{list_offsets, offset_for_leader_epoch};
pub(crate) use self::part::FilePart;
pub(crate) use self::session::Sessions;

/// The first version that names topics by id.
const BY_ID: i16 = 13;

/// Answers with records, or waits for some.
pub(crate) async fn fetch(
    call: &Call,
    request: FetchRequest,
    answering: Answering<FetchRequest>,
) -> Reply {
    let deadline = Instant::now() + Duration::from_millis(wait_ms(request.max_wait_ms));
    let least = enough(request.min_bytes, request.max_bytes);
    let limits = Limits { least, most: request.max_bytes };
    let opening = opening(call.version, request);
    let turn = call.shared.fetch_sessions.begin(&call.caller.name(), opening, Instant::now());
    let turn = match turn {
        Ok(turn) => turn,
        Err(refusal) => return answering.reply(&refused(refusal)),
    };
    let Some(found) = until_enough(call, &turn.asked, limits, deadline).await else {
        return Reply::Close;
    };
    let seen: Vec<Seen> = found.iter().map(Found::seen).collect();
    let random = || getrandom::u32().ok().map(|number| (number >> 1).cast_signed());
    let asked = turn.asked.clone();
    let shown = call.shared.fetch_sessions.finish(turn, &seen, Instant::now(), random);
    reply(&asked, found, &shown, answering)
}

/// How much is to be sent.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// What is worth an answer before the time is up.
    least: u64,
    /// What the request takes at most.
    most: i32,
}

/// Looks until there is enough, or something to say at once, or the time is up. None when the work
/// was broken off.
async fn until_enough(
    call: &Call,
    asked: &[Asked],
    limits: Limits,
    deadline: Instant,
) -> Option<Vec<Found>> {
    loop {
        // Topics and rights may have changed since the last look.
        let look = Look::at(call, asked);
        let arrivals = call.shared.broker.consumers().arrivals();
        let mut grown: FuturesUnordered<_> =
            look.topics().into_iter().map(|topic| arrivals.join(topic)).collect();
        let late = Instant::now() >= deadline || grown.is_empty();
        if late || limits.least == 0 || look.finds_anything(call) {
            let caller = call.clone();
            let read = move || look.read(&caller, limits.most);
            let found = call.shared.tasks.blocking(read).await.ok()?;
            let bytes: u64 = found.iter().map(Found::bytes).sum();
            if late || bytes >= limits.least || found.iter().any(Found::is_error) {
                return Some(found);
            }
        }
        // Whether something came or the time is up shows at the next look.
        let _late = timeout_at(deadline, grown.next()).await;
    }
}

fn wait_ms(asked: i32) -> u64 {
    u64::try_from(asked).unwrap_or(0)
}

fn opening(version: i16, request: FetchRequest) -> Opening {
    let by_id = version >= BY_ID;
    let key = |name: String, id: [u8; 16]| match by_id {
        true => TopicKey::Id(id),
        false => TopicKey::Name(name.into()),
    };
    let asked = request.topics.into_iter().flat_map(|topic| {
        let FetchTopic { topic, topic_id, partitions } = topic;
        let topic = key(topic, topic_id);
        partitions.into_iter().map(move |one| Asked {
            topic: topic.clone(),
            partition: one.partition,
            offset: one.fetch_offset,
            bytes_max: one.partition_max_bytes,
        })
    });
    let forgotten = request.forgotten_topics_data.into_iter().flat_map(|topic| {
        let ForgottenTopic { topic, topic_id, partitions } = topic;
        let topic = key(topic, topic_id);
        partitions.into_iter().map(move |partition| (topic.clone(), partition))
    });
    Opening {
        id: request.session_id,
        epoch: request.session_epoch,
        by_id,
        asked: asked.collect(),
        forgotten: forgotten.collect(),
    }
}

fn refused(refusal: Refusal) -> FetchResponse {
    let code = match refusal {
        Refusal::NotFound => ErrorCode::FETCH_SESSION_ID_NOT_FOUND,
        Refusal::WrongEpoch => ErrorCode::INVALID_FETCH_SESSION_EPOCH,
        Refusal::OtherNames => ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR,
    };
    FetchResponse { error_code: code.code(), ..FetchResponse::default() }
}

/// The answer: what is told, with gaps where the records go, and the stretches that fill them.
fn reply(
    asked: &[Asked],
    found: Vec<Found>,
    shown: &Shown,
    answering: Answering<FetchRequest>,
) -> Reply {
    let mut response = FetchResponse { session_id: shown.session, ..FetchResponse::default() };
    let mut stretches = Vec::new();
    let mut last: Option<&TopicKey> = None;
    for ((asked, found), told) in asked.iter().zip(found).zip(&shown.told) {
        if !told {
            continue;
        }
        if last != Some(&asked.topic) {
            response.responses.push(topic_entry(&asked.topic));
            last = Some(&asked.topic);
        }
        let entry = partition_entry(asked.partition, &found);
        if let Some(topic) = response.responses.last_mut() {
            topic.partitions.push(entry);
        }
        stretches.extend(found.stretch);
    }
    let Some(pieces) = answering.pieces(&response) else { return Reply::Close };
    filled(pieces, stretches).map_or(Reply::Close, Reply::Parts)
}

fn topic_entry(key: &TopicKey) -> FetchableTopicResponse {
    let mut topic = FetchableTopicResponse::default();
    match key {
        TopicKey::Name(name) => name.as_ref().clone_into(&mut topic.topic),
        TopicKey::Id(id) => topic.topic_id = *id,
    }
    topic
}

fn partition_entry(partition: i32, found: &Found) -> PartitionData {
    let seen = found.seen();
    let records = match found.bytes() {
        0 => Records::Here(bytes::Bytes::new()),
        bytes => Records::Elsewhere(usize::try_from(bytes).unwrap_or(usize::MAX)),
    };
    PartitionData {
        partition_index: partition,
        error_code: found.code.code(),
        high_watermark: seen.end,
        last_stable_offset: seen.end,
        log_start_offset: seen.start,
        records: Some(records),
        ..PartitionData::default()
    }
}

/// Puts the stretches into the gaps. None if they do not fit, which never is.
fn filled(pieces: Vec<Piece>, stretches: Vec<Part>) -> Option<Vec<Part>> {
    let mut stretches = stretches.into_iter();
    let mut part = |piece: Piece| match piece {
        Piece::Bytes(bytes) => Some(Part::Bytes(bytes)),
        Piece::Gap(gap) => stretches.next().filter(|stretch| match stretch {
            Part::File { length, .. } => *length == gap as u64,
            Part::Bytes(bytes) => bytes.len() == gap,
        }),
    };
    pieces.into_iter().map(&mut part).collect()
}
