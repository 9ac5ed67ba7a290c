//! What a caller may do, in the words and bits of Kafka's clients.

use punctual_model::TopicName;

use crate::access::Permission;
use crate::kafka::call::Call;

/// The numbers of operations, which are the bits that tell who may do what.
const READ: u8 = 3;
const WRITE: u8 = 4;
const CREATE: u8 = 5;
const DELETE: u8 = 6;
const ALTER: u8 = 7;
const DESCRIBE: u8 = 8;
const CLUSTER_ACTION: u8 = 9;
const DESCRIBE_CONFIGS: u8 = 10;
const ALTER_CONFIGS: u8 = 11;
const IDEMPOTENT_WRITE: u8 = 12;

/// What the caller may do with a topic.
pub(crate) fn topic_operations(call: &Call, topic: &TopicName) -> i32 {
    let manage = call.may_topic(Permission::Manage, topic);
    bits(&[
        (READ, call.may_fetch(topic)),
        (WRITE, call.may_topic(Permission::Send, topic)),
        (CREATE, manage),
        (DELETE, manage),
        (ALTER, manage),
        (DESCRIBE, call.may_know(topic)),
        (DESCRIBE_CONFIGS, call.may_topic(Permission::See, topic)),
        (ALTER_CONFIGS, manage),
    ])
}

/// What the caller may do with the broker.
pub(crate) fn cluster_operations(call: &Call) -> i32 {
    let admin = call.may_whole(Permission::Admin);
    let observe = call.may_whole(Permission::Observe);
    bits(&[
        (CREATE, call.may_whole(Permission::Manage)),
        (ALTER, admin),
        (DESCRIBE, observe),
        (CLUSTER_ACTION, admin),
        (DESCRIBE_CONFIGS, observe),
        (ALTER_CONFIGS, admin),
        (IDEMPOTENT_WRITE, true),
    ])
}

fn bits(operations: &[(u8, bool)]) -> i32 {
    operations.iter().filter(|(_, may)| *may).fold(0, |bits, (number, _)| bits | 1 << number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_is_one_bit() {
        assert_eq!(bits(&[]), 0);
        assert_eq!(bits(&[(READ, true), (WRITE, false), (DESCRIBE, true)]), 0b1_0000_1000);
    }
}
