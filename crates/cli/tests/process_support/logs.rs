//! Reads everything a server has: the logs of its topics and what is pending.

use std::io;

use jiff::Timestamp;
use serde_json::Value;

use super::http::Client;

/// A delivered message, as a reader sees it.
#[derive(Clone, Debug)]
pub struct Delivered {
    pub id: String,
    pub offset: u64,
    pub due_ms: u64,
    pub delivered_ms: u64,
    pub body: String,
}

/// A time in an answer.
pub fn time_ms(time: &Value) -> u64 {
    let time: Timestamp = time.as_str().unwrap().parse().unwrap();
    u64::try_from(time.as_millisecond()).unwrap()
}

/// One page of a log, and the offset of the next.
pub fn read_page(
    client: &mut Client,
    topic: &str,
    partition: u64,
    offset: u64,
) -> io::Result<(Vec<Delivered>, u64)> {
    let path =
        format!("/v1/topics/{topic}/partitions/{partition}/messages?offset={offset}&limit=1000");
    let page = client.get(&path)?.expect(200);
    let delivered = page["messages"].as_array().unwrap().iter().map(delivered).collect();
    Ok((delivered, page["next"].as_u64().unwrap()))
}

fn delivered(json: &Value) -> Delivered {
    Delivered {
        id: json["id"].as_str().unwrap().to_owned(),
        offset: json["offset"].as_u64().unwrap(),
        due_ms: time_ms(&json["due"]),
        delivered_ms: time_ms(&json["delivered_at"]),
        body: json["body"].as_str().unwrap().to_owned(),
    }
}

/// Gives every message of a log from the start, after checking what holds for every log: offsets
/// without a gap, and nothing delivered before it was due.
pub fn read_log(
    client: &mut Client,
    topic: &str,
    partition: u64,
    mut each: impl FnMut(Delivered),
) -> u64 {
    let mut offset = 0;
    loop {
        let (page, next) = read_page(client, topic, partition, offset).unwrap();
        if page.is_empty() {
            return offset;
        }
        for message in page {
            assert_eq!(message.offset, offset, "offsets have no gap: {message:?}");
            assert!(message.delivered_ms >= message.due_ms, "early: {message:?}");
            offset += 1;
            each(message);
        }
        assert_eq!(next, offset);
    }
}

/// Gives the id, the due time and the body of every pending message, soonest first.
pub fn read_pending(client: &mut Client, topic: &str, mut each: impl FnMut(&str, u64, &str)) {
    let mut cursor = String::new();
    let mut last_ms = 0;
    loop {
        let path = format!("/v1/topics/{topic}/scheduled?limit=1000{cursor}");
        let page = client.get(&path).unwrap().expect(200);
        for message in page["messages"].as_array().unwrap() {
            let due_ms = time_ms(&message["due"]);
            assert!(last_ms <= due_ms, "soonest first");
            last_ms = due_ms;
            each(message["id"].as_str().unwrap(), due_ms, message["body"].as_str().unwrap());
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return,
        }
    }
}

/// Whether anything is pending that was due before that time.
pub fn has_overdue(client: &mut Client, topic: &str, before_ms: u64) -> bool {
    let path = format!("/v1/topics/{topic}/scheduled?limit=1&to={before_ms}");
    let page = client.get(&path).unwrap().expect(200);
    !page["messages"].as_array().unwrap().is_empty()
}
