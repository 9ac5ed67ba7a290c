//! The shapes have what the readers take, and every name in them has a shape.

use super::*;
use crate::app::{AppChange, AppLimits, NewApp, read_rotation};
use crate::clock::Advance;
use crate::consume::{Receive, Retry, Settle, SettleLimits};
use crate::dead::{Drain, Purge, Redrive};
use crate::group::{GroupChange, GroupLimits, OffsetLimits, Reset};
use crate::legacy::{LegacyCancel, LegacySend};
use crate::pending::{Bulk, MessageChange};
use crate::problem::Problem;
use crate::request::{FIELDS, ReadLimits, read_messages};
use crate::topic::TopicChange;
use crate::transaction::Prepare;

pub(crate) const BOUNDS: Bounds = Bounds {
    name_chars: 249,
    batch_messages: 100,
    headers: 16,
    key_bytes: 1024,
    own_id_bytes: 256,
    attempts: 1000,
    partitions: 1024,
    delay: 1_000_000,
    time: 253_402_300_799_999,
    delay_ceiling: 10_000_000,
    every_min: 1000,
    page: 1000,
    page_default: 100,
    receive: 1000,
    receive_default: 10,
    wait: 60_000,
    lease_min: 1000,
    lease_max: 43_200_000,
    receipts: 1000,
    rungs: 100,
    rate: 1_000_000,
    jitter: 86_400_000,
    checks: 1000,
    check_interval_min: 1000,
    retry_wait: 1_000_000,
    push_concurrency: 256,
    push_timeout: (1000, 300_000),
    url_chars: 2048,
    id_chars: 32,
    app_key_chars: 64,
    permissions: 64,
    verbs: [
        "send", "read", "cancel", "change", "consume", "see", "manage", "observe", "audit", "admin",
    ],
    keep_old: 1_000_000,
};

const APPS: AppLimits = AppLimits { depth: 64, permissions: 64, verbs: 10 };
const READ: ReadLimits = ReadLimits { depth: 64, messages: 100, headers: 16 };

/// The first example of a shape, as text.
fn example(name: &str) -> Vec<u8> {
    let schema = components(&BOUNDS).remove(name).unwrap().into_json();
    serde_json::to_vec(&schema["examples"][0]).unwrap()
}

#[test]
fn every_example_of_a_request_is_read() {
    let read = |name: &str| {
        let json = example(name);
        let read: Result<(), Problem> = match name {
            "NewMessage" | "NewBatch" => read_messages(&json, READ).map(drop),
            "MessageChange" => MessageChange::read(&json, READ).map(drop),
            "Bulk" => Bulk::read(&json, 64).map(drop),
            "BulkMove" => Bulk::read_reschedule(&json, 64).map(drop),
            "TopicChange" => TopicChange::read(&json, 64).map(drop),
            "GroupChange" => {
                GroupChange::read(&json, GroupLimits { depth: 64, rungs: 100 }).map(drop)
            }
            "Reset" => Reset::read(&json, OffsetLimits { depth: 64, partitions: 1024 }).map(drop),
            "Receive" | "AskChecks" => Receive::read(&json, 64).map(drop),
            "Receipts" => settle(&json, Settle::read_ack),
            "Nack" => settle(&json, Settle::read_nack),
            "Extend" => settle(&json, Settle::read_extend),
            "Retry" => Retry::read(&json, READ).map(drop),
            "Redrive" => Redrive::read(&json, READ).map(drop),
            "Purge" => Purge::read(&json, 64).map(drop),
            "Drain" => Drain::read(&json, 64).map(drop),
            "Prepare" => Prepare::read(&json, READ).map(drop),
            "Advance" => Advance::read(&json, 64).map(drop),
            "LegacySend" => LegacySend::read(&json, 64).map(drop),
            "LegacyCancel" => LegacyCancel::read(&json, 64).map(drop),
            "NewApp" => NewApp::read(&json, APPS).map(drop),
            "AppChange" => AppChange::read(&json, APPS).map(drop),
            "Rotation" => read_rotation(&json, 64).map(drop),
            // A part of another shape, an answer, or read elsewhere.
            _ => return false,
        };
        read.unwrap_or_else(|problem| panic!("the example of {name}: {problem:?}"));
        true
    };
    let all = components(&BOUNDS);
    let with_example = all.iter().filter(|(_, schema)| schema.0.get("examples").is_some());
    assert_eq!(with_example.filter(|(name, _)| read(name)).count(), 24);
}

type Read<'a> = fn(&'a [u8], SettleLimits) -> Result<Settle<'a>, Problem>;

fn settle<'a>(json: &'a [u8], read: Read<'a>) -> Result<(), Problem> {
    read(json, SettleLimits { depth: 64, receipts: 10 }).map(drop)
}

#[test]
fn a_message_has_the_fields_that_its_reader_knows() {
    let schema = components(&BOUNDS).remove("NewMessage").unwrap().into_json();
    let mut told: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    let mut known: Vec<&str> = FIELDS.to_vec();
    told.sort_unstable();
    known.sort_unstable();
    assert_eq!(told, known);
}

#[test]
fn every_reference_resolves() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let all = components(&BOUNDS);
    for (name, schema) in &all {
        let mut found = Vec::new();
        references(&schema.0, &mut found);
        for reference in found {
            let target = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(all.contains_key(target), "{name} names {target}");
        }
    }
}

#[test]
fn null_is_nothing_in_requests() {
    let shape = object().can("a", text()).can("b", word(["x"])).can("c", named("Problem")).0;
    assert_eq!(shape["properties"]["a"], json!({"type": ["string", "null"]}));
    let either = json!([{"type": "string", "enum": ["x"]}, {"type": "null"}]);
    assert_eq!(shape["properties"]["b"]["anyOf"], either);
    assert_eq!(shape["properties"]["c"]["anyOf"][1], json!({"type": "null"}));
}
