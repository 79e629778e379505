//! What the suites share: the example chain.

pub mod edge;
