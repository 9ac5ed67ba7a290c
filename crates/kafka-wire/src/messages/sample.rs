//! Values made at random from a seed, in the form of a version: only fields the version has.

use bytes::Bytes;

use crate::message::{Form, Records};

/// A small generator of numbers, the same for the same seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    fn length(&mut self) -> usize {
        let end = if self.below(8) == 0 { 200 } else { 4 };
        usize::try_from(self.below(end)).unwrap()
    }
}

/// A type of which values can be made.
pub(crate) trait Sample {
    fn sample(random: &mut Random, form: Form) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Sample for $number {
            fn sample(random: &mut Random, _form: Form) -> Self {
                match random.below(4) {
                    0 => <$number>::MAX,
                    1 => <$number>::MIN,
                    _ => {
                        let mut bytes = [0; size_of::<$number>()];
                        bytes.copy_from_slice(
                            &random.bits().to_be_bytes()[..size_of::<$number>()],
                        );
                        <$number>::from_be_bytes(bytes)
                    }
                }
            }
        }
    )*};
}

numbers!(i8, i16, i32, i64, u16);

impl Sample for bool {
    fn sample(random: &mut Random, _form: Form) -> Self {
        random.below(2) == 0
    }
}

impl Sample for [u8; 16] {
    fn sample(random: &mut Random, _form: Form) -> Self {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&random.bits().to_be_bytes());
        id[8..].copy_from_slice(&random.bits().to_be_bytes());
        id
    }
}

impl Sample for String {
    fn sample(random: &mut Random, _form: Form) -> Self {
        let length = random.length();
        (0..length).map(|_at| ['a', 'Z', '.', '-', 'ä', '時'][random.length() % 6]).collect()
    }
}

impl Sample for Bytes {
    fn sample(random: &mut Random, _form: Form) -> Self {
        let length = random.length();
        (0..length).map(|_at| random.bits().to_be_bytes()[0]).collect()
    }
}

impl Sample for Records {
    fn sample(random: &mut Random, form: Form) -> Self {
        Self::Here(Bytes::sample(random, form))
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(random: &mut Random, form: Form) -> Self {
        let count = random.below(4);
        (0..count).map(|_at| T::sample(random, form)).collect()
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(random: &mut Random, form: Form) -> Self {
        if form.nullable && random.below(3) == 0 { None } else { Some(T::sample(random, form)) }
    }
}
