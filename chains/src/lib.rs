//! Chains of network functions: chain files, placement on the ring, and the in-process chain.

pub mod chain;

pub use chain::{Chain, ChainStage, Summary};
