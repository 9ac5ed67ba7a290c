//! Produce: batches of records for partitions.
//!
//! The batches of a request are checked and begun one after the other and stored together; the answer
//! comes once all of them are. Requests that follow each other are begun in their order, so a producer
//! that sends ahead has its batches stored in order and many of them with one flush. What was begun is
//! finished whether or not the client waits for it.

mod batch;
pub(in crate::kafka) mod headers;
mod producer_id;
mod refusal;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use punctual_broker::{Produce, Produced};
use punctual_kafka_wire::ErrorCode;
use punctual_kafka_wire::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse,
    TopicProduceData, TopicProduceResponse,
};
use punctual_kafka_wire::records::{NO_TIMESTAMP, UNPACKED_BYTES_MAX};
use punctual_model::limits::BATCH_BYTES_MAX;
use punctual_model::ports::Topic;
use punctual_model::topic::Stamps;
use punctual_model::{Partition, TopicKind, TopicName};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;
use tracing::debug;

use self::batch::{Opened, Sent, Split, Terms};
use self::refusal::Refusal;
use crate::access::{Charged, Cost, Permission};
use crate::kafka::call::Call;
use crate::kafka::reply::{Answering, Reply};
use crate::kafka::topic_id::NO_TOPIC;
use crate::timings::Via;

pub(crate) use self::producer_id::init_producer_id;

/// Longest pause that a client is asked for.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Batches that may be unpacked at one time, each within its budget.
const UNPACKING_MAX: usize = 4;
/// Memory for batches that are taken apart, until they are stored.
const APART_BYTES_MAX: usize = 128 << 20;

/// What bounds the memory of batches on their way, of all connections together.
#[derive(Debug)]
pub(crate) struct Rooms {
    unpacking: Arc<Semaphore>,
    apart: Arc<Semaphore>,
}

impl Default for Rooms {
    fn default() -> Self {
        Self {
            unpacking: Arc::new(Semaphore::new(UNPACKING_MAX)),
            apart: Arc::new(Semaphore::new(APART_BYTES_MAX)),
        }
    }
}

impl Rooms {
    /// A turn at unpacking.
    async fn unpacking(&self) -> OwnedSemaphorePermit {
        let turn = Arc::clone(&self.unpacking).acquire_owned();
        turn.await.expect("it is never closed")
    }

    /// Room to take apart a batch of that weight.
    async fn apart(&self, weight: usize) -> OwnedSemaphorePermit {
        let weight = u32::try_from(weight.min(APART_BYTES_MAX)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.apart).acquire_many_owned(weight);
        room.await.expect("it is never closed")
    }
}

/// `Produce`
pub(crate) async fn produce(
    call: &Call,
    request: ProduceRequest,
    answering: Answering<ProduceRequest>,
) -> Reply {
    let begun_at = Instant::now();
    let acks = request.acks;
    let refused = match acks {
        -1..=1 if request.transactional_id.is_none() => None,
        -1..=1 => Some(no_transactions()),
        _ => Some(Refusal::new(ErrorCode::INVALID_REQUIRED_ACKS, "acks is 0, 1 or -1")),
    };
    let mut begun = Vec::with_capacity(request.topic_data.len());
    let mut pause = Duration::ZERO;
    for data in request.topic_data {
        let (name, topic_id) = (data.name.clone(), data.topic_id);
        let partitions = match &refused {
            Some(refusal) => refuse_all(data.partition_data, refusal),
            None => begin_topic(call, data, &mut pause).await,
        };
        begun.push(BegunTopic { name, topic_id, partitions });
    }
    let (connection, shared) = (Arc::clone(&call.connection), Arc::clone(&call.shared));
    let from = call.from;
    Reply::Later(Box::pin(async move {
        let mut response = ProduceResponse::default();
        for topic in begun {
            response.responses.push(topic.finish().await);
        }
        let pause = pause.min(PAUSE_MAX);
        connection.mute(pause);
        if first_error(&response).is_none() {
            shared.shared.timings.schedule.note(Via::Kafka, begun_at);
        }
        if acks != 0 {
            response.throttle_time_ms = i32::try_from(pause.as_millis()).unwrap_or(i32::MAX);
            return answering.reply(&response);
        }
        match first_error(&response) {
            None => Reply::Nothing,
            // The only way to tell a client that does not wait for answers.
            Some(error) => {
                debug!(%from, ?error, "a batch without acknowledgement was refused");
                Reply::Close
            }
        }
    }))
}

fn no_transactions() -> Refusal {
    let message = "there are no transactions here";
    Refusal::new(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message)
}

fn first_error(response: &ProduceResponse) -> Option<&PartitionProduceResponse> {
    let mut partitions = response.responses.iter().flat_map(|topic| &topic.partition_responses);
    partitions.find(|partition| partition.error_code != ErrorCode::NONE.code())
}

/// The batches of a topic, begun.
struct BegunTopic {
    name: String,
    topic_id: [u8; 16],
    partitions: Vec<BegunPartition>,
}

impl BegunTopic {
    async fn finish(self) -> TopicProduceResponse {
        let mut partition_responses = Vec::with_capacity(self.partitions.len());
        for partition in self.partitions {
            partition_responses.push(partition.finish().await);
        }
        TopicProduceResponse { name: self.name, topic_id: self.topic_id, partition_responses }
    }
}

/// A batch that was begun, or refused.
struct BegunPartition {
    index: i32,
    outcome: Result<oneshot::Receiver<Outcome>, Refusal>,
}

type Outcome = Result<Done, Refusal>;

/// A batch that was stored, and the time of the append where that counts.
struct Done {
    produced: Produced,
    stamped: Option<i64>,
}

impl BegunPartition {
    async fn finish(self) -> PartitionProduceResponse {
        let outcome = match self.outcome {
            Ok(receiver) => receiver.await.unwrap_or_else(|_broken_off| {
                let message = "the work was broken off";
                Err(Refusal::new(ErrorCode::UNKNOWN_SERVER_ERROR, message))
            }),
            Err(refusal) => Err(refusal),
        };
        match outcome {
            Ok(Done { produced, stamped }) => PartitionProduceResponse {
                index: self.index,
                log_append_time_ms: stamped.filter(|_| !produced.duplicate).unwrap_or(NO_TIMESTAMP),
                base_offset: i64::try_from(produced.base_offset).unwrap_or(i64::MAX),
                log_start_offset: i64::try_from(produced.start).unwrap_or(i64::MAX),
                ..PartitionProduceResponse::default()
            },
            Err(refusal) => refusal.answer(self.index),
        }
    }
}

fn refuse_all(data: Vec<PartitionProduceData>, refusal: &Refusal) -> Vec<BegunPartition> {
    let refuse = |data: PartitionProduceData| BegunPartition {
        index: data.index,
        outcome: Err(refusal.clone()),
    };
    data.into_iter().map(refuse).collect()
}

/// Begins the batches of a topic.
async fn begin_topic(
    call: &Call,
    data: TopicProduceData,
    pause: &mut Duration,
) -> Vec<BegunPartition> {
    let topic = match topic_of(call, &data).await {
        Ok(topic) => topic,
        Err(refusal) => return refuse_all(data.partition_data, &refusal),
    };
    let mut begun = Vec::with_capacity(data.partition_data.len());
    for PartitionProduceData { index, records } in data.partition_data {
        let outcome = begin(call, &topic, (index, records), pause).await;
        begun.push(BegunPartition { index, outcome });
    }
    begun
}

/// The topic that is meant; one that is named comes into being at its first use.
async fn topic_of(call: &Call, data: &TopicProduceData) -> Result<Arc<Topic>, Refusal> {
    let kafka = &call.shared;
    let by_id = data.topic_id != NO_TOPIC;
    let known = by_id.then(|| {
        let topic = kafka.cluster.topic(&**kafka.broker.topics(), &data.topic_id);
        topic.ok_or_else(|| Refusal::new(ErrorCode::UNKNOWN_TOPIC_ID, "no topic has this id"))
    });
    let known = known.transpose()?;
    let name = match &known {
        Some(topic) => topic.name.clone(),
        None => TopicName::new(&data.name)
            .map_err(|error| Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, error.to_string()))?,
    };
    if !call.may_topic(Permission::Send, &name) {
        let message = "the app may not send to this topic";
        return Err(Refusal::new(ErrorCode::TOPIC_AUTHORIZATION_FAILED, message));
    }
    let topic = match known {
        Some(topic) => topic,
        None => kafka
            .broker
            .topic_for_use(&name)
            .await
            .map_err(|error| Refusal::from(punctual_broker::ProduceError::from(error)))?,
    };
    if topic.kind == TopicKind::Plain {
        Ok(topic)
    } else {
        Err(punctual_broker::ProduceError::Reserved.into())
    }
}

/// Checks a batch and begins to store it. What became of it is told later.
async fn begin(
    call: &Call,
    topic: &Arc<Topic>,
    (index, records): (i32, Option<Bytes>),
    pause: &mut Duration,
) -> Result<oneshot::Receiver<Outcome>, Refusal> {
    let partition = u16::try_from(index)
        .ok()
        .filter(|index| *index < topic.settings.partitions)
        .and_then(Partition::new)
        .ok_or(punctual_broker::ProduceError::NotFound)?;
    let terms = terms(call, topic);
    let sent = Sent::check(records, terms)?;
    let header = *sent.header();
    let (mut split, room) = split(call, sent).await?;
    if !split.cancels.is_empty() && !call.may_topic(Permission::Cancel, &topic.name) {
        let message = "the app may not cancel messages of this topic";
        return Err(Refusal::new(ErrorCode::TOPIC_AUTHORIZATION_FAILED, message));
    }
    let cost = Cost { messages: header.count.into(), bytes: header.bytes as u64 };
    let charged = charge(call, cost, split.taken.len() as u64, pause)?;
    let stamped = terms.restamps.then_some(terms.now);
    stamped.into_iter().for_each(|millis| split.restamp(millis));
    let Split { batch, stays, mut taken, cancels } = split;
    call.caller.sign(taken.iter_mut().map(|(_, request)| request));
    let topic = Arc::clone(topic);
    let stored = Cost { messages: stays + taken.len() as u64, ..cost };
    let produce = Produce { topic, partition, batch, stays, taken, cancels };
    let producing = call.shared.broker.produce(produce).await?;
    let (tell, outcome) = oneshot::channel();
    // In a task of its own: whoever waits for messages hears of these, whether or not the client
    // still does.
    call.shared.tasks.spawn(async move {
        let outcome = producing.finish().await.map(|produced| Done { produced, stamped });
        if outcome.as_ref().is_ok_and(|done| !done.produced.duplicate) {
            charged.stored_part(stored);
        }
        drop((room, charged));
        // Receiver gone: the client is.
        drop(tell.send(outcome.map_err(Refusal::from)));
    });
    Ok(outcome)
}

fn terms(call: &Call, topic: &Topic) -> Terms {
    let own = topic.settings.batch_bytes_max.and_then(|bytes| usize::try_from(bytes).ok());
    Terms {
        batch_bytes_max: own.map_or(BATCH_BYTES_MAX, |own| own.min(BATCH_BYTES_MAX)),
        restamps: topic.settings.stamps == Stamps::Log,
        now: i64::try_from(call.shared.broker.now().as_millis()).unwrap_or(i64::MAX),
        body_bytes_max: call.shared.shared.body_bytes_max(),
        version: call.version,
    }
}

/// Opens a batch and takes out of it what asks for something, within the memory that there is for
/// that.
async fn split(call: &Call, sent: Sent) -> Result<(Split, Option<OwnedSemaphorePermit>), Refusal> {
    let (rooms, tasks) = (&call.shared.rooms, &call.shared.tasks);
    let broken_off = |_| Refusal::new(ErrorCode::UNKNOWN_SERVER_ERROR, "the work was broken off");
    let count = sent.header().count;
    // A turn is held until what was unpacked is gone again.
    let turn = if sent.is_packed() { Some(rooms.unpacking().await) } else { None };
    let opened = if sent.is_heavy() {
        tasks.blocking(move || sent.open()).await.map_err(broken_off)?
    } else {
        sent.open()
    };
    let (split, room) = match opened? {
        Opened::Plain(batch) => (Split::whole(batch, count), None),
        Opened::Mixed(mixed) => {
            let room = rooms.apart(mixed.weight()).await;
            (mixed.split()?, Some(room))
        }
    };
    drop(turn);
    Ok((split, room))
}

const _: () = assert!(
    UNPACKED_BYTES_MAX < APART_BYTES_MAX,
    "the largest batch fits beside others, so none of them waits for ever"
);

/// Takes what is sent off the caller's quotas. Who is beyond them pauses afterwards.
fn charge(call: &Call, cost: Cost, pending: u64, pause: &mut Duration) -> Result<Charged, Refusal> {
    let charged = call.caller.charge_on_credit(cost, pending);
    let (charged, owed) = charged.map_err(|problem| {
        let code = match problem.code {
            punctual_api::Code::QuotaExceeded => ErrorCode::NOT_ENOUGH_REPLICAS,
            _ => ErrorCode::TOPIC_AUTHORIZATION_FAILED,
        };
        Refusal::new(code, problem.detail)
    })?;
    *pause = owed.max(*pause);
    Ok(charged)
}
