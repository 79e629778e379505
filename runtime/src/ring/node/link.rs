//! The links: acknowledgements backward, repair forward, and the release of what waited for its commit.

use super::head::unit_alone;
use super::{Node, Output, sign};
use crate::clock::Nanos;
use crate::dependency::Vector;
use crate::limits::{MAX_PARTITIONS, REPAIR_UNITS};
use crate::packet::{Kind, Packet};
use crate::piggyback::{Damage, UnitView};
use crate::ring::control;
use crate::ring::plan::Plan;
use crate::ring::store::Store;

/// What a node knows of its two links.
#[derive(Debug)]
pub(super) struct Link {
    /// By stage: what the successor said it has applied.
    applied: Vec<Vector>,
    /// The successor has spoken since the last repair.
    heard: bool,
    /// Repair at once: the successor is new.
    reconnected: bool,
    next_repair: Nanos,
    /// Something was applied or committed since it was last acted upon.
    pub(super) news: bool,
    /// A commit vector rose since frames and units were last let go.
    pub(super) committed_news: bool,
    /// The next acknowledgement names every partition.
    pub(super) tell_all: bool,
    next_tell_all: Nanos,
    body: Vec<u8>,
}

impl Link {
    pub(super) fn new(plan: &Plan) -> Self {
        Link {
            applied: vec![Vector::default(); plan.stages()],
            heard: false,
            reconnected: false,
            next_repair: 0,
            news: false,
            committed_news: false,
            tell_all: true,
            next_tell_all: 0,
            body: Vec::new(),
        }
    }

    /// The successor was replaced: what its predecessor said counts no more.
    pub(super) fn reconnect(&mut self) {
        self.applied.fill(Vector::default());
        self.heard = false;
        self.reconnected = true;
    }
}

/// Whether everything that a unit wrote and saw is on all nodes of its groups, as far as `stores` knows.
fn is_committed(stores: &[Option<Store>], unit: &[u8]) -> bool {
    UnitView::trusted(unit).records().all(|record| {
        stores[usize::from(record.stage)].as_ref().is_some_and(|store| record.covered_by(&store.commit))
    })
}

impl Node {
    /// Tells the predecessor, for each store that both hold, what is applied here and what is known to be committed:
    /// the partitions that changed, or all of them now and then in case a message was lost.
    pub(super) fn acknowledge(&mut self, out: &mut Output) {
        if self.plan.f() == 0 || self.joining.is_some() {
            return;
        }
        let all = self.link.tell_all || self.now.timer >= self.link.next_tell_all;
        if all {
            self.link.next_tell_all = self.now.timer + self.plan.limits.idle_acknowledge;
            self.link.tell_all = false;
        }
        let body = &mut self.link.body;
        body.clear();
        for (stage, store) in self.stores.iter_mut().enumerate() {
            let Some(store) = store.as_mut().filter(|_| stage != self.index) else { continue };
            let mut told = std::mem::take(&mut store.untold);
            if all {
                told = crate::dependency::PartitionSet::first(self.plan.layout.partitions);
            }
            if told.is_empty() {
                continue;
            }
            body.push(stage as u8);
            body.extend_from_slice(&told.0.to_le_bytes());
            for partition in told.iter() {
                body.extend_from_slice(&store.versions[partition].to_le_bytes());
                body.extend_from_slice(&store.commit[partition].to_le_bytes());
            }
        }
        if !body.is_empty() {
            let mut packet = out.pool.take();
            control::seal(&mut packet, Kind::Acknowledge, body);
            sign(&mut packet, self.index, self.incarnation);
            out.backward.push(packet);
        }
    }

    /// Hears the successor's acknowledgement.
    pub(super) fn acknowledged(&mut self, packet: Packet, out: &mut Output) {
        let successor = self.plan.successor(self.index);
        if !self.view.accepts(successor, packet.meta.incarnation) {
            self.stats.refused.count("fenced");
        } else if let Err(damage) = self.hear(&packet) {
            self.stats.refused.count(damage.reason());
        }
        out.pool.give(packet);
    }

    fn hear(&mut self, packet: &Packet) -> Result<(), Damage> {
        let mut body = control::open(packet, Kind::Acknowledge)?;
        while !body.is_empty() {
            let stage = usize::from(body.u8().ok_or(Damage::Record)?);
            let told = crate::dependency::PartitionSet(body.u64().ok_or(Damage::Record)?);
            let store = self.stores.get_mut(stage).ok_or(Damage::ForeignStage)?;
            for partition in told.iter() {
                let applied = body.u64().ok_or(Damage::Record)?;
                let commit = body.u64().ok_or(Damage::Record)?;
                self.link.applied[stage].raise(partition, applied);
                if let Some(store) = store.as_mut() {
                    self.link.committed_news |= store.learn_commit(partition, commit);
                }
            }
        }
        self.link.heard = true;
        Ok(())
    }

    /// Lets go what is committed: retained units, and frames that waited.
    pub(super) fn release(&mut self, out: &mut Output) {
        if self.joining.is_some() {
            return;
        }
        if std::mem::take(&mut self.link.committed_news) {
            let stores = &self.stores;
            self.retained.prune(|unit| is_committed(stores, unit));
            let mut leaving = std::mem::take(&mut self.leaving);
            self.hold.release(|packet| is_committed(stores, packet.unit()), &mut leaving);
            leaving.drain(..).for_each(|packet| self.depart(packet, out));
            self.leaving = leaving;
        }
        if self.link.reconnected && self.link.heard {
            self.repair(out);
        }
    }

    /// Sends units again that the successor lacks: whole, oldest first, without frames.
    pub(super) fn repair(&mut self, out: &mut Output) {
        let now = self.now.timer;
        if self.retained.is_empty()
            || !self.link.heard
            || (now < self.link.next_repair && !self.link.reconnected)
        {
            return;
        }
        let after = self.plan.limits.repair_after;
        let before = if self.link.reconnected { Nanos::MAX } else { now.saturating_sub(after) };
        self.link.next_repair = now + after / 4;
        self.link.reconnected = false;
        self.link.heard = false;
        let applied = &self.link.applied;
        let lacks = |unit: &[u8]| {
            UnitView::trusted(unit).records().any(|record| {
                let here = &applied[usize::from(record.stage)];
                record.seen().any(|s| s.written && here[s.partition] < s.version_after(here[s.partition]))
            })
        };
        let (stats, pool, forward) = (&mut self.stats, &mut out.pool, &mut out.forward);
        let (index, incarnation) = (self.index, self.incarnation);
        self.retained.resend(REPAIR_UNITS, before, now, lacks, |unit| {
            stats.units_repaired += 1;
            stats.unit_bytes += unit.len() as u64;
            let mut packet = unit_alone(unit, pool);
            sign(&mut packet, index, incarnation);
            forward.push(packet);
        });
    }
}

const _: () = assert!(MAX_PARTITIONS <= 64, "an acknowledgement names partitions by a 64-bit set");
