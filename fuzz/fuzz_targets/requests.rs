//! Frames with requests of every API, as a client could send them.
#![no_main]

libfuzzer_sys::fuzz_target!(|frame: &[u8]| {
    let _outcome = punctual_fuzz::requests(frame);
});
