//! One typed table: rows of a fixed-size key and value, in the partitions of its store.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashTable;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::cells::Cells;
use super::claims::Held;
use super::fetch::fetch;
use super::hash::{Place, Placement};
use super::{AnyTable, Change, Layout, RowBytes, Site};
use crate::clock::Nanos;

/// What may be a key or a value: a fixed-size plain value whose bytes mean the same everywhere.
///
/// Derive zerocopy's `FromBytes`, `IntoBytes` and `Immutable`; multi-byte fields are little endian in memory (the
/// only byte order this crate builds for) or of a type that says its own. Keys are equal if their bytes are, whatever
/// `Eq` says.
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

impl<K: Plain, V> Row<K, V> {
    /// Whether this is the row of a key, given as bytes.
    #[inline(always)]
    fn is_of(&self, key: &[u8]) -> bool {
        differ(self.key.as_bytes(), key) == 0
    }
}

/// A key's bytes as a slice whose length is known when this is compiled, so that it is hashed and compared without a loop.
#[inline(always)]
fn whole_key<K>(key: &[u8]) -> Option<&[u8]> {
    if key.len() == size_of::<K>() { Some(&key[..size_of::<K>()]) } else { None }
}

/// The bits in which two keys of one length differ, folded into a word: where the length is known, no call and no loop.
#[inline(always)]
fn differ(a: &[u8], b: &[u8]) -> u64 {
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    let (mut bits, mut at) = (0, 0);
    while at + 8 <= a.len() {
        bits |= word(&a[at..]) ^ word(&b[at..]);
        at += 8;
    }
    while at < a.len() {
        bits |= u64::from(a[at] ^ b[at]);
        at += 1;
    }
    bits
}

/// A table of a store. Network functions read and write it through their transaction only.
pub struct Table<K, V> {
    name: &'static str,
    number: u8,
    capacity: usize,
    idle: Option<Nanos>,
    placement: Placement,
    partitions: Cells<HashTable<Row<K, V>>>,
    len: AtomicUsize,
    /// Per partition: no row expires before this moment. A hint: it may lag behind, never run ahead.
    first_expiry: Box<[AtomicU64]>,
}

impl<K: Plain + Eq, V: Plain> Table<K, V> {
    /// An empty table that takes `capacity` rows; `number` is its place in its state.
    pub fn new(name: &'static str, number: u8, capacity: usize, layout: &Layout) -> Self {
        let placement = layout.placement();
        let partitions = Cells::new(placement.partitions(), |_| HashTable::new());
        let first_expiry = (0..placement.partitions()).map(|_| AtomicU64::new(NEVER)).collect();
        Table {
            name,
            number,
            capacity,
            idle: None,
            placement,
            partitions,
            len: AtomicUsize::new(0),
            first_expiry,
        }
    }

    /// The same table with each row in the partition that its key's first byte names.
    pub(super) fn placed_by_lane(self) -> Self {
        Table { placement: self.placement.by_lane(), ..self }
    }

    /// The table, whatever its types.
    pub fn any(&self) -> &dyn AnyTable {
        self
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
    #[inline(always)]
    pub(crate) fn place(&self, key: &K) -> Place {
        self.placement.place(key.as_bytes())
    }

    /// The committed row of a key, with the moment it expires.
    #[inline(always)]
    pub(crate) fn row(&self, place: Place, key: &K, held: &Held) -> Option<(&V, Nanos)> {
        let rows = self.partitions.read(place.partition, held);
        let row = rows.find(place.hash, |row| row.is_of(key.as_bytes()))?;
        Some((&row.value, row.expires))
    }

    /// Where a key of another length than the table's would live.
    #[cold]
    #[inline(never)]
    fn place_other(&self, key: &[u8]) -> Place {
        self.placement.place(key)
    }

    /// Where the row of a key may stand, if `held` covers its place: the processor fetches it, and nobody waits for it.
    #[inline(always)]
    pub(crate) fn fetch(&self, place: Place, held: &Held) -> Site {
        if !held.may_read(place.partition) {
            return place.into();
        }
        // The first row that may be the key's, as it most probably is: to look at it would be to wait for it.
        let slot = self.partitions.read(place.partition, held).find_bucket_index(place.hash, |row| {
            fetch(row);
            true
        });
        Site { place, slot: slot.unwrap_or(usize::MAX) }
    }

    /// Puts a row of a new key in, and says how many rows came.
    #[inline(never)]
    fn insert(
        &self,
        rows: &mut HashTable<Row<K, V>>,
        hash: u64,
        key: &[u8],
        value: &[u8],
        expires: Nanos,
    ) -> isize {
        let (Ok(key), Ok(value)) = (K::read_from_bytes(key), V::read_from_bytes(value)) else { return 0 };
        rows.insert_unique(hash, Row { key, value, expires }, |row| self.place(&row.key).hash);
        1
    }

    /// The rows of one partition that have expired at `now`, in the order of (expiry, key), at most `most`.
    pub(crate) fn expired(&self, partition: usize, now: Nanos, most: usize, held: &Held) -> Vec<(K, V)> {
        let mut found: Vec<&Row<K, V>> = self.expired_rows(partition, now, held).collect();
        found.sort_by(|a, b| (a.expires, a.key.as_bytes()).cmp(&(b.expires, b.key.as_bytes())));
        found.truncate(most);
        found.into_iter().map(|row| (row.key, row.value)).collect()
    }

    /// The expired rows of a partition. Cheap while none can have expired.
    fn expired_rows(&self, partition: usize, now: Nanos, held: &Held) -> impl Iterator<Item = &Row<K, V>> {
        let hint = &self.first_expiry[partition];
        let rows = self.partitions.read(partition, held);
        let mut may_be = hint.load(Ordering::Relaxed) <= now;
        if may_be {
            let first = rows.iter().map(|row| row.expires).min().unwrap_or(NEVER);
            hint.store(first, Ordering::Relaxed);
            may_be = first <= now;
        }
        rows.iter().filter(move |row| may_be && row.expires <= now)
    }

    /// Whether no row of a partition can have expired at `now`, as far as is known without a look at them.
    pub(crate) fn is_fresh(&self, partition: usize, now: Nanos) -> bool {
        self.first_expiry[partition].load(Ordering::Relaxed) > now
    }

    /// An expired row of a partition whose place a new key may take: the one that expired first, of those that `free`
    /// allows.
    pub(crate) fn evictable(
        &self,
        partition: usize,
        now: Nanos,
        held: &Held,
        free: impl Fn(&K) -> bool,
    ) -> Option<K> {
        let rows = self.expired_rows(partition, now, held).filter(|row| free(&row.key));
        let oldest = rows.min_by(|a, b| (a.expires, a.key.as_bytes()).cmp(&(b.expires, b.key.as_bytes())));
        oldest.map(|row| row.key)
    }

    /// The committed value of a key, for tests, examples and reports: outside of any transaction.
    ///
    /// # Panics
    /// While several shards share the store.
    pub fn inspect(&self, key: &K) -> Option<V> {
        self.row(self.place(key), key, &self.partitions.outside()).map(|(value, _)| *value)
    }

    /// All committed rows in the order of their keys' bytes, for tests, examples and reports.
    ///
    /// # Panics
    /// As [`Table::inspect`].
    pub fn rows(&self) -> Vec<(K, V)> {
        let held = self.partitions.outside();
        let partitions = (0..self.partitions()).map(|partition| self.partitions.read(partition, &held));
        let mut rows: Vec<(K, V)> =
            partitions.flat_map(HashTable::iter).map(|row| (row.key, row.value)).collect();
        rows.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
        rows
    }
}

impl<K, V> Table<K, V> {
    /// Counts rows that came or went.
    fn count(&self, change: isize, held: &Held) {
        if held.is_shared() {
            self.len.fetch_add(change.cast_unsigned(), Ordering::Relaxed); // wraps to a subtraction
        } else {
            let len = self.len.load(Ordering::Relaxed).wrapping_add_signed(change);
            self.len.store(len, Ordering::Relaxed);
        }
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
        self.len.load(Ordering::Relaxed)
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn row_bytes(&self) -> RowBytes {
        RowBytes { key: size_of::<K>(), value: size_of::<V>() }
    }

    fn place_of(&self, key: &[u8]) -> Place {
        match whole_key::<K>(key) {
            Some(key) => self.placement.place(key),
            None => self.place_other(key),
        }
    }

    fn outside(&self) -> Held {
        self.partitions.outside()
    }

    fn set_shared(&self, shared: bool, whole: &Held) {
        self.partitions.set_shared(shared, whole);
    }

    fn locate(&self, key: &[u8], held: &Held) -> Site {
        self.fetch(self.place_of(key), held)
    }

    fn apply(&self, change: &Change<'_>, Site { place, slot }: Site, held: &Held) {
        let Some(key) = whole_key::<K>(change.key) else { return };
        if change.value.is_some_and(|value| value.len() != size_of::<V>()) {
            return;
        }
        debug_assert_eq!(place, self.placement.place(key), "a row in the place of another");
        let grown = self.partitions.write(place.partition, held, |rows| match change.value {
            Some(value) => {
                let put = |row: &mut Row<K, V>| {
                    row.value.as_mut_bytes().copy_from_slice(value);
                    row.expires = change.expires;
                };
                if let Some(row) = rows.get_bucket_mut(slot).filter(|row| row.is_of(key)) {
                    put(row);
                    return 0;
                }
                match rows.find_mut(place.hash, |row| row.is_of(key)) {
                    Some(row) => {
                        put(row);
                        0
                    }
                    None => self.insert(rows, place.hash, key, value, change.expires),
                }
            }
            None => rows.find_entry(place.hash, |row| row.is_of(key)).map_or(0, |entry| {
                entry.remove();
                -1
            }),
        });
        if change.expires < self.first_expiry[place.partition].load(Ordering::Relaxed) {
            self.first_expiry[place.partition].store(change.expires, Ordering::Relaxed);
        }
        if grown != 0 {
            self.count(grown, held);
        }
    }

    fn reserve(&self, partition: usize, rows: usize, held: &Held) {
        self.partitions.write(partition, held, |table| table.reserve(rows, |row| self.place(&row.key).hash));
    }

    fn visit(&self, partition: usize, held: &Held, visit: &mut dyn FnMut(Change<'_>)) {
        for row in self.partitions.read(partition, held) {
            let (key, value) = (row.key.as_bytes(), Some(row.value.as_bytes()));
            visit(Change { table: self.number, key, value, expires: row.expires });
        }
    }

    fn visit_expired(
        &self,
        partition: usize,
        now: Nanos,
        most: usize,
        held: &Held,
        visit: &mut dyn FnMut(&[u8]),
    ) {
        for (key, _) in self.expired(partition, now, most, held) {
            visit(key.as_bytes());
        }
    }
}

impl<K: Plain, V: Plain> Clone for Table<K, V> {
    /// A copy with the same rows.
    ///
    /// # Panics
    /// While several shards share the store.
    fn clone(&self) -> Self {
        let held = self.partitions.outside();
        let first_expiry = self.first_expiry.iter().map(|first| first.load(Ordering::Relaxed).into());
        let copy = |partition| self.partitions.read(partition, &held).clone();
        Table {
            partitions: Cells::new(self.partitions.len(), copy),
            len: AtomicUsize::new(self.len.load(Ordering::Relaxed)),
            first_expiry: first_expiry.collect(),
            ..*self
        }
    }
}

impl<K, V> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({}: {} of {})", self.name, self.len.load(Ordering::Relaxed), self.capacity)
    }
}
