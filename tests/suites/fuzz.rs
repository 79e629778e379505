//! The fuzz targets as ordinary tests: their kept corpora, their seeds, and what comes of changing these a little.
//!
//! `cargo xtask fuzz` searches on and lets the corpora grow.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use pannier_tests::edge;
use pannier_tests::fuzz::{TARGETS, Target};
use proptest::prelude::*;

/// Most files and bytes of all corpora: they are kept in the repository.
const MOST_FILES: usize = 300;
const MOST_BYTES: usize = 400_000;

/// The files of one corpus, each with its path.
type Corpus = Vec<(String, Vec<u8>)>;

/// The corpora by target; each is read once.
static CORPORA: LazyLock<BTreeMap<&str, Corpus>> =
    LazyLock::new(|| TARGETS.iter().map(|target| (target.name, corpus(target))).collect());

fn corpus(target: &Target) -> Corpus {
    let folder = edge::root().join("tests/fuzz/corpus").join(target.name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("folders of the repository can be listed").path();
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.display().to_string(), bytes)
    };
    let mut files: Vec<_> = entries.map(file).collect();
    files.sort();
    files
}

/// Calls `check` on `bytes`, and says which input it was where it panics.
fn check(target: &Target, what: &str, bytes: &[u8]) {
    let result = catch_unwind(AssertUnwindSafe(|| (target.check)(bytes)));
    assert!(result.is_ok(), "target {} panics at {what}", target.name);
}

#[test]
fn the_kept_corpora_break_nothing() {
    // Goal: what fuzzing once found stays found. Method: every file of each corpus, none of which may be empty.
    let corpora = &*CORPORA;
    for target in &TARGETS {
        let files = &corpora[target.name];
        assert!(!files.is_empty(), "the corpus of {} is empty", target.name);
        files.iter().for_each(|(path, bytes)| check(target, path, bytes));
    }
    let sizes = || corpora.values().flatten().map(|(_, bytes)| bytes.len());
    assert!(sizes().count() <= MOST_FILES && sizes().sum::<usize>() <= MOST_BYTES, "minimise the corpora");
}

#[test]
fn the_seeds_break_nothing() {
    // Goal: good inputs of today's formats pass. Method: the seeds as this build makes them.
    for target in &TARGETS {
        for (number, seed) in (target.seeds)().iter().enumerate() {
            check(target, &format!("seed {number}"), seed);
        }
    }
}

/// One change of an input.
#[derive(Clone, Debug)]
enum Change {
    Put(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Double(prop::sample::Index, usize),
}

impl Change {
    fn any() -> impl Strategy<Value = Change> {
        let at = any::<prop::sample::Index>;
        let byte = prop_oneof![Just(0), Just(u8::MAX), any::<u8>()];
        prop_oneof![
            4 => (at(), byte).prop_map(|(at, byte)| Change::Put(at, byte)),
            1 => (at(), prop::collection::vec(any::<u8>(), 1..9)).prop_map(|(at, new)| Change::Insert(at, new)),
            1 => (at(), 1usize..40).prop_map(|(at, count)| Change::Remove(at, count)),
            1 => (at(), 1usize..80).prop_map(|(at, count)| Change::Double(at, count)),
        ]
    }

    fn apply(&self, bytes: &mut Vec<u8>) {
        let (Change::Put(at, _) | Change::Insert(at, _) | Change::Remove(at, _) | Change::Double(at, _)) =
            self;
        let at = at.index(bytes.len() + 1);
        let end = |count: usize| (at + count).min(bytes.len());
        match self {
            Change::Put(_, byte) => bytes.iter_mut().skip(at).take(1).for_each(|old| *old = *byte),
            Change::Insert(_, new) => drop(bytes.splice(at..at, new.iter().copied())),
            Change::Remove(_, count) => drop(bytes.drain(at..end(*count))),
            Change::Double(_, count) => {
                let part = bytes[at..end(*count)].to_vec();
                drop(bytes.splice(at..at, part));
            }
        }
    }
}

proptest! {
    #[test]
    fn changed_inputs_break_nothing(
        target in 0..TARGETS.len(),
        input: prop::sample::Index,
        changes in prop::collection::vec(Change::any(), 1..8),
    ) {
        // Goal: the targets hold beside the corpora too. Method: a few random changes of a random file of each.
        let target = &TARGETS[target];
        let (_, mut bytes) = input.get(&CORPORA[target.name]).clone();
        changes.iter().for_each(|change| change.apply(&mut bytes));
        (target.check)(&bytes);
    }

    #[test]
    fn noise_breaks_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        // Goal: no assumption about the beginning of an input. Method: random bytes to all targets.
        TARGETS.iter().for_each(|target| (target.check)(&bytes));
    }
}
