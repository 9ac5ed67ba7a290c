//! Topics and delay levels in the document.

use http::StatusCode;
use punctual_api::Code;
use punctual_api::schema::{integer, named};

use super::Numbers;
use super::described::{Described, QUERY, RECORD, STORE};

const TAG: &str = "topics";
const TOPIC: &[Code] = &[Code::TopicNotFound];
const SETTINGS: &[Code] = &[
    Code::InvalidCatchUp,
    Code::InvalidLevels,
    Code::InvalidCheck,
    Code::PartitionsCannotShrink,
    Code::ReservedTopic,
];

pub(super) fn list(numbers: &Numbers) -> Described {
    let described = Described::new(TAG, "List topics, by name");
    let described = numbers.name_query(described);
    numbers.named_page(described).ok("One page.", "TopicPage")
}

pub(super) fn get() -> Described {
    let described = Described::new(TAG, "Look at a topic");
    described.ok("The topic.", "Topic").tagged().refused(QUERY).refused(TOPIC)
}

pub(super) fn put() -> Described {
    changed(Described::new(TAG, "Make a topic, or change its settings"))
        .answers(StatusCode::CREATED, "It is new.", named("Topic"))
        .refused(&[Code::TooManyTopics])
}

pub(super) fn patch() -> Described {
    changed(Described::new(TAG, "Change the settings of a topic")).refused(TOPIC)
}

fn changed(described: Described) -> Described {
    described
        .may_take("TopicChange")
        .ok("The topic as it is now.", "Topic")
        .conditional()
        .refused(SETTINGS)
        .refused(RECORD)
        .refused(STORE)
}

pub(super) fn delete() -> Described {
    Described::new(TAG, "Delete a topic with all its messages and groups")
        .ok("It is gone.", "Outcome")
        .conditional()
        .refused(QUERY)
        .refused(TOPIC)
        .refused(&[Code::ReservedTopic])
        .refused(RECORD)
        .refused(STORE)
}

pub(super) fn read_partition(numbers: &Numbers) -> Described {
    Described::new(TAG, "Read delivered messages by offset")
        .query("offset", integer(0u64, u64::MAX).about("From this offset on."))
        .query("limit", numbers.limit())
        .answers(
            StatusCode::OK,
            "One page; `next` is the offset to go on with.",
            numbers.log_page(),
        )
        .refused(QUERY)
        .refused(TOPIC)
        .refused(&[Code::NoSuchPartition])
        .refused(STORE)
}

pub(super) fn levels() -> Described {
    let described = Described::new(TAG, "The delay levels");
    described.ok("From level 1 on.", "Levels").tagged().refused(QUERY)
}

pub(super) fn put_levels() -> Described {
    Described::new(TAG, "Change the delay levels")
        .takes("LevelsAsked")
        .ok("As they are now.", "Levels")
        .conditional()
        .refused(&[Code::InvalidLevels])
        .refused(RECORD)
        .refused(STORE)
}
