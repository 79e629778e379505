//! What a transaction came to, in a form that two runs can be compared in.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

use pannier_runtime::clock::Nanos;
use pannier_runtime::dependency::PartitionSet;
use pannier_runtime::entropy::Entropy;
use pannier_runtime::state::{AnyState, NEVER};
use pannier_runtime::txn::{Workspace, delta};
use pannier_runtime::{Direction, TxnResult, Verdict};

/// A table's number and a key's bytes.
pub(super) type RowKey = (u8, Vec<u8>);

/// What a row was set to: value (`None`: deleted) and expiry.
pub(super) type Cell = (Option<Vec<u8>>, Nanos);

/// All effects of a transaction, without the order in which it wrote. Of an aborted one only the reason counts, of a
/// dropped frame not its bytes: nobody sees more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) said: TxnResult<Verdict>,
    /// The frame that goes on.
    pub(super) frame: Option<Vec<u8>>,
    pub(super) emitted: Vec<(Direction, Vec<u8>)>,
    pub(super) writes: BTreeMap<RowKey, Cell>,
    pub(super) read: PartitionSet,
    /// The random numbers that come next.
    pub(super) entropy: Option<Entropy>,
}

impl Outcome {
    /// The outcome of a transaction that left `work` and `frame` and said `said`.
    pub(super) fn new(
        said: TxnResult<Verdict>,
        frame: &[u8],
        work: &Workspace,
        state: &dyn AnyState,
    ) -> Self {
        let said = work.conclude(said);
        if said.is_err() {
            let (frame, emitted, writes, read) = Default::default();
            return Outcome { said, frame, emitted, writes, read, entropy: None };
        }
        let mut bytes = Vec::new();
        work.writes.encode(&mut bytes);
        Outcome {
            said,
            frame: (said == Ok(Verdict::Forward)).then(|| frame.to_vec()),
            emitted: work.emitted.iter().map(|made| (made.meta.direction, made.frame().to_vec())).collect(),
            writes: rows_of(state, &bytes).collect(),
            read: work.writes.read(),
            entropy: Some(work.entropy),
        }
    }

    /// A number that equal outcomes share, in every run of the program.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", self.said).hash(&mut hasher);
        (&self.frame, &self.emitted, &self.writes, self.read.0).hash(&mut hasher);
        self.entropy.map(|mut entropy| entropy.next_u64()).hash(&mut hasher);
        hasher.finish()
    }

    /// Everything that may hold a number, as bytes: as long as that of any outcome of the same form.
    pub(super) fn flat(&self) -> Vec<u8> {
        let mut flat = Vec::new();
        for ((_, key), (value, expires)) in &self.writes {
            flat.extend_from_slice(key);
            flat.extend_from_slice(value.as_deref().unwrap_or_default());
            flat.extend_from_slice(&expires.to_le_bytes());
        }
        let frames = self.frame.iter().chain(self.emitted.iter().map(|(_, frame)| frame));
        frames.for_each(|frame| flat.extend_from_slice(frame));
        flat
    }
}

/// The rows that a delta for `state` changes.
pub(super) fn rows_of<'a>(
    state: &'a dyn AnyState,
    bytes: &'a [u8],
) -> impl Iterator<Item = (RowKey, Cell)> + 'a {
    let changes = delta::changes(state, bytes).map_while(Result::ok); // a head's own delta is sound
    changes.map(|change| {
        let value = change.value.map(<[u8]>::to_vec);
        ((change.table, change.key.to_vec()), (value, change.expires))
    })
}

/// What two runs of one transaction disagree in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where: a row as table and key, or what it is about.
    pub at: String,
    /// What was expected there.
    pub expected: String,
    /// What was found.
    pub found: String,
}

impl Difference {
    /// The first difference between two outcomes; rows come first, for they are what survives.
    pub(super) fn between(expected: &Outcome, found: &Outcome, state: &dyn AnyState) -> Option<Self> {
        let (one, other) = (&expected.writes, &found.writes);
        let row = one.keys().chain(other.keys()).find(|row| one.get(*row) != other.get(*row));
        let both = |at: &str, show: &dyn Fn(&Outcome) -> String| {
            Some(Difference { at: at.to_owned(), expected: show(expected), found: show(found) })
        };
        if expected.said.is_err() || found.said.is_err() {
            return if expected.said == found.said { None } else { both("verdict", &verdict) };
        }
        if let Some(row) = row {
            return both(&name_of(row, state), &|outcome| cell(outcome.writes.get(row)));
        }
        if expected.said != found.said {
            return both("verdict", &verdict);
        }
        if expected.frame != found.frame {
            let frame = |outcome: &Outcome| outcome.frame.clone().unwrap_or_default();
            return Some(frames(&frame(expected), &frame(found)));
        }
        if expected.emitted != found.emitted {
            return both("frames that it made", &emitted);
        }
        if expected.read != found.read {
            return both("partitions read", &|o| format!("{:?}", o.read.iter().collect::<Vec<_>>()));
        }
        (expected != found).then(|| Difference {
            at: "random numbers drawn".to_owned(),
            expected: "as many as the first time".to_owned(),
            found: "more or fewer".to_owned(),
        })
    }
}

fn verdict(outcome: &Outcome) -> String {
    match outcome.said {
        Ok(Verdict::Forward) => "forward".to_owned(),
        Ok(Verdict::Drop(reason)) => format!("drop: {reason}"),
        Err(abort) => format!("abort: {}", abort.reason),
    }
}

fn emitted(outcome: &Outcome) -> String {
    let frames = outcome.emitted.iter().map(|(direction, frame)| {
        format!("{direction:?} {}", hex(&frame[..frame.len().min(48)])).to_lowercase()
    });
    let frames: Vec<String> = frames.collect();
    if frames.is_empty() { "none".to_owned() } else { frames.join(", ") }
}

/// Where two frames differ, with some bytes around.
pub(super) fn frames(expected: &[u8], found: &[u8]) -> Difference {
    let at = expected.iter().zip(found).position(|(a, b)| a != b);
    let at = at.unwrap_or(expected.len().min(found.len()));
    let show = |frame: &[u8]| {
        let end = frame.len().min(at + 16);
        format!("{} ({} bytes)", hex(&frame[at..end]), frame.len())
    };
    Difference { at: format!("frame, from byte {at}"), expected: show(expected), found: show(found) }
}

/// A row by the name of its table and its key.
pub(super) fn name_of((table, key): &RowKey, state: &dyn AnyState) -> String {
    let name = state.table(usize::from(*table)).map_or("?", |table| table.name());
    format!("table `{name}`, key {}", bytes(key))
}

/// What a row holds, if it was written.
pub(super) fn cell(cell: Option<&Cell>) -> String {
    match cell {
        None => "nothing".to_owned(),
        Some((None, _)) => "deleted".to_owned(),
        Some((Some(value), NEVER)) => bytes(value),
        Some((Some(value), expires)) => format!("{}, expires at {}", bytes(value), seconds(*expires)),
    }
}

/// A time in seconds, to the nanosecond.
pub(super) fn seconds(time: Nanos) -> String {
    format!("{}.{:09} s", time / 1_000_000_000, time % 1_000_000_000)
}

/// Bytes as hexadecimal digits, and as the little-endian number that they may be.
fn bytes(bytes: &[u8]) -> String {
    let mut word = [0; 8];
    match bytes.len() {
        len @ (1 | 2 | 4 | 8) => {
            word[..len].copy_from_slice(bytes);
            format!("{} ({})", hex(bytes), u64::from_le_bytes(word))
        }
        _ => hex(bytes),
    }
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // into memory
        text
    })
}
