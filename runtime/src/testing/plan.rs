//! Fault plans: what happens to a chain while a trace passes it.

use crate::port::Faults;

/// A node that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashAt {
    /// The node's number on the ring; numbers beyond the ring wrap.
    pub node: usize,
    /// How many packets have entered the chain by then.
    pub packet: u64,
}

/// What happens to a chain while a trace passes it. The same plan, the same run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// Seed of the nodes' random numbers and of the links' faults.
    pub seed: u64,
    /// What the ring's links do.
    pub links: Faults,
    /// Nodes that die, in the order of their packets.
    pub crashes: Vec<CrashAt>,
}
