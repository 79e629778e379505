//! What happens to nodes: turns, views, deaths, replacements.

use std::sync::Arc;

use pannier_runtime::packet::Kind;
use pannier_runtime::ring::{Node, Output, SharedNode, View};
use pannier_runtime::{Direction, Packet};

use super::{MOST_GHOSTS, World};
use crate::event::Event;
use crate::provenance::FLOWS;
use crate::timeline::describe;

/// The lane of a flow.
fn lane(flow: u32, lanes: usize) -> u8 {
    (flow as usize % lanes) as u8
}

impl World {
    /// Lets one thing happen. What makes no sense now does nothing.
    pub(super) fn apply(&mut self, event: &Event) {
        let count = self.nodes.len();
        let place = |node: u8| usize::from(node) % count;
        match *event {
            Event::Admit { packet, direction, count, size } => self.admit(packet, direction, count, size),
            Event::Deliver { at, most } => self.deliver(at, most),
            Event::Lose(at) => self.lose(at),
            Event::Double(at) => self.double(at),
            Event::Delay(at) => self.delay(at),
            Event::Late => self.network.extend(self.aside.pop()),
            Event::Tick { node, timer, wall } => {
                self.pass_time(u64::from(timer) * 1_000, u64::from(wall) * 1_000_000);
                self.tick(place(node));
            }
            Event::Control(at) => self.deliver_control(at),
            Event::LoseControl(at) => {
                if let Some(at) = usize::from(at).checked_rem(self.control.len()) {
                    let (to, lost) = self.control.swap_remove(at);
                    self.note(|| format!("      {}", describe(to, &lost)));
                }
            }
            Event::DoubleControl(at) => {
                if let Some(at) = usize::from(at).checked_rem(self.control.len()) {
                    let twin = self.control[at].clone();
                    self.note(|| format!("      {}", describe(twin.0, &twin.1)));
                    self.control.push(twin);
                }
            }
            Event::View(at) => self.deliver_view(at),
            Event::Crash(node) => drop(self.kill(place(node))),
            Event::Suspect(node) => {
                let room = self.ghosts.len() < MOST_GHOSTS;
                let ghost = self.kill(place(node)).filter(|_| room);
                self.ghosts.extend(ghost);
            }
            Event::Restart(node) => {
                if self.kill(place(node)).is_some() {
                    self.orchestrate();
                }
            }
            Event::Pause(node) => self.paused[place(node)] = true,
            Event::Resume => self.paused.fill(false),
            Event::Cut(node) => self.cut[place(node)] = true,
            Event::Mend => self.cut.fill(false),
            Event::Orchestrate => self.orchestrate(),
            Event::Shards { node, count } => {
                let count = (usize::from(count).max(1) - 1) % self.options.lanes + 1;
                self.shards[place(node)] = count;
            }
            Event::GhostDeliver(at) => self.ghost(at, |world, ghost, out| {
                let mut burst = world.meant_for(ghost.index());
                ghost.accept(&mut burst, world.now, out);
            }),
            Event::GhostTick(at) => self.ghost(at, |world, ghost, out| ghost.tick(world.now, out)),
            Event::GhostView(at) => {
                self.ghost(at, |world, ghost, out| ghost.adopt(world.orchestrator.view(), out));
            }
            Event::GhostStop(at) => {
                if let Some(at) = usize::from(at).checked_rem(self.ghosts.len()) {
                    self.ghosts.swap_remove(at);
                }
            }
        }
    }

    fn admit(&mut self, first: u64, direction: Direction, count: u8, size: u16) {
        let index = if direction == Direction::Outbound { 0 } else { self.plan.last() };
        let has_room = self.nodes[index].as_ref().is_some_and(Node::has_room);
        if !has_room || self.paused[index] {
            return;
        }
        let lanes = self.options.lanes;
        let burst = (first..first + u64::from(count)).map(|number| {
            let mut frame = number.to_le_bytes().to_vec();
            frame.resize(frame.len().max(usize::from(size)), 0xff);
            let mut packet = self.spare.0.pool.take();
            packet.set_frame(&frame);
            packet.meta.direction = direction;
            packet.meta.flow = (number % FLOWS) as u32;
            packet.meta.lane = lane(packet.meta.flow, lanes);
            packet.meta.time = self.now.wall;
            packet
        });
        let burst = burst.collect();
        self.accept(index, burst);
    }

    /// Lets one packet in, whatever the bounds are.
    pub(super) fn admit_one(&mut self, number: u64, direction: Direction) {
        let index = if direction == Direction::Outbound { 0 } else { self.plan.last() };
        let mut packet = self.spare.0.pool.take();
        packet.set_frame(&number.to_le_bytes());
        packet.meta.direction = direction;
        packet.meta.flow = (number % FLOWS) as u32;
        packet.meta.lane = lane(packet.meta.flow, self.options.lanes);
        packet.meta.time = self.now.wall;
        self.accept(index, vec![packet]);
    }

    /// Runs something on a node, if it is there and goes on, and takes what it wants done.
    fn turn(&mut self, index: usize, does: impl FnOnce(&mut Node, &mut Output)) {
        let Some(node) = self.nodes[index].as_mut() else { return };
        self.journal.entries().turn_of(node.incarnation());
        let mut out = std::mem::take(&mut self.spare.0);
        does(node, &mut out);
        self.route(index, out, false);
    }

    pub(super) fn accept(&mut self, index: usize, mut burst: Vec<Packet>) {
        let (now, shards) = (self.now, self.shards[index]);
        if shards == 1 {
            return self.turn(index, |node, out| node.accept(&mut burst, now, out));
        }
        let mut inboxes = vec![Vec::new(); shards];
        for packet in burst {
            inboxes[self.shard_of(index, &packet)].push(packet);
        }
        for (shard, mut inbox) in inboxes.into_iter().enumerate().filter(|(_, inbox)| !inbox.is_empty()) {
            self.turn_of_shard(index, |node, lanes, out| {
                let is_control =
                    |packet: &mut Packet| matches!(packet.meta.kind, Kind::Fetch | Kind::Snapshot);
                node.hear(&mut inbox.extract_if(.., is_control).collect(), now, out);
                for lane in (shard..lanes).step_by(shards) {
                    let mine = inbox.extract_if(.., |packet| usize::from(packet.meta.lane) == lane);
                    node.turn(lane, &mut mine.collect(), now, false, out);
                }
            });
        }
    }

    /// A turn of one of several shards. They share the node only for that time: so every turn also tries the change
    /// from one shard to several and back.
    fn turn_of_shard(&mut self, index: usize, does: impl FnOnce(&SharedNode, usize, &mut Output)) {
        let lanes = self.options.lanes;
        if let Some(node) = self.nodes[index].take() {
            self.journal.entries().turn_of(node.incarnation());
            let mut out = std::mem::take(&mut self.spare.0);
            let shared = SharedNode::from(node);
            does(&shared, lanes, &mut out);
            self.nodes[index] = Some(shared.into());
            self.route(index, out, false);
        }
    }

    /// The shard of a node that a message is for.
    pub(super) fn shard_of(&self, index: usize, packet: &Packet) -> usize {
        usize::from(packet.meta.lane) % self.shards[index]
    }

    pub(super) fn tick(&mut self, index: usize) {
        let now = self.now;
        match self.shards[index] {
            _ if self.paused[index] => {}
            1 => self.turn(index, |node, out| node.tick(now, out)),
            _ => self.turn_of_shard(index, |node, lanes, out| {
                for lane in 0..lanes {
                    node.turn(lane, &mut Vec::new(), now, true, out);
                }
                node.tick_whole(now, out);
            }),
        }
    }

    pub(super) fn adopt(&mut self, index: usize, view: &View) {
        self.turn(index, |node, out| node.adopt(view, out));
    }

    fn deliver_control(&mut self, at: u8) {
        let Some(at) = usize::from(at).checked_rem(self.control.len()) else { return };
        if !self.paused[self.control[at].0] {
            let (to, packet) = self.control.swap_remove(at);
            self.note(|| format!("      {}", describe(to, &packet)));
            self.accept(to, vec![packet]);
        }
    }

    fn deliver_view(&mut self, at: u8) {
        let Some(at) = usize::from(at).checked_rem(self.views.len()) else { return };
        if !self.paused[self.views[at].0] {
            let (to, view) = self.views.swap_remove(at);
            self.note(|| format!("      node {to} hears of view {}", view.number));
            self.adopt(to, &view);
        }
    }

    /// Every node is to hear of the newest view, each in its time.
    pub(super) fn announce(&mut self) {
        let view = self.orchestrator.view();
        self.views.retain(|(_, earlier)| !self.options.exhaustive || earlier.number > view.number);
        self.views.extend((0..self.nodes.len()).map(|to| (to, view.clone())));
    }

    /// Takes a node from its place, unless that were one too many.
    fn kill(&mut self, index: usize) -> Option<Node> {
        if self.may_lose(index) {
            self.paused[index] = false;
            self.note(|| format!("      node {index} is gone"));
            self.nodes[index].take()
        } else {
            None
        }
    }

    /// A ghost does something; nobody believes it that it has caught up.
    fn ghost(&mut self, at: u8, does: impl FnOnce(&World, &mut Node, &mut Output)) {
        let Some(at) = usize::from(at).checked_rem(self.ghosts.len()) else { return };
        let mut ghost = self.ghosts.swap_remove(at);
        let mut out = std::mem::take(&mut self.spare.0);
        self.journal.entries().turn_of(ghost.incarnation());
        does(self, &mut ghost, &mut out);
        let index = ghost.index();
        self.ghosts.push(ghost);
        self.route(index, out, true);
    }

    /// Declares dead who is dead, and lets a replacement join.
    pub(super) fn orchestrate(&mut self) {
        let before = self.orchestrator.view().number;
        for index in 0..self.nodes.len() {
            if self.nodes[index].is_none() {
                self.orchestrator.declare_dead(index);
            }
        }
        if let Some(index) = self.orchestrator.admit() {
            let view = self.orchestrator.view().clone();
            let mut out = std::mem::take(&mut self.spare.0);
            let nfs = Arc::clone(&self.nfs);
            self.note(|| {
                let incarnation = view.members[index].incarnation;
                format!("      node {index}.{incarnation} joins in view {}", view.number)
            });
            let node = Node::replacement(index, self.plan, nfs, view, self.now, &mut out);
            self.nodes[index] = Some(self.born(node));
            self.route(index, out, false);
        }
        if self.orchestrator.view().number != before {
            self.announce();
        }
    }
}
