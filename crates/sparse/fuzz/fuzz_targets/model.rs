//! `cargo +nightly fuzz run model`: the property test of the crate, with steps that the fuzzer finds.
#![no_main]

#[path = "../../tests/model/mod.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let bytes = &bytes[..bytes.len().min(2000)];
    model::run(&model::decode(bytes), false);
    model::run(&model::decode(bytes), true);
});
