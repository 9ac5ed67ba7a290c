//! The ten minutes under way: where they began, and what has been counted since.
//!
//! Pure: what the process has counted, and what time it is, is given. Ten minutes are begun once. A
//! clock that is set back a little goes on with those under way, and one that is set back further
//! begins earlier ones; what was written of them before is given then, and added to.

use std::collections::{BTreeMap, HashMap, HashSet};

use punctual_model::ports::POINT_SPAN;
use punctual_model::{Span, Timestamp};

use crate::access::AppIdentity;
use crate::trends::counts::{MessageCounts, SentCounts, Spread, Tally};
use crate::trends::point::{Gauges, Point, TopicPoint};

/// How far a clock may be set back before earlier ten minutes are begun.
const BACK_MAX: Span = Span::from_secs(3600);

/// What can be seen of a process at one moment. Everything is counted since its start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    pub(crate) tally: Tally,
    /// The topics that there are, by number: name, and what is pending.
    pub(crate) topics: HashMap<u32, (Box<str>, u64)>,
    /// The apps that there are.
    pub(crate) apps: HashSet<AppIdentity>,
    pub(crate) gauges: Gauges,
    pub(crate) lateness: Spread,
    pub(crate) journal: Spread,
}

impl Look {
    /// Messages that are pending.
    pub(crate) fn pending(&self) -> u64 {
        self.topics.values().map(|(_, pending)| *pending).fold(0, u64::saturating_add)
    }
}

/// When the ten minutes of a time begin.
pub(crate) fn start_of(time: Timestamp) -> Timestamp {
    let (millis, span) = (time.as_millis(), POINT_SPAN.as_millis());
    Timestamp::from_millis_saturating(millis - millis % span)
}

/// The ten minutes that are to be begun, if those under way are over.
pub(crate) fn turn(under_way: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let at = start_of(now);
    let is_over = at > under_way || at.saturating_add(BACK_MAX) < under_way;
    is_over.then_some(at)
}

/// The ten minutes under way.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// What others have counted of them: this process before it was restarted, or when the clock
    /// showed the same time before.
    carried: Point,
    /// What had been counted when they were begun, or the process was.
    before: Look,
}

impl Window {
    pub(crate) fn begin(at: Timestamp, before: Look, carried: Option<Point>) -> Self {
        let carried = carried.unwrap_or_default();
        Self { carried: Point { at: at.as_millis(), ..carried }, before }
    }

    /// When they began.
    pub(crate) fn at(&self) -> Timestamp {
        self.carried.start()
    }

    /// What they have brought so far.
    pub(crate) fn point(&self, look: &Look) -> Point {
        let mut later = Point {
            at: self.carried.at,
            whole: look.tally.whole.minus(self.before.tally.whole),
            pending: look.pending(),
            gauges: look.gauges,
            lateness: look.lateness.minus(&self.before.lateness),
            journal: look.journal.minus(&self.before.journal),
            ..Point::default()
        };
        for (topic, (name, pending)) in &look.topics {
            let counts = self.topic_counts(look, *topic);
            let before = self.before.topics.get(topic).map_or(0, |(_, pending)| *pending);
            if counts.activity() > 0 || *pending != before || self.carried.topics.contains_key(name)
            {
                later.topics.insert(name.clone(), TopicPoint(counts, *pending));
            }
        }
        later.apps = self.app_counts(look);
        let mut point = self.carried.clone();
        point.add(later);
        point.bounded()
    }

    fn topic_counts(&self, look: &Look, topic: u32) -> MessageCounts {
        let of = |tally: &Tally| tally.topics.get(&topic).copied().unwrap_or_default();
        of(&look.tally).minus(of(&self.before.tally))
    }

    fn app_counts(&self, look: &Look) -> BTreeMap<Box<str>, SentCounts> {
        let mut apps: BTreeMap<Box<str>, SentCounts> = BTreeMap::new();
        for (app, counts) in &look.tally.apps {
            let before = self.before.tally.apps.get(app).copied().unwrap_or_default();
            let counts = counts.minus(before);
            if counts.activity() > 0 {
                let known = apps.entry(app.key.clone()).or_default();
                *known = known.plus(counts);
            }
        }
        apps
    }
}

#[cfg(test)]
mod tests {
    use punctual_broker::TopicCounts;

    use super::*;
    use crate::access::AppCounts;

    fn time(text: &str) -> Timestamp {
        format!("2030-01-01T{text}Z").parse().unwrap()
    }

    fn look(scheduled: u64, pending: u64) -> Look {
        let counts = MessageCounts::from(TopicCounts { scheduled, ..TopicCounts::default() });
        let app = AppIdentity { key: "x".into(), made: 1 };
        let sent = SentCounts::from(AppCounts { scheduled, ..AppCounts::default() });
        let quiet = ("quiet".into(), 5);
        Look {
            tally: Tally {
                whole: counts,
                topics: [(1, counts)].into(),
                apps: [(app, sent)].into(),
            },
            topics: [(1, ("busy".into(), pending)), (2, quiet)].into(),
            ..Look::default()
        }
    }

    #[test]
    fn points_begin_at_full_ten_minutes() {
        assert_eq!(start_of(time("10:19:59.999")), time("10:10:00"));
        assert_eq!(start_of(time("10:20:00")), time("10:20:00"));
        assert_eq!(turn(time("10:10:00"), time("10:19:59.999")), None);
        assert_eq!(turn(time("10:10:00"), time("10:20:00")), Some(time("10:20:00")));
        assert_eq!(turn(time("10:10:00"), time("23:59:00")), Some(time("23:50:00")));
    }

    #[test]
    fn a_clock_that_is_set_back_a_little_goes_on_and_further_begins_anew() {
        assert_eq!(turn(time("10:10:00"), time("10:09:59")), None);
        assert_eq!(turn(time("10:10:00"), time("09:10:00")), None);
        assert_eq!(turn(time("10:10:00"), time("09:09:59")), Some(time("09:00:00")));
    }

    #[test]
    fn what_was_counted_in_between_is_what_a_point_says() {
        let window = Window::begin(time("10:10:00"), look(10, 3), None);
        let nothing = window.point(&look(10, 3));
        assert_eq!((nothing.activity(), nothing.pending), (0, 8));
        assert!(nothing.topics.is_empty() && nothing.apps.is_empty(), "nobody had to say anything");
        let point = window.point(&look(14, 2));
        assert_eq!(point.whole.get("scheduled"), 4);
        assert_eq!(point.topics.keys().map(|name| &**name).collect::<Vec<_>>(), ["busy"]);
        assert_eq!(point.topics["busy"].1, 2);
        assert_eq!(point.apps["x"].get("scheduled"), 4);
        let moved = window.point(&look(10, 9));
        assert_eq!(moved.topics["busy"].1, 9, "what is pending has changed");
    }

    #[test]
    fn a_process_that_is_started_again_goes_on_with_the_point_it_left() {
        let left = Window::begin(time("10:10:00"), look(10, 3), None).point(&look(14, 2));
        // Another process counts from zero.
        let window = Window::begin(time("10:10:00"), look(0, 2), Some(left.clone()));
        assert_eq!(window.point(&look(0, 2)).whole, left.whole);
        let point = window.point(&look(1, 0));
        assert_eq!(point.whole.get("scheduled"), 5);
        assert_eq!(point.topics["busy"].1, 0);
        assert_eq!(point.apps["x"].get("scheduled"), 5);
        assert_eq!(point.at, left.at);
    }
}
