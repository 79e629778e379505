//! Tests of the strategies: what they promise about their values, and what failures shrink to.

mod conversations;
mod frames;
mod plans;
mod shrinking;
mod traces;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::wire::tcp::TcpHeader;
use crate::wire::{Layers, protocol};

/// A runner whose values are a function of `seed`.
fn runner(seed: u8, cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]))
}

/// The first values that a strategy makes of `seed`.
fn values<S: Strategy>(strategy: &S, seed: u8, count: usize) -> Vec<S::Value> {
    let mut runner = runner(seed, 1);
    let mut value = || strategy.new_tree(&mut runner).expect("nothing is filtered").current();
    (0..count).map(|_| value()).collect()
}

/// The smallest value found that `is_bad`, and how many values were tried after the first bad one.
fn minimal<S: Strategy>(strategy: &S, seed: u8, is_bad: impl Fn(&S::Value) -> bool) -> (S::Value, usize) {
    let tried = std::cell::Cell::new(None::<usize>);
    let result = runner(seed, 2_000).run(strategy, |value| {
        tried.set(tried.get().map(|count| count + 1));
        if !is_bad(&value) {
            return Ok(());
        }
        tried.set(tried.get().or(Some(0)));
        Err(TestCaseError::fail("bad"))
    });
    match result {
        Err(TestError::Fail(_, value)) => (value, tried.get().unwrap_or(0)),
        _ => panic!("seed {seed}: none of 2000 values is bad"),
    }
}

/// The TCP header of a frame, and its data.
fn tcp(frame: &[u8]) -> Option<(TcpHeader, Vec<u8>)> {
    let layers = Layers::parse(frame).ok()?;
    let at = layers.l4_offset().filter(|_| layers.protocol() == Some(protocol::TCP))?;
    let header = TcpHeader::view(frame, at).ok()?;
    Some((*header, frame[layers.payload(frame)?].to_vec()))
}
