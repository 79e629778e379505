//! Fault plans: what happens to a chain while a trace passes it.

use std::fmt;

use crate::port::Faults;

/// A node that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashAt {
    /// The node's number on the ring; numbers beyond the ring wrap.
    pub node: usize,
    /// How many packets have entered the chain by then.
    pub packet: u64,
}

impl fmt::Display for CrashAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} at packet {}", self.node, self.packet)
    }
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

/// The options of `pannier run` for the seed and the links, then the crashes in words:
/// `--seed 7 --faults loss=0.01,duplicate=0.02; crashes: node 1 at packet 12, node 2 at packet 12`.
impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--seed {}", self.seed)?;
        let Faults { loss, duplicate, reorder, delay } = self.links;
        let faults = [("loss", loss), ("duplicate", duplicate), ("reorder", reorder), ("delay", delay)];
        let mut before = " --faults ";
        for (name, probability) in faults {
            if probability > 0.0 {
                write!(f, "{before}{name}={probability}")?;
                before = ",";
            }
        }
        before = "; crashes: ";
        for crash in &self.crashes {
            write!(f, "{before}{crash}")?;
            before = ", ";
        }
        Ok(())
    }
}
