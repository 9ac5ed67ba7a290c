//! Every route, in one table, and how a path finds its line.
//!
//! A route is a line of [`ROUTES`] and names its operation, which has its permission. Paths are
//! matched as they were sent; only then are the captured parts decoded, so an escaped slash never
//! moves a request to another route.

use http::Method;

use crate::access::Operation;

/// A line of the table.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) operation: Operation,
}

const fn route(method: Method, path: &'static str, operation: Operation) -> Route {
    Route { method, path, operation }
}

#[rustfmt::skip]
pub(crate) const ROUTES: &[Route] = &[
    route(Method::POST,   "/v1/topics/{topic}/messages",                                 Operation::Schedule),
    route(Method::POST,   "/v1/topics/{topic}/publish",                                  Operation::Publish),
    route(Method::GET,    "/v1/topics/{topic}/messages/{id}",                            Operation::GetMessage),
    route(Method::DELETE, "/v1/topics/{topic}/messages/{id}",                            Operation::CancelMessage),
    route(Method::PATCH,  "/v1/topics/{topic}/messages/{id}",                            Operation::PatchMessage),
    route(Method::POST,   "/v1/topics/{topic}/messages/{id}/deliver",                    Operation::DeliverMessage),
    route(Method::GET,    "/v1/messages/{id}",                                           Operation::GetMessage),
    route(Method::DELETE, "/v1/messages/{id}",                                           Operation::CancelMessage),
    route(Method::PATCH,  "/v1/messages/{id}",                                           Operation::PatchMessage),
    route(Method::POST,   "/v1/messages/{id}/deliver",                                   Operation::DeliverMessage),
    route(Method::GET,    "/v1/topics/{topic}/scheduled",                                Operation::ListScheduled),
    route(Method::POST,   "/v1/topics/{topic}/scheduled/cancel",                         Operation::CancelMany),
    route(Method::POST,   "/v1/topics/{topic}/scheduled/reschedule",                     Operation::RescheduleMany),
    route(Method::POST,   "/v1/topics/{topic}/scheduled/deliver",                        Operation::DeliverMany),
    route(Method::POST,   "/v1/topics/{topic}/scheduled/pause",                          Operation::PauseMany),
    route(Method::POST,   "/v1/topics/{topic}/scheduled/resume",                         Operation::ResumeMany),
    route(Method::GET,    "/v1/topics/{topic}/scheduled/jobs",                           Operation::ListJobs),
    route(Method::GET,    "/v1/topics/{topic}/scheduled/jobs/{job}",                     Operation::GetJob),
    route(Method::DELETE, "/v1/topics/{topic}/scheduled/jobs/{job}",                     Operation::StopJob),
    route(Method::GET,    "/v1/topics/{topic}/series",                                   Operation::ListSeries),
    route(Method::GET,    "/v1/topics/{topic}/forecast",                                 Operation::Forecast),
    route(Method::GET,    "/v1/forecast",                                                Operation::ForecastAll),
    route(Method::GET,    "/v1/topics/{topic}/export",                                   Operation::Export),
    route(Method::POST,   "/v1/topics/{topic}/import",                                   Operation::Import),
    route(Method::GET,    "/v1/topics/{topic}/partitions/{partition}/messages",          Operation::ReadPartition),
    route(Method::GET,    "/v1/topics",                                                  Operation::ListTopics),
    route(Method::GET,    "/v1/topics/{topic}",                                          Operation::GetTopic),
    route(Method::PUT,    "/v1/topics/{topic}",                                          Operation::PutTopic),
    route(Method::PATCH,  "/v1/topics/{topic}",                                          Operation::PatchTopic),
    route(Method::DELETE, "/v1/topics/{topic}",                                          Operation::DeleteTopic),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/receive",                   Operation::Receive),
    route(Method::GET,    "/v1/topics/{topic}/groups/{group}/stream",                    Operation::ReceiveStream),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/ack",                       Operation::Ack),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/nack",                      Operation::Nack),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/extend",                    Operation::Extend),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/retry",                     Operation::Retry),
    route(Method::GET,    "/v1/groups",                                                  Operation::ListGroups),
    route(Method::GET,    "/v1/topics/{topic}/groups",                                   Operation::ListGroups),
    route(Method::GET,    "/v1/topics/{topic}/groups/{group}",                           Operation::GetGroup),
    route(Method::PUT,    "/v1/topics/{topic}/groups/{group}",                           Operation::PutGroup),
    route(Method::PATCH,  "/v1/topics/{topic}/groups/{group}",                           Operation::PatchGroup),
    route(Method::DELETE, "/v1/topics/{topic}/groups/{group}",                           Operation::DeleteGroup),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/pause",                     Operation::PauseGroup),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/resume",                    Operation::ResumeGroup),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/reset",                     Operation::ResetGroup),
    route(Method::GET,    "/v1/topics/{topic}/groups/{group}/offsets",                   Operation::GetOffsets),
    route(Method::PUT,    "/v1/topics/{topic}/groups/{group}/offsets",                   Operation::PutOffsets),
    route(Method::GET,    "/v1/topics/{topic}/groups/{group}/dead",                      Operation::ListDead),
    route(Method::GET,    "/v1/topics/{topic}/groups/{group}/dead/summary",              Operation::SummarizeDead),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/dead/redrive",              Operation::Redrive),
    route(Method::GET,    "/v1/topics/{topic}/groups/{group}/dead/redrive/{job}",        Operation::GetRedrive),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/dead/purge",                Operation::Purge),
    route(Method::POST,   "/v1/topics/{topic}/groups/{group}/drain",                     Operation::Drain),
    route(Method::GET,    "/v1/topics/{topic}/groups/{group}/drain/{job}",               Operation::GetDrain),
    route(Method::GET,    "/v1/levels",                                                  Operation::GetLevels),
    route(Method::PUT,    "/v1/levels",                                                  Operation::PutLevels),
    route(Method::POST,   "/v1/transactions",                                            Operation::Prepare),
    route(Method::GET,    "/v1/transactions",                                            Operation::ListTransactions),
    route(Method::GET,    "/v1/transactions/{id}",                                       Operation::GetTransaction),
    route(Method::POST,   "/v1/transactions/{id}/commit",                                Operation::Commit),
    route(Method::POST,   "/v1/transactions/{id}/rollback",                              Operation::Rollback),
    route(Method::POST,   "/v1/transactions/{id}/resume",                                Operation::ResumeTransaction),
    route(Method::POST,   "/v1/producer-groups/{group}/checks",                          Operation::Checks),
    route(Method::POST,   "/v1/apps",                                                    Operation::CreateApp),
    route(Method::GET,    "/v1/apps",                                                    Operation::ListApps),
    route(Method::GET,    "/v1/apps/{app}",                                              Operation::GetApp),
    route(Method::PATCH,  "/v1/apps/{app}",                                              Operation::PatchApp),
    route(Method::DELETE, "/v1/apps/{app}",                                              Operation::DeleteApp),
    route(Method::POST,   "/v1/apps/{app}/rotate",                                       Operation::RotateApp),
    route(Method::POST,   "/v1/apps/{app}/disable",                                      Operation::DisableApp),
    route(Method::POST,   "/v1/apps/{app}/enable",                                       Operation::EnableApp),
    route(Method::GET,    "/v1/audit",                                                   Operation::Audit),
    route(Method::GET,    "/v1/time",                                                    Operation::Time),
    route(Method::POST,   "/v1/time/advance",                                            Operation::AdvanceTime),
    route(Method::POST,   "/delay/sendDelayMsg",                                         Operation::LegacySend),
    route(Method::POST,   "/delay/cancelDelayMsg",                                       Operation::LegacyCancel),
    route(Method::GET,    "/v1/stats",                                                   Operation::Stats),
    route(Method::GET,    "/v1/live",                                                    Operation::LiveFigures),
    route(Method::GET,    "/v1/trends",                                                  Operation::Trends),
    route(Method::GET,    "/v1/cluster",                                                 Operation::Cluster),
    route(Method::PUT,    "/v1/cluster",                                                 Operation::PutCluster),
    route(Method::GET,    "/v1/alerts",                                                  Operation::Alerts),
    route(Method::POST,   "/v1/alerts/test",                                             Operation::TestAlerts),
    route(Method::GET,    "/v1/session",                                                 Operation::GetSession),
    route(Method::POST,   "/v1/session",                                                 Operation::SignIn),
    route(Method::DELETE, "/v1/session",                                                 Operation::SignOut),
    route(Method::GET,    "/health/live",                                                Operation::Live),
    route(Method::GET,    "/health/ready",                                               Operation::ReadyNow),
    route(Method::GET,    "/metrics",                                                    Operation::Metrics),
    route(Method::GET,    "/openapi.json",                                               Operation::OpenApi),
    route(Method::GET,    "/docs",                                                       Operation::Docs),
    route(Method::GET,    "/docs/{file}",                                                Operation::DocsFile),
    route(Method::GET,    "/",                                                           Operation::Console),
    route(Method::GET,    "/assets/{file}",                                              Operation::ConsoleFile),
];

/// Where in the path the captured parts are, as byte ranges.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) topic: Option<(usize, usize)>,
    pub(crate) group: Option<(usize, usize)>,
    pub(crate) job: Option<(usize, usize)>,
    pub(crate) id: Option<(usize, usize)>,
    pub(crate) partition: Option<(usize, usize)>,
    pub(crate) app: Option<(usize, usize)>,
}

/// The table, prepared for matching.
pub(crate) struct Router {
    patterns: Vec<(Vec<&'static str>, &'static Route)>,
}

/// What a path leads to.
pub(crate) enum Match {
    Found(&'static Route, Place),
    OtherMethods(String),
    Nothing,
}

impl Router {
    pub(crate) fn new() -> Self {
        let split = |route: &'static Route| (route.path.split('/').skip(1).collect(), route);
        Self { patterns: ROUTES.iter().map(split).collect() }
    }

    /// The route of a path, or what else could be asked there.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Match {
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
            "{app}" => place.app = range,
            // Its handler looks at the path itself.
            "{file}" => {}
            word if word == part => {}
            _ => return None,
        }
        start += part.len() + 1;
    }
    parts.next().is_none().then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Permission;

    #[test]
    fn only_health_the_document_and_the_way_in_are_open_to_anybody() {
        for route in ROUTES {
            let open = route.operation.rule().permission == Permission::Anybody;
            let may_be = ["/health/", "/openapi.json", "/docs", "/v1/session", "/assets/"];
            let may_be =
                route.path == "/" || may_be.iter().any(|start| route.path.starts_with(start));
            assert_eq!(open, may_be, "{}", route.path);
        }
    }

    #[test]
    fn every_operation_has_a_route() {
        for operation in Operation::ALL {
            assert!(ROUTES.iter().any(|route| route.operation == *operation), "{operation:?}");
        }
    }

    #[test]
    fn what_changes_something_needs_a_right_to_change() {
        let ways_in = [Operation::SignIn, Operation::SignOut];
        let changing = ROUTES.iter().filter(|route| !route.method.is_safe());
        for route in changing.filter(|route| !ways_in.contains(&route.operation)) {
            let changes = matches!(
                route.operation.rule().permission,
                Permission::Send
                    | Permission::Cancel
                    | Permission::Change
                    | Permission::Consume
                    | Permission::Manage
                    | Permission::Admin
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
        for path in
            ["/x", "", "*", "/v1", "/v1/topics/", "/v1/topics/a/messages/b/c", "//v1/topics"]
        {
            let found = router.find(&Method::PATCH, path);
            let nothing = matches!(found, Match::Nothing);
            assert!(nothing || path == "/v1/topics/", "{path}");
        }
    }
}
