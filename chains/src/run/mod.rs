//! Runs: a chain on captures, from the first packet to the summary.
//!
//! ```no_run
//! use pannier_chains::Run;
//! use pannier_runtime::{Verdict, nf, state};
//!
//! state! { /// Frames seen.
//!     pub struct Seen { /// How many.
//!         frames: u8 => u64 [1] } }
//!
//! let counter = nf(|_frame, state: &Seen, txn| {
//!     txn.update(&state.frames, 0, |n| n.unwrap_or(0) + 1)?;
//!     Ok(Verdict::Forward)
//! });
//! let outcome = Run::new().stage("counter", counter).read("in.pcap").crash("counter", 100).start()?;
//! println!("{}", outcome.summary);
//! # Ok::<(), pannier_chains::RunError>(())
//! ```

mod ingress;
mod input;
mod output;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pannier_runtime::port::Faults;
use pannier_runtime::ring::{Plan, PlanError};
use pannier_runtime::stats::Reasons;
use pannier_runtime::{AnyNf, Packet};

use crate::chain::{Chain, ChainStage, RecorderFactory, Summary};
use crate::config::{ChainSpec, Crash, InputSpec, Source};
use ingress::Ingress;
pub use input::InputError;
use input::{Arrival, Input};
use output::Output;

/// Why a run could not begin, or lost its output.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The chain can't work.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Nothing to read.
    #[error("the chain has no input: name a capture with --read, or in the chain file's [input]")]
    NoInput,
    /// A crash of a stage that is not there.
    #[error("no stage is called `{0}`, so it can't crash")]
    NoSuchStage(String),
    /// The input can't be opened.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The output can't be written.
    #[error("the output can't be written: {0}")]
    Output(std::io::Error),
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Packets read.
    pub packets: u64,
    /// Bytes of capture read, about.
    pub bytes: u64,
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// What the chain did.
    pub summary: Summary,
    /// Promises that were broken, each a sentence. Empty, unless Pannier has a fault or too many nodes failed.
    pub broken: Vec<String>,
    /// Why the input ended before its end; what came before was processed.
    pub input_error: Option<InputError>,
    /// The chain at rest, to look into.
    pub chain: Chain,
}

/// A chain and what it runs on. Made by hand, or from a chain file's [`ChainSpec`].
pub struct Run {
    stages: Vec<ChainStage>,
    f: usize,
    plan: Plan,
    burst: usize,
    input: InputSpec,
    output: Option<PathBuf>,
    faults: Faults,
    crashes: Vec<Crash>,
    named_crashes: Vec<(String, u64)>,
    recorder: Option<RecorderFactory>,
    progress: Option<Box<dyn FnMut(Progress)>>,
    stop: Option<Arc<AtomicBool>>,
}

impl Default for Run {
    fn default() -> Self {
        Run::new()
    }
}

impl From<ChainSpec> for Run {
    fn from(spec: ChainSpec) -> Self {
        let stage = |stage: crate::config::StageSpec| ChainStage { name: stage.name, nf: stage.nf };
        Run {
            stages: spec.stages.into_iter().map(stage).collect(),
            f: spec.plan.f(),
            plan: spec.plan,
            burst: spec.burst,
            input: spec.input,
            output: spec.output,
            faults: spec.faults,
            crashes: spec.crashes,
            ..Run::new()
        }
    }
}

impl Run {
    /// A run of no stage yet, which survives one failure.
    pub fn new() -> Self {
        Run {
            stages: Vec::new(),
            f: 1,
            plan: Plan::new(1, 1).expect("the smallest ring is possible"),
            burst: 32,
            input: InputSpec::default(),
            output: None,
            faults: Faults::NONE,
            crashes: Vec::new(),
            named_crashes: Vec::new(),
            recorder: None,
            progress: None,
            stop: None,
        }
    }

    /// Adds a stage behind those that are there.
    #[must_use]
    pub fn stage(mut self, name: &str, nf: impl AnyNf + 'static) -> Self {
        self.stages.push(ChainStage { name: name.to_owned(), nf: Arc::new(nf) });
        self
    }

    /// Sets how many nodes may be down at once.
    #[must_use]
    pub fn survive(mut self, f: usize) -> Self {
        self.f = f;
        self
    }

    /// Sets the bounds, the layout, the size of units and the seed; stages and f are those of this run.
    #[must_use]
    pub fn plan(mut self, plan: Plan) -> Self {
        self.plan = plan;
        self
    }

    /// Reads this capture too, `-` for standard input; captures are merged by time.
    #[must_use]
    pub fn read(mut self, file: impl AsRef<Path>) -> Self {
        self.input.sources.push(Source { side: None, file: file.as_ref().to_owned() });
        self
    }

    /// Writes what leaves the chain to this capture, `-` for standard output.
    #[must_use]
    pub fn write(mut self, file: impl AsRef<Path>) -> Self {
        self.output = Some(file.as_ref().to_owned());
        self
    }

    /// Lets the node of a stage crash once `packet` packets were taken in.
    #[must_use]
    pub fn crash(mut self, stage: &str, packet: u64) -> Self {
        self.named_crashes.push((stage.to_owned(), packet));
        self
    }

    /// Lets the links of the ring fail.
    #[must_use]
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Has what the nodes do told to recorders.
    #[must_use]
    pub fn record(mut self, recorder: RecorderFactory) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Calls `progress` now and then.
    #[must_use]
    pub fn progress(mut self, progress: impl FnMut(Progress) + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Ends the run early, with the summary so far, once `stop` is true.
    #[must_use]
    pub fn stop_on(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Runs the chain on its input to the end.
    ///
    /// # Errors
    /// See [`RunError`]. An input that is damaged in the middle is no error here: see [`Outcome::input_error`].
    pub fn start(mut self) -> Result<Outcome, RunError> {
        let mut plan = Plan::new(self.stages.len(), self.f)?;
        (plan.layout, plan.limits) = (self.plan.layout, self.plan.limits);
        (plan.unit_frames, plan.seed) = (self.plan.unit_frames, self.plan.seed);
        for (name, packet) in std::mem::take(&mut self.named_crashes) {
            let node = self.stages.iter().position(|stage| stage.name == name);
            self.crashes.push(Crash { packet, node: node.ok_or(RunError::NoSuchStage(name))? });
        }
        self.crashes.sort_unstable();
        if self.input.sources.is_empty() {
            return Err(RunError::NoInput);
        }
        let outside = self.stages.iter().flat_map(|stage| stage.nf.outside_addresses()).collect();
        let mut chain = Chain::new(plan, std::mem::take(&mut self.stages), self.burst, self.faults)?;
        if let Some(recorder) = self.recorder.take() {
            chain.record(recorder);
        }
        let input = Input::open(&self.input.sources)?;
        let output = Output::create(self.output.as_deref()).map_err(RunError::Output)?;
        let ingress = Ingress::new(self.input.inside.clone(), outside, self.input.undecided);
        Running {
            run: self,
            chain,
            input,
            output,
            ingress,
            drops: Reasons::default(),
            packets: 0,
            crashed: 0,
        }
        .finish()
    }
}

/// A run under way.
struct Running {
    run: Run,
    chain: Chain,
    input: Input,
    output: Output,
    ingress: Ingress,
    /// Packets that did not enter.
    drops: Reasons,
    /// Packets read.
    packets: u64,
    /// Crashes that have happened.
    crashed: usize,
}

impl Running {
    fn finish(mut self) -> Result<Outcome, RunError> {
        let mut left = Vec::new();
        let mut input_error = None;
        loop {
            let more = self.take_burst().unwrap_or_else(|error| {
                input_error = Some(error);
                false
            });
            self.chain.turn();
            self.write(&mut left)?;
            if !more || self.is_stopped() || self.chain.unrecoverable().is_some() {
                break;
            }
        }
        self.chain.drain();
        self.write(&mut left)?;
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
        summary.warnings = self.warnings(truncated);
        let broken = self.chain.broken_promises();
        self.output.finish().map_err(RunError::Output)?;
        Ok(Outcome { summary, broken, input_error, chain: self.chain })
    }

    /// Lets one burst in, as far as the chain has room. Returns whether there may be more.
    fn take_burst(&mut self) -> Result<bool, InputError> {
        if let Some(progress) = &mut self.run.progress {
            progress(Progress { packets: self.packets, bytes: self.input.bytes });
        }
        if !self.chain.has_room() {
            return Ok(true);
        }
        for _ in 0..self.run.burst {
            self.crash_due();
            let mut packet = self.chain.pool().take();
            let refused = match self.input.next(&mut packet)? {
                Arrival::End => return Ok(false),
                Arrival::Refused(reason) => Some(reason),
                Arrival::Packet(side) => self.ingress.admit(&mut packet, side).err(),
            };
            self.packets += 1;
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

    fn crash_due(&mut self) {
        while let Some(crash) = self.run.crashes.get(self.crashed).filter(|c| c.packet <= self.packets) {
            self.chain.crash(crash.node);
            self.crashed += 1;
        }
    }

    fn write(&mut self, left: &mut Vec<Packet>) -> Result<(), RunError> {
        self.chain.take_released(left);
        for packet in left.drain(..) {
            self.output.write(&packet).map_err(RunError::Output)?;
            self.chain.pool().give(packet);
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.run.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn warnings(&self, truncated: Vec<String>) -> Vec<String> {
        let mut warnings = truncated;
        if self.is_stopped() {
            warnings.push(format!("stopped early, after {} packets", self.packets));
        }
        let undecided = self.ingress.undecided_count;
        if undecided > 0 {
            let policy = match self.run.input.undecided.direction() {
                Some(direction) => format!("taken as {direction:?}").to_lowercase(),
                None => "dropped".to_owned(),
            };
            warnings.push(format!(
                "the addresses of {undecided} packets do not tell their direction; they were {policy} \
                 (set `inside` and `undecided` in [input])"
            ));
        }
        if self.input.cut > 0 {
            warnings.push(format!(
                "the capture holds only the beginning of {} packets; what needs the rest drops them",
                self.input.cut
            ));
        }
        for (reason, count) in self.chain.refused().sorted() {
            // The others belong to every recovery.
            if reason.starts_with("damaged") || reason == "waiting_place_full" {
                warnings.push(format!("{count} messages on the ring were refused: {reason}"));
            }
        }
        for crash in &self.run.crashes[self.crashed..] {
            warnings.push(format!(
                "node {} was to crash after {} packets, and the run ended before",
                crash.node, crash.packet
            ));
        }
        warnings
    }
}

/// Reads all packets that a chain's input holds into memory, with their directions: what a benchmark feeds to a
/// [`Chain`]. Packets that may not enter are left out.
///
/// # Errors
/// As [`Run::start`], and for an input that is damaged.
pub fn load(spec: &ChainSpec) -> Result<Vec<Packet>, RunError> {
    if spec.input.sources.is_empty() {
        return Err(RunError::NoInput);
    }
    let outside = spec.stages.iter().flat_map(|stage| stage.nf.outside_addresses()).collect();
    let mut ingress = Ingress::new(spec.input.inside.clone(), outside, spec.input.undecided);
    let mut input = Input::open(&spec.input.sources)?;
    let mut packets = Vec::new();
    loop {
        let mut packet = Packet::new(&[]);
        match input.next(&mut packet)? {
            Arrival::End => return Ok(packets),
            Arrival::Refused(_) => {}
            Arrival::Packet(side) => {
                if ingress.admit(&mut packet, side).is_ok() {
                    packets.push(packet);
                }
            }
        }
    }
}
