//! Views, the fence, and the way of state to a replacement.

use super::{Node, Output, sign};
use crate::clock::Nanos;
use crate::dependency::Vector;
use crate::limits::MAX_PARTITIONS;
use crate::packet::{Kind, Packet};
use crate::piggyback::{Damage, UnitView, select};
use crate::ring::control::{self, Reader};
use crate::ring::store::Store;
use crate::ring::view::{Standing, View};
use crate::txn::delta;

/// How far a replacement has come.
#[derive(Debug)]
pub(super) struct Joining {
    /// The view that the sources were picked from.
    view: u64,
    /// Sources that have not answered.
    sources: Vec<usize>,
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
        let (before, after) = (self.plan.predecessor(self.index), self.plan.successor(self.index));
        let changed = |node: usize| self.view.members[node] != view.members[node];
        if changed(after) && view.members[after].incarnation != self.view.members[after].incarnation {
            self.link.reconnect();
        }
        self.link.tell_all |= changed(before);
        self.view = view.clone();
        for _ in 0..self.waiting.len() {
            let Some(packet) = self.waiting.pop_front() else { break };
            if self.view.accepts(before, packet.meta.incarnation) {
                self.waiting.push_back(packet);
            } else {
                self.refuse(packet, "fenced", out);
            }
        }
        if self.joining.is_some() && self.standing() == Standing::Joining {
            self.fetch(out); // the sources may be others now: start over
        }
    }

    /// Asks the sources of all stores that this node must hold.
    pub(super) fn fetch(&mut self, out: &mut Output) {
        let wanted = self.wanted(out);
        let mut sources: Vec<usize> = wanted.iter().map(|&(_, source)| source).collect();
        sources.sort_unstable();
        sources.dedup();
        self.stores.fill_with(|| None);
        self.retained = crate::ring::retained::Retained::default();
        for &source in &sources {
            let mut body = self.view.number.to_le_bytes().to_vec();
            body.extend(wanted.iter().filter(|(_, from)| *from == source).map(|&(stage, _)| stage as u8));
            let mut packet = out.pool.take();
            control::seal(&mut packet, Kind::Fetch, &body);
            sign(&mut packet, self.index, self.incarnation);
            out.control.push((source, packet));
        }
        self.joining = Some(Joining { view: self.view.number, sources, asked: self.now.timer });
        self.count_in(out);
    }

    /// Each stage that this node must hold, and where its store comes from.
    fn wanted(&self, out: &mut Output) -> Vec<(usize, usize)> {
        let mut wanted = Vec::new();
        for stage in self.plan.held_by(self.index) {
            match self.view.source(&self.plan, self.index, stage) {
                Some(source) => wanted.push((stage, source)),
                None => out.unrecoverable = Some(stage),
            }
        }
        wanted
    }

    /// Asks again where an answer or its question got lost.
    pub(super) fn ask_again(&mut self, out: &mut Output) {
        let wait = self.plan.limits.idle_acknowledge.saturating_mul(16);
        if self.joining.as_ref().is_some_and(|j| self.now.timer > j.asked.saturating_add(wait)) {
            self.fetch(out);
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
        if view > self.view.number
            || self.joining.is_some()
            || !self.view.accepts(requester, packet.meta.incarnation)
        {
            return Ok(None);
        }
        self.close(out); // nothing half done
        let mut answer = view.to_le_bytes().to_vec();
        let mut stages = Vec::new();
        while let Some(stage) = body.u8() {
            let store = self.store(usize::from(stage)).ok_or(Damage::ForeignStage)?;
            answer.push(stage);
            put_store(store, self.plan.layout.partitions, &mut answer);
            stages.push(stage);
        }
        answer.push(u8::MAX);
        let mut part = Vec::new();
        for unit in self.retained.units() {
            let wanted =
                |stage: u8| stages.contains(&stage) && self.plan.tail(usize::from(stage)) != requester;
            select(unit, |record| wanted(record.stage), &mut part);
            if UnitView::trusted(&part).records().any(|record| record.writes()) {
                answer.extend_from_slice(&(part.len() as u32).to_le_bytes());
                answer.extend_from_slice(&part);
            }
        }
        Ok(Some(answer))
    }

    /// A source's answer: its stores become this node's.
    pub(super) fn install(&mut self, packet: Packet, out: &mut Output) {
        let source = usize::from(packet.meta.sender);
        let expected = self.joining.as_ref().is_some_and(|j| j.sources.contains(&source));
        if !expected || !self.view.accepts(source, packet.meta.incarnation) {
            self.stats.refused.count("unexpected_snapshot");
        } else if let Err(damage) = self.take_over(&packet, source) {
            self.stats.refused.count(damage.reason());
        }
        out.pool.give(packet);
        self.count_in(out);
    }

    fn take_over(&mut self, packet: &Packet, source: usize) -> Result<(), Damage> {
        let mut body = control::open(packet, Kind::Snapshot)?;
        let view = body.u64().ok_or(Damage::Record)?;
        let Some(joining) = self.joining.as_mut().filter(|j| j.view == view) else { return Ok(()) };
        let mut stores = Vec::new();
        loop {
            match body.u8().ok_or(Damage::Record)? {
                u8::MAX => break,
                stage => {
                    let nf = self.nfs.get(usize::from(stage)).ok_or(Damage::ForeignStage)?;
                    let is_tail = self.plan.tail(usize::from(stage)) == self.index;
                    let mut store = Store::new(nf.new_state(&self.plan.layout), is_tail);
                    take_store(&mut store, self.plan.layout.partitions, &mut body)?;
                    stores.push((usize::from(stage), store));
                }
            }
        }
        let mut units = Vec::new();
        while !body.is_empty() {
            let len = body.u32().ok_or(Damage::Record)?;
            let unit = body.bytes(len as usize).ok_or(Damage::Record)?;
            UnitView::parse(unit)?;
            units.push(unit);
        }
        joining.sources.retain(|&pending| pending != source);
        stores.into_iter().for_each(|(stage, store)| self.stores[stage] = Some(store));
        units.into_iter().for_each(|unit| self.retained.push(unit, 0));
        Ok(())
    }

    /// Once every store is here the node is up: it tells its predecessor all, and repairs as soon as its successor
    /// has told what it has.
    fn count_in(&mut self, out: &mut Output) {
        let complete = self.joining.as_ref().is_some_and(|j| j.sources.is_empty());
        if complete && self.plan.held_by(self.index).all(|stage| self.stores[stage].is_some()) {
            self.joining = None;
            self.link.tell_all = true;
            self.link.reconnect();
            self.link.committed_news = true; // what came with the stores may be committed already
            out.caught_up = true;
        }
    }
}

/// `versions commits rows_bytes(4, LE) delta`: the vectors as 64-bit numbers, every row as a change.
fn put_store(store: &Store, partitions: usize, out: &mut Vec<u8>) {
    for vector in [&store.versions, &store.commit] {
        vector.0[..partitions].iter().for_each(|version| out.extend_from_slice(&version.to_le_bytes()));
    }
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    for table in store.state.iter() {
        for partition in 0..partitions {
            table.visit(partition, &mut |row| delta::put_change(out, &row));
        }
    }
    let bytes = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
}

fn take_store(store: &mut Store, partitions: usize, body: &mut Reader<'_>) -> Result<(), Damage> {
    let mut vectors = [Vector([0; MAX_PARTITIONS]); 2];
    for vector in &mut vectors {
        for partition in 0..partitions {
            vector.0[partition] = body.u64().ok_or(Damage::Record)?;
        }
    }
    let bytes = body.u32().ok_or(Damage::Record)?;
    let rows = body.bytes(bytes as usize).ok_or(Damage::Record)?;
    let all = crate::dependency::PartitionSet::first(partitions);
    delta::check(&*store.state, rows, all).map_err(|_| Damage::Delta)?;
    delta::apply(&mut *store.state, rows);
    store.install(vectors[0], vectors[1]);
    Ok(())
}
