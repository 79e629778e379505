//! Nodes by hand: what goes in, what comes out, and no driver between.

mod ahead;
mod bounds;
mod copies;
mod damage;
mod delivery;
mod forged;
mod parts;
mod sharing;
mod views;

use std::collections::VecDeque;

use super::*;
use crate::clock::Nanos;
use crate::nf::{Verdict, nf};
use crate::packet::Direction;
use crate::ring::view::Orchestrator;
use crate::txn::Abort;

crate::state! {
    struct Counts {
        counts: u8 => u64 [256],
    }
}

/// What a test frame asks of the network function: its second byte.
const WRITE: u8 = 0;
const LOOK: u8 = 1;
const ABORT: u8 = 2;

/// Counts frames by their first byte.
fn counter() -> Arc<dyn AnyNf> {
    Arc::new(nf(|frame, state: &Counts, txn| {
        let (key, ask) = (frame.bytes()[0], frame.bytes()[1]);
        if ask == LOOK {
            txn.peek(&state.counts, &key)?;
            return Ok(Verdict::Forward);
        }
        txn.update(&state.counts, key, |count| count.unwrap_or(0) + 1)?;
        if ask == ABORT { Err(Abort { reason: "asked_to" }) } else { Ok(Verdict::Forward) }
    }))
}

/// A frame of `len` bytes in flow `key`, which ends in `serial`.
fn frame(key: u8, ask: u8, serial: u32, len: usize) -> Packet {
    let mut bytes = vec![key, ask];
    bytes.resize(len.max(6) - 4, 0xa5);
    bytes.extend_from_slice(&serial.to_le_bytes());
    let mut packet = Packet::new(&bytes);
    packet.meta.flow = u32::from(key);
    packet
}

/// A ring whose links are queues.
struct Ring {
    plan: Plan,
    nodes: Vec<Node>,
    /// Messages under way, with the node that they go to.
    network: VecDeque<(usize, Packet)>,
    released: Vec<Packet>,
    now: Now,
    out: Output,
    longest: usize,
}

impl Ring {
    fn new(plan: Plan) -> Self {
        let nfs: Arc<[Arc<dyn AnyNf>]> = (0..plan.stages()).map(|_| counter()).collect();
        let view = Orchestrator::new(&plan).view().clone();
        let nodes = (0..plan.nodes()).map(|i| Node::new(i, plan, Arc::clone(&nfs), view.clone())).collect();
        let (network, released, now) = (VecDeque::new(), Vec::new(), Now { timer: 1, wall: 1 });
        Ring { plan, nodes, network, released, now, out: Output::default(), longest: 0 }
    }

    fn accept(&mut self, index: usize, mut burst: Vec<Packet>) {
        self.nodes[index].accept(&mut burst, self.now, &mut self.out);
        self.route(index);
    }

    fn route(&mut self, index: usize) {
        let (before, after) = (self.plan.predecessor(index), self.plan.successor(index));
        for packet in self.out.forward.drain(..) {
            self.longest = self.longest.max(packet.frame().len() + packet.unit().len());
            self.network.push_back((after, packet));
        }
        self.network.extend(self.out.backward.drain(..).map(|packet| (before, packet)));
        self.released.append(&mut self.out.released);
    }

    /// Delivers everything, lets time pass, and does so again until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..60 {
            while let Some((to, packet)) = self.network.pop_front() {
                self.accept(to, vec![packet]);
            }
            self.now.timer += 3_000_000;
            for index in 0..self.nodes.len() {
                self.nodes[index].tick(self.now, &mut self.out);
                self.route(index);
            }
            let acknowledgements = self.network.iter().all(|(_, p)| p.meta.kind == Kind::Acknowledge);
            if acknowledgements && self.nodes.iter().all(Node::is_idle) {
                return;
            }
        }
        panic!("the ring does not come to rest: {:?}", self.nodes);
    }

    /// Every digest of a stage's replicas, head first.
    fn digests(&self, stage: usize) -> Vec<u64> {
        let layout = self.plan.layout;
        let digest = |node: usize| self.nodes[node].store(stage).expect("in the group").state.digest(&layout);
        self.plan.group(stage).map(digest).collect()
    }

    fn assert_equal_replicas(&self) {
        for stage in 0..self.plan.stages() {
            let digests = self.digests(stage);
            assert!(digests.iter().all(|digest| *digest == digests[0]), "stage {stage}");
        }
    }

    fn serials(&self, key: u8) -> Vec<u32> {
        let of_flow = self.released.iter().map(Packet::frame).filter(|bytes| bytes[0] == key);
        of_flow.map(|b| u32::from_le_bytes(b[b.len() - 4..].try_into().unwrap())).collect()
    }
}

fn plan(stages: usize, f: usize) -> Plan {
    let mut plan = Plan::new(stages, f).expect("small");
    plan.layout.partitions = 8;
    plan
}

fn count(node: &Node, stage: usize, key: u8) -> Option<u64> {
    node.store(stage)?.state.downcast::<Counts>()?.counts.inspect(&key)
}

fn refused(node: &Node, reason: &str) -> u64 {
    node.stats().refused.sorted().iter().find(|(name, _)| *name == reason).map_or(0, |(_, count)| *count)
}
