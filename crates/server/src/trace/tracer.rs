//! What is told of single messages becomes spans: schedule, fire, deliver, ack.
//!
//! A trace that somebody else began is recorded if they record it; of those begun here only a share
//! is. The place of a message in its trace is a header of the message: first that of its schedule
//! span, and in the hands of a consumer that of its deliver span.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use parking_lot::Mutex;
use punctual_broker::group::{Leased, Receipt};
use punctual_broker::watch::{Accepted, Accepting, Fired, Leasing, Outcome, Settled, Watch};
use punctual_model::message::Header;
use punctual_model::{Lane, Message, TopicName};

use crate::trace::CALLER;
use crate::trace::context::{Caller, Context, TRACEPARENT, TRACESTATE};
use crate::trace::export::Queue;
use crate::trace::open::{Open, OpenSpans};
use crate::trace::span::{Draft, Ids, firing};

/// Follows messages.
#[derive(Debug)]
pub(super) struct Tracer {
    queue: Queue,
    ids: Ids,
    /// The share of traces begun here that is recorded; bits of a number from 0 to 1.
    sample: AtomicU64,
    open: Mutex<OpenSpans>,
}

impl Tracer {
    pub(super) fn new(queue: Queue, sample: f64) -> Self {
        let sample = AtomicU64::new(sample.to_bits());
        Self { queue, ids: Ids::new(), sample, open: Mutex::default() }
    }

    /// From now on this share of the traces begun here is recorded.
    pub(super) fn set_sample(&self, sample: f64) {
        self.sample.store(sample.to_bits(), Ordering::Relaxed);
    }

    /// Ends the spans of messages whose leases have run out.
    pub(super) fn sweep(&self, now: Duration) {
        loop {
            // Not held while anything is sent.
            let Some(open) = self.open.lock().ended(now) else { return };
            let (since, until) = (open.since, open.until);
            let draft = open.draft.with("punctual.outcome", "lease_ran_out");
            self.queue.put(draft.failed("the lease ran out").between(since, until));
        }
    }

    /// Whether a trace that begins here is recorded.
    fn begins(&self) -> bool {
        let share = f64::from_bits(self.sample.load(Ordering::Relaxed));
        // 32 bits of chance are as fine as anybody could wish.
        let chance = u32::try_from(self.ids.span() >> 32).unwrap_or(u32::MAX);
        f64::from(chance) < share * (f64::from(u32::MAX) + 1.0)
    }

    /// The place of a message that is about to be stored, and its parent.
    fn place(&self, message: &Message, caller: Option<&Caller>) -> Option<(Context, Option<u64>)> {
        let parent = place_of(message).or(caller.map(|caller| caller.context));
        match parent {
            Some(parent) if !parent.sampled => None,
            Some(parent) => Some((Context { span: self.ids.span(), ..parent }, Some(parent.span))),
            None if self.begins() => {
                let (trace, span) = (self.ids.trace(), self.ids.span());
                Some((Context { trace, span, sampled: true }, None))
            }
            None => None,
        }
    }
}

impl Watch for Tracer {
    fn accepting(
        &self,
        topic: &TopicName,
        message: &mut Message,
        at: Duration,
    ) -> Option<Accepting> {
        let caller = CALLER.try_with(Clone::clone).ok().flatten();
        let (context, parent) = self.place(message, caller.as_ref())?;
        let state = caller.and_then(|caller| caller.state);
        mark(message, context, state);
        let draft = Draft::new(("schedule", topic.as_str()), SpanKind::Producer, context, parent)
            .with_number("messaging.message.body.size", message.body.len() as u64);
        let queue = self.queue.clone();
        Some(Box::new(move |accepted: Accepted| {
            let scheduled = accepted.scheduled;
            let draft = draft
                .with("messaging.message.id", scheduled.id.to_string())
                .with("punctual.due", scheduled.due.to_string());
            let draft =
                if scheduled.duplicate { draft.with("punctual.duplicate", "true") } else { draft };
            queue.put(draft.between(at, accepted.at));
        }))
    }

    fn fired(&self, fired: &Fired<'_>) {
        let Some(scheduled) = place_of(fired.message).filter(|context| context.sampled) else {
            return;
        };
        let span = match fired.id.key.sequence.lane() {
            Lane::Message => firing(scheduled.span, fired.id),
            // A message that comes again has an id of its own that nobody learns.
            Lane::Retry => self.ids.span(),
        };
        let topic = fired.topic.map_or("", TopicName::as_str);
        let context = Context { span, ..scheduled };
        let parent = Some(scheduled.span);
        let draft = Draft::new(("fire", topic), SpanKind::Internal, context, parent)
            .with("messaging.message.id", fired.id.to_string())
            .with("punctual.due", fired.due.to_string())
            .with_fraction("punctual.lateness_ms", fired.lateness.as_secs_f64() * 1000.0);
        self.queue.put(draft.between(fired.began, fired.ended));
    }

    fn leased(&self, leased: &mut Leased, leasing: &Leasing<'_>) {
        let Some(scheduled) = place_of(&leased.message).filter(|context| context.sampled) else {
            return;
        };
        let parent = match leased.id.key.sequence.lane() {
            Lane::Message => firing(scheduled.span, leased.id),
            Lane::Retry => scheduled.span,
        };
        let context = Context { span: self.ids.span(), ..scheduled };
        mark(&mut leased.message, context, None);
        let topic = leasing.topic.as_str();
        let draft = Draft::new(("deliver", topic), SpanKind::Consumer, context, Some(parent))
            .with("messaging.message.id", leased.id.to_string())
            .with("messaging.consumer.group.name", leasing.group.as_str())
            .with_number("punctual.attempt", leased.attempt.into())
            .with("punctual.due", leased.due.to_string());
        let topic = topic.to_owned();
        let (since, until) = (leasing.at, leasing.until);
        let open = Open { draft, context, topic, since, until };
        if self.open.lock().insert(leased.receipt, open).is_some() {
            self.queue.lose(1);
        }
    }

    fn extended(&self, receipts: &[Receipt], until: Duration) {
        let mut open = self.open.lock();
        receipts.iter().for_each(|receipt| open.extend(receipt, until));
    }

    fn settled(&self, receipt: Receipt, settled: Settled) {
        let Some(open) = self.open.lock().remove(&receipt) else { return };
        let (verb, outcome) = match settled.outcome {
            Outcome::Acked => ("ack", "acked"),
            Outcome::Requeued => ("nack", "requeued"),
            Outcome::Dead => ("nack", "dead"),
            Outcome::Released => ("release", "released"),
        };
        let delivered = open.draft.with("punctual.outcome", outcome);
        let delivered = match settled.outcome {
            Outcome::Requeued | Outcome::Dead => delivered.failed("the consumer failed"),
            Outcome::Acked | Outcome::Released => delivered,
        };
        let context = Context { span: self.ids.span(), ..open.context };
        let parent = Some(open.context.span);
        let done = Draft::new((verb, &open.topic), SpanKind::Internal, context, parent)
            .with("punctual.outcome", outcome);
        self.queue.put(done.between(settled.began, settled.ended));
        self.queue.put(delivered.between(open.since, settled.ended));
    }
}

/// The place in a trace that a message names.
fn place_of(message: &Message) -> Option<Context> {
    let named = |header: &&Header| header.name.eq_ignore_ascii_case(TRACEPARENT);
    Context::read(&message.headers.iter().find(named)?.value)
}

/// Makes a message name this place and no other.
fn mark(message: &mut Message, context: Context, state: Option<Bytes>) {
    message.headers.retain(|header| !header.name.eq_ignore_ascii_case(TRACEPARENT));
    let stated = |header: &Header| header.name.eq_ignore_ascii_case(TRACESTATE);
    if let Some(value) = state.filter(|_| !message.headers.iter().any(stated)) {
        message.headers.push(Header { name: TRACESTATE.to_owned(), value });
    }
    message.headers.push(Header { name: TRACEPARENT.to_owned(), value: context.write() });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use opentelemetry_proto::tonic::trace::v1::Span;
    use punctual_broker::Scheduled;
    use punctual_model::{Key, MessageId, Partition, Sequence, State, Timestamp, TopicId};
    use tokio::sync::mpsc;

    use super::*;
    use crate::trace::Counts;
    use crate::trace::export::queue;

    const OWN: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn tracer(sample: f64) -> (Tracer, mpsc::Receiver<Span>) {
        let (queue, spans) = queue(Arc::new(Counts::default()));
        (Tracer::new(queue, sample), spans)
    }

    fn carrying(value: &'static [u8]) -> Message {
        let header = Header { name: "TraceParent".to_owned(), value: Bytes::from_static(value) };
        Message { headers: vec![header], ..Message::default() }
    }

    fn accept(tracer: &Tracer, message: &mut Message) -> Option<Accepting> {
        let topic = TopicName::new("orders").unwrap();
        tracer.accepting(&topic, message, Duration::from_secs(1))
    }

    fn id() -> MessageId {
        let due = Timestamp::from_millis(5).unwrap();
        let key = Key { due, sequence: Sequence::new(7).unwrap() };
        MessageId { key, topic: TopicId::new(1).unwrap(), partition: Partition::new(0).unwrap() }
    }

    #[test]
    fn a_share_of_the_traces_begins_here() {
        for (sample, least, most) in [(0.0, 0, 0), (0.5, 4000, 6000), (1.0, 10_000, 10_000)] {
            let (tracer, _spans) = tracer(sample);
            let begun = (0..10_000).filter(|_| tracer.begins()).count();
            assert!((least..=most).contains(&begun), "{sample}: {begun}");
            tracer.set_sample(1.0);
            assert!(tracer.begins());
        }
    }

    #[test]
    fn what_others_decided_is_kept() {
        let (tracer, mut spans) = tracer(0.0);
        let mut plain = Message::default();
        assert!(accept(&tracer, &mut plain).is_none() && plain.headers.is_empty());
        let unrecorded = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        let mut message = carrying(unrecorded);
        assert!(accept(&tracer, &mut message).is_none());
        assert_eq!(message, carrying(unrecorded), "it is handed on as it was");
        let mut message = carrying(OWN);
        let accepting = accept(&tracer, &mut message).unwrap();
        let scheduled =
            Scheduled { id: id(), due: id().key.due, duplicate: false, state: State::Scheduled };
        accepting(Accepted { scheduled, at: Duration::from_secs(2) });
        let span = spans.try_recv().unwrap();
        let context = place_of(&message).unwrap();
        assert_eq!(message.headers.len(), 1, "and names one place only");
        assert_eq!(span.span_id, context.span.to_be_bytes());
        assert_eq!(span.parent_span_id, 0xb7ad_6b71_6920_3331_u64.to_be_bytes());
        assert_eq!(
            (span.start_time_unix_nano, span.end_time_unix_nano),
            (1_000_000_000, 2_000_000_000)
        );
    }

    #[test]
    fn the_span_of_a_firing_is_known_without_being_told() {
        let (tracer, mut spans) = tracer(1.0);
        let message = carrying(OWN);
        let began = Duration::from_secs(1);
        tracer.fired(&Fired {
            id: id(),
            topic: None,
            message: &message,
            due: id().key.due,
            began,
            ended: began,
            lateness: Duration::from_millis(3),
        });
        let span = spans.try_recv().unwrap();
        assert_eq!(span.span_id, firing(0xb7ad_6b71_6920_3331, id()).to_be_bytes());
        let later =
            MessageId { key: Key { sequence: Sequence::new(8).unwrap(), ..id().key }, ..id() };
        assert_ne!(firing(1, id()), firing(1, later), "occurrences of a series differ");
        assert_ne!(firing(1, id()), firing(2, id()));
        // Whatever else stands there is nobody's place.
        for header in [&b""[..], b"x", &OWN[1..]] {
            let message = Message {
                headers: vec![Header {
                    name: TRACEPARENT.into(),
                    value: Bytes::copy_from_slice(header),
                }],
                ..Message::default()
            };
            assert!(place_of(&message).is_none());
        }
    }
}
