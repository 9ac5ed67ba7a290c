//! The calls of older delay servers, by which services move over without being rewritten.

use std::borrow::Cow;

use serde::Serialize;

use crate::code::Code;
use crate::problem::Problem;
use crate::repeat::{Repeat, Rule};
use crate::request::fields::Fields;
use crate::request::value::{body, scalar};
use crate::request::{NewMessage, OnConflict, When};

/// A message to send, in the older words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacySend<'a> {
    /// Who sends, as far as it is said.
    pub app_key: Option<Cow<'a, str>>,
    /// Where to.
    pub topic: Cow<'a, str>,
    /// The message in today's words.
    pub message: NewMessage<'a>,
}

impl<'a> LegacySend<'a> {
    /// Reads `{"appKey","topic","message","execTime","repeatInterval","messageId"}`.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &'a [u8], depth_max: usize) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, depth_max)?;
        let app_key = fields.take_string("appKey")?;
        let topic = fields.take_string("topic")?.ok_or_else(|| missing("topic"))?;
        let content = fields.take("message");
        let content =
            content.ok_or_else(|| Problem::new(Code::MissingBody, "message is missing"))?;
        let when = fields.take("execTime").map(|raw| scalar("execTime", raw, Code::InvalidTime));
        let interval = fields.take("repeatInterval").map(interval).transpose()?.flatten();
        let id = fields.take_string("messageId")?;
        fields.end()?;
        let message = NewMessage {
            key: None,
            headers: Vec::new(),
            body: body(content)?,
            when: when.transpose()?.map_or(When::Now, When::At),
            partition: None,
            ttl: None,
            max_attempts: None,
            // Many callers say "no name" by an empty one.
            id: id.filter(|id| !id.is_empty()),
            on_conflict: OnConflict::Reject,
            repeat: interval.map(|every| {
                Box::new(Repeat { rule: Rule::Every(every), count: None, until: None })
            }),
            catch_up: None,
        };
        Ok(Self { app_key, topic, message })
    }
}

/// Milliseconds between two times, as a number or a string of digits; zero is once.
fn interval(raw: &str) -> Result<Option<Cow<'_, str>>, Problem> {
    let text = scalar("repeatInterval", raw, Code::InvalidRepeat)?;
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let detail = "repeatInterval is a number of milliseconds";
        return Err(Problem::new(Code::InvalidRepeat, detail));
    }
    Ok(Some(text).filter(|text| text.bytes().any(|digit| digit != b'0')))
}

/// A message to withdraw, in the older words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyCancel<'a> {
    /// Who asks, as far as it is said.
    pub app_key: Option<Cow<'a, str>>,
    /// Where the message is; needed for one that its sender has named.
    pub topic: Option<Cow<'a, str>>,
    /// Which message.
    pub message_id: Cow<'a, str>,
}

impl<'a> LegacyCancel<'a> {
    /// Reads `{"appKey","topic","messageId"}`.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &'a [u8], depth_max: usize) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, depth_max)?;
        let app_key = fields.take_string("appKey")?;
        let topic = fields.take_string("topic")?;
        let message_id = fields.take_string("messageId")?.ok_or_else(|| missing("messageId"))?;
        fields.end()?;
        Ok(Self { app_key, topic, message_id })
    }
}

fn missing(field: &str) -> Problem {
    Problem::new(Code::InvalidRequest, format!("{field} is missing"))
}

/// The answer in the older words.
#[derive(Clone, Debug, Serialize)]
pub struct LegacyView<'a> {
    /// 0 when it was done, otherwise the status of the answer.
    pub code: u16,
    /// `success`, or what was wrong.
    pub message: Cow<'a, str>,
    /// The stable code of what was wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// What it is about.
    pub data: Option<LegacyData<'a>>,
}

/// What an answer in the older words is about.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyData<'a> {
    /// The message as its sender calls it, or else as the broker does.
    pub message_id: &'a str,
    /// The message as the broker calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<LegacySend<'_>, Code> {
        LegacySend::read(json.as_bytes(), 8).map_err(|problem| problem.code)
    }

    #[test]
    fn the_older_words_mean_the_same_as_todays() {
        let json = r#"{"appKey":"shop","topic":"t","message":{"n":1},"execTime":1893456000000,
            "repeatInterval":60000,"messageId":"m-1"}"#;
        let sent = read(json).unwrap();
        assert_eq!((sent.app_key.as_deref(), &*sent.topic), (Some("shop"), "t"));
        let message = sent.message;
        assert_eq!(&message.body[..], br#"{"n":1}"#);
        assert_eq!(message.when, When::At("1893456000000".into()));
        assert_eq!(message.repeat.unwrap().rule, Rule::Every("60000".into()));
        assert_eq!(message.id.as_deref(), Some("m-1"));
        let plain =
            read(r#"{"topic":"t","message":"text","execTime":"5","messageId":""}"#).unwrap();
        assert_eq!(&plain.message.body[..], b"text");
        assert_eq!((plain.message.when, plain.message.id), (When::At("5".into()), None));
    }

    #[test]
    fn no_interval_is_once() {
        for interval in ["0", "\"0\"", "\"000\"", "null"] {
            let json = format!(r#"{{"topic":"t","message":"m","repeatInterval":{interval}}}"#);
            assert_eq!(read(&json).unwrap().message.repeat, None, "{interval}");
        }
        for interval in ["-1", "1.5", "\"1m\"", "\"\"", "[]", "true"] {
            let json = format!(r#"{{"topic":"t","message":"m","repeatInterval":{interval}}}"#);
            assert_eq!(read(&json).unwrap_err(), Code::InvalidRepeat, "{interval}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (json, code) in [
            ("", Code::InvalidRequest),
            (r#"{"topic":"t"}"#, Code::MissingBody),
            (r#"{"message":"m"}"#, Code::InvalidRequest),
            (r#"{"topic":1,"message":"m"}"#, Code::InvalidField),
            (r#"{"topic":"t","message":"m","execTime":[]}"#, Code::InvalidTime),
            (r#"{"topic":"t","message":"m","delay":"1s"}"#, Code::UnknownField),
            (r#"{"topic":"t","message":"m","messageId":7}"#, Code::InvalidField),
        ] {
            assert_eq!(read(json).unwrap_err(), code, "{json}");
        }
        let refused = LegacyCancel::read(br#"{"topic":"t"}"#, 8).unwrap_err();
        assert_eq!(refused.code, Code::InvalidRequest);
    }
}
