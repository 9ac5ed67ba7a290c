//! The OpenAPI document, put together from the routes, the permissions and the shapes of the contract.
//!
//! Every route is in it, because it is made by walking the table of routes; every operation is
//! described, because [`describe`] would not compile otherwise. Limits are those of the model and of
//! the configuration; no number is written down twice.

mod described;
mod numbers;
mod messages;
mod pending;
mod topics;
mod groups;
mod transactions;
mod apps;
mod admin;
mod console;
mod write;
mod page;

use bytes::Bytes;
use http::StatusCode;
use http::header::HeaderValue;
use parking_lot::Mutex;
use punctual_api::Problem;
use punctual_model::Span;

use self::described::Described;
use self::numbers::Numbers;
pub(crate) use self::page::{page, page_file};
use crate::access::Operation;
use crate::http::call::Call;
use crate::http::reply::{Reply, typed};

/// The document, made when it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct Document(Mutex<Option<(Terms, Bytes)>>);

/// What of the configuration the document tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Terms {
    /// The longest delay.
    delay_max: Span,
    /// Whether everybody must say who they are.
    is_guarded: bool,
}

impl Document {
    /// The document as it is under these terms.
    fn text(&self, terms: Terms) -> Bytes {
        let mut made = self.0.lock();
        if let Some((_, text)) = made.as_ref().filter(|(known, _)| *known == terms) {
            return text.clone();
        }
        let document = write::document(&Numbers::new(terms.delay_max), terms.is_guarded);
        let text = serde_json::to_vec(&document).expect("a document has string keys");
        made.insert((terms, text.into())).1.clone()
    }
}

/// `GET /openapi.json`
pub(crate) fn document(call: &Call) -> Result<Reply, Problem> {
    let shared = &call.shared;
    let terms = Terms { delay_max: shared.delay_max(), is_guarded: shared.gate.is_enabled() };
    let text = shared.openapi.text(terms);
    Ok(typed(StatusCode::OK, HeaderValue::from_static("application/json"), text))
}

/// What the document says about an operation.
#[expect(clippy::too_many_lines, reason = "one line for each operation")]
fn describe(operation: Operation, numbers: &Numbers) -> Described {
    match operation {
        Operation::Schedule => messages::schedule(),
        Operation::Publish => messages::publish(numbers),
        Operation::GetMessage => messages::get(),
        Operation::CancelMessage => messages::cancel(),
        Operation::PatchMessage => messages::patch(),
        Operation::DeliverMessage => messages::deliver(),
        Operation::ListScheduled => pending::list(numbers),
        Operation::CancelMany => pending::cancel_many(),
        Operation::RescheduleMany => pending::reschedule_many(),
        Operation::DeliverMany => pending::deliver_many(),
        Operation::PauseMany => pending::pause_many(),
        Operation::ResumeMany => pending::resume_many(),
        Operation::ListJobs => pending::jobs(numbers),
        Operation::GetJob => pending::job(),
        Operation::StopJob => pending::stop_job(),
        Operation::ListSeries => pending::series(numbers),
        Operation::Forecast => pending::forecast(numbers),
        Operation::ForecastAll => pending::forecast_all(numbers),
        Operation::Export => pending::export(),
        Operation::Import => pending::import(),
        Operation::ReadPartition => topics::read_partition(numbers),
        Operation::ListTopics => topics::list(numbers),
        Operation::GetTopic => topics::get(),
        Operation::PutTopic => topics::put(),
        Operation::PatchTopic => topics::patch(),
        Operation::DeleteTopic => topics::delete(),
        Operation::Receive => groups::receive(),
        Operation::ReceiveStream => groups::stream(numbers),
        Operation::Ack => groups::ack(),
        Operation::Nack => groups::nack(),
        Operation::Extend => groups::extend(),
        Operation::Retry => groups::retry(),
        Operation::ListGroups => groups::list(numbers),
        Operation::GetGroup => groups::get(),
        Operation::PutGroup => groups::put(),
        Operation::PatchGroup => groups::patch(),
        Operation::DeleteGroup => groups::delete(),
        Operation::PauseGroup => groups::pause(),
        Operation::ResumeGroup => groups::resume(),
        Operation::ResetGroup => groups::reset(),
        Operation::GetOffsets => groups::offsets(),
        Operation::PutOffsets => groups::put_offsets(),
        Operation::ListDead => groups::dead(numbers),
        Operation::SummarizeDead => groups::dead_summary(),
        Operation::Redrive => groups::redrive(),
        Operation::GetRedrive => groups::job(numbers, "Look how far a redrive is"),
        Operation::Purge => groups::purge(),
        Operation::Drain => groups::drain(),
        Operation::GetDrain => groups::job(numbers, "Look how far a drain is"),
        Operation::GetLevels => topics::levels(),
        Operation::PutLevels => topics::put_levels(),
        Operation::Prepare => transactions::prepare(),
        Operation::ListTransactions => transactions::list(numbers),
        Operation::GetTransaction => transactions::get(),
        Operation::Commit => transactions::commit(),
        Operation::Rollback => transactions::rollback(),
        Operation::ResumeTransaction => transactions::resume(),
        Operation::Checks => transactions::checks(),
        Operation::CreateApp => apps::create(),
        Operation::ListApps => apps::list(numbers),
        Operation::GetApp => apps::get(),
        Operation::PatchApp => apps::patch(),
        Operation::DeleteApp => apps::delete(),
        Operation::RotateApp => apps::rotate(),
        Operation::DisableApp => apps::disable(),
        Operation::EnableApp => apps::enable(),
        Operation::Audit => admin::audit(numbers),
        Operation::Time => admin::time(),
        Operation::AdvanceTime => admin::advance(),
        Operation::Live => admin::live(),
        Operation::ReadyNow => admin::ready(),
        Operation::LegacySend => messages::legacy_send(),
        Operation::LegacyCancel => messages::legacy_cancel(),
        Operation::Stats => admin::stats(numbers),
        Operation::LiveFigures => console::live(),
        Operation::GetSession => console::session(),
        Operation::SignIn => console::sign_in(),
        Operation::SignOut => console::sign_out(),
        Operation::Console => console::page(),
        Operation::ConsoleFile => console::asset(),
        Operation::Trends => admin::trends(numbers),
        Operation::Cluster => admin::cluster(),
        Operation::PutCluster => admin::put_cluster(),
        Operation::Alerts => admin::alerts(),
        Operation::TestAlerts => admin::test_alerts(),
        Operation::Metrics => admin::metrics(),
        Operation::OpenApi => admin::document(),
        Operation::Docs => admin::page(),
        Operation::DocsFile => admin::page_file(),
    }
}

#[cfg(test)]
mod tests;
