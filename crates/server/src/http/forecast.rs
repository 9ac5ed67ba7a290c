//! How much is due when: of a topic, and of everything.
//!
//! A look at everything asks for each topic, so it is taken once for all who want the same within two
//! seconds, and never twice at a time. One that took long is remembered longer, so that however many
//! topics there are, and however many look, little of the time is spent on looking.

use std::time::Duration;

use http::StatusCode;
use punctual_api::Problem;
use punctual_api::pending::{ForecastView, StepView, WithinView};
use punctual_api::request::Parameters;
use punctual_broker::{Outlook, Steps};
use punctual_model::limits::DELAY_CEILING;
use punctual_model::{Span, Timestamp};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::http::call::Call;
use crate::http::messages::known;
use crate::http::problem::of_store;
use crate::http::reply::{Reply, json};
use crate::http::shared::Shared;
use crate::http::time;

/// For how long a look at everything is remembered, at least.
const REMEMBERED: Duration = Duration::from_secs(2);
/// How many times as long as it took.
const REMEMBERED_TIMES: u32 = 10;
/// Looks in different steps that are remembered at one time.
const LOOKS_MAX: usize = 16;

/// What holds where one of both is not said.
const WITHIN_DEFAULT: Span = Span::from_secs(3600);
const STEPS_DEFAULT: u16 = 60;

/// `GET /v1/topics/{topic}/forecast`
pub(crate) async fn of_topic(call: Call) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    let steps = asked(&call)?;
    let topic = known(&call.shared, &name)?;
    let outlook = call.shared.broker.forecast(topic.id, steps).await.map_err(of_store)?;
    Ok(json(StatusCode::OK, &view(&outlook, steps.is_some())))
}

/// `GET /v1/forecast`
pub(crate) async fn of_all(call: Call) -> Result<Reply, Problem> {
    let steps = asked(&call)?;
    let outlook = call.shared.forecasts.look(&call.shared, steps).await?;
    Ok(json(StatusCode::OK, &view(&outlook, steps.is_some())))
}

/// Into which steps the answer is to be divided, if into any.
fn asked(call: &Call) -> Result<Option<Steps>, Problem> {
    let mut parameters = Parameters::read(call.query())?;
    let bounds = (Span::ZERO, DELAY_CEILING);
    let within = parameters.take("within")?.map(|text| time::span("within", &text, bounds));
    let within = within.transpose()?;
    let count = parameters.take_number("steps", 1, Steps::COUNT_MAX.into())?;
    parameters.end()?;
    if within.is_none() && count.is_none() {
        return Ok(None);
    }
    let most = count.map_or(STEPS_DEFAULT, |count| u16::try_from(count).unwrap_or(u16::MAX));
    Ok(Some(Steps::new(within.unwrap_or(WITHIN_DEFAULT), most)))
}

fn view(outlook: &Outlook, with_steps: bool) -> ForecastView {
    let within =
        |(reach, count): &(Span, u64)| WithinView { within: reach.to_string(), count: *count };
    let step = |(end, count): &(Timestamp, u64)| StepView { until: end.to_string(), count: *count };
    ForecastView {
        total: outlook.total,
        paused: outlook.paused,
        prepared: outlook.prepared,
        due: outlook.due.iter().map(within).collect(),
        later: outlook.later,
        steps: with_steps.then(|| outlook.steps.iter().map(step).collect()),
    }
}

/// Looks at everything that are not old yet.
#[derive(Debug, Default)]
pub(crate) struct Forecasts(Mutex<Vec<Look>>);

#[derive(Debug)]
struct Look {
    steps: Option<Steps>,
    /// When it is old.
    until: Instant,
    /// By the clock of the broker, which somebody may have moved since.
    at: Timestamp,
    outlook: Outlook,
}

impl Look {
    fn is_fresh(&self, shared: &Shared) -> bool {
        let has_moved = shared.broker.is_virtual() && shared.broker.now() != self.at;
        Instant::now() < self.until && !has_moved
    }
}

impl Forecasts {
    /// A look that is not old yet, or a new one. Whoever comes meanwhile waits for that one.
    async fn look(&self, shared: &Shared, steps: Option<Steps>) -> Result<Outlook, Problem> {
        let mut looks = self.0.lock().await;
        looks.retain(|look| look.is_fresh(shared));
        if let Some(known) = looks.iter().find(|look| look.steps == steps) {
            return Ok(known.outlook.clone());
        }
        let (at, begun) = (shared.broker.now(), Instant::now());
        let outlook = shared.broker.forecast_whole(steps).await.map_err(of_store)?;
        let until =
            Instant::now() + begun.elapsed().saturating_mul(REMEMBERED_TIMES).max(REMEMBERED);
        if looks.len() >= LOOKS_MAX {
            looks.remove(0);
        }
        looks.push(Look { steps, until, at, outlook: outlook.clone() });
        Ok(outlook)
    }
}
