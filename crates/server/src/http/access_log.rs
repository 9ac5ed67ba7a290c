//! One log line per request: what was asked, by whom, how it ended and how long it took.
//!
//! Written at the level debug, under a target of its own, so that `log.level = "info,access=debug"`
//! gives these lines and no others. They name the route, never the path or the query as sent, and
//! nothing of headers or bodies.

use std::borrow::Cow;

use http::Method;
use tokio::time::Instant;
use tracing::{Level, debug, enabled};

use crate::access::Caller;
use crate::http::reply::Reply;
use crate::http::request_id::RequestId;

/// What stands for the route of a request that has none.
const NO_ROUTE: &str = "(none)";
/// What stands for the caller of a request that was refused before it was known.
const NO_CALLER: &str = "(unknown)";

/// What was found out about a request on its way, if anybody wants to know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Option<Known>);

#[derive(Clone, Debug)]
struct Known {
    route: Cow<'static, str>,
    caller: Cow<'static, str>,
}

impl Seen {
    /// A request to this route.
    pub(crate) fn route(route: impl Into<Cow<'static, str>>) -> Self {
        let known = || Known { route: route.into(), caller: NO_CALLER.into() };
        Self(is_on().then(known))
    }

    /// It is this caller's.
    pub(crate) fn by(&mut self, caller: &Caller) {
        if let Some(known) = &mut self.0 {
            known.caller = caller.name();
        }
    }

    /// The answer, which knows it from now on.
    pub(crate) fn on(self, mut reply: Reply) -> Reply {
        if let Some(known) = self.0 {
            reply.extensions_mut().insert(known);
        }
        reply
    }
}

/// A request whose line is to be written.
#[derive(Debug)]
pub(crate) struct Begun(Option<(Method, Instant)>);

impl Begun {
    /// A request begins.
    pub(crate) fn new(method: &Method) -> Self {
        Self(is_on().then(|| (method.clone(), Instant::now())))
    }

    /// Its answer is on its way.
    pub(crate) fn end(self, reply: &Reply, id: &RequestId) {
        let Some((method, start)) = self.0 else { return };
        let known = reply.extensions().get::<Known>();
        let route = known.map_or(NO_ROUTE, |known| &known.route);
        let caller = known.map_or(NO_CALLER, |known| &known.caller);
        // In whole microseconds, which is all that anybody reads.
        let micros = start.elapsed().as_micros();
        let ms = f64::from(u32::try_from(micros).unwrap_or(u32::MAX)) / 1000.0;
        let status = reply.status().as_u16();
        debug!(target: "access", %method, route, status, ms, caller, request_id = %id, "answered");
    }
}

fn is_on() -> bool {
    enabled!(target: "access", Level::DEBUG)
}
