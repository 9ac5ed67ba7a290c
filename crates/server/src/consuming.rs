//! Where delivered messages are read: from this server, or from Kafka.
//!
//! Where they go to Kafka, the calls that would read them here, or settle them, have nothing to work
//! on. They are refused before they are carried out, by whichever listener they came, with a problem
//! that says which topic to read there. A failed message can be sent round again all the same.

use std::borrow::Cow;

use punctual_api::{Code, Problem};
use punctual_model::{GroupName, TopicName};

use crate::access::Operation;
use crate::config::OutletKind;

/// Where delivered messages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consuming {
    /// From this server.
    Here,
    /// From Kafka.
    Kafka,
}

impl From<OutletKind> for Consuming {
    fn from(outlet: OutletKind) -> Self {
        match outlet {
            OutletKind::Local => Self::Here,
            OutletKind::Kafka => Self::Kafka,
        }
    }
}

/// What an operation reads, or settles, of what was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Messages of the topic.
    Messages,
    /// Dead letters of the group.
    DeadLetters,
}

impl Consuming {
    /// Refuses an operation that can only be carried out where messages are read.
    ///
    /// # Errors
    /// [`Code::ConsumeWithKafka`].
    pub(crate) fn check(
        self,
        operation: Operation,
        topic: &TopicName,
        group: Option<&GroupName>,
    ) -> Result<(), Problem> {
        match (self, part(operation)) {
            (Self::Here, _) | (Self::Kafka, None) => Ok(()),
            (Self::Kafka, Some(part)) => Err(refused(part, topic, group)),
        }
    }

    /// Refuses settings of groups that only count where messages are read.
    ///
    /// # Errors
    /// [`Code::ConsumeWithKafka`].
    pub(crate) fn check_setting(self, setting: &str) -> Result<(), Problem> {
        match self {
            Self::Here => Ok(()),
            Self::Kafka => {
                let detail = format!("{setting} has no effect where messages are read from Kafka");
                Err(Problem::new(Code::ConsumeWithKafka, detail))
            }
        }
    }
}

/// Whether an operation is refused where messages are read from Kafka.
pub(crate) const fn is_refused_beside_kafka(operation: Operation) -> bool {
    part(operation).is_some()
}

/// What of the delivered messages an operation needs.
const fn part(operation: Operation) -> Option<Part> {
    match operation {
        Operation::ReadPartition
        | Operation::Receive
        | Operation::ReceiveStream
        | Operation::Ack
        | Operation::Nack
        | Operation::Extend
        | Operation::PauseGroup
        | Operation::ResumeGroup
        | Operation::ResetGroup
        | Operation::GetOffsets
        | Operation::PutOffsets
        | Operation::Drain
        | Operation::GetDrain => Some(Part::Messages),
        Operation::ListDead | Operation::Redrive | Operation::GetRedrive | Operation::Purge => {
            Some(Part::DeadLetters)
        }
        _ => None,
    }
}

fn refused(part: Part, topic: &TopicName, group: Option<&GroupName>) -> Problem {
    let named = |name: Result<TopicName, _>| name.ok();
    let dead = group.and_then(|group| named(group.dead_topic(topic)));
    let retry = group.and_then(|group| named(group.retry_topic(topic)));
    let detail: Cow<'static, str> = match (part, dead, retry) {
        (Part::DeadLetters, Some(dead), _) => {
            format!("dead letters go to Kafka: read its topic {dead} with a Kafka client").into()
        }
        (_, _, Some(retry)) => {
            format!("messages go to Kafka: read its topics {topic} and {retry} with a Kafka client")
                .into()
        }
        (_, _, None) => {
            format!("messages go to Kafka: read its topic {topic} with a Kafka client").into()
        }
    };
    Problem::new(Code::ConsumeWithKafka, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Permission;
    use crate::grpc::Method;

    #[test]
    fn whoever_may_only_consume_can_do_nothing_else_here_but_send_what_failed_round_again() {
        for operation in Operation::ALL {
            let consumes = operation.rule().permission == Permission::Consume;
            let refused = part(*operation).is_some();
            if consumes {
                assert_eq!(refused, *operation != Operation::Retry, "{operation:?}");
            }
        }
    }

    #[test]
    fn nothing_is_refused_where_messages_are_read_here() {
        let (topic, group) = (TopicName::new("a").unwrap(), GroupName::new("g").unwrap());
        for operation in Operation::ALL {
            Consuming::Here.check(*operation, &topic, Some(&group)).unwrap();
        }
        Consuming::Here.check_setting("push").unwrap();
    }

    #[test]
    fn a_problem_names_the_topic_to_read() {
        let (topic, group) = (TopicName::new("orders").unwrap(), GroupName::new("mail").unwrap());
        let told = |operation, group| {
            let problem = Consuming::Kafka.check(operation, &topic, group).unwrap_err();
            assert_eq!((problem.code, problem.code.status()), (Code::ConsumeWithKafka, 409));
            problem.detail.into_owned()
        };
        let receive = told(Operation::Receive, Some(&group));
        assert!(receive.contains("topics orders and orders.mail.retry"), "{receive}");
        let dead = told(Operation::ListDead, Some(&group));
        assert!(dead.contains("orders.mail.dead"), "{dead}");
        let read = told(Operation::ReadPartition, None);
        assert!(read.contains("topic orders with"), "{read}");
        let long = GroupName::new(&"x".repeat(249)).unwrap();
        assert!(told(Operation::Ack, Some(&long)).contains("topic orders with"));
    }

    #[test]
    fn the_methods_of_grpc_are_refused_as_the_routes_are() {
        let refused: Vec<Method> =
            Method::ALL.iter().copied().filter(|m| part(m.operation()).is_some()).collect();
        let expected = [
            Method::Read,
            Method::Receive,
            Method::ReceiveStream,
            Method::Ack,
            Method::Nack,
            Method::Extend,
        ];
        assert_eq!(refused, expected);
    }
}
