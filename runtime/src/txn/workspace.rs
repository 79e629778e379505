//! The workspace: what the transactions of one lane share, and how one of them ends.

use super::write_set::{Savepoint, WriteSet};
use super::{Abort, TxnResult};
use crate::dependency::PartitionSet;
use crate::entropy::Entropy;
use crate::limits::MAX_PARTITIONS;
use crate::mutant::{self, Mutant};
use crate::packet::{Packet, Pool};
use crate::state::Held;

/// What the transactions of one lane share from packet to packet.
#[derive(Debug)]
pub struct Workspace {
    /// Writes of the open unit.
    pub writes: WriteSet,
    /// The shard's random numbers.
    pub entropy: Entropy,
    /// Frames that the open transactions made.
    pub emitted: Vec<Packet>,
    /// Bytes of delta that one transaction may write.
    pub delta_limit: usize,
    /// Which lane this is, of how many, and the partitions that its flows have to themselves (see [`crate::ring::steer`]).
    pub(super) lane: usize,
    pub(super) lanes: usize,
    home: PartitionSet,
    /// The partitions that the open unit has claimed.
    pub(crate) held: Held,
    /// Why the running transaction can't be kept, whatever its network function says.
    pub(super) failed: Option<Abort>,
    /// The running transaction gave way to another before, and does not do so again.
    insists: bool,
    /// Conflicts from a seed, in place of those with other shards.
    #[cfg(feature = "simulation")]
    pub conflicts: Option<(Entropy, f64)>,
}

impl Clone for Workspace {
    /// The same workspace for a store that nobody else uses: claims stay with the original.
    fn clone(&self) -> Self {
        Workspace {
            writes: self.writes.clone(),
            entropy: self.entropy,
            emitted: self.emitted.clone(),
            delta_limit: self.delta_limit,
            lane: self.lane,
            lanes: self.lanes,
            home: self.home,
            held: Held::whole(),
            failed: self.failed,
            insists: self.insists,
            #[cfg(feature = "simulation")]
            conflicts: self.conflicts,
        }
    }
}

/// Where a transaction began, to undo all of it.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    writes: Savepoint,
    entropy: Entropy,
    emitted: usize,
}

impl Workspace {
    /// A workspace in which nothing is open, of a chain with one lane.
    pub fn new(entropy: Entropy, delta_limit: usize) -> Self {
        Workspace {
            writes: WriteSet::default(),
            entropy,
            emitted: Vec::new(),
            delta_limit,
            lane: 0,
            lanes: 1,
            home: PartitionSet::default(),
            held: Held::whole(),
            failed: None,
            insists: false,
            #[cfg(feature = "simulation")]
            conflicts: None,
        }
    }

    /// The same as one of several lanes.
    #[must_use]
    pub fn on_lane(self, lane: usize, lanes: usize) -> Self {
        let mut home = PartitionSet::default();
        (lane..MAX_PARTITIONS).step_by(lanes).for_each(|partition| home.insert(partition));
        Workspace { lane, lanes, home, ..self }
    }

    /// Notes where the next transaction begins.
    pub fn begin(&mut self) -> Beginning {
        self.failed = None;
        Beginning { writes: self.writes.begin(), entropy: self.entropy, emitted: self.emitted.len() }
    }

    /// What a transaction came to: what its network function says, unless it ignored that it can't be kept.
    ///
    /// # Errors
    /// [`Abort::TOO_LARGE`], [`Abort::CONFLICT`].
    pub fn conclude<T>(&self, said: TxnResult<T>) -> TxnResult<T> {
        self.failed.map_or(said, Err)
    }

    /// Whether the running transaction met a conflict: it must be undone and run again.
    pub fn conflicted(&self) -> bool {
        self.failed == Some(Abort::CONFLICT)
    }

    /// Whether the open unit is sure to have room for a transaction that writes `bytes` of delta, or as much as one may.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        self.writes.delta_bytes() + bytes.min(self.delta_limit) <= self.room()
    }

    /// Bytes of delta that fit into a unit: two of the largest transactions.
    pub(super) fn room(&self) -> usize {
        2 * self.delta_limit
    }

    /// Whether transactions may have to run again.
    pub fn may_conflict(&self) -> bool {
        #[cfg(feature = "simulation")]
        if self.conflicts.is_some() {
            return true;
        }
        self.held.is_shared() || !self.has_room_for(self.delta_limit)
    }

    /// Claims a partition for the running transaction, to read or also to write.
    ///
    /// # Errors
    /// [`Abort::CONFLICT`]. A shard that is alone is never refused.
    #[inline(always)]
    pub(super) fn claim(&mut self, partition: usize, to_write: bool) -> TxnResult<()> {
        let holds = if to_write { self.held.may_write(partition) } else { self.held.may_read(partition) };
        #[cfg(feature = "simulation")]
        let holds = holds && self.conflicts.is_none();
        let as_usual = holds && self.failed.is_none();
        if as_usual { Ok(()) } else { self.claim_all(PartitionSet::only(partition), to_write) }
    }

    /// Claims several partitions, as [`Workspace::claim`] does one.
    ///
    /// # Errors
    /// As there.
    #[inline(never)]
    pub(super) fn claim_all(&mut self, wanted: PartitionSet, to_write: bool) -> TxnResult<()> {
        #[cfg(feature = "simulation")]
        if let Some((entropy, chance)) = self.conflicts.as_mut().filter(|_| !self.insists)
            && (self.failed == Some(Abort::CONFLICT) || entropy.chance(*chance))
        {
            self.failed = Some(Abort::CONFLICT);
        }
        let claim = if to_write { Held::claim_write } else { Held::claim_read };
        // All of its home at once: others leave it alone, and most transactions of the unit then find theirs claimed.
        let at_home = !self.insists && wanted.is_within(self.home) && claim(&mut self.held, self.home);
        if self.conflicted() || !(at_home || claim(&mut self.held, wanted)) {
            self.failed = Some(Abort::CONFLICT);
            return Err(Abort::CONFLICT);
        }
        Ok(())
    }

    /// Lets the next transaction wait for what it claims: it gave way, and the unit that was open is closed.
    pub(crate) fn insist(&mut self) {
        self.held.release();
        self.held.queue();
        self.insists = true;
    }

    /// Forgets all writes, which are committed, and gives back what was claimed for them.
    pub(crate) fn clear(&mut self) {
        self.writes.clear();
        self.held.release();
    }

    /// Undoes a transaction without trace.
    pub fn abort(&mut self, beginning: &Beginning, pool: &mut Pool) {
        self.end();
        self.writes.rollback(&beginning.writes);
        if !mutant::is(Mutant::AbortKeepsRandom) {
            self.entropy = beginning.entropy;
        }
        self.emitted.drain(beginning.emitted..).for_each(|packet| pool.give(packet));
    }

    /// The frames that a transaction has made.
    pub fn emitted_since(&mut self, beginning: &Beginning) -> impl Iterator<Item = &mut Packet> {
        self.emitted[beginning.emitted..].iter_mut()
    }

    /// Keeps the running transaction: its writes are part of the open unit.
    pub fn keep(&mut self) {
        self.writes.keep();
        self.end();
    }

    /// The transaction has run: the next one gives way to others, as all do at first.
    fn end(&mut self) {
        self.failed = None;
        if std::mem::take(&mut self.insists) {
            self.held.leave_queue();
        }
    }
}
