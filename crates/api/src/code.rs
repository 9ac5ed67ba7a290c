//! The stable error codes.
//!
//! A code is never renamed and never changes its HTTP status; callers branch on it. Titles are for
//! people and may change.

macro_rules! codes {
    ($($name:ident, $text:literal, $status:literal, $title:literal;)*) => {
        /// Why a request was refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }

        impl Code {
            /// Every code there is.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code as callers see it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The HTTP status that always goes with it.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// The same for every occurrence, in words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    InvalidJson, "invalid_json", 400, "The request is not JSON";
    InvalidRequest, "invalid_request", 400, "The request does not have the expected form";
    UnknownField, "unknown_field", 400, "There is no such field";
    DuplicateField, "duplicate_field", 400, "A field occurs twice";
    ConflictingFields, "conflicting_fields", 400, "Fields exclude each other";
    NotSupported, "not_supported", 400, "This field is not supported yet";
    MissingBody, "missing_body", 400, "A message needs a body";
    InvalidField, "invalid_field", 400, "A field has a value of the wrong kind";
    InvalidBase64, "invalid_base64", 400, "A field is not base 64";
    InvalidDelay, "invalid_delay", 400, "The delay is not a duration";
    InvalidTime, "invalid_time", 400, "The time is not a time";
    DelayTooLong, "delay_too_long", 400, "The delay is longer than allowed";
    DueOutOfRange, "due_out_of_range", 400, "The due time is outside the supported range";
    UnknownLevel, "unknown_level", 400, "There is no such delay level";
    NoSuchPartition, "no_such_partition", 400, "The topic has no such partition";
    TooManyHeaders, "too_many_headers", 400, "The message has too many headers";
    HeadersTooLarge, "headers_too_large", 400, "The headers are too large";
    KeyTooLarge, "key_too_large", 400, "The key is too large";
    EmptyBatch, "empty_batch", 400, "The batch holds no message";
    InvalidTopicName, "invalid_topic_name", 400, "This is not a topic name";
    InvalidGroupName, "invalid_group_name", 400, "This is not a group name";
    InvalidParameter, "invalid_parameter", 400, "A query parameter has an illegal value";
    InvalidCursor, "invalid_cursor", 400, "This is not a cursor";
    InvalidId, "invalid_id", 400, "This cannot be an id of the sender's own";
    ReservedId, "reserved_id", 400, "The id has the form of those that the broker gives";
    InvalidRepeat, "invalid_repeat", 400, "This does not say when a message comes round";
    IntervalTooShort, "interval_too_short", 400, "The interval is too short";
    InvalidCron, "invalid_cron", 400, "This is not a cron expression";
    UnknownZone, "unknown_zone", 400, "There is no such time zone";
    CronNeverFires, "cron_never_fires", 400, "The cron expression names no time";
    EndsBeforeFirst, "ends_before_first", 400, "The series would end before its first time";
    InvalidCatchUp, "invalid_catch_up", 400, "This is not a policy for what was missed";
    EmptyChange, "empty_change", 400, "The request changes nothing";
    EmptyFilter, "empty_filter", 400, "Nothing says which messages are meant";
    InvalidState, "invalid_state", 400, "There is no such state, or it does not fit";
    MissingTime, "missing_time", 400, "Nothing says when the messages are to be due";
    InvalidShift, "invalid_shift", 400, "This does not say by how much to move";
    InvalidLevels, "invalid_levels", 400, "These are not eighteen delay levels";
    InvalidCheck, "invalid_check", 400, "Producers cannot be asked like that";
    InvalidUrl, "invalid_url", 400, "The address cannot be called";
    InvalidAppKey, "invalid_app_key", 400, "This cannot be the key of an app";
    InvalidPermission, "invalid_permission", 400, "This is not a permission of an app";
    Unauthenticated, "unauthenticated", 401, "The caller must say who it is";
    CrossOrigin, "cross_origin", 403, "A page of another origin may not ask this";
    Csrf, "csrf", 403, "A change from a browser must show that a page of this server asks";
    Forbidden, "forbidden", 403, "The caller may not do this";
    NotFound, "not_found", 404, "There is no such message";
    TopicNotFound, "topic_not_found", 404, "There is no such topic";
    GroupNotFound, "group_not_found", 404, "There is no such group";
    JobNotFound, "job_not_found", 404, "There is no such job";
    TransactionNotFound, "transaction_not_found", 404, "There is no such transaction";
    AppNotFound, "app_not_found", 404, "There is no such app";
    RouteNotFound, "route_not_found", 404, "There is nothing at this address";
    MethodNotAllowed, "method_not_allowed", 405, "This address does not take that method";
    RequestTimeout, "request_timeout", 408, "The request took too long to arrive";
    AlreadyDelivered, "already_delivered", 409, "The message was delivered";
    AlreadyCancelled, "already_cancelled", 409, "The message was cancelled";
    IdConflict, "id_conflict", 409, "Another message has this id";
    VersionConflict, "version_conflict", 409, "The message was changed since it was read";
    TransactionUndecided, "transaction_undecided", 409, "The message waits for its transaction";
    SeriesNotChangeable, "series_not_changeable", 409, "A series can be cancelled, not changed";
    AlreadyDecided, "already_decided", 409, "The opposite was decided before";
    NotVirtualTime, "not_virtual_time", 409, "Time cannot be moved by hand";
    NotACluster, "not_a_cluster", 409, "One machine alone has nothing to divide";
    ConsumeWithKafka, "consume_with_kafka", 409, "The messages are read from Kafka";
    PartitionsCannotShrink, "partitions_cannot_shrink", 409, "A topic cannot lose partitions";
    TooManyTopics, "too_many_topics", 409, "There are as many topics as the broker takes";
    ReservedTopic, "reserved_topic", 409, "The topic belongs to a group";
    GroupNameTaken, "group_name_taken", 409, "A topic has a name that the group needs";
    TooManyGroups, "too_many_groups", 409, "There are as many groups as the broker takes";
    AppExists, "app_exists", 409, "There is an app with this key";
    AppReserved, "app_reserved", 409, "The built-in app cannot be changed like that";
    TooManyApps, "too_many_apps", 409, "There are as many apps as the broker takes";
    PreconditionFailed, "precondition_failed", 412, "It is not what the request was meant for";
    BodyTooLarge, "body_too_large", 413, "The body is too large";
    BatchTooLarge, "batch_too_large", 413, "The batch is too large";
    RequestTooLarge, "request_too_large", 413, "The request is too large";
    LineTooLarge, "line_too_large", 413, "A line is too large";
    UnsupportedMediaType, "unsupported_media_type", 415, "The request must be JSON";
    UnsupportedEncoding, "unsupported_encoding", 415, "The content encoding is not known here";
    HostNotAllowed, "host_not_allowed", 421, "This server does not answer to that name";
    TooBusy, "too_busy", 429, "The broker is busy; try again";
    BacklogFull, "backlog_full", 429, "As many messages wait for a group as may";
    TooManyJobs, "too_many_jobs", 429, "As many jobs are under way as may be";
    QuotaExceeded, "quota_exceeded", 429, "The app does more than its quota lets it";
    DamagedData, "damaged_data", 500, "Stored data is damaged";
    Internal, "internal", 500, "The broker failed";
    AuditFailed, "audit_failed", 500, "The change could not be taken down in the audit record";
    Unavailable, "unavailable", 503, "The broker does not take requests now";
    StorageFull, "storage_full", 507, "The disk is full; try again later";
}

impl Code {
    /// Whether the same request may succeed later, unchanged.
    #[must_use]
    pub const fn is_retriable(self) -> bool {
        matches!(
            self,
            Self::TooBusy
                | Self::BacklogFull
                | Self::TooManyJobs
                | Self::QuotaExceeded
                | Self::StorageFull
                | Self::Unavailable
                | Self::RequestTimeout
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_code_is_given_twice() {
        let texts: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), Code::ALL.len());
    }

    #[test]
    fn every_status_is_an_error() {
        assert!(Code::ALL.iter().all(|code| (400..600).contains(&code.status())));
    }
}
