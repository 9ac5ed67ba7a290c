//! How topics, groups, numbers and levels are written as documents.
//!
//! ```text
//! t/{topic}          1 · topic · 0, or 1 · number of the group's topic u32 · group
//! g/{number}/{group} 1 · group
//! numbers            1 · next topic u32 · next group u32
//! levels             1 · levels
//! ```
//!
//! The first byte is the form. One that is not known is that of a newer version, and never taken
//! for nothing. Names have at most 255 bytes: that of a group is short enough for `{topic}.{group}.dead`
//! to be a name.

use std::sync::Arc;

use bytes::Bytes;
use punctual_model::group::{Group, GroupName};
use punctual_model::ports::Topic;
use punctual_model::stored::codec::{self, Malformed};
use punctual_model::stored::{group, topic};
use punctual_model::{DelayLevels, TopicId, TopicKind, TopicName};

const FORM: u8 = 1;
const OWNED: u8 = 1;
const FREE: u8 = 0;

/// The document of the numbers that were given.
pub(super) const NUMBERS: &str = "numbers";
/// The document of the delay levels.
pub(super) const LEVELS: &str = "levels";
const TOPIC: &str = "t/";
const GROUP: &str = "g/";

/// Whose a topic of a group is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The topic that the group consumes.
    pub(super) topic: TopicId,
    /// The name of the group.
    pub(super) group: GroupName,
}

/// A topic and the group it belongs to, if it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnedTopic {
    pub(super) topic: Topic,
    pub(super) owner: Option<Owner>,
}

/// Numbers below these were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) topics: u32,
    pub(super) groups: u32,
}

/// What a document is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum About {
    Topic(TopicName),
    Group(TopicId, GroupName),
    Numbers,
    Levels,
    /// Of a newer version.
    Other,
}

impl About {
    /// What a document of that name is about.
    pub(super) fn of(name: &str) -> Self {
        match name {
            NUMBERS => Self::Numbers,
            LEVELS => Self::Levels,
            _ => Self::of_noun(name).unwrap_or(Self::Other),
        }
    }

    fn of_noun(name: &str) -> Option<Self> {
        if let Some(topic) = name.strip_prefix(TOPIC) {
            return TopicName::new(topic).ok().map(Self::Topic);
        }
        let (topic, group) = name.strip_prefix(GROUP)?.split_once('/')?;
        let topic = topic.parse().ok().and_then(TopicId::new)?;
        Some(Self::Group(topic, GroupName::new(group).ok()?))
    }
}

/// The name of a topic's document.
pub(super) fn of_topic(name: &TopicName) -> Arc<str> {
    format!("{TOPIC}{name}").into()
}

/// The name of a group's document.
pub(super) fn of_group(topic: TopicId, name: &GroupName) -> Arc<str> {
    format!("{GROUP}{}/{name}", topic.get()).into()
}

pub(super) fn write_topic(topic: &Topic, owner: Option<&Owner>) -> Bytes {
    let mut out = vec![FORM];
    topic::encode_topic(&mut out, topic);
    match owner {
        None => out.push(FREE),
        Some(owner) => {
            out.push(OWNED);
            out.extend_from_slice(&owner.topic.get().to_le_bytes());
            codec::put_bytes(&mut out, owner.group.as_str().as_bytes());
        }
    }
    out.into()
}

pub(super) fn read_topic(bytes: &[u8], name: &TopicName) -> Result<OwnedTopic, Malformed> {
    let rest = &mut form(bytes)?;
    let topic = topic::decode_topic(rest)?;
    let owner = match codec::get_u8(rest)? {
        FREE => None,
        OWNED => {
            let topic = TopicId::new(codec::get_u32(rest)?).ok_or(Malformed)?;
            let group = GroupName::new(codec::get_text(rest)?).map_err(|_e| Malformed)?;
            Some(Owner { topic, group })
        }
        _ => return Err(Malformed),
    };
    let whole = rest.is_empty() && topic.name == *name;
    let fits = owner.is_some() == (topic.kind != TopicKind::Plain);
    if whole && fits { Ok(OwnedTopic { topic, owner }) } else { Err(Malformed) }
}

pub(super) fn write_group(group: &Group) -> Bytes {
    let mut out = vec![FORM];
    group::encode_group(&mut out, group);
    out.into()
}

pub(super) fn read_group(
    bytes: &[u8],
    (topic, name): (TopicId, &GroupName),
) -> Result<Group, Malformed> {
    let rest = &mut form(bytes)?;
    let group = group::decode_group(rest)?;
    let whole = rest.is_empty() && group.topic == topic && group.name == *name;
    if whole { Ok(group) } else { Err(Malformed) }
}

pub(super) fn write_numbers(numbers: Numbers) -> Bytes {
    let mut out = vec![FORM];
    out.extend_from_slice(&numbers.topics.to_le_bytes());
    out.extend_from_slice(&numbers.groups.to_le_bytes());
    out.into()
}

pub(super) fn read_numbers(bytes: &[u8]) -> Result<Numbers, Malformed> {
    let rest = &mut form(bytes)?;
    let numbers = Numbers { topics: codec::get_u32(rest)?, groups: codec::get_u32(rest)? };
    if rest.is_empty() { Ok(numbers) } else { Err(Malformed) }
}

pub(super) fn write_levels(levels: &DelayLevels) -> Bytes {
    let mut out = vec![FORM];
    topic::encode_levels(&mut out, levels);
    out.into()
}

pub(super) fn read_levels(bytes: &[u8]) -> Result<DelayLevels, Malformed> {
    let rest = &mut form(bytes)?;
    let levels = topic::decode_levels(rest)?;
    if rest.is_empty() { Ok(levels) } else { Err(Malformed) }
}

fn form(bytes: &[u8]) -> Result<&[u8], Malformed> {
    match bytes.split_first() {
        Some((&FORM, rest)) => Ok(rest),
        Some(_) | None => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_model::limits::NAME_CHARS_MAX;
    use punctual_model::{GroupId, GroupSettings, TopicSettings};

    use super::*;

    fn topic(kind: TopicKind) -> Topic {
        Topic {
            id: TopicId::new(7).unwrap(),
            name: TopicName::new("orders").unwrap(),
            kind,
            key_partitions: 2,
            settings: TopicSettings { partitions: 3, ..TopicSettings::default() },
        }
    }

    fn group() -> Group {
        Group {
            id: GroupId(3),
            topic: TopicId::new(7).unwrap(),
            name: GroupName::new("billing").unwrap(),
            retry: TopicId::new(8).unwrap(),
            dead: TopicId::new(9).unwrap(),
            settings: GroupSettings::default(),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let (plain, retry) = (topic(TopicKind::Plain), topic(TopicKind::Retry));
        let owner = Owner { topic: plain.id, group: group().name };
        for (topic, owner) in [(plain, None), (retry, Some(owner))] {
            let written = write_topic(&topic, owner.as_ref());
            let name = topic.name.clone();
            assert_eq!(read_topic(&written, &name), Ok(OwnedTopic { topic, owner }));
        }
        let group = group();
        let place = (group.topic, &group.name);
        assert_eq!(read_group(&write_group(&group), place), Ok(group.clone()));
        let numbers = Numbers { topics: 5, groups: u32::MAX };
        assert_eq!(read_numbers(&write_numbers(numbers)), Ok(numbers));
        let levels = DelayLevels::default();
        assert_eq!(read_levels(&write_levels(&levels)), Ok(levels));
    }

    #[test]
    fn a_document_under_a_foreign_name_or_without_the_owner_it_needs_is_refused() {
        let other = TopicName::new("other").unwrap();
        let plain = topic(TopicKind::Plain);
        assert_eq!(read_topic(&write_topic(&plain, None), &other), Err(Malformed));
        let dead = topic(TopicKind::Dead);
        assert_eq!(read_topic(&write_topic(&dead, None), &dead.name), Err(Malformed));
        let group = group();
        let elsewhere = (TopicId::new(1).unwrap(), &group.name);
        assert_eq!(read_group(&write_group(&group), elsewhere), Err(Malformed));
    }

    #[test]
    fn names_tell_what_documents_are_about_and_are_short() {
        let long = "x".repeat(NAME_CHARS_MAX);
        let name = TopicName::new(&long).unwrap();
        assert_eq!(About::of(&of_topic(&name)), About::Topic(name.clone()));
        assert!(of_topic(&name).len() <= 255);
        // The longest group whose dead letters have a name, in a topic of one letter.
        let group = GroupName::new(&"y".repeat(NAME_CHARS_MAX - "a..dead".len())).unwrap();
        assert!(group.dead_topic(&TopicName::new("a").unwrap()).is_ok());
        let named = of_group(TopicId::MAX, &group);
        assert!(named.len() <= 255, "{}", named.len());
        assert_eq!(About::of(&named), About::Group(TopicId::MAX, group));
        assert_eq!(About::of(NUMBERS), About::Numbers);
        for other in ["", "t/", "g/1", "g/x/y", "g/99999999999/y", "x/y", "t/ä", "g/-1/y"] {
            assert_eq!(About::of(other), About::Other, "{other}");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>) {
            let name = TopicName::new("orders").unwrap();
            let _topic = read_topic(&bytes, &name);
            let _group = read_group(&bytes, (TopicId::MAX, &GroupName::new("g").unwrap()));
            let _numbers = read_numbers(&bytes);
            let _levels = read_levels(&bytes);
        }
    }
}
