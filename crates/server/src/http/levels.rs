//! The delay levels: look at them, change them.

use std::borrow::Cow;

use http::StatusCode;
use punctual_api::request::Parameters;
use punctual_api::topic::{LevelsView, read_levels};
use punctual_api::{Code, Problem};
use punctual_model::limits::JSON_DEPTH_MAX;
use punctual_model::{DelayLevels, Span};

use crate::http::audit;
use crate::http::body::take_json;
use crate::http::call::Call;
use crate::http::etag::{self, Conditions};
use crate::http::problem::{of_broken_off, of_store};
use crate::http::reply::{Reply, json};
use crate::http::time;

/// Largest request about levels.
const LEVELS_BYTES_MAX: usize = 16 << 10;

/// `GET /v1/levels`
pub(crate) async fn get(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    let view = LevelsView { levels: texts(&call.shared.broker.topics().levels()) };
    let tag = etag::of(&view);
    if Conditions::of(&call.parts.headers)?.is_known(&tag) {
        return Ok(etag::not_modified(tag));
    }
    Ok(etag::tagged(json(StatusCode::OK, &view), tag))
}

/// `PUT /v1/levels`
pub(crate) async fn put(call: Call) -> Result<Reply, Problem> {
    let asker = call.asker();
    let conditions = Conditions::of(&call.parts.headers)?;
    let (shared, held) = take_json(call, LEVELS_BYTES_MAX).await?;
    let written = read_levels(&held.bytes, JSON_DEPTH_MAX)?;
    let levels = levels(&written, shared.delay_max())?;
    drop(held);
    let _one_at_a_time = shared.changes.lock().await;
    let old = LevelsView { levels: texts(&shared.broker.topics().levels()) };
    conditions.check(Some(&etag::of(&old)))?;
    let texts = texts(&levels);
    let details = vec![("levels", texts.join(" "))];
    let topics = std::sync::Arc::clone(shared.broker.topics());
    let work = async {
        let put = shared.tasks.blocking(move || topics.put_levels(levels)).await;
        put.map_err(of_broken_off)?.map_err(of_store)
    };
    audit::taken_down(&shared, asker, ("levels_put", None), details, work).await?;
    let view = LevelsView { levels: texts };
    Ok(etag::tagged(json(StatusCode::OK, &view), etag::of(&view)))
}

/// Eighteen delays, none of them nothing and none longer than may be.
pub(crate) fn levels(written: &[Cow<'_, str>], delay_max: Span) -> Result<DelayLevels, Problem> {
    let level = |(index, text): (usize, &Cow<'_, str>)| {
        let name = format!("level {}", index + 1);
        let span = time::span(&name, text, (Span::from_millis(1), delay_max));
        span.map_err(|problem| Problem::new(Code::InvalidLevels, problem.detail))
    };
    let delays: Vec<Span> = written.iter().enumerate().map(level).collect::<Result<_, _>>()?;
    let delays = delays.try_into().map_err(|_other_number| Code::InvalidLevels)?;
    Ok(DelayLevels::new(delays))
}

/// The delays as they are shown.
pub(crate) fn texts(levels: &DelayLevels) -> Vec<String> {
    levels.delays().iter().map(Span::to_string).collect()
}
