//! What the suites share: the example chain, a world of nodes under one seed, and the promises that it must keep.

pub mod edge;
pub mod world;
