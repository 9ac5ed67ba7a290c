//! What the document says about one operation, put together piece by piece.

use http::StatusCode;
use punctual_api::Code;
use punctual_api::schema::{Schema, named, text};
use serde_json::{Value, json};

/// What the document says about an operation. Its path, its permission, and the codes that follow
/// from those are added where it is written.
#[derive(Debug)]
pub(crate) struct Described {
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    pub(super) detail: &'static str,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<RequestBody>,
    pub(super) answers: Vec<Answer>,
    pub(super) codes: Vec<Code>,
    /// Whether what is answered has a tag.
    pub(super) has_tag: bool,
    /// A shape that refusals of the handler have beside a problem.
    pub(super) refusal: Option<&'static str>,
}

/// A parameter of the query or a header.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: &'static str,
    pub(super) schema: Schema,
}

/// What may be sent.
#[derive(Debug)]
pub(super) struct RequestBody {
    pub(super) required: bool,
    /// By media type.
    pub(super) content: Vec<(&'static str, Schema)>,
}

/// What may be answered, if all goes well.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) words: &'static str,
    /// By media type.
    pub(super) content: Vec<(&'static str, Schema)>,
    pub(super) links: Vec<(&'static str, Value)>,
}

/// The type of JSON.
pub(super) const JSON: &str = "application/json";

impl Described {
    /// An operation of that part of the document, in a line.
    pub(super) const fn new(tag: &'static str, summary: &'static str) -> Self {
        Self {
            tag,
            summary,
            detail: "",
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
            codes: Vec::new(),
            has_tag: false,
            refusal: None,
        }
    }

    /// What else there is to say.
    pub(super) const fn detail(mut self, words: &'static str) -> Self {
        self.detail = words;
        self
    }

    /// A parameter of the query.
    pub(super) fn query(mut self, name: &'static str, schema: Schema) -> Self {
        self.parameters.push(Parameter { name, place: "query", schema });
        self
    }

    /// A header of the request.
    pub(super) fn header(mut self, name: &'static str, schema: Schema) -> Self {
        self.parameters.push(Parameter { name, place: "header", schema });
        self
    }

    /// Its answers have a tag, and one that the caller knows need not be sent again.
    pub(super) fn tagged(mut self) -> Self {
        self.has_tag = true;
        self.header("If-None-Match", tags().about("What the caller has, by its ETag."))
            .answers_content(StatusCode::NOT_MODIFIED, "The caller has it.", Vec::new())
            .refused(&[Code::InvalidRequest])
    }

    /// It can be bound to what the caller has seen.
    pub(super) fn conditional(self) -> Self {
        self.header("If-Match", tags().about("Only if its ETag is still this one."))
            .refused(&[Code::InvalidRequest, Code::PreconditionFailed])
    }

    /// It takes JSON of that shape, and needs it.
    pub(super) fn takes(self, shape: &str) -> Self {
        self.takes_json(true, named(shape)).refused(JSON_BODY)
    }

    /// It takes JSON of that shape; nothing is the same as an empty object.
    pub(super) fn may_take(self, shape: &str) -> Self {
        self.takes_json(false, named(shape)).refused(JSON_BODY)
    }

    pub(super) fn takes_json(self, required: bool, schema: Schema) -> Self {
        self.takes_content(required, vec![(JSON, schema)])
    }

    /// It takes one of these, by media type.
    pub(super) fn takes_content(
        mut self,
        required: bool,
        content: Vec<(&'static str, Schema)>,
    ) -> Self {
        self.body = Some(RequestBody { required, content });
        self
    }

    /// It answers 200 with JSON of that shape.
    pub(super) fn ok(self, words: &'static str, shape: &str) -> Self {
        self.answers(StatusCode::OK, words, named(shape))
    }

    /// It answers that status with that JSON.
    pub(super) fn answers(self, status: StatusCode, words: &'static str, schema: Schema) -> Self {
        self.answers_content(status, words, vec![(JSON, schema)])
    }

    /// It answers that status with one of these, by media type.
    pub(super) fn answers_content(
        mut self,
        status: StatusCode,
        words: &'static str,
        content: Vec<(&'static str, Schema)>,
    ) -> Self {
        self.answers.push(Answer { status, words, content, links: Vec::new() });
        self
    }

    /// The last answer has a job, which others tell about.
    pub(super) fn leads_to_job(mut self, operations: &[&'static str]) -> Self {
        for operation in operations {
            self = self.leads_to(operation, "job", "/job");
            let link = self.answers.last_mut().and_then(|answer| answer.links.last_mut());
            if let Some((_, link)) = link {
                link["parameters"]["topic"] = "$request.path.topic".into();
                if *operation != "getJob" && *operation != "stopJob" {
                    link["parameters"]["group"] = "$request.path.group".into();
                }
            }
        }
        self
    }

    /// What the last answer leads to: another operation, one parameter of which is at `pointer`.
    pub(super) fn leads_to(
        mut self,
        operation: &'static str,
        parameter: &str,
        pointer: &str,
    ) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            let from = format!("$response.body#{pointer}");
            let link = json!({"operationId": operation, "parameters": {parameter: from}});
            answer.links.push((operation, link));
        }
        self
    }

    /// It may refuse with these codes.
    pub(super) fn refused(mut self, codes: &[Code]) -> Self {
        self.codes.extend_from_slice(codes);
        self
    }
}

/// Tags as they stand in a header.
fn tags() -> Schema {
    text().pattern("^(\\*|(W/)?\"[!#-~]*\")$").format("entity-tag")
}

/// Refusals of a JSON body as such.
pub(super) const JSON_BODY: &[Code] = &[
    Code::InvalidJson,
    Code::InvalidRequest,
    Code::UnknownField,
    Code::DuplicateField,
    Code::InvalidField,
    Code::ConflictingFields,
    Code::UnsupportedMediaType,
    Code::UnsupportedEncoding,
    Code::RequestTooLarge,
    Code::RequestTimeout,
];
/// Refusals of a query.
pub(super) const QUERY: &[Code] =
    &[Code::UnknownField, Code::DuplicateField, Code::InvalidParameter];
/// Refusals of the store.
pub(super) const STORE: &[Code] =
    &[Code::TooBusy, Code::StorageFull, Code::Unavailable, Code::DamagedData];
/// Refusals of what a message holds.
pub(super) const CONTENT: &[Code] = &[
    Code::InvalidBase64,
    Code::TooManyHeaders,
    Code::HeadersTooLarge,
    Code::KeyTooLarge,
    Code::BodyTooLarge,
];
/// Refusals of a time.
pub(super) const WHEN: &[Code] = &[
    Code::InvalidDelay,
    Code::InvalidTime,
    Code::DelayTooLong,
    Code::DueOutOfRange,
    Code::UnknownLevel,
];
/// Refusals of a window of time.
pub(super) const WINDOW: &[Code] = &[Code::InvalidTime, Code::DueOutOfRange];
/// Refusals of a whole message.
pub(super) const MESSAGE: &[Code] = &[
    Code::MissingBody,
    Code::NoSuchPartition,
    Code::InvalidId,
    Code::ReservedId,
    Code::InvalidRepeat,
    Code::IntervalTooShort,
    Code::InvalidCron,
    Code::UnknownZone,
    Code::CronNeverFires,
    Code::EndsBeforeFirst,
    Code::InvalidCatchUp,
    Code::IdConflict,
    Code::TopicNotFound,
    Code::TooManyTopics,
    Code::ReservedTopic,
    Code::BacklogFull,
    Code::BatchTooLarge,
];
/// Refusals of whatever is taken down before it happens.
pub(super) const RECORD: &[Code] = &[Code::AuditFailed];
