//! The bytes that nodes write for each other: the assignment, what a node says of its slots, and who
//! a node is.
//!
//! The first byte of the first two is the version of what follows. Numbers are LEB128. The
//! assignment is one value in the service, so it is kept small: nodes are listed once, terms are
//! told by how much lower they are than the last one, and 65,536 slots stay far below the mebibyte
//! that ZooKeeper takes. What cannot be read is refused as a whole; nothing here panics on it.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use punctual_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::assignment::{Assignment, Name, Place, Tenancy, Word};
use crate::store::SLOTS_MAX;

/// The version of the assignment and of words.
const VERSION: u8 = 1;

/// The most nodes that an assignment may name: each slot has one owner and one that is next.
const NODES_MAX: u64 = 2 * SLOTS_MAX as u64;

/// The longest name of a node.
const NAME_BYTES_MAX: u64 = 1024;

/// Why bytes of another node cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// Another version has written it.
    #[error("it is of version {0}, which this version does not know")]
    Version(u8),
    /// They are not what they should be.
    #[error("it is damaged")]
    Damaged,
}

/// An assignment as bytes.
pub(crate) fn encode_assignment(assignment: &Assignment) -> Bytes {
    let mut names: Vec<&Name> = Vec::new();
    let mut numbers: HashMap<&Name, u64> = HashMap::new();
    for (_, place) in assignment.slots() {
        for name in place.owner.iter().chain(&place.next) {
            numbers.entry(name).or_insert_with(|| {
                names.push(name);
                names.len() as u64
            });
        }
    }
    let mut out = vec![VERSION];
    put(&mut out, assignment.term);
    put(&mut out, assignment.wanted.into());
    put(&mut out, names.len() as u64);
    for name in names {
        put(&mut out, name.len() as u64);
        out.extend_from_slice(name.as_bytes());
    }
    put(&mut out, assignment.places.len() as u64);
    for entry in &assignment.places {
        put_place(&mut out, entry.as_ref(), assignment.term, &numbers);
    }
    out.into()
}

/// What a place is told by: nothing more when it has ended; then its owner, whether there is a next
/// one, and the term.
fn put_place(out: &mut Vec<u8>, place: Option<&Place>, last: u64, numbers: &HashMap<&Name, u64>) {
    let Some(place) = place else { return put(out, 0) };
    let number = |name: &Option<Name>| name.as_ref().map_or(0, |name| numbers[name]);
    let owner = number(&place.owner) + 1;
    let next = number(&place.next);
    put(out, owner << 1 | u64::from(next > 0));
    if next > 0 {
        put(out, next);
    }
    // 0 for one that never had an owner; the last term is 1, the one before it 2.
    put(out, if place.term == 0 { 0 } else { last - place.term + 1 });
}

/// The assignment of these bytes.
///
/// # Errors
/// [`Unreadable`], whatever the bytes are.
pub(crate) fn decode_assignment(bytes: &[u8]) -> Result<Assignment, Unreadable> {
    let mut input = Input::open(bytes)?;
    let term = input.number(u64::MAX)?;
    let wanted = input.small(SLOTS_MAX)?;
    let mut names: Vec<Name> = Vec::new();
    for _ in 0..input.number(NODES_MAX)? {
        let length = input.number(NAME_BYTES_MAX)?;
        names.push(input.text(length)?.into());
    }
    let count = input.number(SLOTS_MAX.into())?;
    let mut places = Vec::new();
    for _ in 0..count {
        places.push(input.place(term, &names)?);
    }
    input.close()?;
    Ok(Assignment { term, wanted, places })
}

/// What a node says of its slots, as bytes.
pub(crate) fn encode_word(word: &Word) -> Bytes {
    let mut out = vec![VERSION];
    for tenancies in [&word.released, &word.drained] {
        put(&mut out, tenancies.len() as u64);
        for tenancy in tenancies {
            put(&mut out, tenancy.slot.into());
            put(&mut out, tenancy.term);
        }
    }
    out.into()
}

/// The word of these bytes.
///
/// # Errors
/// [`Unreadable`], whatever the bytes are.
pub(crate) fn decode_word(bytes: &[u8]) -> Result<Word, Unreadable> {
    let mut input = Input::open(bytes)?;
    let (released, drained) = (input.tenancies()?, input.tenancies()?);
    input.close()?;
    Ok(Word { released, drained })
}

/// Who a node is. Written so that an operator can read it with the service's own tools, and so that
/// a later version may add to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) address: String,
    pub(crate) version: String,
    /// Milliseconds since the epoch.
    since: u64,
}

impl About {
    /// A node that registers now.
    pub(crate) fn new(address: &str, version: &str, since: Timestamp) -> Self {
        Self { address: address.into(), version: version.into(), since: since.as_millis() }
    }

    /// When it registered.
    pub(crate) fn since(&self) -> Timestamp {
        Timestamp::from_millis_saturating(self.since)
    }

    /// As bytes.
    pub(crate) fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("three plain fields have a JSON form").into()
    }

    /// `None` for what is not the description of a node.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// Appends a number, seven bits to a byte, the low ones first.
fn put(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = u8::try_from(number & 0x7f).expect("seven bits");
        number >>= 7;
        if number == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

/// Bytes that are still to be read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Past the version.
    fn open(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => Ok(Self(rest)),
            Some((&version, _)) => Err(Unreadable::Version(version)),
            None => Err(Unreadable::Damaged),
        }
    }

    /// Refuses what is left over.
    fn close(self) -> Result<(), Unreadable> {
        if self.0.is_empty() { Ok(()) } else { Err(Unreadable::Damaged) }
    }

    fn number(&mut self, most: u64) -> Result<u64, Unreadable> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(Unreadable::Damaged)?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            let placed = bits << shift;
            if placed >> shift != bits {
                return Err(Unreadable::Damaged);
            }
            number |= placed;
            if byte & 0x80 == 0 {
                return if number <= most { Ok(number) } else { Err(Unreadable::Damaged) };
            }
        }
        Err(Unreadable::Damaged)
    }

    fn small(&mut self, most: u32) -> Result<u32, Unreadable> {
        let number = self.number(most.into())?;
        u32::try_from(number).map_err(|_wide| Unreadable::Damaged)
    }

    fn text(&mut self, length: u64) -> Result<&'a str, Unreadable> {
        let length = usize::try_from(length).map_err(|_wide| Unreadable::Damaged)?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(Unreadable::Damaged)?;
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_other| Unreadable::Damaged)
    }

    fn tenancy(&mut self) -> Result<Tenancy, Unreadable> {
        Ok(Tenancy { slot: self.small(SLOTS_MAX - 1)?, term: self.number(u64::MAX)? })
    }

    fn tenancies(&mut self) -> Result<BTreeSet<Tenancy>, Unreadable> {
        let count = self.number(SLOTS_MAX.into())?;
        (0..count).map(|_| self.tenancy()).collect()
    }

    fn place(&mut self, last: u64, names: &[Name]) -> Result<Option<Place>, Unreadable> {
        let name = |number: u64| match number.checked_sub(1) {
            None => Ok(None),
            Some(index) => {
                let name = usize::try_from(index).ok().and_then(|index| names.get(index));
                name.map(|name| Some(name.clone())).ok_or(Unreadable::Damaged)
            }
        };
        let head = self.number(u64::MAX)?;
        let Some(owner) = (head >> 1).checked_sub(1) else {
            return if head == 0 { Ok(None) } else { Err(Unreadable::Damaged) };
        };
        let owner = name(owner)?;
        let next = if head & 1 == 1 { name(self.number(u64::MAX)?)? } else { None };
        let term = match self.number(last)? {
            0 => 0,
            behind => last - (behind - 1),
        };
        Ok(Some(Place { owner, term, next }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_name() -> impl Strategy<Value = Option<Name>> {
        prop::option::of((0..20_u32).prop_map(|number| Name::from(format!("node-{number}"))))
    }

    fn any_assignment() -> impl Strategy<Value = Assignment> {
        let place = (any_name(), any::<prop::sample::Index>(), any_name());
        let places = prop::collection::vec(prop::option::of(place), 0..50);
        (1..u64::MAX, 0..=SLOTS_MAX, places).prop_map(|(term, wanted, places)| {
            let bound = usize::try_from(term).unwrap_or(usize::MAX);
            let place = |(owner, below, next): (_, prop::sample::Index, _)| {
                let term = u64::try_from(below.index(bound)).unwrap();
                Place { owner, term, next }
            };
            let places = places.into_iter().map(|entry| entry.map(place)).collect();
            Assignment { term, wanted, places }
        })
    }

    fn any_word() -> impl Strategy<Value = Word> {
        let tenancy = (0..SLOTS_MAX, any::<u64>()).prop_map(|(slot, term)| Tenancy { slot, term });
        let released = prop::collection::btree_set(tenancy.clone(), 0..20);
        let drained = prop::collection::btree_set(tenancy, 0..20);
        (released, drained).prop_map(|(released, drained)| Word { released, drained })
    }

    proptest! {
        #[test]
        fn an_assignment_is_read_as_it_was_written(assignment in any_assignment()) {
            let bytes = encode_assignment(&assignment);
            prop_assert_eq!(decode_assignment(&bytes), Ok(assignment));
        }

        #[test]
        fn a_word_is_read_as_it_was_written(word in any_word()) {
            prop_assert_eq!(decode_word(&encode_word(&word)), Ok(word));
        }

        #[test]
        fn a_part_of_an_assignment_is_refused(assignment in any_assignment(), cut: prop::sample::Index) {
            let bytes = encode_assignment(&assignment);
            let part = &bytes[..cut.index(bytes.len())];
            prop_assert_eq!(decode_assignment(part), Err(Unreadable::Damaged));
        }

        #[test]
        fn hostile_bytes_are_read_or_refused(mut bytes: Vec<u8>) {
            let _read = (decode_assignment(&bytes), decode_word(&bytes), About::decode(&bytes));
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            let _read = (decode_assignment(&bytes), decode_word(&bytes));
        }
    }

    #[test]
    fn a_later_version_is_told_from_damage() {
        assert_eq!(decode_assignment(&[9, 1, 2]), Err(Unreadable::Version(9)));
        assert_eq!(decode_word(&[]), Err(Unreadable::Damaged));
    }

    #[test]
    fn a_description_with_more_in_it_is_read() {
        let about =
            About::decode(br#"{"address":"http://a:1","version":"2","since":5,"zone":"b"}"#);
        assert_eq!(
            about,
            Some(About::new("http://a:1", "2", Timestamp::from_millis_saturating(5)))
        );
    }
}
