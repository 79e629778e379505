//! A network function whose every value tells which transactions it came from.

use pannier_runtime::clock::SECOND;
use pannier_runtime::entropy::Entropy;
use pannier_runtime::limits::MAX_LANES;
use pannier_runtime::state::{Layout, State, hash_bytes};
use pannier_runtime::{Abort, Direction, Frame, Nf, Txn, TxnResult, Verdict, state};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::journal::{Journal, Transaction};

/// A value: its `hash` stands for the whole list of transactions that wrote the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Cell {
    /// Names the list of writers; 0 is the empty list.
    pub hash: u64,
    /// How many transactions wrote the key.
    pub count: u64,
}

impl Cell {
    /// The cell after `id` has written it.
    pub fn written_by(self, id: u64) -> Cell {
        Cell { hash: hash_bytes(self.hash, &id.to_le_bytes()), count: self.count + 1 }
    }
}

state! {
    /// The state of [`Provenance`].
    pub struct Cells {
        /// The cells.
        cells: u64 => Cell [1_000],
        /// Rows that expire, so that sweeps have work.
        fleeting: u64 => u64 [4],
        /// Sums of the names of the transactions that have merged theirs in.
        sums: u64 => u64 [4 * MAX_LANES] per_lane,
    }
}

/// Keys that packets touch, per stage.
pub const KEYS: u64 = 6;
/// The key that counts what sweeps did; the checkers look at it as at the others.
pub const SWEEPS: u64 = KEYS;
/// How long a fleeting row lives, in nanoseconds.
pub const FLEETING: u64 = SECOND;

/// What becomes of a packet at a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Forward,
    /// It is dropped; its writes stay.
    Drop,
    /// Its transaction aborts.
    Abort,
    /// It goes on, and the stage makes a frame of its own.
    Answer,
}

/// What the transaction of a packet does at a stage: a function of the two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Keys to read, and whether to write them.
    pub touches: Vec<(u64, bool)>,
    /// The key of a row to write that expires.
    pub fleeting: Option<u64>,
    /// The key of a sum to merge into, and whether to look at it then.
    pub sum: Option<(u64, bool)>,
    /// The end.
    pub fate: Fate,
}

impl Script {
    /// The script of `packet` at `stage`.
    pub fn of(packet: u64, stage: usize) -> Self {
        let mut pick = Entropy::stream(packet, stage as u64 + 1);
        let mut touches: Vec<(u64, bool)> = Vec::with_capacity(3);
        for _ in 0..1 + pick.below(3) {
            let (key, writes) = (pick.below(KEYS), pick.below(2) == 0);
            if touches.iter().all(|(other, _)| *other != key) {
                touches.push((key, writes));
            }
        }
        let fleeting = (pick.below(8) == 0).then(|| pick.below(16));
        touches[0].1 |= fleeting.is_some(); // the checkers know of what has written a cell
        let fate = match pick.below(20) {
            0 => Fate::Abort,
            1 => Fate::Answer,
            2 => Fate::Drop,
            _ => Fate::Forward,
        };
        // The checkers know of what has written a cell.
        let sum = (pick.below(2) == 0 && touches.iter().any(|(_, writes)| *writes))
            .then(|| (pick.below(2), pick.below(2) == 0));
        Script { touches, fleeting, sum, fate }
    }
}

/// Runs the [`Script`] of each packet and notes in the journal what it did.
#[derive(Debug)]
pub struct Provenance {
    stage: usize,
    journal: Journal,
    /// Transactions are named by random numbers. Without, those that do the same have the same name.
    draws: bool,
}

/// Flows that packets belong to: by their numbers.
pub(crate) const FLOWS: u64 = 4;

/// The lane that removes idle rows.
const SWEEPER: u64 = 0;

/// Bytes of a frame in front of the transactions of its way: the packet's number.
const NUMBER: usize = 8;

impl Provenance {
    /// The network function of `stage`.
    pub fn new(stage: usize, journal: Journal) -> Self {
        Provenance { stage, journal, draws: true }
    }

    /// One that takes no random numbers, so that worlds in which the same was done are the same.
    pub fn without_draws(stage: usize, journal: Journal) -> Self {
        Provenance { stage, journal, draws: false }
    }

    /// Bytes of delta that the largest transaction writes.
    pub fn largest(layout: &Layout) -> usize {
        Provenance::new(0, Journal::default()).largest_delta(&Cells::new(layout))
    }

    /// The lane that a packet takes.
    fn lane(&self, packet: u64) -> u64 {
        packet % FLOWS % self.journal.entries().lanes.max(1)
    }

    fn begin(&self, lane: u64, packet: u64, path: &[u64], state: &Cells, txn: &mut Txn<'_>) -> u64 {
        let number = match self.draws {
            true => txn.random(),
            false => {
                let cells = (0..=SWEEPS).map(|key| state.cells.inspect(&key).unwrap_or_default().hash);
                let way = path.iter().copied().chain(cells);
                way.fold(hash_bytes(packet, &[self.stage as u8]), |id, hash| {
                    hash_bytes(id, &hash.to_le_bytes())
                })
            }
        };
        let id = number & !(1 << 63);
        if self.draws {
            self.journal.entries().begin(lane, id);
        }
        id
    }
}

/// The number of a frame's packet.
pub fn number(frame: &[u8]) -> u64 {
    frame.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The transactions of a frame's way: behind the packet's number, in front of its padding.
pub fn path(frame: &[u8]) -> Vec<u64> {
    let numbers = frame.get(NUMBER..).unwrap_or_default().as_chunks().0.iter();
    numbers.map(|bytes| u64::from_le_bytes(*bytes)).filter(|&n| n != u64::MAX).collect()
}

impl Nf for Provenance {
    type State = Cells;

    fn process(&self, frame: &mut Frame<'_>, state: &Cells, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        let (packet, path) = (number(frame.bytes()), path(frame.bytes()));
        let script = Script::of(packet, self.stage);
        let lane = self.lane(packet);
        let id = self.begin(lane, packet, &path, state, txn);
        append(frame, id);
        let (mut read, mut written) = (Vec::new(), Vec::new());
        for &(key, writes) in &script.touches {
            let old = txn.peek(&state.cells, &key)?.map_or(Cell::default(), |cell| *cell);
            read.push((key, old));
            if writes {
                txn.put(&state.cells, key, old.written_by(id))?;
                written.push((key, old.written_by(id)));
            }
        }
        let mut fleeting = None;
        if let Some(key) = script.fleeting {
            txn.put_for(&state.fleeting, key, id, FLEETING)?;
            fleeting = Some((key, id, txn.now().saturating_add(FLEETING)));
        }
        let mut sum = None;
        if let Some((key, looks)) = script.sum {
            txn.merge(&state.sums, key, id)?;
            if looks {
                sum = txn.merged(&state.sums, &key)?;
            }
        }
        match script.fate {
            Fate::Abort => return Err(Abort { reason: "on_purpose" }),
            Fate::Answer if path.len() < 4 => {
                let mut answer = frame.bytes().to_vec();
                answer.truncate(answer.len().min(200));
                let direction = if packet % 2 == 0 { Direction::Outbound } else { Direction::Inbound };
                txn.emit(&answer, direction);
            }
            _ => {}
        }
        let packet = Some(packet);
        let removed = Vec::new();
        let done =
            Transaction { stage: self.stage, order: 0, packet, path, read, written, fleeting, sum, removed };
        self.journal.entries().commit(lane, id, done);
        Ok(if script.fate == Fate::Drop { Verdict::Drop("on_purpose") } else { Verdict::Forward })
    }

    fn sweep(&self, state: &Cells, txn: &mut Txn<'_>, partition: usize) -> TxnResult<()> {
        let rows = txn.idle_rows(&state.fleeting, partition)?;
        if rows.is_empty() {
            return Ok(());
        }
        let id = self.begin(SWEEPER, rows[0].1, &[], state, txn);
        let mut removed = Vec::new();
        for (key, _) in rows {
            txn.delete(&state.fleeting, &key)?;
            removed.push(key);
        }
        let old = txn.peek(&state.cells, &SWEEPS)?.map_or(Cell::default(), |cell| *cell);
        txn.put(&state.cells, SWEEPS, old.written_by(id))?;
        let (read, written) = (vec![(SWEEPS, old)], vec![(SWEEPS, old.written_by(id))]);
        let (stage, path, packet, fleeting, sum) = (self.stage, Vec::new(), None, None, None);
        let done = Transaction { stage, order: 0, packet, path, read, written, fleeting, sum, removed };
        self.journal.entries().commit(SWEEPER, id, done);
        Ok(())
    }
}

/// Adds a transaction to a frame: over padding where there is some, so that full frames stay full.
fn append(frame: &mut Frame<'_>, id: u64) {
    let at = NUMBER + 8 * path(frame.bytes()).len();
    if frame.bytes().len() < at + 8 {
        frame.resize(at + 8);
    }
    frame.bytes_mut()[at..at + 8].copy_from_slice(&id.to_le_bytes());
}
