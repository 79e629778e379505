//! Counters. Each belongs to one node and is read by whoever reports.

/// Counts under names, for reasons that are known by their text. Few names; the newest are found first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons(Vec<(&'static str, u64)>);

impl Reasons {
    /// Adds one under `reason`.
    pub fn count(&mut self, reason: &'static str) {
        self.count_many(reason, 1);
    }

    /// Adds `many` under `reason`; nothing where that is none.
    pub fn count_many(&mut self, reason: &'static str, many: u64) {
        match self.0.iter_mut().find(|(name, _)| *name == reason) {
            Some((_, count)) => *count += many,
            None if many == 0 => {}
            None => self.0.push((reason, many)),
        }
    }

    /// The counts, by name.
    pub fn sorted(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.0.clone();
        all.sort_unstable();
        all
    }

    /// The sum of all counts.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Reasons) {
        for &(reason, count) in &other.0 {
            self.count_many(reason, count);
        }
    }
}

/// What a node counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Frames that its network function worked on.
    pub processed: u64,
    /// Frames that it let pass.
    pub forwarded: u64,
    /// Frames that it dropped, by reason.
    pub drops: Reasons,
    /// Transactions that ran again: they gave way to another lane's, or found no room in their unit.
    pub conflicts: u64,
    /// Frames that it made itself.
    pub generated: u64,
    /// Frames that ended here because of a failure: fenced, found a full bound, or came while the node was joining.
    pub lost: u64,
    /// Units sent for the first time: on a frame or alone.
    pub units_sent: u64,
    /// Bytes of units and of their names that were sent, repairs included.
    pub unit_bytes: u64,
    /// Units sent again.
    pub units_repaired: u64,
    /// Messages refused, by reason.
    pub refused: Reasons,
}
impl NodeStats {
    /// Adds another's counts: those of an earlier incarnation, or of another node.
    pub fn add(&mut self, other: &NodeStats) {
        self.processed += other.processed;
        self.forwarded += other.forwarded;
        self.drops.add(&other.drops);
        self.conflicts += other.conflicts;
        self.generated += other.generated;
        self.lost += other.lost;
        self.units_sent += other.units_sent;
        self.unit_bytes += other.unit_bytes;
        self.units_repaired += other.units_repaired;
        self.refused.add(&other.refused);
    }
}
