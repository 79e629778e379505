//! One typed table: rows of a fixed-size key and value, in the partitions of its store.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::hash::{Place, Placement};
use super::{AnyTable, Change, Layout, RowBytes};
use crate::clock::Nanos;

/// What may be a key or a value: a fixed-size plain value whose bytes mean the same everywhere.
///
/// Derive zerocopy's `FromBytes`, `IntoBytes` and `Immutable`; multi-byte fields are little endian in memory (the
/// only byte order this crate builds for) or of a type that says its own.
pub trait Plain: Copy + FromBytes + IntoBytes + Immutable + Send + Sync + 'static {}
impl<T: Copy + FromBytes + IntoBytes + Immutable + Send + Sync + 'static> Plain for T {}

/// A row lives until this moment, or for ever.
pub const NEVER: Nanos = Nanos::MAX;

#[derive(Clone, Copy)]
struct Row<K, V> {
    key: K,
    value: V,
    expires: Nanos,
}

/// A table of a store. Network functions read and write it through their transaction only.
pub struct Table<K, V> {
    name: &'static str,
    number: u8,
    capacity: usize,
    idle: Option<Nanos>,
    placement: Placement,
    partitions: Box<[HashTable<Row<K, V>>]>,
    len: usize,
    /// Per partition: no row expires before this moment. A hint: it may lag behind, never run ahead.
    first_expiry: Box<[AtomicU64]>,
}

impl<K: Plain + Eq, V: Plain> Table<K, V> {
    /// An empty table that takes `capacity` rows; `number` is its place in its state.
    pub fn new(name: &'static str, number: u8, capacity: usize, layout: &Layout) -> Self {
        let placement = layout.placement();
        let partitions = (0..placement.partitions()).map(|_| HashTable::new()).collect();
        let first_expiry = (0..placement.partitions()).map(|_| AtomicU64::new(NEVER)).collect();
        Table { name, number, capacity, idle: None, placement, partitions, len: 0, first_expiry }
    }

    /// Sets how many rows the table takes. Rows that are there stay.
    pub fn set_capacity(&mut self, rows: usize) {
        self.capacity = rows;
    }

    /// Lets rows go that nobody used for `idle` nanoseconds; `None` keeps them until they are deleted.
    pub fn set_idle(&mut self, idle: Option<Nanos>) {
        self.idle = idle;
    }

    /// The table's idle timeout in nanoseconds.
    pub fn idle(&self) -> Option<Nanos> {
        self.idle
    }

    /// How many partitions the table is in.
    pub(crate) fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Where `key` lives.
    pub(crate) fn place(&self, key: &K) -> Place {
        self.placement.place(key.as_bytes())
    }

    /// The committed row of a key, with the moment it expires.
    pub(crate) fn row(&self, place: Place, key: &K) -> Option<(&V, Nanos)> {
        let row = self.partitions[place.partition].find(place.hash, |row| row.key == *key)?;
        Some((&row.value, row.expires))
    }

    /// The rows of one partition that have expired at `now`, in the order of (expiry, key), at most `most`.
    pub(crate) fn expired(&self, partition: usize, now: Nanos, most: usize) -> Vec<(K, V)> {
        let mut found: Vec<&Row<K, V>> = self.expired_rows(partition, now).collect();
        found.sort_by(|a, b| (a.expires, a.key.as_bytes()).cmp(&(b.expires, b.key.as_bytes())));
        found.truncate(most);
        found.into_iter().map(|row| (row.key, row.value)).collect()
    }

    /// The expired rows of a partition. Cheap while none can have expired.
    fn expired_rows(&self, partition: usize, now: Nanos) -> impl Iterator<Item = &Row<K, V>> {
        let hint = &self.first_expiry[partition];
        let rows = &self.partitions[partition];
        let mut may_be = hint.load(Ordering::Relaxed) <= now;
        if may_be {
            let first = rows.iter().map(|row| row.expires).min().unwrap_or(NEVER);
            hint.store(first, Ordering::Relaxed);
            may_be = first <= now;
        }
        rows.iter().filter(move |row| may_be && row.expires <= now)
    }

    /// An expired row whose place a new key may take: of the first partition at or after `from` that has one, the
    /// row that expired first, of those that `free` allows.
    pub(crate) fn evictable(&self, from: usize, now: Nanos, free: impl Fn(&K) -> bool) -> Option<K> {
        let count = self.partitions.len();
        let oldest_in = |partition| {
            let rows = self.expired_rows(partition, now).filter(|row| free(&row.key));
            rows.min_by(|a, b| (a.expires, a.key.as_bytes()).cmp(&(b.expires, b.key.as_bytes())))
        };
        (0..count).map(|i| (from + i) % count).find_map(oldest_in).map(|row| row.key)
    }

    /// The committed value of a key, for tests, examples and reports: outside of any transaction.
    pub fn inspect(&self, key: &K) -> Option<V> {
        self.row(self.place(key), key).map(|(value, _)| *value)
    }

    /// All committed rows in the order of their keys' bytes, for tests, examples and reports.
    pub fn rows(&self) -> Vec<(K, V)> {
        let mut rows: Vec<(K, V)> =
            self.partitions.iter().flat_map(HashTable::iter).map(|row| (row.key, row.value)).collect();
        rows.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
        rows
    }
}

impl<K: Plain + Eq, V: Plain> AnyTable for Table<K, V> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn number(&self) -> u8 {
        self.number
    }

    fn len(&self) -> usize {
        self.len
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn row_bytes(&self) -> RowBytes {
        RowBytes { key: size_of::<K>(), value: size_of::<V>() }
    }

    fn place_of(&self, key: &[u8]) -> Place {
        self.placement.place(key)
    }

    fn apply(&mut self, change: &Change<'_>) {
        let Ok(key) = K::read_from_bytes(change.key) else { return };
        let place = self.placement.place(change.key);
        let rows = &mut self.partitions[place.partition];
        let hash_of = |row: &Row<K, V>| self.placement.place(row.key.as_bytes()).hash;
        match change.value {
            Some(value) => {
                let Ok(value) = V::read_from_bytes(value) else { return };
                let row = Row { key, value, expires: change.expires };
                self.first_expiry[place.partition].fetch_min(change.expires, Ordering::Relaxed);
                match rows.entry(place.hash, |row| row.key == key, hash_of) {
                    Entry::Occupied(mut entry) => *entry.get_mut() = row,
                    Entry::Vacant(entry) => {
                        entry.insert(row);
                        self.len += 1;
                    }
                }
            }
            None => {
                if let Ok(entry) = rows.find_entry(place.hash, |row| row.key == key) {
                    entry.remove();
                    self.len -= 1;
                }
            }
        }
    }

    fn visit(&self, partition: usize, visit: &mut dyn FnMut(Change<'_>)) {
        for row in &self.partitions[partition] {
            let (key, value) = (row.key.as_bytes(), Some(row.value.as_bytes()));
            visit(Change { table: self.number, key, value, expires: row.expires });
        }
    }

    fn visit_expired(&self, partition: usize, now: Nanos, most: usize, visit: &mut dyn FnMut(&[u8])) {
        for (key, _) in self.expired(partition, now, most) {
            visit(key.as_bytes());
        }
    }
}

impl<K: Plain, V: Plain> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        let first_expiry = self.first_expiry.iter().map(|first| first.load(Ordering::Relaxed).into());
        Table { partitions: self.partitions.clone(), first_expiry: first_expiry.collect(), ..*self }
    }
}

impl<K, V> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({}: {} of {})", self.name, self.len, self.capacity)
    }
}
