//! Tests of the model: it takes what a crash may take, and nothing else.

use pannier_runtime::dependency::Vector;
use pannier_runtime::piggyback::Record;
use pannier_runtime::port::Faults;
use pannier_runtime::ring::Store;
use pannier_runtime::state::{AnyState, AnyTable, Change, Layout, NEVER, State, Table};
use pannier_runtime::testing::{CrashAt, FaultPlan, Trace, TraceFrame};
use pannier_runtime::txn::delta;
use pannier_runtime::{Direction, Verdict, nf, state};

use super::failure::Failure;
use super::model::{Committed, check};
use super::{Cause, Survival};

const PARTITIONS: usize = 2;

state! { struct Rows { rows: u8 => u8 [100] } }

fn layout() -> Layout {
    Layout { partitions: PARTITIONS, hash_seed: 1 }
}

/// A history that is told record by record, and the versions that its heads count.
struct Told {
    versions: Vector,
    incarnation: u64,
    history: Vec<Committed>,
}

impl Told {
    fn new() -> Self {
        Told { versions: Vector::default(), incarnation: 1, history: Vec::new() }
    }

    /// The transaction of `packet` reads partitions and sets rows to its number.
    fn commit(&mut self, packet: usize, reads: &[usize], keys: &[u8]) {
        let rows = Rows::new(&layout()).rows;
        let mut record = Record::default();
        record.reset(0);
        reads.iter().for_each(|&partition| record.note(partition, self.versions[partition], false));
        let mut written: Vec<usize> = keys.iter().map(|key| rows.place_of(&[*key]).partition).collect();
        written.sort_unstable();
        written.dedup();
        for partition in written {
            record.note(partition, self.versions[partition], true);
            self.versions.0[partition] += 1;
        }
        for key in keys {
            let change = Change { table: 0, key: &[*key], value: Some(&[packet as u8]), expires: NEVER };
            delta::put_change(record.delta_mut(), &change);
        }
        self.history.push(Committed::new(Some(packet), self.incarnation, &record));
    }

    /// A replacement goes on from these versions.
    fn replace(&mut self, versions: [u64; PARTITIONS]) {
        self.incarnation += 1;
        self.versions.0[..PARTITIONS].copy_from_slice(&versions);
    }

    /// Asks the model about a store with these rows.
    fn ask(&self, released: &[usize], rows: &[(u8, u8)]) -> Result<(), (Failure, Option<usize>)> {
        let (mut state, mut changes) = (Rows::new(&layout()), Vec::new());
        for (key, value) in rows {
            let change = Change { table: 0, key: &[*key], value: Some(&[*value]), expires: NEVER };
            delta::put_change(&mut changes, &change);
        }
        delta::apply(&mut state, &changes);
        let store = Store::with_vectors(Box::new(state), false, self.versions, Vector::default());
        check(&self.history, released, &store, PARTITIONS)
    }

    #[track_caller]
    fn refused(&self, released: &[usize], rows: &[(u8, u8)], packet: Option<usize>, words: &str) {
        let (failure, about) = self.ask(released, rows).expect_err("it must be seen");
        assert_eq!((failure.cause, about), (Cause::Forgotten, packet), "{failure}");
        assert!(failure.to_string().contains(words), "{words:?} is not in:\n{failure}");
    }
}

/// Two keys of each partition.
fn keys() -> [[u8; 2]; PARTITIONS] {
    let rows = Rows::new(&layout()).rows;
    [0, 1].map(|partition| {
        let mut keys = (0..=u8::MAX).filter(|key| rows.place_of(&[*key]).partition == partition);
        [keys.next().expect("one of 256"), keys.next().expect("one of 256")]
    })
}

#[test]
fn rows_are_what_the_last_surviving_transactions_wrote() {
    // Goal: each row is compared. Method: the right tables, then one row changed, missing, or too many.
    let [[a, b], [c, _]] = keys();
    let mut told = Told::new();
    told.commit(1, &[], &[a, c]);
    told.commit(2, &[1], &[b]);
    told.commit(3, &[], &[a]);
    told.ask(&[1, 2, 3], &[(a, 3), (b, 2), (c, 1)]).expect("all is there");
    told.refused(&[], &[(a, 1), (b, 2), (c, 1)], Some(3), "expected  03 (3)\n  found     01 (1)");
    told.refused(&[], &[(a, 3), (c, 1)], Some(2), "expected  02 (2)\n  found     nothing");
    told.refused(&[], &[(a, 3), (b, 2), (c, 1), (77, 7)], None, "expected  nothing\n  found     07 (7)");
}

#[test]
fn a_crash_takes_what_was_not_released_and_nothing_else() {
    // Goal: legal losses are no alarm, others are. Method: a replacement goes on one transaction earlier, which was
    // released or was not.
    let [[a, _], [c, _]] = keys();
    let mut told = Told::new();
    told.commit(1, &[], &[a]);
    told.commit(2, &[], &[a, c]);
    told.replace([1, 0]);
    told.commit(3, &[], &[c]);
    told.ask(&[1, 3], &[(a, 1), (c, 3)]).expect("packet 2 was not released");
    told.refused(
        &[1, 2],
        &[(a, 1), (c, 3)],
        Some(2),
        "was released, and what its transaction wrote was lost",
    );
    told.refused(&[1, 2], &[(a, 1), (c, 3)], Some(2), "expected  02 (2)\n  found     01 (1)");
}

#[test]
fn a_transaction_survives_whole_and_with_what_it_saw() {
    // Goal: the model knows more than rows. Method: histories in which a replacement forgets half of a transaction, or
    // a read one; a version that comes twice; one that nobody has committed.
    let [[a, _], [c, _]] = keys();
    let mut half = Told::new();
    half.commit(1, &[], &[a, c]);
    half.replace([1, 0]);
    half.refused(&[], &[(a, 1)], Some(1), "survived in part");

    let mut unseen = Told::new();
    unseen.commit(1, &[], &[a]);
    unseen.commit(2, &[0], &[c]);
    unseen.replace([0, 1]);
    unseen.refused(&[], &[(c, 2)], Some(2), "without what it had seen");

    let mut twice = Told::new();
    twice.commit(1, &[], &[a]);
    twice.versions = Vector::default();
    twice.commit(2, &[], &[a]);
    twice.refused(&[], &[(a, 2)], Some(2), "came twice");

    let mut early = Told::new();
    early.versions.0[0] = 3;
    early.commit(1, &[], &[a]);
    early.refused(&[], &[(a, 1)], Some(1), "before it was committed");
    early.history.clear();
    early.refused(&[], &[], None, "counts more writes than were committed");
}

/// A state that shows another table once the one that is read and written has many rows.
#[derive(Clone, Debug)]
struct Leaky {
    rows: Table<u8, u64>,
    other: Table<u8, u64>,
}

impl State for Leaky {
    fn new(layout: &Layout) -> Self {
        let table = || Table::new("rows", 0, 1_000, layout);
        Leaky { rows: table(), other: table() }
    }
}

impl AnyState for Leaky {
    fn tables(&self) -> usize {
        1
    }

    fn table(&self, number: usize) -> Option<&dyn AnyTable> {
        let shown = if self.rows.len() < 200 { &self.rows } else { &self.other };
        (number == 0).then_some(shown as &dyn AnyTable)
    }

    fn boxed_clone(&self) -> Box<dyn AnyState> {
        Box::new(self.clone())
    }
}

#[test]
fn tables_that_lose_rows_are_found() {
    // Goal: the check at the end sees real tables. Method: a state that puts later rows where nobody looks for them.
    let frame = |number: u64| TraceFrame {
        time: number * 1_000_000,
        direction: Direction::Outbound,
        bytes: vec![number as u8; 60],
    };
    let trace = Trace((0..256).map(frame).collect());
    let faults = FaultPlan { seed: 1, links: Faults::NONE, crashes: vec![CrashAt { node: 0, packet: 100 }] };
    let survival = Survival::of(|| {
        nf(|frame, state: &Leaky, txn| {
            txn.put(&state.rows, frame.bytes()[0], txn.now())?;
            Ok(Verdict::Forward)
        })
    });
    let survival = survival.trace(&trace).faults(&faults).partitions(1).quick().without_files();
    let failure = survival.run().expect_err("rows are gone");
    assert_eq!(failure.cause, Cause::Forgotten, "{failure}");
    let message = failure.to_string();
    assert!(message.contains("table `rows`, key ") && message.contains("\n  found     nothing"), "{message}");
}
