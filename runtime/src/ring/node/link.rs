//! The links: acknowledgements backward, repair forward, and the release of what waited for its commit.

use super::Output;
use super::head::unit_alone;
use super::lane::{Core, Lane};
use crate::clock::Nanos;
use crate::dependency::{PartitionSet, Vector, Versions, lengthen, shorten};
use crate::limits::REPAIR_UNITS;
use crate::mutant::{self, Mutant};
use crate::packet::{Kind, Packet};
use crate::piggyback::{Damage, UnitView, select};
use crate::ring::control::{self, Reader};
use crate::ring::plan::Plan;
use crate::ring::store::Store;

/// The longest time between two repairs, in multiples of the first.
const MOST_PATIENCE: u64 = 32;

// acknowledgement := all(1) { stage(1) partitions(8, LE) { version(4, LE) }* }*
// The versions are those applied or, where the stage has its top bit, those committed, which are applied as well. They are
// short, as in records.
const ACKNOWLEDGE_HEADER: usize = 1;
const ACKNOWLEDGE_STORE: usize = 9;
const ACKNOWLEDGE_PARTITION: usize = 4;
const COMMITTED: u8 = 0x80;

/// What a node knows of its two links.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// By stage: what the successor said it has applied.
    applied: Vec<Vector>,
    /// The successor has spoken since the last repair.
    heard: bool,
    /// The successor has named every partition since it is there.
    heard_all: bool,
    /// Repair at once: the successor is new.
    reconnected: bool,
    next_repair: Nanos,
    /// The time between two repairs; it doubles while they bring nothing.
    patience: Nanos,
    /// By stage: what the predecessor has not been told.
    pub(super) untold: Vec<Untold>,
    /// How often something had been applied when waiting messages were last looked at, and how often a commit vector had
    /// risen when frames and units were last let go.
    pub(super) applied_seen: u64,
    pub(super) committed_seen: u64,
    /// The next acknowledgement names every partition.
    pub(super) tell_all: bool,
    next_tell_all: Nanos,
    body: Vec<u8>,
}

/// The partitions of a store of which there is something to tell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Untold {
    /// Something was applied.
    pub(super) applied: PartitionSet,
    /// The commit vector rose.
    committed: PartitionSet,
}

impl Link {
    pub(super) fn new(plan: &Plan) -> Self {
        Link {
            applied: vec![Vector::default(); plan.stages()],
            heard: false,
            heard_all: false,
            reconnected: false,
            next_repair: 0,
            patience: 0,
            untold: vec![Untold::default(); plan.stages()],
            applied_seen: 0,
            committed_seen: 0,
            tell_all: true,
            next_tell_all: 0,
            body: Vec::new(),
        }
    }

    /// The successor was replaced: what its predecessor said counts no more.
    pub(super) fn reconnect(&mut self) {
        self.applied.fill(Vector::default());
        self.heard = false;
        self.heard_all = false;
        self.reconnected = true;
    }
}

#[cfg(feature = "simulation")]
impl Link {
    /// Hashes all that decides what the links do next; `ahead` says how far a time is ahead.
    pub(super) fn hash_into(
        &self,
        partitions: usize,
        ahead: impl Fn(Nanos) -> Nanos,
        hasher: &mut impl std::hash::Hasher,
    ) {
        use std::hash::Hash;
        self.applied.iter().for_each(|vector| vector.0[..partitions].hash(hasher));
        self.untold.iter().for_each(|untold| (untold.applied.0, untold.committed.0).hash(hasher));
        (self.heard, self.heard_all, self.reconnected, self.tell_all, self.patience).hash(hasher);
        (ahead(self.next_repair), ahead(self.next_tell_all)).hash(hasher);
    }

    /// See [`Node::age`].
    pub(super) fn age(&mut self, version: u64) {
        self.applied.iter_mut().for_each(|vector| vector.0.fill(version));
    }
}

/// Whether everything that a unit wrote and saw is on all nodes of its groups, as far as this node knows.
fn is_committed(core: &Core, unit: &[u8]) -> bool {
    UnitView::trusted(unit).records().all(|record| {
        core.store(usize::from(record.stage)).is_some_and(|store| record.covered_by(store.live_commit()))
    })
}

impl Lane {
    /// Tells the predecessor, for each store that both hold, what is applied here and what is known to be committed:
    /// the partitions that changed, or all of them now and then in case a message was lost.
    pub(super) fn acknowledge(&mut self, out: &mut Output) {
        if self.core.plan.f() == 0 || !self.is_up() {
            return;
        }
        let all = self.link.tell_all || self.now.timer >= self.link.next_tell_all;
        if all {
            self.link.next_tell_all = self.now.timer + self.core.plan.limits.idle_acknowledge;
            self.link.tell_all = false;
        }
        let head_of = self.core.index;
        for stage in (0..self.core.stores.len()).filter(|&stage| stage != head_of) {
            let Some(is_tail) = self.core.store(stage).map(Store::is_tail) else { continue };
            let mut untold = std::mem::take(&mut self.link.untold[stage]);
            if all {
                let every = PartitionSet::first(self.core.plan.layout.partitions);
                untold = Untold { applied: every, committed: every };
            }
            // What a tail has applied is committed.
            if is_tail {
                self.tell(stage, untold.applied, true, all, out);
            } else {
                self.tell(stage, untold.applied, false, all, out);
                self.tell(stage, untold.committed, true, all, out);
            }
        }
        self.send_told(out);
    }

    /// Writes versions of one store into the open acknowledgement, and sends it where it has grown to the MTU.
    fn tell(&mut self, stage: usize, told: PartitionSet, committed: bool, all: bool, out: &mut Output) {
        let most = self.core.plan.limits.mtu;
        let most = most.saturating_sub(control::HEADER + ACKNOWLEDGE_HEADER + ACKNOWLEDGE_STORE);
        let mut rest = told;
        while !rest.is_empty() {
            let room = most.saturating_sub(self.link.body.len()) / ACKNOWLEDGE_PARTITION;
            if room == 0 && !self.link.body.is_empty() {
                self.send_told(out);
                continue;
            }
            let part = rest.take_first(room.max(1));
            if self.link.body.is_empty() {
                self.link.body.push(u8::from(all));
            }
            let Some(store) = self.core.store(stage) else { return };
            let versions = if committed { store.live_commit() } else { store.live_versions() };
            let body = &mut self.link.body;
            body.push(stage as u8 | if committed { COMMITTED } else { 0 });
            body.extend_from_slice(&part.0.to_le_bytes());
            let at = body.len();
            body.resize(at + part.len() * ACKNOWLEDGE_PARTITION, 0);
            for (partition, bytes) in part.iter().zip(body[at..].as_chunks_mut().0) {
                *bytes = shorten(versions.version(partition)).to_le_bytes();
            }
        }
    }

    fn send_told(&mut self, out: &mut Output) {
        if !self.link.body.is_empty() {
            let mut packet = out.pool.take();
            control::seal(&mut packet, Kind::Acknowledge, &self.link.body);
            self.address(self.core.plan.predecessor(self.core.index)).put_on(&mut packet);
            out.backward.push(packet);
            self.link.body.clear();
        }
    }

    /// Hears the successor's acknowledgement.
    pub(super) fn acknowledged(&mut self, packet: Packet, out: &mut Output) {
        let successor = self.core.plan.successor(self.core.index);
        if !self.view.accepts(successor, packet.meta.incarnation) {
            self.stats.refused.count("fenced");
        } else if let Err(damage) = self.hear(&packet) {
            self.stats.refused.count(damage.reason());
        }
        out.pool.give(packet);
    }

    /// Takes an acknowledgement in.
    fn hear(&mut self, packet: &Packet) -> Result<(), Damage> {
        let mut body = control::open(packet, Kind::Acknowledge)?;
        let all = body.u8().ok_or(Damage::Record)?;
        self.hear_stores(body)?;
        self.link.heard = true;
        self.link.heard_all |= all != 0;
        Ok(())
    }

    fn hear_stores(&mut self, mut body: Reader<'_>) -> Result<(), Damage> {
        while !body.is_empty() {
            let stage = body.u8().ok_or(Damage::Record)?;
            let (stage, committed) = (usize::from(stage & !COMMITTED), stage & COMMITTED != 0);
            let told = PartitionSet(body.u64().ok_or(Damage::Record)?);
            let versions = body.bytes(told.len() * ACKNOWLEDGE_PARTITION).ok_or(Damage::Record)?;
            let store = self.core.stores.get(stage).ok_or(Damage::ForeignStage)?;
            let Some(store) = store else { continue };
            let (versions, _) = versions.as_chunks::<ACKNOWLEDGE_PARTITION>();
            let (applied, mut learned) = (&mut self.link.applied[stage], PartitionSet::default());
            let commits = committed || mutant::is(Mutant::CommitIsApplied);
            for (partition, short) in told.iter().zip(versions) {
                let here = store.live_versions().version(partition);
                let version = lengthen(u32::from_le_bytes(*short), here);
                applied.raise(partition, version);
                if commits && store.learn_commit(partition, version) {
                    learned.insert(partition);
                }
            }
            if !learned.is_empty() {
                let untold = &mut self.link.untold[stage].committed;
                *untold = untold.union(learned);
                self.core.tell(&self.core.committed);
            }
        }
        Ok(())
    }

    /// Lets go what is committed: retained units, and frames that waited.
    pub(super) fn release(&mut self, out: &mut Output) {
        if !self.is_up() {
            return;
        }
        if self.core.committed.look(&mut self.link.committed_seen) {
            let core = &*self.core;
            if self.retained.prune(|name| is_committed(core, name)) {
                self.link.patience = 0;
            }
            let mut leaving = std::mem::take(&mut self.leaving);
            self.hold.release(|name| is_committed(core, name), &mut leaving);
            match mutant::is(Mutant::HeldVanish) {
                true => out.pool.give_all(&mut leaving),
                false => self.depart(leaving.drain(..), out),
            }
            self.leaving = leaving;
        }
        if self.link.reconnected && self.link.heard_all {
            self.repair(out);
        }
    }

    /// Sends units again that the successor lacks: whole, oldest first, without frames.
    pub(super) fn repair(&mut self, out: &mut Output) {
        let (now, after) = (self.now.timer, self.core.plan.limits.repair_after);
        let at_once = self.link.reconnected && self.link.heard_all;
        let due = at_once || now >= self.link.next_repair;
        if self.retained.is_empty() || !self.link.heard || !due || mutant::is(Mutant::NoRepair) {
            return;
        }
        let before = if at_once { Nanos::MAX } else { now.saturating_sub(after) };
        self.link.reconnected &= !at_once;
        self.link.heard = false;
        let address = self.address(self.core.plan.successor(self.core.index));
        let repaired_before = self.stats.units_repaired;
        let applied = &self.link.applied;
        let lacks = |unit: &[u8]| {
            UnitView::trusted(unit).records().any(|record| {
                let here = &applied[usize::from(record.stage)];
                record.seen().any(|s| s.written && here[s.partition] < s.version_after(here[s.partition]))
            })
        };
        let (stats, pool, forward) = (&mut self.stats, &mut out.pool, &mut out.forward);
        self.retained.resend(REPAIR_UNITS, before, now, lacks, |unit| {
            stats.units_repaired += 1;
            stats.unit_bytes += unit.len() as u64;
            let mut send = |unit: &[u8]| {
                let mut packet = unit_alone(unit, pool);
                address.put_on(&mut packet);
                forward.push(packet);
            };
            if mutant::is(Mutant::SingleRecordRepair) {
                let mut single = Vec::new();
                for record in UnitView::trusted(unit).records() {
                    select(unit, |other| *other == record, &mut single);
                    send(&single);
                }
            } else {
                send(unit);
            }
        });
        let sent = self.stats.units_repaired > repaired_before;
        // What brings nothing is done more and more rarely: on a crowded link it would only crowd it more.
        let patience =
            if sent { (2 * self.link.patience).clamp(after / 4, MOST_PATIENCE * after) } else { after / 4 };
        self.link.patience = patience;
        self.link.next_repair = now + patience;
    }
}
