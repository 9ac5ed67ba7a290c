//! The first page of any window, and how much is due when, with very many pending.
//!
//! Both are asked of the store itself: what a page or a forecast costs, without the way there. They
//! are asked when all is filled, after one message in a hundred was cancelled, and after a restart.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use punctual_engine::Engine;
use punctual_model::ports::{CancelOutcome, Forecast, PendingQuery};
use punctual_model::{Clock as _, Lane, MessageId, Span, SystemClock, Timestamp, TopicId};
use serde_json::json;

use crate::args::{Common, ListOptions};
use crate::load::{Load, far, topic};
use crate::measure::{Latency, memory_of};
use crate::random::Random;
use crate::report::{Report, Table, say, short};
use crate::rig::{Place, Rig, disk_needed};

/// One of so many is cancelled.
const CANCEL_ONE_OF: usize = 100;
const CANCEL_IDS: usize = 1000;
const DAYS: u64 = 40;
/// The moments a forecast is asked for, in seconds from now.
const AHEAD_SECS: [u64; 7] = [60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, DAYS * 86_400];

pub(crate) fn run(common: &Common, options: &ListOptions) -> Result<()> {
    let place = Place::fresh(common, disk_needed(options.pending, options.load.body))?;
    let settings = json!({
        "pending": options.pending, "questions": options.questions, "limit": options.limit,
        "body": options.load.body, "days": DAYS,
    });
    let name = format!("list-{}", short(options.pending));
    let mut report = Report::new(name, common, settings);
    let mut rows = Vec::new();
    let rig = Rig::open(place.path(), common)?;
    let load = Load::new(&rig, options.load, far).keeping(CANCEL_ONE_OF);
    let ids = load.send(options.pending)?.ids;
    say("filled");
    let mut survey = Survey::new(&rig.engine, options)?;
    rows.push(("when filled", survey.ask(options.pending)?));
    cancel(&rig, &ids)?;
    let left = options.pending - ids.len() as u64;
    rows.push(("after cancels of 1 %", survey.ask(left)?));
    let memory = memory_of(std::process::id());
    rig.close()?;
    let rig = Rig::open(place.path(), common)?;
    let mut survey = Survey::new(&rig.engine, options)?;
    let (first, _) = survey.forecast()?;
    report.figure("first forecast after a restart, ms", first.as_secs_f64() * 1e3);
    rows.push(("after a restart", survey.ask(left)?));
    rig.close()?;
    show(&mut report, "first page of a window", &rows, |answers| &answers.pages);
    show(&mut report, "forecast", &rows, |answers| &answers.forecasts);
    report.memory(memory);
    report.disk(place.path(), options.pending);
    report.finish(common)?;
    place.clear()
}

fn show(
    report: &mut Report,
    title: &str,
    rows: &[(&str, Answers)],
    of: impl Fn(&Answers) -> &Latency,
) {
    let mut table = Table::of_latency(title);
    for (name, answers) in rows {
        table = table.latency(name, of(answers));
    }
    report.table(table);
    let rows: Vec<_> = rows.iter().map(|(name, answers)| (*name, of(answers))).collect();
    report.latency_chart(title, &rows);
}

fn cancel(rig: &Rig, ids: &[MessageId]) -> Result<()> {
    for ids in ids.chunks(CANCEL_IDS) {
        let outcomes = futures_executor::block_on(rig.broker.cancel(ids.to_vec()))?;
        let all = outcomes.iter().all(|outcome| *outcome == CancelOutcome::Cancelled);
        ensure!(all, "a pending message could not be cancelled");
    }
    Ok(())
}

/// How long the answers took.
struct Answers {
    pages: Latency,
    forecasts: Latency,
}

/// Asks a store.
struct Survey<'a> {
    engine: &'a Engine,
    topic: TopicId,
    options: &'a ListOptions,
    clock: SystemClock,
    random: Random,
}

impl<'a> Survey<'a> {
    fn new(engine: &'a Engine, options: &'a ListOptions) -> Result<Self> {
        let topic = engine.store().topic_by_name(&topic()).context("the topic is gone")?.id;
        Ok(Self { engine, topic, options, clock: SystemClock::new(), random: Random::new(5) })
    }

    /// Asks for pages and forecasts in turn; each forecast has to count `pending`.
    fn ask(&mut self, pending: u64) -> Result<Answers> {
        let mut answers = Answers { pages: Latency::new(), forecasts: Latency::new() };
        for _ in 0..self.options.questions {
            answers.pages.note(self.page()?);
            let (took, forecast) = self.forecast()?;
            answers.forecasts.note(took);
            let counted = (forecast.scheduled, forecast.before.last().copied());
            ensure!(counted == (pending, Some(pending)), "{pending} pending, counted {counted:?}");
        }
        Ok(answers)
    }

    /// The first page of a window that starts and ends anywhere.
    fn page(&mut self) -> Result<Duration> {
        let now = self.clock.read().timestamp();
        let mut moment = || {
            let ahead = self.random.below(DAYS * 86_400_000);
            now.saturating_add(Span::from_millis(ahead))
        };
        let (one, other) = (moment(), moment());
        let query = PendingQuery {
            from: one.min(other),
            to: one.max(other),
            ..PendingQuery::all_of(self.topic, Lane::Message, self.options.limit)
        };
        let started = self.clock.read().monotonic;
        let page = self.engine.store().pending(query)?;
        let took = self.clock.read().monotonic.saturating_sub(started);
        ensure!(page.entries.len() <= self.options.limit, "a page is too long");
        Ok(took)
    }

    fn forecast(&mut self) -> Result<(Duration, Forecast)> {
        let now = self.clock.read().timestamp();
        let bounds: Vec<Timestamp> =
            AHEAD_SECS.iter().map(|secs| now.saturating_add(Span::from_secs(*secs))).collect();
        let started = self.clock.read().monotonic;
        let forecast = self.engine.store().forecast(self.topic, &bounds)?;
        Ok((self.clock.read().monotonic.saturating_sub(started), forecast))
    }
}
