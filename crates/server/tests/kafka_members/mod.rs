//! Consumers of a group that do what they are told, one call at a time.

use bytes::Bytes;
use punctual_kafka_wire::ErrorCode;
use punctual_kafka_wire::messages::describe_groups::{DescribeGroupsRequest, DescribedGroup};
use punctual_kafka_wire::messages::heartbeat::HeartbeatRequest;
use punctual_kafka_wire::messages::join_group::{
    JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponseMember,
};
use punctual_kafka_wire::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use punctual_kafka_wire::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};

use crate::kafka::Client;
use crate::support::Server;

/// Long enough for any machine.
const SESSION_MS: i32 = 120_000;
/// Of those who are to be missed: soon, but not while a busy machine is late with their calls.
pub(crate) const SESSION_SHORT: i32 = 6000;

/// A member of a group, or somebody who wants to be one.
pub(crate) struct Member {
    pub(crate) client: Client,
    pub(crate) group: String,
    /// Of the join; the others follow as far as they go.
    version: i16,
    pub(crate) id: String,
    pub(crate) instance: Option<String>,
    pub(crate) generation: i32,
    pub(crate) session_ms: i32,
    pub(crate) protocol_asked: String,
    pub(crate) said: Bytes,
    pub(crate) protocol: String,
    leader: String,
    pub(crate) peers: Vec<JoinGroupResponseMember>,
    pub(crate) skip: bool,
}

/// What a consumer says about itself: the topics it wants, and something of its own.
pub(crate) fn subscribed(topics: &[&str], own: &[u8]) -> Bytes {
    let length = |length: usize| i32::try_from(length).expect("a few").to_be_bytes();
    let mut bytes = vec![0, 0];
    bytes.extend(length(topics.len()));
    for topic in topics {
        bytes.extend(i16::try_from(topic.len()).expect("a name").to_be_bytes());
        bytes.extend(topic.as_bytes());
    }
    bytes.extend(length(own.len()));
    bytes.extend(own);
    bytes.into()
}

/// What a leader gives to somebody.
fn assigned(share: &str) -> Bytes {
    Bytes::copy_from_slice(share.as_bytes())
}

impl Member {
    /// Somebody who has not joined yet.
    pub(crate) fn new(server: &Server, group: &str, version: i16) -> Self {
        Self {
            client: Client::connect(server),
            group: group.to_owned(),
            version,
            id: String::new(),
            instance: None,
            generation: -1,
            session_ms: SESSION_MS,
            protocol_asked: "range".to_owned(),
            said: subscribed(&["orders"], b""),
            protocol: String::new(),
            leader: String::new(),
            peers: Vec::new(),
            skip: false,
        }
    }

    /// Somebody with a name of its own.
    pub(crate) fn instance(server: &Server, group: &str, version: i16, name: &str) -> Self {
        Self { instance: Some(name.to_owned()), ..Self::new(server, group, version) }
    }

    /// The request by which it joins.
    pub(crate) fn request(&self) -> JoinGroupRequest {
        JoinGroupRequest {
            group_id: self.group.clone(),
            session_timeout_ms: self.session_ms,
            rebalance_timeout_ms: SESSION_MS,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            protocol_type: "consumer".to_owned(),
            protocols: vec![JoinGroupRequestProtocol {
                name: self.protocol_asked.clone(),
                metadata: self.said.clone(),
            }],
            ..JoinGroupRequest::default()
        }
    }

    /// Gets to know its id, where it has to come back with it.
    pub(crate) fn enter(&mut self) {
        if self.version >= 4 && self.instance.is_none() {
            let answer = self.client.call(self.version, &self.request());
            assert_eq!(answer.error_code, ErrorCode::MEMBER_ID_REQUIRED.code());
            self.id = answer.member_id;
        }
    }

    /// Joins, and waits for the group.
    pub(crate) fn join(&mut self) {
        self.ask();
        self.told();
    }

    /// Asks to join.
    pub(crate) fn ask(&mut self) {
        self.client.send(self.version, &self.request());
    }

    /// Waits for the answer to its join.
    pub(crate) fn told(&mut self) {
        let (_, answer) = self.client.receive::<JoinGroupRequest>(self.version);
        assert_eq!(answer.error_code, 0, "v{}", self.version);
        self.id = answer.member_id;
        self.generation = answer.generation_id;
        self.protocol = answer.protocol_name.unwrap_or_default();
        self.leader = answer.leader;
        self.peers = answer.members;
        self.skip = answer.skip_assignment;
    }

    /// Whether it is to say who gets what.
    pub(crate) fn leads(&self) -> bool {
        self.leader == self.id
    }

    fn up_to<Q: punctual_kafka_wire::Request>(&self) -> i16 {
        self.version.min(*Q::VERSIONS.end())
    }

    /// Says who gets what, and asks for its own share.
    pub(crate) fn sync(&mut self, shares: &[(String, &str)]) -> String {
        self.ask_share_with(shares);
        self.share()
    }

    /// Asks for its share.
    pub(crate) fn ask_share(&mut self) {
        self.ask_share_with(&[]);
    }

    /// Asks for its share, and gives everybody one by its number.
    pub(crate) fn ask_share_of(&mut self, ids: &[String]) {
        let parts: Vec<String> = (0..ids.len()).map(|number| format!("part {number}")).collect();
        let shares: Vec<(String, &str)> =
            ids.iter().cloned().zip(parts.iter().map(String::as_str)).collect();
        self.ask_share_with(&shares);
    }

    fn ask_share_with(&mut self, shares: &[(String, &str)]) {
        let assignment = |(member_id, share): &(String, &str)| SyncGroupRequestAssignment {
            member_id: member_id.clone(),
            assignment: assigned(share),
        };
        let request = SyncGroupRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            protocol_type: Some("consumer".to_owned()),
            protocol_name: Some(self.protocol.clone()),
            assignments: shares.iter().map(assignment).collect(),
        };
        self.client.send(self.up_to::<SyncGroupRequest>(), &request);
    }

    /// Waits for its share.
    pub(crate) fn share(&mut self) -> String {
        let version = self.up_to::<SyncGroupRequest>();
        let (_, answer) = self.client.receive::<SyncGroupRequest>(version);
        assert_eq!(answer.error_code, 0, "v{version}");
        String::from_utf8(answer.assignment.to_vec()).expect("a share of these tests")
    }

    /// Says that it lives; the code that is answered.
    pub(crate) fn beat(&mut self) -> i16 {
        let request = HeartbeatRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
        };
        self.client.call(self.up_to::<HeartbeatRequest>(), &request).error_code
    }

    /// Leaves.
    pub(crate) fn leave(&mut self) {
        let request = LeaveGroupRequest {
            group_id: self.group.clone(),
            member_id: self.id.clone(),
            members: vec![MemberIdentity {
                member_id: self.id.clone(),
                group_instance_id: self.instance.clone(),
                reason: None,
            }],
        };
        let version = self.up_to::<LeaveGroupRequest>();
        let answer = self.client.call(version, &request);
        assert_eq!(answer.error_code, 0, "v{version}");
        assert!(answer.members.iter().all(|member| member.error_code == 0), "v{version}");
    }
}

/// What the broker tells of a group.
pub(crate) fn describe(client: &mut Client, version: i16, group: &str) -> DescribedGroup {
    let request = DescribeGroupsRequest {
        groups: vec![group.to_owned()],
        include_authorized_operations: version >= 3,
    };
    let mut answer = client.call(version, &request);
    assert_eq!((answer.groups.len(), answer.groups[0].group_id.as_str()), (1, group));
    answer.groups.remove(0)
}
