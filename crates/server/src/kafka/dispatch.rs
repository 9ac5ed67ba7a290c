//! The one table of what is served: each API with the right that it takes, how it is handled, and
//! by whom. Nothing is offered that is not in it, and nothing gets into it without a right.
//!
//! A right of the scope `Open` is open to everybody, before anybody has shown who it is. For every
//! other one the caller is known when the handler runs; what the content of a request names is
//! checked by the handler, item by item, and answered with the codes that clients know
//! (`TOPIC_AUTHORIZATION_FAILED` and its like).

use std::ops::RangeInclusive;
use std::pin::Pin;

use punctual_kafka_wire::codec::Reader;
use punctual_kafka_wire::frame::{self, RequestHeader};
use punctual_kafka_wire::message::Request;
use punctual_kafka_wire::messages::alter_configs::AlterConfigsRequest;
use punctual_kafka_wire::messages::api_versions::ApiVersionsRequest;
use punctual_kafka_wire::messages::create_partitions::CreatePartitionsRequest;
use punctual_kafka_wire::messages::create_topics::CreateTopicsRequest;
use punctual_kafka_wire::messages::delete_groups::DeleteGroupsRequest;
use punctual_kafka_wire::messages::delete_records::DeleteRecordsRequest;
use punctual_kafka_wire::messages::delete_topics::DeleteTopicsRequest;
use punctual_kafka_wire::messages::describe_cluster::DescribeClusterRequest;
use punctual_kafka_wire::messages::describe_configs::DescribeConfigsRequest;
use punctual_kafka_wire::messages::describe_groups::DescribeGroupsRequest;
use punctual_kafka_wire::messages::describe_log_dirs::DescribeLogDirsRequest;
use punctual_kafka_wire::messages::describe_topic_partitions::DescribeTopicPartitionsRequest;
use punctual_kafka_wire::messages::fetch::FetchRequest;
use punctual_kafka_wire::messages::find_coordinator::FindCoordinatorRequest;
use punctual_kafka_wire::messages::heartbeat::HeartbeatRequest;
use punctual_kafka_wire::messages::incremental_alter_configs::IncrementalAlterConfigsRequest;
use punctual_kafka_wire::messages::init_producer_id::InitProducerIdRequest;
use punctual_kafka_wire::messages::join_group::JoinGroupRequest;
use punctual_kafka_wire::messages::leave_group::LeaveGroupRequest;
use punctual_kafka_wire::messages::list_groups::ListGroupsRequest;
use punctual_kafka_wire::messages::list_offsets::ListOffsetsRequest;
use punctual_kafka_wire::messages::metadata::MetadataRequest;
use punctual_kafka_wire::messages::offset_commit::OffsetCommitRequest;
use punctual_kafka_wire::messages::offset_delete::OffsetDeleteRequest;
use punctual_kafka_wire::messages::offset_fetch::OffsetFetchRequest;
use punctual_kafka_wire::messages::offset_for_leader_epoch::OffsetForLeaderEpochRequest;
use punctual_kafka_wire::messages::produce::ProduceRequest;
use punctual_kafka_wire::messages::sasl_authenticate::SaslAuthenticateRequest;
use punctual_kafka_wire::messages::sasl_handshake::SaslHandshakeRequest;
use punctual_kafka_wire::messages::share_acknowledge::ShareAcknowledgeRequest;
use punctual_kafka_wire::messages::share_fetch::ShareFetchRequest;
use punctual_kafka_wire::messages::share_group_describe::ShareGroupDescribeRequest;
use punctual_kafka_wire::messages::share_group_heartbeat::ShareGroupHeartbeatRequest;
use punctual_kafka_wire::messages::sync_group::SyncGroupRequest;
use tracing::debug;

use crate::access::{Caller, Permission, Rule, Scope};
use crate::kafka::call::Call;
use crate::kafka::reply::{Answering, Reply};
use crate::kafka::{
    api_versions, cluster, configs, coordinator, delete_records, fetch, log_dirs, metadata,
    offsets, produce, sasl, share, topic_partitions, topics,
};

/// How requests of an API are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// One after the other; what has arrived is carried out whatever happens.
    Plain,
    /// It may wait for something: it is dropped when the client is gone.
    Waiting,
    /// It may be begun before those before it are answered, if they are of the same kind.
    Ordered,
}

/// An API that is served.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) key: i16,
    pub(crate) name: &'static str,
    /// The versions that are answered.
    pub(crate) versions: RangeInclusive<i16>,
    /// The right that it takes.
    pub(crate) rule: Rule,
    pub(crate) manner: Manner,
}

/// Answers with a response, or with whatever becomes of the request.
macro_rules! handle {
    (response $handler:path, $call:ident, $request:ident, $answering:ident) => {
        $answering.reply(&$handler(&$call, $request).await)
    };
    (reply $handler:path, $call:ident, $request:ident, $answering:ident) => {
        $handler(&$call, $request, $answering).await
    };
}

macro_rules! served {
    ($($request:ty: $permission:ident $scope:ident, $manner:ident, $how:ident $handler:path;)*) => {
        /// Everything that is served, by key.
        pub(crate) static SERVED: &[Served] = &[$(Served {
            key: <$request as Request>::KEY,
            name: <$request as Request>::NAME,
            versions: <$request as Request>::VERSIONS,
            rule: Rule { permission: Permission::$permission, scope: Scope::$scope },
            manner: Manner::$manner,
        },)*];

        fn handled(call: Call, head: &RequestHeader, mut body: Reader) -> Answer {
            let (correlation_id, version) = (head.correlation_id, head.api_version);
            match head.api_key {
                $(<$request as Request>::KEY => Box::pin(async move {
                    let answering = Answering::<$request>::new(correlation_id, version);
                    match frame::request::<$request>(&mut body, version) {
                        Ok(request) => handle!($how $handler, call, request, answering),
                        Err(error) => {
                            debug!(%error, from = %call.from, api = answering.name(), version,
                                "a request that cannot be read");
                            Reply::Close
                        }
                    }
                }),)*
                _ => Box::pin(async { Reply::Close }),
            }
        }
    };
}

/// What becomes of a request.
type Answer = Pin<Box<dyn Future<Output = Reply> + Send>>;

// Each line: the request, the right it takes, its manner, and its handler: one that answers with a
// `response`, or one that says itself what becomes of the request (`reply`).
#[rustfmt::skip]
served! {
    ProduceRequest:                 Send    Content,  Ordered, reply    produce::produce;
    FetchRequest:                   Read    Content,  Waiting, reply    fetch::fetch;
    ListOffsetsRequest:             Read    Content,  Plain,   response fetch::list_offsets;
    OffsetCommitRequest:            Consume Content,  Plain,   response offsets::offset_commit;
    OffsetFetchRequest:             Consume Content,  Plain,   response offsets::offset_fetch;
    FindCoordinatorRequest:         Consume Content,  Plain,   response coordinator::find_coordinator;
    JoinGroupRequest:               Consume Content,  Waiting, response coordinator::join_group;
    HeartbeatRequest:               Consume Content,  Plain,   response coordinator::heartbeat;
    LeaveGroupRequest:              Consume Content,  Plain,   response coordinator::leave_group;
    SyncGroupRequest:               Consume Content,  Waiting, response coordinator::sync_group;
    DescribeGroupsRequest:          See     Content,  Plain,   response coordinator::describe_groups;
    ListGroupsRequest:              See     Visible,  Plain,   response coordinator::list_groups;
    DeleteGroupsRequest:            Manage  Content,  Plain,   response coordinator::delete_groups;
    OffsetDeleteRequest:            Consume Content,  Plain,   response offsets::offset_delete;
    ApiVersionsRequest:             Anybody Open,     Plain,   response api_versions::api_versions;
    SaslHandshakeRequest:           Anybody Open,     Plain,   reply    sasl::handshake;
    SaslAuthenticateRequest:        Anybody Open,     Plain,   reply    sasl::authenticate;
    MetadataRequest:                See     Visible,  Plain,   response metadata::metadata;
    DescribeTopicPartitionsRequest: See     Visible,  Plain,   response topic_partitions::describe_topic_partitions;
    DescribeClusterRequest:         See     Anything, Plain,   response cluster::describe_cluster;
    CreateTopicsRequest:            Manage  Content,  Plain,   response topics::create_topics;
    DeleteTopicsRequest:            Manage  Content,  Plain,   response topics::delete_topics;
    CreatePartitionsRequest:        Manage  Content,  Plain,   response topics::create_partitions;
    DeleteRecordsRequest:           Manage  Content,  Plain,   response delete_records::delete_records;
    DescribeConfigsRequest:         See     Content,  Plain,   response configs::describe_configs;
    AlterConfigsRequest:            Manage  Content,  Plain,   response configs::alter_configs;
    IncrementalAlterConfigsRequest: Manage  Content,  Plain,   response configs::incremental_alter_configs;
    DescribeLogDirsRequest:         Observe Whole,    Plain,   response log_dirs::describe_log_dirs;
    InitProducerIdRequest:          Send    Anything, Plain,   response produce::init_producer_id;
    OffsetForLeaderEpochRequest:    Read    Content,  Plain,   response fetch::offset_for_leader_epoch;
    ShareGroupHeartbeatRequest:     Consume Content,  Plain,   response share::share_group_heartbeat;
    ShareGroupDescribeRequest:      See     Content,  Plain,   response share::share_group_describe;
    ShareFetchRequest:              Consume Content,  Waiting, response share::share_fetch;
    ShareAcknowledgeRequest:        Consume Content,  Plain,   response share::share_acknowledge;
}

/// The API of that key.
pub(crate) fn served(key: i16) -> Option<&'static Served> {
    SERVED.iter().find(|served| served.key == key)
}

/// How requests of that key are handled.
pub(crate) fn manner(key: i16) -> Manner {
    served(key).map_or(Manner::Plain, |served| served.manner)
}

/// Answers a request, or ends the connection: with an API or a version that is not offered no answer
/// would be understood.
pub(crate) fn answer(call: Call, head: RequestHeader, body: Reader) -> Answer {
    let (key, version) = (head.api_key, head.api_version);
    let Some(served) = served(key) else {
        debug!(from = %call.from, key, version, "an API that is not served");
        return Box::pin(async { Reply::Close });
    };
    if !served.versions.contains(&version) {
        if key == ApiVersionsRequest::KEY {
            return Box::pin(async move { api_versions::unsupported(head.correlation_id) });
        }
        debug!(from = %call.from, api = served.name, version, "a version that is not served");
        return Box::pin(async { Reply::Close });
    }
    if served.rule.scope != Scope::Open && matches!(call.caller, Caller::Nobody) {
        debug!(from = %call.from, api = served.name, "asked before anybody showed who it is");
        return Box::pin(async { Reply::Close });
    }
    handled(call, &head, body)
}

#[cfg(test)]
mod tests {
    use punctual_kafka_wire::api::api;

    use super::*;

    #[test]
    fn every_api_stands_in_the_table_once_and_can_be_read_and_written() {
        for served in SERVED {
            let known = api(served.key).expect("its messages are known");
            assert_eq!(known.name, served.name);
            assert_eq!(known.versions, served.versions);
            assert_eq!(SERVED.iter().filter(|other| other.key == served.key).count(), 1);
        }
    }

    #[test]
    fn only_what_leads_to_authentication_is_open_to_everybody() {
        let open = |served: &&Served| {
            served.rule.scope == Scope::Open || served.rule.permission == Permission::Anybody
        };
        let names: Vec<&str> = SERVED.iter().filter(open).map(|served| served.name).collect();
        assert!(
            names.iter().all(|name| {
                ["ApiVersions", "SaslHandshake", "SaslAuthenticate"].contains(name)
            }),
            "{names:?}"
        );
    }
}
