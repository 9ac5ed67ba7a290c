//! ShareGroupDescribe: who is in share groups, and what each is assigned.

use punctual_kafka_wire::error::ErrorCode;
use punctual_kafka_wire::messages::share_group_describe::{
    Assignment, DescribedGroup, Member, ShareGroupDescribeRequest, ShareGroupDescribeResponse,
    TopicPartitions,
};
use punctual_model::TopicName;

use super::members;
use crate::access::{Permission, Target};
use crate::kafka::call::Call;
use crate::kafka::coordinator::named;

/// How the assignment is called: everybody gets everything.
const ASSIGNOR: &str = "simple";

/// Who is in these groups.
pub(crate) async fn share_group_describe(
    call: &Call,
    request: ShareGroupDescribeRequest,
) -> ShareGroupDescribeResponse {
    let groups = request.group_ids.into_iter().map(|name| described(call, name)).collect();
    ShareGroupDescribeResponse { groups, ..ShareGroupDescribeResponse::default() }
}

fn described(call: &Call, group_id: String) -> DescribedGroup {
    let refused = |code: ErrorCode| DescribedGroup {
        error_code: code.code(),
        group_id: group_id.clone(),
        group_state: "Dead".to_owned(),
        ..DescribedGroup::default()
    };
    // Who may know nothing of the group does not learn whether it is there.
    let group = match named(call, &group_id, &[Permission::See, Permission::Consume]) {
        Ok(group) => group,
        Err(code) => return refused(code),
    };
    let known = call.shared.broker.consumers().list().into_iter();
    let topics: Vec<TopicName> =
        known.filter(|(_, known)| known.name == group).map(|(topic, _)| topic).collect();
    let members = call.shared.shares.inner.members.lock().of_group(&group);
    if topics.is_empty() && members.is_empty() {
        return refused(ErrorCode::GROUP_ID_NOT_FOUND);
    }
    let may_see = |topic: &TopicName| {
        call.caller.may(Permission::See, Target::Group(topic, &group))
            || call.may_consume(topic, &group)
    };
    if !topics.iter().any(may_see) {
        return refused(ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    let epoch = members.iter().map(|(_, member)| member.epoch).max().unwrap_or_default();
    DescribedGroup {
        group_state: if members.is_empty() { "Empty" } else { "Stable" }.to_owned(),
        group_epoch: epoch,
        assignment_epoch: epoch,
        assignor_name: ASSIGNOR.to_owned(),
        members: members.iter().map(|(name, member)| shown(call, name, member)).collect(),
        group_id,
        ..DescribedGroup::default()
    }
}

fn shown(call: &Call, name: &str, member: &members::Member) -> Member {
    let topics = call.shared.broker.topics();
    let assigned = member.assigned.iter().filter_map(|(id, partitions)| {
        Some(TopicPartitions {
            topic_id: call.shared.cluster.uuid(*id),
            topic_name: topics.by_id(*id)?.name.as_str().to_owned(),
            partitions: (0..i32::from(*partitions)).collect(),
        })
    });
    Member {
        member_id: name.to_owned(),
        rack_id: member.who.rack.clone(),
        member_epoch: member.epoch,
        client_id: member.who.client_id.as_deref().unwrap_or_default().to_owned(),
        client_host: format!("/{}", member.who.host),
        subscribed_topic_names: member.topics.iter().map(|name| name.as_str().to_owned()).collect(),
        assignment: Assignment { topic_partitions: assigned.collect() },
    }
}
