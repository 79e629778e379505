//! Test your own network function (feature `testing`).
//!
//! A network function survives crashes without a line of code for them if it keeps to three rules: what it must
//! remember is in its tables, time and random numbers come from its transaction, and a write that was refused is not
//! treated as done. Nothing in Rust enforces them: a closure may capture a counter, ask the operating system for the
//! time, or ignore an error. [`survives`] finds out, and names what is wrong.
//!
//! # One line in a test
//!
//! ```toml
//! [dependencies]                # `path` is that of a checkout: Pannier is not on crates.io yet
//! pannier-runtime = { path = "pannier/runtime" }
//!
//! [dev-dependencies]
//! pannier-chains = { path = "pannier/chains", features = ["testing"] } # which turns on that of the runtime
//! proptest = "1"                # for property tests
//! ```
//!
//! ```
//! use pannier_chains::testing::survives;
//! use pannier_runtime::testing::{CrashAt, FaultPlan, Trace, TraceFrame};
//! use pannier_runtime::wire::FrameBuilder;
//! use pannier_runtime::{Direction, Verdict, nf, state};
//!
//! state! {
//!     /// Frames by length.
//!     pub struct Lengths { seen: u16 => u64 [2_000] }
//! }
//!
//! let frame = |number: u16| TraceFrame {
//!     time: 1_700_000_000_000_000_000 + u64::from(number) * 1_000_000,
//!     direction: Direction::Outbound,
//!     bytes: FrameBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1]).udp(5_000 + number, 53, b"question"),
//! };
//! let trace = Trace((0..20).map(frame).collect());
//! let faults = FaultPlan { crashes: vec![CrashAt { node: 0, packet: 10 }], ..FaultPlan::default() };
//!
//! survives(
//!     || {
//!         nf(|frame, state: &Lengths, txn| {
//!             let length = frame.bytes().len() as u16;
//!             txn.update(&state.seen, length, |seen| seen.unwrap_or(0) + 1)?;
//!             Ok(Verdict::Forward)
//!         })
//!     },
//!     &trace,
//!     &faults,
//! )
//! .unwrap();
//! ```
//!
//! The first argument makes the network function: on a ring every node is a process with an instance of its own, so the
//! test needs several. It must make everything anew, and own what it captures (`move`). A trace is made by hand as
//! here, by the strategies of [`pannier_runtime::testing`] in a property test, or read from a capture by
//! [`read_trace`].
//!
//! # What is done
//!
//! The trace passes an in-process chain of one stage, whose nodes crash and whose links lose, double and delay as the
//! plan says. When the head dies, a fresh instance goes on with the state that the ring has kept. Before each
//! transaction runs, it is rehearsed on copies of its frame and its state: twice on the instance that is running, on
//! fresh instances, and once more for each new row with that row refused, as a full table would refuse it. All must come
//! to the same: verdict, frame, frames made, rows written with their expiry, partitions read, random numbers drawn.
//! Where they differ, experiments tell why. More than a second later the trace passes once more, for clocks that count
//! in seconds, and a short one a few times again.
//!
//! At the end the tables must hold what a model over ordered maps makes of the committed transactions, with what a crash
//! may take left out; whatever a released packet did must be there; and the chain must have kept its promises.
//!
//! # What it finds
//!
//! | [`Cause`] | the mistake | how it shows |
//! |---|---|---|
//! | [`Clock`](Cause::Clock) | `SystemTime::now()` or `Instant::now()` where `txn.now()` belongs | the outcome moves with the time between runs |
//! | [`HiddenState`](Cause::HiddenState) | a counter or cache in the closure, which each packet changes | one instance disagrees with itself, fresh ones agree |
//! | [`StateOutsideTables`](Cause::StateOutsideTables) | a map or a flag beside the tables | fresh instances disagree with the running one |
//! | [`SharedState`](Cause::SharedState) | a `static`, or something that the factory shares | instances disagree in turn |
//! | [`IterationOrder`](Cause::IterationOrder) | "the first" of a `HashMap` | fresh instances disagree, outcomes recur |
//! | [`Randomness`](Cause::Randomness) | random numbers that are not `txn.random()` | fresh instances never agree |
//! | [`EditOfRefusedWrite`](Cause::EditOfRefusedWrite) | the frame is edited, the write is refused, the error is ignored | the edited frame leaves without its row |
//! | [`Panic`](Cause::Panic) | a panic, also one on a refused write | it is caught |
//! | [`Forgotten`](Cause::Forgotten) | an `Eq` of keys that says equal of different bytes | the tables differ from the model |
//!
//! `cargo run -p pannier-chains --features testing --example planted_bugs` shows the message for each. It names the packet, the
//! row, what was expected and what was found, and two files in a fresh folder: a capture of the trace up to the packet,
//! and the fault plan with the lines of Rust that run both again. The folder is below `target/pannier-failures/`, with
//! the temporary files where there is no target folder, or where [`Survival::dump_to`] says.
//!
//! # In a property test
//!
//! Traffic and faults come from strategies that shrink. [`Survival::quick`] leaves out the passes that wait,
//! [`Survival::without_files`] the files, of which shrinking would write many. Keep one ordinary [`survives`] beside the
//! property.
//!
//! ```
//! use pannier_chains::testing::{Survival, Traffic, fault_plan, trace};
//! use pannier_runtime::{Verdict, nf, state};
//! use proptest::prelude::*;
//!
//! state! {
//!     /// Frames by length.
//!     pub struct Lengths { seen: u16 => u64 [2_000] }
//! }
//!
//! proptest! {
//!     #![proptest_config(ProptestConfig::with_cases(4))]
//!     # /*
//!     #[test]
//!     # */
//!     fn no_crash_makes_it_forget(
//!         trace in trace(&Traffic::default()),
//!         faults in fault_plan(2, 1, 30), // nodes of the ring (f + 1), f, packets in which they crash
//!     ) {
//!         let lengths = || nf(|frame, state: &Lengths, txn| {
//!             let length = frame.bytes().len() as u16;
//!             txn.update(&state.seen, length, |seen| seen.unwrap_or(0) + 1)?;
//!             Ok(Verdict::Forward)
//!         });
//!         let survived = Survival::of(lengths).f(1).trace(&trace).faults(&faults).quick().without_files().run();
//!         prop_assert!(survived.is_ok(), "{}", survived.unwrap_err());
//!     }
//! }
//! # no_crash_makes_it_forget();
//! ```
//!
//! # What it can't find
//!
//! - A decision that only a much later clock would change (the hour, the date), or that compares a clock with the
//!   packets' times far away: all runs agree.
//! - Something shared by all instances that answers every packet as it did the first time, such as a `static` cache.
//! - What the trace does not reach: rows that expire need a trace that lasts, full tables a small capacity (although
//!   every new row is refused once).
//! - Refusals other than of room for a new row: a transaction that writes too much is always aborted by the runtime.

mod audit;
mod bench;
mod diagnosis;
mod failure;
mod files;
mod model;
mod outcome;
mod pass;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pannier_runtime::Nf;
pub use pannier_runtime::testing::{CrashAt, FaultPlan, Trace, TraceFrame, Traffic, fault_plan, trace};

use crate::chain::Summary;
use audit::{Audit, Factory, Instances, Journal, Shared};
pub use failure::{Cause, Details, FailedPacket, Failure};
pub use files::read_trace;
pub use outcome::Difference;
use pass::{Found, Pass, Passed};

/// Pauses before more passes, in microseconds: of no common measure.
const MORE: [u64; 12] = [1_300, 2_900, 700, 4_100, 3_300, 1_100, 5_300, 1_900, 2_300, 900, 6_100, 1_700];

/// How long more passes may take in all.
const PATIENCE: Duration = Duration::from_millis(200);

/// What a network function has survived.
#[derive(Clone, Debug, PartialEq)]
pub struct Survived {
    /// What became of the packets of the first pass.
    pub summary: Summary,
    /// Transactions that were rehearsed, sweeps included.
    pub transactions: usize,
    /// Refusals of new rows that were tried.
    pub refusals: u64,
    /// Crashes that happened; those of the plan that came behind the last packet did not.
    pub crashes: usize,
}

/// Lets a network function work on a trace while nodes crash and links fail, and looks for everything that would not
/// survive: see the [module](self). With f = 1 and 8 partitions; [`Survival`] has the rest.
///
/// Takes a second more than the work itself.
///
/// # Errors
/// The first thing that is wrong, with its cause by name.
pub fn survives<N: Nf>(
    factory: impl Fn() -> N + Send + Sync + 'static,
    trace: &Trace,
    faults: &FaultPlan,
) -> Result<Survived, Failure> {
    Survival::of(factory).trace(trace).faults(faults).run()
}

/// A test of a network function that is being set up; [`survives`] is its short form.
pub struct Survival<N> {
    factory: Factory<N>,
    f: usize,
    partitions: usize,
    trace: Trace,
    faults: FaultPlan,
    may_refuse: BTreeSet<String>,
    quick: bool,
    /// Where files go; `None` for nowhere.
    root: Option<PathBuf>,
}

impl<N: Nf> Survival<N> {
    /// A test of what `factory` makes: f = 1, 8 partitions, no packets and no faults yet.
    pub fn of(factory: impl Fn() -> N + Send + Sync + 'static) -> Self {
        Survival {
            factory: Arc::new(factory),
            f: 1,
            partitions: 8,
            trace: Trace::default(),
            faults: FaultPlan::default(),
            may_refuse: BTreeSet::new(),
            quick: false,
            root: Some(files::default_root()),
        }
    }

    /// How many nodes may be down at once; the ring has one more. Crashes beyond that are put off.
    #[must_use]
    pub fn f(mut self, f: usize) -> Self {
        self.f = f;
        self
    }

    /// How many partitions the store has, 1 … 64.
    #[must_use]
    pub fn partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions;
        self
    }

    /// The packets.
    #[must_use]
    pub fn trace(mut self, trace: &Trace) -> Self {
        self.trace = trace.clone();
        self
    }

    /// What happens to the chain meanwhile.
    #[must_use]
    pub fn faults(mut self, faults: &FaultPlan) -> Self {
        self.faults = faults.clone();
        self
    }

    /// Names a table whose rows may be missing, so that frames may go on edited where it refuses a row: statistics,
    /// say.
    #[must_use]
    pub fn may_refuse(mut self, table: impl Into<String>) -> Self {
        self.may_refuse.insert(table.into());
        self
    }

    /// Leaves out what waits for coarse clocks, the passes after the first: for property tests.
    #[must_use]
    pub fn quick(mut self) -> Self {
        self.quick = true;
        self
    }

    /// Where a failure's folder is made.
    #[must_use]
    pub fn dump_to(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = Some(root.into());
        self
    }

    /// Writes no files at a failure.
    #[must_use]
    pub fn without_files(mut self) -> Self {
        self.root = None;
        self
    }

    /// Runs the test.
    ///
    /// # Errors
    /// The first thing that is wrong, with its cause by name; [`Cause::Setup`] where the ring can't be laid out.
    pub fn run(&self) -> Result<Survived, Failure> {
        let new = || Arc::new(Instances::new(Arc::clone(&self.factory)));
        // An instance of the second pass has seen time pass when it begins: a stopwatch in it has run on.
        let (first, second) = (new(), new());
        let mut passed = self.pass(first, None).map_err(|found| self.tell(found))?;
        let transactions = passed.journal.len();
        if !self.quick {
            sleep(diagnosis::COARSE);
            let earlier = Arc::new(std::mem::take(&mut passed.journal));
            self.pass(second, Some(Arc::clone(&earlier))).map_err(|found| self.tell(found))?;
            // What a clock says now and then is met by chance only, and a short trace has few chances.
            let began = Instant::now();
            for pause in MORE.into_iter().take_while(|_| began.elapsed() < PATIENCE) {
                sleep(Duration::from_micros(pause));
                self.pass(new(), Some(Arc::clone(&earlier))).map_err(|found| self.tell(found))?;
            }
        }
        let Passed { summary, refusals, crashes, .. } = passed;
        Ok(Survived { summary, transactions, refusals, crashes })
    }

    fn pass(&self, instances: Arc<Instances<N>>, earlier: Option<Arc<Journal>>) -> Result<Passed, Found> {
        let audit = Audit {
            instances,
            ledger: Shared::default(),
            earlier,
            may_refuse: self.may_refuse.clone(),
            quick: self.quick,
        };
        let pass = Pass::new(audit, (self.f, self.partitions), &self.trace.0, &self.faults);
        pass.map_err(|error| (Failure::new(Cause::Setup, error.to_string()), None))?.run()
    }

    /// Completes a failure: the packet, and the files.
    fn tell(&self, (failure, number): Found) -> Failure {
        let packet =
            number.and_then(|number| Some(FailedPacket { number, frame: self.trace.0.get(number)?.clone() }));
        let end = packet.as_ref().map_or(self.trace.0.len(), |packet| packet.number + 1);
        let failure = failure.about(packet);
        let Some(root) = &self.root else { return failure };
        let (f, partitions, faults) = (self.f, self.partitions, &self.faults);
        let message = failure.to_string();
        let may_refuse = &self.may_refuse;
        let setup = files::Setup { f, partitions, faults, may_refuse, message: &message };
        failure.written(files::write(root, &self.trace.0[..end], &setup))
    }
}

impl<N> fmt::Debug for Survival<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Survival")
            .field("f", &self.f)
            .field("partitions", &self.partitions)
            .field("packets", &self.trace.0.len())
            .field("faults", &self.faults)
            .field("quick", &self.quick)
            .finish_non_exhaustive()
    }
}
