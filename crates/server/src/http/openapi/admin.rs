//! What concerns the whole broker in the document.

use http::StatusCode;
use punctual_api::Code;
use punctual_api::schema::{anything, text, time_asked, truth};

use super::Numbers;
use super::described::{Described, JSON, QUERY, RECORD, STORE, WHEN};

const TAG: &str = "broker";

pub(super) fn audit(numbers: &Numbers) -> Described {
    let described = Described::new(TAG, "Who changed what, newest first")
        .query("topic", numbers.name())
        .refused(&[Code::InvalidTopicName]);
    numbers.counted_page(described).ok("One page.", "AuditPage").refused(RECORD)
}

pub(super) fn time() -> Described {
    Described::new(TAG, "What time it is for the broker").ok("The time.", "Time").refused(QUERY)
}

pub(super) fn advance() -> Described {
    Described::new(TAG, "Move virtual time")
        .detail("Only where the server was started with `--virtual-time`.")
        .takes("Advance")
        .ok("How far it was moved.", "Advanced")
        .refused(WHEN)
        .refused(&[Code::NotVirtualTime])
        .refused(STORE)
}

pub(super) fn live() -> Described {
    Described::new(TAG, "Whether the server lives").ok("It does.", "Health")
}

pub(super) fn ready() -> Described {
    Described::new(TAG, "Whether the server takes requests")
        .ok("It does.", "Health")
        .refused(&[Code::Unavailable])
}

pub(super) fn metrics() -> Described {
    Described::new(TAG, "Figures in Prometheus' text form").answers_content(
        StatusCode::OK,
        "The figures.",
        vec![("text/plain; version=0.0.4; charset=utf-8", text())],
    )
}

pub(super) fn document() -> Described {
    Described::new(TAG, "This document").answers_content(
        StatusCode::OK,
        "An OpenAPI document.",
        vec![(JSON, anything())],
    )
}

pub(super) fn page() -> Described {
    Described::new(TAG, "This document as a page").answers_content(
        StatusCode::OK,
        "A page for a browser.",
        vec![("text/html; charset=utf-8", text())],
    )
}

pub(super) fn page_file() -> Described {
    Described::new(TAG, "What the page is made of")
        .answers_content(
            StatusCode::OK,
            "Script or style.",
            vec![("text/javascript; charset=utf-8", text()), ("text/css; charset=utf-8", text())],
        )
        .refused(&[Code::RouteNotFound])
}

pub(super) fn stats(numbers: &Numbers) -> Described {
    Described::new(TAG, "Figures of the whole broker")
        .query("limit", numbers.few().about("How many topics and groups, the largest first."))
        .ok("The figures.", "Stats")
        .refused(QUERY)
}

pub(super) fn trends(numbers: &Numbers) -> Described {
    let series = text().about("Which figures, divided by commas; all of them, if not said.");
    Described::new(TAG, "How it went in the last seven days")
        .detail("A point for every ten minutes: of the whole, or of one topic, app or node.")
        .query("topic", numbers.name())
        .query("app", text())
        .query("node", text())
        .query("series", series)
        .query("from", time_asked(&numbers.bounds))
        .query("to", time_asked(&numbers.bounds))
        .ok("The points.", "Trends")
        .refused(&[Code::ConflictingFields, Code::InvalidTime, Code::DueOutOfRange])
        .refused(&[Code::InvalidTopicName])
        .refused(QUERY)
        .refused(STORE)
}

pub(super) fn cluster() -> Described {
    Described::new(TAG, "The machines that make up the broker")
        .query("slots", truth().about("Whether to say who has which slot."))
        .ok("The machines.", "Cluster")
        .refused(&[Code::InvalidField])
        .refused(QUERY)
}

pub(super) fn put_cluster() -> Described {
    Described::new(TAG, "Change into how many slots work is divided")
        .detail("New slots are given out; those past the number take no more messages and end when they are empty.")
        .takes("ClusterAsked")
        .ok("The machines.", "Cluster")
        .refused(&[Code::InvalidField, Code::NotACluster, Code::Unavailable])
        .refused(RECORD)
}

pub(super) fn alerts() -> Described {
    Described::new(TAG, "What is watched, and what is wrong")
        .ok("The rules, and what was told of lately.", "Alerts")
        .refused(QUERY)
}

pub(super) fn test_alerts() -> Described {
    Described::new(TAG, "Send a test to the webhook of alerts")
        .ok("What came of it.", "AlertTested")
        .refused(QUERY)
        .refused(RECORD)
}
