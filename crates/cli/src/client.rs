//! Talks to the server over its public HTTP API.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde_json::Value;
use ureq::Agent;
use ureq::http::{Response, StatusCode};

/// Longest time for a connection to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time for a call that waits for messages: the longest wait, and an answer.
const WAITING_CALL_TIMEOUT: Duration = Duration::from_secs(90);
/// Largest answer taken: a page of the largest messages.
const ANSWER_BYTES_MAX: u64 = 8 << 30;

/// A server to talk to.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    server: String,
}

impl Client {
    pub(crate) fn new(server: &str) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(CALL_TIMEOUT))
            .build();
        Self { agent: config.into(), server: server.trim_end_matches('/').to_owned() }
    }

    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.read(self.agent.get(self.url(path)).call())
    }

    pub(crate) fn delete(&self, path: &str) -> anyhow::Result<Value> {
        self.read(self.agent.delete(self.url(path)).call())
    }

    pub(crate) fn post(&self, path: &str, json: &Value) -> anyhow::Result<Value> {
        let request = self.agent.post(self.url(path)).content_type("application/json");
        self.read(request.send(json.to_string()))
    }

    /// A call whose answer may be long in coming.
    pub(crate) fn post_waiting(&self, path: &str, json: &Value) -> anyhow::Result<Value> {
        let request = self.agent.post(self.url(path)).content_type("application/json");
        let request = request.config().timeout_global(Some(WAITING_CALL_TIMEOUT)).build();
        self.read(request.send(json.to_string()))
    }

    pub(crate) fn patch(&self, path: &str, json: &Value) -> anyhow::Result<Value> {
        let request = self.agent.patch(self.url(path)).content_type("application/json");
        self.read(request.send(json.to_string()))
    }

    pub(crate) fn put(&self, path: &str, json: &Value) -> anyhow::Result<Value> {
        let request = self.agent.put(self.url(path)).content_type("application/json");
        self.read(request.send(json.to_string()))
    }

    /// Lines of JSON, as they are.
    pub(crate) fn get_lines(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let (status, body) = self.body(self.agent.get(self.url(path)).call())?;
        if status.is_success() { Ok(body) } else { Err(self.refused(status, &body)) }
    }

    pub(crate) fn post_lines(&self, path: &str, lines: Vec<u8>) -> anyhow::Result<Value> {
        let request = self.agent.post(self.url(path)).content_type("application/x-ndjson");
        self.read(request.send(lines))
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server)
    }

    fn read(&self, answer: Result<Response<ureq::Body>, ureq::Error>) -> anyhow::Result<Value> {
        let (status, body) = self.body(answer)?;
        let json: Option<Value> = serde_json::from_slice(&body).ok();
        match json {
            Some(json) if status.is_success() => Ok(json),
            _ => Err(self.refused(status, &body)),
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

    fn refused(&self, status: StatusCode, body: &[u8]) -> anyhow::Error {
        let problem: Value = serde_json::from_slice(body).unwrap_or_default();
        if problem["code"].is_string() {
            return Refusal::new(&problem, status.as_u16()).into();
        }
        anyhow!("{} does not answer as a server of punctual: {status}", self.server)
    }
}

/// What the server said about why.
#[derive(Debug)]
pub(crate) struct Refusal {
    detail: String,
    pub(crate) code: String,
    status: u16,
}

impl Refusal {
    fn new(problem: &Value, status: u16) -> Self {
        let text = |name: &str| crate::output::field(problem, name);
        Self { detail: text("detail"), code: text("code"), status }
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
