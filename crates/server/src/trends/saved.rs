//! What a node writes down of itself every few seconds: all it has counted, and the point under way.

use punctual_model::TopicId;
use serde::{Deserialize, Serialize};

use crate::access::AppIdentity;
use crate::trends::counts::{MessageCounts, SentCounts, Tally};
use crate::trends::point::Point;

/// The form that is written.
const FORM: u32 = 1;
/// Topics, and apps, that are read at most: as many as are ever written.
const NAMED_MAX: usize = 20_000;

/// What a node has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) tally: Tally,
    /// The point under way; none before the first.
    pub(crate) point: Option<Point>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    form: u32,
    whole: MessageCounts,
    topics: Vec<(u32, MessageCounts)>,
    apps: Vec<(Box<str>, u64, SentCounts)>,
    point: Option<Point>,
}

#[derive(Deserialize)]
struct Form {
    form: u32,
}

impl Saved {
    /// Whether nothing was counted since.
    pub(crate) fn is_as(&self, earlier: &Self) -> bool {
        let counted = |saved: &Self| saved.point.clone().map(|point| (point.at, point.activity()));
        let pending = |saved: &Self| saved.point.as_ref().map(|point| point.pending);
        self.tally == earlier.tally
            && counted(self) == counted(earlier)
            && pending(self) == pending(earlier)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let apps = self.tally.apps.iter();
        let written = Written {
            form: FORM,
            whole: self.tally.whole,
            topics: self.tally.topics.iter().map(|(topic, counts)| (*topic, *counts)).collect(),
            apps: apps.map(|(app, counts)| (app.key.clone(), app.made, *counts)).collect(),
            point: self.point.clone(),
        };
        serde_json::to_vec(&written).expect("plain texts and numbers")
    }

    /// # Errors
    /// What is wrong with the bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let damaged = |_| "they are damaged";
        let Form { form } = serde_json::from_slice(bytes).map_err(damaged)?;
        if form > FORM {
            return Err("a newer version wrote them");
        }
        let written: Written = serde_json::from_slice(bytes).map_err(damaged)?;
        let topics = written.topics.into_iter().take(NAMED_MAX);
        let apps = written.apps.into_iter().take(NAMED_MAX);
        let tally = Tally {
            whole: written.whole,
            topics: topics.filter(|(topic, _)| TopicId::new(*topic).is_some()).collect(),
            apps: apps.map(|(key, made, counts)| (AppIdentity { key, made }, counts)).collect(),
        };
        Ok(Self { tally, point: written.point })
    }
}

#[cfg(test)]
mod tests {
    use punctual_broker::TopicCounts;

    use super::*;
    use crate::access::AppCounts;

    fn saved() -> Saved {
        let counts = MessageCounts::from(TopicCounts { fired: 3, ..TopicCounts::default() });
        let sent = SentCounts::from(AppCounts { scheduled: 1, bytes: 2, refused: 3 });
        let app = AppIdentity { key: "orders".into(), made: 77 };
        let tally =
            Tally { whole: counts, topics: [(7, counts)].into(), apps: [(app, sent)].into() };
        let point = Point { at: 600_000, whole: counts, ..Point::default() };
        Saved { tally, point: Some(point) }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Saved::decode(&saved().encode()), Ok(saved()));
        assert_eq!(Saved::decode(&Saved::default().encode()), Ok(Saved::default()));
    }

    #[test]
    fn other_bytes_are_refused_and_nothing_panics() {
        for bytes in
            [&b""[..], b"{}", b"[]", b"{\"form\":1}", b"\xff", b"{\"form\":1,\"whole\":[1]}"]
        {
            assert!(Saved::decode(bytes).is_err(), "{bytes:?}");
        }
        let text = String::from_utf8(saved().encode()).unwrap();
        let newer = text.replace("\"form\":1", "\"form\":2");
        assert_eq!(Saved::decode(newer.as_bytes()), Err("a newer version wrote them"));
        for end in 0..text.len() {
            assert!(Saved::decode(&text.as_bytes()[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn how_the_machine_stands_is_no_reason_to_write() {
        let (one, mut other) = (saved(), saved());
        other.point.as_mut().unwrap().gauges.memory_bytes = Some(5);
        assert!(one.is_as(&other));
        other.point.as_mut().unwrap().pending = 1;
        assert!(!one.is_as(&other));
    }
}
