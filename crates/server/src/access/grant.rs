//! What an app was granted: verbs on what names begin with.
//!
//! Everything is refused that no grant covers. A topic that belongs to a group, like that of its dead
//! letters, is covered by whoever covers the group: what such a topic is called gives no right.

use std::fmt;

use punctual_model::limits::NAME_CHARS_MAX;
use punctual_model::{GroupName, TopicName};

use crate::access::{Permission, Target};

impl Permission {
    /// What can be granted, in the order in which it is shown.
    pub(crate) const GRANTED: [Self; 10] = [
        Self::Send,
        Self::Read,
        Self::Cancel,
        Self::Change,
        Self::Consume,
        Self::See,
        Self::Manage,
        Self::Observe,
        Self::Audit,
        Self::Admin,
    ];

    /// The verb it is granted by.
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::Anybody => "anybody",
            Self::Send => "send",
            Self::Read => "read",
            Self::Cancel => "cancel",
            Self::Change => "change",
            Self::Consume => "consume",
            Self::See => "see",
            Self::Manage => "manage",
            Self::Observe => "observe",
            Self::Audit => "audit",
            Self::Admin => "admin",
        }
    }

    /// What the verb grants.
    pub(crate) fn of_verb(verb: &str) -> Option<Self> {
        Self::GRANTED.into_iter().find(|granted| granted.verb() == verb)
    }

    /// Whether it concerns the whole broker, and so cannot be had on a part of it.
    pub(crate) const fn concerns_all(self) -> bool {
        matches!(self, Self::Observe | Self::Audit | Self::Admin)
    }
}

/// Names that are meant: one, or all that begin so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// This one.
    Exactly(Box<str>),
    /// Those that begin so.
    Beginning(Box<str>),
}

impl Pattern {
    /// The pattern as somebody writes it: a name, or the beginning of names and a star.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (name, star) = match text.strip_suffix('*') {
            Some(name) => (name, true),
            None => (text, false),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let legal = name.len() <= NAME_CHARS_MAX && name.bytes().all(plain);
        match (legal, star) {
            (true, true) => Some(Self::Beginning(name.into())),
            (true, false) if TopicName::new(name).is_ok() => Some(Self::Exactly(name.into())),
            _ => None,
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exactly(this) => **this == *name,
            Self::Beginning(start) => name.starts_with(&**start),
        }
    }

    /// Whether every name is meant.
    pub(crate) fn is_all(&self) -> bool {
        matches!(self, Self::Beginning(start) if start.is_empty())
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(name) => f.write_str(name),
            Self::Beginning(start) => write!(f, "{start}*"),
        }
    }
}

/// One grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// On which topics.
    pub(crate) topics: Pattern,
    /// For which groups of consumers of them, and of producers; without it for none.
    pub(crate) groups: Option<Pattern>,
    /// What may be done.
    pub(crate) verbs: Vec<Permission>,
}

/// To whom a topic belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// To nobody: it is a topic like any other, or none at all.
    Nobody,
    /// To a group of another topic.
    Group(TopicName, GroupName),
    /// To a group that is not found any more.
    Lost,
}

impl Grant {
    /// Whether it gives that right.
    pub(crate) fn covers(
        &self,
        permission: Permission,
        target: Target<'_>,
        owner: &dyn Fn(&TopicName) -> Owner,
    ) -> bool {
        if !self.verbs.contains(&permission) {
            return false;
        }
        match target {
            Target::Whole => self.is_whole(),
            Target::Anything => true,
            Target::Topic(topic) => self.covers_topic(topic, owner),
            Target::Group(topic, group) => {
                self.covers_group(group) && self.covers_topic(topic, owner)
            }
            Target::ProducerGroup(group) => self.covers_group(group),
        }
    }

    /// Whether it is about everything there is.
    pub(crate) fn is_whole(&self) -> bool {
        self.topics.is_all() && self.groups.as_ref().is_some_and(Pattern::is_all)
    }

    fn covers_group(&self, group: &GroupName) -> bool {
        self.groups.as_ref().is_some_and(|groups| groups.matches(group.as_str()))
    }

    fn covers_topic(&self, topic: &TopicName, owner: &dyn Fn(&TopicName) -> Owner) -> bool {
        // A topic of a group may have groups of its own; each step leads to a shorter name.
        match owner(topic) {
            Owner::Nobody => self.topics.matches(topic.as_str()),
            Owner::Group(of, group) => self.covers_group(&group) && self.covers_topic(&of, owner),
            Owner::Lost => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> TopicName {
        TopicName::new(name).unwrap()
    }

    fn group(name: &str) -> GroupName {
        GroupName::new(name).unwrap()
    }

    fn grant(topics: &str, groups: Option<&str>, verbs: &[Permission]) -> Grant {
        Grant {
            topics: Pattern::read(topics).unwrap(),
            groups: groups.map(|groups| Pattern::read(groups).unwrap()),
            verbs: verbs.to_vec(),
        }
    }

    fn nobody(_: &TopicName) -> Owner {
        Owner::Nobody
    }

    #[test]
    fn a_pattern_is_a_name_or_the_beginning_of_names() {
        for (pattern, yes, no) in [
            ("orders", &["orders"][..], &["orders.eu", "order", "Orders", "xorders"][..]),
            ("orders.*", &["orders.", "orders.eu", "orders.eu.x"], &["orders", "orderss", "a"]),
            ("*", &["a", "orders", "..."], &[]),
            ("a*", &["a", "ab"], &["b", "ba"]),
        ] {
            let read = Pattern::read(pattern).unwrap();
            assert_eq!(read.to_string(), pattern);
            assert!(yes.iter().all(|name| read.matches(name)), "{pattern}");
            assert!(no.iter().all(|name| !read.matches(name)), "{pattern}");
        }
        let long = "x".repeat(NAME_CHARS_MAX + 1);
        for text in ["", ".", "..", "a*b", "**", "a b", "ä", "a/b", "?", "[a]*", "\0", &long] {
            assert_eq!(Pattern::read(text), None, "{text:?}");
        }
        assert!(Pattern::read("*").unwrap().is_all());
        assert!(!Pattern::read("a*").unwrap().is_all());
    }

    #[test]
    fn every_permission_but_the_open_one_has_a_verb() {
        for permission in Permission::GRANTED {
            assert_eq!(Permission::of_verb(permission.verb()), Some(permission));
        }
        assert_eq!(Permission::of_verb("anybody"), None);
        assert_eq!(Permission::of_verb("SEND"), None);
        assert_eq!(Permission::of_verb("*"), None);
    }

    #[test]
    fn a_grant_gives_its_verbs_on_its_names_and_nothing_else() {
        let grant = grant("orders.*", Some("billing"), &[Permission::Send, Permission::Consume]);
        let (own, foreign) = (topic("orders.eu"), topic("stock"));
        let (ours, theirs) = (group("billing"), group("billing2"));
        let may = |permission, target| grant.covers(permission, target, &nobody);
        assert!(may(Permission::Send, Target::Topic(&own)));
        assert!(may(Permission::Consume, Target::Group(&own, &ours)));
        assert!(may(Permission::Send, Target::ProducerGroup(&ours)));
        assert!(may(Permission::Send, Target::Anything));
        for (permission, target) in [
            (Permission::Read, Target::Topic(&own)),
            (Permission::Send, Target::Topic(&foreign)),
            (Permission::Consume, Target::Group(&own, &theirs)),
            (Permission::Consume, Target::Group(&foreign, &ours)),
            (Permission::Send, Target::ProducerGroup(&theirs)),
            (Permission::Read, Target::Anything),
            (Permission::Send, Target::Whole),
        ] {
            assert!(!may(permission, target), "{permission:?} {target:?}");
        }
    }

    #[test]
    fn without_groups_there_is_no_right_on_any() {
        let grant = grant("*", None, &[Permission::Consume, Permission::Observe]);
        let may = |permission, target| grant.covers(permission, target, &nobody);
        let (topic, group) = (topic("a"), group("g"));
        assert!(may(Permission::Consume, Target::Topic(&topic)));
        assert!(!may(Permission::Consume, Target::Group(&topic, &group)));
        assert!(!may(Permission::Consume, Target::ProducerGroup(&group)));
        assert!(!may(Permission::Observe, Target::Whole));
    }

    #[test]
    fn g43_the_name_of_a_topic_of_a_group_gives_no_right() {
        let owner = |name: &TopicName| match name.as_str() {
            "orders.billing.dead" => Owner::Group(topic("orders"), group("billing")),
            "orders.billing.dead.audit.dead" => {
                Owner::Group(topic("orders.billing.dead"), group("audit"))
            }
            "orders.lost.dead" => Owner::Lost,
            _ => Owner::Nobody,
        };
        let (dead, deeper) =
            (topic("orders.billing.dead"), topic("orders.billing.dead.audit.dead"));
        let read =
            |grant: &Grant, topic| grant.covers(Permission::Read, Target::Topic(topic), &owner);
        for by_name in ["orders.*", "orders.billing.dead", "orders.b*"] {
            let grant = grant(by_name, Some("*"), &[Permission::Read]);
            assert!(!read(&grant, &dead) && !read(&grant, &deeper), "{by_name}");
        }
        let by_group = grant("orders", Some("billing"), &[Permission::Read]);
        assert!(read(&by_group, &dead) && !read(&by_group, &deeper));
        let by_both = grant("orders", Some("*"), &[Permission::Read]);
        assert!(read(&by_both, &dead) && read(&by_both, &deeper));
        assert!(!read(&grant("orders", Some("other"), &[Permission::Read]), &dead));
        assert!(!read(&grant("*", Some("*"), &[Permission::Read]), &topic("orders.lost.dead")));
    }
}
