//! What can be wrong with bytes, and the error codes that Kafka's clients understand.

use thiserror::Error;

/// Why bytes are not the message they should be, or a message cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The frame ends before the value does.
    #[error("{wanted} bytes are needed and {left} are left")]
    Short {
        /// Bytes the value needs.
        wanted: usize,
        /// Bytes the frame still has.
        left: usize,
    },
    /// The frame goes on after the message.
    #[error("{0} bytes are left after the message")]
    Trailing(usize),
    /// An array claims more elements than bytes remain.
    #[error("{count} elements are claimed and {left} bytes are left")]
    Count {
        /// Elements claimed.
        count: usize,
        /// Bytes the frame still has.
        left: usize,
    },
    /// The arrays of the frame would take too much memory for its size.
    #[error("the arrays take too much memory for the size of the frame")]
    Budget,
    /// A length below -1, or below 0 where null makes no sense.
    #[error("{0} is not a length")]
    Negative(i64),
    /// A varint of more than 32 bits.
    #[error("a variable-length number has more than 32 bits")]
    Varint,
    /// Null where the version of the message knows none.
    #[error("null is not allowed here")]
    Null,
    /// Text that is not UTF-8.
    #[error("text is not UTF-8")]
    Text,
    /// More than the form of the length can hold.
    #[error("{0} bytes or elements are too many to write")]
    Long(usize),
    /// The API is not known, or not in this version.
    #[error("API {key} is not known in version {version}")]
    Version {
        /// The API's key.
        key: i16,
        /// The version asked for.
        version: i16,
    },
    /// An answer holds bytes that are sent from elsewhere, and was wanted in one piece.
    #[error("the answer has gaps")]
    Gap,
}

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        /// A Kafka error code, as it stands in responses.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct ErrorCode(pub i16);

        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            /// The number on the wire.
            pub const fn code(self) -> i16 {
                self.0
            }

            /// The name Kafka gives the code, where it is one of those used here.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($code => stringify!($name),)*
                    _ => "OTHER",
                }
            }

            /// Whether nothing went wrong.
            pub const fn is_none(self) -> bool {
                self.0 == 0
            }
        }
    };
}

error_codes! {
    /// Something unexpected happened in the broker.
    UNKNOWN_SERVER_ERROR = -1;
    /// No error.
    NONE = 0;
    /// The offset is outside what the partition holds.
    OFFSET_OUT_OF_RANGE = 1;
    /// The checksum is wrong, or the batch is not one.
    CORRUPT_MESSAGE = 2;
    /// The topic or partition does not exist here.
    UNKNOWN_TOPIC_OR_PARTITION = 3;
    /// The size of the fetch is illegal.
    INVALID_FETCH_SIZE = 4;
    /// No leader is known at the moment.
    LEADER_NOT_AVAILABLE = 5;
    /// This broker does not lead the partition.
    NOT_LEADER_OR_FOLLOWER = 6;
    /// The request took longer than it was allowed.
    REQUEST_TIMED_OUT = 7;
    /// A batch is larger than the broker takes.
    MESSAGE_TOO_LARGE = 10;
    /// The metadata of a committed offset is too long.
    OFFSET_METADATA_TOO_LARGE = 12;
    /// The connection was lost.
    NETWORK_EXCEPTION = 13;
    /// The coordinator is still loading its groups.
    COORDINATOR_LOAD_IN_PROGRESS = 14;
    /// No coordinator is available at the moment.
    COORDINATOR_NOT_AVAILABLE = 15;
    /// This broker does not coordinate the group.
    NOT_COORDINATOR = 16;
    /// The topic's name is illegal.
    INVALID_TOPIC_EXCEPTION = 17;
    /// A batch is larger than a segment.
    RECORD_LIST_TOO_LARGE = 18;
    /// Nothing can be appended at the moment, and nothing was.
    NOT_ENOUGH_REPLICAS = 19;
    /// The number of acknowledgements asked for is illegal.
    INVALID_REQUIRED_ACKS = 21;
    /// The generation is not the group's current one.
    ILLEGAL_GENERATION = 22;
    /// The member's protocols have nothing in common with the group's.
    INCONSISTENT_GROUP_PROTOCOL = 23;
    /// The group's name is illegal.
    INVALID_GROUP_ID = 24;
    /// The group has no such member.
    UNKNOWN_MEMBER_ID = 25;
    /// The session time-out is outside the broker's limits.
    INVALID_SESSION_TIMEOUT = 26;
    /// The group is rebalancing; join again.
    REBALANCE_IN_PROGRESS = 27;
    /// The commit is too large.
    INVALID_COMMIT_OFFSET_SIZE = 28;
    /// The caller may not do this to the topic.
    TOPIC_AUTHORIZATION_FAILED = 29;
    /// The caller may not do this to the group.
    GROUP_AUTHORIZATION_FAILED = 30;
    /// The caller may not do this to the broker.
    CLUSTER_AUTHORIZATION_FAILED = 31;
    /// The timestamp of a record is out of range.
    INVALID_TIMESTAMP = 32;
    /// The SASL mechanism is not offered.
    UNSUPPORTED_SASL_MECHANISM = 33;
    /// The request does not fit the state of the authentication.
    ILLEGAL_SASL_STATE = 34;
    /// The version of the API is not offered.
    UNSUPPORTED_VERSION = 35;
    /// The topic exists already.
    TOPIC_ALREADY_EXISTS = 36;
    /// The number of partitions is illegal.
    INVALID_PARTITIONS = 37;
    /// The replication factor is illegal.
    INVALID_REPLICATION_FACTOR = 38;
    /// The replica assignment is illegal.
    INVALID_REPLICA_ASSIGNMENT = 39;
    /// A setting is illegal.
    INVALID_CONFIG = 40;
    /// The request is not for this broker but for the controller.
    NOT_CONTROLLER = 41;
    /// The request makes no sense.
    INVALID_REQUEST = 42;
    /// The format of the records is not supported.
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43;
    /// A policy forbids it.
    POLICY_VIOLATION = 44;
    /// The sequence of a producer's batch does not follow the one before.
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45;
    /// The producer's batch was written before.
    DUPLICATE_SEQUENCE_NUMBER = 46;
    /// A newer producer took over.
    INVALID_PRODUCER_EPOCH = 47;
    /// The transaction is not in a state for this.
    INVALID_TXN_STATE = 48;
    /// The producer id does not belong to the transactional id.
    INVALID_PRODUCER_ID_MAPPING = 49;
    /// The caller may not use the transactional id.
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53;
    /// The security features are switched off.
    SECURITY_DISABLED = 54;
    /// The storage failed.
    KAFKA_STORAGE_ERROR = 56;
    /// Name or password is wrong.
    SASL_AUTHENTICATION_FAILED = 58;
    /// Nothing is known about the producer.
    UNKNOWN_PRODUCER_ID = 59;
    /// The group has members or is in use.
    NON_EMPTY_GROUP = 68;
    /// The group does not exist.
    GROUP_ID_NOT_FOUND = 69;
    /// The broker knows no such fetch session.
    FETCH_SESSION_ID_NOT_FOUND = 70;
    /// The epoch of the fetch session does not follow the one before.
    INVALID_FETCH_SESSION_EPOCH = 71;
    /// Topics cannot be deleted here.
    TOPIC_DELETION_DISABLED = 73;
    /// The leader epoch is older than the broker's.
    FENCED_LEADER_EPOCH = 74;
    /// The leader epoch is newer than the broker's.
    UNKNOWN_LEADER_EPOCH = 75;
    /// The compression is not allowed in this version.
    UNSUPPORTED_COMPRESSION_TYPE = 76;
    /// The offset is not available at the moment.
    OFFSET_NOT_AVAILABLE = 78;
    /// Join again with the member id just given.
    MEMBER_ID_REQUIRED = 79;
    /// The group has its largest size.
    GROUP_MAX_SIZE_REACHED = 81;
    /// Another member took the static identity.
    FENCED_INSTANCE_ID = 82;
    /// A member of the group is subscribed to the topic.
    GROUP_SUBSCRIBED_TO_TOPIC = 86;
    /// A record is illegal.
    INVALID_RECORD = 87;
    /// The offsets are not stable yet.
    UNSTABLE_OFFSET_COMMIT = 88;
    /// The caller has used up its share.
    THROTTLING_QUOTA_EXCEEDED = 89;
    /// A newer producer with the same transactional id took over.
    PRODUCER_FENCED = 90;
    /// The resource does not exist.
    RESOURCE_NOT_FOUND = 91;
    /// The resource exists twice.
    DUPLICATE_RESOURCE = 92;
    /// No topic has this id.
    UNKNOWN_TOPIC_ID = 100;
    /// The ids of the fetch session's topics do not fit the session.
    FETCH_SESSION_TOPIC_ID_ERROR = 106;
    /// The member's epoch is older than the group's.
    FENCED_MEMBER_EPOCH = 110;
    /// Another member holds the static identity.
    UNRELEASED_INSTANCE_ID = 111;
    /// The member's assignor is not offered.
    UNSUPPORTED_ASSIGNOR = 112;
    /// The member's epoch is not the current one.
    STALE_MEMBER_EPOCH = 113;
    /// Endpoints of that type are not known here.
    UNSUPPORTED_ENDPOINT_TYPE = 115;
    /// The record is not acquired by this member, or in another state.
    INVALID_RECORD_STATE = 121;
    /// The broker knows no such share session.
    SHARE_SESSION_NOT_FOUND = 122;
    /// The epoch of the share session does not follow the one before.
    INVALID_SHARE_SESSION_EPOCH = 123;
    /// The broker has as many share sessions as it takes.
    SHARE_SESSION_LIMIT_REACHED = 133;
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> Self {
        code.0
    }
}
