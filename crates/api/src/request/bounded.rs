//! Arrays and objects read up to a number of elements.
//!
//! A short text can hold very many elements, each of which costs more memory than it has letters;
//! so what is over the bound is skipped, not kept, and then refused.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::problem::Problem;
use crate::request::value::json_problem;

/// An element of an array as it was written.
pub(crate) struct Item<'a>(pub(crate) &'a RawValue);

/// A member of an object as it was written.
struct Member<'a>(Cow<'a, str>, &'a RawValue);

/// The members of an object in their order, repeated names included.
pub(crate) fn members(
    raw: &str,
    most: usize,
    over: impl FnOnce(usize) -> Problem,
) -> Result<Vec<(Cow<'_, str>, &str)>, Problem> {
    let members = Bounded::<Member<'_>>::read(raw, most, over)?;
    Ok(members.into_iter().map(|Member(name, value)| (name, value.get())).collect())
}

/// Reads at most so many elements.
pub(crate) struct Bounded<T> {
    most: usize,
    element: PhantomData<T>,
}

impl<T> Bounded<T> {
    /// All elements of `raw`, or the problem that `over` makes when there are more than `most`.
    pub(crate) fn read<'a>(
        raw: &'a str,
        most: usize,
        over: impl FnOnce(usize) -> Problem,
    ) -> Result<Vec<T>, Problem>
    where
        Self: DeserializeSeed<'a, Value = Option<Vec<T>>>,
    {
        let mut source = serde_json::Deserializer::from_str(raw);
        let elements = Self { most, element: PhantomData }.deserialize(&mut source);
        let elements = elements.and_then(|elements| source.end().map(|()| elements));
        elements.map_err(|error| json_problem(&error))?.ok_or_else(|| over(most))
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<Item<'de>> {
    type Value = Option<Vec<Item<'de>>>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Self::Value, D::Error> {
        source.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Bounded<Item<'de>> {
    type Value = Option<Vec<Item<'de>>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < self.most {
            match seq.next_element()? {
                Some(item) => items.push(Item(item)),
                None => return Ok(Some(items)),
            }
        }
        let mut over = false;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            over = true;
        }
        Ok((!over).then_some(items))
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<Member<'de>> {
    type Value = Option<Vec<Member<'de>>>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Self::Value, D::Error> {
        source.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Bounded<Member<'de>> {
    type Value = Option<Vec<Member<'de>>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while members.len() < self.most {
            match map.next_key::<Name<'de>>()? {
                Some(name) => members.push(Member(name.0, map.next_value()?)),
                None => return Ok(Some(members)),
            }
        }
        let mut over = false;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            over = true;
        }
        Ok((!over).then_some(members))
    }
}

/// Text that is borrowed when nothing in it is escaped.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Name(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Name(Cow::Owned(text.to_owned())))
    }
}
