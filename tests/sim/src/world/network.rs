//! The links: what is under way, and what becomes of it.

use pannier_runtime::ring::{Node, Output};
use pannier_runtime::{Packet, packet::Kind};

use super::World;
use crate::check::{self, Broken};
use crate::provenance::{number, path};
use crate::timeline::{describe, short};

/// Messages beyond which links lose what is sent.
const CROWDED: usize = 400;

/// Whether a message is an acknowledgement: idle links exchange them without end.
pub(super) fn is_acknowledgement(packet: &Packet) -> bool {
    packet.meta.kind == Kind::Acknowledge
}

impl World {
    /// The index of the message that `at` picks of the oldest ones.
    pub(super) fn pick(&self, at: u8) -> Option<usize> {
        usize::from(at).checked_rem(self.network.len().min(self.reach))
    }

    /// Delivers a message, and later ones to the same node in the same burst.
    pub(super) fn deliver(&mut self, at: u8, most: u8) {
        let Some(at) = self.pick(at).filter(|&at| !self.paused[self.network[at].0]) else { return };
        let (to, first) = self.network.remove(at);
        self.note(|| format!("      {}", describe(to, &first)));
        let shard = self.shard_of(to, &first);
        let mut burst = vec![first];
        while burst.len() < usize::from(most) {
            let same = |(other, packet): &(usize, Packet)| *other == to && self.shard_of(to, packet) == shard;
            let Some(at) = self.network.iter().take(self.reach).position(same) else {
                break;
            };
            let (_, next) = self.network.remove(at);
            self.note(|| format!("      {}", describe(to, &next)));
            burst.push(next);
        }
        self.accept(to, burst);
    }

    pub(super) fn lose(&mut self, at: u8) {
        if let Some(at) = self.pick(at) {
            let (to, lost) = self.network.remove(at);
            self.note(|| format!("      {}", describe(to, &lost)));
        }
    }

    pub(super) fn double(&mut self, at: u8) {
        if let Some(at) = self.pick(at) {
            let twin = self.network[at].clone();
            self.note(|| format!("      {}", describe(twin.0, &twin.1)));
            self.network.insert(at, twin);
        }
    }

    pub(super) fn delay(&mut self, at: u8) {
        if let Some(at) = self.pick(at) {
            let late = self.network.remove(at);
            self.note(|| format!("      {}", describe(late.0, &late.1)));
            self.aside.push(late);
        }
    }

    /// What was meant for the place of a node, for its ghost.
    pub(super) fn meant_for(&self, index: usize) -> Vec<Packet> {
        let mine = self.network.iter().take(2 * self.reach).filter(|(to, _)| *to == index);
        mine.map(|(_, packet)| packet.clone()).collect()
    }

    /// Sends what a node wants sent, lets out what it lets out, and looks at the promises that this touches.
    pub(super) fn route(&mut self, index: usize, mut out: Output, is_ghost: bool) {
        let (before, after) = (self.plan.predecessor(index), self.plan.successor(index));
        let room = CROWDED.saturating_sub(self.network.len());
        let (cut_before, cut_after) = (self.cut[before], self.cut[index]);
        let forward = out.forward.drain(..).map(|packet| (after, packet)).filter(|_| !cut_after);
        let backward = out.backward.drain(..).map(|packet| (before, packet)).filter(|_| !cut_before);
        let sent: Vec<(usize, Packet)> = forward.chain(backward).take(room).collect();
        let calm = self.calm;
        for (to, packet) in sent.iter().filter(|(_, packet)| !calm || !is_acknowledgement(packet)) {
            self.note(|| format!("        sends {}", describe(*to, packet)));
        }
        self.network.extend(sent);
        self.control.append(&mut out.control);
        let paths: Vec<Vec<u64>> = out.released.iter().map(|packet| path(packet.frame())).collect();
        let mut held = check::let_out(self, &paths);
        for packet in out.released.iter().map(|packet| short(number(packet.frame()))) {
            self.note(|| format!("        lets packet {packet} out at node {index}"));
        }
        out.released.drain(..).for_each(|packet| out.pool.give(packet));
        self.released.extend(paths);
        let caught_up = std::mem::take(&mut out.caught_up);
        if let Some(stage) = out.unrecoverable.take().filter(|_| !is_ghost) {
            let what = format!("node {index} finds nobody who holds stage {stage}");
            self.broken.get_or_insert(Broken { promise: "released", what });
        }
        self.spare.0 = out;
        if !is_ghost && caught_up {
            self.recoveries += 1;
            self.note(|| format!("        node {index} has caught up"));
            let incarnation = self.nodes[index].as_ref().map_or(0, Node::incarnation);
            self.orchestrator.caught_up(index, incarnation);
            self.announce();
            held = held.and_then(|()| check::all(self));
        }
        if !is_ghost {
            let mut watch = std::mem::take(&mut self.watch);
            held = held.and_then(|()| watch.look(self, index));
            self.watch = watch;
        }
        if let Err(broken) = held {
            self.broken.get_or_insert(broken);
        }
    }
}
