//! The requests of members: join, sync, heartbeat, leave. Nothing is decided here.

use std::sync::Arc;

use bytes::Bytes;
use punctual_kafka_wire::ErrorCode;
use punctual_kafka_wire::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use punctual_kafka_wire::messages::join_group::{
    JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember,
};
use punctual_kafka_wire::messages::leave_group::{
    LeaveGroupRequest, LeaveGroupResponse, MemberResponse,
};
use punctual_kafka_wire::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};
use punctual_model::{GroupName, Span};

use super::terms::{Identity, Joined, Joining, Peer, Protocol, Refusal, Syncing};
use crate::access::{Permission, Target};
use crate::kafka::call::Call;

/// From here on a new member without a name of its own is told its id before it counts.
const TWICE_FROM: i16 = 4;
/// From here on the leader understands that there is nothing to share out.
const SKIP_FROM: i16 = 9;
/// From here on several may leave at once.
const LEAVE_MANY_FROM: i16 = 3;

impl Refusal {
    /// The code that clients know it by.
    pub(crate) const fn code(self) -> ErrorCode {
        match self {
            Self::UnknownMember => ErrorCode::UNKNOWN_MEMBER_ID,
            Self::IllegalGeneration => ErrorCode::ILLEGAL_GENERATION,
            Self::Rebalancing => ErrorCode::REBALANCE_IN_PROGRESS,
            Self::InconsistentProtocol => ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
            Self::InvalidSession => ErrorCode::INVALID_SESSION_TIMEOUT,
            Self::ComeBack => ErrorCode::MEMBER_ID_REQUIRED,
            Self::Fenced => ErrorCode::FENCED_INSTANCE_ID,
            Self::Full => ErrorCode::GROUP_MAX_SIZE_REACHED,
            Self::NotNow => ErrorCode::COORDINATOR_NOT_AVAILABLE,
            Self::TooLarge => ErrorCode::UNKNOWN_SERVER_ERROR,
        }
    }
}

/// A group that the caller may consume with: what members say of topics is not read, so that the
/// right to the group with whatever topic is enough here; topics are checked where they are read,
/// and where offsets are committed.
///
/// # Errors
/// The code to answer with.
pub(crate) fn consumed(call: &Call, name: &str) -> Result<GroupName, ErrorCode> {
    named(call, name, &[Permission::Consume])
}

/// A group on which the caller has one of these rights, with whatever topic.
///
/// # Errors
/// The code to answer with.
pub(crate) fn named(
    call: &Call,
    name: &str,
    rights: &[Permission],
) -> Result<GroupName, ErrorCode> {
    let group = GroupName::new(name).map_err(|_illegal| ErrorCode::INVALID_GROUP_ID)?;
    let may = |right: &Permission| call.caller.may(*right, Target::ProducerGroup(&group));
    if rights.iter().any(may) { Ok(group) } else { Err(ErrorCode::GROUP_AUTHORIZATION_FAILED) }
}

/// `JoinGroup`: answered when the group is complete.
pub(crate) async fn join_group(call: &Call, request: JoinGroupRequest) -> JoinGroupResponse {
    let refused = |code: ErrorCode, member_id: String| JoinGroupResponse {
        error_code: code.code(),
        member_id,
        ..JoinGroupResponse::default()
    };
    let group = match consumed(call, &request.group_id) {
        Ok(group) => group,
        Err(code) => return refused(code, request.member_id),
    };
    let Ok(fresh) = fresh() else {
        return refused(ErrorCode::COORDINATOR_NOT_AVAILABLE, request.member_id);
    };
    match call.shared.coordinator.join(joining(call, group, request, fresh)).await {
        Ok(joined) => welcome(joined),
        Err((refusal, member)) => refused(refusal.code(), member.to_string()),
    }
}

fn fresh() -> Result<u128, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(u128::from_be_bytes(bytes))
}

fn joining(call: &Call, group: GroupName, request: JoinGroupRequest, fresh: u128) -> Joining {
    let span = |millis: i32| Span::from_millis(u64::try_from(millis).unwrap_or(0));
    let session = span(request.session_timeout_ms);
    // The first version knows one time only.
    let rebalance = match request.rebalance_timeout_ms {
        millis if call.version >= 1 && millis >= 0 => span(millis),
        _ => session,
    };
    let instance: Option<Arc<str>> = request.group_instance_id.map(Into::into);
    let protocols = request.protocols.into_iter().map(|protocol| Protocol {
        name: protocol.name.into(),
        metadata: Bytes::copy_from_slice(&protocol.metadata),
    });
    Joining {
        group,
        member: (!request.member_id.is_empty()).then(|| request.member_id.into()),
        twice: call.version >= TWICE_FROM && instance.is_none(),
        instance,
        client_id: call.client_id.clone().unwrap_or_default(),
        client_host: format!("/{}", call.from.ip()).into(),
        session,
        rebalance,
        protocol_type: request.protocol_type.into(),
        protocols: protocols.collect(),
        can_skip: call.version >= SKIP_FROM,
        fresh,
    }
}

fn welcome(joined: Joined) -> JoinGroupResponse {
    let text = |text: Arc<str>| text.to_string();
    let member = |peer: Peer| JoinGroupResponseMember {
        member_id: text(peer.member),
        group_instance_id: peer.instance.map(text),
        metadata: peer.metadata,
    };
    JoinGroupResponse {
        generation_id: joined.generation,
        protocol_type: joined.protocol_type.map(text),
        protocol_name: joined.protocol.map(text),
        leader: text(joined.leader),
        skip_assignment: joined.skip,
        member_id: text(joined.member),
        members: joined.members.into_iter().map(member).collect(),
        ..JoinGroupResponse::default()
    }
}

/// `SyncGroup`: answered when the leader has said who gets what.
pub(crate) async fn sync_group(call: &Call, request: SyncGroupRequest) -> SyncGroupResponse {
    let refused =
        |code: ErrorCode| SyncGroupResponse { error_code: code.code(), ..Default::default() };
    let group = match consumed(call, &request.group_id) {
        Ok(group) => group,
        Err(code) => return refused(code),
    };
    let shares = request.assignments.into_iter();
    let shares =
        shares.map(|share| (share.member_id.into(), Bytes::copy_from_slice(&share.assignment)));
    let syncing = Syncing {
        group,
        who: who(request.member_id, request.group_instance_id),
        generation: request.generation_id,
        protocol_type: request.protocol_type.map(Into::into),
        protocol: request.protocol_name.map(Into::into),
        shares: shares.collect(),
    };
    match call.shared.coordinator.sync(syncing).await {
        Ok(synced) => SyncGroupResponse {
            protocol_type: synced.protocol_type.map(|text| text.to_string()),
            protocol_name: synced.protocol.map(|text| text.to_string()),
            assignment: synced.share,
            ..Default::default()
        },
        Err(refusal) => refused(refusal.code()),
    }
}

/// `Heartbeat`
pub(crate) async fn heartbeat(call: &Call, request: HeartbeatRequest) -> HeartbeatResponse {
    let done = consumed(call, &request.group_id).and_then(|group| {
        let who = who(request.member_id, request.group_instance_id);
        let beat = call.shared.coordinator.heartbeat(&group, &who, request.generation_id);
        beat.map_err(Refusal::code)
    });
    HeartbeatResponse { error_code: code(done), ..Default::default() }
}

/// `LeaveGroup`
pub(crate) async fn leave_group(call: &Call, request: LeaveGroupRequest) -> LeaveGroupResponse {
    let group = match consumed(call, &request.group_id) {
        Ok(group) => group,
        Err(code) => return LeaveGroupResponse { error_code: code.code(), ..Default::default() },
    };
    let leave =
        |who: Identity| code(call.shared.coordinator.leave(&group, &who).map_err(Refusal::code));
    if call.version < LEAVE_MANY_FROM {
        let error_code = leave(who(request.member_id, None));
        return LeaveGroupResponse { error_code, ..Default::default() };
    }
    let members = request.members.into_iter().map(|member| MemberResponse {
        error_code: leave(who(member.member_id.clone(), member.group_instance_id.clone())),
        member_id: member.member_id,
        group_instance_id: member.group_instance_id,
    });
    LeaveGroupResponse { members: members.collect(), ..Default::default() }
}

/// Who somebody says that it is.
pub(crate) fn who(member: String, instance: Option<String>) -> Identity {
    Identity { member: member.into(), instance: instance.map(Into::into) }
}

fn code(done: Result<(), ErrorCode>) -> i16 {
    done.err().unwrap_or(ErrorCode::NONE).code()
}
