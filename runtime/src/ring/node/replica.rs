//! The replica: takes units over, all records of one or none.

use super::{Node, Output};
use crate::mutant::{self, Mutant};
use crate::packet::{Kind, Packet};
use crate::piggyback::{Damage, UnitView};
use crate::ring::store::Status;
use crate::txn::delta;

/// What became of a packet's unit.
pub(super) enum Outcome {
    /// It is applied; `news` says that some of it was not here before.
    Applied { news: bool },
    /// It depends on something that is not here.
    Waits,
    /// It makes no sense.
    Damaged(Damage),
}

impl Node {
    /// Applies the unit of a packet. All its records are applied at this one moment, or none: what a later stage did
    /// for a packet must never be here without what earlier stages did.
    pub(super) fn replicate(&mut self, packet: &Packet) -> Outcome {
        let bytes = if packet.meta.kind == Kind::Unit { packet.frame() } else { packet.unit() };
        let unit = match UnitView::parse(bytes) {
            Ok(unit) => unit,
            Err(damage) => return Outcome::Damaged(damage),
        };
        match self.readiness(&unit) {
            Err(damage) => Outcome::Damaged(damage),
            Ok(Status::Wait) => {
                if mutant::is(Mutant::PerRecord) {
                    self.apply_ready(&unit);
                }
                Outcome::Waits
            }
            Ok(Status::Duplicate) => Outcome::Applied { news: false },
            Ok(Status::Ready) => {
                self.apply_ready(&unit);
                self.link.news = true;
                Outcome::Applied { news: true }
            }
        }
    }

    fn apply_ready(&mut self, unit: &UnitView<'_>) {
        for record in unit.records() {
            let store = self.stores.get_mut(usize::from(record.stage)).and_then(Option::as_mut);
            if let Some(store) = store.filter(|store| store.status(&record) == Status::Ready) {
                store.apply(&record);
            }
        }
    }

    /// Whether all records of a unit are ready or here; checks each delta that would be applied.
    fn readiness(&self, unit: &UnitView<'_>) -> Result<Status, Damage> {
        let mut all = Status::Duplicate;
        for record in unit.records() {
            let stage = usize::from(record.stage);
            let store = self.stores.get(stage).and_then(Option::as_ref);
            let store = store.filter(|_| stage != self.index).ok_or(Damage::ForeignStage)?;
            if record.seen().last().is_some_and(|seen| seen.partition >= self.plan.layout.partitions) {
                return Err(Damage::Record);
            }
            match store.status(&record) {
                Status::Wait => return Ok(Status::Wait),
                Status::Duplicate => {}
                Status::Ready => {
                    delta::check(&*store.state, record.delta, record.written()).map_err(|_| Damage::Delta)?;
                    all = Status::Ready;
                }
            }
        }
        Ok(all)
    }

    /// Keeps a packet until its unit is ready. Where the place is full the packet is given up: its unit is retained
    /// by the predecessor and comes again.
    pub(super) fn wait(&mut self, packet: Packet, out: &mut Output) {
        let same = |other: &Packet| other.meta.kind == Kind::Unit && other.frame() == packet.frame();
        let again = packet.meta.kind == Kind::Unit && self.waiting.iter().any(same);
        if again {
            out.pool.give(packet);
        } else if self.waiting.len() >= self.plan.limits.waiting {
            self.refuse(packet, "waiting_place_full", out);
        } else {
            self.waiting.push_back(packet);
        }
    }

    /// Tries the waiting packets again, until none is ready.
    pub(super) fn settle(&mut self, out: &mut Output) {
        let mut progress = self.link.news;
        while progress && !self.waiting.is_empty() {
            progress = false;
            for _ in 0..self.waiting.len() {
                let Some(packet) = self.waiting.pop_front() else { break };
                match self.replicate(&packet) {
                    Outcome::Waits => self.waiting.push_back(packet),
                    Outcome::Applied { news } => {
                        progress = true;
                        self.stage(packet, news, out);
                    }
                    Outcome::Damaged(damage) => self.refuse(packet, damage.reason(), out),
                }
            }
        }
        self.link.news = false;
    }
}
