//! Record batches, as a producer could send them.
#![no_main]

libfuzzer_sys::fuzz_target!(|batch: &[u8]| {
    let _outcome = punctual_fuzz::batches(batch);
});
