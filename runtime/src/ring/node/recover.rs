//! Views, the fence, and how a replacement takes state over.

use super::copy::Part;
use super::{Address, Node, Output, layout};
use crate::clock::Nanos;
use crate::dependency::PartitionSet;
use crate::mutant::{self, Mutant};
use crate::packet::{Kind, Packet};
use crate::piggyback::Damage;
use crate::ring::control;
use crate::ring::retained::Retained;
use crate::ring::store::Store;
use crate::ring::view::{Standing, View};
use crate::txn::delta;

/// Where a node is in its life.
#[derive(Clone, Debug)]
pub(super) enum Life {
    /// It has all its stores.
    Up,
    /// It replaces a dead node and fetches its stores.
    Joining(Joining),
    /// A view says that it is dead: it takes nothing and lets nothing out any more.
    Retired,
}

/// How far a replacement has come.
#[derive(Clone, Debug)]
pub(super) struct Joining {
    /// The view that the sources were picked from.
    view: u64,
    /// What is asked of whom: each stage with its source, as long as the source has not answered.
    pending: Vec<(usize, usize)>,
    /// What has come of the answers: number, whether it is the last, and the part.
    parts: Vec<(u32, bool, Packet)>,
    /// Which time it is that the sources are asked: parts of earlier answers count no more.
    attempt: u64,
    asked: Nanos,
}

impl Joining {
    /// Numbers of the parts that have come from `source`, and which is the last.
    fn of(&self, source: usize) -> impl Iterator<Item = (u32, bool)> {
        let from = self.parts.iter().filter(move |part| usize::from(part.2.meta.sender) == source);
        from.map(|&(number, is_last, _)| (number, is_last))
    }

    /// Hashes all that decides how it goes on.
    #[cfg(feature = "simulation")]
    pub(super) fn hash_into(&self, hasher: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        (self.view, &self.pending, self.attempt).hash(hasher);
        self.parts.iter().for_each(|part| part.2.frame().hash(hasher));
    }
}

impl Node {
    /// Adopts a view: first of all it fences every dead incarnation. What waits unapplied from a dead predecessor is
    /// discarded *before* any state is given away: a late unit must not be applied next to a version that the
    /// replacement gives out anew.
    pub fn adopt(&mut self, view: &View, out: &mut Output) {
        let skipped = mutant::is(Mutant::SkippedView) && (view.number + self.index as u64).is_multiple_of(3);
        if view.number <= self.view.number || skipped {
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
        self.end_copy();
        for _ in 0..self.waiting.len() {
            let Some(packet) = self.waiting.pop_front() else { break };
            let keeps = mutant::is(Mutant::NoFence) || mutant::is(Mutant::LateFence);
            if keeps || self.view.accepts(before, packet.meta.incarnation) {
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
        self.copy = None;
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
        let (view, asked) = (self.view.number, self.now.timer);
        self.life = Life::Joining(Joining { view, pending, parts: Vec::new(), attempt: 0, asked });
        self.ask(out);
        self.count_in(out);
    }

    /// Asks each source that has not answered, once for all its stores.
    fn ask(&mut self, out: &mut Output) {
        let (index, view, incarnation) = (self.index as u8, &self.view, self.incarnation);
        let address =
            |to: usize| Address { sender: index, incarnation, addressee: view.members[to].incarnation };
        let Life::Joining(joining) = &mut self.life else { return };
        joining.asked = self.now.timer;
        joining.attempt += 1;
        joining.parts.drain(..).for_each(|(_, _, part)| out.pool.give(part));
        for (at, &(_, source)) in joining.pending.iter().enumerate() {
            if joining.pending[..at].iter().any(|&(_, earlier)| earlier == source) {
                continue;
            }
            let mut body = [joining.view.to_le_bytes(), joining.attempt.to_le_bytes()].concat();
            body.extend(joining.pending.iter().filter(|p| p.1 == source).map(|&(stage, _)| stage as u8));
            let mut packet = out.pool.take();
            control::seal(&mut packet, Kind::Fetch, &body);
            address(source).put_on(&mut packet);
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

    /// A part of a source's answer. Once all of its parts are here, its stores become this node's.
    pub(super) fn install(&mut self, packet: Packet, out: &mut Output) {
        match self.take_part(packet, out) {
            Ok(true) => self.count_in(out),
            Ok(false) => {}
            Err(reason) => self.stats.refused.count(reason),
        }
    }

    /// Keeps a part, and takes the source's stores over if it was the last that was missing.
    fn take_part(&mut self, packet: Packet, out: &mut Output) -> Result<bool, &'static str> {
        let source = usize::from(packet.meta.sender);
        let part = Part::open(&packet).map_err(Damage::reason)?;
        let accepted = self.view.accepts(source, packet.meta.incarnation);
        let Life::Joining(joining) = &mut self.life else { return Err("unexpected_snapshot") };
        let is_new = !joining.of(source).any(|(number, _)| number == part.number);
        let expected = joining.pending.iter().any(|&(_, from)| from == source) && is_new && accepted;
        if !expected || part.question != [joining.view, joining.attempt] {
            return Err("unexpected_snapshot");
        }
        joining.asked = self.now.timer;
        joining.parts.push((part.number, part.is_last, packet));
        let last = joining.of(source).find(|(_, is_last)| *is_last);
        if last.is_none_or(|(last, _)| (joining.of(source).count() as u64) <= u64::from(last)) {
            return Ok(false);
        }
        let taken = self.take_over(source);
        let Life::Joining(joining) = &mut self.life else { return Ok(false) };
        let done = joining.parts.extract_if(.., |part| usize::from(part.2.meta.sender) == source);
        done.for_each(|(_, _, part)| out.pool.give(part));
        taken.map(|()| true).map_err(Damage::reason)
    }

    /// Installs a source's answer, whole or not at all: all rows, then what changed while they were copied.
    fn take_over(&mut self, source: usize) -> Result<(), Damage> {
        let Life::Joining(joining) = &mut self.life else { return Ok(()) };
        let layout = layout(&self.plan, self.index);
        let all = PartitionSet::first(layout.partitions);
        let asked = joining.pending.iter().filter(|&&(_, from)| from == source).map(|&(stage, _)| stage);
        let mut stores: Vec<Option<Store>> = self.nfs.iter().map(|_| None).collect();
        for stage in asked {
            let is_tail = self.plan.tail(stage) == self.index;
            stores[stage] = Some(Store::new(self.nfs[stage].new_state(&layout), is_tail));
        }
        let of_source = joining.parts.iter().filter(|part| usize::from(part.2.meta.sender) == source);
        let mut parts = of_source.map(|part| Part::open(&part.2)).collect::<Result<Vec<_>, _>>()?;
        parts.sort_by_key(|part| part.number);
        let mut units = Vec::new();
        for mut part in parts {
            while let Some((stage, delta)) = part.delta()? {
                let store = stores.get_mut(stage).and_then(Option::as_mut).ok_or(Damage::ForeignStage)?;
                delta::check(&*store.state, delta, all).map_err(|_| Damage::Delta)?;
                delta::apply(&mut *store.state, delta);
            }
            if part.is_last {
                take_vectors(&mut part, &mut stores, layout.partitions)?;
                units = part.units(|stage| {
                    let known = stage < self.plan.stages() && self.plan.holds(self.index, stage);
                    known && self.plan.tail(stage) != self.index
                })?;
            }
        }
        units.into_iter().for_each(|unit| self.retained.push(unit, 0));
        joining.pending.retain(|&(_, from)| from != source);
        for (stage, store) in stores.into_iter().enumerate().filter(|(_, store)| store.is_some()) {
            self.stores[stage] = store;
        }
        Ok(())
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

/// Takes the vectors of each store that was asked for: of all of them, and each once.
fn take_vectors(part: &mut Part<'_>, stores: &mut [Option<Store>], partitions: usize) -> Result<(), Damage> {
    let mut missing: Vec<usize> = (0..stores.len()).filter(|&stage| stores[stage].is_some()).collect();
    while let Some((stage, [applied, commit])) = part.vectors(partitions)? {
        let at = missing.iter().position(|&asked| asked == stage).ok_or(Damage::ForeignStage)?;
        missing.swap_remove(at);
        if let Some(store) = &mut stores[stage] {
            store.install(applied, commit);
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Damage::Record) }
}
