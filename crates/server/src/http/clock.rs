//! Time: what the broker clock shows, and moving it where it is virtual.

use std::sync::Arc;

use http::StatusCode;
use punctual_api::clock::{Advance, Advanced, TimeView};
use punctual_api::request::Parameters;
use punctual_api::{Code, Problem};
use punctual_broker::MoveError;
use punctual_model::Timestamp;
use punctual_model::limits::{DELAY_CEILING, JSON_DEPTH_MAX};

use crate::http::audit;
use crate::http::body::take_json;
use crate::http::call::Call;
use crate::http::problem::{of_broken_off, of_store};
use crate::http::reply::{Reply, json};
use crate::http::time;

/// Largest request to move time.
const ADVANCE_BYTES_MAX: usize = 1 << 10;

/// `GET /v1/time`
pub(crate) async fn show(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    let broker = &call.shared.broker;
    let shown = TimeView { now: broker.now().to_string(), is_virtual: broker.is_virtual() };
    Ok(json(StatusCode::OK, &shown))
}

/// `POST /v1/time/advance`
pub(crate) async fn advance(call: Call) -> Result<Reply, Problem> {
    if !call.shared.broker.is_virtual() {
        return Err(not_virtual());
    }
    let asker = call.asker();
    let (shared, held) = take_json(call, ADVANCE_BYTES_MAX).await?;
    let to = target(Advance::read(&held.bytes, JSON_DEPTH_MAX)?, shared.broker.now())?;
    let (broker, trends) = (shared.broker.clone(), Arc::clone(&shared.trends));
    let work = async {
        let moved = shared.tasks.blocking(move || {
            let moved = broker.move_time(to);
            // What was done on the way counts for the ten minutes in which it began.
            trends.turn_over();
            moved
        });
        let moved = moved.await;
        moved.map_err(of_broken_off)?.map_err(|error| match error {
            MoveError::NotVirtual => not_virtual(),
            MoveError::Store(error) => of_store(error),
        })
    };
    let details = vec![("to", to.to_string())];
    let moved = audit::taken_down(&shared, asker, ("time_advance", None), details, work).await?;
    let advanced = Advanced { now: moved.now.to_string(), fired: moved.fired };
    Ok(json(StatusCode::OK, &advanced))
}

fn target(advance: Advance<'_>, now: Timestamp) -> Result<Timestamp, Problem> {
    let refused = |detail: String| Problem::new(Code::InvalidField, detail);
    let to = match advance {
        Advance::By(by) => now.saturating_add(time::delay(&by)?),
        Advance::To(to) => time::time(&to)?,
    };
    if to < now {
        return Err(refused(format!("it is {now} already, and time is never moved back")));
    }
    if to.since(now) > DELAY_CEILING || to.is_parked() {
        return Err(refused(format!("time is moved by at most {DELAY_CEILING} at once")));
    }
    Ok(to)
}

fn not_virtual() -> Problem {
    let detail = "the server goes by the clock of the machine; start it with --virtual-time to \
                  move time by hand";
    Problem::new(Code::NotVirtualTime, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_moves_forwards_and_not_too_far() {
        let now: Timestamp = "2030-01-31T00:00:00Z".parse().unwrap();
        let to = |advance| target(advance, now).map(|to| to.to_string());
        assert_eq!(to(Advance::By("1d".into())).unwrap(), "2030-02-01T00:00:00.000Z");
        assert_eq!(to(Advance::By("0s".into())).unwrap(), "2030-01-31T00:00:00.000Z");
        assert_eq!(
            to(Advance::To("2030-01-31T01:00:00+01:00".into())).unwrap(),
            "2030-01-31T00:00:00.000Z"
        );
        let code = |advance| target(advance, now).unwrap_err().code;
        assert_eq!(code(Advance::To("2030-01-30T00:00:00Z".into())), Code::InvalidField);
        assert_eq!(code(Advance::By("4000d".into())), Code::InvalidField);
        assert_eq!(code(Advance::By("soon".into())), Code::InvalidDelay);
        assert_eq!(code(Advance::To("soon".into())), Code::InvalidTime);
    }
}
