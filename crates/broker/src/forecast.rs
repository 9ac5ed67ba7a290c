//! Forecast: how much of a topic, or of everything, is due when.

use punctual_model::ports::{Forecast, StoreError, Timeline};
use punctual_model::{Lane, Span, Timestamp, TopicId, TopicKind};

use crate::broker::Broker;

/// How far ahead is looked.
const REACHES: [Span; 7] = [
    Span::from_secs(60),
    Span::from_secs(10 * 60),
    Span::from_secs(3600),
    Span::from_secs(6 * 3600),
    Span::from_days(1),
    Span::from_days(7),
    Span::from_days(40),
];

/// Topics that the timeline is asked for at once.
const TOPICS_TOGETHER: usize = 256;

/// How much is due when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Everything that is pending, but for half messages.
    pub total: u64,
    /// Of that, what is paused.
    pub paused: u64,
    /// Half messages of transactions, beside that.
    pub prepared: u64,
    /// How much is due within each of these times from now on; each count has those before it. What
    /// is overdue is due within all of them. The last second may be counted whole.
    pub due: Vec<(Span, u64)>,
    /// What is due after the last of them.
    pub later: u64,
    /// How much is due until each of these times and after the one before it, where steps were asked
    /// for. What is overdue is in the first.
    pub steps: Vec<(Timestamp, u64)>,
}

/// The near future in steps of the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Steps {
    within: Span,
    count: u16,
}

impl Steps {
    /// Most steps of a forecast.
    pub const COUNT_MAX: u16 = 200;
    /// Time is told in whole seconds, so shorter steps would say nothing.
    pub const LENGTH_MIN: Span = Span::from_secs(1);

    /// Up to so many steps until `within` from now: fewer where they would be too short.
    #[must_use]
    pub fn new(within: Span, most: u16) -> Self {
        let within = within.max(Self::LENGTH_MIN);
        let fitting = within.as_millis() / Self::LENGTH_MIN.as_millis();
        let fitting = u16::try_from(fitting).unwrap_or(u16::MAX);
        Self { within, count: most.clamp(1, Self::COUNT_MAX.min(fitting)) }
    }

    /// When each step ends.
    fn ends(self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        let (whole, count) = (self.within.as_millis(), u64::from(self.count));
        let end = move |step: u64| Span::from_millis(whole.saturating_mul(step) / count);
        (1..=count).map(move |step| now.saturating_add(end(step)))
    }
}

/// What is asked of the store, and how its answers are put together.
struct Question {
    now: Timestamp,
    steps: Vec<Timestamp>,
    /// What the store is asked about, in order.
    bounds: Vec<Timestamp>,
}

impl Question {
    fn new(now: Timestamp, steps: Option<Steps>) -> Self {
        let steps: Vec<Timestamp> = steps.into_iter().flat_map(|steps| steps.ends(now)).collect();
        let reaches = REACHES.map(|reach| now.saturating_add(reach));
        let mut bounds: Vec<Timestamp> = steps.iter().copied().chain(reaches).map(past).collect();
        bounds.sort_unstable();
        bounds.dedup();
        Self { now, steps, bounds }
    }

    fn outlook(&self, forecast: &Forecast) -> Outlook {
        let until = |time: Timestamp| {
            let place = self.bounds.binary_search(&past(time)).ok();
            place.and_then(|place| forecast.before.get(place)).copied().unwrap_or(0)
        };
        let due = REACHES.map(|reach| (reach, until(self.now.saturating_add(reach))));
        let within = due.last().map_or(0, |(_, count)| *count);
        let mut before = 0;
        let step = |end: &Timestamp| {
            let count = until(*end);
            (*end, count.saturating_sub(std::mem::replace(&mut before, count)))
        };
        Outlook {
            total: forecast.scheduled.saturating_add(forecast.paused),
            paused: forecast.paused,
            prepared: forecast.prepared,
            due: due.to_vec(),
            later: forecast.scheduled.saturating_sub(within),
            steps: self.steps.iter().map(step).collect(),
        }
    }
}

/// What is due at the end of a reach is within it.
fn past(time: Timestamp) -> Timestamp {
    time.saturating_add(Span::from_millis(1))
}

impl<T: Timeline> Broker<T> {
    /// How much of a topic is due when.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn forecast(
        &self,
        topic: TopicId,
        steps: Option<Steps>,
    ) -> Result<Outlook, StoreError> {
        let question = Question::new(self.now(), steps);
        let forecast = self.shared.timeline.forecast(topic, question.bounds.clone()).await?;
        Ok(question.outlook(&forecast))
    }

    /// How much is due when, of all topics that have something pending; what groups wait for
    /// themselves is left out. Takes longer the more such topics there are.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn forecast_whole(&self, steps: Option<Steps>) -> Result<Outlook, StoreError> {
        let question = Question::new(self.now(), steps);
        let is_plain = |topic: &TopicId| {
            let known = self.shared.topics.by_id(*topic);
            known.is_some_and(|known| known.kind == TopicKind::Plain)
        };
        let pending = self.shared.timeline.counts(Lane::Message);
        let topics: Vec<TopicId> =
            pending.iter().map(|(topic, _)| *topic).filter(is_plain).collect();
        let mut sum = Forecast::default();
        for some in topics.chunks(TOPICS_TOGETHER) {
            let timeline = &self.shared.timeline;
            sum.add(&timeline.forecast_together(some.to_vec(), question.bounds.clone()).await?);
        }
        Ok(question.outlook(&sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000).unwrap()
    }

    #[test]
    fn steps_are_few_and_no_shorter_than_a_second() {
        for (millis, most, count) in [
            (3_600_000, 60, 60),
            (3_600_000, 0, 1),
            (3_600_000, 999, 200),
            (200_000, 200, 200),
            (199_999, 200, 199),
            (0, 5, 1),
            (u64::MAX, 7, 7),
        ] {
            let steps = Steps::new(Span::from_millis(millis), most);
            assert_eq!(steps.ends(at(1000)).count(), count, "{millis} {most}");
            let last = at(1000).saturating_add(Span::from_millis(millis.max(1000)));
            assert!(millis == u64::MAX || steps.ends(at(1000)).last() == Some(last), "{millis}");
        }
    }

    #[test]
    fn each_step_counts_for_itself_and_the_first_has_what_is_overdue() {
        let question = Question::new(at(1000), Some(Steps::new(Span::from_secs(90), 3)));
        let dues = [at(5), at(999), at(1030), at(1031), at(1060), at(1090), at(1091), at(9999)];
        let before = |bound: &Timestamp| dues.iter().filter(|due| *due < bound).count() as u64;
        let forecast = Forecast {
            scheduled: 8,
            paused: 2,
            prepared: 1,
            before: question.bounds.iter().map(before).collect(),
        };
        let outlook = question.outlook(&forecast);
        assert_eq!(outlook.steps, [(at(1030), 3), (at(1060), 2), (at(1090), 1)]);
        assert_eq!((outlook.total, outlook.paused, outlook.prepared), (10, 2, 1));
        assert_eq!(outlook.due[0], (Span::from_secs(60), 5));
        assert_eq!(outlook.due[1], (Span::from_secs(600), 7));
        assert_eq!((outlook.due[3].1, outlook.later), (8, 0));
        assert!(Question::new(at(1000), None).outlook(&forecast).steps.is_empty());
    }

    #[test]
    fn topics_add_up() {
        let mut sum = Forecast::default();
        let one = Forecast { scheduled: 2, paused: 1, prepared: 3, before: vec![1, 2] };
        sum.add(&one);
        sum.add(&one);
        assert_eq!(sum, Forecast { scheduled: 4, paused: 2, prepared: 6, before: vec![2, 4] });
    }
}
