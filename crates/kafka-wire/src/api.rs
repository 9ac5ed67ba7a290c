//! The table of the APIs that can be read and written here.
//!
//! Which of them, and which versions, a listener offers is its own decision; it cannot offer more.

use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::messages::*;
use crate::{Reader, Request, WireError, Writer};

/// What is known about an API.
#[derive(Debug, Clone)]
pub struct Api {
    /// Its number on the wire.
    pub key: i16,
    /// Its name.
    pub name: &'static str,
    /// The versions that can be read and written.
    pub versions: RangeInclusive<i16>,
    /// The first version with compact lengths and tagged fields.
    pub flexible: i16,
    reencode: fn(&mut Reader, i16) -> Result<Bytes, WireError>,
}

impl Api {
    const fn of<R: Request>() -> Self {
        Self {
            key: R::KEY,
            name: R::NAME,
            versions: R::VERSIONS,
            flexible: R::FLEXIBLE,
            reencode: reencode::<R>,
        }
    }

    /// Reads the body of a request and writes it again, which shows what was understood: the
    /// same bytes, but for tagged fields that are not known here.
    pub fn reencode(&self, reader: &mut Reader, version: i16) -> Result<Bytes, WireError> {
        (self.reencode)(reader, version)
    }
}

/// The API with a key.
pub fn api(key: i16) -> Option<&'static Api> {
    let at = APIS.binary_search_by_key(&key, |api| api.key).ok()?;
    APIS.get(at)
}

macro_rules! apis {
    ($($module:ident::$request:ident,)*) => {
        /// Every API, by ascending key.
        pub static APIS: &[Api] = &[$(Api::of::<$module::$request>(),)*];
    };
}

apis! {
    produce::ProduceRequest,
    fetch::FetchRequest,
    list_offsets::ListOffsetsRequest,
    metadata::MetadataRequest,
    offset_commit::OffsetCommitRequest,
    offset_fetch::OffsetFetchRequest,
    find_coordinator::FindCoordinatorRequest,
    join_group::JoinGroupRequest,
    heartbeat::HeartbeatRequest,
    leave_group::LeaveGroupRequest,
    sync_group::SyncGroupRequest,
    describe_groups::DescribeGroupsRequest,
    list_groups::ListGroupsRequest,
    sasl_handshake::SaslHandshakeRequest,
    api_versions::ApiVersionsRequest,
    create_topics::CreateTopicsRequest,
    delete_topics::DeleteTopicsRequest,
    delete_records::DeleteRecordsRequest,
    init_producer_id::InitProducerIdRequest,
    offset_for_leader_epoch::OffsetForLeaderEpochRequest,
    describe_configs::DescribeConfigsRequest,
    alter_configs::AlterConfigsRequest,
    describe_log_dirs::DescribeLogDirsRequest,
    sasl_authenticate::SaslAuthenticateRequest,
    create_partitions::CreatePartitionsRequest,
    delete_groups::DeleteGroupsRequest,
    incremental_alter_configs::IncrementalAlterConfigsRequest,
    offset_delete::OffsetDeleteRequest,
    describe_cluster::DescribeClusterRequest,
    describe_topic_partitions::DescribeTopicPartitionsRequest,
    share_group_heartbeat::ShareGroupHeartbeatRequest,
    share_group_describe::ShareGroupDescribeRequest,
    share_fetch::ShareFetchRequest,
    share_acknowledge::ShareAcknowledgeRequest,
}

fn reencode<R: Request>(reader: &mut Reader, version: i16) -> Result<Bytes, WireError> {
    let request: R = crate::frame::request(reader, version)?;
    let mut writer = Writer::default();
    request.encode(&mut writer, version)?;
    writer.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_is_found_by_its_key() {
        assert!(APIS.is_sorted_by(|one, next| one.key < next.key));
        for entry in APIS {
            assert_eq!(api(entry.key).map(|found| found.name), Some(entry.name));
        }
        assert!(api(4).is_none());
        assert!(api(-1).is_none());
    }
}
