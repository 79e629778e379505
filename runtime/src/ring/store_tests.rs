//! The ordering rule, names, and the merging of records, each against its definition.

use proptest::prelude::*;

use super::*;
use crate::dependency::Version;
use crate::piggyback::{Record, UnitBuilder, UnitView};

const PARTITIONS: usize = 4;

/// Versions near the places where 32 bits end.
fn base() -> impl Strategy<Value = Version> {
    prop::sample::select(vec![3, 1 << 31, 1 << 32, (1 << 32) + (1 << 31), 1 << 33])
}

/// For each partition: untouched, read or written, and how far from the base the version seen is.
type Touch = (Option<bool>, u64);

fn touches() -> impl Strategy<Value = Vec<Touch>> {
    prop::collection::vec((prop::option::of(any::<bool>()), 0u64..5), PARTITIONS)
}

fn record(base: Version, touches: &[Touch]) -> Record {
    let mut record = Record::default();
    record.reset(0);
    for (partition, (touch, off)) in touches.iter().enumerate() {
        if let Some(written) = touch {
            record.note(partition, base - 2 + off, *written);
        }
    }
    record
}

fn store(base: Version, offs: &[u64]) -> Store {
    let store = Store::new(Box::new(()), false);
    offs.iter().enumerate().for_each(|(partition, off)| store.versions.set(partition, base - 2 + off));
    store
}

fn status_of(store: &Store, encode: impl Fn(&mut Vec<u8>)) -> Status {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    store.status(&RecordView::take(&mut &*bytes).expect("a record's own bytes"))
}

/// Applies a record where it is ready, and says whether it is here then.
fn pass(store: &mut Store, record: &Record) -> bool {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    let view = RecordView::take(&mut &*bytes).expect("a record's own bytes");
    match store.status(&view) {
        Status::Ready => {
            let (mut sites, whole) = (Vec::new(), Held::whole());
            let found = delta::find(&*store.state, view.delta, view.written(), &whole, &mut sites);
            found.expect("a head's own delta");
            store.take(view.delta, sites, view.written(), &whole);
        }
        Status::Duplicate => {}
        Status::Wait => return false,
    }
    true
}

proptest! {
    #[test]
    fn status_is_the_rule(base in base(), touches in touches(), here in prop::collection::vec(0u64..6, PARTITIONS)) {
        // Goal: the rule holds across every wrap of short versions. Method: transcription with whole versions.
        let store = store(base, &here);
        let seen: Vec<(bool, u64, u64)> =
            (0..PARTITIONS).filter_map(|p| Some((touches[p].0?, touches[p].1, here[p]))).collect();
        let reads = seen.iter().filter(|s| !s.0).all(|s| s.2 >= s.1);
        let past = seen.iter().any(|s| s.0 && s.2 > s.1) || seen.iter().all(|s| !s.0);
        let exact = seen.iter().filter(|s| s.0).all(|s| s.2 == s.1);
        let expected = match (reads, past, exact) {
            (true, true, _) => Status::Duplicate,
            (true, false, true) => Status::Ready,
            _ => Status::Wait,
        };
        prop_assert_eq!(status_of(&store, |out| record(base, &touches).encode(out)), expected);
    }

    #[test]
    fn a_name_is_covered_exactly_when_its_record_is_applied(
        base in base(), touches in touches(), here in prop::collection::vec(0u64..6, PARTITIONS), later: bool,
    ) {
        // Goal: who waits for the name waits for the record. Method: stores that applied the record whole, or not yet.
        let record = record(base, &touches);
        let here: Vec<u64> = (0..PARTITIONS).map(|p| match touches[p] {
            (Some(true), off) if later => off + 1 + here[p],
            (Some(true), off) => off.min(here[p]),
            _ => here[p],
        }).collect();
        let store = store(base, &here);
        let reads = (0..PARTITIONS).all(|p| touches[p].0 != Some(false) || here[p] >= touches[p].1);
        let applied = reads && (later || !record.writes());
        let mut name = Vec::new();
        record.encode_name(&mut name);
        let view = RecordView::take(&mut &*name).expect("a record's own bytes");
        prop_assert!(!view.writes() && view.delta.is_empty());
        prop_assert_eq!(store.status(&view) == Status::Duplicate, applied);
        prop_assert_eq!(view.covered_by(&store.versions), applied);
        prop_assert_eq!(status_of(&store, |out| record.encode(out)) == Status::Duplicate, applied);
    }

    #[test]
    fn a_merged_record_waits_exactly_while_one_of_its_parts_does(
        base in base(), first in touches(), second in touches(), one_reads: Option<bool>,
        here in prop::collection::vec(0u64..6, PARTITIONS), later: bool,
    ) {
        // Goal: merging changes no order. Method: the writer, then the reader, one by one and as one record.
        let reader = |mut touches: Vec<Touch>| {
            touches.iter_mut().for_each(|t| t.0 = t.0.map(|_| false));
            touches
        };
        let (first, second) = match one_reads {
            Some(true) => (reader(first), second),
            Some(false) => (first, reader(second)),
            None => (reader(first), reader(second)),
        };
        let (a, b) = (record(base, &first), record(base, &second));
        let (writer, other) = if b.writes() { (&b, &a) } else { (&a, &b) };
        let writes = if b.writes() { &second } else { &first };
        let offs: Vec<u64> = (0..PARTITIONS).map(|p| match writes[p] {
            (Some(true), off) if later => off + 1 + here[p],
            (Some(true), off) => off.min(here[p]),
            _ => here[p],
        }).collect();
        let near = store(base, &offs).versions;
        let mut bytes = Vec::new();
        b.encode(&mut bytes);
        let view = RecordView::take(&mut &*bytes).expect("a record's own bytes");
        let mut merged = a.clone();
        let reads_later = (0..PARTITIONS).any(|p| {
            let (w, r) = (writes[p], if b.writes() { first[p] } else { second[p] });
            w.0 == Some(true) && r.0 == Some(false) && r.1 > w.1 + 1
        });
        prop_assert_eq!(merged.fits(&view, &near), !reads_later);
        if !reads_later {
            merged.merge(&view, &near);
            let (mut apart, mut together) = (store(base, &offs), store(base, &offs));
            let passed = pass(&mut apart, writer) && pass(&mut apart, other);
            prop_assert_eq!(pass(&mut together, &merged), passed);
            if passed {
                prop_assert_eq!(apart.versions(), together.versions());
            }
        }
    }

    #[test]
    fn absorbing_what_does_not_fit_changes_nothing(base in base(), first in touches(), second in touches()) {
        // Goal: a refused unit leaves the open one as it was. Method: compare the bytes before and after.
        let unit_of = |touches: &[Touch]| {
            let (mut unit, mut bytes, mut one) = (UnitBuilder::default(), Vec::new(), Vec::new());
            record(base, touches).encode(&mut one);
            let view = RecordView::take(&mut &*one).expect("a record's own bytes");
            unit.record(0).merge(&view, &Vector([base; 64]));
            unit.encode(&mut bytes);
            (unit, bytes)
        };
        let ((mut open, before), (_, other)) = (unit_of(&first), unit_of(&second));
        let near = Vector([base; 64]);
        let absorbed = open.absorb(&UnitView::parse(&other).expect("a unit"), |_| Some(&near));
        let mut after = Vec::new();
        open.encode(&mut after);
        if record(base, &first).writes() && record(base, &second).writes() {
            prop_assert!(!absorbed, "two writers are two units");
        }
        if !absorbed {
            prop_assert_eq!(before, after);
        }
    }

    #[test]
    fn what_is_committed_is_forgotten_and_nothing_else(
        base in base(), touches in touches(), commit in prop::collection::vec(0u64..6, PARTITIONS),
    ) {
        // Goal: no byte for what is everywhere. Method: the definition, partition by partition.
        let commit = store(base, &commit).versions();
        let version = |p: usize| base - 2 + touches[p].1;
        let mut record = record(base, &touches);
        if record.writes() {
            record.delta_mut().extend_from_slice(b"delta");
        }
        let wrote: Vec<usize> = record.written().iter().collect();
        record.forget_committed(&commit);
        let everywhere = wrote.iter().all(|&p| commit[p] > version(p));
        prop_assert_eq!(record.writes(), !everywhere);
        prop_assert_eq!(record.delta().is_empty(), everywhere);
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let view = RecordView::take(&mut &*bytes).expect("a record's own bytes");
        let left: Vec<usize> = view.seen().map(|s| s.partition).collect();
        let expected: Vec<usize> = (0..PARTITIONS).filter(|&p| match touches[p].0 {
            Some(true) => !everywhere,
            Some(false) => commit[p] < version(p),
            None => false,
        }).collect();
        prop_assert_eq!(left, expected);
    }

    #[test]
    fn a_record_that_came_is_as_one_that_was_made_here(
        base in base(), first in touches(), second in touches(), offs in prop::collection::vec(0u64..6, PARTITIONS),
        commit in prop::collection::vec(0u64..6, PARTITIONS), forgets_first: bool,
    ) {
        // Goal: that a record stays the bytes that it came as changes no meaning. Method: the same record in both ways; what
        // joins it, what it forgets, and what comes out of both.
        let with_delta = |touches: &[Touch], delta: &[u8]| {
            let mut record = record(base, touches);
            if record.writes() {
                record.delta_mut().extend_from_slice(delta);
            }
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            (record, bytes)
        };
        let ((mut made, bytes), (_, other)) = (with_delta(&first, b"first"), with_delta(&second, b"second"));
        let (near, commit) = (store(base, &offs).versions(), store(base, &commit).versions());
        let mut came = Record::default();
        came.reset(0);
        came.merge(&RecordView::take(&mut &*bytes).expect("a record's own bytes"), &near);
        if forgets_first {
            [&mut made, &mut came].into_iter().for_each(|record| record.forget_committed(&commit));
        }
        let view = RecordView::take(&mut &*other).expect("a record's own bytes");
        let fits = made.fits(&view, &near);
        prop_assert_eq!(came.fits(&view, &near), fits);
        let outcome = |record: &mut Record| {
            if fits && !record.is_empty() {
                record.merge(&view, &near);
            }
            let shown = |record: &Record| {
                let (mut whole, mut name) = (Vec::new(), Vec::new());
                record.encode(&mut whole);
                record.encode_name(&mut name);
                (whole, name, record.delta().to_vec(), record.written(), record.is_empty())
            };
            let before = shown(record);
            record.forget_committed(&commit);
            (before, shown(record))
        };
        prop_assert_eq!(outcome(&mut came), outcome(&mut made));
    }
}
