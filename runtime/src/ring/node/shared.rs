//! A node that several shards run at once: each lane behind a lock of its own.
//!
//! A shard locks a lane for one turn; nobody else wants it then, so that the lock costs one exchange on a line that the
//! shard has anyhow. What concerns the node as a whole (views, copies) locks all lanes: between turns no lane holds a
//! claim or has anything open, so the node is then as still as if one shard had it alone.
//!
//! A lane whose network function panicked is left as it was, in the middle of its turn: it gives back what it has claimed,
//! for others wait for that, and has no turn any more. The other lanes go on until their shards hear that the node is dead;
//! but the node as a whole does nothing: what it gave away could lack what that lane has applied and not passed on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::lane::Lane;
use super::recover::Control;
use super::{Lanes, Node, Output};
use crate::clock::Now;
use crate::limits::{MAX_LANES, SHARED_WAITING};
use crate::mutant::{self, Mutant};
use crate::packet::Packet;
use crate::ring::view::{Incarnation, View};
use crate::stats::NodeStats;

/// See the [module](self).
#[derive(Debug)]
pub struct SharedNode {
    control: Mutex<Control>,
    lanes: Box<[Padded]>,
}

/// Keeps the locks of different lanes off each other's cache lines.
#[repr(align(128))]
#[derive(Debug)]
struct Padded(Mutex<Lane>);

impl From<Node> for SharedNode {
    fn from(node: Node) -> Self {
        node.share(true);
        let Node { control, mut lanes, .. } = node;
        lanes.iter_mut().for_each(|lane| lane.set_core(control.core.clone()));
        let lanes = lanes.into_iter().map(|lane| Padded(Mutex::new(lane))).collect();
        SharedNode { control: Mutex::new(control), lanes }
    }
}

/// A lane in its turn.
struct InTurn<'a>(MutexGuard<'a, Lane>);

impl Drop for InTurn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.release_claims();
        }
    }
}

impl From<SharedNode> for Node {
    fn from(shared: SharedNode) -> Self {
        let control = shared.control.into_inner().unwrap_or_else(PoisonError::into_inner);
        let lanes = shared.lanes.into_iter();
        let lanes: Box<[Lane]> =
            lanes.map(|lane| lane.0.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
        let inboxes = lanes.iter().map(|_| Vec::new()).collect();
        let mut node = Node { control, lanes, inboxes };
        node.share(false);
        for lane in &mut node.lanes {
            lane.set_core(node.control.core.clone());
            if mutant::is(Mutant::LostInReshard) {
                lane.bury();
            }
        }
        node
    }
}

/// A lock that a panic has left is as good as another: the driver ends a node whose network function panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a lane stands at the end of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneState {
    /// The node is up, and no bound of the lane is reached.
    pub has_room: bool,
    /// Nothing waits in the lane.
    pub is_idle: bool,
}

impl SharedNode {
    /// Gives one lane a turn: [`Node::accept`], and where `ticks` also [`Node::tick`]. `None` where there was nothing to do.
    /// Of a lane that has panicked, the packets are lost.
    pub fn turn(
        &self,
        lane: usize,
        burst: &mut Vec<Packet>,
        now: Now,
        ticks: bool,
        out: &mut Output,
    ) -> Option<LaneState> {
        let Some(mut turn) = self.turn_of(lane) else {
            let mut lane = lock(&self.lanes[lane].0);
            burst.drain(..).for_each(|packet| lane.refuse(packet, "panicked", out));
            return None;
        };
        let lane = &mut turn.0;
        if burst.is_empty() && !ticks && !lane.has_news() {
            return None;
        }
        lane.accept(burst, now, out);
        if ticks {
            lane.tick(now, out);
        }
        let has_room = lane.is_up() && lane.has_room() && lane.waiting.len() < SHARED_WAITING;
        Some(LaneState { has_room, is_idle: lane.is_idle() })
    }

    fn turn_of(&self, lane: usize) -> Option<InTurn<'_>> {
        self.lanes[lane].0.lock().ok().map(InTurn)
    }

    /// Whether a lane has panicked. Such a node must not be had alone: the lane would go on in the middle of a transaction.
    pub fn has_panicked(&self) -> bool {
        self.lanes.iter().any(|lane| lane.0.is_poisoned()) && !mutant::is(Mutant::PanickedLane)
    }

    /// The node's incarnation.
    pub fn incarnation(&self) -> Incarnation {
        lock(&self.control).core.incarnation
    }

    /// Lets time pass for the node as a whole: copies go on. One shard does so.
    pub fn tick_whole(&self, now: Now, out: &mut Output) {
        if lock(&self.control).is_waiting() {
            self.whole(|control, lanes| control.tick(lanes, now, out));
        }
    }

    /// Takes messages beside the ring: questions for state, and answers.
    pub fn hear(&self, messages: &mut Vec<Packet>, now: Now, out: &mut Output) {
        if !messages.is_empty() {
            self.whole(|control, lanes| {
                messages.drain(..).for_each(|packet| control.hear(packet, lanes, now, out));
                control.copy_on(lanes, out);
            });
            messages.drain(..).for_each(|unheard| out.pool.give(unheard));
        }
    }

    /// See [`Node::adopt`].
    pub fn adopt(&self, view: &View, out: &mut Output) {
        self.whole(|control, lanes| control.adopt(view, lanes, out));
    }

    /// See [`Node::is_up`].
    pub fn is_up(&self) -> bool {
        lock(&self.control).is_up()
    }

    /// The node is dead, and with it a lane: what that has counted, and the frames that were in it. The second time there is
    /// nothing any more.
    pub fn bury(&self, lane: usize) -> (NodeStats, usize) {
        lock(&self.lanes[lane].0).bury()
    }

    /// As [`SharedNode::bury`]: what was counted beside the lanes.
    pub fn bury_control(&self) -> NodeStats {
        std::mem::take(&mut lock(&self.control).stats)
    }

    /// Does something with the whole node, while no lane is at work; nothing where one has panicked.
    fn whole(&self, act: impl FnOnce(&mut Control, &mut Lanes<'_>)) {
        let mut control = lock(&self.control);
        let guards: Result<SmallVec<[MutexGuard<'_, Lane>; MAX_LANES]>, _> =
            self.lanes.iter().map(|lane| lane.0.lock()).collect();
        if let Ok(mut guards) = guards {
            act(&mut control, &mut guards.iter_mut().map(|guard| &mut **guard).collect());
        }
    }
}
