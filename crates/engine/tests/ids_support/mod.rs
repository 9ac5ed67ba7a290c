//! What the tests of the table of ids share: numbered names and values, and a step of upkeep.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    reason = "each test file uses a part of this, and a failed set-up may stop a test"
)]

use punctual_engine::disk::Disk;
use punctual_engine::ids::{self, IdOptions, Ids, Name, Value};
use punctual_model::{Key, Partition, Sequence, Timestamp, TopicId};

/// Half of the names are of texts, half of sequences.
pub fn name(number: u64) -> Name {
    if number.is_multiple_of(2) {
        Name::own(TopicId::new(9).unwrap(), &format!("own-{number}"))
    } else {
        Name::moved(Sequence::new(number).unwrap())
    }
}

/// A value of which every field depends on `number`, up to the largest there are.
pub fn value(number: u64) -> Value {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Value {
        key: Key {
            due: Timestamp::from_millis(mixed % (Timestamp::MAX.as_millis() + 1)).unwrap(),
            sequence: Sequence::new(mixed >> 8).unwrap(),
        },
        topic: TopicId::new(u32::try_from(mixed >> 40).unwrap()).unwrap(),
        partition: Partition::new(u16::try_from(mixed % 1024).unwrap()).unwrap(),
        print: number,
    }
}

/// An empty table.
pub fn empty(disk: &dyn Disk) -> Ids {
    Ids::open(disk, &[], IdOptions::default()).unwrap()
}

/// Writes the active table out as file `number`.
pub fn write_out(ids: &mut Ids, disk: &dyn Disk, number: u64) {
    ids.freeze();
    let frozen = ids.frozen().unwrap();
    ids.install(ids::write(disk, number, &frozen).unwrap());
}

/// Puts `numbers`, each name with the value of the same number.
pub fn put_all(ids: &mut Ids, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        ids.put(name(number), value(number));
    }
}
