//! Writes the document: every route with its description, its right and its refusals.

use std::collections::BTreeMap;

use punctual_api::schema::{self, Schema, integer, text};
use punctual_api::{Code, problem};
use serde_json::{Map, Value, json};

use super::described::{Answer, Described, JSON};
use super::{Numbers, describe};
use crate::access::{Permission, Rule, Scope};
use crate::consuming::is_refused_beside_kafka;
use crate::http::routes::{ROUTES, Route};

const INTRODUCTION: &str = "\
Punctual is a message broker that keeps time: send a message now, have it delivered at the moment you name, \
or again and again.

Times are RFC 3339 with a zone, or milliseconds since the epoch; answers have UTC with milliseconds. Durations are \
`30s`, `1h30m`, `250ms`, `PT30S`, or a number of milliseconds. In a request `null` is the same as nothing, and an \
unknown field is refused. Answers may gain fields. Every error is `application/problem+json` with a stable `code`; \
for a batch it has the `index` of what is wrong.";

/// The whole document; `is_guarded` where everybody must say who they are.
pub(super) fn document(numbers: &Numbers, is_guarded: bool) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let described = describe(route.operation, numbers);
        let place = paths.entry(route.path).or_insert_with(|| path_parameters(route, numbers));
        if let Value::Object(place) = place {
            place.insert(
                route.method.as_str().to_lowercase(),
                operation(route, &described, is_guarded),
            );
        }
    }
    let schemas = schema::components(&numbers.bounds);
    let schemas: Map<String, Value> =
        schemas.into_iter().map(|(name, schema)| (name.to_owned(), schema.into_json())).collect();
    let bearer = json!({
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "KEY.SECRET",
        "description": "The key and the secret of an app. Needed where the server has `auth.enabled`.",
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Punctual",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "A message broker that keeps time.",
            "description": INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": tags(),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": bearer},
            "headers": headers(),
        },
    })
}

fn request_id() -> Value {
    let words = "A name for the request, of visible ASCII; it is in the answer and in the log.";
    let schema = text().into_json();
    json!({"name": "X-Request-Id", "in": "header", "description": words, "schema": schema})
}

fn headers() -> Value {
    let text = text().into_json();
    let seconds = integer(1u64, u64::MAX).into_json();
    json!({
        "RequestId": {"description": "The name of the request.", "schema": text},
        "ETag": {"description": "What it is now, for `If-Match` and `If-None-Match`.", "schema": text},
        "RetryAfter": {"description": "After how many seconds to try again.", "schema": seconds},
    })
}

/// A header of an answer.
fn header(name: &str) -> Value {
    json!({"$ref": format!("#/components/headers/{name}")})
}

fn tags() -> Value {
    json!([
        {"name": "messages", "description": "Send, look at, change and cancel messages."},
        {"name": "consuming", "description": "Receive messages for a group and say what became of them."},
        {"name": "pending", "description": "What waits for its time."},
        {"name": "dead letters", "description": "What a group could not deal with."},
        {"name": "groups", "description": "Groups of consumers."},
        {"name": "topics", "description": "Topics and delay levels."},
        {"name": "transactions", "description": "Messages that count only once their sender says so."},
        {"name": "apps", "description": "Who may do what, and how much."},
        {"name": "older calls", "description": "Those of other delay servers, for services that move over."},
        {"name": "broker", "description": "What concerns the whole broker."},
        {"name": "console", "description": "The pages for people, and what only they need."},
    ])
}

/// What the path itself names, for all operations on it.
fn path_parameters(route: &Route, numbers: &Numbers) -> Value {
    let parameter = |part: &str| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        let schema = path_schema(name, numbers).into_json();
        Some(json!({"name": name, "in": "path", "required": true, "schema": schema}))
    };
    let mut parameters: Vec<Value> = route.path.split('/').filter_map(parameter).collect();
    parameters.push(request_id());
    json!({ "parameters": parameters })
}

fn path_schema(name: &str, numbers: &Numbers) -> Schema {
    match name {
        "topic" | "group" => numbers.name(),
        "partition" => integer(0u64, numbers.bounds.partitions - 1),
        _ => text().set("minLength", 1),
    }
}

fn operation(route: &Route, described: &Described, is_guarded: bool) -> Value {
    let rule = route.operation.rule();
    let mut detail = described.detail.to_owned();
    let right = right(rule);
    if !right.is_empty() {
        detail = if detail.is_empty() { right } else { format!("{detail}\n\n{right}") };
    }
    let mut object = json!({
        "operationId": operation_id(route),
        "tags": [described.tag],
        "summary": described.summary,
        "responses": responses(route, described),
        // Where nobody has to say who they are, nothing is needed.
        "security": match rule.scope {
            Scope::Open => json!([]),
            _ if is_guarded => json!([{"bearer": []}]),
            _ => json!([{"bearer": []}, {}]),
        },
    });
    let Value::Object(fields) = &mut object else { return object };
    if !detail.is_empty() {
        fields.insert("description".to_owned(), detail.into());
    }
    if !described.parameters.is_empty() {
        let parameter = |parameter: &super::described::Parameter| {
            let schema = parameter.schema.clone().into_json();
            json!({"name": parameter.name, "in": parameter.place, "schema": schema})
        };
        let parameters: Vec<Value> = described.parameters.iter().map(parameter).collect();
        fields.insert("parameters".to_owned(), parameters.into());
    }
    if let Some(body) = &described.body {
        let body = json!({"required": body.required, "content": content(&body.content)});
        fields.insert("requestBody".to_owned(), body);
    }
    object
}

/// The name of an operation at a route. Where it has several, that under a topic says so.
fn operation_id(route: &Route) -> String {
    let name = route.operation.name();
    let several = ROUTES.iter().filter(|other| other.operation == route.operation).count() > 1;
    let suffix = if several && route.path.contains("{topic}") { "InTopic" } else { "" };
    let (first, rest) = name.split_at(1);
    format!("{}{rest}{suffix}", first.to_lowercase())
}

/// The right that an operation takes, in words.
fn right(rule: Rule) -> String {
    let word = rule.permission.verb();
    let scope = match rule.scope {
        Scope::Open => return String::new(),
        Scope::Whole => "on the whole broker",
        Scope::Anything => "on anything",
        Scope::Topic => "on the topic",
        Scope::Group => "on the topic and the group",
        Scope::ProducerGroup => "for the producer group",
        Scope::Found => "on the topic of what is named; what is foreign is answered as missing",
        Scope::Content => "on the topics of the messages",
        Scope::Visible => "; what is foreign is left out",
    };
    let joint = if scope.starts_with(';') { "" } else { " " };
    format!("Takes the right `{word}`{joint}{scope}.")
}

fn content(content: &[(&'static str, Schema)]) -> Value {
    let one = |(media_type, schema): &(&'static str, Schema)| {
        ((*media_type).to_owned(), json!({"schema": schema.clone().into_json()}))
    };
    content.iter().map(one).collect::<Map<String, Value>>().into()
}

fn responses(route: &Route, described: &Described) -> Value {
    let mut responses: Map<String, Value> = Map::new();
    for answer in &described.answers {
        responses.insert(answer.status.as_str().to_owned(), success(answer, described.has_tag));
    }
    for (status, codes) in by_status(route, described) {
        responses.insert(status.to_string(), refusal(status, &codes, described.refusal));
    }
    responses.into()
}

fn success(answer: &Answer, has_tag: bool) -> Value {
    let mut response = json!({"description": answer.words});
    response["headers"]["X-Request-Id"] = header("RequestId");
    if has_tag {
        response["headers"]["ETag"] = header("ETag");
    }
    if !answer.content.is_empty() {
        response["content"] = content(&answer.content);
    }
    if let (Value::Object(fields), false) = (&mut response, answer.links.is_empty()) {
        let link = |(name, link): &(&'static str, Value)| ((*name).to_owned(), link.clone());
        let links: Map<String, Value> = answer.links.iter().map(link).collect();
        fields.insert("links".to_owned(), links.into());
    }
    response
}

fn refusal(status: u16, codes: &[Code], other: Option<&'static str>) -> Value {
    let words: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    let listed: Vec<String> =
        codes.iter().map(|code| format!("`{}`: {}", code.as_str(), code.title())).collect();
    let schema = json!({
        "$ref": "#/components/schemas/Problem",
        "properties": {"code": {"enum": words}, "status": {"const": status}},
    });
    let mut response = json!({
        "description": format!("{}.", listed.join("; ")),
        "content": {problem::MEDIA_TYPE: {"schema": schema}},
    });
    response["headers"]["X-Request-Id"] = header("RequestId");
    if let Some(shape) = other {
        response["content"][JSON] = json!({"schema": schema::named(shape).into_json()});
    }
    if codes.iter().all(|code| code.is_retriable()) {
        response["headers"]["Retry-After"] = header("RetryAfter");
    }
    response
}

/// All codes of an operation at a route, by status.
fn by_status(route: &Route, described: &Described) -> BTreeMap<u16, Vec<Code>> {
    let mut all: Vec<Code> = always(route);
    all.extend_from_slice(&described.codes);
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    // In the order of the table, each once.
    for code in Code::ALL.iter().filter(|code| all.contains(code)) {
        by_status.entry(code.status()).or_default().push(*code);
    }
    by_status
}

/// What can be refused whatever is asked there.
fn always(route: &Route) -> Vec<Code> {
    let mut codes = vec![Code::HostNotAllowed, Code::Internal, Code::TooBusy];
    if !route.method.is_safe() {
        codes.push(Code::CrossOrigin);
    }
    if route.operation.rule().permission != Permission::Anybody {
        codes.extend([Code::Forbidden, Code::Unauthenticated, Code::QuotaExceeded]);
        codes.push(Code::CrossOrigin);
        if !route.method.is_safe() || route.operation.lends_by_get() {
            codes.push(Code::Csrf);
        }
    }
    if route.path.contains("{topic}") {
        codes.push(Code::InvalidTopicName);
    }
    if route.path.contains("{group}") {
        codes.push(Code::InvalidGroupName);
    }
    if route.path.contains("{partition}") {
        codes.push(Code::InvalidParameter);
    }
    if is_refused_beside_kafka(route.operation) {
        codes.push(Code::ConsumeWithKafka);
    }
    codes
}
