//! Groups, consuming and dead letters in the document.

use http::StatusCode;
use punctual_api::Code;
use punctual_api::schema::{integer, named, span_asked, text, truth};

use super::Numbers;
use super::described::{CONTENT, Described, QUERY, RECORD, STORE, WHEN, WINDOW};

const TAG: &str = "groups";
const CONSUMING: &str = "consuming";
const DEAD: &str = "dead letters";
const GROUP: &[Code] = &[Code::GroupNotFound, Code::TopicNotFound];
const MADE: &[Code] = &[
    Code::GroupNameTaken,
    Code::TooManyGroups,
    Code::TopicNotFound,
    Code::TooManyTopics,
    Code::ReservedTopic,
];

pub(super) fn receive() -> Described {
    Described::new(CONSUMING, "Receive messages for a group")
        .detail(
            "Messages are lent for the time of the lease; what is not acknowledged by then is given out \
             again. The group is made if it is missing.",
        )
        .may_take("Receive")
        .ok("What there is; nothing, if nothing came while waiting.", "ReceivedBatch")
        .refused(MADE)
        .refused(STORE)
}

pub(super) fn stream(numbers: &Numbers) -> Described {
    let max = integer(1u64, u64::try_from(numbers.bounds.receive).unwrap_or(u64::MAX));
    let lease = span_asked(numbers.bounds.lease_min, numbers.bounds.lease_max);
    Described::new(CONSUMING, "Receive messages as they come")
        .detail(
            "Server-sent events without end: each `message` has a `Received` as its data. What is settled \
             by the other calls makes room for more. A `problem` is the last event.",
        )
        .query("max_in_flight", max.default(numbers.bounds.receive_default))
        .query("lease", lease)
        .answers_content(StatusCode::OK, "Events.", vec![("text/event-stream", text())])
        .refused(QUERY)
        .refused(GROUP)
        .refused(STORE)
        .refused(&[Code::InvalidField])
}

pub(super) fn ack() -> Described {
    settled("Finish messages", "Receipts", "AckResults")
}

pub(super) fn nack() -> Described {
    settled("Give messages back, or reject them", "Nack", "NackResults").refused(WHEN)
}

pub(super) fn extend() -> Described {
    settled("Hold messages longer", "Extend", "ExtendResults")
}

fn settled(summary: &'static str, shape: &str, answer: &str) -> Described {
    Described::new(CONSUMING, summary)
        .takes(shape)
        .ok("What became of each.", answer)
        .refused(GROUP)
        .refused(STORE)
}

pub(super) fn retry() -> Described {
    Described::new(CONSUMING, "Retry a message that failed elsewhere")
        .detail("It is tried again by the rules of the group, or becomes a dead letter.")
        .takes("Retry")
        .ok("What becomes of it.", "Retried")
        .refused(GROUP)
        .refused(CONTENT)
        .refused(WHEN)
        .refused(&[Code::MissingBody, Code::NoSuchPartition])
        .refused(STORE)
}

pub(super) fn list(numbers: &Numbers) -> Described {
    let described = numbers.name_query(Described::new(TAG, "List groups, by topic and name"));
    numbers
        .group_page(described)
        .query("standing", truth().about("Whether to say how far each is."))
        .ok("One page.", "GroupPage")
        .refused(&[Code::TopicNotFound])
        .refused(STORE)
}

pub(super) fn get() -> Described {
    Described::new(TAG, "Look at a group and how far it is")
        .ok("The group.", "Group")
        .tagged()
        .refused(QUERY)
        .refused(GROUP)
        .refused(STORE)
}

pub(super) fn put() -> Described {
    changed(Described::new(TAG, "Make a group, or change its settings"))
        .answers(StatusCode::CREATED, "It is new.", named("Group"))
        .refused(MADE)
}

pub(super) fn patch() -> Described {
    changed(Described::new(TAG, "Change the settings of a group")).refused(GROUP)
}

fn changed(described: Described) -> Described {
    described
        .may_take("GroupChange")
        .ok("The group as it is now.", "Group")
        .conditional()
        .refused(&[Code::ConsumeWithKafka])
        .refused(RECORD)
        .refused(STORE)
}

pub(super) fn delete() -> Described {
    change("Delete a group and its dead letters").ok("It is gone.", "Outcome")
}

pub(super) fn pause() -> Described {
    change("Give nothing out").ok("The group as it is now.", "Group")
}

pub(super) fn resume() -> Described {
    change("Give messages out again").ok("The group as it is now.", "Group")
}

fn change(summary: &'static str) -> Described {
    let described = Described::new(TAG, summary).conditional();
    described.refused(QUERY).refused(GROUP).refused(RECORD).refused(STORE)
}

pub(super) fn reset() -> Described {
    Described::new(TAG, "Put a group elsewhere")
        .takes("Reset")
        .ok("It goes on from there.", "Outcome")
        .refused(GROUP)
        .refused(WINDOW)
        .refused(&[Code::NoSuchPartition])
        .refused(RECORD)
        .refused(STORE)
}

pub(super) fn offsets() -> Described {
    Described::new(TAG, "How far a group is, by partition")
        .ok("Everything before these offsets is done.", "Offsets")
        .refused(QUERY)
        .refused(GROUP)
        .refused(STORE)
}

pub(super) fn put_offsets() -> Described {
    Described::new(CONSUMING, "Commit offsets")
        .takes("OffsetsAsked")
        .ok("Committed.", "Outcome")
        .refused(GROUP)
        .refused(&[Code::NoSuchPartition])
        .refused(STORE)
}

pub(super) fn dead(numbers: &Numbers) -> Described {
    let described = numbers.dead_query(Described::new(DEAD, "List dead letters"));
    numbers
        .counted_page(described)
        .ok("One page.", "DeadPage")
        .refused(GROUP)
        .refused(WINDOW)
        .refused(&[Code::InvalidField, Code::InvalidBase64, Code::ConflictingFields])
        .refused(STORE)
}

pub(super) fn dead_summary() -> Described {
    Described::new(DEAD, "Count dead letters by day and reason")
        .detail("Newest first. No more than so many are looked at; whether those were all is told.")
        .ok("The counts.", "DeadSummary")
        .refused(QUERY)
        .refused(GROUP)
        .refused(STORE)
}

pub(super) fn redrive() -> Described {
    Described::new(DEAD, "Send dead letters again")
        .detail("Each starts again at attempt 1, and leaves the list once that is durable.")
        .may_take("Redrive")
        .ok("A dry run: how many it would be.", "Matched")
        .answers(StatusCode::ACCEPTED, "It has begun.", named("Started"))
        .leads_to_job(&["getRedrive"])
        .refused(GROUP)
        .refused(CONTENT)
        .refused(WHEN)
        .refused(&[Code::TooManyJobs])
        .refused(RECORD)
        .refused(STORE)
}

pub(super) fn purge() -> Described {
    Described::new(DEAD, "Throw dead letters away")
        .takes("Purge")
        .ok("They are gone; after a dry run none is.", "Purged")
        .refused(GROUP)
        .refused(WINDOW)
        .refused(&[Code::InvalidBase64])
        .refused(RECORD)
        .refused(STORE)
}

pub(super) fn drain() -> Described {
    Described::new(TAG, "Move the backlog of a group to another topic")
        .takes("Drain")
        .answers(StatusCode::ACCEPTED, "It has begun.", named("Started"))
        .leads_to_job(&["getDrain"])
        .refused(GROUP)
        .refused(&[Code::InvalidTopicName, Code::TooManyJobs, Code::ReservedTopic])
        .refused(&[Code::TooManyTopics])
        .refused(RECORD)
        .refused(STORE)
}

pub(super) fn job(numbers: &Numbers, summary: &'static str) -> Described {
    numbers
        .counted_page(Described::new(DEAD, summary))
        .ok("The job and a page of its results.", "GroupJob")
        .refused(GROUP)
        .refused(&[Code::JobNotFound])
}
