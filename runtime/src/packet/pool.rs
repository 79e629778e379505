//! Packets that are not in use, and how they come back to where they are needed.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Packet;
use crate::limits::{HEADROOM, MAX_FRAME, MAX_UNIT};

/// The largest buffer that a pool keeps: growing doubles.
const LARGEST_BUFFER: usize = 2 * (HEADROOM + MAX_FRAME + MAX_UNIT);

/// Packets that change between pools at once.
const CRATE: usize = 64;

/// Full crates that a depot keeps before it hands on what comes to the one behind it.
const KEPT: usize = 4;

/// Where the pools of several threads hand packets to each other: packets come in on one thread and go out on another,
/// always the same way round. A crate at a time, so that the lock is rarely taken.
///
/// Pools of one thread have a depot of their own [in front of](Depot::in_front) the one for all: what they use again is in
/// their core's caches.
#[derive(Debug, Default)]
pub struct Depot {
    crates: Mutex<Crates>,
    behind: Option<Arc<Depot>>,
}

#[derive(Debug, Default)]
struct Crates {
    full: Vec<Vec<Packet>>,
    empty: Vec<Vec<Packet>>,
}

impl Depot {
    /// A depot for a few pools that takes from `behind` what it lacks, and gives it what is too much.
    pub fn in_front(behind: Arc<Depot>) -> Self {
        Depot { behind: Some(behind), ..Depot::default() }
    }

    fn crates(&self) -> MutexGuard<'_, Crates> {
        // The lists are whole between any two of their operations.
        self.crates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A full crate for an empty one, which comes back where there is none.
    fn fill(&self, empty: Vec<Packet>) -> Vec<Packet> {
        let mut crates = self.crates();
        match (crates.full.pop(), &self.behind) {
            (Some(full), _) => {
                crates.empty.push(empty);
                full
            }
            (None, Some(behind)) => behind.fill(empty),
            (None, None) => empty,
        }
    }

    /// An empty crate for a full one.
    fn clear(&self, full: Vec<Packet>) -> Vec<Packet> {
        let mut crates = self.crates();
        match self.behind.as_ref().filter(|_| crates.full.len() >= KEPT) {
            Some(behind) => behind.clear(full),
            None => {
                crates.full.push(full);
                crates.empty.pop().unwrap_or_else(|| Vec::with_capacity(CRATE))
            }
        }
    }
}

/// Packets that are not in use. Taking one allocates only while the pool grows to what the traffic needs.
#[derive(Debug, Default)]
pub struct Pool {
    free: Vec<Packet>,
    /// A full crate, kept so that a pool at the edge does not go to the depot for each packet.
    spare: Vec<Packet>,
    depot: Option<Arc<Depot>>,
}

impl Pool {
    /// A pool that shares its packets with the others at `depot`.
    pub fn at(depot: Arc<Depot>) -> Self {
        Pool { depot: Some(depot), ..Pool::default() }
    }

    /// A packet without frame and unit.
    pub fn take(&mut self) -> Packet {
        if self.free.is_empty() {
            self.refill();
        }
        let mut packet = self.free.pop().unwrap_or_else(Packet::roomy);
        packet.reset();
        packet
    }

    /// Appends `count` packets without frame and unit to `burst`. They are written where they stay: quicker than
    /// [`Pool::take`] for many.
    pub fn take_many(&mut self, count: usize, burst: &mut Vec<Packet>) {
        let first = burst.len();
        self.take_used(count, burst);
        burst[first..].iter_mut().for_each(Packet::reset);
    }

    /// Appends `count` packets to `burst` that hold whatever they held before, for those who replace all of it.
    pub(crate) fn take_used(&mut self, count: usize, burst: &mut Vec<Packet>) {
        let first = burst.len();
        if self.free.is_empty() {
            self.refill();
        }
        burst.extend(self.free.drain(self.free.len().saturating_sub(count)..));
        while burst.len() < first + count {
            burst.push(self.take()); // the free ones were too few
        }
    }

    /// A copy of `packet`, bytes and meta.
    pub fn copy(&mut self, packet: &Packet) -> Packet {
        let mut copy = self.take();
        copy.set_frame(packet.frame());
        copy.set_unit(packet.unit());
        copy.meta = packet.meta;
        copy
    }

    /// Takes a packet back. Buffers that were lent go back to where they came from; those that no frame with its unit needs
    /// (parts of a state) are not kept.
    pub fn give(&mut self, mut packet: Packet) {
        if packet.settle() {
            self.free.push(packet);
            if self.free.len() >= CRATE && self.depot.is_some() {
                self.put_away();
            }
        }
    }

    /// Takes all packets of `burst` back, as [`Pool::give`] does.
    pub fn give_all(&mut self, burst: &mut Vec<Packet>) {
        burst.retain_mut(Packet::settle);
        self.free.append(burst);
        if self.free.len() >= CRATE && self.depot.is_some() {
            self.put_away();
        }
    }

    #[cold]
    fn refill(&mut self) {
        mem::swap(&mut self.free, &mut self.spare);
        if let Some(depot) = self.depot.as_ref().filter(|_| self.free.is_empty()) {
            self.free = depot.fill(mem::take(&mut self.free));
        }
    }

    /// What was used last goes to the depot, to be used again while it is in the caches.
    #[cold]
    fn put_away(&mut self) {
        match &self.depot {
            Some(depot) if !self.spare.is_empty() => self.free = depot.clear(mem::take(&mut self.free)),
            _ => mem::swap(&mut self.free, &mut self.spare),
        }
    }
}

impl Packet {
    /// Gives back what was lent. Returns whether a pool should keep the rest.
    fn settle(&mut self) -> bool {
        if let Some(loan) = self.bytes.end_loan() {
            drop(loan);
            (self.start, self.end) = (0, 0);
        }
        self.bytes.own_capacity() <= LARGEST_BUFFER
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Meta;

    #[test]
    fn a_pooled_packet_comes_back_clean() {
        // Goal: nothing of an old packet shows in a new one. Method: dirty, give, take.
        let mut pool = Pool::default();
        let mut p = pool.take();
        p.set_frame(b"old");
        p.set_unit(b"old");
        p.meta.time = 7;
        assert!(p.push_front(3));
        p.frame_mut().fill(0xff);
        pool.give_all(&mut vec![p]);
        let mut burst = Vec::new();
        pool.take_many(2, &mut burst);
        let p = &mut burst[0];
        assert_eq!((p.frame(), p.unit(), p.meta), (&b""[..], &b""[..], Meta::default()));
        assert!(p.push_front(4));
        assert_eq!(p.frame(), [0; 4]);
        pool.give_all(&mut burst);
        assert!(burst.is_empty());
        assert_eq!((pool.take().frame(), pool.free.len()), (&b""[..], 1));
    }

    #[test]
    fn packets_that_pass_from_pool_to_pool_come_back_by_the_depot() {
        // Goal: one-way traffic needs no more buffers than are under way. Method: take here, give there, a hundred
        // thousand times, and count what lies anywhere.
        let depot = Arc::new(Depot::default());
        let (mut here, mut there) = (Pool::at(Arc::clone(&depot)), Pool::at(Arc::clone(&depot)));
        for _ in 0..1_000 {
            let under_way: Vec<Packet> = (0..100).map(|_| here.take()).collect();
            under_way.into_iter().for_each(|packet| there.give(packet));
        }
        let crates: usize = depot.crates().full.iter().map(Vec::len).sum();
        let all =
            [&here, &there].map(|pool| pool.free.len() + pool.spare.len()).iter().sum::<usize>() + crates;
        assert!(all <= 100 + 4 * CRATE, "{all} packets");
    }

    #[test]
    fn packets_stay_in_front_as_long_as_they_are_needed_there() {
        // Goal: a thread uses its own packets again, and what is too much where packets end is not missing where they begin.
        // Method: two depots in front of one; as many packets stay on each side, then all go from one side to the other.
        let behind = Arc::new(Depot::default());
        let fronts = [0, 1].map(|_| Arc::new(Depot::in_front(Arc::clone(&behind))));
        let pools = || fronts.each_ref().map(|front| Pool::at(Arc::clone(front)));
        let (mut from, mut to) = (pools(), pools());
        let mut pass = |from_side: usize, to_side: usize| {
            let under_way: Vec<Packet> = (0..100).map(|_| from[from_side].take()).collect();
            under_way.into_iter().for_each(|packet| to[to_side].give(packet));
        };
        (0..1_000).for_each(|_| [0, 1].into_iter().for_each(|side| pass(side, side)));
        assert!(behind.crates().full.is_empty());
        (0..1_000).for_each(|_| pass(0, 1));
        let pools: usize = from.iter().chain(&to).map(|pool| pool.free.len() + pool.spare.len()).sum();
        let depots = fronts.iter().chain([&behind]);
        let crates: usize = depots.map(|depot| depot.crates().full.iter().map(Vec::len).sum::<usize>()).sum();
        assert!(pools + crates <= 2 * (100 + (KEPT + 4) * CRATE), "{pools} and {crates} packets");
    }
}
