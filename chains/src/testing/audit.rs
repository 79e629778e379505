//! The audit: a network function around another one, which rehearses each transaction before it runs it.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pannier_runtime::clock::Nanos;
use pannier_runtime::piggyback::Record;
use pannier_runtime::ring::{Origin, Recorder};
use pannier_runtime::state::{AnyState, Layout};
use pannier_runtime::{Frame, Nf, Packet, Txn, TxnResult, Verdict};

use super::bench::{Act, Bench, Tried};
use super::diagnosis::Experiments;
use super::failure::{Cause, Failure};
use super::model::Committed;
use super::outcome::{Difference, Outcome, RowKey, frames, name_of};

/// Fresh instances that rehearse each transaction.
const FRESH: usize = 2;

/// Refusals that are tried for each transaction.
const MOST_REFUSALS: usize = 16;

/// Outcomes that are kept whole for a later pass to be compared with; of others a digest is.
const KEPT_OUTCOMES: usize = 2_048;

/// The verdict on frames that come after a failure.
const AFTER_FAILURE: TxnResult<Verdict> = Ok(Verdict::Drop("audit_failed"));

/// What the transactions of a pass came to, in their order.
#[derive(Debug, Default)]
pub(super) struct Journal {
    digests: Vec<u64>,
    outcomes: Vec<Outcome>,
}

/// What a pass of the trace has shown so far.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Numbers of the packets that the head works on next.
    pub(super) arrivals: VecDeque<usize>,
    /// The packet of the running transaction; `None` for a sweep.
    current: Option<usize>,
    pub(super) journal: Journal,
    pub(super) history: Vec<Committed>,
    pub(super) released: Vec<usize>,
    /// Refusals that were tried.
    pub(super) refusals: u64,
    /// The first failure, and the packet that it is about.
    pub(super) failure: Option<(Failure, Option<usize>)>,
}

impl Journal {
    /// How many transactions there were.
    pub(super) fn len(&self) -> usize {
        self.digests.len()
    }

    fn push(&mut self, outcome: Outcome) {
        self.digests.push(outcome.digest());
        if self.outcomes.len() < KEPT_OUTCOMES {
            self.outcomes.push(outcome);
        }
    }
}

/// The ledger as the audit, the recorders and the driver have it.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared(Arc<Mutex<Ledger>>);

impl Shared {
    /// A panic of the network function is caught before it gets here, and one of a test's own leaves a whole ledger.
    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Packets carry their numbers, plus one, where captures say how much of a frame is missing: no network function
/// sees that.
pub(super) fn tag(packet: &mut Packet, number: usize) {
    packet.meta.missing = u32::try_from(number + 1).unwrap_or(u32::MAX);
}

impl Recorder for Shared {
    fn committed(&mut self, by: Origin, _: Nanos, record: &Record) {
        let ledger = &mut *self.lock();
        ledger.history.push(Committed::new(ledger.current, by.incarnation, record));
    }

    fn released(&mut self, _: Origin, packet: &Packet) {
        // Frames that the network function made carry no number.
        let number = packet.meta.missing.checked_sub(1);
        self.lock().released.extend(number.map(|number| number as usize));
    }
}

/// Makes instances.
pub(super) type Factory<N> = Arc<dyn Fn() -> N + Send + Sync>;

/// The instance that runs, and where others come from.
pub(super) struct Instances<N> {
    factory: Factory<N>,
    live: Mutex<Arc<N>>,
}

impl<N> Instances<N> {
    pub(super) fn new(factory: Factory<N>) -> Self {
        let live = Mutex::new(Arc::new(factory()));
        Instances { factory, live }
    }

    /// Puts a fresh instance in the place of the running one, as the replacement of its node does.
    pub(super) fn replace(&self) {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new((self.factory)());
    }

    fn live(&self) -> Arc<N> {
        Arc::clone(&self.live.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A network function that audits another one.
pub(super) struct Audit<N: Nf> {
    pub(super) instances: Arc<Instances<N>>,
    pub(super) ledger: Shared,
    /// A pass before, to be compared with.
    pub(super) earlier: Option<Arc<Journal>>,
    /// Tables whose rows may be refused.
    pub(super) may_refuse: BTreeSet<String>,
    /// No waiting for coarse clocks.
    pub(super) quick: bool,
}

impl<N: Nf> fmt::Debug for Audit<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audit")
    }
}

impl<N: Nf> Nf for Audit<N> {
    type State = N::State;

    fn state(&self, layout: &Layout) -> N::State {
        self.instances.live().state(layout)
    }

    fn process(&self, frame: &mut Frame<'_>, state: &N::State, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        let arrival = self.ledger.lock().arrivals.pop_front();
        let act = Act::Frame(frame.direction(), frame.bytes().to_vec());
        self.audit(act, arrival, state, txn, |live, txn| {
            let said = live.process(frame, state, txn);
            (said, frame.bytes().to_vec())
        })
    }

    fn sweep(&self, state: &N::State, txn: &mut Txn<'_>, partition: usize) -> TxnResult<()> {
        let sweep = |live: &N, txn: &mut Txn<'_>| {
            let said = live.sweep(state, txn, partition);
            (said.map(|()| Verdict::Drop("swept")), Vec::new())
        };
        self.audit(Act::Sweep(partition), None, state, txn, sweep).map(|_| ())
    }

    fn largest_delta(&self, state: &N::State) -> usize {
        self.instances.live().largest_delta(state)
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.instances.live().addresses()
    }
}

impl<N: Nf> Audit<N> {
    /// Rehearses a transaction, runs it, and compares what it did.
    fn audit(
        &self,
        act: Act,
        arrival: Option<usize>,
        state: &N::State,
        txn: &mut Txn<'_>,
        run: impl FnOnce(&N, &mut Txn<'_>) -> (TxnResult<Verdict>, Vec<u8>),
    ) -> TxnResult<Verdict> {
        {
            let ledger = &mut *self.ledger.lock();
            ledger.current = arrival;
            if ledger.failure.is_some() {
                return AFTER_FAILURE;
            }
        }
        let bench = Bench { act, state, before: txn.fork(), now: txn.now() };
        let live = self.instances.live();
        let checked = self.rehearse(&bench, &live).and_then(|rehearsed| {
            let (said, frame) = run(&live, txn);
            let outcome = Outcome::new(said, &frame, &txn.fork(), state);
            self.expect(&bench, &live, &rehearsed, Ok(outcome), "the run after them")?;
            Ok((said, rehearsed))
        });
        let ledger = &mut *self.ledger.lock();
        match checked {
            Ok((said, outcome)) => {
                ledger.journal.push(outcome);
                said
            }
            Err(failure) => {
                ledger.failure = Some((failure, arrival));
                AFTER_FAILURE
            }
        }
    }

    /// What the transaction will come to, if all instances agree in it, now and in the pass before.
    fn rehearse(&self, bench: &Bench<'_, N>, live: &N) -> Result<Outcome, Failure> {
        let Tried { outcome: first, new_rows, .. } =
            bench.refusing(live, None).map_err(|said| panic(&said))?;
        self.expect(bench, live, &first, bench.on(live), "the second run of the same instance")?;
        for _ in 0..FRESH {
            let fresh = bench.on(&(self.instances.factory)());
            self.expect(bench, live, &first, fresh, "a fresh instance, as after a crash")?;
        }
        self.compare_with_earlier(bench, live, &first)?;
        for number in 0..new_rows.min(MOST_REFUSALS) {
            self.refuse(bench, live, &first, number)?;
        }
        Ok(first)
    }

    /// Expects the outcome of another run to be the same.
    fn expect(
        &self,
        bench: &Bench<'_, N>,
        live: &N,
        expected: &Outcome,
        found: Result<Outcome, String>,
        who: &str,
    ) -> Result<(), Failure> {
        let found = found.map_err(|said| panic(&said))?;
        if found == *expected {
            return Ok(());
        }
        let difference = Difference::between(expected, &found, bench.state);
        Err(self.diagnose(bench, live, difference, who))
    }

    fn diagnose(&self, bench: &Bench<'_, N>, live: &N, difference: Option<Difference>, who: &str) -> Failure {
        let factory = &*self.instances.factory;
        let verdict = Experiments { bench, live, factory, quick: self.quick }.diagnose();
        let (cause, seen) = verdict.unwrap_or_else(|said| (Cause::Panic, format!("it panicked: {said}")));
        let difference = difference.map(|mut difference| {
            difference.expected.push_str(" (the first run)");
            difference.found = format!("{} ({who})", difference.found);
            difference
        });
        Failure::new(cause, seen).differing(difference)
    }

    fn compare_with_earlier(&self, bench: &Bench<'_, N>, live: &N, outcome: &Outcome) -> Result<(), Failure> {
        let number = self.ledger.lock().journal.len();
        let Some(earlier) = &self.earlier else { return Ok(()) };
        if earlier.digests.get(number) == Some(&outcome.digest()) {
            return Ok(());
        }
        let state: &dyn AnyState = bench.state;
        let difference = earlier.outcomes.get(number).and_then(|o| Difference::between(o, outcome, state));
        Err(self.diagnose(bench, live, difference, "the same packet in a second pass of the trace"))
    }

    /// Tries what becomes of the frame when one of the new rows is refused. It must not leave edited as if the row
    /// were there. A network function that does something else for the refusal (writes elsewhere, edits otherwise,
    /// drops) has noticed it.
    fn refuse(&self, bench: &Bench<'_, N>, live: &N, kept: &Outcome, number: usize) -> Result<(), Failure> {
        let state: &dyn AnyState = bench.state;
        self.ledger.lock().refusals += 1;
        let tried = bench.refusing(live, Some(number)).map_err(|said| {
            Failure::new(Cause::Panic, format!("when a new row was refused it panicked: {said}"))
        })?;
        let Some(row) = tried.refused else { return Ok(()) };
        let table = state.table(usize::from(row.0)).map_or("", |table| table.name());
        let (Act::Frame(_, original), Some(edited)) = (&bench.act, &kept.frame) else { return Ok(()) };
        let others = |writes: &Outcome| {
            let mut others = writes.writes.clone();
            others.remove(&row);
            others
        };
        let is_there = |row: &RowKey| tried.outcome.writes.get(row).is_some_and(|(value, _)| value.is_some());
        let swallowed = tried.outcome.frame.as_ref() == Some(edited)
            && edited != original
            && !is_there(&row)
            && tried.outcome.emitted == kept.emitted
            && others(&tried.outcome) == others(kept);
        if !swallowed || self.may_refuse.contains(table) {
            return Ok(());
        }
        let Difference { at, expected, found } = frames(original, edited);
        let difference = Difference {
            at: format!("{at}, with {} refused", name_of(&row, state)),
            expected: format!("{expected} as it came, or no frame"),
            found: format!("{found} as if the row had been kept"),
        };
        let seen = format!("room for a new row in table `{table}` was refused, and the edited frame went on");
        Err(Failure::new(Cause::EditOfRefusedWrite, seen).differing(Some(difference)))
    }
}

fn panic(said: &str) -> Failure {
    Failure::new(Cause::Panic, format!("it panicked: {said}"))
}
