//! A transaction as its entry on the timeline holds it.
//!
//! The producer group is the key of the entry's message, the halves are its links, everything else is
//! in its body: a version, then fields of fixed width in little endian, then the URL. Bytes that are
//! none of ours give no record and never a panic.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use punctual_model::ports::{Armed, PendingEntry};
use punctual_model::{
    Action, Basis, Changed, CheckPolicy, Entry, Extra, GroupName, Key, Link, Message, MessageId,
    OwnId, Partition, Span, Timestamp, TopicId,
};

use super::{TransactionState, URL_BYTES_MAX};

const VERSION: u8 = 1;

/// What is known of a transaction beside its id, its own name and its halves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) producer_group: GroupName,
    pub(super) state: TransactionState,
    pub(super) created: Timestamp,
    pub(super) decided: Option<Timestamp>,
    pub(super) policy: CheckPolicy,
    pub(super) checks_sent: u16,
    /// Since when a check waits for somebody to take it.
    pub(super) ready_since: Option<Timestamp>,
    pub(super) url: Option<Arc<str>>,
}

/// A transaction and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) id: MessageId,
    /// Where it stands now; whoever changes it expects it there.
    pub(super) key: Key,
    pub(super) record: Record,
    pub(super) own_id: Option<OwnId>,
    pub(super) halves: Vec<MessageId>,
}

/// Where all transactions stand.
pub(super) fn partition() -> Partition {
    Partition::new(0).expect("every topic has a first partition")
}

impl Stored {
    /// What a pending entry holds, if it is a transaction of ours.
    pub(super) fn of_pending(entry: &PendingEntry) -> Option<Self> {
        Self::read(entry.id, entry.key, &entry.message, entry.extra.as_deref()?)
    }

    /// What a due entry holds, if it is a transaction of ours.
    pub(super) fn of_armed(armed: &Armed) -> Option<Self> {
        Self::read(armed.id(), armed.key, &armed.message, armed.extra.as_deref()?)
    }

    fn read(id: MessageId, key: Key, message: &Message, extra: &Extra) -> Option<Self> {
        if id.topic != TopicId::TRANSACTIONS || extra.action != Action::Check {
            return None;
        }
        let record = Record::decode(message)?;
        let halves = extra.links.iter().filter_map(|link| link.id()).collect();
        Some(Self { id, key, record, own_id: extra.own_id.clone(), halves })
    }

    /// The entry that takes its place, with the record as it is now.
    pub(super) fn entry(&self, due: Timestamp) -> Entry {
        let links = self.halves.iter().copied().map(Link::Id).collect();
        let entry = self.record.entry(due, links, self.own_id.clone());
        let changed = Changed { first: self.id.key, version: 1 };
        entry.with_extra(|extra| extra.changed = Some(changed))
    }
}

impl Record {
    /// An entry on the timeline.
    pub(super) fn entry(&self, due: Timestamp, links: Vec<Link>, own_id: Option<OwnId>) -> Entry {
        let extra = Extra { action: Action::Check, own_id, links, ..Extra::default() };
        Entry {
            topic: TopicId::TRANSACTIONS,
            partition: partition(),
            due,
            basis: Basis::Delay,
            message: self.encode(),
            extra: Some(Box::new(extra)),
        }
    }

    fn encode(&self) -> Message {
        let mut body = BytesMut::new();
        body.extend_from_slice(&[VERSION, code(self.state)]);
        body.extend_from_slice(&self.checks_sent.to_le_bytes());
        body.extend_from_slice(&self.policy.max.to_le_bytes());
        for number in [
            self.policy.first.as_millis(),
            self.policy.interval.as_millis(),
            self.created.as_millis(),
            // The epoch stands for never: no clock shows it.
            self.decided.unwrap_or(Timestamp::MIN).as_millis(),
            self.ready_since.unwrap_or(Timestamp::MIN).as_millis(),
        ] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        body.extend_from_slice(self.url.as_deref().unwrap_or_default().as_bytes());
        let key = Bytes::copy_from_slice(self.producer_group.as_str().as_bytes());
        Message { key: Some(key), headers: Vec::new(), body: body.freeze() }
    }

    fn decode(message: &Message) -> Option<Self> {
        let producer_group = GroupName::new(str::from_utf8(message.key.as_ref()?).ok()?).ok()?;
        let mut reader = Reader(&message.body);
        let [version, state] = reader.take()?;
        if version != VERSION {
            return None;
        }
        let checks_sent = u16::from_le_bytes(reader.take()?);
        let max = u16::from_le_bytes(reader.take()?);
        let first = Span::from_millis(reader.number()?);
        let interval = Span::from_millis(reader.number()?);
        let created = reader.time()?;
        let decided = Some(reader.time()?).filter(|time| *time > Timestamp::MIN);
        let ready_since = Some(reader.time()?).filter(|time| *time > Timestamp::MIN);
        let url = str::from_utf8(reader.0).ok().filter(|url| url.len() <= URL_BYTES_MAX)?;
        Some(Self {
            producer_group,
            state: state_of(state)?,
            created,
            decided,
            policy: CheckPolicy { first, interval, max },
            checks_sent,
            ready_since,
            url: Some(url).filter(|url| !url.is_empty()).map(Arc::from),
        })
    }
}

const fn code(state: TransactionState) -> u8 {
    match state {
        TransactionState::Prepared => 0,
        TransactionState::Committed => 1,
        TransactionState::RolledBack => 2,
        TransactionState::Unresolved => 3,
    }
}

fn state_of(byte: u8) -> Option<TransactionState> {
    TransactionState::ALL.into_iter().find(|state| code(*state) == byte)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Timestamp> {
        self.number().and_then(Timestamp::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::Sequence;

    use super::*;

    fn record() -> Record {
        Record {
            producer_group: GroupName::new("orders").unwrap(),
            state: TransactionState::Prepared,
            created: Timestamp::from_millis(1_800_000_000_000).unwrap(),
            decided: None,
            policy: CheckPolicy::default(),
            checks_sent: 3,
            ready_since: None,
            url: None,
        }
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let time = Timestamp::from_millis(1_800_000_123_456);
        let plain = record();
        let full = Record {
            decided: time,
            ready_since: time,
            url: Some("https://example.com/check?a=1".into()),
            ..record()
        };
        for record in [plain, full] {
            for state in TransactionState::ALL {
                let record = Record { state, ..record.clone() };
                assert_eq!(Record::decode(&record.encode()), Some(record));
            }
        }
    }

    #[test]
    fn the_form_on_the_timeline_stays() {
        let record = Record { url: Some("u".into()), ..record() };
        let message = record.encode();
        let hex: String = message.body.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = concat!(
            "01",
            "00",
            "0300",
            "0f00",
            "7017000000000000",
            "3075000000000000",
            "00505c18a3010000",
            "0000000000000000",
            "0000000000000000",
            "75"
        );
        assert_eq!(hex, expected);
    }

    #[test]
    fn foreign_bytes_are_no_record() {
        let good = Record { url: Some("https://example.com".into()), ..record() }.encode();
        for length in 0..46 {
            let body = good.body.slice(..length);
            assert_eq!(Record::decode(&Message { body, ..good.clone() }), None, "{length} bytes");
        }
        for key in [None, Some(Bytes::from_static(b"no name")), Some(Bytes::from_static(b"\xff"))] {
            assert_eq!(Record::decode(&Message { key, ..good.clone() }), None);
        }
        let mut dice: u64 = 1;
        for place in 0..good.body.len() {
            for _ in 0..50 {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let mut body = good.body.to_vec();
                body[place] = dice.to_le_bytes()[6];
                // Whatever comes of it, it is no panic, and what is read can be written.
                if let Some(read) = Record::decode(&Message { body: body.into(), ..good.clone() }) {
                    assert_eq!(Record::decode(&read.encode()), Some(read));
                }
            }
        }
    }

    #[test]
    fn only_entries_of_transactions_are_read() {
        let key = Key { due: Timestamp::MIN, sequence: Sequence::default() };
        let entry = record().entry(key.due, Vec::new(), None);
        let extra = entry.extra.as_deref().unwrap();
        let id = MessageId { key, topic: TopicId::TRANSACTIONS, partition: partition() };
        assert!(Stored::read(id, key, &entry.message, extra).is_some());
        let elsewhere = MessageId { topic: TopicId::new(1).unwrap(), ..id };
        assert_eq!(Stored::read(elsewhere, key, &entry.message, extra), None);
        let repeats = Extra { action: Action::Repeat, ..extra.clone() };
        assert_eq!(Stored::read(id, key, &entry.message, &repeats), None);
    }
}
