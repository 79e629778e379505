//! What looks after a live chain: failures, views, replacements, the number of shards, and the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded, unbounded};
use pannier_runtime::clock::Nanos;
use pannier_runtime::packet::{Kind, Pool};
use pannier_runtime::port::{Port, PortContext};
use pannier_runtime::ring::{Node, Output, SharedNode, Standing};
use pannier_runtime::shard::{Hold, LaneLinks, Order, Shard, Told};

use super::{Live, LiveOutcome};
use crate::chain::summary::Account;
use crate::chain::{Packets, Recovery};

/// How often nodes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How long the end may wait for what is under way.
const DRAIN: Duration = Duration::from_secs(5);

/// How long a shard may take to do as it is told: many times the longest turn.
const OBEDIENCE: Duration = Duration::from_secs(5);

/// A node's time without its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    started: Instant,
    at_packet: u64,
    lost_before: u64,
    state_before: u64,
}

impl Live {
    /// Looks after the chain for a while.
    pub fn watch(&mut self, how_long: Duration) {
        let end = Instant::now() + how_long;
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            if let Ok((node, told)) = self.told.recv_timeout(rest.min(LOOK_EVERY)) {
                self.hear(node, told);
            }
            while let Ok((node, told)) = self.told.try_recv() {
                self.hear(node, told);
            }
            self.look();
            if rest.is_zero() {
                return;
            }
        }
    }

    fn hear(&mut self, node: usize, told: Told) {
        match told {
            Told::CaughtUp => self.caught_up(node),
            Told::Unrecoverable(stage) => self.unrecoverable = self.unrecoverable.or(Some(stage)),
            Told::Panicked(message) => {
                self.warnings.push(format!("node {node} panicked and is replaced: {message}"));
                self.crash(node);
            }
        }
    }

    /// Looks for nodes that give no sign.
    fn look(&mut self) {
        let now = Instant::now();
        for node in 0..self.places.len() {
            let beats = self.places[node].beats();
            if beats != self.beats[node].0 {
                self.beats[node] = (beats, now);
            } else if now - self.beats[node].1 > self.options.patience {
                self.beats[node].1 = now;
                self.warnings.push(format!("node {node} gave no sign and is replaced"));
                self.crash(node);
            }
        }
    }

    /// Kills a node: everything in it is gone. It is replaced at once, unless another is being replaced. Returns false,
    /// and does nothing, where the ring would not survive it.
    pub fn crash(&mut self, node: usize) -> bool {
        let is_down = |index: usize| self.outages[index].is_some();
        let others = (0..self.places.len()).filter(|&index| index != node && is_down(index)).count();
        if node >= self.places.len() || others >= self.plan.f() {
            return false;
        }
        self.tell_all(node, || Order::Crash);
        let outage = Outage {
            started: Instant::now(),
            at_packet: self.entered(),
            lost_before: self.places.iter().map(|place| place.lost()).sum(),
            state_before: self.places[node].state_bytes(),
        };
        self.outages[node].get_or_insert(outage);
        self.orchestrator.declare_dead(node);
        self.replace();
        true
    }

    /// Lets a replacement begin, and has every node adopt the newest view.
    fn replace(&mut self) {
        let joins = self.orchestrator.admit();
        self.announce();
        let Some(index) = joins else { return };
        let (view, mut out) = (self.orchestrator.view().clone(), Output::default());
        let now = self.clock.now();
        let node = Node::replacement(index, self.plan, Arc::clone(&self.nfs), view, now, &mut out);
        match self.shards[index].len() {
            1 => self.tell(index, Order::Replace(Hold::Alone(Box::new(node)), out)),
            _ => {
                let shared = Arc::new(SharedNode::from(node));
                let rest = self.shards[index].iter().skip(1);
                for shard in rest {
                    let order = Order::Replace(Hold::Shared(Arc::clone(&shared)), Output::default());
                    let _ = shard.send(order); // shards live as long as the chain
                }
                self.tell(index, Order::Replace(Hold::Shared(shared), out));
            }
        }
    }

    fn announce(&self) {
        for node in 0..self.shards.len() {
            self.tell(node, Order::Adopt(self.orchestrator.view().clone()));
        }
    }

    fn caught_up(&mut self, node: usize) {
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
                micros: u64::try_from(outage.started.elapsed().as_micros()).unwrap_or(u64::MAX),
                frames_lost: lost - outage.lost_before,
            });
        }
        self.replace(); // another may be waiting for its turn
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
    pub fn set_shards(&mut self, node: usize, count: usize) {
        let count = count.clamp(1, self.plan.lanes);
        let (mut lanes, hold) = self.collect(node);
        let hold = match (hold, count) {
            (Hold::Shared(shared), 1) => match Arc::try_unwrap(shared) {
                Ok(shared) => Hold::Alone(Box::new(shared.into())),
                Err(shared) => Hold::Shared(shared), // a shard that did not obey: it is dead, and others follow it
            },
            (Hold::Alone(alone), 2..) => Hold::Shared(Arc::new(SharedNode::from(*alone))),
            (hold, _) => hold,
        };
        let kept = count.min(self.shards[node].len());
        for ended in self.shards[node].split_off(kept) {
            let _ = ended.send(Order::End);
        }
        while self.shards[node].len() < count {
            let (to, mailbox) = unbounded();
            let shard = Shard::new(self.places[node].clone(), mailbox, self.depot.clone());
            self.workers[self.home(node, self.shards[node].len())].add(Box::new(shard));
            self.shards[node].push(to);
        }
        lanes.sort_by_key(|lane| lane.number);
        let mut parts: Vec<Vec<LaneLinks>> = (0..count).map(|_| Vec::new()).collect();
        lanes.into_iter().for_each(|lane| parts[lane.number % count].push(lane));
        let mut hold = Some(hold);
        for (at, part) in parts.into_iter().enumerate().rev() {
            let share = match hold.as_ref() {
                Some(Hold::Shared(shared)) => Hold::Shared(Arc::clone(shared)),
                Some(Hold::Alone(_)) if at == 0 => hold.take().unwrap_or(Hold::Nobody),
                _ => Hold::Nobody,
            };
            let _ = self.shards[node][at].send(Order::Take(part, share, at == 0));
        }
    }

    /// How many shards run a node.
    pub fn shards(&self, node: usize) -> usize {
        self.shards[node].len()
    }

    /// Takes all lanes of a node, and the node, from its shards.
    fn collect(&self, node: usize) -> (Vec<LaneLinks>, Hold) {
        let (mut lanes, mut hold) = (Vec::new(), Hold::Nobody);
        let ask = |shard: &Sender<Order>| {
            let (reply, answer) = bounded(1);
            let _ = shard.send(Order::Yield(reply));
            answer
        };
        let answers: Vec<_> = self.shards[node].iter().map(ask).collect();
        for answer in answers {
            let Ok((part, of_shard)) = answer.recv_timeout(OBEDIENCE) else { continue };
            lanes.extend(part);
            if !matches!(of_shard, Hold::Nobody) {
                hold = of_shard; // of a shared node all hold the same
            }
        }
        (lanes, hold)
    }

    /// Ends the chain: takes no more packets, lets those leave that are inside, and sums up.
    pub fn finish(mut self) -> LiveOutcome {
        self.edges.iter().for_each(|edge| edge.closed.store(true, Ordering::Relaxed));
        let (end, mut still) = (Instant::now() + DRAIN, 0);
        while still < 5 && Instant::now() < end {
            let before = (self.left(), self.outages.iter().flatten().count());
            self.watch(2 * LOOK_EVERY);
            let rests = self.places.iter().all(|place| place.rests(self.plan.lanes));
            let same = before == (self.left(), 0);
            still = if rests && same { still + 1 } else { 0 };
        }
        let held: Vec<(Vec<LaneLinks>, Hold)> =
            (0..self.places.len()).map(|node| self.collect(node)).collect();
        self.ended.store(true, Ordering::Relaxed);
        (0..self.places.len()).for_each(|node| self.tell_all(node, || Order::End));
        self.workers.clear(); // waits for all actors to end, the edges' last words included
        self.sum_up(held)
    }

    fn sum_up(self, held: Vec<(Vec<LaneLinks>, Hold)>) -> LiveOutcome {
        let mut lost: u64 = self.places.iter().map(|place| place.lost()).sum();
        let mut doubled = 0;
        let (mut nodes, mut under_way) = (Vec::new(), Vec::new());
        let context = &mut PortContext { now: Nanos::MAX, pool: &mut Pool::default() };
        for (lanes, hold) in held {
            for mut lane in lanes {
                for link in [&mut lane.before, &mut lane.after].into_iter().flatten() {
                    let Ok(_) = link.rx_burst(usize::MAX, context, &mut under_way);
                    lost += link.inner().lost() + link.counts().lost;
                    doubled += link.counts().duplicated;
                }
                for side in [&mut lane.inside, &mut lane.outside].into_iter().flatten() {
                    let Ok(_) = side.rx_burst(usize::MAX, context, &mut under_way);
                    lost += side.lost();
                }
            }
            nodes.push(match hold {
                Hold::Alone(node) => Some(*node),
                Hold::Shared(shared) => Arc::try_unwrap(shared).ok().map(Node::from),
                Hold::Nobody => None,
            });
        }
        let under_way = under_way.iter().filter(|packet| packet.meta.kind == Kind::Frame).count() as u64;
        let nodes = self.places.iter().zip(&nodes).map(|(place, node)| (place.past(), node.as_ref()));
        let nodes: Vec<_> = nodes.collect();
        lost += nodes.iter().map(|(past, node)| past.lost + node.map_or(0, |n| n.stats().lost)).sum::<u64>();
        lost += self.edges.iter().map(|edge| edge.lost()).sum::<u64>();
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
        for edge in &self.edges {
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
        let ports = [self.edges[0].stats(), self.edges[1].stats()];
        LiveOutcome { summary, broken, ports, port_error: self.port_error() }
    }
}

impl Drop for Live {
    /// Lets all actors end; the workers wait for them.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        (0..self.places.len()).for_each(|node| self.tell_all(node, || Order::End));
        if thread::panicking() {
            std::mem::take(&mut self.workers).into_iter().for_each(std::mem::forget);
        }
    }
}
