//! A node that several shards run at once: each lane behind a lock of its own.
//!
//! A shard locks a lane for one turn; nobody else wants it then, so that the lock costs one exchange on a line that the
//! shard has anyhow. What concerns the node as a whole (views, copies) locks all lanes: between turns no lane holds a
//! claim or has anything open, so the node is then as still as if one shard had it alone.

use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::lane::Lane;
use super::recover::Control;
use super::{Lanes, Node, Output};
use crate::clock::Now;
use crate::limits::MAX_LANES;
use crate::packet::Packet;
use crate::ring::view::View;
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

impl From<SharedNode> for Node {
    fn from(shared: SharedNode) -> Self {
        let control = shared.control.into_inner().unwrap_or_else(PoisonError::into_inner);
        let lanes = shared.lanes.into_iter();
        let lanes: Box<[Lane]> =
            lanes.map(|lane| lane.0.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
        let inboxes = lanes.iter().map(|_| Vec::new()).collect();
        let mut node = Node { control, lanes, inboxes };
        node.share(false);
        node.lanes.iter_mut().for_each(|lane| lane.set_core(node.control.core.clone()));
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

/// A lane that has its turn. Where its network function panics, it lets go of what it has claimed, for others wait for that.
struct InTurn<'a>(MutexGuard<'a, Lane>);

impl Drop for InTurn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.let_go();
        }
    }
}

impl SharedNode {
    /// Gives one lane a turn: [`Node::accept`], and where `ticks` also [`Node::tick`]. `None` where there was nothing to do.
    pub fn turn(
        &self,
        lane: usize,
        burst: &mut Vec<Packet>,
        now: Now,
        ticks: bool,
        out: &mut Output,
    ) -> Option<LaneState> {
        let mut lane = InTurn(lock(&self.lanes[lane].0));
        if burst.is_empty() && !ticks && !lane.0.has_news() {
            return None;
        }
        lane.0.accept(burst, now, out);
        if ticks {
            lane.0.tick(now, out);
        }
        Some(LaneState { has_room: lane.0.is_up() && lane.0.has_room(), is_idle: lane.0.is_idle() })
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

    /// See [`Node::frames_inside`].
    pub fn frames_inside(&self) -> usize {
        self.lanes.iter().map(|lane| lock(&lane.0).frames_inside()).sum()
    }

    /// See [`Node::stats`].
    pub fn stats(&self) -> NodeStats {
        let mut stats = lock(&self.control).stats.clone();
        self.lanes.iter().for_each(|lane| stats.add(&lock(&lane.0).stats));
        stats
    }

    /// Does something with the whole node, while no lane is at work.
    fn whole<R>(&self, act: impl FnOnce(&mut Control, &mut Lanes<'_>) -> R) -> R {
        let mut control = lock(&self.control);
        let mut guards: SmallVec<[MutexGuard<'_, Lane>; MAX_LANES]> =
            self.lanes.iter().map(|lane| lock(&lane.0)).collect();
        act(&mut control, &mut guards.iter_mut().map(|guard| &mut **guard).collect())
    }
}
