//! A node's place on the ring: what its shards tell the rest of the chain.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_channel::Sender;

use super::Order;
use crate::limits::MAX_LANES;
use crate::packet::{Kind, Packet};
use crate::ring::Incarnation;
use crate::stats::NodeStats;

/// What a shard tells whoever looks after the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The replacement, of this incarnation, has all its stores.
    CaughtUp(Incarnation),
    /// A stage whose store no live node has.
    Unrecoverable(usize),
    /// The network function panicked with this message, and the node, of this incarnation, died of it.
    Panicked(Incarnation, String),
}

/// What changes all the time, on cache lines that no other shard writes.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Lane {
    /// Turns so far of the shard with this number. A node whose counts stand still is dead or stuck.
    beats: AtomicU64,
    /// Something waits in the lane.
    waits: AtomicBool,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Place {
    index: usize,
    /// By lane, one bit each: a bound is reached. The edges look at it all the time.
    full: AtomicU64,
    lanes: [Lane; MAX_LANES],
    /// Frames that arrived while there was no node.
    lost: AtomicU64,
    /// Bytes of state that reached a replacement.
    state_bytes: AtomicU64,
    /// What nodes that died here had counted.
    past: Mutex<NodeStats>,
    /// By node: where messages beside the ring go.
    mailboxes: Vec<Sender<Order>>,
    told: Sender<(usize, Told)>,
}

impl Place {
    /// The place `index`. `mailboxes` are those of the shards that lead the nodes; reports go to `told`.
    pub fn new(index: usize, mailboxes: Vec<Sender<Order>>, told: Sender<(usize, Told)>) -> Self {
        Place {
            index,
            full: AtomicU64::new(0),
            lanes: Default::default(),
            lost: AtomicU64::new(0),
            state_bytes: AtomicU64::new(0),
            past: Mutex::default(),
            mailboxes,
            told,
        }
    }

    /// Whether packets may enter the chain, as far as this node is concerned.
    pub fn has_room(&self) -> bool {
        self.full.load(Ordering::Relaxed) == 0
    }

    /// Whether nothing waits here. A lane says so at the end of its turn.
    pub fn rests(&self, lanes: usize) -> bool {
        self.lanes[..lanes].iter().all(|lane| !lane.waits.load(Ordering::Relaxed))
    }

    /// Turns so far.
    pub fn beats(&self) -> u64 {
        (0..MAX_LANES).map(|shard| self.beats_of(shard)).sum()
    }

    /// Frames that died in nodes that died here, or arrived when there was none.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Bytes of state that reached replacements here.
    pub fn state_bytes(&self) -> u64 {
        self.state_bytes.load(Ordering::Relaxed)
    }

    /// What nodes that died here had counted.
    pub fn past(&self) -> NodeStats {
        self.lock_past().clone()
    }

    fn lock_past(&self) -> MutexGuard<'_, NodeStats> {
        // Sums are whole between any two of them.
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Turns of one shard so far.
    pub fn beats_of(&self, shard: usize) -> u64 {
        self.lanes[shard].beats.load(Ordering::Relaxed)
    }

    pub(super) fn beat(&self, shard: usize) {
        // A lost update is no harm: the count moves all the same.
        self.lanes[shard].beats.store(self.beats_of(shard) + 1, Ordering::Relaxed);
    }

    /// Publishes how a lane stands.
    pub(super) fn publish(&self, lane: usize, full: bool, rests: bool) {
        self.lanes[lane].waits.store(!rests, Ordering::Relaxed);
        if (self.full.load(Ordering::Relaxed) >> lane & 1 == 1) != full {
            self.full.fetch_xor(1 << lane, Ordering::Relaxed); // nobody else changes this lane's bit
        }
    }

    pub(super) fn lose(&self, frames: u64) {
        if frames > 0 {
            self.lost.fetch_add(frames, Ordering::Relaxed);
        }
    }

    pub(super) fn bury(&self, stats: &NodeStats, frames_inside: u64) {
        self.lock_past().add(stats);
        self.lose(frames_inside);
    }

    pub(super) fn count_state(&self, messages: &[Packet]) {
        let parts = messages.iter().filter(|packet| packet.meta.kind == Kind::Snapshot);
        let bytes: usize = parts.map(|packet| packet.frame().len()).sum();
        self.state_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn tell(&self, to: usize, packet: Packet) {
        if let Some(mailbox) = self.mailboxes.get(to) {
            let _ = mailbox.send(Order::Message(packet)); // a chain that ends reads no mail
        }
    }

    pub(super) fn report(&self, what: Told) {
        let _ = self.told.send((self.index, what)); // nor does anybody listen to it
    }
}
