//! What is shown of groups, and their removal: `DescribeGroups`, `ListGroups`, `DeleteGroups`.
//!
//! A group is known if it has members here, or if it is stored with some topic: by a commit, or
//! over HTTP. One that only its members kept alive is gone with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_kafka_wire::ErrorCode;
use punctual_kafka_wire::messages::delete_groups::{
    DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse,
};
use punctual_kafka_wire::messages::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};
use punctual_kafka_wire::messages::list_groups::{
    ListGroupsRequest, ListGroupsResponse, ListedGroup,
};
use punctual_model::group::PlacedBy;
use punctual_model::{GroupName, TopicName};

use super::CONSUMERS;
use super::handlers::named;
use super::terms::{GroupShown, Phase};
use crate::access::{Permission, Target};
use crate::app::Broker;
use crate::http::audit::taken_down;
use crate::http::groups::blocking;
use crate::kafka::call::Call;

/// From here on a group that is not there is an error.
const UNKNOWN_FROM: i16 = 6;
/// What is said of a group that nobody knows.
const DEAD: &str = "Dead";
/// Kinds of groups, as clients know them: whose members share partitions, or messages.
const CLASSIC: &str = "classic";
const SHARE: &str = "share";
/// The numbers of operations that a caller may be allowed.
const MAY_READ: i32 = 1 << 3;
const MAY_DELETE: i32 = 1 << 6;
const MAY_DESCRIBE: i32 = 1 << 8;

/// `DescribeGroups`
pub(crate) async fn describe_groups(
    call: &Call,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let operations = request.include_authorized_operations;
    let describe = |name: String| {
        let group = match named(call, &name, &[Permission::See, Permission::Consume]) {
            Ok(group) => group,
            Err(code) => {
                let error_message = Some(code.name().to_owned());
                let error_code = code.code();
                return DescribedGroup {
                    error_code,
                    error_message,
                    group_id: name,
                    ..Default::default()
                };
            }
        };
        let mut described = described(call, &group);
        if operations {
            described.authorized_operations = authorized(call, &group);
        }
        described
    };
    let groups = request.groups.into_iter().map(describe).collect();
    DescribeGroupsResponse { groups, ..Default::default() }
}

fn described(call: &Call, group: &GroupName) -> DescribedGroup {
    let group_id = group.to_string();
    if let Some(shown) = call.shared.coordinator.look(|machine| machine.shown(group)) {
        return with_members(group_id, shown);
    }
    if let Some(kind) = Stored::of(&call.shared.broker, group).kind() {
        return DescribedGroup {
            group_id,
            group_state: Phase::Empty.word().to_owned(),
            protocol_type: protocol_type(kind).to_owned(),
            ..Default::default()
        };
    }
    let mut unknown =
        DescribedGroup { group_id, group_state: DEAD.to_owned(), ..Default::default() };
    if call.version >= UNKNOWN_FROM {
        unknown.error_code = ErrorCode::GROUP_ID_NOT_FOUND.code();
        unknown.error_message = Some(format!("there is no group {group}"));
    }
    unknown
}

fn with_members(group_id: String, shown: GroupShown) -> DescribedGroup {
    let members = shown.members.into_iter().map(|member| DescribedGroupMember {
        member_id: member.member.to_string(),
        group_instance_id: member.instance.map(|instance| instance.to_string()),
        client_id: member.client_id.to_string(),
        client_host: member.client_host.to_string(),
        member_metadata: member.metadata,
        member_assignment: member.share,
    });
    DescribedGroup {
        group_id,
        group_state: shown.phase.word().to_owned(),
        protocol_type: shown.protocol_type.to_string(),
        protocol_data: shown.protocol.map(|name| name.to_string()).unwrap_or_default(),
        members: members.collect(),
        ..Default::default()
    }
}

fn authorized(call: &Call, group: &GroupName) -> i32 {
    let rights = [
        (Permission::Consume, MAY_READ),
        (Permission::Manage, MAY_DELETE),
        (Permission::See, MAY_DESCRIBE),
    ];
    let may = |right| call.caller.may(right, Target::ProducerGroup(group));
    rights.into_iter().filter(|(right, _)| may(*right)).map(|(_, bit)| bit).sum()
}

/// What members of such a group would say that it is for.
fn protocol_type(kind: &str) -> &'static str {
    if kind == SHARE { SHARE } else { CONSUMERS }
}

/// `ListGroups`: what the caller may see.
pub(crate) async fn list_groups(call: &Call, request: ListGroupsRequest) -> ListGroupsResponse {
    let visible = call.clone();
    let listed = call.shared.tasks.blocking(move || listed(&visible)).await;
    let Ok(mut groups) = listed else {
        let error_code = ErrorCode::COORDINATOR_NOT_AVAILABLE.code();
        return ListGroupsResponse { error_code, ..Default::default() };
    };
    let among = |filter: &[String], word: &str| {
        filter.is_empty() || filter.iter().any(|one| one.eq_ignore_ascii_case(word))
    };
    groups.retain(|group| {
        among(&request.states_filter, &group.group_state)
            && among(&request.types_filter, &group.group_type)
    });
    ListGroupsResponse { groups, ..Default::default() }
}

fn listed(call: &Call) -> Vec<ListedGroup> {
    let mut groups: BTreeMap<GroupName, ListedGroup> = BTreeMap::new();
    let mut put = |name: GroupName, phase: Phase, protocol_type: &str, kind: &str| {
        let listed = ListedGroup {
            group_id: name.to_string(),
            protocol_type: protocol_type.to_owned(),
            group_state: phase.word().to_owned(),
            group_type: kind.to_owned(),
        };
        groups.entry(name).or_insert(listed);
    };
    let sees = |group: &GroupName| {
        let rights = [Permission::See, Permission::Consume];
        rights.into_iter().any(|right| call.caller.may(right, Target::ProducerGroup(group)))
    };
    for (name, phase, protocol_type) in call.shared.coordinator.look(|machine| machine.list()) {
        if sees(&name) {
            put(name, phase, &protocol_type, CLASSIC);
        }
    }
    for (name, stored) in Stored::all(call) {
        let kind = stored.kind().unwrap_or(SHARE);
        let shared = call.shared.shares.has_members(&name);
        let phase = if shared { Phase::Stable } else { Phase::Empty };
        put(name, phase, protocol_type(kind), kind);
    }
    groups.into_values().collect()
}

/// With which topics a group is stored.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) topics: Vec<TopicName>,
    /// Whether somebody keeps its own place in one of them.
    streams: bool,
}

impl Stored {
    /// What is stored of this group.
    pub(crate) fn of(broker: &Broker, group: &GroupName) -> Self {
        let mut stored = Self::default();
        for (topic, one) in broker.consumers().list() {
            if one.name == *group {
                stored.add(broker, topic, group);
            }
        }
        stored
    }

    /// What is stored of every group that the caller may see.
    fn all(call: &Call) -> BTreeMap<GroupName, Self> {
        let mut all: BTreeMap<GroupName, Self> = BTreeMap::new();
        for (topic, group) in call.shared.broker.consumers().list() {
            let rights = [Permission::See, Permission::Consume];
            let target = Target::Group(&topic, &group.name);
            if rights.into_iter().any(|right| call.caller.may(right, target)) {
                let name = group.name.clone();
                all.entry(name).or_default().add(&call.shared.broker, topic, &group.name);
            }
        }
        all
    }

    fn add(&mut self, broker: &Broker, topic: TopicName, group: &GroupName) {
        // Settling is what those do who share messages; whoever commits, or is put elsewhere
        // before anything was settled, reads a partition on its own.
        let streams = || {
            let placed = broker.consumers().find(&topic, group).map(|one| one.placed());
            let placed = placed.unwrap_or_default();
            placed.iter().any(|placed| placed.by != PlacedBy::Settle)
        };
        self.streams = self.streams || streams();
        self.topics.push(topic);
    }

    /// Which kind of group it is; none if nothing is stored.
    fn kind(&self) -> Option<&'static str> {
        match (self.topics.is_empty(), self.streams) {
            (true, _) => None,
            (false, true) => Some(CLASSIC),
            (false, false) => Some(SHARE),
        }
    }
}

/// `DeleteGroups`: with all that is stored of them, dead letters and retries included.
pub(crate) async fn delete_groups(
    call: &Call,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut results = Vec::with_capacity(request.groups_names.len());
    for group_id in request.groups_names {
        let error_code = delete(call, &group_id).await.err().unwrap_or(ErrorCode::NONE).code();
        results.push(DeletableGroupResult { group_id, error_code });
    }
    DeleteGroupsResponse { results, ..Default::default() }
}

async fn delete(call: &Call, name: &str) -> Result<(), ErrorCode> {
    let group = named(call, name, &[Permission::Manage])?;
    let (coordinator, shares) = (&call.shared.coordinator, &call.shared.shares);
    if coordinator.look(|machine| machine.has_members(&group)) || shares.has_members(&group) {
        return Err(ErrorCode::NON_EMPTY_GROUP);
    }
    let stored = Stored::of(&call.shared.broker, &group);
    if stored.topics.is_empty() {
        return Err(ErrorCode::GROUP_ID_NOT_FOUND);
    }
    let may = |topic| call.caller.may(Permission::Manage, Target::Group(topic, &group));
    if !stored.topics.iter().all(may) {
        return Err(ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    for topic in stored.topics {
        remove(call, topic, group.clone()).await?;
    }
    Ok(())
}

/// Removes what is stored of a group with one topic, and takes it down.
pub(crate) async fn remove(
    call: &Call,
    topic: TopicName,
    group: GroupName,
) -> Result<(), ErrorCode> {
    let shared = Arc::clone(&call.shared.shared);
    let _one_at_a_time = shared.changes.lock().await;
    let consumers = shared.broker.consumers().clone();
    let (of, details) = (topic.clone(), vec![("group", group.to_string())]);
    let work = blocking(&shared, move || consumers.delete(&topic, &group));
    let what = ("group_delete", Some(&of));
    let removed = taken_down(&shared, call.asker(), what, details, work).await;
    removed.map(drop).map_err(|_refused| ErrorCode::COORDINATOR_NOT_AVAILABLE)
}
