//! Records that come in from another Kafka: each asks for what its headers say, as with the listener,
//! and goes to the topic that it names, or to the one that is set.
//!
//! A delay counts from the time of the record in Kafka, so that it does not grow while nobody reads.
//! Each record is called after the place where it stands unless it has an id of its own, so that it is
//! accepted once however often it is read. A record that asks for something impossible is bad by
//! itself; the others of its batch are accepted.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_broker::{Broker, Cancel, Request, ScheduleError, When};
use punctual_cluster::kafka::{Accept, Accepted, Incoming};
use punctual_model::ports::{StoreError, Timeline};
use punctual_model::{Timestamp, TopicName};

use crate::kafka::produce::headers::{Asked, asked_by};

/// The header that names the topic to which a record goes.
const TOPIC_HEADER: &str = "punctual-topic";

/// Schedules records with `broker`; those that name no topic go to `default_topic`, or where there is
/// none to the topic that has the name of the one they come from.
pub(crate) fn accept<T: Timeline>(broker: Broker<T>, default_topic: Option<TopicName>) -> Accept {
    Arc::new(move |batch: Arc<Vec<Incoming>>| {
        let (broker, default_topic) = (broker.clone(), default_topic.clone());
        Box::pin(async move { take(&broker, &batch, default_topic.as_ref()).await })
    })
}

/// Requests of one topic, with the places of their records.
#[derive(Default)]
struct Requests {
    places: Vec<usize>,
    requests: Vec<Request>,
}

async fn take<T: Timeline>(
    broker: &Broker<T>,
    batch: &[Incoming],
    default_topic: Option<&TopicName>,
) -> Result<Vec<Accepted>, StoreError> {
    let mut answers = vec![Accepted::Taken; batch.len()];
    let mut by_topic: BTreeMap<TopicName, Requests> = BTreeMap::new();
    for (place, record) in batch.iter().enumerate() {
        match ask(record, default_topic) {
            Err(why) => answers[place] = Accepted::Bad(why),
            Ok((topic, Asked::Schedule(request))) => {
                let of_topic = by_topic.entry(topic).or_default();
                of_topic.places.push(place);
                of_topic.requests.push(request);
            }
            Ok((topic, Asked::Cancel(cancel))) => {
                // What was to be scheduled before it comes first.
                let before = std::mem::take(&mut by_topic);
                schedule_all(broker, before, &mut answers).await?;
                if let Err(why) = withdraw(broker, &topic, cancel).await? {
                    answers[place] = Accepted::Bad(why);
                }
            }
        }
    }
    schedule_all(broker, by_topic, &mut answers).await?;
    Ok(answers)
}

async fn schedule_all<T: Timeline>(
    broker: &Broker<T>,
    by_topic: BTreeMap<TopicName, Requests>,
    answers: &mut [Accepted],
) -> Result<(), StoreError> {
    for (topic, Requests { mut places, mut requests }) in by_topic {
        while !requests.is_empty() {
            match broker.schedule(&topic, requests.clone()).await {
                Ok(_) => break,
                Err(ScheduleError::Store(error)) => return Err(error),
                Err(ScheduleError::BacklogFull) => return Err(StoreError::Busy),
                Err(
                    error @ (ScheduleError::Invalid { index, .. }
                    | ScheduleError::OwnIdTaken { index, .. }),
                ) => {
                    // One is out; what is left of the batch is tried again.
                    requests.remove(index);
                    answers[places.remove(index)] = Accepted::Bad(reason(&error));
                }
                Err(
                    error @ (ScheduleError::TopicNotFound
                    | ScheduleError::Reserved
                    | ScheduleError::TooManyTopics),
                ) => {
                    for place in places.drain(..) {
                        answers[place] = Accepted::Bad(format!("{topic}: {error}"));
                    }
                    break;
                }
            }
        }
    }
    Ok(())
}

/// What is wrong, without the place in a batch that nobody knows.
fn reason(error: &ScheduleError) -> String {
    match error {
        ScheduleError::Invalid { reason, .. } => reason.to_string(),
        ScheduleError::OwnIdTaken { .. } => "another message has this id".to_owned(),
        error => error.to_string(),
    }
}

/// Withdraws a message; one that is not there, or was delivered, is left alone.
async fn withdraw<T: Timeline>(
    broker: &Broker<T>,
    topic: &TopicName,
    cancel: Cancel,
) -> Result<Result<(), String>, StoreError> {
    let id = match cancel {
        Cancel::Id(id) => broker.resolve(topic, &id.to_string()).await?,
        Cancel::Own(text) => broker.resolve(topic, &text).await?,
        Cancel::Reserved { .. } => {
            let why = "punctual-cancel is an id here: partition:offset is a place of the listener";
            return Ok(Err(why.to_owned()));
        }
    };
    if let Some(id) = id {
        broker.cancel(vec![id]).await?;
    }
    Ok(Ok(()))
}

/// What a record asks for, and of which topic.
fn ask(record: &Incoming, default_topic: Option<&TopicName>) -> Result<(TopicName, Asked), String> {
    let named = record.headers.iter().rev().find(|(name, _)| name == TOPIC_HEADER);
    let topic = match (named, default_topic) {
        (Some((_, value)), _) => {
            let text = std::str::from_utf8(value.as_deref().unwrap_or_default());
            let name = text.ok().and_then(|text| TopicName::new(text).ok());
            name.ok_or_else(|| format!("{TOPIC_HEADER} is no name of a topic"))?
        }
        (None, Some(topic)) => topic.clone(),
        (None, None) => TopicName::new(&record.topic)
            .map_err(|_illegal| format!("{TOPIC_HEADER} is missing, and no topic is set"))?,
    };
    if topic.as_str() == &*record.topic {
        return Err(format!(
            "it would come back to {topic}, from which it was read: name another with {TOPIC_HEADER}"
        ));
    }
    let headers = record.headers.iter().filter(|(name, _)| name != TOPIC_HEADER);
    let headers = headers.map(|(name, value)| (name.as_bytes(), value.as_deref()));
    let asked = asked_by(headers, record.key.as_deref(), record.body.as_deref())?;
    Ok((topic, named_and_dated(asked, record)))
}

/// The same with a name, and with a date where a delay counts from the record's time.
fn named_and_dated(asked: Asked, record: &Incoming) -> Asked {
    let Asked::Schedule(mut request) = asked else { return asked };
    let own_id = request.own_id.take().unwrap_or_else(|| record.own_id().into());
    request.own_id = Some(own_id);
    let sent = record.timestamp.and_then(|millis| u64::try_from(millis).ok());
    if let (When::After(delay), Some(sent)) = (request.when, sent.and_then(Timestamp::from_millis))
    {
        request.when = When::At(sent.saturating_add(delay));
    }
    Asked::Schedule(request)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use punctual_model::Span;

    use super::*;

    fn record(headers: &[(&str, &str)]) -> Incoming {
        let owned = |(name, value): &(&str, &str)| {
            ((*name).to_owned(), Some(Bytes::copy_from_slice(value.as_bytes())))
        };
        Incoming {
            topic: "in".into(),
            partition: 3,
            offset: 17,
            timestamp: Some(1_700_000_000_000),
            key: None,
            headers: headers.iter().map(owned).collect(),
            body: Some(Bytes::from_static(b"body")),
        }
    }

    fn request(headers: &[(&str, &str)]) -> (TopicName, Request) {
        match ask(&record(headers), None).unwrap() {
            (topic, Asked::Schedule(request)) => (topic, request),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_record_goes_to_the_topic_it_names_and_is_called_after_its_place() {
        let (topic, request) = request(&[("punctual-topic", "orders"), ("trace", "a")]);
        assert_eq!(topic.as_str(), "orders");
        assert_eq!(request.own_id.as_deref(), Some("kafka/in/3/17"));
        assert_eq!(request.when, When::Now);
        assert_eq!(request.message.headers.len(), 1);
    }

    #[test]
    fn a_delay_counts_from_the_time_of_the_record() {
        let (_, request) = request(&[("punctual-topic", "orders"), ("punctual-delay", "30s")]);
        let sent = Timestamp::from_millis(1_700_000_000_000).unwrap();
        assert_eq!(request.when, When::At(sent.saturating_add(Span::from_secs(30))));
    }

    #[test]
    fn an_id_of_its_own_stays() {
        let (_, request) = request(&[("punctual-topic", "orders"), ("punctual-id", "mine")]);
        assert_eq!(request.own_id.as_deref(), Some("mine"));
    }

    #[test]
    fn a_record_that_would_go_in_circles_is_bad() {
        assert!(ask(&record(&[]), None).unwrap_err().contains("come back"));
        assert!(ask(&record(&[("punctual-topic", "in")]), None).is_err());
        assert!(ask(&record(&[("punctual-topic", "\u{1}")]), None).is_err());
        assert!(ask(&record(&[("punctual-dealy", "1s"), ("punctual-topic", "o")]), None).is_err());
        let orders = TopicName::new("orders").unwrap();
        assert_eq!(ask(&record(&[]), Some(&orders)).unwrap().0, orders);
    }
}
