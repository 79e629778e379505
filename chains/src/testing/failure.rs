//! Failures: what is wrong with a network function, in words that name the cause.

use std::fmt;
use std::io;
use std::path::PathBuf;

use pannier_runtime::Direction;
use pannier_runtime::testing::TraceFrame;
use pannier_runtime::wire::Flow;

use super::outcome::{Difference, hex, seconds};

/// Bytes of a frame that a message shows.
const SHOWN: usize = 48;

/// What is wrong with a network function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// It reads a clock of the operating system.
    Clock,
    /// It changes something that it keeps in itself: a counter or a cache that its closure captured.
    HiddenState,
    /// It depends on something that all its instances share in this process.
    SharedState,
    /// It depends on the order in which a `HashMap` or `HashSet` is iterated.
    IterationOrder,
    /// It draws random numbers that are not the transaction's.
    Randomness,
    /// It lets a frame go edited although the write that belongs to the edit was refused.
    EditOfRefusedWrite,
    /// It remembers outside of its tables: another instance decides otherwise.
    StateOutsideTables,
    /// It panics.
    Panic,
    /// What a transaction wrote is not in the tables at the end.
    Forgotten,
    /// The chain broke a promise.
    BrokenPromise,
    /// The test itself can't be run as it was asked for.
    Setup,
}

impl Cause {
    /// The cause as a sentence, and the way out.
    fn sentences(self) -> (&'static str, &'static str) {
        match self {
            Cause::Clock => (
                "the network function reads a clock of the operating system",
                "use txn.now(): the packet's arrival, which is the same whenever and wherever the packet is worked on",
            ),
            Cause::HiddenState => (
                "the network function keeps hidden state: working on a packet changes how it works on the next",
                "keep counters and caches in a table: what a closure captures is not replicated and never taken back",
            ),
            Cause::SharedState => (
                "the network function depends on state that all its instances share in this process",
                "keep it in a table: a `static`, or what the factory shares between instances, is another one on each node",
            ),
            Cause::IterationOrder => (
                "the network function depends on iteration order: equal instances differ and their outcomes recur, as with a HashMap or HashSet of the standard library",
                "iterate a BTreeMap or a sorted Vec (RandomState differs from instance to instance); random numbers are txn.random()'s",
            ),
            Cause::Randomness => (
                "the network function uses random numbers of its own: equal instances never agree",
                "draw them with txn.random() or txn.random_below(); if it is a clock, use txn.now()",
            ),
            Cause::EditOfRefusedWrite => (
                "the network function edits a packet before a write and lets it go edited although the write was refused",
                "pass the refusal on with `?` (the frame is dropped), or edit the frame after the write has succeeded; if the row may be missing, name its table in Survival::may_refuse",
            ),
            Cause::StateOutsideTables => (
                "the network function keeps state outside of its tables: after a crash its replacement decides otherwise",
                "keep it in a table: only tables are replicated",
            ),
            Cause::Panic => (
                "the network function panics",
                "a panic takes its node down, and its replacement with the next such packet: return an error, the frame is dropped and counted",
            ),
            Cause::Forgotten => (
                "what a transaction wrote did not survive",
                "keys that are equal must have equal bytes, and only transactions may write; if both holds it is an error of Pannier: please report it with the files below",
            ),
            Cause::BrokenPromise => (
                "the chain broke a promise",
                "this is an error of Pannier unless more than f nodes were down at once: please report it with the files below",
            ),
            Cause::Setup => ("the test cannot run", "change what it asks for"),
        }
    }
}

/// The packet that a failure is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPacket {
    /// Its number in the trace, counted from 0.
    pub number: usize,
    /// The frame as it came.
    pub frame: TraceFrame,
}

/// What a failure knows besides its cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The packet. `None` where it is about the removal of idle rows, or about the whole run.
    pub packet: Option<FailedPacket>,
    /// What differs, and in what.
    pub difference: Option<Difference>,
    /// What was seen that names the cause.
    pub seen: String,
    /// A capture of the trace up to the packet.
    pub capture: Option<PathBuf>,
    /// The fault plan, and how to run it again.
    pub schedule: Option<PathBuf>,
    /// Why the files could not be written.
    pub unwritten: Option<String>,
}

/// Why a network function does not survive. Shown as a message of several lines, by `Debug` as well, so that `unwrap`
/// in a test prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong.
    pub cause: Cause,
    /// Where, and how it showed.
    pub details: Box<Details>,
}

impl Failure {
    pub(super) fn new(cause: Cause, seen: impl Into<String>) -> Self {
        Failure { cause, details: Box::new(Details { seen: seen.into(), ..Details::default() }) }
    }

    pub(super) fn differing(mut self, difference: Option<Difference>) -> Self {
        self.details.difference = difference;
        self
    }

    pub(super) fn about(mut self, packet: Option<FailedPacket>) -> Self {
        self.details.packet = packet;
        self
    }

    pub(super) fn written(mut self, files: io::Result<(PathBuf, PathBuf)>) -> Self {
        match files {
            Ok((capture, schedule)) => {
                (self.details.capture, self.details.schedule) = (Some(capture), Some(schedule));
            }
            Err(error) => self.details.unwritten = Some(error.to_string()),
        }
        self
    }
}

impl std::error::Error for Failure {}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, way_out) = self.cause.sentences();
        let details = &self.details;
        write!(f, "{what}\n  seen      {}\n  way out   {way_out}", details.seen)?;
        if let Some(packet) = &details.packet {
            let TraceFrame { time, direction, bytes } = &packet.frame;
            let way = match direction {
                Direction::Outbound => "outbound",
                Direction::Inbound => "inbound",
            };
            write!(f, "\n  packet    {} (from 0), {way}, at {}", packet.number, seconds(*time))?;
            let flow =
                Flow::parse(bytes).map_or_else(|error| error.reason().to_owned(), |flow| flow.to_string());
            write!(f, "\n  flow      {flow}")?;
            let shown = &bytes[..bytes.len().min(SHOWN)];
            write!(f, "\n  bytes     {} ({} of {})", hex(shown), shown.len(), bytes.len())?;
        }
        if let Some(Difference { at, expected, found }) = &details.difference {
            write!(f, "\n  differs   {at}\n  expected  {expected}\n  found     {found}")?;
        }
        let files = [("capture ", &details.capture), ("schedule", &details.schedule)];
        for (name, file) in files.into_iter().filter_map(|(name, file)| Some((name, file.as_ref()?))) {
            write!(f, "\n  {name}  {}", file.display())?;
        }
        details.unwritten.iter().try_for_each(|error| write!(f, "\n  files     not written: {error}"))
    }
}
