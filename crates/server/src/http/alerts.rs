//! Alerts: look at them, and see whether news arrives.

use http::StatusCode;
use punctual_api::Problem;
use punctual_api::alert::TestedView;
use punctual_api::request::Parameters;

use crate::alerts::Told;
use crate::http::audit;
use crate::http::call::Call;
use crate::http::reply::{Reply, json, large_json};

/// `GET /v1/alerts`
pub(crate) async fn show(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    large_json(&call.shared, &call.shared.alerts.view(&call.shared.live))
}

/// `POST /v1/alerts/test`
pub(crate) async fn test(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    let shared = &call.shared;
    let work =
        async { Ok(shared.alerts.test(shared.broker.now(), shared.nodes.told_name()).await) };
    let what = ("alerts_test", None);
    let told = audit::taken_down(shared, call.asker(), what, Vec::new(), work).await?;
    let tested = match told {
        Told::Nobody => TestedView { webhook: "none", error: None },
        Told::Taken => TestedView { webhook: "sent", error: None },
        Told::Failed(unsent) => TestedView { webhook: "failed", error: Some(unsent.error) },
    };
    Ok(json(StatusCode::OK, &tested))
}
