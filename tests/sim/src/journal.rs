//! What every transaction read and wrote, for the checkers only: the network function never looks at it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use pannier_runtime::clock::Nanos;

use crate::provenance::Cell;

/// Hashes numbers that are random already by taking them as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// A map whose keys are random numbers.
pub type ById<V> = HashMap<u64, V, BuildHasherDefault<AsIs>>;

/// A set of random numbers, in an order that is the same everywhere.
pub type Ids = HashSet<u64, BuildHasherDefault<AsIs>>;

/// What one transaction did.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The stage.
    pub stage: usize,
    /// Its place among all commits.
    pub order: u64,
    /// The packet that it was for; a timer's has none.
    pub packet: Option<u64>,
    /// Transactions of the same packet at stages before.
    pub path: Vec<u64>,
    /// Keys and what it saw there.
    pub read: Vec<(u64, Cell)>,
    /// Keys and what it wrote there.
    pub written: Vec<(u64, Cell)>,
    /// A row that expires: its key, its value and when.
    pub fleeting: Option<(u64, u64, Nanos)>,
    /// What it saw of a sum, if it looked.
    pub sum: Option<u64>,
    /// Rows that had expired, by key, and that it removed.
    pub removed: Vec<u64>,
}

/// The journal's content.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    /// By transaction.
    pub transactions: ById<Transaction>,
    /// By the hash of a cell: the transaction that wrote it, and the hash before.
    pub writers: ById<(u64, u64)>,
    /// Lanes that flows are spread over; each draws numbers of its own.
    pub lanes: u64,
    /// The incarnation that has its turn, where anybody tells.
    turn_of: u64,
    /// By incarnation and lane: the number that its last attempt drew, where that came to nothing.
    drawn_in_vain: HashMap<(u64, u64), u64>,
    /// The first number that an aborted attempt kept for itself.
    pub(crate) kept_random: Option<String>,
}

impl Entries {
    /// A node has a turn.
    pub fn turn_of(&mut self, incarnation: u64) {
        self.turn_of = incarnation;
    }

    /// An attempt begins in a lane, and has drawn `number`. If the one before it came to nothing, that drew the same.
    pub fn begin(&mut self, lane: u64, number: u64) {
        let incarnation = self.turn_of;
        if incarnation == 0 {
            return; // nobody tells whose turn it is
        }
        if let Some(vain) = self.drawn_in_vain.insert((incarnation, lane), number)
            && vain != number
        {
            let what = format!("incarnation {incarnation} drew {vain:x}, aborted, and then drew {number:x}");
            self.kept_random.get_or_insert(what);
        }
    }

    /// The attempt's transaction stays.
    pub fn commit(&mut self, lane: u64, id: u64, mut done: Transaction) {
        self.drawn_in_vain.remove(&(self.turn_of, lane));
        for (key, new) in &done.written {
            let before = done.read.iter().find(|(read, _)| read == key).map_or(0, |(_, old)| old.hash);
            self.writers.insert(new.hash, (id, before));
        }
        done.order = self.transactions.len() as u64;
        self.transactions.entry(id).or_insert(done);
    }
}

/// The journal: the checkers and the network functions of all nodes share it.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Entries>>);

impl Journal {
    /// The content.
    pub fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("nobody panics who holds the journal")
    }
}
