//! `pannier_tests::fuzz::capture` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pannier_tests::fuzz::capture::check(bytes));
