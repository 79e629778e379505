//! A node of the ring. [`Node::accept`] is the function to read first: every promise of the chain passes there.
//!
//! A node has no clock, no thread and no socket: it takes packets and the time, and gives packets back in an
//! [`Output`]. Its parts, each the room of one duty:
//! - `replica`: takes units over from the predecessor, all records or none;
//! - `head`: runs the network function as a transaction, commits, and lets the unit ride;
//! - `link`: acknowledges to the predecessor, learns from the successor, repairs, releases what waited;
//! - `recover`: adopts views, fences, takes state over; `copy`: gives it away.

mod copy;
mod head;
mod link;
mod recover;
mod replica;
#[cfg(feature = "simulation")]
mod simulation;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::clock::{Nanos, Now};
use crate::entropy::Entropy;
use crate::mutant::{self, Mutant};
use crate::nf::AnyNf;
use crate::packet::{Direction, Kind, Packet, Pool};
use crate::ring::hold::Hold;
use crate::ring::plan::Plan;
use crate::ring::recorder::{Origin, Recorder, Silent};
use crate::ring::retained::Retained;
use crate::ring::store::Store;
use crate::ring::view::{Incarnation, Standing, View};
use crate::state::{Layout, NEVER};
use crate::stats::NodeStats;
use copy::Copy;
use head::Open;
use link::Link;
use recover::Life;
use replica::Outcome;
#[cfg(feature = "simulation")]
pub use simulation::hash_packet;

/// What a node wants done. The driver empties the lists; the pool stays.
#[derive(Debug, Default)]
pub struct Output {
    /// To the successor, in order.
    pub forward: Vec<Packet>,
    /// To the predecessor, in order: frames of the other direction, and acknowledgements.
    pub backward: Vec<Packet>,
    /// Out of the chain: to the outside from the last stage, to the inside from the first.
    pub released: Vec<Packet>,
    /// To the node with this number, beside the ring.
    pub control: Vec<(usize, Packet)>,
    /// The node has all stores and is up.
    pub caught_up: bool,
    /// A stage whose store no live node has: more nodes failed than the chain survives.
    pub unrecoverable: Option<usize>,
    /// Where packets come from and go to.
    pub pool: Pool,
}

/// One node: the head of its stage (if it has one) and a replica of the f stages before it.
pub struct Node {
    index: usize,
    incarnation: Incarnation,
    plan: Plan,
    nfs: Arc<[Arc<dyn AnyNf>]>,
    view: View,
    /// By stage; `None` where this node holds no replica.
    stores: Vec<Option<Store>>,
    open: Open,
    /// Messages whose unit is not ready.
    waiting: VecDeque<Packet>,
    hold: Hold,
    /// Frames on their way out of `hold`; empty between turns.
    leaving: Vec<Packet>,
    retained: Retained,
    link: Link,
    life: Life,
    copy: Option<Copy>,
    /// The newest question for state: whose, and its view and attempt.
    answered: (Incarnation, [u64; 2]),
    now: Now,
    /// The transactions' clock: the latest packet's arrival.
    time: Nanos,
    next_sweep: Nanos,
    sweep_at: usize,
    stats: NodeStats,
    recorder: Box<dyn Recorder>,
}

impl Node {
    /// A node of a chain that starts: its stores are empty and it is up.
    ///
    /// # Panics
    /// Where `nfs` are not as many as the plan has stages, or `index` is not on the ring.
    pub fn new(index: usize, plan: Plan, nfs: Arc<[Arc<dyn AnyNf>]>, view: View) -> Self {
        assert!(nfs.len() == plan.stages() && index < plan.nodes(), "the plan counts stages and nodes");
        let incarnation = view.members[index].incarnation;
        let mut stores: Vec<Option<Store>> = (0..plan.stages()).map(|_| None).collect();
        for stage in plan.held_by(index) {
            stores[stage] =
                Some(Store::new(nfs[stage].new_state(&layout(&plan, index)), plan.tail(stage) == index));
        }
        let entropy = Entropy::stream(plan.seed, (index as u64) << 32 | incarnation);
        Node {
            index,
            incarnation,
            plan,
            nfs,
            view,
            stores,
            open: Open::new(entropy, plan.delta_limit()),
            waiting: VecDeque::new(),
            hold: Hold::default(),
            leaving: Vec::new(),
            retained: Retained::default(),
            link: Link::new(&plan),
            life: Life::Up,
            copy: None,
            answered: (0, [0; 2]),
            now: Now::default(),
            time: 0,
            next_sweep: 0,
            sweep_at: 0,
            stats: NodeStats::default(),
            recorder: Box::new(Silent),
        }
    }

    /// A node that replaces a dead one: it is [`Standing::Joining`] in `view` and fetches its stores first.
    ///
    /// # Panics
    /// As [`Node::new`].
    pub fn replacement(
        index: usize,
        plan: Plan,
        nfs: Arc<[Arc<dyn AnyNf>]>,
        view: View,
        now: Now,
        out: &mut Output,
    ) -> Self {
        let mut node = Node::new(index, plan, nfs, view);
        node.now = now;
        node.fetch(out);
        node
    }

    /// Takes a burst of messages, in order: from the predecessor, from the successor, from outside, from a neighbour.
    pub fn accept(&mut self, burst: &mut Vec<Packet>, now: Now, out: &mut Output) {
        self.now = now;
        for packet in burst.drain(..) {
            if !self.is_for_me(&packet) {
                self.refuse(packet, "fenced", out);
                continue;
            }
            match packet.meta.kind {
                Kind::Frame | Kind::Unit => self.arrive(packet, out),
                Kind::Acknowledge => self.acknowledged(packet, out),
                Kind::Fetch => self.fetched(packet, out),
                Kind::Snapshot => self.install(packet, out),
            }
        }
        self.settle(out); // what waited for a unit that has come
        self.close(out); // commit what is open: one unit
        self.release(out); // what waited for its commit
        self.acknowledge(out); // tell the predecessor what is applied and committed
        self.copy_on(out); // a part of what a replacement has asked for
    }

    /// One frame or unit: first its unit is applied here, then the network function runs.
    fn arrive(&mut self, packet: Packet, out: &mut Output) {
        match self.life {
            Life::Up => {}
            Life::Joining(_) => return self.refuse(packet, "joining", out),
            Life::Retired => return self.refuse(packet, "retired", out),
        }
        if self.is_fenced(&packet) {
            return self.refuse(packet, "fenced", out);
        }
        match self.replicate(&packet) {
            Outcome::Applied { news } => self.stage(packet, news, out),
            Outcome::Waits => self.wait(packet, out),
            Outcome::Damaged(damage) => self.refuse(packet, damage.reason(), out),
        }
    }

    /// Lets time pass: expiry, repair and idle acknowledgements.
    pub fn tick(&mut self, now: Now, out: &mut Output) {
        self.now = now;
        self.advance(now.wall);
        if !self.is_up() {
            return self.ask_again(out);
        }
        self.sweep(out);
        self.repair(out);
        self.acknowledge(out);
        self.copy_on(out);
    }

    /// Whether packets may be admitted: no bound of this node is reached.
    pub fn has_room(&self) -> bool {
        let limits = &self.plan.limits;
        self.retained.bytes() < limits.retained_bytes
            && self.waiting.len() < limits.waiting
            && self.hold.len() < limits.held
    }

    /// Whether nothing waits here: no frame held, no unit waiting, none retained.
    pub fn is_idle(&self) -> bool {
        self.is_up() && self.hold.is_empty() && self.waiting.is_empty() && self.retained.is_empty()
    }

    /// Frames that are in this node: held for their commit, or waiting for a unit.
    pub fn frames_inside(&self) -> usize {
        self.hold.len() + self.waiting.iter().filter(|p| p.meta.kind == Kind::Frame).count()
    }

    /// The node's place on the ring.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The node's incarnation.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Whether the node has all its stores.
    pub fn is_up(&self) -> bool {
        matches!(self.life, Life::Up)
    }

    /// The store of `stage`, where this node holds it.
    pub fn store(&self, stage: usize) -> Option<&Store> {
        self.stores.get(stage)?.as_ref()
    }

    /// What the node has counted.
    pub fn stats(&self) -> &NodeStats {
        &self.stats
    }

    /// Has everything from now on told to `recorder`.
    pub fn set_recorder(&mut self, recorder: Box<dyn Recorder>) {
        self.recorder = recorder;
    }

    /// Moves the transactions' clock on. It never runs backwards, and never reaches the moment that means never.
    fn advance(&mut self, to: Nanos) {
        self.time = self.time.max(to.min(NEVER - 1));
    }

    fn is_head(&self) -> bool {
        self.index < self.plan.stages()
    }

    /// Whether a message comes from outside or is for this incarnation. A node that was suspected in error must not take
    /// what is meant for its replacement: it would have for committed, or for its own, what the other holds and did.
    fn is_for_me(&self, packet: &Packet) -> bool {
        [0, self.incarnation].contains(&packet.meta.addressee) || mutant::is(Mutant::AnyAddressee)
    }

    /// Units are taken from the predecessor's incarnation in the view only. A frame without a unit has read nothing
    /// that is not committed: it may come from anybody.
    fn is_fenced(&self, packet: &Packet) -> bool {
        let predecessor = self.plan.predecessor(self.index);
        let carries_unit = packet.meta.kind == Kind::Unit || !packet.unit().is_empty();
        carries_unit
            && !mutant::is(Mutant::NoFence)
            && !self.view.accepts(predecessor, packet.meta.incarnation)
    }

    fn refuse(&mut self, packet: Packet, reason: &'static str, out: &mut Output) {
        self.stats.refused.count(reason);
        self.lose(packet, out);
    }

    fn lose(&mut self, packet: Packet, out: &mut Output) {
        self.stats.lost += u64::from(packet.meta.kind == Kind::Frame);
        out.pool.give(packet);
    }

    /// Sends a packet on its way out of this node; what it waited for is done.
    fn depart(&mut self, mut packet: Packet, out: &mut Output) {
        packet.set_unit(&[]);
        let (end, next, list) = match packet.meta.direction {
            Direction::Outbound => (self.plan.last(), self.plan.successor(self.index), &mut out.forward),
            Direction::Inbound => (0, self.plan.predecessor(self.index), &mut out.backward),
        };
        if self.index == end {
            let by = Origin { node: self.index, incarnation: self.incarnation };
            Address { sender: 0, incarnation: 0, addressee: 0 }.put_on(&mut packet);
            self.recorder.released(by, &packet);
            out.released.push(packet);
        } else {
            self.address(next).put_on(&mut packet);
            list.push(packet);
        }
    }

    /// From here to the node `to`, as the view has it. Nothing is for a node that is dead: if it lives on, it and other
    /// dead ones must not be a ring of their own.
    fn address(&self, to: usize) -> Address {
        let member = self.view.members[to];
        let addressee = if member.standing == Standing::Dead { NOBODY } else { member.incarnation };
        Address { sender: self.index as u8, incarnation: self.incarnation, addressee }
    }

    fn standing(&self) -> Standing {
        self.view.members[self.index].standing
    }
}

/// How the stores of a node are cut: as the plan says.
fn layout(plan: &Plan, index: usize) -> Layout {
    let differs = if mutant::is(Mutant::DifferingHash) { index as u64 } else { 0 };
    Layout { hash_seed: plan.layout.hash_seed ^ differs, ..plan.layout }
}

/// No node has this incarnation.
const NOBODY: Incarnation = Incarnation::MAX;

/// Who sends a message, and who it is for.
#[derive(Clone, Copy, Debug)]
struct Address {
    sender: u8,
    incarnation: Incarnation,
    addressee: Incarnation,
}

impl Address {
    fn put_on(self, packet: &mut Packet) {
        packet.meta.sender = self.sender;
        packet.meta.incarnation = self.incarnation;
        packet.meta.addressee = self.addressee;
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("index", &self.index)
            .field("incarnation", &self.incarnation)
            .field("standing", &self.standing())
            .field("waiting", &self.waiting.len())
            .field("held", &self.hold.len())
            .field("retained", &self.retained.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
