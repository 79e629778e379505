//! Claims: which lane of a node may touch which partition of a store, as strict two-phase locking asks.
//!
//! Each lane announces what it claims in two words of its own, one bit a partition: what it reads, and what it writes. To
//! claim is to set one's bit and then to look at the words of the others; to release everything is to clear two words.
//! So partitions that are only read cost no lane a cache miss, and a store that one shard has to itself needs no words.
//!
//! A claim that meets another's is refused, and the lane gives everything back: its open unit is closed, the transaction
//! undone. Then it *queues*. Whoever is first in the queue keeps its claims and waits for those of the others; all others
//! never wait while they hold a claim. So nothing waits in a circle, and since the queue is fair, every transaction runs
//! at most twice.
//!
//! # Orderings
//! What `claims_loom.rs` says when each is weakened (to relaxed, the fence to acquire and release):
//!
//! | what | noticed | why |
//! |---|---|---|
//! | the fence of [`Shared::granted`] | yes | two that announce claims at once would both overlook the other's |
//! | both loads of [`Claims::in_the_way`] | yes | rows would be touched before what was done to them is seen |
//! | the stores that announce | yes | they hide the store that released: who sees them must see what was before that |
//! | the stores that release | yes | as the loads |
//! | the stores that take a refused claim back | no | the fence is between them and all that was done before |
//! | ticket and turn | no | they say who waits; what was done is seen through the words |
//!
//! The last two are as strong as the others all the same: they are on no path that is short of time.

use std::fmt;
use std::sync::Arc;

use crate::dependency::PartitionSet;
use crate::limits::MAX_LANES;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, pause};

/// A lane's words. They have a pair of cache lines of their own: neighbouring lines are fetched together.
#[repr(align(128))]
#[derive(Debug)]
struct Words {
    reads: AtomicU64,
    writes: AtomicU64,
}

/// Lanes that have words. (Each more multiplies what loom has to try.)
const LANES: usize = if cfg!(loom) { 3 } else { MAX_LANES };

/// What the lanes of a node claim of one store.
#[derive(Debug)]
pub(crate) struct Claims {
    lanes: [Words; LANES],
    /// The queue: the next ticket, and the one whose turn it is.
    tickets: AtomicU32,
    turn: AtomicU32,
}

impl Default for Claims {
    fn default() -> Self {
        let words = |_| Words { reads: AtomicU64::new(0), writes: AtomicU64::new(0) };
        Claims { lanes: std::array::from_fn(words), tickets: AtomicU32::new(0), turn: AtomicU32::new(0) }
    }
}

impl Claims {
    /// What lanes other than `lane` hold that keeps it from reading, or from writing too, the partitions `wanted`.
    fn in_the_way(&self, lane: usize, wanted: u64, to_write: bool) -> bool {
        let others = self.lanes.iter().enumerate().filter(|(other, _)| *other != lane);
        others.map(|(_, words)| words).any(|words| {
            // Acquire: whoever sees a claim gone sees all that was done under it.
            let writes = words.writes.load(Ordering::Acquire);
            let reads = if to_write { words.reads.load(Ordering::Acquire) } else { 0 };
            wanted & (reads | writes) != 0
        })
    }
}

/// What one lane holds of a store: the proof that it may touch rows. Only the runtime makes one.
pub struct Held {
    reads: u64,
    writes: u64,
    /// Where other lanes have claims too.
    shared: Option<Shared>,
    /// Whether it counts on a store that several shards use.
    in_shared: bool,
}

struct Shared {
    claims: Arc<Claims>,
    lane: usize,
    /// Its ticket, where it is first in the queue.
    ticket: Option<u32>,
}

impl Held {
    /// Everything: for whoever has the store to himself.
    pub(crate) fn whole() -> Self {
        Held { reads: u64::MAX, writes: u64::MAX, shared: None, in_shared: false }
    }

    /// Nothing, of whatever store.
    pub(crate) fn nothing() -> Self {
        Held { reads: 0, writes: 0, shared: None, in_shared: false }
    }

    /// Everything, while all lanes of a node are between turns: then none holds anything.
    pub(crate) fn still() -> Self {
        Held { reads: u64::MAX, writes: u64::MAX, shared: None, in_shared: true }
    }

    /// Everything, to read only.
    pub(super) fn to_look() -> Self {
        Held { reads: u64::MAX, writes: 0, shared: None, in_shared: false }
    }

    /// Nothing yet, of a store that other lanes use too.
    pub(crate) fn shared(claims: Arc<Claims>, lane: usize) -> Self {
        Held { reads: 0, writes: 0, shared: Some(Shared { claims, lane, ticket: None }), in_shared: true }
    }

    /// Whether other lanes may have claims.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether it counts on a store that several shards use.
    pub(super) fn is_in_shared(&self) -> bool {
        self.in_shared
    }

    #[inline]
    pub(crate) fn may_read(&self, partition: usize) -> bool {
        (self.reads | self.writes) >> partition & 1 == 1
    }

    #[inline]
    pub(crate) fn may_write(&self, partition: usize) -> bool {
        self.writes >> partition & 1 == 1
    }

    /// Claims partitions to read. False, and nothing has changed, where another lane writes one; whoever is first in the
    /// queue waits instead.
    pub(crate) fn claim_read(&mut self, wanted: PartitionSet) -> bool {
        let new = wanted.0 & !(self.reads | self.writes);
        if new == 0 {
            return true;
        }
        let Some(shared) = &self.shared else { return true };
        let words = &shared.claims.lanes[shared.lane];
        words.reads.store(self.reads | new, Ordering::Release);
        if !shared.granted(new, false) {
            words.reads.store(self.reads, Ordering::Release);
            return false;
        }
        self.reads |= new;
        true
    }

    /// Claims partitions to read and write; as [`Held::claim_read`].
    pub(crate) fn claim_write(&mut self, wanted: PartitionSet) -> bool {
        let new = wanted.0 & !self.writes;
        if new == 0 {
            return true;
        }
        let Some(shared) = &self.shared else { return true };
        let words = &shared.claims.lanes[shared.lane];
        words.writes.store(self.writes | new, Ordering::Release);
        if !shared.granted(new, true) {
            words.writes.store(self.writes, Ordering::Release);
            return false;
        }
        self.writes |= new;
        true
    }

    /// Claims partitions to read and write, and waits for them. Nothing of the store may be held, and whoever holds other
    /// stores meanwhile must have claimed them in an order that all lanes keep.
    pub(crate) fn await_write(&mut self, wanted: PartitionSet) {
        if !self.claim_write(wanted) {
            self.queue();
            self.claim_write(wanted);
        }
    }

    /// Waits until this lane is first in the queue; from then on its claims wait and are never refused. It must hold
    /// nothing: whoever is in front of it may wait for that.
    pub(crate) fn queue(&mut self) {
        debug_assert!(self.shared.is_none() || self.reads | self.writes == 0, "queues with claims");
        let Some(shared) = &mut self.shared else { return };
        let ticket = shared.claims.tickets.fetch_add(1, Ordering::Relaxed);
        let mut tries = 0;
        while shared.claims.turn.load(Ordering::Acquire) != ticket {
            pause(&mut tries);
        }
        shared.ticket = Some(ticket);
    }

    /// Lets the next in the queue. What is held stays held.
    pub(crate) fn leave_queue(&mut self) {
        let Some(shared) = &mut self.shared else { return };
        if let Some(ticket) = shared.ticket.take() {
            shared.claims.turn.store(ticket.wrapping_add(1), Ordering::Release);
        }
    }

    /// Gives everything back.
    pub(crate) fn release(&mut self) {
        let Some(shared) = &self.shared else { return };
        let words = &shared.claims.lanes[shared.lane];
        if std::mem::take(&mut self.reads) != 0 {
            words.reads.store(0, Ordering::Release);
        }
        if std::mem::take(&mut self.writes) != 0 {
            words.writes.store(0, Ordering::Release);
        }
        self.leave_queue();
    }
}

impl Shared {
    /// Whether what was just announced is in nobody's way; first in the queue, it waits until it is so.
    fn granted(&self, new: u64, to_write: bool) -> bool {
        // Of two lanes that announce claims to the same partition at least one sees the other's.
        fence(Ordering::SeqCst);
        let mut tries = 0;
        while self.claims.in_the_way(self.lane, new, to_write) {
            if self.ticket.is_none() {
                return false;
            }
            pause(&mut tries);
        }
        true
    }
}

impl Drop for Held {
    /// A lane that ends in the middle (its network function panicked) must not stop the others.
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("reads", &PartitionSet(self.reads))
            .field("writes", &PartitionSet(self.writes))
            .field("shared", &self.is_shared())
            .finish()
    }
}

#[cfg(all(test, loom))]
#[path = "claims_loom.rs"]
mod loom_tests;
