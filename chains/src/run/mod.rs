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

mod input;
mod output;
mod running;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pannier_runtime::port::Faults;
use pannier_runtime::ring::{Plan, PlanError};
use pannier_runtime::{AnyNf, Packet};

use crate::chain::{Chain, ChainStage, RecorderFactory, Summary};
use crate::config::{ChainSpec, Crash, InputSpec, Source};
use crate::ingress::Ingress;
pub use input::InputError;
use input::{Arrival, Input};
use output::Output;
use running::Running;

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
    /// The output would overwrite the input.
    #[error("`{}` is read, so it can't be written too: name another file with --write", .0.display())]
    SameFile(PathBuf),
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

    /// Lets the node of a stage crash once `packet` packets were read and have begun their way. A crash that the ring
    /// would not survive, because f nodes are down, is put off until one is back.
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
        let plan = self.plan.with_geometry(self.stages.len(), self.f)?;
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
        if let Some(path) = &self.output
            && let Some(source) = self.input.sources.iter().find(|source| is_same_file(&source.file, path))
        {
            return Err(RunError::SameFile(source.file.clone()));
        }
        let output = Output::create(self.output.as_deref()).map_err(RunError::Output)?;
        let ingress = Ingress::new(self.input.inside.clone(), outside, self.input.undecided);
        Running::new(self, chain, input, output, ingress).finish()
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

/// Whether two paths lead to one file, which exists.
fn is_same_file(one: &Path, other: &Path) -> bool {
    match (std::fs::canonicalize(one), std::fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other || is_same_inode(&one, &other),
        _ => false,
    }
}

#[cfg(unix)]
fn is_same_inode(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (std::fs::metadata(one), std::fs::metadata(other)) {
        (Ok(one), Ok(other)) => one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_same_inode(_: &Path, _: &Path) -> bool {
    false
}
