//! Does Kafka's own DumpLogSegments find no fault in the files that the real program has written?
//!
//! Topics are filled by an unmodified client with batches of every shape, over two runs of the program;
//! `scripts/kafka-check.sh` then reads every log and index. That it would find a fault is shown by
//! damaging copies.
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod process_support;

use std::fs;
use std::path::{Path, PathBuf};

use process_support::foreign::Foreign;
use process_support::process::Launch;
use tempfile::TempDir;

/// Bytes before the records of a batch, and where in them its length stands.
const HEAD_BYTES: usize = 61;
const LENGTH_AT: usize = 8;

/// What the tool says of a directory: nothing where Java is not there.
fn check(topics: &Path) -> Option<String> {
    Foreign::new("kafka-check.sh", &[&topics.to_string_lossy()]).run()
}

/// The longest file of that kind below a directory.
fn longest(directory: &Path, ending: &str) -> PathBuf {
    let entries = |path: &Path| {
        fs::read_dir(path).expect("a directory").map(|one| one.expect("an entry").path())
    };
    let files = entries(directory).flat_map(|topic| entries(&topic).collect::<Vec<_>>());
    let files = files.flat_map(|partition| entries(&partition).collect::<Vec<_>>());
    let files = files.filter(|path| path.extension().is_some_and(|found| found == ending));
    files.max_by_key(|path| path.metadata().expect("a file").len()).expect("there is one")
}

/// Copies the partition that a file is in, changes the copy of the file, and has it checked.
fn finds(what: &str, file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let scratch = TempDir::new().expect("a directory");
    let partition = scratch.path().join("0/0");
    fs::create_dir_all(&partition).expect("a directory");
    for entry in fs::read_dir(file.parent().expect("a partition")).expect("a directory") {
        let path = entry.expect("an entry").path();
        let copy = partition.join(path.file_name().expect("a name"));
        fs::copy(&path, copy).expect("a copy");
    }
    let copy = partition.join(file.file_name().expect("a name"));
    let mut bytes = fs::read(&copy).expect("a file");
    change(&mut bytes);
    fs::write(&copy, bytes).expect("a file");
    let topics = scratch.path().to_path_buf();
    let outcome = std::panic::catch_unwind(|| check(&topics));
    let said = outcome.expect_err(what);
    let said = said.downcast_ref::<String>().map_or("", String::as_str);
    assert!(said.contains("FAILED: "), "{what} was not found: {said}");
}

#[test]
fn dump_log_segments_finds_no_fault_in_what_was_written() {
    let data = TempDir::new().expect("a directory");
    for _ in 0..2 {
        let mut server = Launch::on(data.path()).start();
        let address = server.kafka().to_string();
        if Foreign::new("clients/kafka/kafka.sh", &["write", &address]).run().is_none() {
            return;
        }
        server.signal("TERM");
        server.wait_for_end();
        server.check_log();
    }
    let topics = data.path().join("topics");
    let Some(said) = check(&topics) else { return };
    println!("{said}");
    assert!(said.contains("no objections"), "{said}");

    let (log, index) = (longest(&topics, "log"), longest(&topics, "index"));
    finds("a changed byte of a record", &log, |bytes| bytes[HEAD_BYTES + 20] ^= 1);
    finds("a changed length", &log, |bytes| bytes[LENGTH_AT + 2] ^= 1);
    finds("a batch that is there twice", &log, |bytes| {
        let length: [u8; 4] = bytes[LENGTH_AT..LENGTH_AT + 4].try_into().expect("four bytes");
        let first = bytes[..LENGTH_AT + 4 + u32::from_be_bytes(length) as usize].to_vec();
        bytes.extend(first);
    });
    finds("an index that points elsewhere", &index, |bytes| bytes[7] ^= 1);
}
