//! Crashes, their detection, and the replacement of nodes.

use std::sync::Arc;
use std::time::Instant;

use pannier_runtime::packet::Kind;
use pannier_runtime::ring::{Node, Standing};
use serde::Serialize;

use super::Chain;

/// Turns after which a silent node is declared dead.
const SILENT_TURNS: u64 = 2;

/// A node's time without its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    since: u64,
    at_packet: u64,
    started: Instant,
    state_bytes: u64,
    /// Frames that the chain had lost before.
    lost_before: u64,
}

/// A node that was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recovery {
    /// The node's number.
    pub node: usize,
    /// The stage that it runs; `None` for a node that only replicates.
    pub stage: Option<String>,
    /// How many packets the chain had admitted when the node died.
    pub at_packet: u64,
    /// Bytes of state that the replacement fetched.
    pub state_bytes: u64,
    /// Microseconds from the crash until the replacement had all state, detection included.
    pub micros: u64,
    /// Frames that died in the node, on its links, or because of it. Where outages overlap, the one that ends first
    /// counts them.
    pub frames_lost: u64,
}

impl Chain {
    /// Kills a node: everything in it is gone, and what is under way to it dies as it arrives. It is declared dead a
    /// few turns later and replaced.
    pub fn crash(&mut self, index: usize) {
        let at_packet = self.admitted;
        let lost_before = self.frames_lost();
        let Some(slot) = self.slots.get_mut(index) else { return };
        let Some(node) = slot.node.take() else { return };
        slot.past.add(&node.stats());
        self.lost += node.frames_inside() as u64;
        let started = Instant::now();
        let outage = Outage { since: self.turns, at_packet, started, state_bytes: 0, lost_before };
        // A replacement that dies again goes on with its first outage's account.
        let earlier = slot.outage.take();
        slot.outage = Some(earlier.map_or(outage, |earlier| Outage { since: self.turns, ..earlier }));
    }

    /// Declares silent nodes dead, and lets replacements join one after the other.
    pub(super) fn watch(&mut self) {
        let known = self.orchestrator.view().number;
        for (index, slot) in self.slots.iter().enumerate() {
            let silent =
                slot.node.is_none() && slot.outage.is_some_and(|o| self.turns >= o.since + SILENT_TURNS);
            if silent {
                self.orchestrator.declare_dead(index);
            }
        }
        let joins = self.orchestrator.admit();
        if self.orchestrator.view().number == known {
            return;
        }
        self.announce();
        if let Some(index) = joins {
            let view = self.orchestrator.view().clone();
            let mut node =
                Node::replacement(index, self.plan, Arc::clone(&self.nfs), view, self.now, &mut self.out);
            if let Some(recorder) = &self.recorder {
                node.set_recorder(|| recorder(index));
            }
            self.slots[index].node = Some(node);
            self.route(index);
        }
    }

    /// Has every node adopt the newest view.
    fn announce(&mut self) {
        for index in 0..self.slots.len() {
            if let Some(node) = &mut self.slots[index].node {
                node.adopt(self.orchestrator.view(), &mut self.out);
                self.route(index);
            }
        }
    }

    /// A replacement has all its state: a new view, and the account of its outage.
    pub(super) fn back_up(&mut self, index: usize) {
        let Some(node) = &self.slots[index].node else { return };
        self.orchestrator.caught_up(index, node.incarnation());
        debug_assert_eq!(self.orchestrator.view().members[index].standing, Standing::Up);
        self.announce();
        let Some(outage) = self.slots[index].outage.take() else { return };
        let counted: u64 = self.recoveries.iter().map(|recovery| recovery.frames_lost).sum();
        self.recoveries.push(Recovery {
            node: index,
            stage: self.names.get(index).cloned(),
            at_packet: outage.at_packet,
            state_bytes: outage.state_bytes,
            micros: u64::try_from(outage.started.elapsed().as_micros()).unwrap_or(u64::MAX),
            frames_lost: self.frames_lost() - outage.lost_before.max(counted),
        });
    }

    /// Counts the state that reaches a replacement.
    pub(super) fn count_snapshots(&mut self, index: usize) {
        if let Some(outage) = &mut self.slots[index].outage {
            let snapshots = self.inbox.iter().filter(|packet| packet.meta.kind == Kind::Snapshot);
            outage.state_bytes += snapshots.map(|packet| packet.frame().len() as u64).sum::<u64>();
        }
    }

    /// Frames lost because of crashes and full bounds so far; what link faults took is not among them.
    pub(super) fn frames_lost(&self) -> u64 {
        let nodes =
            self.slots.iter().map(|slot| slot.past.lost + slot.node.as_ref().map_or(0, |n| n.stats().lost));
        self.lost + nodes.sum::<u64>()
    }
}
