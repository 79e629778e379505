//! A run under way: bursts in, turns, crashes, packets out.

use std::sync::atomic::Ordering;

use pannier_runtime::Packet;
use pannier_runtime::clock::Nanos;
use pannier_runtime::stats::Reasons;

use super::input::{Arrival, Input, InputError};
use super::output::Output;
use super::{Outcome, Progress, Run, RunError};
use crate::chain::{Chain, TURN};
use crate::ingress::Ingress;

/// A run under way.
pub(super) struct Running {
    run: Run,
    chain: Chain,
    input: Input,
    output: Output,
    ingress: Ingress,
    /// Packets that did not enter.
    drops: Reasons,
    /// Packets read.
    packets: u64,
    /// The latest arrival so far.
    latest: Nanos,
    /// Crashes that have happened.
    crashed: usize,
    /// What a person should know, as it comes up.
    notes: Vec<String>,
    left: Vec<Packet>,
}

impl Running {
    pub(super) fn new(run: Run, chain: Chain, input: Input, output: Output, ingress: Ingress) -> Self {
        Running {
            run,
            chain,
            input,
            output,
            ingress,
            drops: Reasons::default(),
            packets: 0,
            latest: 0,
            crashed: 0,
            notes: Vec::new(),
            left: Vec::new(),
        }
    }

    pub(super) fn finish(mut self) -> Result<Outcome, RunError> {
        let mut input_error = None;
        let mut more = true;
        self.crash_due();
        while more && !self.is_stopped() && self.chain.unrecoverable().is_none() {
            more = self.take_burst().unwrap_or_else(|error| {
                input_error = Some(error);
                false
            });
            self.turn()?;
            self.crash_due();
            self.catch_up()?;
        }
        self.chain.drain();
        self.write()?;
        let truncated = self.input.truncated();
        let mut summary = self.chain.summary();
        let refused = self.drops.total();
        summary.packets.entered += refused;
        summary.packets.dropped += refused;
        if refused > 0 {
            let reasons = self.drops.sorted().into_iter().map(|(reason, count)| (reason.to_owned(), count));
            summary.drops.insert("ingress".to_owned(), reasons.collect());
        }
        summary.truncated_input = !truncated.is_empty();
        self.notes.extend(truncated);
        self.warn();
        summary.warnings = self.notes;
        let broken = self.chain.broken_promises();
        self.output.finish().map_err(RunError::Output)?;
        Ok(Outcome { summary, broken, input_error, chain: self.chain })
    }

    /// Lets in what arrives within one turn, at most a burst, as far as the chain has room. Returns whether there may
    /// be more.
    fn take_burst(&mut self) -> Result<bool, InputError> {
        if let Some(progress) = &mut self.run.progress {
            progress(Progress { packets: self.packets, bytes: self.input.bytes });
        }
        if !self.chain.has_room() {
            return Ok(true);
        }
        for taken in 0..self.run.burst {
            let comes_later = self.pause() >= TURN || self.next_crash().is_some();
            if taken > 0 && comes_later {
                break;
            }
            let mut packet = self.chain.pool().take();
            let refused = match self.input.next(&mut packet)? {
                Arrival::End => return Ok(false),
                Arrival::Refused(reason) => Some(reason),
                Arrival::Packet(side) => self.ingress.admit(&mut packet, side).err(),
            };
            self.packets += 1;
            self.latest = self.latest.max(packet.meta.time);
            match refused {
                None => self.chain.admit(packet),
                Some(reason) => {
                    self.drops.count(reason);
                    self.chain.pool().give(packet);
                }
            }
        }
        Ok(true)
    }

    /// The time until the next packet arrives.
    fn pause(&self) -> Nanos {
        self.input.next_time().map_or(0, |next| next.saturating_sub(self.latest))
    }

    /// Gives the turns that pass before the next packet arrives, as long as the chain has something to do: an answer
    /// must not meet its question on the way.
    fn catch_up(&mut self) -> Result<(), RunError> {
        for _ in 1..self.pause() / TURN {
            if !self.chain.is_busy() || self.chain.unrecoverable().is_some() {
                break;
            }
            self.turn()?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), RunError> {
        self.chain.turn();
        self.write()
    }

    /// The crash that is due, as its number.
    fn next_crash(&self) -> Option<usize> {
        self.run
            .crashes
            .get(self.crashed)
            .filter(|crash| crash.packet <= self.packets)
            .map(|crash| crash.node)
    }

    /// Lets the nodes crash that are due; one too many is put off.
    fn crash_due(&mut self) {
        while let Some(node) = self.next_crash() {
            let is_down = !self.chain.node(node).is_some_and(pannier_runtime::ring::Node::is_up);
            let others = self.chain.nodes_down() - usize::from(is_down);
            if self.chain.node(node).is_none() || others >= self.run.f {
                return;
            }
            let planned = self.run.crashes[self.crashed].packet;
            if planned < self.packets && planned > 0 {
                self.notes.push(format!(
                    "the crash of node {node} after {planned} packets was put off to {}: the ring survives {} at once",
                    self.packets, self.run.f
                ));
            }
            self.chain.crash(node);
            self.crashed += 1;
        }
    }

    fn write(&mut self) -> Result<(), RunError> {
        self.chain.take_released(&mut self.left);
        for packet in self.left.drain(..) {
            self.output.write(&packet).map_err(RunError::Output)?;
            self.chain.pool().give(packet);
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.run.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Notes what a person should know about the whole run.
    fn warn(&mut self) {
        if self.is_stopped() {
            self.notes.push(format!("stopped early, after {} packets", self.packets));
        }
        let undecided = self.ingress.undecided_count;
        if undecided > 0 {
            let policy = match self.run.input.undecided.direction() {
                Some(direction) => format!("taken as {direction:?}").to_lowercase(),
                None => "dropped".to_owned(),
            };
            self.notes.push(format!(
                "the addresses of {undecided} packets do not tell their direction; they were {policy} \
                 (set `inside` and `undecided` in [input])"
            ));
        }
        if self.input.cut > 0 {
            self.notes.push(format!(
                "the capture holds only the beginning of {} packets; what needs the rest drops them",
                self.input.cut
            ));
        }
        for (reason, count) in self.chain.refused().sorted() {
            // The others belong to every recovery.
            if reason.starts_with("damaged") || reason == "waiting_place_full" {
                self.notes.push(format!("{count} messages on the ring were refused: {reason}"));
            }
        }
        for crash in &self.run.crashes[self.crashed..] {
            self.notes.push(format!(
                "node {} was to crash after {} packets, and the run ended before",
                crash.node, crash.packet
            ));
        }
    }
}
