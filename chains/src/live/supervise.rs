//! What looks after a live chain: failures, views, replacements, the number of shards, and the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
use pannier_runtime::clock::{Nanos, Now};
use pannier_runtime::packet::{Depot, Kind, Pool};
use pannier_runtime::port::{Port, PortContext, PortError, PortStats};
use pannier_runtime::ring::{Node, Orchestrator, Output, Plan, SharedNode, Standing};
use pannier_runtime::shard::{Actor, LaneLinks, NodeHandle, Order, Place, Shard, Told};
use pannier_runtime::{AnyNf, Direction};

use super::LiveOutcome;
use super::edge::EdgeState;
use crate::chain::summary::Account;
use crate::chain::{Packets, Recovery};

/// How long the end waits for what is under way, and for a shard that is to answer: as long as a node may give no sign, but
/// for this time at least and at most. In nanoseconds; the least is many times the longest turn.
const LEAST_WAIT: Nanos = 5_000_000_000;
const MOST_WAIT: Nanos = 60_000_000_000;

/// How long nothing must have happened at the end, in nanoseconds.
const STILL: Nanos = 10_000_000;

/// How many turns each actor must have had in which nothing happened at the end, for each node: what is on a link is seen
/// when the node behind it has its turn, and a machine may be too busy to give it one for long.
const STILL_TURNS: u64 = 2;

/// Where the actors of a chain get their turns: threads, or whoever plays them in one.
pub trait Host {
    /// The time.
    fn now(&self) -> Now;
    /// Gives a shard of a node, by its number, turns from now on. Those of this number and above that it had have ended.
    fn add_shard(&mut self, node: usize, shard: usize, actor: Box<dyn Actor>);
    /// Gives an edge turns from now on: where packets of a `direction` enter, beside the shards with the number `column`.
    fn add_edge(&mut self, direction: Direction, column: usize, actor: Box<dyn Actor>);
    /// Lets actors go on for a moment; time passes.
    fn wait(&mut self);
    /// Lets actors go on until all have ended.
    fn end(&mut self);
}

/// Looks after a chain. It has no thread: it does something when it is called.
pub struct Supervisor {
    pub(super) plan: Plan,
    pub(super) names: Vec<String>,
    pub(super) nfs: Arc<[Arc<dyn AnyNf>]>,
    pub(super) orchestrator: Orchestrator,
    pub(super) places: Vec<Arc<Place>>,
    /// By node: the mailboxes of its shards; the first leads.
    pub(super) shards: Vec<Vec<Sender<Order>>>,
    pub(super) told: Receiver<(usize, Told)>,
    /// By side, inside first, and queue.
    pub(super) edges: [Vec<Arc<EdgeState>>; 2],
    pub(super) ended: Arc<AtomicBool>,
    /// By column: where its pools hand packets to each other.
    pub(super) depots: Vec<Arc<Depot>>,
    pub(super) outages: Vec<Option<Outage>>,
    /// By node: the signs of life that it has given, and when the last one came.
    pub(super) beats: Vec<(u64, Nanos)>,
    /// When nodes were looked at last.
    pub(super) looked: Nanos,
    pub(super) patience: Nanos,
    pub(super) recoveries: Vec<Recovery>,
    pub(super) unrecoverable: Option<usize>,
    pub(super) warnings: Vec<String>,
}

/// A node's time without its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    started: Nanos,
    at_packet: u64,
    lost_before: u64,
    state_before: u64,
}

impl Supervisor {
    /// The geometry and the bounds.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Packets that have entered the chain so far, on both sides.
    pub fn entered(&self) -> u64 {
        self.edges().map(|edge| edge.entered.load(Ordering::Relaxed)).sum()
    }

    /// Packets that have left the chain so far, on both sides.
    pub fn left(&self) -> u64 {
        self.edges().map(|edge| edge.left.load(Ordering::Relaxed)).sum()
    }

    /// The edges of both sides.
    fn edges(&self) -> impl Iterator<Item = &Arc<EdgeState>> {
        self.edges.iter().flatten()
    }

    /// Nodes that were replaced and have all their state again.
    pub fn recoveries(&self) -> &[Recovery] {
        &self.recoveries
    }

    /// Nodes that are dead, or have not got their state yet.
    pub fn down(&self) -> usize {
        self.outages.iter().flatten().count()
    }

    /// A stage whose store nobody had any more.
    pub fn unrecoverable(&self) -> Option<usize> {
        self.unrecoverable
    }

    /// Why a port can't go on, if one can't.
    pub fn port_error(&self) -> Option<PortError> {
        self.edges().find_map(|edge| edge.failed())
    }

    /// Does at once what is to be done: hears the shards, and looks at the nodes.
    pub fn watch(&mut self, host: &mut dyn Host) {
        while let Ok((node, told)) = self.told.try_recv() {
            self.hear(node, told, host);
        }
        self.look(host);
    }

    /// Waits until a shard has something to tell, and hears it.
    pub(super) fn listen(&mut self, most: Duration, host: &mut dyn Host) {
        if let Ok((node, told)) = self.told.recv_timeout(most) {
            self.hear(node, told, host);
        }
    }

    fn hear(&mut self, node: usize, told: Told, host: &mut dyn Host) {
        let is_now = |incarnation| self.orchestrator.view().members[node].incarnation == incarnation;
        match told {
            Told::CaughtUp(incarnation) if is_now(incarnation) => self.caught_up(node, host),
            Told::Unrecoverable(stage) => self.unrecoverable = self.unrecoverable.or(Some(stage)),
            Told::Panicked(incarnation, message) if is_now(incarnation) => {
                self.warnings.push(format!("node {node} panicked and is replaced: {message}"));
                self.bury(node, host); // dead is dead, whether the ring survives it or not
            }
            Told::CaughtUp(_) | Told::Panicked(..) => {} // of a node that has been replaced
        }
    }

    /// Looks for nodes that give no sign. Where nobody looked for so long that all may have stood still, patience begins anew.
    fn look(&mut self, host: &mut dyn Host) {
        let now = host.now().timer;
        let stood_still = now - self.looked > self.patience;
        self.looked = now;
        for node in 0..self.places.len() {
            let beats = self.places[node].beats();
            if beats != self.beats[node].0 || stood_still {
                self.beats[node] = (beats, now);
            } else if now - self.beats[node].1 > self.patience {
                self.beats[node].1 = now;
                self.warnings.push(format!("node {node} gave no sign and is replaced"));
                self.crash(node, host);
            }
        }
    }

    /// Kills a node: everything in it is gone. It is replaced at once, unless another is being replaced. Returns false,
    /// and does nothing, where the ring would not survive it.
    pub fn crash(&mut self, node: usize, host: &mut dyn Host) -> bool {
        let is_down = |index: usize| self.outages[index].is_some();
        let others = (0..self.places.len()).filter(|&index| index != node && is_down(index)).count();
        if node >= self.places.len() || others >= self.plan.f() {
            return false;
        }
        self.bury(node, host);
        true
    }

    fn bury(&mut self, node: usize, host: &mut dyn Host) {
        self.tell_all(node, || Order::Crash);
        let outage = Outage {
            started: host.now().timer,
            at_packet: self.entered(),
            lost_before: self.places.iter().map(|place| place.lost()).sum(),
            state_before: self.places[node].state_bytes(),
        };
        self.outages[node].get_or_insert(outage);
        self.orchestrator.declare_dead(node);
        self.replace(host);
    }

    /// Lets a replacement begin, and has every node adopt the newest view.
    fn replace(&mut self, host: &mut dyn Host) {
        let joins = self.orchestrator.admit();
        self.announce();
        let Some(index) = joins else { return };
        let (view, mut out) = (self.orchestrator.view().clone(), Output::default());
        let now = host.now();
        let node = Node::replacement(index, self.plan, Arc::clone(&self.nfs), view, now, &mut out);
        match self.shards[index].len() {
            1 => self.tell(index, Order::Replace(NodeHandle::Alone(Box::new(node)), out)),
            _ => {
                let shared = Arc::new(SharedNode::from(node));
                let rest = self.shards[index].iter().skip(1);
                for shard in rest {
                    let order = Order::Replace(NodeHandle::Shared(Arc::clone(&shared)), Output::default());
                    let _ = shard.send(order); // shards live as long as the chain
                }
                self.tell(index, Order::Replace(NodeHandle::Shared(shared), out));
            }
        }
    }

    fn announce(&self) {
        for node in 0..self.shards.len() {
            self.tell(node, Order::Adopt(self.orchestrator.view().clone()));
        }
    }

    fn caught_up(&mut self, node: usize, host: &mut dyn Host) {
        let member = self.orchestrator.view().members[node];
        if member.standing != Standing::Joining {
            return;
        }
        self.orchestrator.caught_up(node, member.incarnation);
        if let Some(outage) = self.outages[node].take() {
            let lost: u64 = self.places.iter().map(|place| place.lost()).sum();
            self.recoveries.push(Recovery {
                node,
                stage: self.names.get(node).cloned(),
                at_packet: outage.at_packet,
                state_bytes: self.places[node].state_bytes() - outage.state_before,
                micros: (host.now().timer - outage.started) / 1_000,
                frames_lost: lost - outage.lost_before,
            });
        }
        self.replace(host); // another may be waiting for its turn
    }

    /// Tells the shard that leads a node.
    fn tell(&self, node: usize, order: Order) {
        let _ = self.shards[node][0].send(order); // shards live as long as the chain
    }

    /// Tells all shards of a node.
    fn tell_all(&self, node: usize, order: impl Fn() -> Order) {
        self.shards[node].iter().for_each(|shard| drop(shard.send(order())));
    }

    /// Lets `count` shards run a node from now on, at most as many as there are lanes. What is under way stays under way,
    /// and no flow changes its lane.
    pub fn set_shards(&mut self, node: usize, count: usize, host: &mut dyn Host) {
        let count = count.clamp(1, self.plan.lanes);
        let (mut lanes, handle) = self.collect(node, host);
        let handle = match (handle, count) {
            (NodeHandle::Shared(shared), 1) if !shared.has_panicked() => match Arc::try_unwrap(shared) {
                Ok(shared) => NodeHandle::Alone(Box::new(shared.into())),
                Err(shared) => NodeHandle::Shared(shared), // a shard that did not obey: it is dead, and others follow it
            },
            (NodeHandle::Alone(alone), 2..) => NodeHandle::Shared(Arc::new(SharedNode::from(*alone))),
            (handle, _) => handle,
        };
        let kept = count.min(self.shards[node].len());
        for ended in self.shards[node].split_off(kept) {
            let _ = ended.send(Order::End);
        }
        while self.shards[node].len() < count {
            let (to, mailbox) = unbounded();
            let number = self.shards[node].len();
            let shard = Shard::new(self.places[node].clone(), mailbox, self.depot(number));
            host.add_shard(node, number, Box::new(shard));
            self.shards[node].push(to);
        }
        lanes.sort_by_key(|lane| lane.number);
        let mut parts: Vec<Vec<LaneLinks>> = (0..count).map(|_| Vec::new()).collect();
        lanes.into_iter().for_each(|lane| parts[lane.number % count].push(lane));
        let mut handle = Some(handle);
        for (at, part) in parts.into_iter().enumerate().rev() {
            let share = match handle.as_ref() {
                Some(NodeHandle::Shared(shared)) => NodeHandle::Shared(Arc::clone(shared)),
                Some(NodeHandle::Alone(_)) if at == 0 => handle.take().unwrap_or(NodeHandle::Nobody),
                _ => NodeHandle::Nobody,
            };
            let _ = self.shards[node][at].send(Order::Take(part, share, at == 0));
        }
    }

    /// How many shards run a node.
    pub fn shards(&self, node: usize) -> usize {
        self.shards[node].len()
    }

    /// The depot of a shard, or of an edge in a column.
    pub(super) fn depot(&self, column: usize) -> Arc<Depot> {
        Arc::clone(&self.depots[column % self.depots.len()])
    }

    /// Takes all lanes of a node, and the node, from its shards.
    fn collect(&mut self, node: usize, host: &mut dyn Host) -> (Vec<LaneLinks>, NodeHandle) {
        let (mut lanes, mut handle) = (Vec::new(), NodeHandle::Nobody);
        let ask = |shard: &Sender<Order>| {
            let (reply, answer) = bounded(1);
            let _ = shard.send(Order::Yield(reply));
            answer
        };
        let answers: Vec<_> = self.shards[node].iter().map(ask).collect();
        for answer in answers {
            let answer = await_answer(&answer, self.longest_wait(), host);
            let Some((part, of_shard)) = answer else { continue };
            lanes.extend(part);
            if !matches!(of_shard, NodeHandle::Nobody) {
                handle = of_shard; // of a shared node all have the same
            }
        }
        if lanes.len() < self.plan.lanes {
            self.warnings
                .push(format!("a shard of node {node} did not answer; what it has is not accounted for"));
        }
        (lanes, handle)
    }

    /// Ends the chain: takes no more packets, lets those leave that are inside, and sums up.
    pub fn finish(mut self, host: &mut dyn Host) -> LiveOutcome {
        self.edges().for_each(|edge| edge.closed.store(true, Ordering::Relaxed));
        let end = host.now().timer.saturating_add(self.longest_wait());
        let enough = STILL_TURNS * (self.places.len() as u64 + 2); // the edges too
        let (mut before, mut since, mut turns) = (self.left(), host.now().timer, self.turns());
        // What waits for a state that is lost waits for ever.
        while self.unrecoverable.is_none() && host.now().timer < end {
            let all_had_turns = self.turns().iter().zip(&turns).all(|(now, then)| now - then >= enough);
            if all_had_turns && host.now().timer - since >= STILL {
                break;
            }
            host.wait();
            self.watch(host);
            let rests = self.places.iter().all(|place| place.rests(self.plan.lanes));
            let same = (self.left(), self.down()) == (before, 0);
            if !(rests && same) {
                (before, since, turns) = (self.left(), host.now().timer, self.turns());
            }
        }
        let held: Vec<(Vec<LaneLinks>, NodeHandle)> =
            (0..self.places.len()).map(|node| self.collect(node, host)).collect();
        self.end();
        host.end(); // the edges' last words included
        self.sum_up(held)
    }

    /// Longest wait for what is under way, or for a shard's answer.
    fn longest_wait(&self) -> Nanos {
        self.patience.clamp(LEAST_WAIT, MOST_WAIT)
    }

    /// The turns that each actor has had so far.
    fn turns(&self) -> Vec<u64> {
        let shards = self.places.iter().zip(&self.shards);
        let shards = shards.flat_map(|(place, shards)| (0..shards.len()).map(|shard| place.beats_of(shard)));
        shards.chain(self.edges().map(|edge| edge.beats.load(Ordering::Relaxed))).collect()
    }

    /// Lets all actors end.
    fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        (0..self.places.len()).for_each(|node| self.tell_all(node, || Order::End));
    }

    fn sum_up(&self, held: Vec<(Vec<LaneLinks>, NodeHandle)>) -> LiveOutcome {
        let mut lost: u64 = self.places.iter().map(|place| place.lost()).sum();
        let mut doubled = 0;
        let (mut nodes, mut under_way) = (Vec::new(), Vec::new());
        let context = &mut PortContext { now: Nanos::MAX, pool: &mut Pool::default() };
        for (lanes, handle) in held {
            for mut lane in lanes {
                for link in [&mut lane.before, &mut lane.after].into_iter().flatten() {
                    let Ok(_) = link.rx_burst(usize::MAX, context, &mut under_way);
                    lost += link.inner().lost() + link.counts().lost;
                    doubled += link.counts().duplicated;
                }
                for side in lane.inside.iter_mut().chain(&mut lane.outside) {
                    let Ok(_) = side.rx_burst(usize::MAX, context, &mut under_way);
                    lost += side.lost();
                }
            }
            nodes.push(match handle {
                NodeHandle::Alone(node) => Some(*node),
                NodeHandle::Shared(shared) => Arc::try_unwrap(shared).ok().map(Node::from),
                NodeHandle::Nobody => None,
            });
        }
        let under_way = under_way.iter().filter(|packet| packet.meta.kind == Kind::Frame).count() as u64;
        let nodes = self.places.iter().zip(&nodes).map(|(place, node)| (place.past(), node.as_ref()));
        let nodes: Vec<_> = nodes.collect();
        lost += nodes.iter().map(|(past, node)| past.lost + node.map_or(0, |n| n.stats().lost)).sum::<u64>();
        lost += self.edges().map(|edge| edge.lost()).sum::<u64>();
        let account = Account {
            plan: &self.plan,
            names: &self.names,
            packets: Packets {
                entered: self.entered(),
                duplicated: doubled,
                released: self.left(),
                held: under_way
                    + nodes
                        .iter()
                        .flat_map(|(_, node)| node)
                        .map(|node| node.frames_inside() as u64)
                        .sum::<u64>(),
                lost,
                ..Packets::default()
            },
            nodes,
            unrecoverable: self.unrecoverable.map(|stage| self.names[stage].as_str()),
            recoveries: &self.recoveries,
        };
        let (mut summary, broken) = (account.summary(), account.broken_promises());
        for edge in self.edges() {
            for (reason, count) in edge.refused().sorted() {
                summary.packets.dropped += count;
                *summary
                    .drops
                    .entry("ingress".to_owned())
                    .or_default()
                    .entry(reason.to_owned())
                    .or_default() += count;
            }
        }
        summary.warnings = self.warnings.clone();
        let ports = [0, 1].map(|side: usize| {
            let mut sum = PortStats::default();
            self.edges[side].iter().for_each(|edge| sum.add(&edge.stats()));
            sum
        });
        LiveOutcome { summary, broken, ports, port_error: self.port_error() }
    }
}

/// Waits for what a shard answers, but not for ever.
fn await_answer<T>(answer: &Receiver<T>, most: Nanos, host: &mut dyn Host) -> Option<T> {
    let end = host.now().timer.saturating_add(most);
    loop {
        match answer.try_recv() {
            Ok(answer) => return Some(answer),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) if host.now().timer > end => return None,
            Err(TryRecvError::Empty) => host.wait(),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end();
    }
}
