//! What the readers of groups take, and what they refuse with which code.

use super::*;

const LIMITS: GroupLimits = GroupLimits { depth: 8, rungs: 3 };
const OFFSETS: OffsetLimits = OffsetLimits { depth: 8, partitions: 4 };

#[test]
fn a_group_with_everything() {
    let json = br#"{"ordered":true,"retry":{"ladder":["1s",2000]},"max_attempts":3,"lease":"30s",
        "paused":false,"push":{"url":"http://localhost/in","secret":"s","concurrency":2,
        "timeout":"5s"},"start":"latest"}"#;
    let change = GroupChange::read(json, LIMITS).unwrap();
    assert_eq!(change.retry, Some(RetryChange::Ladder(vec!["1s".into(), "2000".into()])));
    assert_eq!((change.ordered, change.paused), (Some(true), Some(false)));
    assert_eq!(change.start, Some(StartAt::Latest));
    let push = change.push.unwrap().unwrap();
    assert_eq!((push.url.as_deref(), push.concurrency), (Some("http://localhost/in"), Some(2)));
    assert!(!format!("{push:?}").contains("http"), "an address may carry a secret");
}

#[test]
fn nothing_said_is_nothing_changed_but_no_push_is_said_by_null() {
    assert_eq!(GroupChange::read(b"", LIMITS), Ok(GroupChange::default()));
    let change = GroupChange::read(br#"{"push":null,"lease":null}"#, LIMITS).unwrap();
    assert_eq!(change, GroupChange { push: Some(None), ..GroupChange::default() });
}

#[test]
fn growing_waits_are_read_without_rounding() {
    for (written, hundredths) in
        [("2", Some(200)), ("2.0", Some(200)), ("1.5", Some(150)), ("0.05", Some(5))]
    {
        let json = format!(r#"{{"retry":{{"exponential":{{"first":"1s","factor":{written}}}}}}}"#);
        match GroupChange::read(json.as_bytes(), LIMITS).unwrap().retry {
            Some(RetryChange::Exponential { factor_percent, .. }) => {
                assert_eq!(factor_percent, hundredths, "{written}");
            }
            other => panic!("{other:?}"),
        }
    }
    for written in ["1.005", "1e3", "-1", "99999999999999999999", "\"2\"", "true"] {
        let json = format!(r#"{{"retry":{{"exponential":{{"first":"1s","factor":{written}}}}}}}"#);
        let refused = GroupChange::read(json.as_bytes(), LIMITS).unwrap_err();
        assert_eq!(refused.code, Code::InvalidField, "{written}");
    }
}

#[test]
fn each_fault_of_a_group_has_its_code() {
    for (json, code) in [
        ("[]", Code::InvalidRequest),
        (r#"{"colour":1}"#, Code::UnknownField),
        (r#"{"ordered":"yes"}"#, Code::InvalidField),
        (r#"{"ordered":true,"ordered":false}"#, Code::DuplicateField),
        (r#"{"retry":{}}"#, Code::InvalidField),
        (r#"{"retry":[]}"#, Code::InvalidField),
        (r#"{"retry":{"ladder":[]}}"#, Code::InvalidField),
        (r#"{"retry":{"ladder":["1s","1s","1s","1s"]}}"#, Code::InvalidField),
        (r#"{"retry":{"ladder":[[]]}}"#, Code::InvalidField),
        (r#"{"retry":{"ladder":["1s"],"exponential":{}}}"#, Code::ConflictingFields),
        (r#"{"retry":{"exponential":{}}}"#, Code::InvalidField),
        (r#"{"retry":{"exponential":{"first":"1s","x":1}}}"#, Code::UnknownField),
        (r#"{"push":5}"#, Code::InvalidField),
        (r#"{"push":{"address":"x"}}"#, Code::UnknownField),
        (r#"{"start":"middle"}"#, Code::InvalidField),
        (r#"{"max_attempts":1.5}"#, Code::InvalidField),
    ] {
        let refused = GroupChange::read(json.as_bytes(), LIMITS).unwrap_err();
        assert_eq!(refused.code, code, "{json}");
    }
}

#[test]
fn a_group_can_be_put_elsewhere() {
    for (json, reset) in [
        (r#"{"to":"earliest"}"#, Reset::Earliest),
        (r#"{"to":"latest"}"#, Reset::Latest),
        (r#"{"to":{"time":5}}"#, Reset::Time("5".into())),
        (r#"{"to":{"offsets":{"1":7,"0":12}}}"#, Reset::Offsets(vec![(0, 12), (1, 7)])),
    ] {
        assert_eq!(Reset::read(json.as_bytes(), OFFSETS), Ok(reset), "{json}");
    }
    for (json, code) in [
        ("", Code::InvalidField),
        (r#"{"to":"middle"}"#, Code::InvalidField),
        (r#"{"to":{}}"#, Code::InvalidField),
        (r#"{"to":{"time":5,"offsets":{"0":1}}}"#, Code::InvalidField),
        (r#"{"to":{"offsets":{}}}"#, Code::InvalidField),
        (r#"{"to":{"offsets":{"0":-1}}}"#, Code::InvalidField),
        (r#"{"to":{"offsets":{"x":1}}}"#, Code::NoSuchPartition),
        (r#"{"to":{"offsets":{"70000":1}}}"#, Code::NoSuchPartition),
        (r#"{"to":{"offsets":{"0":1,"00":2}}}"#, Code::DuplicateField),
        (r#"{"to":{"offsets":{"0":1,"1":1,"2":1,"3":1,"4":1}}}"#, Code::NoSuchPartition),
    ] {
        assert_eq!(Reset::read(json.as_bytes(), OFFSETS).unwrap_err().code, code, "{json}");
    }
    assert_eq!(read_offsets(br#"{"offsets":{"0":3}}"#, OFFSETS), Ok(vec![(0, 3)]));
    let view = serde_json::to_string(&OffsetsView(vec![(0, 3), (1, 4)])).unwrap();
    assert_eq!(view, r#"{"offsets":{"0":3,"1":4}}"#);
}
