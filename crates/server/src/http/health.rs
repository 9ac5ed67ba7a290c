//! Whether the server lives, and whether it takes requests.

use http::StatusCode;
use punctual_api::{Code, Problem};
use serde::Serialize;

use crate::http::call::Call;
use crate::http::reply::{Reply, json};

#[derive(Serialize)]
struct Status {
    status: &'static str,
}

pub(crate) fn live() -> Reply {
    json(StatusCode::OK, &Status { status: "live" })
}

pub(crate) fn ready(call: &Call) -> Result<Reply, Problem> {
    if !call.shared.is_taking() {
        return Err(Problem::new(Code::Unavailable, "the server is ending"));
    }
    match call.shared.nodes.standing() {
        Ok(()) => Ok(json(StatusCode::OK, &Status { status: "ready" })),
        Err(why) => Err(Problem::new(Code::Unavailable, why)),
    }
}
