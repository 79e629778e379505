//! The nodes of a ring, driven by hand in one thread, one after the other: what each of them costs by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pannier_chains::config::ChainSpec;
use pannier_runtime::clock::{Nanos, Now, SECOND};
use pannier_runtime::packet::Kind;
use pannier_runtime::ring::{Node, Orchestrator, Output, Plan, PlanError, View};
use pannier_runtime::{AnyNf, Packet};

use super::traffic::Feed;

/// Packets that enter in one turn.
const BURST: usize = 32;
/// How far apart packets arrive, in the time that nodes are told: 10 million a second.
const APART: Nanos = 100;
/// How often nodes are told that time passes, as shards do it.
const TICK_EVERY: Nanos = 100_000;
/// Turns of a slice: 10,000 packets, a millisecond or two.
const SLICE: u32 = 313;
/// Turns in which everything that is under way must have come to rest.
const DRAIN: usize = 100_000;

/// What a while of turns came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Nanoseconds for a packet at a node that has a stage, on average over these nodes.
    pub(super) node: f64,
    /// The same at a node that only replicates; zero where there is none.
    pub(super) replica: f64,
    /// Bytes of units and names for a packet, on average over the links.
    pub(super) unit_bytes: f64,
    /// Million packets a second through all nodes.
    pub(super) mpps: f64,
}

/// See the [module](self).
pub(super) struct Ring {
    plan: Plan,
    nfs: Arc<[Arc<dyn AnyNf>]>,
    orchestrator: Orchestrator,
    nodes: Vec<Node>,
    /// By node: what comes from the predecessor, and from the successor.
    from_before: Vec<Vec<Packet>>,
    from_after: Vec<Vec<Packet>>,
    out: Output,
    inbox: Vec<Packet>,
    feed: Feed,
    now: Now,
    next_tick: Nanos,
    /// By node: time that it took.
    spent: Vec<Duration>,
    entered: u64,
}

impl Ring {
    /// The nodes of `spec` with other units, surviving `f` failures; they have met each flow of `feed`, `flows` in all.
    pub(super) fn new(
        spec: &ChainSpec,
        f: usize,
        unit: usize,
        feed: &Feed,
        flows: u32,
    ) -> Result<Self, PlanError> {
        let mut plan = spec.plan.with_geometry(spec.stages.len(), f)?;
        plan.unit_frames = unit;
        plan.check(spec.stages.iter().map(|s| s.nf.largest_delta_in(&plan.layout)).max().unwrap_or(0))?;
        let nfs: Arc<[Arc<dyn AnyNf>]> = spec.stages.iter().map(|stage| stage.nf.clone()).collect();
        let (orchestrator, nodes) = (Orchestrator::new(&plan), plan.nodes());
        let node = |index| Node::new(index, plan, nfs.clone(), orchestrator.view().clone());
        let mut ring = Ring {
            nodes: (0..nodes).map(node).collect(),
            from_before: (0..nodes).map(|_| Vec::new()).collect(),
            from_after: (0..nodes).map(|_| Vec::new()).collect(),
            out: Output::default(),
            inbox: Vec::new(),
            feed: feed.clone(),
            now: Now { timer: 0, wall: 1_000_000 * SECOND },
            next_tick: 0,
            spent: vec![Duration::ZERO; nodes],
            entered: 0,
            plan,
            nfs,
            orchestrator,
        };
        while ring.entered < u64::from(flows) {
            ring.turn(BURST);
        }
        Ok(ring)
    }

    /// Gives turns for about `length`, and says what they cost: what three quarters of the slices cost at least. Slices in
    /// which somebody else had the core are among the dearer ones.
    pub(super) fn run(&mut self, length: Duration) -> Cost {
        let clock = clock_cost() * SLICE;
        let (entered, bytes, start) = (self.entered, self.unit_bytes(), Instant::now());
        let mut slices: Vec<[f64; 3]> = Vec::new();
        while slices.is_empty() || start.elapsed() < length {
            slices.push(self.slice(clock));
        }
        let quarter = |figure: usize| {
            let mut sorted: Vec<f64> = slices.iter().map(|slice| slice[figure]).collect();
            sorted.sort_by(f64::total_cmp);
            sorted[sorted.len() / 4]
        };
        let (packets, links) = ((self.entered - entered) as f64, self.nodes.len() as f64);
        Cost {
            node: quarter(0),
            replica: quarter(1),
            unit_bytes: (self.unit_bytes() - bytes) as f64 / packets / links,
            mpps: 1e3 / quarter(2),
        }
    }

    /// Nanoseconds for a packet at a node with a stage, at one without, and at all nodes together.
    fn slice(&mut self, clock: Duration) -> [f64; 3] {
        self.spent.fill(Duration::ZERO);
        let entered = self.entered;
        self.turns(SLICE);
        let packets = (self.entered - entered).max(1) as f64;
        let nanos = |spent: &Duration| spent.saturating_sub(clock).as_nanos() as f64 / packets;
        let sum = |spent: &[Duration]| spent.iter().map(nanos).sum::<f64>();
        let (heads, others) = self.spent.split_at(self.plan.stages());
        let mean = |spent: &[Duration]| sum(spent) / spent.len().max(1) as f64;
        [mean(heads), mean(others), sum(&self.spent)]
    }

    /// Gives so many turns with a burst each.
    pub(super) fn turns(&mut self, count: u32) {
        (0..count).for_each(|_| self.turn(BURST));
    }

    fn unit_bytes(&self) -> u64 {
        self.nodes.iter().map(|node| node.stats().unit_bytes).sum()
    }

    /// One turn of each node, in the order in which packets pass them. A turn in which a node has no room brings no
    /// packets.
    fn turn(&mut self, packets: usize) {
        let enter = if self.nodes.iter().all(Node::has_room) { packets } else { 0 };
        let ticks = self.now.timer >= self.next_tick;
        if ticks {
            self.next_tick = self.now.timer + TICK_EVERY;
        }
        for index in 0..self.nodes.len() {
            self.inbox.append(&mut self.from_after[index]);
            self.inbox.append(&mut self.from_before[index]);
            if index == 0 {
                for _ in 0..enter {
                    self.now.timer += APART;
                    self.now.wall += APART;
                    self.inbox.push(self.feed.next(self.now.wall, &mut self.out.pool));
                }
                self.entered += enter as u64;
            }
            let start = Instant::now();
            self.nodes[index].accept(&mut self.inbox, self.now, &mut self.out);
            if ticks {
                self.nodes[index].tick(self.now, &mut self.out);
            }
            self.spent[index] += start.elapsed();
            self.route(index);
        }
        if enter == 0 {
            self.now.timer += APART * BURST as Nanos;
        }
    }

    fn route(&mut self, index: usize) {
        let (before, after) = (self.plan.predecessor(index), self.plan.successor(index));
        self.from_before[after].append(&mut self.out.forward);
        self.from_after[before].append(&mut self.out.backward);
        let Output { released, pool, .. } = &mut self.out;
        released.drain(..).for_each(|packet| pool.give(packet));
    }

    /// Kills a node when nothing is under way, and returns how long its replacement takes until it has all state, and
    /// the bytes that it was sent.
    pub(super) fn recover(&mut self, index: usize) -> (Duration, usize) {
        for _ in 0..DRAIN {
            if self.nodes.iter().all(Node::is_idle) {
                break;
            }
            self.turn(0);
        }
        self.orchestrator.declare_dead(index);
        let joins = self.orchestrator.admit();
        debug_assert_eq!(joins, Some(index));
        let view = self.orchestrator.view().clone();
        let (plan, nfs) = (self.plan, self.nfs.clone());
        let (start, mut bytes) = (Instant::now(), 0);
        let old = std::mem::replace(
            &mut self.nodes[index],
            Node::replacement(index, plan, nfs, view.clone(), self.now, &mut self.out),
        );
        self.adopt(&view);
        while !self.out.caught_up {
            for (to, packet) in std::mem::take(&mut self.out.control) {
                let is_part = packet.meta.kind == Kind::Snapshot;
                bytes += if is_part { packet.frame().len() } else { 0 };
                self.inbox.push(packet);
                self.nodes[to].accept(&mut self.inbox, self.now, &mut self.out);
                self.route(to);
            }
            for source in (0..self.nodes.len()).filter(|&node| node != index) {
                self.nodes[source].tick(self.now, &mut self.out);
                self.route(source);
            }
        }
        let took = start.elapsed();
        drop(old); // in life another machine's memory
        self.out.caught_up = false;
        self.orchestrator.caught_up(index, self.nodes[index].incarnation());
        let view = self.orchestrator.view().clone();
        self.adopt(&view);
        (took, bytes)
    }

    fn adopt(&mut self, view: &View) {
        for index in 0..self.nodes.len() {
            self.nodes[index].adopt(view, &mut self.out);
            self.route(index);
        }
    }
}

/// What two looks at the clock cost: the least of many.
fn clock_cost() -> Duration {
    let of_many = |_| (0..1_000).map(|_| Instant::now().elapsed()).sum::<Duration>() / 1_000;
    (0..9).map(of_many).min().unwrap_or_default()
}
