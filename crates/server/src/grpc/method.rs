//! Every method there is, in one table: its path, the operation it is, and how large a request is.
//!
//! A method without an operation does not compile, and a method of the contract without a line here
//! fails the test below; so each has its permission.

use punctual_model::limits::{BATCH_BYTES_MAX, BODY_BYTES_CEILING};

use crate::access::Operation;

/// Largest request with a batch: with room for what the frame adds.
const BATCH: usize = BATCH_BYTES_MAX + BATCH_BYTES_MAX / 2;
/// Largest request with one message.
const MESSAGE: usize = BODY_BYTES_CEILING + (1 << 20);
/// Largest request with receipts.
const RECEIPTS: usize = 1 << 20;
/// Largest request about anything else.
const SMALL: usize = 64 << 10;

macro_rules! methods {
    ($($name:ident, $service:literal, $method:literal, $operation:ident, $bytes:ident;)*) => {
        /// What can be called.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Method {
            $($name,)*
        }

        impl Method {
            /// Every method there is.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            /// The method at that path.
            pub(crate) fn at(path: &str) -> Option<Self> {
                match path {
                    $(concat!("/", $service, "/", $method) => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its path.
            pub(crate) const fn path(self) -> &'static str {
                match self { $(Self::$name => concat!("/", $service, "/", $method),)* }
            }

            /// What it is, for whoever decides who may.
            pub(crate) const fn operation(self) -> Operation {
                match self { $(Self::$name => Operation::$operation,)* }
            }

            /// Largest message that it takes.
            pub(crate) const fn request_bytes_max(self) -> usize {
                match self { $(Self::$name => $bytes,)* }
            }
        }
    };
}

#[rustfmt::skip]
methods! {
    Send,             "punctual.v1.MessageService",     "Send",          Schedule,          BATCH;
    SendStream,       "punctual.v1.MessageService",     "SendStream",    Schedule,          BATCH;
    Get,              "punctual.v1.MessageService",     "Get",           GetMessage,        SMALL;
    Cancel,           "punctual.v1.MessageService",     "Cancel",        CancelMessage,     SMALL;
    Change,           "punctual.v1.MessageService",     "Change",        PatchMessage,      MESSAGE;
    Deliver,          "punctual.v1.MessageService",     "Deliver",       DeliverMessage,    SMALL;
    List,             "punctual.v1.MessageService",     "List",          ListScheduled,     SMALL;
    ListSeries,       "punctual.v1.MessageService",     "ListSeries",    ListSeries,        SMALL;
    Read,             "punctual.v1.MessageService",     "Read",          ReadPartition,     SMALL;
    Forecast,         "punctual.v1.MessageService",     "Forecast",      Forecast,          SMALL;
    Receive,          "punctual.v1.ConsumerService",    "Receive",       Receive,           SMALL;
    ReceiveStream,    "punctual.v1.ConsumerService",    "ReceiveStream", Receive,           RECEIPTS;
    Ack,              "punctual.v1.ConsumerService",    "Ack",           Ack,               RECEIPTS;
    Nack,             "punctual.v1.ConsumerService",    "Nack",          Nack,              RECEIPTS;
    Extend,           "punctual.v1.ConsumerService",    "Extend",        Extend,            RECEIPTS;
    Retry,            "punctual.v1.ConsumerService",    "Retry",         Retry,             MESSAGE;
    Prepare,          "punctual.v1.TransactionService", "Prepare",       Prepare,           BATCH;
    Commit,           "punctual.v1.TransactionService", "Commit",        Commit,            SMALL;
    Rollback,         "punctual.v1.TransactionService", "Rollback",      Rollback,          SMALL;
    Resume,           "punctual.v1.TransactionService", "Resume",        ResumeTransaction, SMALL;
    GetTransaction,   "punctual.v1.TransactionService", "Get",           GetTransaction,    SMALL;
    ListTransactions, "punctual.v1.TransactionService", "List",          ListTransactions,  SMALL;
    Checks,           "punctual.v1.TransactionService", "Checks",        Checks,            SMALL;
    CheckStream,      "punctual.v1.TransactionService", "CheckStream",   Checks,            SMALL;
    ListTopics,       "punctual.v1.AdminService",       "ListTopics",    ListTopics,        SMALL;
    GetTopic,         "punctual.v1.AdminService",       "GetTopic",      GetTopic,          SMALL;
    PutTopic,         "punctual.v1.AdminService",       "PutTopic",      PutTopic,          SMALL;
    DeleteTopic,      "punctual.v1.AdminService",       "DeleteTopic",   DeleteTopic,       SMALL;
    ListGroups,       "punctual.v1.AdminService",       "ListGroups",    ListGroups,        SMALL;
    GetGroup,         "punctual.v1.AdminService",       "GetGroup",      GetGroup,          SMALL;
    PutGroup,         "punctual.v1.AdminService",       "PutGroup",      PutGroup,          SMALL;
    DeleteGroup,      "punctual.v1.AdminService",       "DeleteGroup",   DeleteGroup,       SMALL;
    GetLevels,        "punctual.v1.AdminService",       "GetLevels",     GetLevels,         SMALL;
    PutLevels,        "punctual.v1.AdminService",       "PutLevels",     PutLevels,         SMALL;
    // Whether it serves is open to anybody; the contract is seen by whoever may see anything.
    HealthCheck,      "grpc.health.v1.Health",          "Check",         Live,              SMALL;
    HealthWatch,      "grpc.health.v1.Health",          "Watch",         Live,              SMALL;
    Reflect,          "grpc.reflection.v1.ServerReflection",      "ServerReflectionInfo", Time, SMALL;
    ReflectAlpha,     "grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo", Time, SMALL;
}

impl Method {
    /// Whether it changes nothing, so that its answer may be refused for its size. A receive lends
    /// messages, and takes them back if it is refused.
    pub(crate) const fn is_question(self) -> bool {
        matches!(
            self,
            Self::Get
                | Self::List
                | Self::ListSeries
                | Self::Read
                | Self::Receive
                | Self::GetTransaction
                | Self::ListTransactions
                | Self::ListTopics
                | Self::GetTopic
                | Self::ListGroups
                | Self::GetGroup
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::reflection::CONTRACT;

    #[test]
    fn every_method_of_the_contract_has_a_line_and_every_line_a_method() {
        let mut of_contract = Vec::new();
        for service in CONTRACT.services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                assert!(Method::at(&path).is_some(), "{path} is not served");
                of_contract.push(path);
            }
        }
        for method in Method::ALL {
            let path = method.path();
            assert_eq!(Method::at(path), Some(*method), "{path} is there twice");
            assert!(of_contract.iter().any(|known| known == path), "{path} is in no contract");
        }
    }
}
