//! Which topics and groups have lines of their own, where there are more than may have.
//!
//! Those that were shown count double. So one gives its place up only to one that is more than twice
//! as large, and lines do not come and go while two of a size take turns.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use parking_lot::Mutex;
use punctual_model::{GroupName, TopicName};

/// The label of what has no line of its own. No topic and no group can have this name.
pub(super) const OTHER: &str = "~other";

/// What was shown last, so that the same is shown again.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    topics: Mutex<BTreeSet<TopicName>>,
    groups: Mutex<BTreeSet<(TopicName, GroupName)>>,
}

impl Chosen {
    /// Divides topics into those with a line of their own and the others.
    pub(super) fn topics<T>(
        &self,
        all: Vec<T>,
        most: usize,
        of: impl Fn(&T) -> (TopicName, u64),
    ) -> (Vec<T>, Vec<T>) {
        divide(&mut self.topics.lock(), all, most, of)
    }

    /// Divides groups into those with lines of their own and the others.
    pub(super) fn groups<T>(
        &self,
        all: Vec<T>,
        most: usize,
        of: impl Fn(&T) -> ((TopicName, GroupName), u64),
    ) -> (Vec<T>, Vec<T>) {
        divide(&mut self.groups.lock(), all, most, of)
    }
}

/// The `most` largest, by name, and the rest. `shown` is what was shown last, and is set to what is
/// shown now.
fn divide<K: Ord, T>(
    shown: &mut BTreeSet<K>,
    all: Vec<T>,
    most: usize,
    of: impl Fn(&T) -> (K, u64),
) -> (Vec<T>, Vec<T>) {
    let place = |item: T| {
        let (name, size) = of(&item);
        let is_shown = shown.contains(&name);
        let counts = if is_shown { size.saturating_mul(2) } else { size };
        ((Reverse(counts), !is_shown, name), item)
    };
    let mut ranked: Vec<_> = all.into_iter().map(place).collect();
    if ranked.len() > most {
        ranked.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    }
    let rest = ranked.split_off(most.min(ranked.len()));
    ranked.sort_unstable_by(|((.., a), _), ((.., b), _)| a.cmp(b));
    let mut first = Vec::with_capacity(ranked.len());
    shown.clear();
    for ((.., name), item) in ranked {
        shown.insert(name);
        first.push(item);
    }
    (first, rest.into_iter().map(|(_, item)| item).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<(String, u64)> {
        let one = |word: &str| {
            let (name, size) = word.split_once('=').unwrap();
            (name.to_owned(), size.parse().unwrap())
        };
        text.split_whitespace().map(one).collect()
    }

    /// Lines of a story: sizes, `:`, then the names that are shown.
    fn check(most: usize, story: &str) {
        let mut shown = BTreeSet::new();
        for line in story.lines().filter(|line| !line.trim().is_empty()) {
            let (given, expected) = line.split_once(':').unwrap();
            let all = sizes(given);
            let sum: u64 = all.iter().map(|(_, size)| size).sum();
            let (first, rest) = divide(&mut shown, all, most, |(name, size)| (name.clone(), *size));
            let names: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, expected.split_whitespace().collect::<Vec<_>>(), "{line}");
            let parts = first.iter().chain(&rest).map(|(_, size)| size).sum::<u64>();
            assert_eq!(parts, sum, "{line}: nothing is lost");
        }
    }

    #[test]
    fn a_place_is_given_up_only_to_one_twice_as_large() {
        check(
            2,
            "
            a=1 b=2            : a b
            a=1 b=2 c=2        : a b
            a=1 b=2 c=3        : b c
            a=6 b=3 c=3        : b c
            a=7 b=3 c=3        : a b
            a=7 c=1 d=0        : a c
            c=0 d=0            : c d
            e=0 c=0 d=0        : c d
            ",
        );
    }

    #[test]
    fn none_may_be_shown_at_all() {
        check(0, "a=1 b=2 :");
    }

    #[test]
    fn no_name_is_that_of_the_others() {
        assert!(TopicName::new(OTHER).is_err() && GroupName::new(OTHER).is_err());
    }
}
