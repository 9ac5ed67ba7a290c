//! Whatever bytes arrive, they are refused or understood, and nothing panics: the targets of the
//! fuzzer, from its corpus, without its compiler.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "the targets are the fuzzer's, which needs them public")]
mod targets;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use punctual_kafka_wire::api::APIS;
use punctual_kafka_wire::records::{
    Attributes, Batch, BatchWriter, Compression, NewRecord, Opening, UNPACKED_BYTES_MAX,
};

/// Mutations tried per file of the corpus.
const MUTATIONS: usize = 3000;

/// The lengths and counts that are most likely to be believed by mistake.
const EXTREMES: [[u8; 4]; 6] = [
    [0x7f, 0xff, 0xff, 0xff],
    [0x80, 0, 0, 0],
    [0xff, 0xff, 0xff, 0xfe],
    [0, 0, 0xff, 0xff],
    [0xff, 0xff, 0xff, 0x0f],
    [0, 0, 0, 0],
];

#[test]
fn the_corpus_holds_a_request_of_every_api_and_all_of_them_are_understood() {
    let mut seen = BTreeSet::new();
    for (name, frame) in corpus("requests") {
        let key = targets::requests(&frame);
        seen.insert(key.unwrap_or_else(|cause| panic!("{}: {cause}", name.display())));
    }
    assert_eq!(seen, APIS.iter().map(|api| api.key).collect());
}

#[test]
fn the_batches_of_the_corpus_are_understood() {
    for (name, batch) in corpus("batches") {
        assert!(targets::batches(&batch).is_some(), "{} is refused", name.display());
    }
}

#[test]
fn mutated_requests_never_panic() {
    mutate("requests", |frame| targets::requests(frame).is_ok());
}

#[test]
fn mutated_batches_never_panic() {
    mutate("batches", |batch| targets::batches(batch).is_some());
}

#[test]
#[ignore = "writes the corpus of the fuzzer anew"]
fn the_corpus_of_batches_is_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/batches");
    // The first byte asks the target to put the checksum right.
    let write = |name: String, batch: &[u8]| {
        std::fs::write(folder.join(name), [&[0], batch].concat()).unwrap();
    };
    for compression in Compression::ALL {
        let attributes = Attributes::default().with_compression(compression);
        let opening =
            Opening { base_timestamp: 1_760_000_000_000, attributes, ..Opening::default() };
        let mut writer = BatchWriter::new(opening);
        for delta in 0..4 {
            let value = b"something to say, and to say again, and to say again".as_slice();
            let headers: [(&[u8], Option<&[u8]>); 2] = [(b"a", Some(b"1")), (b"b", None)];
            writer.push(&NewRecord {
                offset_delta: delta,
                timestamp_delta: i64::from(delta) * 1000,
                key: (delta % 2 == 0).then_some(b"key".as_slice()),
                value: (delta != 3).then_some(value),
                headers: &headers,
            });
        }
        let batch = writer.finish().unwrap();
        write(format!("{compression:?}").to_lowercase(), &batch);
        let unpacked = Batch::check(batch).unwrap().unpack(UNPACKED_BYTES_MAX).unwrap();
        write("thinned".to_owned(), &unpacked.thin(&[1, 3]).unwrap());
        write("empty".to_owned(), &unpacked.thin(&[0, 1, 2, 3]).unwrap());
    }
}

/// Tries a target with mutations of its corpus, the same ones every time. Some are understood and
/// some are not, or the mutations would not be worth trying.
fn mutate(target: &str, understood: impl Fn(&[u8]) -> bool) {
    let mut random = Random(0x7075_6e63_7475_616c);
    let files = corpus(target);
    let mut taken = 0;
    for (_name, original) in &files {
        for _mutation in 0..MUTATIONS {
            let mut input = original.clone();
            for _step in 0..=random.below(3) {
                step(&mut input, &files, &mut random);
            }
            taken += usize::from(understood(&input));
        }
    }
    assert!((1..files.len() * MUTATIONS).contains(&taken), "{taken} mutations were understood");
}

/// Changes one thing about the input.
fn step(input: &mut Vec<u8>, files: &[(PathBuf, Vec<u8>)], random: &mut Random) {
    let at = random.below(input.len() + 1);
    match random.below(6) {
        0 => input.truncate(at),
        1 => input.insert(at, random.byte()),
        2 => {
            let other = &files[random.below(files.len())].1;
            input.truncate(at);
            input.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
        3 => {
            let extreme = EXTREMES[random.below(EXTREMES.len())];
            for (place, byte) in input.iter_mut().skip(at).zip(extreme) {
                *place = byte;
            }
        }
        _ => {
            let byte = random.byte();
            if let Some(place) = input.get_mut(at) {
                *place ^= byte;
            }
        }
    }
}

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut names: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names.into_iter().map(|name| (name.clone(), std::fs::read(name).unwrap())).collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 1).unwrap() % end
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }
}
