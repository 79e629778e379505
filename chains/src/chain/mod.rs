//! The in-process chain: all nodes of a ring in one thread, with links between them that may fail.
//!
//! One [`Chain::turn`] gives each node one burst, from the last node to the first: a frame needs one turn per hop, so
//! that a crash finds frames under way, as on a network.

mod recovery;
pub(crate) mod summary;

use std::fmt;
use std::sync::Arc;

use pannier_runtime::clock::{Nanos, Now};
use pannier_runtime::entropy::Entropy;
use pannier_runtime::limits::REPAIR_UNITS;
use pannier_runtime::packet::{Kind, Pool};
use pannier_runtime::port::{Fault, Faults, Memory, Port, PortContext};
use pannier_runtime::ring::{Node, Orchestrator, Output, Plan, PlanError, Recorder, steer};
use pannier_runtime::stats::NodeStats;
use pannier_runtime::{AnyNf, Direction, Packet};
use recovery::Outage;
pub use recovery::Recovery;
pub use summary::{Packets, Replica, Stage, Summary, Units};

/// How much of the timers' time one turn of the chain stands for, in nanoseconds.
pub const TURN: Nanos = 50_000;

/// Turns in which [`Chain::drain`] must come to rest: far more than any repair takes.
const DRAIN_TURNS: u64 = 200_000;

/// Repair must not begin before an answer can have come: a round trip takes three turns.
const LEAST_REPAIR: Nanos = 4 * TURN;

/// A stage: its name and its network function.
#[derive(Clone, Debug)]
pub struct ChainStage {
    /// The name in summaries.
    pub name: String,
    /// The network function.
    pub nf: Arc<dyn AnyNf>,
}

/// A place on the ring and who is there.
#[derive(Debug)]
struct Slot {
    node: Option<Node>,
    /// What earlier incarnations counted.
    past: NodeStats,
    outage: Option<Outage>,
}

type Link = Fault<Memory>;

/// Makes the recorder of a node with this number.
pub type RecorderFactory = Box<dyn Fn(usize) -> Box<dyn Recorder> + Send>;

/// All nodes of a ring in one thread.
pub struct Chain {
    plan: Plan,
    names: Vec<String>,
    nfs: Arc<[Arc<dyn AnyNf>]>,
    burst: usize,
    slots: Vec<Slot>,
    /// By sender: to its successor.
    forward: Vec<Link>,
    /// By sender: to its predecessor.
    backward: Vec<Link>,
    /// By receiver: messages beside the ring, which are reliable.
    control: Vec<Vec<Packet>>,
    outbound: Vec<Packet>,
    inbound: Vec<Packet>,
    orchestrator: Orchestrator,
    out: Output,
    inbox: Vec<Packet>,
    now: Now,
    turns: u64,
    admitted: u64,
    released: u64,
    /// Frames lost at nodes that were down, besides those that the nodes count.
    lost: u64,
    recoveries: Vec<Recovery>,
    recorder: Option<RecorderFactory>,
    unrecoverable: Option<usize>,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain")
            .field("names", &self.names)
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

impl Chain {
    /// A chain of `stages` on the ring of `plan`. A node takes up to `burst` packets from each link in a turn.
    ///
    /// # Errors
    /// A plan that can't work for these stages, with the way out.
    pub fn new(plan: Plan, stages: Vec<ChainStage>, burst: usize, faults: Faults) -> Result<Self, PlanError> {
        if stages.len() != plan.stages() {
            return Err(PlanError::StageCount { planned: plan.stages(), given: stages.len() });
        }
        let mut plan = plan;
        plan.limits.repair_after = plan.limits.repair_after.max(LEAST_REPAIR);
        plan.check(stages.iter().map(|s| s.nf.largest_delta_in(&plan.layout)).max().unwrap_or(0))?;
        let names = stages.iter().map(|stage| stage.name.clone()).collect();
        let nfs: Arc<[Arc<dyn AnyNf>]> = stages.into_iter().map(|stage| stage.nf).collect();
        let orchestrator = Orchestrator::new(&plan);
        let slot = |index| Slot {
            node: Some(Node::new(index, plan, Arc::clone(&nfs), orchestrator.view().clone())),
            past: NodeStats::default(),
            outage: None,
        };
        let link = |number: usize| {
            Fault::new(Memory::default(), faults, Entropy::stream(plan.seed, 1 << 62 | number as u64))
        };
        let nodes = plan.nodes();
        Ok(Chain {
            slots: (0..nodes).map(slot).collect(),
            forward: (0..nodes).map(link).collect(),
            backward: (nodes..2 * nodes).map(link).collect(),
            control: (0..nodes).map(|_| Vec::new()).collect(),
            plan,
            names,
            nfs,
            burst: burst.max(1),
            outbound: Vec::new(),
            inbound: Vec::new(),
            orchestrator,
            out: Output::default(),
            inbox: Vec::new(),
            now: Now::default(),
            turns: 0,
            admitted: 0,
            released: 0,
            lost: 0,
            recoveries: Vec::new(),
            recorder: None,
            unrecoverable: None,
        })
    }

    /// The geometry and the bounds.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where packets for [`Chain::admit`] come from.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.out.pool
    }

    /// Whether the chain takes packets: no bound of any node is reached, and no link is crowded.
    pub fn has_room(&self) -> bool {
        let mut links = self.forward.iter().chain(&self.backward);
        self.slots.iter().all(|slot| slot.node.as_ref().is_none_or(Node::has_room))
            && links.all(|link| link.inner().len() <= self.most())
    }

    /// Messages that a node takes from a link in one turn: a burst that links have doubled, and the repairs beside it.
    fn most(&self) -> usize {
        4 * (self.burst + REPAIR_UNITS)
    }

    /// Whether anything is on its way to an end: a frame in the chain, or a node to its replacement.
    pub fn is_busy(&self) -> bool {
        self.frames_inside() > 0 || self.nodes_down() > 0
    }

    /// Nodes that are down or have not all their state.
    pub fn nodes_down(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.node.as_ref().is_some_and(Node::is_up)).count()
    }

    /// Lets a frame in, to be worked on in the next turn. Its direction, flow and time must be set.
    pub fn admit(&mut self, mut packet: Packet) {
        steer(&mut packet, &self.plan, &self.nfs);
        self.admitted += 1;
        self.now.wall = self.now.wall.max(packet.meta.time);
        match packet.meta.direction {
            Direction::Outbound => self.outbound.push(packet),
            Direction::Inbound => self.inbound.push(packet),
        }
    }

    /// Lets time pass and gives each node one turn. Where nothing is under way, time runs on to the next timer.
    pub fn turn(&mut self) {
        self.turns += 1;
        let limits = &self.plan.limits;
        let step = if self.is_quiet() { limits.repair_after.max(limits.idle_acknowledge) } else { 0 };
        self.now.timer += step.max(TURN);
        self.watch();
        for index in (0..self.plan.nodes()).rev() {
            self.step(index);
        }
    }

    /// Appends the frames that have left the chain to `into`, in order. Their direction says on which side they left.
    pub fn take_released(&mut self, into: &mut Vec<Packet>) {
        self.released += self.out.released.len() as u64;
        into.append(&mut self.out.released);
    }

    /// Ends the link faults and gives turns until nothing is under way. Returns whether it came to rest.
    pub fn drain(&mut self) -> bool {
        self.forward.iter_mut().chain(&mut self.backward).for_each(Link::calm);
        (0..DRAIN_TURNS).any(|_| {
            self.turn();
            self.unrecoverable.is_some() || self.is_at_rest()
        }) && self.unrecoverable.is_none()
    }

    /// The node at `index`; `None` while it is down.
    pub fn node(&self, index: usize) -> Option<&Node> {
        self.slots.get(index)?.node.as_ref()
    }

    /// The stage whose state no live node holds any more: more nodes failed than the chain survives.
    pub fn unrecoverable(&self) -> Option<&str> {
        self.unrecoverable.map(|stage| self.names[stage].as_str())
    }

    /// Has what the nodes do from now on told to recorders: `recorder` makes one for each node, replacements included.
    pub fn record(&mut self, recorder: RecorderFactory) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Some(node) = &mut slot.node {
                node.set_recorder(|| recorder(index));
            }
        }
        self.recorder = Some(recorder);
    }

    /// Whether no message is under way.
    fn is_quiet(&self) -> bool {
        let mut links = self.forward.iter().chain(&self.backward);
        self.outbound.is_empty()
            && self.inbound.is_empty()
            && self.control.iter().all(Vec::is_empty)
            && links.all(|link| link.inner().is_empty() && link.set_aside().next().is_none())
    }

    fn is_at_rest(&self) -> bool {
        let nodes = self.slots.iter().all(|slot| slot.node.as_ref().is_some_and(Node::is_idle));
        nodes && self.frames_inside() == 0
    }

    /// Frames in nodes, on links and at the entrances.
    fn frames_inside(&self) -> u64 {
        let nodes: usize =
            self.slots.iter().filter_map(|slot| slot.node.as_ref()).map(Node::frames_inside).sum();
        let links = self.forward.iter().chain(&self.backward);
        let on_links = links.flat_map(|link| link.inner().packets().chain(link.set_aside()));
        let flying = on_links.filter(|packet| packet.meta.kind == Kind::Frame).count();
        (nodes + flying + self.outbound.len() + self.inbound.len()) as u64
    }

    /// One node's turn: what the successor and neighbours say, then what arrived for it.
    fn step(&mut self, index: usize) {
        let (before, after) = (self.plan.predecessor(index), self.plan.successor(index));
        let most = self.most();
        let mut context = PortContext { now: self.now.timer, pool: &mut self.out.pool };
        self.inbox.append(&mut self.control[index]);
        if before != index {
            let Ok(_) = self.backward[after].rx_burst(most, &mut context, &mut self.inbox);
            let Ok(_) = self.forward[before].rx_burst(most, &mut context, &mut self.inbox);
        }
        if index == 0 {
            self.inbox.append(&mut self.outbound);
        }
        if index == self.plan.last() {
            self.inbox.append(&mut self.inbound);
        }
        self.count_snapshots(index);
        match &mut self.slots[index].node {
            Some(node) => {
                node.accept(&mut self.inbox, self.now, &mut self.out);
                node.tick(self.now, &mut self.out);
            }
            None => {
                for packet in self.inbox.drain(..) {
                    self.lost += u64::from(packet.meta.kind == Kind::Frame);
                    self.out.pool.give(packet);
                }
            }
        }
        self.route(index);
    }

    /// Puts what a node wants sent on its links.
    fn route(&mut self, index: usize) {
        let mut context = PortContext { now: self.now.timer, pool: &mut self.out.pool };
        let Ok(()) = self.forward[index].tx_burst(&mut context, &mut self.out.forward);
        let Ok(()) = self.backward[index].tx_burst(&mut context, &mut self.out.backward);
        for (to, packet) in self.out.control.drain(..) {
            self.control[to].push(packet);
        }
        self.unrecoverable = self.unrecoverable.or(self.out.unrecoverable.take());
        if std::mem::take(&mut self.out.caught_up) {
            self.back_up(index);
        }
    }
}
