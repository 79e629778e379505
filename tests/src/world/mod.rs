//! A world: real nodes, links that lose, double and reorder, crashes and recoveries, all from one seed.
//!
//! Each step picks what happens next: a packet enters, a few messages arrive at one node, a timer runs, a node dies,
//! the orchestrator acts, a node hears of a view, a control message arrives. The network function leaves provenance in
//! everything that it writes, so that the [`promises`] are questions about sets.

pub mod promises;
mod provenance;

use std::sync::Arc;

use pannier_runtime::clock::{Nanos, Now};
use pannier_runtime::entropy::Entropy;
use pannier_runtime::packet::Kind;
use pannier_runtime::ring::{Node, Orchestrator, Output, Plan, Standing, View};
use pannier_runtime::state::Layout;
use pannier_runtime::{AnyNf, Direction, Packet};
use promises::Scene;
pub use provenance::{Cell, Cells, Journal, Provenance, Transaction, path};

/// What a world is made of: with the seed it describes a run completely.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seed of every choice.
    pub seed: u64,
    /// Stages of the chain.
    pub stages: usize,
    /// Failures that it survives.
    pub f: usize,
    /// Partitions of each store.
    pub partitions: usize,
    /// Packets per unit.
    pub unit_frames: usize,
    /// MTU of the ring links in bytes.
    pub mtu: usize,
    /// Random steps before the faults stop.
    pub steps: usize,
}

impl Options {
    /// Options drawn from a seed, over the whole space.
    pub fn random(seed: u64, steps: usize) -> Self {
        let mut pick = Entropy::stream(seed, 77);
        Options {
            seed,
            stages: 1 + pick.below(6) as usize,
            f: [0, 1, 1, 2, 3][pick.below(5) as usize],
            partitions: [1, 2, 4, 64][pick.below(4) as usize],
            unit_frames: [1, 1, 2, 8][pick.below(4) as usize],
            mtu: [2_000, 3_500, 9_000][pick.below(3) as usize],
            steps,
        }
    }
}

/// Real nodes under one seed.
pub struct World {
    options: Options,
    plan: Plan,
    nfs: Arc<[Arc<dyn AnyNf>]>,
    /// What every transaction read and wrote.
    pub journal: Journal,
    nodes: Vec<Option<Node>>,
    /// Nodes that were declared dead although they run: what is sent to their place reaches them too.
    suspected: Vec<Node>,
    network: Vec<(usize, Packet)>,
    /// Messages that come when nobody expects them any more.
    late: Vec<(usize, Packet)>,
    control: Vec<(usize, Packet)>,
    views: Vec<(usize, View)>,
    orchestrator: Orchestrator,
    out: Output,
    random: Entropy,
    now: Now,
    calm: bool,
    next_packet: u64,
    /// The transactions of each released packet, in the order of its way.
    pub released: Vec<Vec<u64>>,
    /// Replacements that caught up.
    pub recoveries: u64,
}

impl Scene for World {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn up(&self, index: usize) -> Option<&Node> {
        self.nodes[index].as_ref().filter(|node| node.is_up())
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn released(&self) -> &[Vec<u64>] {
        &self.released
    }
}

impl World {
    /// A world in which nothing has happened.
    pub fn new(options: Options) -> Self {
        let mut plan = Plan::new(options.stages, options.f).expect("options are possible");
        plan.layout = Layout { partitions: options.partitions, hash_seed: options.seed };
        plan.unit_frames = options.unit_frames;
        plan.limits.mtu = options.mtu;
        plan.limits.retained_bytes = 8_000;
        plan.limits.waiting = 24;
        plan.limits.held = 64;
        plan.seed = options.seed;
        let journal = Journal::default();
        let stage = |stage| Arc::new(Provenance::new(stage, journal.clone())) as Arc<dyn AnyNf>;
        let nfs: Arc<[Arc<dyn AnyNf>]> = (0..options.stages).map(stage).collect();
        plan.check(nfs[0].largest_delta_in(&plan.layout)).expect("options leave room");
        let orchestrator = Orchestrator::new(&plan);
        let node = |i| Some(Node::new(i, plan, Arc::clone(&nfs), orchestrator.view().clone()));
        World {
            options,
            nodes: (0..plan.nodes()).map(node).collect(),
            plan,
            nfs,
            journal,
            suspected: Vec::new(),
            network: Vec::new(),
            late: Vec::new(),
            control: Vec::new(),
            views: Vec::new(),
            orchestrator,
            out: Output::default(),
            random: Entropy::stream(options.seed, 1),
            now: Now { timer: 1, wall: 1 },
            calm: false,
            next_packet: 0,
            released: Vec::new(),
            recoveries: 0,
        }
    }

    /// Runs the whole schedule and checks the promises on the way and at the end.
    ///
    /// # Errors
    /// The promise that was broken, and how.
    pub fn run(&mut self) -> Result<(), String> {
        for _ in 0..self.options.steps {
            self.step();
            if self.random.below(50) == 0 {
                promises::check(self)?;
            }
        }
        self.calm = true;
        self.suspected.clear();
        for turn in 0..40_000 {
            self.step();
            if turn % 64 == 0 && self.is_at_rest() {
                return promises::check(self).and_then(|()| promises::check_rest(self));
            }
        }
        Err(format!("liveness: {} messages under way, nodes {:?}", self.network.len(), self.nodes))
    }

    fn is_at_rest(&self) -> bool {
        self.network.iter().all(|(_, p)| p.meta.kind == Kind::Acknowledge)
            && self.control.is_empty()
            && self.late.is_empty()
            && self.views.is_empty()
            && self.nodes.iter().all(|node| node.as_ref().is_some_and(Node::is_idle))
    }

    fn step(&mut self) {
        let dice = self.random.below(1_000);
        match dice {
            0..120 if !self.calm => self.ingress(),
            0..780 => self.deliver(),
            780..850 => self.tick(),
            850..880 => self.live_on(),
            880..890 => self.network.extend(self.late.pop()),
            890..940 => self.deliver_control(),
            940..970 => self.deliver_view(),
            970..985 if !self.calm => self.crash(),
            _ => self.orchestrate(),
        }
    }

    fn ingress(&mut self) {
        let direction = if self.random.chance(0.3) { Direction::Inbound } else { Direction::Outbound };
        let index = if direction == Direction::Outbound { 0 } else { self.plan.last() };
        self.next_packet += 1;
        let mut packet = self.out.pool.take();
        packet.set_frame(&self.next_packet.to_le_bytes());
        if self.random.chance(0.1) {
            packet.resize(self.options.mtu - 40 - self.random.below(60) as usize); // little room for a unit
            let len = packet.frame().len();
            packet.frame_mut()[8..len].fill(0xff);
        }
        packet.meta.direction = direction;
        packet.meta.flow = self.random.below(4) as u32;
        packet.meta.time = self.now.wall;
        if self.nodes[index].as_ref().is_some_and(Node::has_room) {
            self.accept(index, vec![packet]);
        }
    }

    /// Delivers a few messages to one node: the first of them one of the oldest, in any order.
    fn deliver(&mut self) {
        if self.network.is_empty() {
            return;
        }
        let at = self.random.below(self.network.len().min(12) as u64) as usize;
        let (to, first) = self.network.remove(at);
        let mut burst = vec![first];
        while self.random.chance(0.7) {
            let Some(at) = self.network.iter().take(12).position(|(other, _)| *other == to) else { break };
            burst.push(self.network.remove(at).1);
        }
        self.accept(to, burst);
    }

    fn accept(&mut self, index: usize, mut burst: Vec<Packet>) {
        if let Some(node) = &mut self.nodes[index] {
            node.accept(&mut burst, self.now, &mut self.out);
            self.route(index);
        }
    }

    fn tick(&mut self) {
        self.now.timer += self.random.below(400_000) as Nanos;
        self.now.wall += self.random.below(2_000_000_000) as Nanos;
        let index = self.random.below(self.nodes.len() as u64) as usize;
        if let Some(node) = &mut self.nodes[index] {
            node.tick(self.now, &mut self.out);
            self.route(index);
        }
    }

    fn route(&mut self, index: usize) {
        let (before, after) = (self.plan.predecessor(index), self.plan.successor(index));
        let forward = self.out.forward.drain(..).map(|p| (after, p));
        let sent: Vec<(usize, Packet)> =
            forward.chain(self.out.backward.drain(..).map(|p| (before, p))).collect();
        for (to, packet) in sent {
            let crowded = self.network.len() > 400;
            if (!self.calm && self.random.chance(0.15)) || crowded {
                continue;
            }
            if !self.calm && self.random.chance(0.05) {
                self.network.push((to, packet.clone()));
            }
            let network =
                if !self.calm && self.random.chance(0.03) { &mut self.late } else { &mut self.network };
            network.push((to, packet));
        }
        self.control.append(&mut self.out.control);
        self.released.extend(self.out.released.drain(..).map(|p| path(p.frame())));
        if std::mem::take(&mut self.out.caught_up) {
            let incarnation = self.nodes[index].as_ref().map_or(0, Node::incarnation);
            self.recoveries += 1;
            self.orchestrator.caught_up(index, incarnation);
            self.announce();
        }
    }

    fn deliver_control(&mut self) {
        if !self.control.is_empty() {
            let at = self.random.below(self.control.len() as u64) as usize;
            let (to, packet) = self.control.swap_remove(at);
            self.accept(to, vec![packet]);
        }
    }

    fn deliver_view(&mut self) {
        if !self.views.is_empty() {
            let at = self.random.below(self.views.len() as u64) as usize;
            let (to, view) = self.views.swap_remove(at);
            if let Some(node) = &mut self.nodes[to] {
                node.adopt(&view, &mut self.out);
                self.route(to);
            }
        }
    }

    fn announce(&mut self) {
        let view = self.orchestrator.view();
        self.views.extend((0..self.nodes.len()).map(|to| (to, view.clone())));
    }

    /// Kills a node, unless f are down: a node counts as down until its replacement has caught up.
    fn crash(&mut self) {
        let view = self.orchestrator.view();
        let down = |i: &usize| self.nodes[*i].is_none() || view.members[*i].standing != Standing::Up;
        let index = self.random.below(self.nodes.len() as u64) as usize;
        let others = (0..self.nodes.len()).filter(|i| *i != index && down(i)).count();
        if others < self.plan.f() {
            let node = self.nodes[index].take();
            if self.random.chance(0.4) && self.suspected.len() < 3 {
                self.suspected.extend(node);
            }
        }
    }

    /// A node that was declared dead goes on: it takes what was meant for its place, or lets time pass, or hears of a
    /// view, or stops at last.
    fn live_on(&mut self) {
        if self.suspected.is_empty() {
            return;
        }
        let at = self.random.below(self.suspected.len() as u64) as usize;
        let mut node = self.suspected.swap_remove(at);
        let index = node.index();
        match self.random.below(20) {
            0 => return,
            1 => node.adopt(self.orchestrator.view(), &mut self.out),
            2..6 => node.tick(self.now, &mut self.out),
            _ => {
                let mine = self.network.iter().take(24).filter(|(to, _)| *to == index);
                let mut burst: Vec<Packet> = mine.map(|(_, packet)| packet.clone()).collect();
                node.accept(&mut burst, self.now, &mut self.out);
            }
        }
        self.suspected.push(node);
        self.out.caught_up = false; // nobody believes it
        self.route(index);
    }

    fn orchestrate(&mut self) {
        let before = self.orchestrator.view().number;
        let dead: Vec<usize> = (0..self.nodes.len()).filter(|&i| self.nodes[i].is_none()).collect();
        dead.into_iter().for_each(|index| self.orchestrator.declare_dead(index));
        if let Some(index) = self.orchestrator.admit() {
            let view = self.orchestrator.view().clone();
            self.nodes[index] = Some(Node::replacement(
                index,
                self.plan,
                Arc::clone(&self.nfs),
                view,
                self.now,
                &mut self.out,
            ));
            self.route(index);
        }
        if self.orchestrator.view().number != before {
            self.announce();
        }
    }
}
