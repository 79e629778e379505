//! What a transaction has written and not yet committed, and which partitions it touched.
//!
//! The transactions of one unit share a write set: each sees what its predecessors wrote, and may be rolled back alone.
//! A key has one entry, which holds its last value; a later transaction that overwrites it notes how to undo that.

use crate::clock::Nanos;
use crate::dependency::PartitionSet;
use crate::limits::MAX_TABLES;
use crate::state::{Change, Place, Site};

use super::delta;

/// Chains of entries, by eight bits of the hash.
const CHAINS: usize = 256;

/// Ends a chain.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    expires: Nanos,
    /// Where the key stands; the value stands behind it.
    at: u32,
    /// The earlier entry of the same chain.
    next: u32,
    key: u16,
    value: u16,
    table: u8,
    partition: u8,
    deleted: bool,
    /// The committed table has the key.
    stored: bool,
}

impl Entry {
    /// Rows that the entry adds to its table: −1, 0 or 1.
    fn growth(&self) -> i32 {
        i32::from(!self.deleted) - i32::from(self.stored)
    }
}

/// How an entry was before the running transaction overwrote it. Its value stands at the end of the undo bytes.
#[derive(Clone, Copy, Debug)]
struct Undo {
    entry: u32,
    expires: Nanos,
    deleted: bool,
}

/// Where a key's entry is. It stays there until the transaction that wrote it is undone, or the unit closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position(u32);

/// What a write set knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// Written, with this value and expiry.
    Written(&'a [u8], Nanos),
    /// Deleted.
    Deleted,
}

/// Writes that are not committed. Emptied and used again, so that it stops allocating once it has grown.
#[derive(Clone, Debug)]
pub struct WriteSet {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    chains: Box<[u32; CHAINS]>,
    undo: Vec<Undo>,
    undo_bytes: Vec<u8>,
    /// Rows that the entries add to each table.
    growth: [i32; MAX_TABLES],
    read: PartitionSet,
    written: PartitionSet,
}

/// Where a transaction began, to go back to.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    entries: usize,
    bytes: usize,
    read: PartitionSet,
    written: PartitionSet,
}

impl Default for WriteSet {
    fn default() -> Self {
        WriteSet {
            entries: Vec::new(),
            bytes: Vec::new(),
            chains: Box::new([NONE; CHAINS]),
            undo: Vec::new(),
            undo_bytes: Vec::new(),
            growth: [0; MAX_TABLES],
            read: PartitionSet::default(),
            written: PartitionSet::default(),
        }
    }
}

/// The chain of a hash; the tables use its lowest, middle and highest bits.
#[inline]
fn chain(hash: u64) -> usize {
    (hash >> 48) as usize % CHAINS
}

impl WriteSet {
    /// Forgets everything.
    pub fn clear(&mut self) {
        for entry in &self.entries {
            self.chains[chain(entry.hash)] = NONE;
            self.growth[usize::from(entry.table)] = 0;
        }
        self.entries.clear();
        self.bytes.clear();
        self.keep();
        self.read = PartitionSet::default();
        self.written = PartitionSet::default();
    }

    /// Partitions read.
    pub fn read(&self) -> PartitionSet {
        self.read
    }

    /// Partitions written.
    pub fn written(&self) -> PartitionSet {
        self.written
    }

    /// Bytes that the delta will take, at most.
    #[inline]
    pub fn delta_bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * delta::ENTRY_OVERHEAD
    }

    #[inline]
    pub(crate) fn note_read(&mut self, partition: usize) {
        self.read.insert(partition);
    }

    /// Begins a transaction: this moment, to roll back to.
    pub fn begin(&self) -> Savepoint {
        let (entries, bytes) = (self.entries.len(), self.bytes.len());
        Savepoint { entries, bytes, read: self.read, written: self.written }
    }

    /// Ends a transaction that stays.
    pub fn keep(&mut self) {
        self.undo.clear();
        self.undo_bytes.clear();
    }

    /// Undoes the transaction that began at `savepoint`.
    pub fn rollback(&mut self, savepoint: &Savepoint) {
        while let Some(Undo { entry, expires, deleted }) = self.undo.pop() {
            let entry = &mut self.entries[entry as usize];
            self.growth[usize::from(entry.table)] += i32::from(entry.deleted) - i32::from(deleted);
            (entry.expires, entry.deleted) = (expires, deleted);
            let value = entry.at as usize + usize::from(entry.key);
            let saved = self.undo_bytes.len() - usize::from(entry.value);
            self.bytes[value..value + usize::from(entry.value)].copy_from_slice(&self.undo_bytes[saved..]);
            self.undo_bytes.truncate(saved);
        }
        for entry in self.entries.drain(savepoint.entries..).rev() {
            self.chains[chain(entry.hash)] = entry.next;
            self.growth[usize::from(entry.table)] -= entry.growth();
        }
        self.bytes.truncate(savepoint.bytes);
        self.read = savepoint.read;
        self.written = savepoint.written;
    }

    #[inline]
    fn key_of(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.at as usize..entry.at as usize + usize::from(entry.key)]
    }

    /// The entry of a key.
    #[inline(always)]
    pub(crate) fn position(&self, table: u8, hash: u64, key: &[u8]) -> Option<Position> {
        let mut at = self.chains[chain(hash)];
        while let Some(entry) = self.entries.get(at as usize) {
            // The keys of a table have one length.
            if entry.hash == hash && entry.table == table && self.bytes[entry.at as usize..].starts_with(key)
            {
                return Some(Position(at));
            }
            at = entry.next;
        }
        None
    }

    /// What an entry says.
    #[inline]
    pub(crate) fn found(&self, Position(at): Position) -> Found<'_> {
        let entry = &self.entries[at as usize];
        let value = entry.at as usize + usize::from(entry.key);
        let bytes = &self.bytes[value..value + usize::from(entry.value)];
        if entry.deleted { Found::Deleted } else { Found::Written(bytes, entry.expires) }
    }

    /// Whether there is an entry of a key.
    pub(crate) fn has(&self, table: u8, hash: u64, key: &[u8]) -> bool {
        self.position(table, hash, key).is_some()
    }

    /// The key of a row that this unit wrote and that has expired at `now`.
    pub(crate) fn first_expired(&self, table: u8, now: Nanos) -> Option<&[u8]> {
        let expired = |entry: &&Entry| entry.table == table && !entry.deleted && entry.expires <= now;
        self.entries.iter().find(expired).map(|entry| self.key_of(entry))
    }

    /// Rows that the uncommitted entries add to a table.
    pub(crate) fn growth(&self, table: u8) -> isize {
        self.growth[usize::from(table)] as isize
    }

    /// Notes a change of a row with values of `value_bytes`. `entry` is what [`WriteSet::position`] finds; `stored` says
    /// whether the committed table has the key, and counts where there is no entry yet.
    #[inline(always)] // lengths are those of the table
    pub(crate) fn write(
        &mut self,
        entry: Option<Position>,
        change: &Change<'_>,
        place: Place,
        value_bytes: usize,
        stored: bool,
    ) {
        self.written.insert(place.partition);
        match entry {
            Some(Position(at)) => self.overwrite(at, change),
            None => self.add(change, place, value_bytes, stored),
        }
    }

    /// Gives an entry a new value, and notes the one that it had.
    #[inline(always)]
    fn overwrite(&mut self, at: u32, change: &Change<'_>) {
        let entry = &mut self.entries[at as usize];
        let value = entry.at as usize + usize::from(entry.key);
        let bytes = &mut self.bytes[value..value + usize::from(entry.value)];
        self.undo_bytes.extend_from_slice(bytes);
        self.undo.push(Undo { entry: at, expires: entry.expires, deleted: entry.deleted });
        let before = entry.growth();
        (entry.expires, entry.deleted) = (change.expires, change.value.is_none());
        self.growth[usize::from(entry.table)] += entry.growth() - before;
        if let Some(value) = change.value {
            bytes.copy_from_slice(value);
        }
    }

    /// Adds an entry.
    #[inline(always)]
    fn add(&mut self, change: &Change<'_>, place: Place, value_bytes: usize, stored: bool) {
        let chain = &mut self.chains[chain(place.hash)];
        let entry = Entry {
            hash: place.hash,
            expires: change.expires,
            at: self.bytes.len() as u32,
            next: *chain,
            key: change.key.len() as u16,
            value: value_bytes as u16,
            table: change.table,
            partition: place.partition as u8,
            deleted: change.value.is_none(),
            stored,
        };
        *chain = self.entries.len() as u32;
        self.growth[usize::from(entry.table)] += entry.growth();
        self.entries.push(entry);
        self.bytes.extend_from_slice(change.key);
        match change.value {
            Some(value) => self.bytes.extend_from_slice(value),
            None => self.bytes.resize(self.bytes.len() + value_bytes, 0),
        }
    }

    /// Where the rows of the delta are, in its order.
    pub(crate) fn sites(&self) -> impl Iterator<Item = Site> {
        let place = |entry: &Entry| Place { hash: entry.hash, partition: usize::from(entry.partition) };
        self.entries.iter().map(move |entry| place(entry).into())
    }

    /// Appends the delta: for each key its last change.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.delta_bytes());
        for entry in &self.entries {
            let (at, key, value) = (entry.at as usize, usize::from(entry.key), usize::from(entry.value));
            delta::put_head(out, entry.table, entry.deleted, entry.expires);
            out.extend_from_slice(&self.bytes[at..at + key + if entry.deleted { 0 } else { value }]);
        }
    }
}
