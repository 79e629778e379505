//! What the suites share: a world of nodes under one seed, and the promises that it must keep.

pub mod world;
