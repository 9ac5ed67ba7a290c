//! Every message in every version, held against an independent codec in both directions.
//!
//! A value made at random is written here, read and written again there, and read here again: the
//! bytes must be the same, and both sides must have understood the same fields by name.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, Message as Versioned};
use proptest::prelude::*;

use super::sample::{Random, Sample};
use crate::message::Form;
use crate::{Message, Reader, Request, Writer};

/// What the other codec wraps texts and numbers in.
const WRAPPERS: [&str; 5] = ["TopicName", "BrokerId", "GroupId", "TransactionalId", "ProducerId"];

/// Fields that only one of the codecs knows, because they belong to versions outside the table of
/// the other one. In the versions that both know they have these values.
const LONE: [&str; 7] = [
    ", partition_max_bytes: 0",
    ", is_renew_ack: false",
    ", acquisition_lock_timeout_ms: 0",
    ", share_acquire_mode: 0",
    ", enable_2_pc: false",
    ", keep_prepared_txn: false",
    ", ongoing_txn_producer_id: -1, ongoing_txn_producer_epoch: -1",
];

/// What a field that can be null holds when the version lacks it: empty there, nothing here. In
/// versions that have the field, the comparison of the bytes tells the two apart.
const ABSENT: [(&str, &str); 4] = [
    ("configs: Some([])", "configs: None"),
    ("documentation: Some(\"\")", "documentation: None"),
    ("error_message: Some(\"\")", "error_message: None"),
    ("topics: Some([])", "topics: None"),
];

macro_rules! crosschecks {
    ($($module:ident: $request:ident, $response:ident;)*) => {
    $(
        mod $module {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(32))]

                #[test]
                fn the_request_is_the_same_in_both_codecs(seed: u64) {
                    type Ours = super::super::$module::$request;
                    crosscheck::<Ours, theirs::$request>(seed, Ours::VERSIONS, Ours::FLEXIBLE)?;
                }

                #[test]
                fn the_response_is_the_same_in_both_codecs(seed: u64) {
                    type Ours = super::super::$module::$request;
                    crosscheck::<super::super::$module::$response, theirs::$response>(
                        seed, Ours::VERSIONS, Ours::FLEXIBLE,
                    )?;
                }
            }
        }
    )*

        /// A frame of every API, in its first, its first flexible and its last version.
        fn frames() -> Vec<(String, Bytes)> {
            let mut frames = Vec::new();
            $(frames_of::<super::$module::$request>(&mut frames);)*
            frames
        }
    };
}

crosschecks! {
    api_versions: ApiVersionsRequest, ApiVersionsResponse;
    metadata: MetadataRequest, MetadataResponse;
    produce: ProduceRequest, ProduceResponse;
    fetch: FetchRequest, FetchResponse;
    list_offsets: ListOffsetsRequest, ListOffsetsResponse;
    init_producer_id: InitProducerIdRequest, InitProducerIdResponse;
    find_coordinator: FindCoordinatorRequest, FindCoordinatorResponse;
    join_group: JoinGroupRequest, JoinGroupResponse;
    sync_group: SyncGroupRequest, SyncGroupResponse;
    heartbeat: HeartbeatRequest, HeartbeatResponse;
    leave_group: LeaveGroupRequest, LeaveGroupResponse;
    describe_groups: DescribeGroupsRequest, DescribeGroupsResponse;
    list_groups: ListGroupsRequest, ListGroupsResponse;
    delete_groups: DeleteGroupsRequest, DeleteGroupsResponse;
    offset_commit: OffsetCommitRequest, OffsetCommitResponse;
    offset_fetch: OffsetFetchRequest, OffsetFetchResponse;
    offset_delete: OffsetDeleteRequest, OffsetDeleteResponse;
    sasl_handshake: SaslHandshakeRequest, SaslHandshakeResponse;
    sasl_authenticate: SaslAuthenticateRequest, SaslAuthenticateResponse;
    create_topics: CreateTopicsRequest, CreateTopicsResponse;
    delete_topics: DeleteTopicsRequest, DeleteTopicsResponse;
    delete_records: DeleteRecordsRequest, DeleteRecordsResponse;
    offset_for_leader_epoch: OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse;
    describe_configs: DescribeConfigsRequest, DescribeConfigsResponse;
    alter_configs: AlterConfigsRequest, AlterConfigsResponse;
    incremental_alter_configs: IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse;
    describe_log_dirs: DescribeLogDirsRequest, DescribeLogDirsResponse;
    create_partitions: CreatePartitionsRequest, CreatePartitionsResponse;
    describe_cluster: DescribeClusterRequest, DescribeClusterResponse;
    describe_topic_partitions: DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse;
    share_group_heartbeat: ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse;
    share_group_describe: ShareGroupDescribeRequest, ShareGroupDescribeResponse;
    share_fetch: ShareFetchRequest, ShareFetchResponse;
    share_acknowledge: ShareAcknowledgeRequest, ShareAcknowledgeResponse;
}

#[test]
#[ignore = "writes the corpus of the fuzzer anew"]
fn the_corpus_of_requests_is_written() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/requests");
    for (name, frame) in frames() {
        std::fs::write(format!("{folder}/{name}"), frame).unwrap();
    }
}

fn frames_of<R: Request + Sample>(frames: &mut Vec<(String, Bytes)>) {
    let (first, last) = R::VERSIONS.into_inner();
    let mut random = Random::new(u64::from(R::KEY.unsigned_abs()));
    for version in std::collections::BTreeSet::from([first, R::FLEXIBLE.clamp(first, last), last]) {
        let form = Form { version, flexible: version >= R::FLEXIBLE, nullable: false };
        // The one of a few that says the most without being long.
        let request = (0..40)
            .map(|_sample| R::sample(&mut random, form))
            .filter(|request| write(request, version).len() < 400)
            .max_by_key(|request| write(request, version).len());
        let frame = crate::frame::call(1, version, Some("corpus"), &request.unwrap_or_default());
        frames.push((format!("{}-{version}", R::NAME), frame.unwrap().slice(4..)));
    }
}

fn crosscheck<Ours, Theirs>(
    seed: u64,
    versions: std::ops::RangeInclusive<i16>,
    flexible: i16,
) -> Result<(), TestCaseError>
where
    Ours: Message + Sample,
    Theirs: Decodable + Encodable + Versioned + std::fmt::Debug,
{
    let mut random = Random::new(seed);
    for version in versions {
        let form = Form { version, flexible: version >= flexible, nullable: false };
        let sent = Ours::sample(&mut random, form);
        let written = write(&sent, version);
        let back = Ours::decode(&mut Reader::new(written.clone()), version);
        prop_assert_eq!(back.as_ref(), Ok(&sent));
        if !(Theirs::VERSIONS.min..=Theirs::VERSIONS.max).contains(&version) {
            continue;
        }
        let mut rest = written.clone();
        let understood = Theirs::decode(&mut rest, version).map_err(|cause| {
            TestCaseError::fail(format!("version {version}: {cause} in {sent:?}"))
        })?;
        prop_assert!(rest.is_empty(), "version {} leaves {} bytes", version, rest.len());
        prop_assert_eq!(plain(&format!("{understood:?}")), plain(&format!("{sent:?}")));
        let mut again = BytesMut::new();
        understood
            .encode(&mut again, version)
            .map_err(|cause| TestCaseError::fail(format!("version {version}: {cause}")))?;
        prop_assert_eq!(again.freeze(), written, "version {}", version);
    }
    Ok(())
}

fn write(message: &impl Message, version: i16) -> Bytes {
    let mut writer = Writer::default();
    message.encode(&mut writer, version).unwrap();
    writer.into_bytes().unwrap()
}

/// The debug form of a message without what differs between the codecs by design: wrappers, the
/// writing of ids, tagged fields kept though unknown.
fn plain(debug: &str) -> String {
    let debug = debug.replace(", unknown_tagged_fields: {}", "");
    let debug = debug.replace(" { unknown_tagged_fields: {} }", "");
    let debug = LONE.iter().fold(debug, |debug, lone| debug.replace(lone, ""));
    let debug = ABSENT.iter().fold(debug, |debug, (there, here)| debug.replace(there, here));
    let mut plain = String::new();
    let mut rest = debug.as_str();
    let mut wrapped = Vec::new();
    while let Some(first) = rest.chars().next() {
        let opened = WRAPPERS
            .iter()
            .chain(&["Here"])
            .find_map(|name| rest.strip_prefix(name).and_then(|rest| rest.strip_prefix('(')));
        let quoted = quoted(rest);
        if let Some(inner) = opened {
            wrapped.push(true);
            rest = inner;
        } else if let Some((text, after)) = quoted {
            plain.push_str(text);
            rest = after;
        } else if let Some((id, after)) = identifier(rest) {
            plain.push_str(&id);
            rest = after;
        } else {
            let keep = match first {
                '(' => {
                    wrapped.push(false);
                    true
                }
                ')' => !wrapped.pop().unwrap_or(false),
                _ => true,
            };
            if keep {
                plain.push(first);
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    plain
}

/// Text in quotation marks, and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('"')?;
    let mut escaped = false;
    let end = text.find(|letter| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    })?;
    Some((&text[..end], &text[end + 1..]))
}

/// An id in its usual form with dashes, turned into the list of its bytes.
fn identifier(text: &str) -> Option<(String, &str)> {
    let (head, after) = text.split_at_checked(36)?;
    let groups: Vec<_> = head.split('-').map(str::len).collect();
    if groups != [8, 4, 4, 4, 12] {
        return None;
    }
    let digits = head.replace('-', "");
    let bytes = (0..16)
        .map(|at| u8::from_str_radix(digits.get(at * 2..at * 2 + 2)?, 16).ok())
        .collect::<Option<Vec<_>>>()?;
    Some((format!("{bytes:?}"), after))
}
