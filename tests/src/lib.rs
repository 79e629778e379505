//! What the suites share: the example chain, and the targets of the fuzzers.

pub mod edge;
pub mod fuzz;
