//! Views, the fence, and how a replacement takes state over.

use std::sync::Arc;

use super::copy::{Copy, Part};
use super::joining::Joining;
use super::lane::{Core, is_for};
use super::{Address, Lanes, Output};
use crate::clock::{Nanos, Now};
use crate::mutant::{self, Mutant};
use crate::packet::{Kind, Packet};
use crate::piggyback::Damage;
use crate::ring::control;
use crate::ring::view::{Incarnation, Standing, View};
use crate::stats::NodeStats;

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
            let now = joining.asked();
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
        self.life = Life::Joining(Joining::new(self.view.number, pending, self.core.plan.stages(), now));
        self.ask(now, out);
        self.count_in(lanes, out);
    }

    /// Asks each source that has not answered, once for all its stores.
    fn ask(&mut self, now: Nanos, out: &mut Output) {
        let Life::Joining(joining) = &mut self.life else { return };
        for (source, body) in joining.questions(now, &mut out.pool) {
            let mut packet = out.pool.take();
            control::seal(&mut packet, Kind::Fetch, &body);
            Address::new(&self.core, &self.view, source).put_on(&mut packet);
            out.control.push((source, packet));
        }
    }

    /// Lets time pass: asks again where an answer or its question got lost, and sends what is being copied.
    pub(super) fn tick(&mut self, lanes: &mut Lanes<'_>, now: Now, out: &mut Output) {
        if let Life::Joining(joining) = &self.life {
            let patience = self.core.plan.limits.idle_acknowledge.saturating_mul(16);
            if joining.is_overdue(now.timer, patience) {
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
    fn install(&mut self, mut packet: Packet, lanes: &mut Lanes<'_>, now: Now, out: &mut Output) {
        let accepted = self.view.accepts(usize::from(packet.meta.sender), packet.meta.incarnation);
        let taken = match &mut self.life {
            Life::Joining(joining) if accepted => {
                joining.take(&mut packet, &self.core, now.timer, &mut out.pool)
            }
            _ => Part::open(&packet).map_err(Damage::reason).and(Err("unexpected_snapshot")),
        };
        out.pool.give(packet);
        match taken {
            Ok(None) => {}
            Ok(Some(units)) => {
                // Each goes back to its lane: there the oldest depends on nothing that stands behind it, so that repair
                // gets on.
                let home = |lane| if mutant::is(Mutant::OneLaneRepair) { 0 } else { lane };
                units.into_iter().for_each(|(lane, unit)| lanes[home(lane)].retained.push(&unit, 0));
                self.count_in(lanes, out);
            }
            Err(reason) => self.stats.refused.count(reason),
        }
    }

    /// Once every store is here the node is up: it tells its predecessor all, and repairs as soon as its successor
    /// has told what it has.
    fn count_in(&mut self, lanes: &mut Lanes<'_>, out: &mut Output) {
        let Life::Joining(joining) = &mut self.life else { return };
        if let Some(stores) = joining.complete(&self.core) {
            self.core = self.core.with_stores(stores.into());
            self.life = Life::Up;
            lanes.iter_mut().for_each(|lane| lane.rise(Arc::clone(&self.core)));
            out.caught_up = true;
        }
    }
}
