//! Talks to the server over its public HTTP API.
//!
//! The token goes to the server that was named and to nobody else: redirects are not followed,
//! proxies of the environment are not used, and it is in no error and no debug output.

mod tls;

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;
use ureq::Agent;
use ureq::RequestBuilder;
use ureq::http::header::{AUTHORIZATION, HeaderValue};
use ureq::http::{Response, StatusCode};

use crate::args::ClientOptions;

/// Longest time for a connection to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time for a call that waits for messages: the longest wait, and an answer.
const WAITING_CALL_TIMEOUT: Duration = Duration::from_secs(90);
/// Largest answer taken: a page of the largest messages.
const ANSWER_BYTES_MAX: u64 = 8 << 30;

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";

/// A server to talk to.
pub(crate) struct Client {
    agent: Agent,
    server: String,
    token: Option<HeaderValue>,
}

impl Client {
    pub(crate) fn new(options: &ClientOptions) -> anyhow::Result<Self> {
        let server = options.server.trim_end_matches('/').to_owned();
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("punctual/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(CALL_TIMEOUT));
        if is_tls(&server) {
            config = config.tls_config(tls::config(&options.tls)?);
        } else if !has_scheme(&server, "http://") {
            bail!("the server is written http://HOST:PORT or https://HOST:PORT, not {server:?}");
        }
        // An empty variable is none.
        let token = options.token.as_ref().map(|token| token.reveal().trim());
        let token = token.filter(|token| !token.is_empty()).map(bearer).transpose()?;
        Ok(Self { agent: config.build().into(), server, token })
    }

    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.read(path, self.signed(self.agent.get(self.url(path))).call())
    }

    pub(crate) fn delete(&self, path: &str) -> anyhow::Result<Value> {
        self.read(path, self.signed(self.agent.delete(self.url(path))).call())
    }

    pub(crate) fn post(&self, path: &str, json: &Value) -> anyhow::Result<Value> {
        let request = self.signed(self.agent.post(self.url(path))).content_type(JSON);
        self.read(path, request.send(json.to_string()))
    }

    /// A call whose answer may be long in coming.
    pub(crate) fn post_waiting(&self, path: &str, json: &Value) -> anyhow::Result<Value> {
        let request = self.signed(self.agent.post(self.url(path))).content_type(JSON);
        let request = request.config().timeout_global(Some(WAITING_CALL_TIMEOUT)).build();
        self.read(path, request.send(json.to_string()))
    }

    pub(crate) fn patch(&self, path: &str, json: &Value) -> anyhow::Result<Value> {
        let request = self.signed(self.agent.patch(self.url(path))).content_type(JSON);
        self.read(path, request.send(json.to_string()))
    }

    pub(crate) fn put(&self, path: &str, json: &Value) -> anyhow::Result<Value> {
        let request = self.signed(self.agent.put(self.url(path))).content_type(JSON);
        self.read(path, request.send(json.to_string()))
    }

    /// Lines of JSON, as they are.
    pub(crate) fn get_lines(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let (status, body) = self.body(self.signed(self.agent.get(self.url(path))).call())?;
        if status.is_success() { Ok(body) } else { Err(self.refused(path, status, &body)) }
    }

    pub(crate) fn post_lines(&self, path: &str, lines: Vec<u8>) -> anyhow::Result<Value> {
        let request = self.signed(self.agent.post(self.url(path))).content_type(NDJSON);
        self.read(path, request.send(lines))
    }

    /// Where it is.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    fn signed<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, token),
            None => request,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server)
    }

    fn read(
        &self,
        path: &str,
        answer: Result<Response<ureq::Body>, ureq::Error>,
    ) -> anyhow::Result<Value> {
        let (status, body) = self.body(answer)?;
        let json: Option<Value> = serde_json::from_slice(&body).ok();
        match json {
            Some(json) if status.is_success() => Ok(json),
            // A delete may have nothing to say.
            None if status == StatusCode::NO_CONTENT => Ok(Value::Object(serde_json::Map::new())),
            _ => Err(self.refused(path, status, &body)),
        }
    }

    fn body(
        &self,
        answer: Result<Response<ureq::Body>, ureq::Error>,
    ) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        let mut answer = answer.with_context(|| format!("no answer from {}", self.server))?;
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok((status, body))
    }

    fn refused(&self, path: &str, status: StatusCode, body: &[u8]) -> anyhow::Error {
        let problem: Value = serde_json::from_slice(body).unwrap_or_default();
        if problem["code"].is_string() {
            return Refusal::new(&problem, status.as_u16(), path).into();
        }
        anyhow!("{} does not answer as a server of punctual: {status}", self.server)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the token.
        f.debug_struct("Client").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Whether the server is spoken to over TLS.
pub(crate) fn is_tls(server: &str) -> bool {
    has_scheme(server, "https://")
}

fn has_scheme(server: &str, scheme: &str) -> bool {
    server.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
}

fn bearer(token: &str) -> anyhow::Result<HeaderValue> {
    // What is wrong with it is not said by showing it.
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_shows_it| anyhow!("the token has letters that none has"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// What the server said about why.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) detail: String,
    pub(crate) code: String,
    status: u16,
    /// What was asked for.
    pub(crate) path: String,
}

impl Refusal {
    fn new(problem: &Value, status: u16, path: &str) -> Self {
        let text = |name: &str| crate::output::field(problem, name);
        Self { detail: text("detail"), code: text("code"), status, path: path.to_owned() }
    }

    /// Whether the same request may succeed later.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self.status, 408 | 429 | 503 | 507)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.detail, self.code)
    }
}

impl std::error::Error for Refusal {}

/// A part of a path or a query, escaped.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~') {
            escaped.push(char::from(byte));
        } else if byte == b'.' && !matches!(text, "." | "..") {
            escaped.push('.');
        } else {
            write!(escaped, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Arguments;

    fn client(arguments: &[&str]) -> anyhow::Result<Client> {
        let all = [&["punctual", "topics"], arguments].concat();
        Client::new(&Arguments::try_parse_from(all).unwrap().client)
    }

    #[test]
    fn a_token_is_never_shown() {
        let arguments = ["punctual", "topics", "--token", "KEY.SECRET"];
        let arguments = Arguments::try_parse_from(arguments).unwrap();
        let client = Client::new(&arguments.client).unwrap();
        for shown in
            [format!("{arguments:?}"), format!("{client:?}"), format!("{:?}", client.token)]
        {
            assert!(!shown.contains("SECRET"), "{shown}");
        }
        let wrong = self::client(&["--token", "SECRET\n"]).map(drop);
        assert!(wrong.is_ok(), "space around it is not part of it");
        let wrong = self::client(&["--token", "SEC\nRET"]).unwrap_err();
        assert!(!format!("{wrong:?}").contains("RET"), "{wrong:?}");
    }

    #[test]
    fn a_server_has_a_scheme() {
        for server in ["127.0.0.1:7070", "ftp://127.0.0.1", "", "é"] {
            assert!(client(&["--server", server]).is_err(), "{server}");
        }
        assert!(client(&["--server", "HTTP://127.0.0.1:7070/"]).is_ok());
    }

    #[test]
    fn a_part_of_a_path_is_escaped() {
        assert_eq!(escaped("a.b/c?"), "a.b%2Fc%3F");
        assert_eq!(escaped(".."), "%2E%2E");
    }
}
