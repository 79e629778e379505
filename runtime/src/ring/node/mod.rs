//! A node of the ring. [`Node::accept`] is the function to read first: every promise of the chain passes there.
//!
//! A node has no clock, no thread and no socket: it takes packets and the time, and gives packets back in an
//! [`Output`]. Its parts, each the room of one duty:
//! - `lane`: the way of a part of the flows, from arrival to departure;
//! - `replica`: takes units over from the predecessor, all records or none;
//! - `head`: runs the network function as a transaction, commits, and lets the unit ride;
//! - `link`: acknowledges to the predecessor, learns from the successor, repairs, releases what waited;
//! - `news`: how a lane hears of what another did;
//! - `recover`: adopts views, fences, takes state over as far as `joining` has it; `copy`: gives it away. All concern the
//!   node as a whole;
//! - `shared`: the same node, run by several shards at once.

mod copy;
mod head;
mod joining;
mod lane;
mod link;
mod news;
mod recover;
mod replica;
mod shared;
#[cfg(feature = "simulation")]
mod simulation;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use smallvec::SmallVec;

use crate::clock::Now;
use crate::limits::MAX_LANES;
use crate::mutant::{self, Mutant};
use crate::nf::AnyNf;
use crate::packet::{Kind, Packet, Pool};
use crate::ring::plan::Plan;
use crate::ring::recorder::Recorder;
use crate::ring::store::Store;
use crate::ring::view::{Incarnation, Standing, View};
use crate::state::Layout;
use crate::stats::NodeStats;
use lane::{Core, Lane};
use news::News;
use recover::Control;
pub use shared::{LaneState, SharedNode};
#[cfg(feature = "simulation")]
pub use simulation::hash_packet;

/// What a node wants done. The driver empties the lists; the pool stays.
#[derive(Debug, Default)]
pub struct Output {
    /// To the successor, in order.
    pub forward: Vec<Packet>,
    /// To the predecessor, in order: frames of the other direction, and acknowledgements.
    pub backward: Vec<Packet>,
    /// Out of the chain: to the outside from the last stage, to the inside from the first.
    pub released: Vec<Packet>,
    /// To the node with this number, beside the ring.
    pub control: Vec<(usize, Packet)>,
    /// The node has all stores and is up.
    pub caught_up: bool,
    /// A stage whose store no live node has: more nodes failed than the chain survives.
    pub unrecoverable: Option<usize>,
    /// Where packets come from and go to.
    pub pool: Pool,
}

/// One node: the head of its stage (if it has one) and a replica of the f stages before it.
pub struct Node {
    control: Control,
    lanes: Box<[Lane]>,
    /// A burst, sorted by lane; empty between turns.
    inboxes: Vec<Vec<Packet>>,
}

impl Node {
    /// A node of a chain that starts: its stores are empty and it is up.
    ///
    /// # Panics
    /// Where `nfs` are not as many as the plan has stages, or `index` is not on the ring.
    pub fn new(index: usize, plan: Plan, nfs: Arc<[Arc<dyn AnyNf>]>, view: View) -> Self {
        assert!(nfs.len() == plan.stages() && index < plan.nodes(), "the plan counts stages and nodes");
        let layout = layout(&plan, index);
        let store = |stage: usize| {
            plan.holds(index, stage)
                .then(|| Store::new(nfs[stage].new_state(&layout), plan.tail(stage) == index))
        };
        let core = Arc::new(Core {
            index,
            incarnation: view.members[index].incarnation,
            plan,
            largest: nfs.get(index).map_or(0, |nf| nf.largest_delta_in(&layout)),
            stores: (0..plan.stages()).map(store).collect(),
            nfs,
            shared: AtomicBool::new(false),
            applied: News::default(),
            committed: News::default(),
        });
        let lanes = (0..plan.lanes).map(|number| Lane::new(number, Arc::clone(&core), view.clone()));
        let inboxes = (0..plan.lanes).map(|_| Vec::new()).collect();
        Node { lanes: lanes.collect(), control: Control::new(core, view), inboxes }
    }

    /// A node that replaces a dead one: it is [`Standing::Joining`] in `view` and fetches its stores first.
    ///
    /// # Panics
    /// As [`Node::new`].
    ///
    /// [`Standing::Joining`]: crate::ring::Standing::Joining
    pub fn replacement(
        index: usize,
        plan: Plan,
        nfs: Arc<[Arc<dyn AnyNf>]>,
        view: View,
        now: Now,
        out: &mut Output,
    ) -> Self {
        let mut node = Node::new(index, plan, nfs, view);
        let (control, lanes) = node.whole();
        control.fetch(&mut { lanes }, now.timer, out);
        node
    }

    /// Takes a burst of messages, in order: from the predecessor, from the successor, from outside, from a neighbour.
    /// Then each lane has its turn.
    pub fn accept(&mut self, burst: &mut Vec<Packet>, now: Now, out: &mut Output) {
        match &mut self.inboxes[..] {
            [inbox] if inbox.is_empty() && !burst.iter().any(is_beside) => std::mem::swap(inbox, burst),
            _ => self.sort(burst, now, out),
        }
        for (lane, inbox) in self.lanes.iter_mut().zip(&mut self.inboxes) {
            lane.accept(inbox, now, out);
        }
        let (control, mut lanes) = self.whole();
        control.copy_on(&mut lanes, out);
    }

    /// Gives each lane its messages, and takes those that came beside the ring.
    fn sort(&mut self, burst: &mut Vec<Packet>, now: Now, out: &mut Output) {
        for packet in burst.drain(..) {
            if is_beside(&packet) {
                let (control, mut lanes) = self.whole();
                control.hear(packet, &mut lanes, now, out);
            } else {
                // A lane that is not there can't be told from another: its messages are damaged, not lost.
                let lane = usize::from(packet.meta.lane).min(self.inboxes.len() - 1);
                self.inboxes[lane].push(packet);
            }
        }
    }

    /// Lets time pass: expiry, repair and idle acknowledgements.
    pub fn tick(&mut self, now: Now, out: &mut Output) {
        self.lanes.iter_mut().for_each(|lane| lane.tick(now, out));
        let (control, mut lanes) = self.whole();
        control.tick(&mut lanes, now, out);
    }

    /// Adopts a view: first of all it fences every dead incarnation. What waits unapplied from a dead predecessor is
    /// discarded *before* any state is given away: a late unit must not be applied next to a version that the
    /// replacement gives out anew.
    pub fn adopt(&mut self, view: &View, out: &mut Output) {
        let (control, mut lanes) = self.whole();
        control.adopt(view, &mut lanes, out);
    }

    /// Lets several shards run the lanes, or one alone.
    fn share(&self, shared: bool) {
        self.control.core.share(shared);
    }

    /// The node as a whole: what concerns all lanes, and all lanes.
    fn whole(&mut self) -> (&mut Control, Lanes<'_>) {
        (&mut self.control, self.lanes.iter_mut().collect())
    }

    /// Whether packets may be admitted: no bound of this node is reached.
    pub fn has_room(&self) -> bool {
        self.lanes.iter().all(Lane::has_room)
    }

    /// Whether nothing waits here: no frame held, no unit waiting, none retained.
    pub fn is_idle(&self) -> bool {
        self.lanes.iter().all(Lane::is_idle)
    }

    /// Frames that are in this node: held for their commit, or waiting for a unit. After a panic of its network function
    /// also the one that it was at, and those that were to come behind.
    pub fn frames_inside(&self) -> usize {
        let unread: usize = self.inboxes.iter().map(|inbox| frames_in(inbox)).sum();
        unread + self.lanes.iter().map(Lane::frames_inside).sum::<usize>()
    }

    /// The node's place on the ring.
    pub fn index(&self) -> usize {
        self.control.core.index
    }

    /// The node's incarnation.
    pub fn incarnation(&self) -> Incarnation {
        self.control.core.incarnation
    }

    /// Whether the node has all its stores.
    pub fn is_up(&self) -> bool {
        self.control.is_up()
    }

    /// The store of `stage`, where this node holds it.
    pub fn store(&self, stage: usize) -> Option<&Store> {
        self.control.core.store(stage)
    }

    /// What the node has counted.
    pub fn stats(&self) -> NodeStats {
        let mut stats = self.control.stats.clone();
        self.lanes.iter().for_each(|lane| stats.add(&lane.stats));
        stats
    }

    /// Has everything from now on told to recorders, one for each lane.
    pub fn set_recorder(&mut self, mut make: impl FnMut() -> Box<dyn Recorder>) {
        self.lanes.iter_mut().for_each(|lane| lane.recorder = make());
    }
}

/// Whether a message comes beside the ring: it concerns the node as a whole.
fn is_beside(packet: &Packet) -> bool {
    matches!(packet.meta.kind, Kind::Fetch | Kind::Snapshot)
}

/// Frames of a burst that have not been taken out of it.
pub(crate) fn frames_in(burst: &[Packet]) -> usize {
    burst.iter().filter(|packet| packet.meta.kind == Kind::Frame).count()
}

/// All lanes of a node.
type Lanes<'a> = SmallVec<[&'a mut Lane; MAX_LANES]>;

/// How the stores of a node are cut: as the plan says.
fn layout(plan: &Plan, index: usize) -> Layout {
    let differs = if mutant::is(Mutant::DifferingHash) { index as u64 } else { 0 };
    Layout { hash_seed: plan.layout.hash_seed ^ differs, ..plan.layout }
}

/// No node has this incarnation.
const NOBODY: Incarnation = Incarnation::MAX;

/// Who sends a message, and who it is for.
#[derive(Clone, Copy, Debug)]
struct Address {
    sender: u8,
    incarnation: Incarnation,
    addressee: Incarnation,
    lane: u8,
}

impl Address {
    /// From a node to the node `to`, as `view` has it. Nothing is for a node that is dead: if it lives on, it and other
    /// dead ones must not be a ring of their own.
    fn new(from: &Core, view: &View, to: usize) -> Self {
        let member = view.members[to];
        let addressee = if member.standing == Standing::Dead { NOBODY } else { member.incarnation };
        Address { sender: from.index as u8, incarnation: from.incarnation, addressee, lane: 0 }
    }

    fn put_on(self, packet: &mut Packet) {
        packet.meta.sender = self.sender;
        packet.meta.incarnation = self.incarnation;
        packet.meta.addressee = self.addressee;
        packet.meta.lane = self.lane;
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("index", &self.index())
            .field("incarnation", &self.incarnation())
            .field("control", &self.control)
            .field("lanes", &self.lanes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
