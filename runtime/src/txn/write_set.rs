//! What a transaction has written and not yet committed, and which partitions it touched.
//!
//! The transactions of one unit share a write set: each sees what its predecessors wrote, and may be rolled back alone.

use crate::clock::Nanos;
use crate::dependency::PartitionSet;
use crate::state::{Change, Place};

use super::delta;

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    expires: Nanos,
    at: usize,
    key: u32,
    value: u32,
    table: u8,
    deleted: bool,
    /// Rows that this entry adds to its table, on top of the entries before it: −1, 0 or 1.
    grows: i8,
    /// A later entry of the same unit has the key's last value.
    dead: bool,
}

/// What a write set knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// Written, with this value and expiry.
    Written(&'a [u8], Nanos),
    /// Deleted.
    Deleted,
}

/// Writes that are not committed. Emptied and used again, so that it stops allocating once it has grown.
#[derive(Debug, Default)]
pub struct WriteSet {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// Which hashes may be among the entries: one bit of 64 each.
    filter: u64,
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
    filter: u64,
}

fn filter_bit(hash: u64) -> u64 {
    1 << (hash >> 58)
}

impl WriteSet {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        self.filter = 0;
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
    pub fn delta_bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * delta::ENTRY_OVERHEAD
    }

    pub(crate) fn note_read(&mut self, partition: usize) {
        self.read.insert(partition);
    }

    /// This moment, to roll back to.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            entries: self.entries.len(),
            bytes: self.bytes.len(),
            read: self.read,
            written: self.written,
            filter: self.filter,
        }
    }

    /// Undoes everything since `savepoint`.
    pub fn rollback(&mut self, savepoint: &Savepoint) {
        self.entries.truncate(savepoint.entries);
        self.bytes.truncate(savepoint.bytes);
        self.read = savepoint.read;
        self.written = savepoint.written;
        self.filter = savepoint.filter;
    }

    fn position(&self, table: u8, hash: u64, key: &[u8]) -> Option<usize> {
        if self.filter & filter_bit(hash) == 0 {
            return None;
        }
        self.entries.iter().rposition(|e| {
            e.hash == hash && e.table == table && &self.bytes[e.at..e.at + e.key as usize] == key
        })
    }

    pub(crate) fn find(&self, table: u8, hash: u64, key: &[u8]) -> Option<Found<'_>> {
        let e = &self.entries[self.position(table, hash, key)?];
        let value = e.at + e.key as usize;
        Some(if e.deleted {
            Found::Deleted
        } else {
            Found::Written(&self.bytes[value..value + e.value as usize], e.expires)
        })
    }

    /// Rows that the uncommitted entries add to a table.
    pub(crate) fn growth(&self, table: u8) -> isize {
        self.entries.iter().filter(|e| e.table == table).map(|e| isize::from(e.grows)).sum()
    }

    /// Notes a change. `stored` says whether the committed table has the key.
    pub(crate) fn write(&mut self, change: &Change<'_>, place: Place, stored: bool) {
        let earlier = self.position(change.table, place.hash, change.key);
        let present = earlier.map_or(stored, |at| !self.entries[at].deleted);
        let deleted = change.value.is_none();
        self.written.insert(place.partition);
        self.filter |= filter_bit(place.hash);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(change.key);
        self.bytes.extend_from_slice(change.value.unwrap_or_default());
        self.entries.push(Entry {
            hash: place.hash,
            expires: change.expires,
            at,
            key: change.key.len() as u32,
            value: change.value.map_or(0, <[u8]>::len) as u32,
            table: change.table,
            deleted,
            grows: i8::from(!deleted) - i8::from(present),
            dead: false,
        });
    }

    /// Ends a transaction that stays: of each key only the last value is kept alive.
    pub fn keep(&mut self, savepoint: &Savepoint) {
        let mut kept = savepoint.entries;
        for new in savepoint.entries..self.entries.len() {
            if !self.supersede(new, kept) {
                self.entries.swap(new, kept);
                kept += 1;
            }
        }
        self.entries.truncate(kept);
        if kept == savepoint.entries {
            self.bytes.truncate(savepoint.bytes);
        }
    }

    /// Moves the value of entry `new` into an entry of the same key among the first `count`. Returns false where
    /// there is none, or where it has no room; then the earlier entry is dead.
    fn supersede(&mut self, new: usize, count: usize) -> bool {
        let entry = self.entries[new];
        let bytes = &self.bytes;
        let key = &bytes[entry.at..entry.at + entry.key as usize];
        let earlier = self.entries[..count].iter_mut().rev().find(|e| {
            !e.dead
                && e.hash == entry.hash
                && e.table == entry.table
                && &bytes[e.at..e.at + e.key as usize] == key
        });
        let Some(earlier) = earlier else { return false };
        if earlier.value != entry.value {
            earlier.dead = true;
            return false;
        }
        let value = entry.at + entry.key as usize;
        let to = earlier.at + earlier.key as usize;
        earlier.expires = entry.expires;
        earlier.deleted = entry.deleted;
        earlier.grows += entry.grows;
        self.bytes.copy_within(value..value + entry.value as usize, to);
        true
    }

    /// Appends the delta: for each key its last change.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for e in self.entries.iter().filter(|e| !e.dead) {
            let (key, value) = (e.at + e.key as usize, e.at + e.key as usize + e.value as usize);
            let change = Change {
                table: e.table,
                key: &self.bytes[e.at..key],
                value: (!e.deleted).then(|| &self.bytes[key..value]),
                expires: e.expires,
            };
            delta::put_change(out, &change);
        }
    }
}
