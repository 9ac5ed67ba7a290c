//! From what a producer asks to a draft: each message is held to what it would be held to outside of
//! a transaction, and nothing is stored before all of them are.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_model::ports::{OnConflict, Timeline, Topic};
use punctual_model::{
    Basis, CheckPolicy, GroupName, MessageId, Timestamp, TopicName, TopicSettings,
};

use super::{DelayFrom, Draft, Half, PrepareError, Prepared};
use crate::broker::Broker;
use crate::schedule::{Request, ScheduleError, Scheduled, check_batch};
use crate::time::Now;
use crate::watch::Acceptance;

/// What a producer asks for.
#[derive(Clone, Debug)]
pub struct Preparation {
    /// Whose members are asked what became of it.
    pub producer_group: GroupName,
    /// The messages.
    pub messages: Vec<HalfRequest>,
    /// When they are asked; as the first topic that says so, if nothing is said here.
    pub check: Option<CheckPolicy>,
    /// Where they are asked, if not by a waiting call.
    pub url: Option<String>,
}

/// A message of a transaction.
#[derive(Clone, Debug)]
pub struct HalfRequest {
    /// Where it goes.
    pub topic: TopicName,
    /// What and when.
    pub request: Request,
    /// From when on its delay counts.
    pub delay_from: DelayFrom,
}

impl<T: Timeline> Broker<T> {
    /// Accepts messages that nobody sees until they are committed, whole or not at all. `Ok` means
    /// that they survive a crash. If the future is dropped, they may have been accepted.
    ///
    /// # Errors
    /// See [`PrepareError`].
    pub async fn prepare(&self, preparation: Preparation) -> Result<Prepared, PrepareError> {
        let Preparation { producer_group, messages, check, url } = preparation;
        let now = self.shared.time.read();
        let mut requests = Vec::with_capacity(messages.len());
        let mut places = Vec::with_capacity(messages.len());
        for HalfRequest { topic, request, delay_from } in messages {
            requests.push(request);
            places.push((topic, delay_from));
        }
        check_batch(&requests).map_err(|error| refused(0, error))?;
        for (index, (request, (topic, _))) in requests.iter().zip(&places).enumerate() {
            let known = self.shared.topics.by_name(topic);
            let settings =
                known.map_or_else(TopicSettings::default, |topic| topic.settings.clone());
            self.shared
                .placing
                .check(request, &settings, now)
                .map_err(|reason| refused(index, ScheduleError::Invalid { index, reason }))?;
        }
        let topics = self.topics_for_use(&requests, &places).await?;
        let mut halves = Vec::with_capacity(requests.len());
        // With own ids a fingerprint is taken of everything, and a mark would change it.
        let markable = requests.iter().all(|request| request.own_id.is_none());
        let mut acceptance = Acceptance::default();
        for (index, (mut request, (name, from))) in requests.into_iter().zip(places).enumerate() {
            if markable {
                self.watch_one(&name, &mut request, &mut acceptance);
            }
            let gone = || refused(index, ScheduleError::TopicNotFound);
            let topic = topics.get(&name).ok_or_else(gone)?;
            halves.push(self.half(topic, request, from, now).map_err(|error| match error {
                ScheduleError::Invalid { reason, .. } => {
                    refused(index, ScheduleError::Invalid { index, reason })
                }
                error => refused(index, error),
            })?);
        }
        let dues: Vec<Timestamp> = halves.iter().map(|half| half.entry.due).collect();
        let draft = Draft { producer_group, halves, check, url };
        let prepared = self.transactions().prepare(draft).await?;
        let with_due =
            |(id, due): (&MessageId, &Timestamp)| Scheduled { due: *due, ..Scheduled::new(*id) };
        let scheduled: Vec<Scheduled> = prepared.messages.iter().zip(&dues).map(with_due).collect();
        acceptance.done(&scheduled, || self.shared.time.read().wall);
        Ok(prepared)
    }

    /// The topics of the messages, made if need be, once each of them takes its part.
    async fn topics_for_use(
        &self,
        requests: &[Request],
        places: &[(TopicName, DelayFrom)],
    ) -> Result<BTreeMap<TopicName, Arc<Topic>>, PrepareError> {
        /// What a topic is to take, and the first message for it.
        #[derive(Default)]
        struct Part {
            first: usize,
            messages: u64,
            bytes: u64,
        }
        let mut parts: BTreeMap<&TopicName, Part> = BTreeMap::new();
        for (index, (request, (topic, _))) in requests.iter().zip(places).enumerate() {
            let part = parts.entry(topic).or_insert(Part { first: index, ..Part::default() });
            part.messages += 1;
            part.bytes += request.message.weight() as u64;
        }
        let mut topics = BTreeMap::new();
        for (name, part) in parts {
            let because = |error| refused(part.first, error);
            let topic = self.topic_for_use(name).await.map_err(because)?;
            self.admit(&topic, part.messages, part.bytes).await.map_err(because)?;
            topics.insert(name.clone(), topic);
        }
        Ok(topics)
    }

    fn half(
        &self,
        topic: &Topic,
        request: Request,
        from: DelayFrom,
        now: Now,
    ) -> Result<Half, ScheduleError> {
        let conflict: OnConflict = request.on_conflict;
        let entry = self.shared.placing.place(topic, request, now);
        let entry = entry.map_err(|reason| ScheduleError::Invalid { index: 0, reason })?;
        // A date is a date, whenever the commit comes.
        let delay = match (entry.basis, from) {
            (Basis::Delay, DelayFrom::Commit) => Some(entry.due.since(now.timestamp_up())),
            (Basis::Delay, DelayFrom::Send) | (Basis::Date, _) => None,
        };
        Ok(Half { entry, delay, conflict })
    }
}

/// What the store says is nobody's fault, and of no message.
fn refused(index: usize, error: ScheduleError) -> PrepareError {
    match error {
        ScheduleError::Store(error) => PrepareError::Store(error),
        error => PrepareError::Refused { index, error },
    }
}
