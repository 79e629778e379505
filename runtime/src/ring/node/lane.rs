//! A lane of a node: the way of a part of the flows through it.
//!
//! Flows are spread over the lanes of a chain once, where they enter. A lane has its own open unit, its own waiting
//! messages, held frames and retained units, and its own links to the same lane of the neighbours. What the lanes of a
//! node share is in [`Core`]: the stores, whose rows they touch under claims. Shards run lanes, each as many as it is
//! given: so the number of shards can differ between nodes and change, while no flow ever changes its lane.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::head::Open;
use super::link::{Link, Untold};
use super::news::News;
use super::replica::Outcome;
use super::{Address, Output};
use crate::clock::{Nanos, Now};
use crate::entropy::Entropy;
use crate::mutant::{self, Mutant};
use crate::nf::{Ahead, AnyNf};
use crate::packet::{Direction, Kind, Packet};
use crate::ring::hold::Hold;
use crate::ring::plan::Plan;
use crate::ring::recorder::{Origin, Recorder, Silent};
use crate::ring::retained::Retained;
use crate::ring::store::Store;
use crate::ring::view::{Incarnation, View};
use crate::state::{AnyTable, Held, NEVER, Site};
use crate::stats::NodeStats;
use crate::txn::Workspace;

/// Bytes of keys and values from which on a store is not in the cache that is nearest.
const LARGE: usize = 128 << 10;

/// What the lanes of a node share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) index: usize,
    pub(super) incarnation: Incarnation,
    pub(super) plan: Plan,
    pub(super) nfs: Arc<[Arc<dyn AnyNf>]>,
    /// Bytes of delta that a transaction of this node is expected to write at most.
    pub(super) largest: usize,
    /// By stage; `None` where this node holds no replica, or has not got it yet.
    pub(super) stores: Box<[Option<Store>]>,
    /// Several shards run the lanes.
    pub(super) shared: AtomicBool,
    /// How often something was applied, and how often a commit vector rose: who waits for that looks again.
    pub(super) applied: News,
    pub(super) committed: News,
}

impl Core {
    /// The same node with other stores.
    pub(super) fn with_stores(&self, stores: Box<[Option<Store>]>) -> Arc<Self> {
        let core = Core {
            index: self.index,
            incarnation: self.incarnation,
            plan: self.plan,
            nfs: Arc::clone(&self.nfs),
            largest: self.largest,
            stores,
            shared: AtomicBool::new(false),
            applied: News::default(),
            committed: News::default(),
        };
        core.share(self.is_shared());
        Arc::new(core)
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Lets several shards run the lanes, or one alone again. No lane may be at work meanwhile.
    pub(super) fn share(&self, shared: bool) {
        self.shared.store(shared, Ordering::Relaxed);
        self.stores.iter().flatten().for_each(|store| store.share(shared));
    }

    pub(super) fn store(&self, stage: usize) -> Option<&Store> {
        self.stores.get(stage)?.as_ref()
    }

    pub(super) fn is_head(&self) -> bool {
        self.index < self.plan.stages()
    }

    /// Tells the lanes that wait for `news`.
    pub(super) fn tell(&self, news: &News) {
        news.tell(self.is_shared());
    }
}

/// Where a lane's node is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has all its stores.
    Up,
    /// It replaces a dead node and fetches its stores.
    Joining,
    /// A view says that it is dead: it takes nothing and lets nothing out any more.
    Retired,
}

/// One lane of one node.
pub(super) struct Lane {
    pub(super) core: Arc<Core>,
    pub(super) number: usize,
    pub(super) view: View,
    pub(super) phase: Phase,
    pub(super) open: Open,
    /// By stage: what this lane holds of the stores that it replicates, while it applies a unit.
    pub(super) held: Vec<Held>,
    /// By stage: where the rows are that the unit at hand changes.
    pub(super) sites: Vec<Vec<Site>>,
    /// Messages whose unit is not ready.
    pub(super) waiting: VecDeque<Packet>,
    pub(super) hold: Hold,
    /// Frames on their way out of `hold`; empty between turns.
    pub(super) leaving: Vec<Packet>,
    pub(super) retained: Retained,
    pub(super) link: Link,
    pub(super) now: Now,
    /// The transactions' clock: the latest packet's arrival.
    pub(super) time: Nanos,
    pub(super) next_sweep: Nanos,
    pub(super) sweep_at: usize,
    pub(super) stats: NodeStats,
    pub(super) recorder: Box<dyn Recorder>,
}

impl Lane {
    pub(super) fn new(number: usize, core: Arc<Core>, view: View) -> Self {
        let plan = &core.plan;
        let stream = (core.index as u64) << 32 | (number as u64) << 56 | core.incarnation;
        let work = Workspace::new(Entropy::stream(plan.seed, stream), plan.delta_limit());
        let mut lane = Lane {
            number,
            view,
            phase: Phase::Up,
            open: Open::new(work.on_lane(number, plan.lanes)),
            held: Vec::new(),
            sites: vec![Vec::new(); plan.stages()],
            waiting: VecDeque::new(),
            hold: Hold::default(),
            leaving: Vec::new(),
            retained: Retained::default(),
            link: Link::new(plan),
            now: Now::default(),
            time: 0,
            next_sweep: 0,
            sweep_at: 0,
            stats: NodeStats::default(),
            recorder: Box::new(Silent),
            core: Arc::clone(&core),
        };
        lane.set_core(core);
        lane
    }

    /// Goes on with other stores, or as one of several shards.
    pub(super) fn set_core(&mut self, core: Arc<Core>) {
        let held =
            |store: &Option<Store>| store.as_ref().map_or_else(Held::whole, |s| s.held_by(self.number));
        self.held.clear();
        self.held.extend(core.stores.iter().map(held));
        self.open.set_held(core.store(core.index).map_or_else(Held::whole, |s| s.held_by(self.number)));
        self.core = core;
    }

    /// Takes a burst of messages of this lane, in order: from the predecessor, from the successor, from outside.
    pub(super) fn accept(&mut self, burst: &mut Vec<Packet>, now: Now, out: &mut Output) {
        self.now = now;
        if self.core.is_head() {
            self.look_ahead(burst);
        }
        burst.reverse();
        // Not drained: where the network function panics, it is known what was lost with it.
        while let Some(packet) = burst.pop() {
            if !self.is_for_me(&packet) {
                self.refuse(packet, "fenced", out);
                continue;
            }
            match packet.meta.kind {
                Kind::Frame | Kind::Unit => self.arrive(packet, out),
                Kind::Acknowledge => self.acknowledged(packet, out),
                Kind::Fetch | Kind::Snapshot => self.refuse(packet, "misdirected", out),
            }
        }
        self.settle(out); // what waited for a unit that has come
        self.close(out); // commit what is open: one unit
        self.release(out); // what waited for its commit
        self.acknowledge(out); // tell the predecessor what is applied and committed
    }

    /// Has the processor fetch what the network function will look at first, for all packets at once: one after the other, each
    /// would be waited for.
    fn look_ahead(&self, burst: &[Packet]) {
        touch(burst);
        let (held, store) = (self.open.held(), self.core.store(self.core.index));
        let Some(store) = store.filter(|_| !held.is_shared()) else { return };
        let bytes = |table: &dyn AnyTable| {
            let row = table.row_bytes();
            table.len() * (row.key + row.value)
        };
        if store.state.iter().map(bytes).sum::<usize>() > LARGE {
            self.core.nfs[self.core.index].look_ahead_all(burst, &*store.state, &Ahead::new(held));
        }
    }

    /// One frame or unit: first its unit is applied here, then the network function runs.
    fn arrive(&mut self, packet: Packet, out: &mut Output) {
        match self.phase {
            Phase::Up => {}
            Phase::Joining => return self.refuse(packet, "joining", out),
            Phase::Retired => return self.refuse(packet, "retired", out),
        }
        if self.is_fenced(&packet) {
            return self.refuse(packet, "fenced", out);
        }
        if self.is_behind(&packet) {
            return match self.damage(&packet) {
                None => self.wait(packet, out),
                Some(damage) => self.refuse(packet, damage.reason(), out),
            };
        }
        if self.has_joined(&packet) {
            return self.pass(packet, out);
        }
        match self.replicate(&packet) {
            Outcome::Applied { news } => self.stage(packet, news, out),
            Outcome::Waits => self.wait(packet, out),
            Outcome::Damaged(damage) => self.refuse(packet, damage.reason(), out),
        }
    }

    /// Lets time pass: expiry, repair and idle acknowledgements.
    pub(super) fn tick(&mut self, now: Now, out: &mut Output) {
        self.now = now;
        self.advance(now.wall);
        if self.is_up() {
            self.sweep(out);
            self.repair(out);
            self.acknowledge(out);
        }
    }

    /// Whether packets may be admitted: no bound of this lane is reached. Each has its part of the node's.
    pub(super) fn has_room(&self) -> bool {
        let (limits, lanes) = (&self.core.plan.limits, self.core.plan.lanes);
        self.retained.bytes() < limits.retained_bytes.div_ceil(lanes)
            && self.waiting.len() < limits.waiting.div_ceil(lanes)
            && self.hold.len() < limits.held.div_ceil(lanes)
    }

    /// Whether nothing waits here: no frame held, no unit waiting, none retained.
    pub(super) fn is_idle(&self) -> bool {
        self.is_up() && self.hold.is_empty() && self.waiting.is_empty() && self.retained.is_empty()
    }

    /// Whether something was applied or committed that a message, a frame or a unit of this lane may wait for.
    pub(super) fn has_news(&self) -> bool {
        (!self.waiting.is_empty() && self.core.applied.is_past(self.link.applied_seen))
            || ((!self.hold.is_empty() || !self.retained.is_empty())
                && self.core.committed.is_past(self.link.committed_seen))
    }

    /// Frames that are in this lane: in the open unit, held for their commit, or waiting for a unit.
    pub(super) fn frames_inside(&self) -> usize {
        self.open.frames()
            + self.hold.len()
            + self.waiting.iter().filter(|p| p.meta.kind == Kind::Frame).count()
    }

    pub(super) fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// Moves the transactions' clock on. It never runs backwards, and never reaches the moment that means never.
    pub(super) fn advance(&mut self, to: Nanos) {
        self.time = self.time.max(to.min(NEVER - 1));
    }

    /// Whether a message comes from outside or is for this incarnation. A node that was suspected in error must not take
    /// what is meant for its replacement: it would have for committed, or for its own, what the other holds and did.
    fn is_for_me(&self, packet: &Packet) -> bool {
        is_for(self.core.incarnation, packet)
    }

    /// Units are taken from the predecessor's incarnation in the view only. A frame without a unit has read nothing
    /// that is not committed: it may come from anybody.
    fn is_fenced(&self, packet: &Packet) -> bool {
        let predecessor = self.core.plan.predecessor(self.core.index);
        let carries_unit = packet.meta.kind == Kind::Unit || !packet.unit().is_empty();
        carries_unit
            && !mutant::is(Mutant::NoFence)
            && !self.view.accepts(predecessor, packet.meta.incarnation)
    }

    /// Gives back all that is claimed, as it is, after a panic.
    pub(super) fn release_claims(&mut self) {
        self.held.iter_mut().for_each(Held::release);
        self.open.release_claims();
    }

    /// See [`SharedNode::bury`].
    ///
    /// [`SharedNode::bury`]: super::SharedNode::bury
    pub(super) fn bury(&mut self) -> (NodeStats, usize) {
        let frames = self.frames_inside();
        self.open.lose_frames();
        self.hold = Hold::default();
        self.waiting.clear();
        (std::mem::take(&mut self.stats), frames)
    }

    pub(super) fn refuse(&mut self, packet: Packet, reason: &'static str, out: &mut Output) {
        self.stats.refused.count(reason);
        self.stats.lost += u64::from(packet.meta.kind == Kind::Frame);
        out.pool.give(packet);
    }

    /// Sends packets on their way out of this node, in order; what they waited for is done.
    pub(super) fn depart(&mut self, packets: impl IntoIterator<Item = Packet>, out: &mut Output) {
        let ways = [Direction::Outbound, Direction::Inbound].map(|direction| self.way_out(direction));
        let first = out.released.len();
        for mut packet in packets {
            let direction = packet.meta.direction;
            let (address, is_end) = ways[direction as usize];
            address.put_on(&mut packet);
            match direction {
                _ if is_end => out.released.push(packet),
                Direction::Outbound => out.forward.push(packet),
                Direction::Inbound => out.backward.push(packet),
            }
        }
        let by = Origin { node: self.core.index, incarnation: self.core.incarnation };
        self.recorder.released_all(by, &out.released[first..]);
    }

    /// Where packets of a direction go from here, and whether that is out of the chain.
    fn way_out(&self, direction: Direction) -> (Address, bool) {
        let (plan, index) = (&self.core.plan, self.core.index);
        let (end, next) = match direction {
            Direction::Outbound => (plan.last(), plan.successor(index)),
            Direction::Inbound => (0, plan.predecessor(index)),
        };
        let outside = Address { sender: 0, incarnation: 0, addressee: 0, lane: self.number as u8 };
        if index == end { (outside, true) } else { (self.address(next), false) }
    }

    /// From here to this lane of the node `to`.
    pub(super) fn address(&self, to: usize) -> Address {
        Address { lane: self.number as u8, ..Address::new(&self.core, &self.view, to) }
    }

    /// Adopts a view: fences every dead incarnation, and discards what waits unapplied from a dead predecessor.
    pub(super) fn adopt(&mut self, view: &View, out: &mut Output) {
        let index = self.core.index;
        let (before, after) = (self.core.plan.predecessor(index), self.core.plan.successor(index));
        if view.members[after].incarnation != self.view.members[after].incarnation {
            self.link.reconnect();
        }
        self.link.tell_all |= self.view.members[before] != view.members[before];
        self.view.clone_from(view);
        for _ in 0..self.waiting.len() {
            let Some(packet) = self.waiting.pop_front() else { break };
            let keeps = mutant::is(Mutant::NoFence) || mutant::is(Mutant::LateFence);
            if keeps || self.view.accepts(before, packet.meta.incarnation) {
                self.waiting.push_back(packet);
            } else {
                self.refuse(packet, "fenced", out);
            }
        }
    }

    /// The node was declared dead although it runs: what waits here may rest on versions that another gives out anew.
    pub(super) fn retire(&mut self, view: &View, out: &mut Output) {
        self.view.clone_from(view);
        self.phase = Phase::Retired;
        self.retained = Retained::default();
        let held = std::mem::take(&mut self.hold).into_packets();
        let waiting = std::mem::take(&mut self.waiting);
        held.chain(waiting).for_each(|packet| self.refuse(packet, "retired", out));
    }

    /// Has no store yet, and waits for all.
    pub(super) fn join(&mut self) {
        self.phase = Phase::Joining;
        self.retained = Retained::default();
    }

    /// All stores are here: tells the predecessor all, and repairs as soon as the successor has told what it has.
    pub(super) fn rise(&mut self, core: Arc<Core>) {
        self.set_core(core);
        self.phase = Phase::Up;
        self.link.untold.fill(Untold::default());
        self.link.tell_all = true;
        self.link.reconnect();
        self.link.committed_seen = u64::MAX; // what came with the stores may be committed already
    }
}

/// Reads a byte of each frame: of the headers, which another core may have written.
fn touch(packets: &[Packet]) {
    let first = |packet: &Packet| packet.frame().first().copied().unwrap_or_default();
    std::hint::black_box(packets.iter().map(first).fold(0, u8::wrapping_add));
}

/// Whether a message is for `incarnation`, or from outside.
pub(super) fn is_for(incarnation: Incarnation, packet: &Packet) -> bool {
    [0, incarnation].contains(&packet.meta.addressee) || mutant::is(Mutant::AnyAddressee)
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("number", &self.number)
            .field("phase", &self.phase)
            .field("waiting", &self.waiting.len())
            .field("held", &self.hold.len())
            .field("retained", &self.retained.len())
            .finish_non_exhaustive()
    }
}
