//! Views, the fence, and how a replacement takes state over.

use std::sync::Arc;

use super::copy::{Copy, Part};
use super::lane::{Core, is_for};
use super::{Address, Lanes, Output, layout};
use crate::clock::{Nanos, Now};
use crate::mutant::{self, Mutant};
use crate::packet::{Kind, Packet};
use crate::piggyback::Damage;
use crate::ring::control;
use crate::ring::store::Store;
use crate::ring::view::{Incarnation, Standing, View};
use crate::state::AnyState;
use crate::stats::NodeStats;
use crate::txn::delta;

/// What concerns a node as a whole, and not one of its lanes. No lane is at work while it is.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) core: Arc<Core>,
    pub(super) view: View,
    pub(super) life: Life,
    pub(super) copy: Option<Copy>,
    /// The newest question for state: whose, and its view and attempt.
    pub(super) answered: (Incarnation, [u64; 2]),
    pub(super) stats: NodeStats,
}

/// Where a node is in its life.
#[cfg_attr(feature = "simulation", derive(Clone))]
#[derive(Debug)]
pub(super) enum Life {
    /// It has all its stores.
    Up,
    /// It replaces a dead node and fetches its stores.
    Joining(Joining),
    /// A view says that it is dead.
    Retired,
}

/// How far a replacement has come.
#[cfg_attr(feature = "simulation", derive(Clone))]
#[derive(Debug)]
pub(super) struct Joining {
    /// The view that the sources were picked from.
    view: u64,
    /// What is asked of whom: each stage with its source, as long as the source has not answered.
    pending: Vec<(usize, usize)>,
    /// What has come of the answers: number, whether it is the last, and the part.
    parts: Vec<(u32, bool, Packet)>,
    /// By stage: the stores that are complete.
    pub(super) stores: Vec<Option<Store>>,
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

impl Control {
    pub(super) fn new(core: Arc<Core>, view: View) -> Self {
        let stats = NodeStats::default();
        Control { core, view, life: Life::Up, copy: None, answered: (0, [0; 2]), stats }
    }

    /// Whether time brings anything about: an answer is awaited, or a copy is under way.
    pub(super) fn is_waiting(&self) -> bool {
        self.copy.is_some() || matches!(self.life, Life::Joining(_))
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.life, Life::Up)
    }

    /// See [`super::Node::adopt`].
    pub(super) fn adopt(&mut self, view: &View, lanes: &mut Lanes<'_>, out: &mut Output) {
        let index = self.core.index;
        let skipped = mutant::is(Mutant::SkippedView) && (view.number + index as u64).is_multiple_of(3);
        if view.number <= self.view.number || skipped {
            return;
        }
        self.view.clone_from(view);
        let me = view.members[index];
        if me.incarnation != self.core.incarnation || me.standing == Standing::Dead {
            return self.retire(lanes, out);
        }
        self.end_copy();
        lanes.iter_mut().for_each(|lane| lane.adopt(view, out));
        if let Life::Joining(joining) = &self.life {
            let now = joining.asked;
            self.fetch(lanes, now, out); // the sources may be others now: start over
        }
    }

    /// Ends this node, which was declared dead although it runs: another has its place.
    fn retire(&mut self, lanes: &mut Lanes<'_>, out: &mut Output) {
        self.life = Life::Retired;
        self.end_copy();
        lanes.iter_mut().for_each(|lane| lane.retire(&self.view, out));
        self.give_up_stores(lanes);
    }

    /// Goes on without any store.
    fn give_up_stores(&mut self, lanes: &mut Lanes<'_>) {
        self.core = self.core.with_stores(self.core.stores.iter().map(|_| None).collect());
        lanes.iter_mut().for_each(|lane| lane.set_core(Arc::clone(&self.core)));
    }

    /// Asks the sources of all stores that this node must hold.
    pub(super) fn fetch(&mut self, lanes: &mut Lanes<'_>, now: Nanos, out: &mut Output) {
        let mut pending = Vec::new();
        for stage in self.core.plan.held_by(self.core.index) {
            match self.view.source(&self.core.plan, self.core.index, stage) {
                Some(source) => pending.push((stage, source)),
                None => out.unrecoverable = Some(stage),
            }
        }
        self.give_up_stores(lanes);
        lanes.iter_mut().for_each(|lane| lane.join());
        let stores = self.core.stores.iter().map(|_| None).collect();
        let (view, parts) = (self.view.number, Vec::new());
        self.life = Life::Joining(Joining { view, pending, parts, stores, attempt: 0, asked: now });
        self.ask(now, out);
        self.count_in(lanes, out);
    }

    /// Asks each source that has not answered, once for all its stores.
    fn ask(&mut self, now: Nanos, out: &mut Output) {
        let (core, view) = (&self.core, &self.view);
        let Life::Joining(joining) = &mut self.life else { return };
        joining.asked = now;
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
            Address::new(core, view, source).put_on(&mut packet);
            out.control.push((source, packet));
        }
    }

    /// Lets time pass: asks again where an answer or its question got lost, and sends what is being copied.
    pub(super) fn tick(&mut self, lanes: &mut Lanes<'_>, now: Now, out: &mut Output) {
        if let Life::Joining(joining) = &self.life {
            let wait = self.core.plan.limits.idle_acknowledge.saturating_mul(16);
            if now.timer > joining.asked.saturating_add(wait) {
                self.ask(now.timer, out);
            }
        }
        self.copy_on(lanes, out);
    }

    /// Takes a message beside the ring: a question for state, or a part of an answer.
    pub(super) fn hear(&mut self, packet: Packet, lanes: &mut Lanes<'_>, now: Now, out: &mut Output) {
        let heard = match packet.meta.kind {
            _ if !is_for(self.core.incarnation, &packet) => Err("fenced"),
            Kind::Fetch => self.fetched(&packet),
            Kind::Snapshot => return self.install(packet, lanes, now, out),
            Kind::Frame | Kind::Unit | Kind::Acknowledge => Err("misdirected"),
        };
        if let Err(reason) = heard {
            self.stats.refused.count(reason);
        }
        out.pool.give(packet);
    }

    /// A part of a source's answer. Once all of its parts are here, its stores become this node's.
    fn install(&mut self, packet: Packet, lanes: &mut Lanes<'_>, now: Now, out: &mut Output) {
        match self.take_part(packet, lanes, now.timer, out) {
            Ok(true) => self.count_in(lanes, out),
            Ok(false) => {}
            Err(reason) => self.stats.refused.count(reason),
        }
    }

    /// Keeps a part, and takes the source's stores over if it was the last that was missing.
    fn take_part(
        &mut self,
        packet: Packet,
        lanes: &mut Lanes<'_>,
        now: Nanos,
        out: &mut Output,
    ) -> Result<bool, &'static str> {
        let source = usize::from(packet.meta.sender);
        let part = Part::open(&packet).map_err(Damage::reason)?;
        let accepted = self.view.accepts(source, packet.meta.incarnation);
        let Life::Joining(joining) = &mut self.life else { return Err("unexpected_snapshot") };
        let is_new = !joining.of(source).any(|(number, _)| number == part.number);
        let expected = joining.pending.iter().any(|&(_, from)| from == source) && is_new && accepted;
        if !expected || part.question != [joining.view, joining.attempt] {
            return Err("unexpected_snapshot");
        }
        joining.asked = now;
        joining.parts.push((part.number, part.is_last, packet));
        let last = joining.of(source).find(|(_, is_last)| *is_last);
        if last.is_none_or(|(last, _)| (joining.of(source).count() as u64) <= u64::from(last)) {
            return Ok(false);
        }
        let taken = self.take_over(source, lanes);
        let Life::Joining(joining) = &mut self.life else { return Ok(false) };
        let done = joining.parts.extract_if(.., |part| usize::from(part.2.meta.sender) == source);
        done.for_each(|(_, _, part)| out.pool.give(part));
        taken.map(|()| true).map_err(Damage::reason)
    }

    /// Takes a source's answer over, whole or not at all: all rows, then what changed while they were copied.
    fn take_over(&mut self, source: usize, lanes: &mut Lanes<'_>) -> Result<(), Damage> {
        let (core, plan) = (&self.core, &self.core.plan);
        let Life::Joining(joining) = &mut self.life else { return Ok(()) };
        let layout = layout(plan, core.index);
        let asked = joining.pending.iter().filter(|&&(_, from)| from == source).map(|&(stage, _)| stage);
        let mut states: Vec<Option<Box<dyn AnyState>>> = core.nfs.iter().map(|_| None).collect();
        asked.for_each(|stage| states[stage] = Some(core.nfs[stage].new_state(&layout)));
        let of_source = joining.parts.iter().filter(|part| usize::from(part.2.meta.sender) == source);
        let mut parts = of_source.map(|part| Part::opened(&part.2)).collect::<Result<Vec<_>, _>>()?;
        parts.sort_by_key(|part| part.number);
        let (mut stores, mut units) = (Vec::new(), Vec::new());
        for mut part in parts {
            while let Some((stage, delta)) = part.delta()? {
                let state = states.get_mut(stage).and_then(Option::as_mut).ok_or(Damage::ForeignStage)?;
                delta::load(&mut **state, delta).map_err(|_| Damage::Delta)?;
            }
            if part.is_last {
                while let Some((stage, [versions, commit])) = part.vectors(layout.partitions)? {
                    // Of each store that was asked for, and once.
                    let state = states.get_mut(stage).and_then(Option::take).ok_or(Damage::ForeignStage)?;
                    let is_tail = plan.tail(stage) == core.index;
                    stores.push((stage, Store::with_vectors(state, is_tail, versions, commit)));
                }
                units = part.units(lanes.len(), |stage| {
                    let known = stage < plan.stages() && plan.holds(core.index, stage);
                    known && plan.tail(stage) != core.index
                })?;
            }
        }
        if states.iter().any(Option::is_some) {
            return Err(Damage::Record);
        }
        // Each goes back to its lane: there the oldest depends on nothing that stands behind it, so that repair gets on.
        let home = |lane| if mutant::is(Mutant::OneLaneRepair) { 0 } else { lane };
        units.into_iter().for_each(|(lane, unit)| lanes[home(lane)].retained.push(unit, 0));
        joining.pending.retain(|&(_, from)| from != source);
        stores.into_iter().for_each(|(stage, store)| joining.stores[stage] = Some(store));
        Ok(())
    }

    /// Once every store is here the node is up: it tells its predecessor all, and repairs as soon as its successor
    /// has told what it has.
    fn count_in(&mut self, lanes: &mut Lanes<'_>, out: &mut Output) {
        let Life::Joining(joining) = &mut self.life else { return };
        let mut held = self.core.plan.held_by(self.core.index);
        if joining.pending.is_empty() && held.all(|stage| joining.stores[stage].is_some()) {
            self.core = self.core.with_stores(std::mem::take(&mut joining.stores).into());
            self.life = Life::Up;
            lanes.iter_mut().for_each(|lane| lane.rise(Arc::clone(&self.core)));
            out.caught_up = true;
        }
    }
}
