//! A network function whose every value tells which transactions it came from.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use pannier_runtime::state::hash_bytes;
use pannier_runtime::{Abort, Direction, Frame, Nf, Txn, TxnResult, Verdict, state};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A value: its `hash` stands for the whole list of transactions that wrote the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Cell {
    /// Names the list of writers; 0 is the empty list.
    pub hash: u64,
    /// How many transactions wrote the key.
    pub count: u64,
}

state! {
    /// The state of [`Provenance`].
    pub struct Cells {
        /// The cells.
        cells: u64 => Cell [1_000],
        /// Cells that expire, so that sweeps have work.
        fleeting: u64 => u64 [4],
    }
}

/// What one transaction did.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The stage.
    pub stage: usize,
    /// Transactions of the same packet at stages before.
    pub path: Vec<u64>,
    /// Keys and what it saw there.
    pub read: Vec<(u64, Cell)>,
    /// Keys and what it wrote there.
    pub written: Vec<(u64, Cell)>,
}

/// What every transaction did, for the checkers only: the network function never looks at it.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Entries>>);

/// The journal's content.
#[derive(Debug, Default)]
pub struct Entries {
    /// By transaction.
    pub transactions: HashMap<u64, Transaction>,
    /// By the hash of a cell: the transaction that wrote it, and the hash before.
    pub writers: HashMap<u64, (u64, u64)>,
}

impl Journal {
    /// The content.
    pub fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("no checker panics while it holds the journal")
    }
}

/// Reads one to three keys, writes some of them, sometimes aborts, drops, or makes a frame of its own.
#[derive(Debug)]
pub struct Provenance {
    stage: usize,
    journal: Journal,
}

/// Keys per stage.
pub(super) const KEYS: u64 = 6;
const FLAG: usize = 8;

impl Provenance {
    /// The network function of `stage`.
    pub fn new(stage: usize, journal: Journal) -> Self {
        Provenance { stage, journal }
    }
}

/// The transactions of a frame's way: behind the packet's number, in front of its padding.
pub fn path(frame: &[u8]) -> Vec<u64> {
    let numbers = frame.get(FLAG..).unwrap_or_default().chunks_exact(8);
    numbers
        .map(|n| u64::from_le_bytes(n.try_into().expect("eight bytes")))
        .filter(|&n| n != u64::MAX)
        .collect()
}

impl Nf for Provenance {
    type State = Cells;

    fn process(&self, frame: &mut Frame<'_>, state: &Cells, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        let id = txn.random() & !(1 << 63);
        let mut done = Transaction {
            stage: self.stage,
            path: path(frame.bytes()),
            read: Vec::new(),
            written: Vec::new(),
        };
        for _ in 0..1 + txn.random_below(3) {
            let key = txn.random_below(KEYS);
            if done.read.iter().any(|(k, _)| *k == key) {
                continue;
            }
            let old = txn.peek(&state.cells, &key)?.map_or(Cell::default(), |cell| *cell);
            done.read.push((key, old));
            if txn.random_below(10) < 5 {
                let hash = hash_bytes(old.hash, &id.to_le_bytes());
                let new = Cell { hash, count: old.count + 1 };
                txn.put(&state.cells, key, new)?;
                done.written.push((key, new));
            }
        }
        if txn.random_below(8) == 0 {
            txn.put_for(&state.fleeting, id % 16, id, 1_000_000_000)?;
        }
        append(frame, id);
        // An abort takes its random numbers back: drawn from them, it would happen again and again.
        let fate = hash_bytes(self.stage as u64, &frame.bytes()[..FLAG]) % 20;
        if fate == 0 {
            return Err(Abort { reason: "on_purpose" });
        }
        if fate == 1 && done.path.len() < 4 {
            let mut answer = frame.bytes().to_vec();
            answer.truncate(answer.len().min(200));
            let direction = if id.is_multiple_of(2) { Direction::Outbound } else { Direction::Inbound };
            txn.emit(&answer, direction);
        }
        let mut entries = self.journal.entries();
        for ((_, old), (_, new)) in
            done.written.iter().map(|w| (done.read.iter().find(|r| r.0 == w.0).expect("read before"), w))
        {
            entries.writers.insert(new.hash, (id, old.hash));
        }
        entries.transactions.insert(id, done);
        Ok(if fate == 2 { Verdict::Drop("on_purpose") } else { Verdict::Forward })
    }
}

/// Adds a transaction to a frame: over padding where there is some, so that full frames stay full.
fn append(frame: &mut Frame<'_>, id: u64) {
    let at = FLAG + 8 * path(frame.bytes()).len();
    if frame.bytes().len() < at + 8 {
        frame.resize(at + 8);
    }
    frame.bytes_mut()[at..at + 8].copy_from_slice(&id.to_le_bytes());
}
