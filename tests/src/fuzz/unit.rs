//! Any messages to real nodes: units, acknowledgements, fetches and snapshots, as they are or behind a good checksum.
//!
//! An input is a script for a small ring: what it is made of, then steps. Traffic, time and crashes bring the nodes into
//! all their standings; forged messages follow at any point.
//!
//! ```text
//! script  := setup(1) step*
//! step    := kind(1) flags(1) bytes(2, LE) body        kind = 0 frame | 1 unit | 2 acknowledge | 3 fetch | 4 snapshot
//!          | 5 count(1)                                so many of the messages under way arrive
//!          | 6 ticks(1)                                time passes
//!          | 7 node(1)                                 a node is declared dead, its replacement joins
//! flags   := node(2 bits) sealed(1) fenced(1) inbound(1) sender(2)
//! ```
//! The body of a frame is `bytes(1) frame unit`. The steps are also taken as they are, as the bytes of a delta.

use std::collections::VecDeque;
use std::sync::Arc;

use pannier_runtime::clock::Now;
use pannier_runtime::crc::{crc32c, crc32c_append};
use pannier_runtime::dependency::{PartitionSet, Vector};
use pannier_runtime::packet::Kind;
use pannier_runtime::piggyback::{UNIT_HEADER, UNIT_VERSION, UnitView};
use pannier_runtime::ring::{Node, Orchestrator, Output, Plan};
use pannier_runtime::state::{AnyState, AnyTable, Layout, State};
use pannier_runtime::txn::Abort;
use pannier_runtime::txn::delta::{self, DeltaError};
use pannier_runtime::{AnyNf, Direction, Packet, Verdict, nf, state};

/// The kinds of messages by their number in a script.
const KINDS: [Kind; 5] = [Kind::Frame, Kind::Unit, Kind::Acknowledge, Kind::Fetch, Kind::Snapshot];
const ARRIVE: u8 = 5;
const TIME: u8 = 6;
/// Flag: a good checksum is put around the body.
pub(super) const SEALED: u8 = 4;
const FENCED: u8 = 8;
const INBOUND: u8 = 16;
/// Bytes in front of the body of a control message.
pub(super) const CONTROL_HEADER: usize = 16;
/// Most steps that are taken, so that no script is slow.
const STEPS: usize = 96;
/// Most messages under way; what comes on top is lost.
const CROWD: usize = 48;
/// Longest answer to a fetch, in bytes: far above what so small stores hold.
const LONGEST_ANSWER: usize = 1 << 18;

state! {
    /// Small rows, so that a few bytes of a forged delta make one.
    struct Tables {
        counts: u8 => u64 [16],
        recent: u16 => [u8; 3] [4],
    }
}

/// Does what the second byte of a frame says with the key that is its first.
fn obedient() -> Arc<dyn AnyNf> {
    Arc::new(nf(|frame, state: &Tables, txn| {
        let &[key, ask, ..] = frame.bytes() else { return Ok(Verdict::Drop("short")) };
        match ask & 7 {
            0 | 1 => drop(txn.update(&state.counts, key, |count| count.unwrap_or(0).wrapping_add(1))?),
            2 => txn.put_for(&state.recent, u16::from(key), [ask; 3], 1 << 26)?,
            3 => drop(txn.delete(&state.counts, &key)?),
            4 => txn.emit(&[key; 60], Direction::Inbound),
            5 => return Err(Abort { reason: "asked_to" }),
            6 => drop(txn.get(&state.recent, &u16::from(key))?),
            _ => return Ok(Verdict::Drop("asked_to")),
        }
        Ok(Verdict::Forward)
    }))
}

/// A small ring of real nodes; its links are one queue.
pub(super) struct Ring {
    plan: Plan,
    nfs: Arc<[Arc<dyn AnyNf>]>,
    nodes: Vec<Node>,
    orchestrator: Orchestrator,
    /// Messages under way, with the node that they go to.
    pub(super) network: VecDeque<(usize, Packet)>,
    now: Now,
    out: Output,
}

/// Runs `bytes` as a script, and applies them as a delta.
///
/// # Panics
/// Where a node panics, keeps a refusal to itself, or takes something of a message that it refuses; where a delta that
/// was checked means something else once it is read and written again.
pub fn check(bytes: &[u8]) {
    run(bytes);
    delta(bytes.get(1..).unwrap_or_default());
}

fn delta(bytes: &[u8]) {
    let layout = Layout { partitions: 4, ..Layout::default() };
    let (mut state, mut copy) = (Tables::new(&layout), Tables::new(&layout));
    let (mut again, mut written, mut entries) = (Vec::new(), PartitionSet::default(), 0);
    let mut sound = true;
    for change in delta::changes(&state, bytes) {
        let Ok(change) = change else {
            sound = false;
            break;
        };
        let table = state.table(usize::from(change.table)).expect("a change names a table that is there");
        written.insert(table.place_of(change.key).partition);
        delta::put_change(&mut again, &change);
        entries += 1;
    }
    assert_eq!(delta::check(&state, bytes, written).is_ok(), sound);
    for partition in written.iter().filter(|_| sound) {
        let others = PartitionSet(written.0 & !(1 << partition));
        assert_eq!(delta::check(&state, bytes, others), Err(DeltaError::ForeignPartition));
    }
    // From a damaged delta, the changes in front of the damage are taken.
    delta::apply(&mut state, bytes);
    delta::apply(&mut copy, &again);
    let (state, copy): (&dyn AnyState, &dyn AnyState) = (&state, &copy);
    assert_eq!(state.digest(&layout), copy.digest(&layout));
    assert!(state.iter().map(AnyTable::len).sum::<usize>() <= entries);
}

/// The ring after a script.
pub(super) fn run(mut script: &[u8]) -> Ring {
    let mut ring = Ring::new(take(&mut script, 1).first().copied().unwrap_or_default());
    for _ in 0..STEPS {
        let &[kind, argument, ref rest @ ..] = script else { break };
        script = rest;
        match kind % 8 {
            ARRIVE => ring.arrive(argument),
            TIME => ring.pass(argument),
            kind => match KINDS.get(usize::from(kind)) {
                Some(&kind) => {
                    let len =
                        take(&mut script, 2).iter().rev().fold(0, |len, byte| len << 8 | usize::from(*byte));
                    ring.forge(kind, argument, take(&mut script, len));
                }
                None => ring.replace(argument),
            },
        }
    }
    (0..ring.nodes.len()).for_each(|index| ring.look_at(index));
    ring
}

/// Up to `len` bytes off the front.
fn take<'a>(rest: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, after) = rest.split_at(len.min(rest.len()));
    *rest = after;
    taken
}

impl Ring {
    fn new(setup: u8) -> Self {
        let stages = 1 + usize::from(setup & 3) % 3;
        let mut plan = Plan::new(stages, 1 + usize::from(setup >> 2 & 1)).expect("small");
        plan.layout.partitions = [1, 2, 8, 64][usize::from(setup >> 3 & 3)];
        plan.unit_frames = [1, 4][usize::from(setup >> 5 & 1)];
        plan.limits.mtu = [1_500, 9_000][usize::from(setup >> 6 & 1)];
        (plan.limits.waiting, plan.limits.held, plan.limits.retained_bytes) = (8, 16, 4_000);
        let nfs: Arc<[Arc<dyn AnyNf>]> = (0..stages).map(|_| obedient()).collect();
        plan.check(nfs[0].largest_delta_in(&plan.layout)).expect("the rows are small");
        let orchestrator = Orchestrator::new(&plan);
        let node = |index| Node::new(index, plan, Arc::clone(&nfs), orchestrator.view().clone());
        let nodes = (0..plan.nodes()).map(node).collect();
        let (network, now) = (VecDeque::new(), Now { timer: 1, wall: 1 });
        Ring { plan, nfs, nodes, orchestrator, network, now, out: Output::default() }
    }

    fn index(&self, number: u8) -> usize {
        usize::from(number) % self.nodes.len()
    }

    fn arrive(&mut self, count: u8) {
        for _ in 0..count {
            let Some((to, packet)) = self.network.pop_front() else { return };
            self.nodes[to].accept(&mut vec![packet], self.now, &mut self.out);
            self.route(to);
        }
    }

    fn pass(&mut self, ticks: u8) {
        self.now.timer += 250_000 * (1 + u64::from(ticks));
        self.now.wall += u64::from(ticks) << 24;
        for index in 0..self.nodes.len() {
            self.nodes[index].tick(self.now, &mut self.out);
            self.route(index);
        }
    }

    fn replace(&mut self, number: u8) {
        self.orchestrator.declare_dead(self.index(number));
        self.admit();
    }

    /// Lets the next replacement join, if it is time, and tells everybody.
    fn admit(&mut self) {
        let joining = self.orchestrator.admit();
        let view = self.orchestrator.view().clone();
        for index in 0..self.nodes.len() {
            if joining == Some(index) {
                let nfs = Arc::clone(&self.nfs);
                self.nodes[index] =
                    Node::replacement(index, self.plan, nfs, view.clone(), self.now, &mut self.out);
            } else {
                self.nodes[index].adopt(&view, &mut self.out);
            }
            self.route(index);
        }
    }

    /// Puts what a node sends under way.
    fn route(&mut self, index: usize) {
        let (before, after) = (self.plan.predecessor(index), self.plan.successor(index));
        self.network.extend(self.out.forward.drain(..).map(|packet| (after, packet)));
        self.network.extend(self.out.backward.drain(..).map(|packet| (before, packet)));
        for (to, packet) in self.out.control.drain(..) {
            assert!(packet.frame().len() < LONGEST_ANSWER, "{} bytes to node {to}", packet.frame().len());
            self.network.push_back((to, packet));
        }
        self.network.truncate(CROWD);
        self.out.released.clear();
        if std::mem::take(&mut self.out.caught_up) {
            self.orchestrator.caught_up(index, self.nodes[index].incarnation());
            self.admit();
        }
    }

    /// A node that is up has the stores that it must hold, and takes nothing for committed that is not there.
    fn look_at(&self, index: usize) {
        let node = &self.nodes[index];
        for stage in 0..self.plan.stages() {
            let store = node.store(stage);
            assert!(store.is_none() || self.plan.holds(index, stage), "{node:?} holds stage {stage}");
            assert!(
                store.is_some() || !node.is_up() || !self.plan.holds(index, stage),
                "{node:?} lacks {stage}"
            );
            let sound = store.is_none_or(|s| {
                s.commit().0.iter().zip(s.versions().0).all(|(commit, here)| *commit <= here)
            });
            assert!(sound, "{node:?} takes for committed what it lacks of stage {stage}");
        }
    }

    /// One forged message to one node: a refusal is counted and changes nothing.
    fn forge(&mut self, kind: Kind, flags: u8, body: &[u8]) {
        let to = self.index(flags & 3);
        let mut packet = message(kind, flags & SEALED != 0, body);
        let sender = match kind {
            Kind::Frame | Kind::Unit => self.plan.predecessor(to),
            Kind::Acknowledge => self.plan.successor(to),
            Kind::Fetch | Kind::Snapshot => self.index(flags >> 5 & 3),
        };
        packet.meta.sender = sender as u8;
        let incarnation = self.orchestrator.view().members[sender].incarnation;
        packet.meta.incarnation = if flags & FENCED == 0 { incarnation } else { incarnation + 1 };
        packet.meta.addressee = self.nodes[to].incarnation();
        packet.meta.direction = if flags & INBOUND == 0 { Direction::Outbound } else { Direction::Inbound };
        packet.meta.flow = u32::from(flags >> 5);
        packet.meta.time = self.now.wall;
        let unit = if kind == Kind::Unit { packet.frame() } else { packet.unit() };
        let damaged = UnitView::parse(unit).is_err();
        let (refused, stores) = (self.refused(to), self.stores(to));
        self.nodes[to].accept(&mut vec![packet], self.now, &mut self.out);
        let refusals = self.refused(to) - refused;
        if damaged {
            assert_eq!(refusals, 1, "a damaged unit is refused once");
        }
        let is_control = !matches!(kind, Kind::Frame | Kind::Unit);
        if damaged && kind == Kind::Unit || is_control && refusals > 0 {
            assert!(self.stores(to) == stores, "a refused message changed a store");
        }
        self.look_at(to);
        self.route(to);
    }

    fn refused(&self, index: usize) -> u64 {
        self.nodes[index].stats().refused.total()
    }

    /// The rows and versions of all stores of a node.
    fn stores(&self, index: usize) -> Vec<Option<(u64, Vector)>> {
        let store = |stage| self.nodes[index].store(stage);
        let look = |stage| store(stage).map(|s| (s.state.digest(&self.plan.layout), s.versions()));
        (0..self.plan.stages()).map(look).collect()
    }
}

fn message(kind: Kind, sealed: bool, mut body: &[u8]) -> Packet {
    let unit = |records: &[u8]| if sealed { seal_unit(records) } else { records.to_vec() };
    let mut packet = match kind {
        Kind::Frame => {
            let len = take(&mut body, 1).first().map_or(0, |len| usize::from(*len));
            let mut packet = Packet::new(take(&mut body, len));
            packet.set_unit(&if body.is_empty() { Vec::new() } else { unit(body) });
            packet
        }
        Kind::Unit => Packet::new(&unit(body)),
        _ if sealed => Packet::new(&seal_control(kind, body)),
        _ => Packet::new(body),
    };
    packet.meta.kind = kind;
    packet
}

/// Takes a record off `rest`, as the format in `piggyback` says, whether it makes sense or not. The second part says
/// whether it has a delta, and so a checksum behind it in a unit.
fn take_record<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], bool)> {
    let header = rest.first_chunk::<4>()?;
    let delta = usize::from(u16::from_le_bytes([header[2], header[3]]));
    let (record, after) = rest.split_at_checked(4 + 5 * usize::from(header[1]) + delta)?;
    *rest = after;
    Some((record, delta > 0))
}

/// The records of a unit without what seals them.
pub(super) fn records_of(unit: &[u8]) -> Vec<u8> {
    let (mut records, mut rest) = (Vec::new(), unit.get(UNIT_HEADER..).unwrap_or_default());
    while let Some((record, has_sum)) = take_record(&mut rest) {
        records.extend(record);
        rest = &rest[if has_sum { 4 } else { 0 }..];
    }
    records
}

/// A unit of these records, as the format in `piggyback` says.
fn seal_unit(records: &[u8]) -> Vec<u8> {
    let (mut rest, mut count) = (records, 0u8);
    let (mut body, mut covered) = (Vec::new(), Vec::new());
    while let Some((record, has_sum)) = take_record(&mut rest) {
        count = count.wrapping_add(1);
        body.extend(record);
        if has_sum {
            let sum = crc32c(record).to_le_bytes();
            body.extend(sum);
            covered.extend(sum);
        } else {
            covered.extend(record);
        }
    }
    body.extend(rest);
    covered.extend(rest);
    let bytes = u16::try_from(body.len()).unwrap_or(u16::MAX).to_le_bytes();
    let header = [UNIT_VERSION, count, bytes[0], bytes[1]];
    let crc = crc32c_append(u32::from_le_bytes(header), &covered);
    let unit = [&header[..], &crc.to_le_bytes(), &body].concat();
    debug_assert_eq!(unit.len(), UNIT_HEADER + body.len());
    unit
}

/// A control message with this body, as the format in `ring::control` says.
fn seal_control(kind: Kind, body: &[u8]) -> Vec<u8> {
    let number = KINDS.iter().position(|other| *other == kind).unwrap_or_default();
    let front = [2, number as u8, 0, 0];
    let bytes = (body.len() as u64).to_le_bytes();
    let crc = [&bytes[..], body].into_iter().fold(crc32c(&front), crc32c_append);
    [&front[..], &crc.to_le_bytes(), &bytes, body].concat()
}
