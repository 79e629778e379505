//! Chains of network functions: chain files, placement on the ring, the in-process chain and its runs on captures.

pub mod chain;
pub mod config;
pub mod draw;
mod ingress;
pub mod live;
pub mod run;
#[cfg(feature = "testing")]
pub mod testing;

pub use chain::{Chain, ChainStage, Summary};
pub use run::{Outcome, Run, RunError};
