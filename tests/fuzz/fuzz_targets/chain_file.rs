//! `pannier_tests::fuzz::chain_file` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pannier_tests::fuzz::chain_file::check(bytes));
