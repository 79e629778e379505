//! `pannier_tests::fuzz::unit` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pannier_tests::fuzz::unit::check(bytes));
