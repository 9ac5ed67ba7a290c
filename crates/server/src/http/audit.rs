//! The record of who changed what: taking changes down, and reading it.
//!
//! What is taken down is durable before the change begins, so that no change is without its entry,
//! whatever crashes; one that was refused after all has a second entry that says so.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use punctual_api::audit::{AuditPage, AuditView};
use punctual_api::request::Parameters;
use punctual_api::{Code, Problem};
use punctual_broker::audit::Entry;
use punctual_model::TopicName;

use crate::access::Caller;
use crate::http::call::Call;
use crate::http::page::take_limit;
use crate::http::problem::{of_audit, of_broken_off};
use crate::http::reply::{Reply, large_json};
use crate::http::shared::Shared;

/// Longest text of a detail, in bytes; the rest is left out.
const DETAIL_BYTES_MAX: usize = 4 << 10;

/// Who asks, and from where.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    caller: Caller,
    address: IpAddr,
}

impl Asker {
    pub(crate) const fn new(caller: Caller, from: SocketAddr) -> Self {
        Self { caller, address: from.ip() }
    }

    /// Who it is.
    pub(crate) const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// From where.
    pub(crate) const fn address(&self) -> IpAddr {
        self.address
    }

    /// The asker as the record names it.
    pub(crate) fn who(&self) -> Arc<str> {
        self.to_string().into()
    }
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.caller.name(), self.address)
    }
}

/// Takes a change down and carries it out.
pub(crate) async fn taken_down<T>(
    shared: &Shared,
    asker: Asker,
    (what, topic): (&str, Option<&TopicName>),
    details: Vec<(&'static str, String)>,
    change: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let own = |(name, mut text): (&str, String)| {
        let mut end = text.len().min(DETAIL_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        (name.to_owned(), text)
    };
    let mut details: Vec<(String, String)> = details.into_iter().map(own).collect();
    let who = asker.to_string();
    let record = shared.broker.audit(&who, what, topic, details.clone()).await;
    record.map_err(of_audit)?;
    let outcome = change.await;
    if let Err(problem) = &outcome {
        details.push(("refused".to_owned(), problem.code.as_str().to_owned()));
        shared.broker.audit(&who, what, topic, details).await.map_err(of_audit)?;
    }
    outcome
}

/// `GET /v1/audit`
pub(crate) async fn list(call: Call) -> Result<Reply, Problem> {
    let mut parameters = Parameters::read(call.query())?;
    let limit = take_limit(&mut parameters)?;
    let cursor = parameters.take_number("cursor", 0, u64::MAX);
    let before = cursor.map_err(|problem| match problem.code {
        Code::InvalidParameter => Code::InvalidCursor.into(),
        _ => problem,
    })?;
    let topic = parameters.take("topic")?.map(|text| TopicName::new(&text)).transpose();
    let topic = topic.map_err(|error| Problem::new(Code::InvalidTopicName, error.to_string()))?;
    parameters.end()?;
    let record = Arc::clone(&call.shared.audit);
    let read = move || record.read(before, limit, topic.as_ref());
    let page = call.shared.tasks.blocking(read).await.map_err(of_broken_off)?;
    let page = page.map_err(of_audit)?;
    let entries = page.entries.into_iter().map(view).collect();
    large_json(&call.shared, &AuditPage { entries, next: page.next.map(|next| next.to_string()) })
}

fn view(entry: Entry) -> AuditView {
    AuditView {
        at: entry.at.to_string(),
        who: entry.who.to_string(),
        what: entry.what,
        topic: entry.topic.map(|topic| topic.to_string()),
        details: entry.details,
    }
}
