//! The replica: takes units over, all records of one or none.

use super::Output;
use super::lane::Lane;
use crate::dependency::PartitionSet;
use crate::mutant::{self, Mutant};
use crate::packet::{Kind, Packet};
use crate::piggyback::{Damage, RecordView, UnitView};
use crate::ring::hold::Flows;
use crate::ring::store::Status;
use crate::state::Held;
use crate::txn::delta;

/// How often a lane looks in one turn whether another has applied what it waits for: for some microseconds.
const LOOKS: u32 = 64;

/// What became of a packet's unit.
pub(super) enum Outcome {
    /// It is applied; `news` says that some of it was not here before.
    Applied { news: bool },
    /// It depends on something that is not here.
    Waits,
    /// It makes no sense.
    Damaged(Damage),
}

/// The bytes of a packet's unit.
fn unit_of(packet: &Packet) -> &[u8] {
    if packet.meta.kind == Kind::Unit { packet.frame() } else { packet.unit() }
}

impl Lane {
    /// Applies the unit of a packet. All its records are applied at this one moment, or none: what a later stage did
    /// for a packet must never be here without what earlier stages did.
    pub(super) fn replicate(&mut self, packet: &Packet) -> Outcome {
        let unit = match UnitView::parse(unit_of(packet)) {
            Ok(unit) => unit,
            Err(damage) => return Outcome::Damaged(damage),
        };
        match self.readiness(&unit) {
            Err(damage) => Outcome::Damaged(damage),
            Ok(None) => {
                if mutant::is(Mutant::PerRecord) {
                    unit.records().for_each(|record| _ = self.check(&record));
                    self.apply_ready(&unit, u64::MAX);
                }
                Outcome::Waits
            }
            Ok(Some(0)) => Outcome::Applied { news: false },
            Ok(Some(stages)) => {
                let news = self.apply_ready(&unit, stages);
                if self.number == 0 || !mutant::is(Mutant::SilentLane) {
                    self.core.tell(&self.core.applied);
                }
                Outcome::Applied { news }
            }
        }
    }

    /// Applies the records of a unit that are ready, which are those of `stages`, and says whether any was. Another lane may
    /// have been faster: what is ready is asked again under the claims, and what was ready before is so still, or done.
    fn apply_ready(&mut self, unit: &UnitView<'_>, stages: u64) -> bool {
        let is_shared = self.core.is_shared();
        if is_shared {
            self.claim(unit);
        }
        let mut news = false;
        for record in unit.records().filter(|record| stages >> record.stage & 1 == 1) {
            let stage = usize::from(record.stage);
            let Some(store) = self.core.store(stage) else { continue };
            let asks_again = is_shared || mutant::is(Mutant::PerRecord);
            if !asks_again || store.status(&record) == Status::Ready {
                let written = record.written();
                store.take(record.delta, self.sites[stage].iter().copied(), written, &self.held[stage]);
                let untold = &mut self.link.untold[stage].applied;
                *untold = untold.union(written);
                news = true;
            }
        }
        if is_shared {
            self.held.iter_mut().for_each(Held::release);
        }
        news
    }

    /// Claims all that a unit writes, and waits for it. In the order of the stages, so that no two lanes wait for each
    /// other.
    fn claim(&mut self, unit: &UnitView<'_>) {
        for (stage, held) in self.held.iter_mut().enumerate() {
            let mut written = PartitionSet::default();
            let records = unit.records().filter(|record| usize::from(record.stage) == stage);
            records.for_each(|record| written = written.union(record.written()));
            held.await_write(written);
        }
    }

    /// Which records of a unit are ready, by their stages, where the others are here already; `None` where it must wait.
    /// Checks each delta that would be applied, and finds where its rows are.
    fn readiness(&mut self, unit: &UnitView<'_>) -> Result<Option<u64>, Damage> {
        let mut stages = 0;
        for record in unit.records() {
            let stage = usize::from(record.stage);
            let store = self.core.store(stage).filter(|_| stage != self.core.index);
            let store = store.ok_or(Damage::ForeignStage)?;
            if record.seen().last().is_some_and(|seen| seen.partition >= self.core.plan.layout.partitions) {
                return Err(Damage::Record);
            }
            match store.status(&record) {
                Status::Wait => return Ok(None),
                Status::Duplicate => {}
                Status::Ready => {
                    self.check(&record)?;
                    stages |= 1 << stage;
                }
            }
        }
        Ok(Some(stages))
    }

    /// Checks the delta of a record, and finds where its rows are.
    fn check(&mut self, record: &RecordView<'_>) -> Result<(), Damage> {
        let stage = usize::from(record.stage);
        let store = self.core.store(stage).ok_or(Damage::ForeignStage)?;
        let (held, sites) = (&self.held[stage], &mut self.sites[stage]);
        sites.clear();
        delta::find(&*store.state, record.delta, record.written(), held, sites).map_err(|_| Damage::Delta)
    }

    /// What is wrong with a packet's unit, whether it is ready or not.
    pub(super) fn damage(&mut self, packet: &Packet) -> Option<Damage> {
        UnitView::parse(unit_of(packet)).and_then(|unit| self.readiness(&unit)).err()
    }

    /// Whether a frame must wait because one of its flow does: frames of a flow keep their order. (Where links changed it,
    /// the one in front may wait for the unit of the one behind; that unit then comes again, alone.)
    pub(super) fn is_behind(&self, packet: &Packet) -> bool {
        let is_frame = |packet: &Packet| packet.meta.kind == Kind::Frame;
        let in_front = |other: &Packet| is_frame(other) && other.meta.flow == packet.meta.flow;
        !self.waiting.is_empty() && is_frame(packet) && self.waiting.iter().any(in_front)
    }

    /// Keeps a packet until its unit is ready. Where the place is full the packet is given up: its unit is retained
    /// by the predecessor and comes again.
    pub(super) fn wait(&mut self, packet: Packet, out: &mut Output) {
        let same = |other: &Packet| other.meta.kind == Kind::Unit && other.frame() == packet.frame();
        let again = packet.meta.kind == Kind::Unit && self.waiting.iter().any(same);
        if again {
            out.pool.give(packet);
        } else if self.waiting.len() >= self.core.plan.limits.waiting {
            self.refuse(packet, "waiting_place_full", out);
        } else {
            self.waiting.push_back(packet);
        }
    }

    /// Tries the waiting packets again where something was applied meanwhile, by this lane or another, until none is
    /// ready. Lanes that write one partition wait for each other in turn, and mostly for a moment only: so they wait for it
    /// here. But others may never pause, nor ever come, and a turn must end.
    pub(super) fn settle(&mut self, out: &mut Output) {
        let mut patience = if self.core.is_shared() { LOOKS } else { 0 };
        while !self.waiting.is_empty() {
            if self.core.applied.look(&mut self.link.applied_seen) && self.try_waiting(out) {
                continue;
            }
            if patience == 0 {
                break;
            }
            patience -= 1;
            std::hint::spin_loop();
        }
    }

    /// Tries each waiting packet again, and says whether any was ready.
    fn try_waiting(&mut self, out: &mut Output) -> bool {
        let mut got_on = false;
        let mut stuck = Flows::default();
        for _ in 0..self.waiting.len() {
            let Some(packet) = self.waiting.pop_front() else { break };
            let is_frame = packet.meta.kind == Kind::Frame;
            if is_frame && stuck.contain(packet.meta.flow) {
                self.waiting.push_back(packet);
                continue;
            }
            match self.replicate(&packet) {
                Outcome::Waits => {
                    if is_frame {
                        stuck.add(packet.meta.flow);
                    }
                    self.waiting.push_back(packet);
                }
                Outcome::Applied { news } => {
                    got_on = true;
                    self.stage(packet, news, out);
                }
                Outcome::Damaged(damage) => self.refuse(packet, damage.reason(), out),
            }
        }
        got_on
    }
}
