//! The way of state to a replacement, at the source: part by part, while the source goes on working.
//!
//! ```text
//! fetch := view(8) attempt(8) stage(1)*
//! part  := view(8) attempt(8) number(4) last(1) { stage(1) bytes(8) delta }* 255 [ending]
//! ending := { stage(1) applied(8)* commit(8)* }* 255 { lane(1) bytes(4) unit }*
//! ```
//! The deltas of the parts are the rows, in no order; those of the last part end with everything that changed since
//! the first. A delta says what a row is, not what was added to it: whatever the parts saw of a change, behind all of
//! them the rows are those of the moment at which the last part was made, and so are its vectors and retained units.

use super::recover::Control;
use super::{Address, Lanes, Output};
use crate::dependency::{Vector, Version};
use crate::limits::MAX_PARTITIONS;
use crate::mutant::{self, Mutant};
use crate::packet::{Kind, Packet};
use crate::piggyback::{Damage, RecordView, UnitView, select};
use crate::ring::control::{self, Reader};
use crate::state::Held;
use crate::txn::delta;

/// Ends a list of stages.
const END: u8 = u8::MAX;

/// More transactions than any store sees: up to here no version overflows, beyond it one is damage.
const MOST_VERSIONS: Version = 1 << 62;

/// A copy under way.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    to: usize,
    /// View and attempt of the question.
    question: [u64; 2],
    stages: Vec<u8>,
    /// The rows that come next: an index of `stages`, and a partition.
    at: (usize, usize),
    number: u32,
    /// Room for the next part.
    body: Vec<u8>,
    /// For the mutant `torn-snapshot`: the vectors when the copy began.
    torn: Vec<Vector>,
}

impl Control {
    /// A replacement asks for stores.
    pub(super) fn fetched(&mut self, packet: &Packet) -> Result<(), &'static str> {
        match self.begin_copy(packet) {
            Ok(true) => Ok(()),
            Ok(false) => Err("fetch_out_of_time"),
            Err(damage) => Err(damage.reason()),
        }
    }

    /// Begins to copy what is asked for. False where this node has not adopted the view in which the replacement
    /// joins, has no state itself, or has heard this question or a later one before.
    fn begin_copy(&mut self, packet: &Packet) -> Result<bool, Damage> {
        let mut body = control::open(packet, Kind::Fetch)?;
        let question = [body.u64().ok_or(Damage::Record)?, body.u64().ok_or(Damage::Record)?];
        let to = usize::from(packet.meta.sender);
        if question[0] > self.view.number || !self.is_up() || !self.view.accepts(to, packet.meta.incarnation)
        {
            return Ok(false);
        }
        let mut stages = Vec::new();
        while let Some(stage) = body.u8() {
            self.core.store(usize::from(stage)).ok_or(Damage::ForeignStage)?;
            if stages.contains(&stage) {
                return Err(Damage::Record); // an answer holds each store once, however often it is asked for
            }
            stages.push(stage);
        }
        let asked = (packet.meta.incarnation, question);
        if asked <= self.answered && !mutant::is(Mutant::DoubledFetch) {
            return Ok(false); // it is being answered, or was: parts of two answers must not mix
        }
        self.answered = asked;
        self.end_copy();
        let mut torn = Vec::new();
        for &stage in &stages {
            let store = self.core.store(usize::from(stage)).expect("looked up above");
            torn.push(store.versions());
            store.remember_changes(true);
        }
        self.copy = Some(Copy { to, question, stages, at: (0, 0), number: 0, body: Vec::new(), torn });
        Ok(true)
    }

    /// Gives up what is being copied: it is done, or the view has changed and the replacement asks anew.
    pub(super) fn end_copy(&mut self) {
        self.copy = None;
        self.core.stores.iter().flatten().for_each(|store| drop(store.remember_changes(false)));
    }

    /// Sends the next part of what is being copied.
    pub(super) fn copy_on(&mut self, lanes: &mut Lanes<'_>, out: &mut Output) {
        let Some(mut copy) = self.copy.take() else { return };
        let mut body = std::mem::take(&mut copy.body);
        body.clear();
        copy.question.iter().for_each(|number| body.extend_from_slice(&number.to_le_bytes()));
        body.extend_from_slice(&copy.number.to_le_bytes());
        let last_at = body.len();
        body.push(0);
        while let Some(&stage) = copy.stages.get(copy.at.0)
            && (body.len() < self.core.plan.limits.snapshot_bytes || body.len() == last_at + 1)
        {
            self.put_rows(stage, copy.at.1, &mut body);
            copy.at.1 += 1;
            if copy.at.1 == self.core.plan.layout.partitions {
                copy.at = (copy.at.0 + 1, 0);
            }
        }
        let is_last = copy.at.0 == copy.stages.len();
        body[last_at] = u8::from(is_last);
        if is_last {
            self.put_ending(&copy, lanes, &mut body);
        } else {
            body.push(END);
        }
        let mut part = out.pool.take();
        control::seal(&mut part, Kind::Snapshot, &body);
        Address::new(&self.core, &self.view, copy.to).put_on(&mut part);
        out.control.push((copy.to, part));
        copy.number += 1;
        copy.body = body;
        if is_last {
            self.end_copy();
        } else {
            self.copy = Some(copy);
        }
    }

    fn put_rows(&self, stage: u8, partition: usize, body: &mut Vec<u8>) {
        let Some(store) = self.core.store(usize::from(stage)) else { return };
        put_delta(stage, body, |body| {
            for table in store.state.iter() {
                table.visit(partition, &Held::still(), &mut |row| delta::put_change(body, &row));
            }
        });
    }

    /// What makes the parts whole: the changes since the copy began, the vectors, and the units retained.
    fn put_ending(&self, copy: &Copy, lanes: &Lanes<'_>, body: &mut Vec<u8>) {
        let stores =
            || copy.stages.iter().filter_map(|&stage| Some((stage, self.core.store(usize::from(stage))?)));
        for (stage, store) in stores() {
            let changes = store.remember_changes(false);
            put_delta(stage, body, |body| body.extend_from_slice(&changes));
        }
        body.push(END);
        for ((stage, store), torn) in stores().zip(&copy.torn) {
            body.push(stage);
            let applied = if mutant::is(Mutant::TornSnapshot) { *torn } else { store.versions() };
            for vector in [applied, store.commit()] {
                let vector = &vector.0[..self.core.plan.layout.partitions];
                vector.iter().for_each(|version| body.extend_from_slice(&version.to_le_bytes()));
            }
        }
        body.push(END);
        let mut part = Vec::new();
        let most = if mutant::is(Mutant::OneLaneTransfer) { 1 } else { lanes.len() };
        let units = |lane: usize| lanes[lane].retained.units().map(move |unit| (lane, unit));
        for (lane, unit) in (0..most).flat_map(units).filter(|_| !mutant::is(Mutant::NoLogTransfer)) {
            select(unit, |record| self.goes_along(record.stage, copy), &mut part);
            let asked_for = |record: RecordView<'_>| record.writes() && copy.stages.contains(&record.stage);
            if UnitView::trusted(&part).records().any(asked_for) {
                body.push(lane as u8);
                body.extend_from_slice(&(part.len() as u32).to_le_bytes());
                body.extend_from_slice(&part);
            }
        }
    }

    /// Whether the record of a retained unit goes to a replacement: of the stages asked for, and of those that stand
    /// ahead at the replacement, wherever it takes them from. A unit must stay whole: in parts it could be applied in
    /// part, and another failure would leave an effect without what it came from.
    fn goes_along(&self, stage: u8, copy: &Copy) -> bool {
        let head = usize::from(stage);
        if self.core.plan.tail(head) == copy.to || (mutant::is(Mutant::NoHeadLogTransfer) && head == copy.to)
        {
            return false;
        }
        let behind_head = |node: usize| (node + self.core.plan.nodes() - head) % self.core.plan.nodes();
        let is_ahead = behind_head(copy.to) < behind_head(self.core.index);
        copy.stages.contains(&stage) || (is_ahead && !mutant::is(Mutant::SplitTransfer))
    }
}

/// `stage(1) bytes(8) delta`, where there is any.
fn put_delta(stage: u8, body: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = body.len();
    body.push(stage);
    body.extend_from_slice(&[0; 8]);
    fill(body);
    let bytes = (body.len() - at - 9) as u64;
    if bytes == 0 {
        return body.truncate(at);
    }
    body[at + 1..at + 9].copy_from_slice(&bytes.to_le_bytes());
}

/// A part of a copy, as the replacement takes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    /// View and attempt of the question that it answers.
    pub(super) question: [u64; 2],
    pub(super) number: u32,
    pub(super) is_last: bool,
    /// Its deltas, and in the last part the ending.
    body: Reader<'a>,
}

impl<'a> Part<'a> {
    pub(super) fn open(packet: &'a Packet) -> Result<Self, Damage> {
        Part::new(control::open(packet, Kind::Snapshot)?)
    }

    /// A part that was found whole before.
    pub(super) fn opened(packet: &'a Packet) -> Result<Self, Damage> {
        Part::new(control::opened(packet))
    }

    fn new(mut body: Reader<'a>) -> Result<Self, Damage> {
        let head = |body: &mut Reader<'_>| Some(([body.u64()?, body.u64()?], body.u32()?, body.u8()?));
        let (question, number, last) = head(&mut body).ok_or(Damage::Record)?;
        Ok(Part { question, number, is_last: last != 0, body })
    }

    /// The next delta with its stage; none at the end of the list.
    pub(super) fn delta(&mut self) -> Result<Option<(usize, &'a [u8])>, Damage> {
        let stage = self.body.u8().ok_or(Damage::Record)?;
        if stage == END {
            return Ok(None);
        }
        let bytes = self.body.u64().ok_or(Damage::Record)?;
        let bytes = usize::try_from(bytes).map_err(|_| Damage::Length)?;
        Ok(Some((usize::from(stage), self.body.bytes(bytes).ok_or(Damage::Record)?)))
    }

    /// The next store's vectors, applied and committed; none at the end of the list.
    pub(super) fn vectors(&mut self, partitions: usize) -> Result<Option<(usize, [Vector; 2])>, Damage> {
        let stage = self.body.u8().ok_or(Damage::Record)?;
        if stage == END {
            return Ok(None);
        }
        let mut vectors = [Vector([0; MAX_PARTITIONS]); 2];
        for vector in &mut vectors {
            for partition in 0..partitions {
                vector.0[partition] = self.body.u64().ok_or(Damage::Record)?;
            }
        }
        let [applied, commit] = &vectors;
        let impossible = (0..partitions).any(|p| commit[p] > applied[p] || applied[p] > MOST_VERSIONS);
        if impossible { Err(Damage::Record) } else { Ok(Some((usize::from(stage), vectors))) }
    }

    /// The units that are retained for what was asked for, each with its lane. What a node retains must be committed one
    /// day: it passes each record's stage on.
    pub(super) fn units(
        &mut self,
        lanes: usize,
        passes_on: impl Fn(usize) -> bool,
    ) -> Result<Vec<(usize, &'a [u8])>, Damage> {
        let mut units = Vec::new();
        while !self.body.is_empty() {
            let lane = usize::from(self.body.u8().ok_or(Damage::Record)?);
            if lane >= lanes {
                return Err(Damage::Record);
            }
            let bytes = self.body.u32().ok_or(Damage::Record)?;
            let unit = self.body.bytes(bytes as usize).ok_or(Damage::Record)?;
            if !UnitView::parse(unit)?.records().all(|record| passes_on(usize::from(record.stage))) {
                return Err(Damage::ForeignStage);
            }
            units.push((lane, unit));
        }
        Ok(units)
    }
}
