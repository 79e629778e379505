//! Views, the fence, and the way of state to a replacement.

use super::{Node, Output, sign};
use crate::clock::Nanos;
use crate::dependency::{PartitionSet, Vector, Version};
use crate::limits::MAX_PARTITIONS;
use crate::packet::{Kind, Packet};
use crate::piggyback::{Damage, RecordView, UnitView, select};
use crate::ring::control::{self, Reader};
use crate::ring::retained::Retained;
use crate::ring::store::Store;
use crate::ring::view::{Standing, View};
use crate::txn::delta;

/// More transactions than any store sees: up to here no version overflows, beyond it one is damage.
const MOST_VERSIONS: Version = 1 << 62;

/// Where a node is in its life.
#[derive(Debug)]
pub(super) enum Life {
    /// It has all its stores.
    Up,
    /// It replaces a dead node and fetches its stores.
    Joining(Joining),
    /// A view says that it is dead: it takes nothing and lets nothing out any more.
    Retired,
}

/// How far a replacement has come.
#[derive(Debug)]
pub(super) struct Joining {
    /// The view that the sources were picked from.
    view: u64,
    /// What is asked of whom: each stage with its source, as long as the source has not answered.
    pending: Vec<(usize, usize)>,
    asked: Nanos,
}

impl Node {
    /// Adopts a view: first of all it fences every dead incarnation. What waits unapplied from a dead predecessor is
    /// discarded *before* any state is given away: a late unit must not be applied next to a version that the
    /// replacement gives out anew.
    pub fn adopt(&mut self, view: &View, out: &mut Output) {
        if view.number <= self.view.number {
            return;
        }
        let me = view.members[self.index];
        if me.incarnation != self.incarnation || me.standing == Standing::Dead {
            self.view = view.clone();
            return self.retire(out);
        }
        let (before, after) = (self.plan.predecessor(self.index), self.plan.successor(self.index));
        if view.members[after].incarnation != self.view.members[after].incarnation {
            self.link.reconnect();
        }
        self.link.tell_all |= self.view.members[before] != view.members[before];
        self.view = view.clone();
        for _ in 0..self.waiting.len() {
            let Some(packet) = self.waiting.pop_front() else { break };
            if self.view.accepts(before, packet.meta.incarnation) {
                self.waiting.push_back(packet);
            } else {
                self.refuse(packet, "fenced", out);
            }
        }
        if matches!(self.life, Life::Joining(_)) {
            self.fetch(out); // the sources may be others now: start over
        }
    }

    /// Ends this node, which was declared dead although it runs. Another has its place, and what waits here may rest on
    /// versions that the other gives out anew.
    fn retire(&mut self, out: &mut Output) {
        self.life = Life::Retired;
        self.stores.fill_with(|| None);
        self.retained = Retained::default();
        let held = std::mem::take(&mut self.hold).into_packets();
        let waiting = std::mem::take(&mut self.waiting);
        held.chain(waiting).for_each(|packet| self.refuse(packet, "retired", out));
    }

    /// Asks the sources of all stores that this node must hold.
    pub(super) fn fetch(&mut self, out: &mut Output) {
        let mut pending = Vec::new();
        for stage in self.plan.held_by(self.index) {
            match self.view.source(&self.plan, self.index, stage) {
                Some(source) => pending.push((stage, source)),
                None => out.unrecoverable = Some(stage),
            }
        }
        self.stores.fill_with(|| None);
        self.retained = Retained::default();
        self.life = Life::Joining(Joining { view: self.view.number, pending, asked: self.now.timer });
        self.ask(out);
        self.count_in(out);
    }

    /// Asks each source that has not answered, once for all its stores.
    fn ask(&mut self, out: &mut Output) {
        let Life::Joining(joining) = &mut self.life else { return };
        joining.asked = self.now.timer;
        for (at, &(_, source)) in joining.pending.iter().enumerate() {
            if joining.pending[..at].iter().any(|&(_, earlier)| earlier == source) {
                continue;
            }
            let mut body = joining.view.to_le_bytes().to_vec();
            body.extend(joining.pending.iter().filter(|p| p.1 == source).map(|&(stage, _)| stage as u8));
            let mut packet = out.pool.take();
            control::seal(&mut packet, Kind::Fetch, &body);
            sign(&mut packet, self.index, self.incarnation);
            out.control.push((source, packet));
        }
    }

    /// Asks again where an answer or its question got lost.
    pub(super) fn ask_again(&mut self, out: &mut Output) {
        let Life::Joining(joining) = &self.life else { return };
        let wait = self.plan.limits.idle_acknowledge.saturating_mul(16);
        if self.now.timer > joining.asked.saturating_add(wait) {
            self.ask(out);
        }
    }

    /// A replacement asks for stores.
    pub(super) fn fetched(&mut self, packet: Packet, out: &mut Output) {
        match self.answer(&packet, out) {
            Ok(Some(body)) => {
                let mut answer = out.pool.take();
                control::seal(&mut answer, Kind::Snapshot, &body);
                sign(&mut answer, self.index, self.incarnation);
                out.control.push((usize::from(packet.meta.sender), answer));
            }
            Ok(None) => self.stats.refused.count("fetch_too_early"),
            Err(damage) => self.stats.refused.count(damage.reason()),
        }
        out.pool.give(packet);
    }

    /// The stores asked for, all at this one moment, with the units retained for them. `None` where this node has not
    /// adopted the view in which the replacement joins, or has no state itself.
    fn answer(&mut self, packet: &Packet, out: &mut Output) -> Result<Option<Vec<u8>>, Damage> {
        let mut body = control::open(packet, Kind::Fetch)?;
        let view = body.u64().ok_or(Damage::Record)?;
        let requester = usize::from(packet.meta.sender);
        if view > self.view.number || !self.is_up() || !self.view.accepts(requester, packet.meta.incarnation)
        {
            return Ok(None);
        }
        self.close(out); // nothing half done
        let mut answer = view.to_le_bytes().to_vec();
        let mut stages = Vec::new();
        while let Some(stage) = body.u8() {
            let store = self.store(usize::from(stage)).ok_or(Damage::ForeignStage)?;
            if stages.contains(&stage) {
                return Err(Damage::Record); // an answer holds each store once, however often it is asked for
            }
            answer.push(stage);
            put_store(store, self.plan.layout.partitions, &mut answer);
            stages.push(stage);
        }
        answer.push(u8::MAX);
        let mut part = Vec::new();
        for unit in self.retained.units() {
            select(unit, |record| self.goes_along(record.stage, &stages, requester), &mut part);
            let asked_for = |record: RecordView<'_>| record.writes() && stages.contains(&record.stage);
            if UnitView::trusted(&part).records().any(asked_for) {
                answer.extend_from_slice(&(part.len() as u32).to_le_bytes());
                answer.extend_from_slice(&part);
            }
        }
        Ok(Some(answer))
    }

    /// Whether the record of a retained unit goes to a replacement: of the stages asked for, and of those that stand
    /// ahead at the replacement, wherever it takes them from. A unit must stay whole: in parts it could be applied in
    /// part, and another failure would leave an effect without what it came from.
    fn goes_along(&self, stage: u8, asked_for: &[u8], requester: usize) -> bool {
        let behind_head = |node: usize| (node + self.plan.nodes() - usize::from(stage)) % self.plan.nodes();
        self.plan.tail(usize::from(stage)) != requester
            && (asked_for.contains(&stage) || behind_head(requester) < behind_head(self.index))
    }

    /// A source's answer: its stores become this node's.
    pub(super) fn install(&mut self, packet: Packet, out: &mut Output) {
        let source = usize::from(packet.meta.sender);
        let expected = match &self.life {
            Life::Joining(joining) => joining.pending.iter().any(|&(_, from)| from == source),
            _ => false,
        };
        let taken = if expected && self.view.accepts(source, packet.meta.incarnation) {
            self.take_over(&packet, source)
        } else {
            Ok(false)
        };
        match taken {
            Ok(true) => self.count_in(out),
            Ok(false) => self.stats.refused.count("unexpected_snapshot"),
            Err(damage) => self.stats.refused.count(damage.reason()),
        }
        out.pool.give(packet);
    }

    /// Installs a source's answer, whole or not at all. False where it answers a question of an older view.
    fn take_over(&mut self, packet: &Packet, source: usize) -> Result<bool, Damage> {
        let mut body = control::open(packet, Kind::Snapshot)?;
        let view = body.u64().ok_or(Damage::Record)?;
        let Life::Joining(joining) = &mut self.life else { return Ok(false) };
        if joining.view != view {
            return Ok(false);
        }
        let mut asked: Vec<usize> =
            joining.pending.iter().filter(|p| p.1 == source).map(|&(stage, _)| stage).collect();
        let mut stores = Vec::new();
        loop {
            match body.u8().ok_or(Damage::Record)? {
                u8::MAX => break,
                stage => {
                    let stage = usize::from(stage);
                    let at = asked.iter().position(|s| *s == stage).ok_or(Damage::ForeignStage)?;
                    asked.swap_remove(at);
                    let is_tail = self.plan.tail(stage) == self.index;
                    let mut store = Store::new(self.nfs[stage].new_state(&self.plan.layout), is_tail);
                    take_store(&mut store, self.plan.layout.partitions, &mut body)?;
                    stores.push((stage, store));
                }
            }
        }
        if !asked.is_empty() {
            return Err(Damage::Record);
        }
        // What this node retains must be committed one day: it has a store of its own for each record.
        let passed_on = |record: RecordView<'_>| {
            let stage = usize::from(record.stage);
            stage < self.plan.stages()
                && self.plan.holds(self.index, stage)
                && self.plan.tail(stage) != self.index
        };
        let mut units = Vec::new();
        while !body.is_empty() {
            let len = body.u32().ok_or(Damage::Record)?;
            let unit = body.bytes(len as usize).ok_or(Damage::Record)?;
            if !UnitView::parse(unit)?.records().all(passed_on) {
                return Err(Damage::ForeignStage);
            }
            units.push(unit);
        }
        joining.pending.retain(|&(_, from)| from != source);
        stores.into_iter().for_each(|(stage, store)| self.stores[stage] = Some(store));
        units.into_iter().for_each(|unit| self.retained.push(unit, 0));
        Ok(true)
    }

    /// Once every store is here the node is up: it tells its predecessor all, and repairs as soon as its successor
    /// has told what it has.
    fn count_in(&mut self, out: &mut Output) {
        let complete = matches!(&self.life, Life::Joining(joining) if joining.pending.is_empty());
        if complete && self.plan.held_by(self.index).all(|stage| self.stores[stage].is_some()) {
            self.life = Life::Up;
            self.link.tell_all = true;
            self.link.reconnect();
            self.link.committed_news = true; // what came with the stores may be committed already
            out.caught_up = true;
        }
    }
}

/// `versions commits rows_bytes(8, LE) delta`: the vectors as 64-bit numbers, every row as a change.
fn put_store(store: &Store, partitions: usize, out: &mut Vec<u8>) {
    for vector in [&store.versions, &store.commit] {
        vector.0[..partitions].iter().for_each(|version| out.extend_from_slice(&version.to_le_bytes()));
    }
    let at = out.len();
    out.extend_from_slice(&[0; 8]);
    for table in store.state.iter() {
        for partition in 0..partitions {
            table.visit(partition, &mut |row| delta::put_change(out, &row));
        }
    }
    let bytes = (out.len() - at - 8) as u64;
    out[at..at + 8].copy_from_slice(&bytes.to_le_bytes());
}

fn take_store(store: &mut Store, partitions: usize, body: &mut Reader<'_>) -> Result<(), Damage> {
    let mut vectors = [Vector([0; MAX_PARTITIONS]); 2];
    for vector in &mut vectors {
        for partition in 0..partitions {
            vector.0[partition] = body.u64().ok_or(Damage::Record)?;
        }
    }
    let [versions, commit] = vectors;
    if versions.0.iter().zip(commit.0).any(|(version, commit)| commit > *version || *version > MOST_VERSIONS)
    {
        return Err(Damage::Record);
    }
    let bytes = body.u64().ok_or(Damage::Record)?;
    let rows = body.bytes(usize::try_from(bytes).map_err(|_| Damage::Length)?).ok_or(Damage::Record)?;
    let all = PartitionSet::first(partitions);
    delta::check(&*store.state, rows, all).map_err(|_| Damage::Delta)?;
    delta::apply(&mut *store.state, rows);
    store.install(versions, commit);
    Ok(())
}
