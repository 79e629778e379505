//! A stage's store at one node: state, versions and what is known to be committed.

use crate::dependency::{PartitionSet, Vector};
use crate::mutant::{self, Mutant};
use crate::piggyback::RecordView;
use crate::state::AnyState;
use crate::txn::delta;

/// Whether a record may be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Its effects are here already.
    Duplicate,
    /// All that it depends on is here.
    Ready,
    /// Something that it depends on is missing.
    Wait,
}

/// A stage's store.
#[derive(Clone, Debug)]
pub struct Store {
    /// The tables.
    pub state: Box<dyn AnyState>,
    /// Per partition, how many transactions have written it.
    pub versions: Vector,
    /// Per partition, the version known to be on all nodes of the group.
    pub commit: Vector,
    /// Partitions whose versions or commit the predecessor has not been told.
    pub(crate) untold: PartitionSet,
    /// While the store is copied to a replacement: what it has taken in since the copy began.
    pub(crate) changes: Option<Vec<u8>>,
    is_tail: bool,
}

impl Store {
    /// An empty store; `is_tail` says that the node is the last of the stage's group.
    pub fn new(state: Box<dyn AnyState>, is_tail: bool) -> Self {
        let (versions, commit) = (Vector::default(), Vector::default());
        Store { state, versions, commit, untold: PartitionSet::default(), changes: None, is_tail }
    }

    /// Where a record stands: the ordering rule of [`crate::dependency`].
    pub(crate) fn status(&self, record: &RecordView<'_>) -> Status {
        let (mut past, mut exact, mut read) = (false, true, true);
        for seen in record.seen() {
            let here = self.versions[seen.partition];
            let version = seen.version_near(here);
            if !seen.written {
                read &= here >= version || mutant::is(Mutant::NoReadWait);
            } else if here > version {
                past = true;
            } else {
                exact &= here == version;
            }
        }
        read |= mutant::is(Mutant::DuplicateIgnoresReads) && past;
        // A record that was merged from several may be past in what it wrote and still lack what it read.
        match (read, past || !record.writes(), exact) {
            (true, true, _) => Status::Duplicate,
            (true, false, true) => Status::Ready,
            _ => Status::Wait,
        }
    }

    /// Applies a record that is ready: its delta, and one version more for each partition written.
    pub(crate) fn apply(&mut self, record: &RecordView<'_>) {
        self.take(record.delta, record.written());
    }

    /// Takes a delta in that writes the partitions `written`; see [`delta::apply`].
    pub(crate) fn take(&mut self, changes: &[u8], written: PartitionSet) {
        delta::apply(&mut *self.state, changes);
        if let Some(since) = self.changes.as_mut().filter(|_| !mutant::is(Mutant::UnrepairedSnapshot)) {
            since.extend_from_slice(changes);
        }
        for partition in written.iter() {
            self.versions.0[partition] += 1;
            if self.is_tail {
                self.commit.0[partition] = self.versions[partition];
            }
        }
        self.untold = self.untold.union(written);
    }

    /// Learns that `version` of a partition is on all nodes of the group; what is not here can't be.
    pub(crate) fn learn_commit(&mut self, partition: usize, version: u64) -> bool {
        let version = version.min(self.versions[partition]);
        if mutant::is(Mutant::RegressingCommit) && !self.is_tail && version < self.commit[partition] {
            self.commit.0[partition] = version;
        }
        let news = !self.is_tail && self.commit.raise(partition, version);
        if news {
            self.untold.insert(partition);
        }
        news
    }

    /// Takes over vectors from a snapshot.
    pub(crate) fn install(&mut self, versions: Vector, commit: Vector) {
        self.versions = versions;
        self.commit = if self.is_tail { versions } else { commit };
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
