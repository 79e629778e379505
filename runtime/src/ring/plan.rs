//! Who holds what: the geometry of the ring.

use crate::limits::{Limits, MAX_LANES, MAX_NODES, MAX_UNIT_FRAMES};
use crate::piggyback::{UNIT_HEADER, record_bytes};
use crate::state::Layout;

/// What every node of a chain knows from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    stages: usize,
    f: usize,
    /// How stores are cut.
    pub layout: Layout,
    /// Lanes that flows are spread over, 1 … [`MAX_LANES`]: as many shards as a node can have. The same at every node.
    pub lanes: usize,
    /// Packets that a lane commits together as one unit, 1 … 64. 1 is the paper's way.
    pub unit_frames: usize,
    /// Bounds and timers.
    pub limits: Limits,
    /// Seed of the nodes' random numbers.
    pub seed: u64,
}

/// Why a chain can't be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No stage.
    #[error("a chain needs at least one stage")]
    NoStage,
    /// Not as many network functions as the plan has stages.
    #[error("the plan has {planned} stages, and {given} network functions were given")]
    StageCount {
        /// Stages of the plan.
        planned: usize,
        /// Network functions given.
        given: usize,
    },
    /// Too many nodes.
    #[error("a chain has at most {MAX_NODES} nodes, one per stage or f + 1; this one would have {0}")]
    TooManyNodes(usize),
    /// Units of no packet or of too many.
    #[error("a unit holds 1 to {MAX_UNIT_FRAMES} packets, not {0}")]
    UnitFrames(usize),
    /// No lane, or too many.
    #[error("a chain has 1 to {MAX_LANES} lanes, not {0}")]
    Lanes(usize),
    /// Partitions out of range.
    #[error("a store has 1 to 64 partitions, not {0}")]
    Partitions(usize),
    /// A link that can't carry the units.
    #[error(
        "with f = {f} an MTU of {mtu} bytes leaves {room} bytes for one transaction, and {needed} are needed: raise the MTU or lower f or the partitions"
    )]
    Mtu {
        /// Failures to survive.
        f: usize,
        /// The MTU asked for.
        mtu: usize,
        /// What it leaves.
        room: usize,
        /// What the largest transaction needs.
        needed: usize,
    },
}

impl Plan {
    /// A ring of `stages` stages that survives `f` failures, with defaults for the rest.
    ///
    /// # Errors
    /// No stage, or more nodes than their numbers can count.
    pub fn new(stages: usize, f: usize) -> Result<Self, PlanError> {
        let (layout, limits) = (Layout::default(), Limits::default());
        let plan = Plan { stages, f, layout, lanes: 1, unit_frames: 1, limits, seed: 1 };
        plan.check_geometry()?;
        Ok(plan)
    }

    /// The same plan for another geometry.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn with_geometry(self, stages: usize, f: usize) -> Result<Self, PlanError> {
        let plan = Plan { stages, f, ..self };
        plan.check_geometry()?;
        Ok(plan)
    }

    /// Checks the whole plan; `needed` is what the largest transaction writes, in bytes of delta.
    ///
    /// # Errors
    /// The first thing that is wrong, with the way out.
    pub fn check(&self, needed: usize) -> Result<(), PlanError> {
        self.check_geometry()?;
        if !(1..=MAX_UNIT_FRAMES).contains(&self.unit_frames) {
            return Err(PlanError::UnitFrames(self.unit_frames));
        }
        if !(1..=MAX_LANES).contains(&self.lanes) {
            return Err(PlanError::Lanes(self.lanes));
        }
        if !(1..=crate::limits::MAX_PARTITIONS).contains(&self.layout.partitions) {
            return Err(PlanError::Partitions(self.layout.partitions));
        }
        let room = self.delta_limit();
        if room < needed {
            return Err(PlanError::Mtu { f: self.f, mtu: self.limits.mtu, room, needed });
        }
        Ok(())
    }

    fn check_geometry(&self) -> Result<(), PlanError> {
        if self.stages == 0 {
            return Err(PlanError::NoStage);
        }
        if self.f >= MAX_NODES || self.stages > MAX_NODES {
            return Err(PlanError::TooManyNodes(self.stages.max(self.f.saturating_add(1))));
        }
        Ok(())
    }

    /// Bytes of delta that one transaction may write. A unit has at most f records (older ones have reached their
    /// tail), each at most two such deltas long: so a burst of small transactions has room although a large one may follow.
    pub fn delta_limit(&self) -> usize {
        // Without replication nothing travels, and only the format's own bound is left.
        let link = if self.f == 0 { crate::limits::MAX_UNIT } else { self.limits.mtu };
        let unit = link.min(crate::limits::MAX_UNIT).saturating_sub(UNIT_HEADER);
        (unit / self.f.max(1)).saturating_sub(record_bytes(self.layout.partitions)) / 2
    }

    /// Network functions in the chain.
    pub fn stages(&self) -> usize {
        self.stages
    }

    /// Failures that the ring survives.
    pub fn f(&self) -> usize {
        self.f
    }

    /// Nodes of the ring: one per stage, and more where f + 1 replicas need them.
    pub fn nodes(&self) -> usize {
        self.stages.max(self.f + 1)
    }

    /// The node after `node`, which is on the ring.
    pub fn successor(&self, node: usize) -> usize {
        if node + 1 == self.nodes() { 0 } else { node + 1 }
    }

    /// The node before `node`, which is on the ring.
    pub fn predecessor(&self, node: usize) -> usize {
        node.checked_sub(1).unwrap_or(self.nodes() - 1)
    }

    /// The nodes that hold a stage's store, head first, tail last.
    pub fn group(&self, stage: usize) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let nodes = self.nodes();
        (stage..=stage + self.f).map(move |node| node % nodes)
    }

    /// The last node of a stage's group.
    pub fn tail(&self, stage: usize) -> usize {
        (stage + self.f) % self.nodes()
    }

    /// The stages whose stores a node holds: its own and those before it.
    pub fn held_by(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        let plan = *self;
        (0..self.stages).filter(move |&stage| plan.holds(node, stage))
    }

    /// Whether a node is in a stage's group.
    pub fn holds(&self, node: usize, stage: usize) -> bool {
        (node + self.nodes() - stage) % self.nodes() <= self.f
    }

    /// The node of the last stage, where outbound packets leave.
    pub fn last(&self) -> usize {
        self.stages - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_has_f_plus_one_nodes_from_head_to_tail() {
        // Goal: the geometry is the paper's. Method: all small rings, against the definition.
        for (stages, f) in (1..7).flat_map(|n| (0..5).map(move |f| (n, f))) {
            let plan = Plan::new(stages, f).expect("small");
            assert_eq!(plan.nodes(), stages.max(f + 1));
            for s in 0..stages {
                let group: Vec<usize> = plan.group(s).collect();
                assert_eq!((group.len(), group[0], group[f]), (f + 1, s, plan.tail(s)));
                assert!((0..plan.nodes()).all(|n| group.contains(&n) == plan.holds(n, s)));
                assert!((0..plan.nodes()).all(|n| group.contains(&n) == plan.held_by(n).any(|h| h == s)));
            }
        }
    }

    #[test]
    fn impossible_plans_are_refused_with_the_way_out() {
        // Goal: a sentence, not a crash. Method: each kind of impossible plan.
        assert!(Plan::new(0, 1).is_err() && Plan::new(1, 64).is_err() && Plan::new(65, 0).is_err());
        let mut plan = Plan::new(3, 2).expect("fine");
        plan.limits.mtu = 600;
        let sentence = plan.check(256).expect_err("no room").to_string();
        assert!(sentence.contains("raise the MTU"), "{sentence}");
        plan.unit_frames = 65;
        assert_eq!(plan.check(0), Err(PlanError::UnitFrames(65)));
    }
}
