//! A server that wants to know who asks, and callers with and without rights.

use std::io::Write;
use std::net::TcpStream;

use punctual_server::rules::RouteRule;
use serde_json::{Value, json};

use crate::support::{Answer, Server, read_answer};

/// Whoever asks without saying who they are.
pub(crate) const NOBODY: &str = "";

/// The token of the administrator, from its file.
pub(crate) fn admin_token(server: &Server) -> String {
    let file = server.data().join("admin-token");
    std::fs::read_to_string(file).expect("the token is in its file").trim_end().to_owned()
}

/// Someone who asks, on a connection that is kept.
pub(crate) struct Client<'a> {
    server: &'a Server,
    token: String,
    stream: Option<TcpStream>,
}

impl<'a> Client<'a> {
    pub(crate) fn new(server: &'a Server, token: &str) -> Self {
        Self { server, token: token.to_owned(), stream: None }
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let token = match self.token.is_empty() {
            true => String::new(),
            false => format!("authorization: Bearer {}\r\n", self.token),
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{token}content-length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        // A connection that the server has closed meanwhile is not an answer.
        for _ in 0..3 {
            let server = self.server;
            let stream = self.stream.get_or_insert_with(|| server.connect());
            let sent = stream.write_all(request.as_bytes()).is_ok();
            let answer = read_answer(stream);
            if sent && answer.status != 0 {
                if answer.head.to_lowercase().contains("connection: close") {
                    self.stream = None;
                }
                return answer;
            }
            self.stream = None;
        }
        panic!("{method} {path} is not answered")
    }

    pub(crate) fn json(&mut self, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.ask(method, path, "content-type: application/json\r\n", &body)
    }

    /// The same, which must be granted.
    pub(crate) fn done(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.json(method, path, body);
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.body);
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    }

    /// Makes an app; its token.
    pub(crate) fn create(&mut self, key: &str, permissions: &Value, quotas: &Value) -> String {
        let app = json!({"key": key, "permissions": permissions, "quotas": quotas});
        let made = self.done("POST", "/v1/apps", &app);
        made["token"].as_str().expect("a token").to_owned()
    }
}

/// An answer without what differs from one to the next.
pub(crate) fn comparable(answer: &Answer) -> String {
    let varies = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        !["date", "x-request-id"].contains(&name.as_str())
    };
    let head: Vec<&str> = answer.head.lines().filter(varies).collect();
    format!("{}\n\n{}", head.join("\n"), answer.body)
}

/// Verbs on topics and groups.
pub(crate) const PARTIAL: [&str; 7] =
    ["send", "read", "cancel", "change", "consume", "see", "manage"];
/// Verbs on the whole broker.
pub(crate) const WHOLE: [&str; 3] = ["observe", "audit", "admin"];
/// Somebody who asks, and what was granted.
pub(crate) struct Visitor {
    pub(crate) name: String,
    pub(crate) token: String,
    /// The verb it has on its own, on everything, or none.
    pub(crate) verb: Option<&'static str>,
    pub(crate) everywhere: bool,
}

impl Visitor {
    /// Whether the rule lets it ask there.
    pub(crate) fn may(&self, rule: &RouteRule, topic_own: bool, group_own: bool) -> bool {
        if rule.scope == "open" || self.name == "admin" {
            return true;
        }
        if self.verb != Some(rule.verb) {
            return false;
        }
        match rule.scope {
            "whole" => self.everywhere,
            "anything" | "content" => true,
            "topic" => self.everywhere || topic_own,
            "group" => self.everywhere || (topic_own && group_own),
            "producer_group" => self.everywhere || group_own,
            // A topic that is named must be their own; what an id stands for is not known yet.
            "found" | "visible" => self.everywhere || topic_own || !rule.path.contains("{topic}"),
            other => panic!("nobody has thought about {other}"),
        }
    }
}

pub(crate) fn visitors(server: &Server) -> Vec<Visitor> {
    let admin = admin_token(server);
    let mut visitors = vec![Visitor {
        name: "admin".to_owned(),
        token: admin.clone(),
        verb: None,
        everywhere: true,
    }];
    let mut client = Client::new(server, &admin);
    let mut add = |name: String, verb: Option<&'static str>, everywhere: bool| {
        let (topics, groups) = if everywhere { ("*", "*") } else { ("own.*", "own-*") };
        let permissions = match verb {
            Some(verb) => json!([{"topics": topics, "groups": groups, "verbs": [verb]}]),
            None => json!([]),
        };
        let token = client.create(&name, &permissions, &json!({}));
        visitors.push(Visitor { name, token, verb, everywhere });
    };
    add("without-rights".to_owned(), None, false);
    for verb in PARTIAL {
        add(format!("own-{verb}"), Some(verb), false);
        add(format!("all-{verb}"), Some(verb), true);
    }
    for verb in WHOLE {
        add(format!("all-{verb}"), Some(verb), true);
    }
    visitors
}

pub(crate) fn world() -> Server {
    let server = Server::with(&[("auth.enabled", "true"), ("store.durability", "os")]);
    let mut admin = Client::new(&server, &admin_token(&server));
    for topic in ["own.t", "foreign.t"] {
        admin.done("PUT", &format!("/v1/topics/{topic}"), &Value::Null);
        for group in ["own-g", "foreign-g"] {
            admin.done("PUT", &format!("/v1/topics/{topic}/groups/{group}"), &Value::Null);
        }
    }
    server
}

/// Whether the request got past the gate.
pub(crate) fn let_in(answer: &Answer) -> bool {
    match answer.status {
        401 => {
            assert_eq!(answer.code(), "unauthenticated");
            assert!(answer.head.contains("www-authenticate: Bearer"), "{}", answer.head);
            false
        }
        403 => {
            // The answer to a HEAD has no body.
            assert!(answer.body.is_empty() || answer.code() == "forbidden", "{}", answer.body);
            false
        }
        _ => true,
    }
}
