//! The edge of a live chain: takes packets from a queue of a port into the lanes, and sends what lanes release to it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pannier_runtime::clock::Now;
use pannier_runtime::packet::{Depot, Pool};
use pannier_runtime::port::{Device, Duplex, Port, PortContext, PortError, PortStats};
use pannier_runtime::ring::{Plan, steer};
use pannier_runtime::shard::{Actor, Place, Turn};
use pannier_runtime::stats::Reasons;
use pannier_runtime::{AnyNf, Direction, Packet};

use crate::config::{Inside, Undecided};
use crate::ingress::Ingress;

/// Packets taken from a port at once.
const BURST: usize = 64;

/// Turns between two publications of what a port has counted.
const PUBLISH_EVERY: u32 = 1_024;

/// What an edge and whoever looks after the chain tell each other, on cache lines that no other edge writes.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct EdgeState {
    /// Packets that entered the chain here, and that left it.
    pub(super) entered: AtomicU64,
    pub(super) left: AtomicU64,
    /// Turns so far.
    pub(super) beats: AtomicU64,
    /// No more packets are to be taken.
    pub(super) closed: AtomicBool,
    /// What is known only now and then.
    rare: Mutex<Rare>,
}

#[derive(Clone, Debug, Default)]
struct Rare {
    refused: Reasons,
    stats: PortStats,
    failed: Option<PortError>,
    lost: u64,
}

impl EdgeState {
    fn rare(&self) -> std::sync::MutexGuard<'_, Rare> {
        // It is replaced as a whole.
        self.rare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Packets that did not enter, by reason.
    pub(super) fn refused(&self) -> Reasons {
        self.rare().refused.clone()
    }

    /// What the port has counted.
    pub(super) fn stats(&self) -> PortStats {
        self.rare().stats.clone()
    }

    /// Why the port can't go on.
    pub(super) fn failed(&self) -> Option<PortError> {
        self.rare().failed.clone()
    }

    /// Packets that found no room on the way to a lane.
    pub(super) fn lost(&self) -> u64 {
        self.rare().lost
    }
}

/// What the edges of a chain have in common.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) plan: Plan,
    pub(super) nfs: Arc<[Arc<dyn AnyNf>]>,
    pub(super) places: Vec<Arc<Place>>,
    /// The chain is over.
    pub(super) ended: Arc<AtomicBool>,
}

/// An edge: an actor as shards are.
pub(super) struct Edge {
    port: Device,
    /// The direction of what enters here.
    direction: Direction,
    lanes: Vec<Duplex>,
    state: Arc<EdgeState>,
    common: Common,
    ingress: Ingress,
    pool: Pool,
    refused: Reasons,
    /// What has been counted as entered, and by lane what enters; empty between turns.
    entered: Vec<Packet>,
    entering: Vec<Vec<Packet>>,
    /// What is taken from a port or a lane; empty between turns.
    burst: Vec<Packet>,
    /// Packets that entered, and went no further because of a panic.
    dropped: u64,
    turns: u32,
}

impl Edge {
    pub(super) fn new(
        port: Device,
        direction: Direction,
        lanes: Vec<Duplex>,
        state: Arc<EdgeState>,
        depot: Arc<Depot>,
        common: Common,
    ) -> Self {
        Edge {
            port,
            direction,
            entered: Vec::new(),
            entering: lanes.iter().map(|_| Vec::new()).collect(),
            lanes,
            state,
            // The port says which way a packet goes.
            ingress: Ingress::new(Inside::nothing(), Vec::new(), Undecided::default()),
            pool: Pool::at(depot),
            common,
            refused: Reasons::default(),
            burst: Vec::new(),
            dropped: 0,
            turns: 0,
        }
    }

    fn publish(&mut self, failed: Option<PortError>) {
        let mut rare = self.state.rare();
        rare.refused.clone_from(&self.refused);
        rare.stats = self.port.stats();
        rare.lost = self.dropped + self.lanes.iter().map(Duplex::lost).sum::<u64>();
        rare.failed = failed.or(rare.failed.take());
    }

    /// Takes a burst into the chain, if there is room for it.
    fn take(&mut self, now: Now) -> Result<bool, PortError> {
        let closed = self.state.closed.load(Ordering::Relaxed);
        let has_room =
            !self.lanes.iter().any(Duplex::is_crowded) && self.common.places.iter().all(|p| p.has_room());
        if closed || !has_room {
            return Ok(false);
        }
        let mut context = PortContext { now: now.timer, pool: &mut self.pool };
        let taken = self.port.rx_burst(BURST, &mut context, &mut self.burst);
        let entered = self.burst.len();
        if entered > 0 {
            count(&self.state.entered, entered);
            std::mem::swap(&mut self.burst, &mut self.entered);
            self.admit();
            self.enter(now);
        }
        taken.map(|_| entered > 0)
    }

    /// Drops those packets that may not enter, and puts the others on their lanes.
    fn admit(&mut self) {
        let (ingress, refused) = (&mut self.ingress, &mut self.refused);
        let (plan, nfs, direction) = (&self.common.plan, &self.common.nfs, self.direction);
        let is_refused = |packet: &mut Packet| match ingress.admit(packet, Some(direction)) {
            Ok(()) => false,
            Err(reason) => {
                refused.count(reason);
                true
            }
        };
        for packet in self.entered.extract_if(.., is_refused) {
            self.pool.give(packet);
        }
        self.entered.iter_mut().for_each(|packet| steer(packet, plan, nfs));
    }

    /// Sends the packets that have entered into their lanes.
    fn enter(&mut self, now: Now) {
        let mut context = PortContext { now: now.timer, pool: &mut self.pool };
        if let [lane] = &mut self.lanes[..] {
            let Ok(()) = lane.tx_burst(&mut context, &mut self.entered);
            return;
        }
        for packet in self.entered.drain(..) {
            self.entering[usize::from(packet.meta.lane)].push(packet);
        }
        for (lane, burst) in self.lanes.iter_mut().zip(&mut self.entering) {
            let Ok(()) = lane.tx_burst(&mut context, burst);
        }
    }

    /// Sends what has left the chain.
    fn let_out(&mut self, now: Now) -> Result<bool, PortError> {
        let mut context = PortContext { now: now.timer, pool: &mut self.pool };
        for lane in &mut self.lanes {
            let Ok(_) = lane.rx_burst(4 * BURST, &mut context, &mut self.burst);
        }
        let left = self.burst.len();
        if left > 0 {
            count(&self.state.left, left);
            self.port.tx_burst(&mut context, &mut self.burst)?;
        }
        Ok(left > 0)
    }
}

/// Adds to a counter that one actor alone writes.
fn count(counter: &AtomicU64, more: usize) {
    counter.store(counter.load(Ordering::Relaxed) + more as u64, Ordering::Relaxed);
}

impl Actor for Edge {
    fn turn(&mut self, now: Now) -> Turn {
        let ends = self.common.ended.load(Ordering::Relaxed);
        let mut out = self.let_out(now);
        while ends && matches!(out, Ok(true)) {
            out = self.let_out(now); // nothing that was released stays behind
        }
        let taken = self.take(now);
        let busy = out.as_ref().is_ok_and(|busy| *busy) || taken.as_ref().is_ok_and(|busy| *busy);
        let failed = out.err().or(taken.err());
        self.turns = self.turns.wrapping_add(1);
        count(&self.state.beats, 1);
        if failed.is_some() || ends || self.turns.is_multiple_of(PUBLISH_EVERY) {
            self.publish(failed);
        }
        match (ends, busy) {
            (true, _) => Turn::Ended,
            (false, true) => Turn::Busy,
            (false, false) => Turn::Idle,
        }
    }

    fn panicked(&mut self, message: &str) {
        self.burst.clear();
        for packets in self.entering.iter_mut().chain([&mut self.entered]) {
            self.dropped += packets.drain(..).len() as u64;
        }
        let error = PortError {
            port: self.port.name().to_owned(),
            problem: format!("it panicked: {message}"),
            way_out: "this is a fault of Pannier, please report it".to_owned(),
        };
        self.publish(Some(error));
    }
}
