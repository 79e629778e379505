//! A pass: the trace once through an in-process chain, under the faults of the plan, and the checks at its end.

use std::sync::Arc;

use pannier_runtime::clock::Nanos;
use pannier_runtime::ring::{Node, Plan, PlanError};
use pannier_runtime::testing::{FaultPlan, TraceFrame};
use pannier_runtime::wire::{Flow, symmetric_hash};
use pannier_runtime::{Direction, Nf, Packet};

use super::audit::{Audit, Instances, Journal, Shared, tag};
use super::failure::{Cause, Failure};
use super::model;
use crate::chain::{Chain, ChainStage, Summary, TURN};

/// Packets that enter in one turn.
const BURST: usize = 32;

/// Turns that put-off crashes are given at the end.
const LATE_TURNS: usize = 10_000;

/// What is wrong, and with which packet.
pub(super) type Found = (Failure, Option<usize>);

/// What a pass has shown.
pub(super) struct Passed {
    pub(super) summary: Summary,
    pub(super) journal: Journal,
    pub(super) refusals: u64,
    pub(super) crashes: usize,
}

/// A pass under way.
pub(super) struct Pass<'a, N: Nf> {
    chain: Chain,
    trace: &'a [TraceFrame],
    faults: &'a FaultPlan,
    instances: Arc<Instances<N>>,
    ledger: Shared,
    /// Packets that have entered.
    entered: usize,
    /// Crashes that have happened.
    crashed: usize,
    left: Vec<Packet>,
}

impl<'a, N: Nf> Pass<'a, N> {
    /// A chain of the one audited stage.
    pub(super) fn new(
        audit: Audit<N>,
        plan: (usize, usize),
        trace: &'a [TraceFrame],
        faults: &'a FaultPlan,
    ) -> Result<Self, PlanError> {
        let (f, partitions) = plan;
        let mut plan = Plan::new(1, f)?;
        plan.layout.partitions = partitions;
        plan.seed = faults.seed;
        let (instances, ledger) = (Arc::clone(&audit.instances), audit.ledger.clone());
        let stage = ChainStage { name: "the network function".to_owned(), nf: Arc::new(audit) };
        let mut chain = Chain::new(plan, vec![stage], BURST, faults.links)?;
        let recorder = ledger.clone();
        chain.record(Box::new(move |_| Box::new(recorder.clone())));
        Ok(Pass { chain, trace, faults, instances, ledger, entered: 0, crashed: 0, left: Vec::new() })
    }

    /// Lets the trace pass and checks what is left of it.
    pub(super) fn run(mut self) -> Result<Passed, Found> {
        while self.entered < self.trace.len() && !self.is_over() {
            self.crash_due();
            self.enter();
            self.turn();
            self.crash_due();
            for _ in 1..self.pause() / TURN {
                if !self.chain.is_busy() || self.is_over() {
                    break;
                }
                self.turn();
            }
        }
        for _ in 0..LATE_TURNS {
            self.crash_due();
            if self.is_over() || !self.is_crash_due() {
                break;
            }
            self.turn();
        }
        self.chain.drain();
        self.check()
    }

    fn is_over(&self) -> bool {
        self.chain.unrecoverable().is_some() || self.ledger.lock().failure.is_some()
    }

    /// Lets in what arrives within a turn.
    fn enter(&mut self) {
        let mut numbers = [Vec::new(), Vec::new()];
        while self.chain.has_room() && numbers.iter().map(Vec::len).sum::<usize>() < BURST {
            let Some(frame) = self.trace.get(self.entered) else { break };
            let mut packet = self.chain.pool().take();
            packet.set_frame(&frame.bytes);
            packet.meta.time = frame.time;
            packet.meta.direction = frame.direction;
            packet.meta.flow = Flow::parse(&frame.bytes).map_or(0, |flow| symmetric_hash(&flow));
            tag(&mut packet, self.entered);
            self.chain.admit(packet);
            numbers[usize::from(frame.direction == Direction::Inbound)].push(self.entered);
            self.entered += 1;
            if self.pause() >= TURN || self.is_crash_due() {
                break;
            }
        }
        // The chain's order: those from the inside first. All are worked on in the next turn, or none where the
        // node is down.
        self.ledger.lock().arrivals = numbers.concat().into();
    }

    /// The time from the last packet to the next.
    fn pause(&self) -> Nanos {
        let time = |number: Option<usize>| Some(self.trace.get(number?)?.time);
        match (time(self.entered.checked_sub(1)), time(Some(self.entered))) {
            (Some(last), Some(next)) => next.saturating_sub(last),
            _ => 0,
        }
    }

    fn turn(&mut self) {
        self.chain.turn();
        self.ledger.lock().arrivals.clear();
        self.chain.take_released(&mut self.left);
        for packet in self.left.drain(..) {
            self.chain.pool().give(packet);
        }
    }

    fn is_crash_due(&self) -> bool {
        self.faults.crashes.get(self.crashed).is_some_and(|crash| crash.packet <= self.entered as u64)
    }

    /// Lets the nodes crash that are due; one too many is put off.
    fn crash_due(&mut self) {
        while self.is_crash_due() {
            let plan = self.chain.plan();
            let (node, f) = (self.faults.crashes[self.crashed].node % plan.nodes(), plan.f());
            let is_down = !self.chain.node(node).is_some_and(Node::is_up);
            let others = self.chain.nodes_down() - usize::from(is_down);
            if self.chain.node(node).is_none() || others >= f {
                return;
            }
            self.chain.crash(node);
            self.crashed += 1;
            if node == 0 {
                self.instances.replace();
            }
        }
    }

    /// What must hold at the end.
    fn check(self) -> Result<Passed, Found> {
        let ledger = std::mem::take(&mut *self.ledger.lock());
        if let Some(found) = ledger.failure {
            return Err(found);
        }
        if let Some(store) = self.chain.node(0).and_then(|node| node.store(0)) {
            let partitions = self.chain.plan().layout.partitions;
            model::check(&ledger.history, &ledger.released, store, partitions)?;
        }
        let broken = self.chain.broken_promises();
        if !broken.is_empty() {
            return Err((Failure::new(Cause::BrokenPromise, broken.join("; ")), None));
        }
        Ok(Passed {
            summary: self.chain.summary(),
            journal: ledger.journal,
            refusals: ledger.refusals,
            crashes: self.crashed,
        })
    }
}
