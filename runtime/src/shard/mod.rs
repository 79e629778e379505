//! Shards: the actors that run the lanes of a node, each on one core.
//!
//! A [`Shard`] gives the lanes that it has their turns: it takes bursts from the lanes' links, hands them to the node, and
//! sends on what the node wants sent. What comes beside the ring (views, questions for state, orders to give lanes to
//! another shard) comes in its mailbox. A turn is bounded, takes no lock that another shard holds for longer than a turn,
//! and allocates nothing for a packet.
//!
//! The shards of a node are as many as somebody wants: an [`Order::Yield`] has a shard give back its lanes with all that
//! is under way on them, and [`Order::Take`] gives them to another. A flow never changes its lane, so its order stays.

mod place;
mod worker;

use std::convert::Infallible;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};

use crate::clock::{Nanos, Now};
use crate::limits::REPAIR_UNITS;
use crate::packet::{Depot, Direction, Kind, Packet, Pool};
use crate::port::{Duplex, Fault, Port, PortContext};
use crate::ring::{Incarnation, Node, Output, SharedNode, View, frames_in};
pub use place::{Place, Told};
pub use worker::{Actor, Clock, Idle, Turn, Worker, cores, take_turn, tell_panics_briefly};

/// Packets that a lane takes from a link in one turn.
const BURST: usize = 64;

/// How often a shard lets time pass for its lanes, in nanoseconds.
const TICK_EVERY: Nanos = 100_000;

/// One lane of one node with its links.
#[derive(Debug)]
pub struct LaneLinks {
    /// The lane's number.
    pub number: usize,
    /// To the same lane of the predecessor and of the successor; `None` where the node is alone on its ring.
    pub before: Option<Fault<Duplex>>,
    /// See `before`.
    pub after: Option<Fault<Duplex>>,
    /// To the inside, at the first stage's node: a link to each queue's edge. Packets come by all of them; what the lane
    /// lets out goes by one, so that it stays in order: that of the queue with the lane's number, counted round.
    pub inside: Vec<Duplex>,
    /// To the outside, at the last stage's node. See `inside`.
    pub outside: Vec<Duplex>,
}

/// A node in the hands of its shards.
#[derive(Debug)]
pub enum NodeHandle {
    /// There is none: it died, and its replacement has not come.
    Nobody,
    /// This shard has it alone.
    Alone(Box<Node>),
    /// Several shards have it.
    Shared(Arc<SharedNode>),
}

/// What a shard finds in its mailbox.
#[derive(Debug)]
pub enum Order {
    /// A message beside the ring, for the node.
    Message(Packet),
    /// The orchestrator has declared a view.
    Adopt(View),
    /// The node dies here and now: everything in it is gone.
    Crash,
    /// A replacement begins to live. What it wants sent at once comes with it.
    Replace(NodeHandle, Output),
    /// Give up lanes and node, and tell where.
    Yield(Sender<(Vec<LaneLinks>, NodeHandle)>),
    /// Take lanes and a node; whether this shard also does what concerns the node as a whole.
    Take(Vec<LaneLinks>, NodeHandle, bool),
    /// End.
    End,
}

/// A shard.
#[derive(Debug)]
pub struct Shard {
    place: Arc<Place>,
    mailbox: Receiver<Order>,
    lanes: Vec<LaneLinks>,
    node: NodeHandle,
    /// Whether it does what concerns the node as a whole.
    leads: bool,
    out: Output,
    inbox: Vec<Packet>,
    beside: Vec<Packet>,
    /// Packets on their way to a link; empty between turns.
    burst: Vec<Packet>,
    next_tick: Nanos,
}

impl Shard {
    /// A shard of the node at `place` that has no lane yet.
    pub fn new(place: Arc<Place>, mailbox: Receiver<Order>, depot: Arc<Depot>) -> Self {
        Shard {
            place,
            mailbox,
            lanes: Vec::new(),
            node: NodeHandle::Nobody,
            leads: false,
            out: Output { pool: Pool::at(depot), ..Output::default() },
            inbox: Vec::new(),
            beside: Vec::new(),
            burst: Vec::new(),
            next_tick: 0,
        }
    }

    /// Does what the mailbox says. False where it says to end.
    fn obey(&mut self, now: Now) -> bool {
        while let Ok(order) = self.mailbox.try_recv() {
            match order {
                Order::Message(packet) => self.beside.push(packet),
                Order::Adopt(view) => match &mut self.node {
                    NodeHandle::Nobody => {}
                    NodeHandle::Alone(node) => node.adopt(&view, &mut self.out),
                    NodeHandle::Shared(node) => node.adopt(&view, &mut self.out),
                },
                Order::Crash => self.lose_node(),
                Order::Replace(node, mut out) => {
                    self.node = node;
                    self.out.control.append(&mut out.control);
                    self.out.caught_up |= out.caught_up;
                    self.out.unrecoverable = self.out.unrecoverable.or(out.unrecoverable);
                }
                Order::Yield(reply) => {
                    let node = std::mem::replace(&mut self.node, NodeHandle::Nobody);
                    let lanes = std::mem::take(&mut self.lanes);
                    if let Err(unwanted) = reply.send((lanes, node)) {
                        // Nobody waits any more: whoever asked has gone on without this shard, and so does it.
                        (self.lanes, self.node) = unwanted.into_inner();
                    }
                }
                Order::Take(lanes, node, leads) => {
                    self.lanes.extend(lanes); // to those that nobody had waited for
                    if !matches!(node, NodeHandle::Nobody) {
                        self.node = node;
                    }
                    self.leads = leads;
                }
                Order::End => return false,
            }
        }
        self.hear(now);
        true
    }

    /// Hands the node what came beside the ring.
    fn hear(&mut self, now: Now) {
        if self.beside.is_empty() {
            return;
        }
        self.place.count_state(&self.beside);
        match &mut self.node {
            NodeHandle::Nobody => self.beside.clear(),
            NodeHandle::Alone(node) => node.accept(&mut self.beside, now, &mut self.out),
            NodeHandle::Shared(node) => node.hear(&mut self.beside, now, &mut self.out),
        }
        self.send(now);
    }

    /// The node is gone, and what it wanted to say with it. Where others have it too, each counts for its own lanes, which
    /// nobody else runs.
    fn lose_node(&mut self) {
        match std::mem::replace(&mut self.node, NodeHandle::Nobody) {
            NodeHandle::Nobody => {}
            NodeHandle::Alone(node) => self.place.bury(&node.stats(), node.frames_inside() as u64),
            NodeHandle::Shared(node) => {
                if self.leads {
                    self.place.bury(&node.bury_control(), 0);
                }
                for lane in &self.lanes {
                    let (stats, frames) = node.bury(lane.number);
                    self.place.bury(&stats, frames as u64);
                }
            }
        }
        // After a panic also what its last turn had done: what left later would leave out of order.
        let Output { forward, backward, released, control, pool, caught_up, unrecoverable } = &mut self.out;
        (*caught_up, *unrecoverable) = (false, None);
        let beside = control.drain(..).map(|(_, packet)| packet);
        let unsent = forward.drain(..).chain(backward.drain(..)).chain(released.drain(..)).chain(beside);
        for packet in unsent {
            self.place.lose(u64::from(packet.meta.kind == Kind::Frame));
            pool.give(packet);
        }
    }

    /// The incarnation of the node that the shard has; 0 where it has none.
    fn incarnation(&self) -> Incarnation {
        match &self.node {
            NodeHandle::Nobody => 0,
            NodeHandle::Alone(node) => node.incarnation(),
            NodeHandle::Shared(node) => node.incarnation(),
        }
    }

    /// Gives each lane a turn. Returns whether there was anything to do.
    fn give_turns(&mut self, now: Now) -> bool {
        let ticks = now.timer >= self.next_tick;
        if ticks {
            self.next_tick = now.timer + TICK_EVERY;
        }
        match self.node {
            NodeHandle::Alone(_) => self.turn_alone(now, ticks),
            NodeHandle::Nobody => self.drop_all(now),
            NodeHandle::Shared(_) => self.turn_shared(now, ticks),
        }
    }

    /// A turn of all lanes at once: this shard has the node alone.
    fn turn_alone(&mut self, now: Now, ticks: bool) -> bool {
        let mut crowded = false;
        for lane in &mut self.lanes {
            crowded |= receive(lane, now, &mut self.out.pool, &mut self.inbox);
        }
        let NodeHandle::Alone(node) = &mut self.node else { return false };
        let busy = !self.inbox.is_empty();
        if busy || ticks {
            node.accept(&mut self.inbox, now, &mut self.out);
        }
        if ticks {
            node.tick(now, &mut self.out);
        }
        if busy || ticks {
            let (full, rests) = (!node.is_up() || !node.has_room() || crowded, node.is_idle());
            self.lanes.iter().for_each(|lane| self.place.publish(lane.number, full, rests));
            self.send(now);
        }
        busy
    }

    /// A turn of each lane, one after the other: other shards have other lanes of the node.
    fn turn_shared(&mut self, now: Now, ticks: bool) -> bool {
        let NodeHandle::Shared(node) = &self.node else { return false };
        let (mut any, mut acted) = (false, ticks && self.leads);
        for lane in &mut self.lanes {
            let crowded = receive(lane, now, &mut self.out.pool, &mut self.inbox);
            any |= !self.inbox.is_empty();
            if let Some(state) = node.turn(lane.number, &mut self.inbox, now, ticks, &mut self.out) {
                self.place.publish(lane.number, !state.has_room || crowded, state.is_idle);
                acted = true;
            }
        }
        if ticks && self.leads {
            node.tick_whole(now, &mut self.out);
        }
        if acted {
            self.send(now);
        }
        any
    }

    /// What arrives for a node that is dead is lost. Nothing more should enter the chain until there is another.
    fn drop_all(&mut self, now: Now) -> bool {
        for lane in &mut self.lanes {
            receive(lane, now, &mut self.out.pool, &mut self.inbox);
            self.place.publish(lane.number, true, true);
        }
        let busy = !self.inbox.is_empty();
        for packet in self.inbox.drain(..) {
            self.place.lose(u64::from(packet.meta.kind == Kind::Frame));
            self.out.pool.give(packet);
        }
        busy
    }

    /// Sends what the node wants sent, each packet on the links of its lane.
    fn send(&mut self, now: Now) {
        let Output { forward, backward, released, control, pool, caught_up, unrecoverable } = &mut self.out;
        let context = &mut PortContext { now: now.timer, pool };
        for lane in &mut self.lanes {
            let number = lane.number;
            let mine = |packet: &Packet| usize::from(packet.meta.lane) == number;
            let leaves = |packet: &Packet, way| packet.meta.direction == way && mine(packet);
            send_those(lane.after.as_mut(), forward, mine, &mut self.burst, context);
            send_those(lane.before.as_mut(), backward, mine, &mut self.burst, context);
            for (way, edges) in
                [(Direction::Inbound, &mut lane.inside), (Direction::Outbound, &mut lane.outside)]
            {
                let queue = number.checked_rem(edges.len());
                let edge = queue.and_then(|queue| edges.get_mut(queue));
                send_those(edge, released, |p| leaves(p, way), &mut self.burst, context);
            }
        }
        control.drain(..).for_each(|(to, packet)| self.place.tell(to, packet));
        let caught_up = std::mem::take(caught_up);
        if let Some(stage) = unrecoverable.take() {
            self.place.report(Told::Unrecoverable(stage));
        }
        if caught_up {
            self.place.report(Told::CaughtUp(self.incarnation()));
        }
    }
}

/// Takes what waits on a lane's links, acknowledgements first. Returns whether more waits than should.
fn receive(lane: &mut LaneLinks, now: Now, pool: &mut Pool, inbox: &mut Vec<Packet>) -> bool {
    let mut context = PortContext { now: now.timer, pool };
    let mut crowded = false;
    for link in [&mut lane.after, &mut lane.before].into_iter().flatten() {
        crowded |= link.inner().is_crowded();
        let Ok(_) = link.rx_burst(4 * BURST + REPAIR_UNITS, &mut context, inbox);
    }
    for edge in lane.inside.iter_mut().chain(&mut lane.outside) {
        crowded |= edge.is_crowded();
        let Ok(_) = edge.rx_burst(BURST, &mut context, inbox);
    }
    crowded
}

/// Sends those of `packets` that a link is for.
fn send_those<P: Port<Error = Infallible>>(
    link: Option<&mut P>,
    packets: &mut Vec<Packet>,
    is_for: impl Fn(&Packet) -> bool,
    burst: &mut Vec<Packet>,
    context: &mut PortContext<'_>,
) {
    let Some(link) = link.filter(|_| !packets.is_empty()) else { return };
    let all = packets.iter().all(&is_for);
    let burst = if all {
        packets
    } else {
        burst.extend(packets.extract_if(.., |packet| is_for(packet)));
        burst
    };
    let Ok(()) = link.tx_burst(context, burst);
}

impl Actor for Shard {
    fn turn(&mut self, now: Now) -> Turn {
        // The lanes are dealt out in turn: a shard's first has the shard's number.
        self.place.beat(self.lanes.first().map_or(0, |lane| lane.number));
        if !self.mailbox.is_empty() && !self.obey(now) {
            self.lose_node();
            return Turn::Ended;
        }
        if self.give_turns(now) { Turn::Busy } else { Turn::Idle }
    }

    /// The network function panicked: the node is as good as dead, and is replaced as one that died.
    fn panicked(&mut self, message: &str) {
        self.place.lose(frames_in(&self.inbox) as u64);
        self.inbox.clear();
        let incarnation = self.incarnation();
        self.lose_node();
        self.place.report(Told::Panicked(incarnation, message.to_owned()));
    }
}
