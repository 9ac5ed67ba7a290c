//! Signing in and out at a browser, and who is signed in.

use http::header::{CACHE_CONTROL, HeaderValue, SET_COOKIE};
use http::{Response, StatusCode};
use punctual_api::Problem;
use punctual_api::app::PermissionView;
use punctual_api::request::Parameters;
use punctual_api::session::{SessionView, read_sign_in};
use punctual_model::limits::JSON_DEPTH_MAX;
use tracing::info;

use crate::access::{AppRecord, COOKIE_NAME, Permission, SESSION_TIME, SignedIn};
use crate::consuming::Consuming;
use crate::http::apps::permission_view;
use crate::http::body::take_json;
use crate::http::call::Call;
use crate::http::reply::{Body, Reply, json};
use crate::http::shared::Shared;

/// Largest request to be let in.
const REQUEST_BYTES_MAX: usize = 4 << 10;

/// `GET /v1/session`
pub(crate) async fn show(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    let signed_in = call.shared.gate.signed_in(&call.parts.headers);
    Ok(unkept(json(StatusCode::OK, &view(&call.shared, signed_in))))
}

/// `POST /v1/session`
pub(crate) async fn sign_in(call: Call) -> Result<Reply, Problem> {
    let asker = call.asker();
    let (shared, held) = take_json(call, REQUEST_BYTES_MAX).await?;
    let token = read_sign_in(&held.bytes, JSON_DEPTH_MAX)?;
    let (text, signed_in) = shared.gate.sign_in(&token)?;
    info!(app = %signed_in.record.key, from = %asker.address(), "somebody has signed in");
    let reply = json(StatusCode::CREATED, &view(&shared, Some(signed_in)));
    Ok(with_cookie(&shared, unkept(reply), &text, SESSION_TIME.as_millis() / 1000))
}

/// `DELETE /v1/session`
pub(crate) async fn sign_out(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    call.shared.gate.sign_out(&call.parts.method, &call.parts.headers)?;
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    Ok(with_cookie(&call.shared, reply, "", 0))
}

/// No script reads the cookie, and no page of another site makes a browser send it.
fn with_cookie(shared: &Shared, mut reply: Reply, text: &str, seconds: u64) -> Reply {
    let secure = if shared.live().config.tls.is_some() { "; Secure" } else { "" };
    let cookie = format!(
        "{COOKIE_NAME}={text}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    );
    let cookie = HeaderValue::from_str(&cookie).expect("keys and seals are plain");
    reply.headers_mut().insert(SET_COOKIE, cookie);
    reply
}

fn unkept(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

fn view(shared: &Shared, signed_in: Option<SignedIn>) -> SessionView {
    let auth = shared.gate.is_enabled();
    let permissions = match &signed_in {
        Some(signed_in) => permissions(&signed_in.record),
        None if auth => Vec::new(),
        None => vec![everything()],
    };
    SessionView {
        auth,
        signed_in: !auth || signed_in.is_some(),
        app: signed_in.as_ref().map(|signed_in| signed_in.record.key.to_string()),
        permissions,
        expires_at: signed_in.as_ref().map(|signed_in| signed_in.until.to_string()),
        csrf: signed_in.map(|signed_in| signed_in.proof),
        mode: shared.nodes.mode(),
        outlet: match shared.consuming() {
            Consuming::Here => "log",
            Consuming::Kafka => "kafka",
        },
        version: env!("CARGO_PKG_VERSION"),
    }
}

fn permissions(record: &AppRecord) -> Vec<PermissionView> {
    if record.key.is_admin() {
        return vec![everything()];
    }
    record.grants.iter().map(permission_view).collect()
}

fn everything() -> PermissionView {
    let all = || "*".to_owned();
    let verbs = Permission::GRANTED.map(Permission::verb).to_vec();
    PermissionView { topics: all(), groups: Some(all()), verbs }
}
