//! Every route, in one table, and the way from a request to its handler.
//!
//! A route is a line of [`ROUTES`] and cannot be written without its permission. Paths are matched
//! as they were sent; only then are the captured parts decoded, so an escaped slash never moves a
//! request to another route.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use http::header::{ALLOW, HeaderValue};
use http::request::Parts;
use http::{Method, Request};
use hyper::body::Incoming;
use punctual_api::request::decode_path;
use punctual_api::{Code, Problem};
use punctual_broker::group::JobKind;
use punctual_model::{GroupName, MessageId, TopicName};

use crate::http::access::{Caller, Permission};
use crate::http::audit::Asker;
use crate::http::reply::{self, Reply};
use crate::http::shared::Shared;
use crate::http::socket::Peer;
use crate::http::{
    audit, bulk, clock, consume, dead, export, groups, health, import, levels, messages, metrics,
    pending, problem, receive, topics, transactions,
};

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Schedule,
    Publish,
    GetMessage,
    CancelMessage,
    PatchMessage,
    DeliverMessage,
    ListScheduled,
    CancelMany,
    RescheduleMany,
    DeliverMany,
    PauseMany,
    ResumeMany,
    ListJobs,
    GetJob,
    StopJob,
    ListSeries,
    Forecast,
    Export,
    Import,
    ReadPartition,
    ListTopics,
    GetTopic,
    PutTopic,
    PatchTopic,
    DeleteTopic,
    Receive,
    Ack,
    Nack,
    Extend,
    Retry,
    ListGroups,
    GetGroup,
    PutGroup,
    PatchGroup,
    DeleteGroup,
    PauseGroup,
    ResumeGroup,
    ResetGroup,
    GetOffsets,
    PutOffsets,
    ListDead,
    Redrive,
    GetRedrive,
    Purge,
    Drain,
    GetDrain,
    GetLevels,
    PutLevels,
    Prepare,
    ListTransactions,
    GetTransaction,
    Commit,
    Rollback,
    ResumeTransaction,
    Checks,
    Audit,
    Time,
    AdvanceTime,
    Live,
    ReadyNow,
    Metrics,
}

struct Route {
    method: Method,
    path: &'static str,
    permission: Permission,
    operation: Operation,
}

const fn route(
    method: Method,
    path: &'static str,
    permission: Permission,
    operation: Operation,
) -> Route {
    Route { method, path, permission, operation }
}

#[rustfmt::skip]
const ROUTES: &[Route] = &[
    route(Method::POST,   "/v1/topics/{topic}/messages",                                 Permission::Send,    Operation::Schedule),
    route(Method::POST,   "/v1/topics/{topic}/publish",                                  Permission::Send,    Operation::Publish),
    route(Method::GET,    "/v1/topics/{topic}/messages/{id}",                            Permission::Read,    Operation::GetMessage),
    route(Method::DELETE, "/v1/topics/{topic}/messages/{id}",                            Permission::Cancel,  Operation::CancelMessage),
    route(Method::PATCH,  "/v1/topics/{topic}/messages/{id}",                            Permission::Change,  Operation::PatchMessage),
    route(Method::POST,   "/v1/topics/{topic}/messages/{id}/deliver",                    Permission::Change,  Operation::DeliverMessage),
    route(Method::GET,    "/v1/messages/{id}",                                           Permission::Read,    Operation::GetMessage),
    route(Method::DELETE, "/v1/messages/{id}",                                           Permission::Cancel,  Operation::CancelMessage),
    route(Method::PATCH,  "/v1/messages/{id}",                                           Permission::Change,  Operation::PatchMessage),
    route(Method::POST,   "/v1/messages/{id}/deliver",                                   Permission::Change,  Operation::DeliverMessage),
    route(Method::GET,    "/v1/topics/{topic}/scheduled",                                Permission::Read,    Operation::ListScheduled),
    route(Method::POST,   "/v1/topics/{topic}/scheduled/cancel",                         Permission::Manage,  Operation::CancelMany),
    route(Method::POST,   "/v1/topics/{topic}/scheduled/reschedule",                     Permission::Manage,  Operation::RescheduleMany),
    route(Method::POST,   "/v1/topics/{topic}/scheduled/deliver",                        Permission::Manage,  Operation::DeliverMany),
    route(Method::POST,   "/v1/topics/{topic}/scheduled/pause",                          Permission::Manage,  Operation::PauseMany),
    route(Method::POST,   "/v1/topics/{topic}/scheduled/resume",                         Permission::Manage,  Operation::ResumeMany),
    route(Method::GET,    "/v1/topics/{topic}/scheduled/jobs",                           Permission::See,     Operation::ListJobs),
    route(Method::GET,    "/v1/topics/{topic}/scheduled/jobs/{job}",                     Permission::See,     Operation::GetJob),
    route(Method::DELETE, "/v1/topics/{topic}/scheduled/jobs/{job}",                     Permission::Manage,  Operation::StopJob),
    route(Method::GET,    "/v1/topics/{topic}/series",                                   Permission::Read,    Operation::ListSeries),
    route(Method::GET,    "/v1/topics/{topic}/forecast",                                 Permission::Read,    Operation::Forecast),
    route(Method::GET,    "/v1/topics/{topic}/export",                                   Permission::Read,    Operation::Export),
    route(Method::POST,   "/v1/topics/{topic}/import",                                   Permission::Send,    Operation::Import),
    route(Method::GET,    "/v1/topics/{topic}/partitions/{partition}/messages",          Permission::Read,    Operation::ReadPartition),
    route(Method::GET,    "/v1/topics",                                                  Permission::See,     Operation::ListTopics),
    route(Method::GET,    "/v1/topics/{topic}",                                          Permission::See,     Operation::GetTopic),
    route(Method::PUT,    "/v1/topics/{topic}",                                          Permission::Manage,  Operation::PutTopic),
    route(Method::PATCH,  "/v1/topics/{topic}",                                          Permission::Manage,  Operation::PatchTopic),
    route(Method::DELETE, "/v1/topics/{topic}",                                          Permission::Manage,  Operation::DeleteTopic),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/receive",                   Permission::Consume, Operation::Receive),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/ack",                       Permission::Consume, Operation::Ack),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/nack",                      Permission::Consume, Operation::Nack),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/extend",                    Permission::Consume, Operation::Extend),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/retry",                     Permission::Consume, Operation::Retry),
    route(Method::GET,    "/v1/groups",                                                  Permission::See,     Operation::ListGroups),
    route(Method::GET,    "/v1/topics/{topic}/groups",                                   Permission::See,     Operation::ListGroups),
    route(Method::GET,    "/v1/topics/{topic}/groups/{group}",                           Permission::See,     Operation::GetGroup),
    route(Method::PUT,    "/v1/topics/{topic}/groups/{group}",                           Permission::Manage,  Operation::PutGroup),
    route(Method::PATCH,  "/v1/topics/{topic}/groups/{group}",                           Permission::Manage,  Operation::PatchGroup),
    route(Method::DELETE, "/v1/topics/{topic}/groups/{group}",                           Permission::Manage,  Operation::DeleteGroup),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/pause",                     Permission::Manage,  Operation::PauseGroup),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/resume",                    Permission::Manage,  Operation::ResumeGroup),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/reset",                     Permission::Manage,  Operation::ResetGroup),
    route(Method::GET,    "/v1/topics/{topic}/groups/{group}/offsets",                   Permission::See,     Operation::GetOffsets),
    route(Method::PUT,    "/v1/topics/{topic}/groups/{group}/offsets",                   Permission::Consume, Operation::PutOffsets),
    route(Method::GET,    "/v1/topics/{topic}/groups/{group}/dead",                      Permission::Read,    Operation::ListDead),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/dead/redrive",              Permission::Manage,  Operation::Redrive),
    route(Method::GET,    "/v1/topics/{topic}/groups/{group}/dead/redrive/{job}",        Permission::See,     Operation::GetRedrive),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/dead/purge",                Permission::Manage,  Operation::Purge),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/drain",                     Permission::Manage,  Operation::Drain),
    route(Method::GET,    "/v1/topics/{topic}/groups/{group}/drain/{job}",               Permission::See,     Operation::GetDrain),
    route(Method::GET,    "/v1/levels",                                                  Permission::See,     Operation::GetLevels),
    route(Method::PUT,    "/v1/levels",                                                  Permission::Manage,  Operation::PutLevels),
    route(Method::POST,   "/v1/transactions",                                            Permission::Send,    Operation::Prepare),
    route(Method::GET,    "/v1/transactions",                                            Permission::Read,    Operation::ListTransactions),
    route(Method::GET,    "/v1/transactions/{id}",                                       Permission::Read,    Operation::GetTransaction),
    route(Method::POST,   "/v1/transactions/{id}/commit",                                Permission::Send,    Operation::Commit),
    route(Method::POST,   "/v1/transactions/{id}/rollback",                              Permission::Send,    Operation::Rollback),
    route(Method::POST,   "/v1/transactions/{id}/resume",                                Permission::Manage,  Operation::ResumeTransaction),
    route(Method::POST,   "/v1/producer-groups/{group}/checks",                          Permission::Send,    Operation::Checks),
    route(Method::GET,    "/v1/audit",                                                   Permission::Audit,   Operation::Audit),
    route(Method::GET,    "/v1/time",                                                    Permission::See,     Operation::Time),
    route(Method::POST,   "/v1/time/advance",                                            Permission::Manage,  Operation::AdvanceTime),
    route(Method::GET,    "/health/live",                                                Permission::Anybody, Operation::Live),
    route(Method::GET,    "/health/ready",                                               Permission::Anybody, Operation::ReadyNow),
    route(Method::GET,    "/metrics",                                                    Permission::Observe, Operation::Metrics),
];

/// A request on its way to its handler.
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) parts: Parts,
    pub(crate) body: Incoming,
    /// The other side, where somebody has to look whether it is still there.
    pub(crate) peer: Option<Peer>,
    asker: Asker,
    place: Place,
}

/// Where in the path the captured parts are, as byte ranges.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    topic: Option<(usize, usize)>,
    group: Option<(usize, usize)>,
    job: Option<(usize, usize)>,
    id: Option<(usize, usize)>,
    partition: Option<(usize, usize)>,
}

impl Call {
    fn part(&self, range: (usize, usize)) -> Result<Cow<'_, str>, Problem> {
        decode_path(self.parts.uri.path().get(range.0..range.1).unwrap_or_default())
    }

    /// The topic of the path; `None` on a route without one.
    pub(crate) fn topic(&self) -> Result<Option<TopicName>, Problem> {
        let Some(range) = self.place.topic else {
            return Ok(None);
        };
        let illegal = |detail: String| Problem::new(Code::InvalidTopicName, detail);
        let text = self.part(range).map_err(|problem| illegal(problem.detail.into_owned()))?;
        TopicName::new(&text).map(Some).map_err(|error| illegal(error.to_string()))
    }

    /// The topic of the path, on a route that has one.
    pub(crate) fn topic_named(&self) -> Result<TopicName, Problem> {
        self.topic()?.ok_or_else(|| Code::InvalidTopicName.into())
    }

    /// The topic and the group of the path.
    pub(crate) fn group_named(&self) -> Result<(TopicName, GroupName), Problem> {
        Ok((self.topic_named()?, self.producer_group()?))
    }

    /// The producer group of the path.
    pub(crate) fn producer_group(&self) -> Result<GroupName, Problem> {
        let illegal = |detail: String| Problem::new(Code::InvalidGroupName, detail);
        let text = self.part(self.place.group.unwrap_or_default());
        let text = text.map_err(|problem| illegal(problem.detail.into_owned()))?;
        GroupName::new(&text).map_err(|error| illegal(error.to_string()))
    }

    /// Who asks, for the record.
    pub(crate) const fn asker(&self) -> Asker {
        self.asker
    }

    /// The job of the path. What is not an id of ours names no job.
    pub(crate) fn job<T: FromStr>(&self) -> Result<T, Problem> {
        let text = self.part(self.place.job.unwrap_or_default());
        text.ok().and_then(|text| text.parse().ok()).ok_or_else(|| Code::JobNotFound.into())
    }

    /// The message of the path. What is not an id of ours names no message.
    pub(crate) fn id(&self) -> Result<MessageId, Problem> {
        let id = self.id_text().and_then(|text| text.parse().ok());
        id.ok_or_else(|| Code::NotFound.into())
    }

    /// What the path calls the message; `None` where it is no text.
    pub(crate) fn id_text(&self) -> Option<Cow<'_, str>> {
        self.part(self.place.id.unwrap_or_default()).ok()
    }

    /// The partition of the path.
    pub(crate) fn partition(&self) -> Result<u16, Problem> {
        let text = self.part(self.place.partition.unwrap_or_default())?;
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten();
        number.ok_or_else(|| Code::NoSuchPartition.into())
    }

    /// The query string.
    pub(crate) fn query(&self) -> Option<&str> {
        self.parts.uri.query()
    }
}

/// The table, prepared for matching.
pub(crate) struct Router {
    patterns: Vec<(Vec<&'static str>, &'static Route)>,
}

enum Match {
    Found(&'static Route, Place),
    OtherMethods(String),
    Nothing,
}

impl Router {
    pub(crate) fn new() -> Self {
        let split = |route: &'static Route| (route.path.split('/').skip(1).collect(), route);
        Self { patterns: ROUTES.iter().map(split).collect() }
    }

    fn find(&self, method: &Method, path: &str) -> Match {
        // A HEAD is a GET whose answer is not sent.
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let mut others = String::new();
        for (pattern, route) in &self.patterns {
            let Some(place) = place(pattern, path) else {
                continue;
            };
            if route.method == *method {
                return Match::Found(route, place);
            }
            if !others.is_empty() {
                others.push_str(", ");
            }
            others.push_str(route.method.as_str());
        }
        if others.is_empty() { Match::Nothing } else { Match::OtherMethods(others) }
    }
}

/// Where the captured parts are, if the path fits the pattern.
fn place(pattern: &[&str], path: &str) -> Option<Place> {
    let mut place = Place::default();
    let mut parts = path.strip_prefix('/')?.split('/');
    let mut start = 1;
    for expected in pattern {
        let part = parts.next()?;
        let range = Some((start, start + part.len()));
        match *expected {
            "{topic}" => place.topic = range,
            "{group}" => place.group = range,
            "{job}" => place.job = range,
            "{id}" => place.id = range,
            "{partition}" => place.partition = range,
            word if word == part => {}
            _ => return None,
        }
        start += part.len() + 1;
    }
    parts.next().is_none().then_some(place)
}

/// Answers a request, whatever it is.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    other_side: (Option<Peer>, SocketAddr),
) -> Reply {
    let wants_head_only = request.method() == Method::HEAD;
    let reply = answer_whole(shared, request, other_side).await;
    if wants_head_only { reply::without_body(reply) } else { reply }
}

async fn answer_whole(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    (peer, from): (Option<Peer>, SocketAddr),
) -> Reply {
    let (parts, body) = request.into_parts();
    if let Err(refusal) = shared.hosts.check(&parts.method, &parts.uri, &parts.headers) {
        return problem::reply(&refusal);
    }
    match shared.router.find(&parts.method, parts.uri.path()) {
        Match::Found(route, place) => {
            let caller = Caller::Local;
            if let Err(refusal) = caller.require(route.permission) {
                return problem::reply(&refusal);
            }
            let asker = Asker::new(caller, from);
            let call = Call { shared, parts, body, peer, asker, place };
            let outcome = handle(route.operation, call).await;
            outcome.unwrap_or_else(|refusal| problem::reply(&refusal))
        }
        Match::OtherMethods(methods) => {
            let mut reply = problem::reply(&Code::MethodNotAllowed.into());
            let methods = HeaderValue::from_str(&methods).expect("methods are plain words");
            reply.headers_mut().insert(ALLOW, methods);
            reply
        }
        Match::Nothing => problem::reply(&Code::RouteNotFound.into()),
    }
}

async fn handle(operation: Operation, call: Call) -> Result<Reply, Problem> {
    match operation {
        Operation::Schedule => messages::schedule(call).await,
        Operation::Publish => messages::publish(call).await,
        Operation::GetMessage => messages::get(call).await,
        Operation::CancelMessage => messages::cancel(call).await,
        Operation::PatchMessage => messages::patch(call).await,
        Operation::DeliverMessage => messages::deliver(call).await,
        Operation::ListScheduled => pending::scheduled(call).await,
        Operation::CancelMany => bulk::start(call, bulk::Verb::Cancel).await,
        Operation::RescheduleMany => bulk::start(call, bulk::Verb::Reschedule).await,
        Operation::DeliverMany => bulk::start(call, bulk::Verb::Deliver).await,
        Operation::PauseMany => bulk::start(call, bulk::Verb::Pause).await,
        Operation::ResumeMany => bulk::start(call, bulk::Verb::Resume).await,
        Operation::ListJobs => bulk::list(call).await,
        Operation::GetJob => bulk::get(call).await,
        Operation::StopJob => bulk::stop(call).await,
        Operation::ListSeries => pending::series(call).await,
        Operation::Forecast => pending::forecast(call).await,
        Operation::Export => export::export(call).await,
        Operation::Import => import::import(call).await,
        Operation::ReadPartition => topics::read_partition(call).await,
        Operation::ListTopics => topics::list(call).await,
        Operation::GetTopic => topics::get(call).await,
        Operation::PutTopic => topics::put(call).await,
        Operation::PatchTopic => topics::patch(call).await,
        Operation::DeleteTopic => topics::delete(call).await,
        Operation::Receive => receive::receive(call).await,
        Operation::Ack => consume::ack(call).await,
        Operation::Nack => consume::nack(call).await,
        Operation::Extend => consume::extend(call).await,
        Operation::Retry => consume::retry(call).await,
        Operation::ListGroups => groups::list(call).await,
        Operation::GetGroup => groups::get(call).await,
        Operation::PutGroup => groups::put(call).await,
        Operation::PatchGroup => groups::patch(call).await,
        Operation::DeleteGroup => groups::delete(call).await,
        Operation::PauseGroup => groups::pause(call).await,
        Operation::ResumeGroup => groups::resume(call).await,
        Operation::ResetGroup => groups::reset(call).await,
        Operation::GetOffsets => groups::offsets(call).await,
        Operation::PutOffsets => groups::commit(call).await,
        Operation::ListDead => dead::list(call).await,
        Operation::Redrive => dead::redrive(call).await,
        Operation::GetRedrive => dead::job(call, JobKind::Redrive).await,
        Operation::Purge => dead::purge(call).await,
        Operation::Drain => dead::drain(call).await,
        Operation::GetDrain => dead::job(call, JobKind::Drain).await,
        Operation::GetLevels => levels::get(call).await,
        Operation::PutLevels => levels::put(call).await,
        Operation::Prepare => transactions::prepare(call).await,
        Operation::ListTransactions => transactions::list(call).await,
        Operation::GetTransaction => transactions::get(call).await,
        Operation::Commit => transactions::decide(call, transactions::Verb::Commit).await,
        Operation::Rollback => transactions::decide(call, transactions::Verb::Rollback).await,
        Operation::ResumeTransaction => {
            transactions::decide(call, transactions::Verb::Resume).await
        }
        Operation::Checks => transactions::checks(call).await,
        Operation::Audit => audit::list(call).await,
        Operation::Time => clock::show(call).await,
        Operation::AdvanceTime => clock::advance(call).await,
        Operation::Live => Ok(health::live()),
        Operation::ReadyNow => health::ready(&call),
        Operation::Metrics => metrics::show(call).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_health_is_open_to_anybody() {
        for route in ROUTES {
            let open = route.permission == Permission::Anybody;
            assert_eq!(open, route.path.starts_with("/health/"), "{}", route.path);
        }
    }

    #[test]
    fn what_changes_something_needs_a_right_to_change() {
        for route in ROUTES.iter().filter(|route| !route.method.is_safe()) {
            let changes = matches!(
                route.permission,
                Permission::Send
                    | Permission::Cancel
                    | Permission::Change
                    | Permission::Consume
                    | Permission::Manage
            );
            assert!(changes, "{} {}", route.method, route.path);
        }
    }

    #[test]
    fn no_route_hides_another() {
        let router = Router::new();
        for route in ROUTES {
            match router.find(&route.method, route.path) {
                Match::Found(found, _) => assert_eq!(found.path, route.path),
                _ => panic!("{} is not found", route.path),
            }
        }
    }

    #[test]
    fn paths_that_fit_nothing() {
        let router = Router::new();
        for path in ["/", "", "*", "/v1", "/v1/topics/", "/v1/topics/a/messages/b/c", "//v1/topics"]
        {
            let found = router.find(&Method::PATCH, path);
            let nothing = matches!(found, Match::Nothing);
            assert!(nothing || path == "/v1/topics/", "{path}");
        }
    }
}
