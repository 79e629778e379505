//! How far a replacement has come: what has arrived of the answers that it waits for.
//!
//! Rows are taken in part by part, into states that nobody sees before all of an answer is there. So a replacement is
//! busy while its source goes on reading, and is done soon after the last part. Parts come in any order; whole partitions
//! are in one part, so that order makes no difference, but for the last: it ends with what changed since the first, and
//! is taken behind all others.

use super::copy::Part;
use super::lane::Core;
use super::layout;
use crate::clock::Nanos;
use crate::packet::{Packet, Pool};
use crate::piggyback::Damage;
use crate::ring::store::Store;
use crate::state::AnyState;
#[cfg(feature = "simulation")]
use crate::state::Layout;
use crate::txn::delta;

/// How often the time is doubled at most that an answer is waited for.
const MOST_DOUBLED: u64 = 10;

/// A replacement on its way.
#[cfg_attr(feature = "simulation", derive(Clone))]
#[derive(Debug)]
pub(super) struct Joining {
    /// The view that the sources were picked from.
    view: u64,
    /// What is asked of whom: each stage with its source, as long as the source has not answered.
    pending: Vec<(usize, usize)>,
    answers: Vec<Answer>,
    /// By stage: the stores that are complete.
    pub(super) stores: Vec<Option<Store>>,
    /// Which time it is that the sources are asked: parts of earlier answers count no more.
    attempt: u64,
    asked: Nanos,
}

/// What has come of a source's answer.
#[cfg_attr(feature = "simulation", derive(Clone))]
#[derive(Debug)]
struct Answer {
    source: usize,
    /// The stages that it was asked for, with the rows that have come.
    states: Vec<(usize, Box<dyn AnyState>)>,
    /// Numbers of the parts whose rows are in the states.
    taken: Vec<u32>,
    /// The last part with its number, until all others are taken.
    last: Option<(u32, Packet)>,
}

/// Units that a source retains for what was asked for, each with its lane.
pub(super) type Units = Vec<(usize, Vec<u8>)>;

impl Joining {
    /// A node that asks nobody yet for the stores `pending`.
    pub(super) fn new(view: u64, pending: Vec<(usize, usize)>, stages: usize, now: Nanos) -> Self {
        let stores = (0..stages).map(|_| None).collect();
        Joining { view, pending, answers: Vec::new(), stores, attempt: 0, asked: now }
    }

    /// When the sources were asked, or last answered.
    pub(super) fn asked(&self) -> Nanos {
        self.asked
    }

    /// Whether the sources are to be asked again, where the first time `patience` is waited for an answer. Then each time
    /// twice as long: for each question a source begins anew, and one that needs longer for a part would never be done.
    pub(super) fn is_overdue(&self, now: Nanos, patience: Nanos) -> bool {
        let doubled = self.attempt.saturating_sub(1).min(MOST_DOUBLED);
        now > self.asked.saturating_add(patience.saturating_mul(1 << doubled))
    }

    /// Begins another attempt: the questions, each with the source that it is for. What has come of earlier answers is
    /// given up.
    pub(super) fn questions(&mut self, now: Nanos, pool: &mut Pool) -> Vec<(usize, Vec<u8>)> {
        self.asked = now;
        self.attempt += 1;
        let last = self.answers.drain(..).filter_map(|answer| answer.last);
        last.for_each(|(_, packet)| pool.give(packet));
        let mut questions: Vec<(usize, Vec<u8>)> = Vec::new();
        for &(stage, source) in &self.pending {
            let at = questions.iter().position(|(asked, _)| *asked == source).unwrap_or_else(|| {
                questions.push((source, [self.view.to_le_bytes(), self.attempt.to_le_bytes()].concat()));
                questions.len() - 1
            });
            questions[at].1.push(stage as u8);
        }
        questions
    }

    /// All stores that the node must hold, once they are complete.
    pub(super) fn complete(&mut self, core: &Core) -> Option<Vec<Option<Store>>> {
        let mut held = core.plan.held_by(core.index);
        let all = self.pending.is_empty() && held.all(|stage| self.stores[stage].is_some());
        all.then(|| std::mem::take(&mut self.stores))
    }

    /// Takes a part of a source's answer in. If it was the last that was missing, the source's stores are complete, and
    /// what the source retains for them is returned. Of an answer that makes no sense nothing is left: its source will be
    /// asked again.
    ///
    /// # Errors
    /// The reason why it was refused.
    pub(super) fn take(
        &mut self,
        packet: &mut Packet,
        core: &Core,
        now: Nanos,
        pool: &mut Pool,
    ) -> Result<Option<Units>, &'static str> {
        let part = Part::open(packet).map_err(Damage::reason)?;
        let source = usize::from(packet.meta.sender);
        let mut answer = self.expect(source, &part, core).ok_or("unexpected_snapshot")?;
        self.asked = now;
        if part.is_last {
            answer.last = Some((part.number, std::mem::replace(packet, pool.take())));
        } else {
            answer.taken.push(part.number);
            answer.load(part).map_err(Damage::reason)?;
        }
        if !answer.is_whole().map_err(Damage::reason)? {
            self.answers.push(answer);
            return Ok(None);
        }
        let (stores, units) = answer.finish(core, pool).map_err(Damage::reason)?;
        self.pending.retain(|&(_, from)| from != source);
        stores.into_iter().for_each(|(stage, store)| self.stores[stage] = Some(store));
        Ok(Some(units))
    }

    /// The answer that a part belongs to, taken out of the others; `None` where it belongs to none, or has come before.
    fn expect(&mut self, source: usize, part: &Part<'_>, core: &Core) -> Option<Answer> {
        let asked = self.pending.iter().filter(|&&(_, from)| from == source).map(|&(stage, _)| stage);
        let asked: Vec<usize> = asked.collect();
        if asked.is_empty() || part.question != [self.view, self.attempt] {
            return None;
        }
        let Some(at) = self.answers.iter().position(|answer| answer.source == source) else {
            let layout = layout(&core.plan, core.index);
            let states = asked.into_iter().map(|stage| (stage, core.nfs[stage].new_state(&layout)));
            return Some(Answer { source, states: states.collect(), taken: Vec::new(), last: None });
        };
        let is_new = !self.answers[at].has(part);
        is_new.then(|| self.answers.swap_remove(at))
    }

    /// Hashes all that decides how it goes on.
    #[cfg(feature = "simulation")]
    pub(super) fn hash_into(&self, layout: &Layout, hasher: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        (self.view, &self.pending, self.attempt, self.answers.len()).hash(hasher);
        for store in &self.stores {
            store.is_some().hash(hasher);
            store.iter().for_each(|store| store.hash_into(layout, hasher));
        }
        for answer in &self.answers {
            let states = answer.states.iter().map(|(stage, state)| (stage, state.digest(layout)));
            let last = answer.last.as_ref().map(|(number, packet)| (number, packet.frame()));
            (answer.source, states.collect::<Vec<_>>(), &answer.taken, last).hash(hasher);
        }
    }
}

impl Answer {
    /// Whether a part has come before, or another that is the last, too.
    fn has(&self, part: &Part<'_>) -> bool {
        let last = self.last.as_ref().map(|(number, _)| *number);
        self.taken.contains(&part.number) || last == Some(part.number) || (part.is_last && last.is_some())
    }

    /// Whether all parts have come. None has a number behind the last one's.
    fn is_whole(&self) -> Result<bool, Damage> {
        let Some(&(last, _)) = self.last.as_ref() else { return Ok(false) };
        match self.taken.iter().all(|&number| number < last) {
            true => Ok(self.taken.len() == last as usize),
            false => Err(Damage::Record),
        }
    }

    /// Takes the rows of a part in. Returns what stands behind them.
    fn load<'a>(&mut self, mut part: Part<'a>) -> Result<Part<'a>, Damage> {
        while let Some((stage, rows)) = part.delta()? {
            let (_, state) =
                self.states.iter_mut().find(|(asked, _)| *asked == stage).ok_or(Damage::ForeignStage)?;
            delta::load(&mut **state, rows).map_err(|_| Damage::Delta)?;
        }
        Ok(part)
    }

    /// Takes the last part in, behind all others: the stores, each with its stage, and the units that are retained.
    fn finish(mut self, core: &Core, pool: &mut Pool) -> Result<(Vec<(usize, Store)>, Units), Damage> {
        let (_, packet) = self.last.take().ok_or(Damage::Record)?;
        let read = Part::opened(&packet).and_then(|part| self.read_last(part, core));
        pool.give(packet);
        read
    }

    fn read_last(&mut self, part: Part<'_>, core: &Core) -> Result<(Vec<(usize, Store)>, Units), Damage> {
        let (plan, mut stores) = (&core.plan, Vec::new());
        let mut part = self.load(part)?;
        while let Some((stage, [versions, commit])) = part.vectors(plan.layout.partitions)? {
            // Of each store that was asked for, and once.
            let at = self.states.iter().position(|(asked, _)| *asked == stage).ok_or(Damage::ForeignStage)?;
            let (_, state) = self.states.swap_remove(at);
            let is_tail = plan.tail(stage) == core.index;
            stores.push((stage, Store::with_vectors(state, is_tail, versions, commit)));
        }
        if !self.states.is_empty() {
            return Err(Damage::Record);
        }
        let units = part.units(plan.lanes, |stage| {
            let known = stage < plan.stages() && plan.holds(core.index, stage);
            known && plan.tail(stage) != core.index
        })?;
        Ok((stores, units.into_iter().map(|(lane, unit)| (lane, unit.to_vec())).collect()))
    }
}
