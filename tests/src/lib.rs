//! What the suites share: the example chain, a world of nodes under one seed, the promises that it must keep, and the
//! targets of the fuzzers.

pub mod edge;
pub mod fuzz;
pub mod world;
