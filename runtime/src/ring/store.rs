//! A stage's store at one node: state, versions and what is known to be committed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::dependency::{LiveVector, PartitionSet, Vector, Version, Versions};
use crate::mutant::{self, Mutant};
use crate::piggyback::RecordView;
#[cfg(feature = "simulation")]
use crate::state::Layout;
use crate::state::{AnyState, Claims, Held, Site};
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

/// A stage's store. The lanes of a node share it; each touches rows under its claims.
#[derive(Debug)]
pub struct Store {
    /// The tables.
    pub state: Box<dyn AnyState>,
    /// Per partition, how many transactions have written it.
    versions: LiveVector,
    /// Per partition, the version known to be on all nodes of the group.
    commit: LiveVector,
    /// While the store is copied to a replacement: what it has taken in since the copy began.
    changes: Mutex<Option<Vec<u8>>>,
    is_copied: AtomicBool,
    /// What the lanes claim, where several shards run them.
    claims: Arc<Claims>,
    is_shared: AtomicBool,
    is_tail: bool,
}

impl Store {
    /// An empty store; `is_tail` says that the node is the last of the stage's group.
    pub fn new(state: Box<dyn AnyState>, is_tail: bool) -> Self {
        Store::with_vectors(state, is_tail, Vector::default(), Vector::default())
    }

    /// A store with rows; of a tail, what is here is committed.
    pub fn with_vectors(state: Box<dyn AnyState>, is_tail: bool, versions: Vector, commit: Vector) -> Self {
        Store {
            state,
            versions: versions.into(),
            commit: if is_tail { versions } else { commit }.into(),
            changes: Mutex::new(None),
            is_copied: AtomicBool::new(false),
            claims: Arc::default(),
            is_shared: AtomicBool::new(false),
            is_tail,
        }
    }

    /// Per partition, how many transactions have written it.
    pub fn versions(&self) -> Vector {
        self.versions.look()
    }

    /// Per partition, the version known to be on all nodes of the group.
    pub fn commit(&self) -> Vector {
        self.commit.look()
    }

    /// Whether this is the last node of the stage's group: what is here is committed.
    pub(crate) fn is_tail(&self) -> bool {
        self.is_tail
    }

    /// The versions, to look at one by one.
    pub(crate) fn live_versions(&self) -> &LiveVector {
        &self.versions
    }

    /// The commit vector, to look at one by one.
    pub(crate) fn live_commit(&self) -> &LiveVector {
        &self.commit
    }

    /// Lets several shards use the store, or one alone again. Nobody may be at it meanwhile.
    pub(crate) fn share(&self, shared: bool) {
        self.is_shared.store(shared, Ordering::Relaxed);
        self.state.iter().for_each(|table| table.set_shared(shared, &Held::whole()));
    }

    /// What a lane holds of the store before it has claimed anything.
    pub(crate) fn held_by(&self, lane: usize) -> Held {
        match self.is_shared.load(Ordering::Relaxed) {
            true => Held::shared(Arc::clone(&self.claims), lane),
            false => Held::whole(),
        }
    }

    /// Where a record stands: the ordering rule of [`crate::dependency`].
    pub(crate) fn status(&self, record: &RecordView<'_>) -> Status {
        let (mut past, mut exact, mut read) = (false, true, true);
        for seen in record.seen() {
            let here = self.versions.version(seen.partition);
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

    /// Takes a delta in that writes the partitions `written`, which are held, and counts their versions up. This is what
    /// applies records, at the head and at replicas; see [`delta::apply_held`].
    pub(crate) fn take(
        &self,
        changes: &[u8],
        sites: impl IntoIterator<Item = Site>,
        written: PartitionSet,
        held: &Held,
    ) {
        delta::apply_held(&*self.state, changes, sites, held);
        if self.is_copied.load(Ordering::Relaxed) && !mutant::is(Mutant::UnrepairedSnapshot) {
            self.changes().get_or_insert_default().extend_from_slice(changes);
        }
        for partition in written.iter() {
            let version = self.versions.version(partition) + 1;
            self.versions.set(partition, version);
            if self.is_tail {
                self.commit.set(partition, version);
            }
        }
    }

    fn changes(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        // A list of changes is whole between any two of them.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to remember what changes, or ends it; returns what was remembered. No lane may be at work meanwhile.
    pub(crate) fn remember_changes(&self, remember: bool) -> Vec<u8> {
        self.is_copied.store(remember, Ordering::Relaxed);
        self.changes().take().unwrap_or_default()
    }

    /// Learns that `version` of a partition is on all nodes of the group; what is not here can't be. Says whether that
    /// is news.
    pub(crate) fn learn_commit(&self, partition: usize, version: Version) -> bool {
        let version = version.min(self.versions.version(partition));
        if mutant::is(Mutant::RegressingCommit) && !self.is_tail && version < self.commit.version(partition) {
            self.commit.set(partition, version);
        }
        !self.is_tail && self.commit.raise(partition, version, self.is_shared.load(Ordering::Relaxed))
    }
}

#[cfg(feature = "simulation")]
impl Clone for Store {
    fn clone(&self) -> Self {
        let copy = Store::with_vectors(self.state.clone(), self.is_tail, self.versions(), self.commit());
        copy.is_copied.store(self.is_copied.load(Ordering::Relaxed), Ordering::Relaxed);
        copy.changes().clone_from(&self.changes());
        copy
    }
}

#[cfg(feature = "simulation")]
impl Store {
    /// Hashes the rows, the vectors, and what is remembered for a copy.
    pub(crate) fn hash_into(&self, layout: &Layout, hasher: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        let cut = |vector: Vector| vector.0[..layout.partitions].to_vec();
        (cut(self.versions()), cut(self.commit()), self.state.digest(layout), &*self.changes()).hash(hasher);
    }

    /// Makes an empty store as old as if each partition had been written `version` times.
    pub(crate) fn age(&self, layout: &Layout, version: Version) {
        for partition in 0..layout.partitions {
            self.versions.set(partition, version);
            self.commit.set(partition, version);
        }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
