//! Transactions: what a network function reads and writes through.
//!
//! A [`Txn`] sees committed rows and its own writes; nobody sees its writes before the commit, and an aborted one
//! leaves no trace. Time and random numbers come from it alone, so that a run can be recorded and replayed.

pub mod delta;
mod entry;
#[cfg(test)]
mod lanes_tests;
mod merge;
#[cfg(test)]
mod model_tests;
#[cfg(feature = "testing")]
mod rehearsal;
mod workspace;
mod write_set;

use std::ops::Deref;

pub use entry::Entry;
pub use workspace::{Beginning, Workspace};
pub use write_set::{Savepoint, WriteSet};
use zerocopy::IntoBytes;

use crate::clock::Nanos;
use crate::dependency::PartitionSet;
use crate::packet::{Direction, Pool};
use crate::state::{AnyState, AnyTable, Change, NEVER, Place, Plain, Table};
use crate::wire::Malformed;
use write_set::{Found, Position};

/// Why a transaction was given up. It left no trace; its packet is dropped and counted under the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// The drop reason, in snake case.
    pub reason: &'static str,
}

impl Abort {
    /// The table takes no new keys.
    pub const TABLE_FULL: Abort = Abort { reason: "table_full" };
    /// Another transaction has what this one asked for, or the open unit has no room for what it wrote: it is undone and runs
    /// again, from the frame's original bytes.
    pub const CONFLICT: Abort = Abort { reason: "conflict" };
    /// The transaction wrote more than a unit can carry on a link of this MTU.
    pub const TOO_LARGE: Abort = Abort { reason: "transaction_too_large" };
}

impl From<Malformed> for Abort {
    fn from(malformed: Malformed) -> Self {
        Abort { reason: malformed.reason() }
    }
}

/// The result of everything that a transaction does.
pub type TxnResult<T> = Result<T, Abort>;

/// A value that a transaction looked at without copying it.
#[derive(Clone, Copy, Debug)]
pub enum Peek<'s, V> {
    /// The committed row: the reference lives across later writes of the transaction.
    Committed(&'s V),
    /// The transaction's own write.
    Written(V),
}

impl<V> Deref for Peek<'_, V> {
    type Target = V;
    #[inline]
    fn deref(&self) -> &V {
        match self {
            Peek::Committed(value) => value,
            Peek::Written(value) => value,
        }
    }
}

/// Where a key is.
#[derive(Clone, Copy, Debug)]
struct Spot {
    place: Place,
    /// Its entry, where the unit has written it.
    entry: Option<Position>,
    /// Whether the committed table has the key, expired or not; the entry knows better where there is one.
    stored: bool,
}

/// What a read found.
#[derive(Clone, Copy, Debug)]
struct Seen<T> {
    spot: Spot,
    /// The value, if it has not expired, and when it will.
    row: Option<(T, Nanos)>,
}

/// One running transaction.
#[derive(Debug)]
pub struct Txn<'a> {
    work: &'a mut Workspace,
    pool: &'a mut Pool,
    now: Nanos,
    /// Delta bytes at which this transaction has become too large.
    ceiling: usize,
    #[cfg(feature = "testing")]
    new_rows: rehearsal::NewRows,
}

impl<'a> Txn<'a> {
    /// Begins a transaction at the time `now`, in nanoseconds since the Unix epoch.
    pub fn new(work: &'a mut Workspace, pool: &'a mut Pool, now: Nanos) -> Self {
        let ceiling = work.writes.delta_bytes() + work.delta_limit;
        Txn {
            work,
            pool,
            now,
            ceiling,
            #[cfg(feature = "testing")]
            new_rows: rehearsal::NewRows::default(),
        }
    }

    /// The transaction's time in nanoseconds since the Unix epoch: when its packet arrived at the chain.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// 64 random bits. An abort takes them back.
    pub fn random(&mut self) -> u64 {
        self.work.entropy.next_u64()
    }

    /// A random number below `bound`; 0 where `bound` is 0.
    pub fn random_below(&mut self, bound: u64) -> u64 {
        self.work.entropy.below(bound)
    }

    /// Looks a key up, and takes of its value what is wanted. Its partition is claimed to write where `to_write` says so.
    #[inline(always)] // what is found stays in registers
    fn read<'s, K: Plain + Eq, V: Plain, T>(
        &mut self,
        table: &'s Table<K, V>,
        key: &K,
        to_write: bool,
        take: impl Fn(Peek<'s, V>) -> T,
    ) -> TxnResult<Seen<T>> {
        let place = table.place(key);
        self.work.claim(place.partition, to_write)?;
        self.work.writes.note_read(place.partition);
        let entry = self.work.writes.position(number(table), place.hash, key.as_bytes());
        let (row, stored) = match entry {
            Some(entry) => (self.written(entry).map(|(value, expires)| (take(value), expires)), true),
            None => {
                let row = table.row(place, key, &self.work.held);
                (row.map(|(value, expires)| (take(Peek::Committed(value)), expires)), row.is_some())
            }
        };
        let row = row.filter(|(_, expires)| *expires > self.now);
        Ok(Seen { spot: Spot { place, entry, stored }, row })
    }

    /// What the unit has written.
    #[inline]
    fn written<'s, V: Plain>(&self, entry: Position) -> Option<(Peek<'s, V>, Nanos)> {
        match self.work.writes.found(entry) {
            Found::Deleted => None,
            Found::Written(bytes, expires) => {
                V::read_from_bytes(bytes).ok().map(|value| (Peek::Written(value), expires))
            }
        }
    }

    /// Finds where a key is, to write it without having read it.
    fn spot<K: Plain + Eq, V: Plain>(&mut self, table: &Table<K, V>, key: &K) -> TxnResult<Spot> {
        let place = table.place(key);
        self.work.claim(place.partition, true)?;
        let entry = self.work.writes.position(number(table), place.hash, key.as_bytes());
        let stored = entry.is_some() || table.row(place, key, &self.work.held).is_some();
        Ok(Spot { place, entry, stored })
    }

    /// The value of a key, and its use: in a table with an idle timeout the row's time starts again. The row is
    /// rewritten for that only when more than an eighth of the timeout has gone, so that busy flows write nothing.
    ///
    /// # Errors
    /// [`Abort::TOO_LARGE`] where rewriting the row does not fit, [`Abort::CONFLICT`].
    #[inline]
    pub fn get<K: Plain + Eq, V: Plain>(&mut self, table: &Table<K, V>, key: &K) -> TxnResult<Option<V>> {
        match table.idle() {
            Some(idle) => Ok(self.get_for(table, key, idle)?.map(|(value, _)| value)),
            None => Ok(self.entry(table, key)?.value()),
        }
    }

    /// The value of a key, and its use for `idle` nanoseconds, whatever the table's timeout is; and whether the row
    /// was rewritten for that, as [`Txn::get`] does it.
    ///
    /// # Errors
    /// As [`Txn::get`].
    #[inline(always)]
    pub fn get_for<K: Plain + Eq, V: Plain>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
        idle: Nanos,
    ) -> TxnResult<Option<(V, bool)>> {
        let entry = self.entry(table, key)?;
        let Some(value) = entry.value() else { return Ok(None) };
        let refreshed = entry.refresh(idle)?;
        Ok(Some((value, refreshed)))
    }

    /// The value of a key, without using it: its idle timeout goes on.
    ///
    /// # Errors
    /// [`Abort::CONFLICT`].
    #[inline]
    pub fn peek<'s, K: Plain + Eq, V: Plain>(
        &mut self,
        table: &'s Table<K, V>,
        key: &K,
    ) -> TxnResult<Option<Peek<'s, V>>> {
        Ok(self.read(table, key, false, |value| value)?.row.map(|(value, _)| value))
    }

    /// Writes a row; in a table with an idle timeout its time starts now.
    ///
    /// # Errors
    /// [`Abort::TABLE_FULL`] for a new key in a full table (expired rows make room), [`Abort::TOO_LARGE`],
    /// [`Abort::CONFLICT`].
    pub fn put<K: Plain + Eq, V: Plain>(&mut self, table: &Table<K, V>, key: K, value: V) -> TxnResult<()> {
        let spot = self.spot(table, &key)?;
        self.write(table, spot, &key, Some(&value), self.expiry(table))
    }

    /// Writes a row that expires after `idle` nanoseconds, whatever the table's timeout is.
    ///
    /// # Errors
    /// As [`Txn::put`].
    pub fn put_for<K: Plain + Eq, V: Plain>(
        &mut self,
        table: &Table<K, V>,
        key: K,
        value: V,
        idle: Nanos,
    ) -> TxnResult<()> {
        let spot = self.spot(table, &key)?;
        self.write(table, spot, &key, Some(&value), self.now.saturating_add(idle))
    }

    /// Lets a row live until `idle` nanoseconds from now, if that is more than an eighth of `idle` beyond what it has.
    /// A key that is not there stays so.
    ///
    /// # Errors
    /// As [`Txn::put`].
    pub fn refresh<K: Plain + Eq, V: Plain>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
        idle: Nanos,
    ) -> TxnResult<()> {
        self.get_for(table, key, idle).map(|_| ())
    }

    /// Replaces a value by a function of what is there, and returns the new one.
    ///
    /// # Errors
    /// As [`Txn::put`].
    #[inline(always)]
    pub fn update<K: Plain + Eq, V: Plain>(
        &mut self,
        table: &Table<K, V>,
        key: K,
        change: impl FnOnce(Option<V>) -> V,
    ) -> TxnResult<V> {
        let seen = self.read(table, &key, true, |value| *value)?;
        let value = change(seen.row.map(|(value, _)| value));
        self.write(table, seen.spot, &key, Some(&value), self.expiry(table))?;
        Ok(value)
    }

    /// Deletes a row, and says whether a live one was there.
    ///
    /// # Errors
    /// [`Abort::TOO_LARGE`], [`Abort::CONFLICT`].
    pub fn delete<K: Plain + Eq, V: Plain>(&mut self, table: &Table<K, V>, key: &K) -> TxnResult<bool> {
        let seen = self.read(table, key, false, drop)?;
        let live = seen.row.is_some();
        if live || (seen.spot.entry.is_none() && seen.spot.stored) {
            self.work.claim(seen.spot.place.partition, true)?;
            self.write::<K, V>(table, seen.spot, key, None, NEVER)?;
        }
        Ok(live)
    }

    /// Rows of `partition` that have expired and that this unit has not touched, oldest first: what a sweep of the
    /// network function's own deletes.
    ///
    /// # Errors
    /// [`Abort::CONFLICT`].
    pub fn idle_rows<K: Plain + Eq, V: Plain>(
        &mut self,
        table: &Table<K, V>,
        partition: usize,
    ) -> TxnResult<Vec<(K, V)>> {
        if table.is_fresh(partition, self.now) {
            return Ok(Vec::new());
        }
        self.work.claim(partition, false)?;
        let writes = &self.work.writes;
        let untouched = |key: &K| !writes.has(number(table), table.place(key).hash, key.as_bytes());
        let mut rows = table.expired(partition, self.now, crate::limits::SWEEP_ROWS, &self.work.held);
        rows.retain(|(key, _)| untouched(key));
        Ok(rows)
    }

    /// Deletes the expired rows of `partition` in every table: what a sweep does by default.
    ///
    /// # Errors
    /// [`Abort::CONFLICT`]. What does not fit into the transaction goes with the next sweep.
    pub fn remove_idle(&mut self, state: &dyn AnyState, partition: usize) -> TxnResult<()> {
        self.work.claim(partition, true)?;
        let (writes, held, ceiling) = (&mut self.work.writes, &self.work.held, self.ceiling);
        for table in state.iter() {
            table.visit_expired(partition, self.now, crate::limits::SWEEP_ROWS, held, &mut |key| {
                let (place, number, sizes) = (table.place_of(key), table.number(), table.row_bytes());
                let bytes = sizes.key + sizes.value + delta::ENTRY_OVERHEAD;
                let untouched = !writes.has(number, place.hash, key);
                if untouched && writes.delta_bytes() + bytes <= ceiling {
                    let change = Change { table: number, key, value: None, expires: NEVER };
                    writes.write(None, &change, place, sizes.value, true);
                }
            });
        }
        Ok(())
    }

    /// Sends a frame of the network function's own making in `direction`. It leaves once this transaction is
    /// committed everywhere, and not at all where it aborts.
    pub fn emit(&mut self, frame: &[u8], direction: Direction) {
        let mut packet = self.pool.take();
        packet.set_frame(frame);
        packet.meta.direction = direction;
        packet.meta.time = self.now;
        self.work.emitted.push(packet);
    }

    /// When a row of `table` that is used now expires.
    #[inline]
    fn expiry<K: Plain + Eq, V: Plain>(&self, table: &Table<K, V>) -> Nanos {
        table.idle().map_or(NEVER, |idle| self.now.saturating_add(idle))
    }

    /// Notes a change of the key at `spot`, whose partition is claimed to write.
    #[inline(always)]
    fn write<K: Plain + Eq, V: Plain>(
        &mut self,
        table: &Table<K, V>,
        spot: Spot,
        key: &K,
        value: Option<&V>,
        expires: Nanos,
    ) -> TxnResult<()> {
        let is_new = match spot.entry {
            Some(entry) => self.work.writes.found(entry) == Found::Deleted,
            None => !spot.stored,
        };
        if value.is_some() && is_new {
            self.find_room(table, spot.place, key)?;
        }
        let (number, value) = (number(table), value.map(IntoBytes::as_bytes));
        let change = Change { table: number, key: key.as_bytes(), value, expires };
        self.work.writes.write(spot.entry, &change, spot.place, size_of::<V>(), spot.stored);
        self.check_size()
    }

    /// Refuses what the open unit has no room for, or no unit.
    #[inline]
    fn check_size(&mut self) -> TxnResult<()> {
        let bytes = self.work.writes.delta_bytes();
        let abort = match () {
            () if bytes > self.ceiling => Abort::TOO_LARGE,
            () if bytes > self.work.room() => Abort::CONFLICT, // the next unit has room
            () => return Ok(()),
        };
        self.work.failed = Some(abort);
        Err(abort)
    }

    /// Makes sure that the new row of a key has a place.
    #[cold]
    fn find_room<K: Plain + Eq, V: Plain>(
        &mut self,
        table: &Table<K, V>,
        place: Place,
        #[cfg_attr(not(feature = "testing"), expect(unused_variables))] key: &K,
    ) -> TxnResult<()> {
        #[cfg(feature = "testing")]
        if self.refuses(table, key) {
            self.read_all(table)?;
            return Err(Abort::TABLE_FULL);
        }
        self.make_room(table, place)
    }

    /// Makes sure that a new row has a place, if need be that of an expired one. A refusal has seen how many rows the
    /// table has, and so has read all of it.
    fn make_room<K: Plain + Eq, V: Plain>(&mut self, table: &Table<K, V>, place: Place) -> TxnResult<()> {
        if rows_of(table, &self.work.writes) < table.capacity() {
            return Ok(());
        }
        let Some(old) = self.expired_row(table, place.partition)? else {
            self.read_all(table)?;
            // Another lane may have deleted a row since; none can any more.
            return if rows_of(table, &self.work.writes) < table.capacity() {
                Ok(())
            } else {
                Err(Abort::TABLE_FULL)
            };
        };
        let (place, number) = (table.place(&old), number(table));
        self.work.claim(place.partition, true)?;
        let change = Change { table: number, key: old.as_bytes(), value: None, expires: NEVER };
        let entry = self.work.writes.position(number, place.hash, change.key);
        self.work.writes.write(entry, &change, place, size_of::<V>(), true);
        Ok(())
    }

    /// An expired row whose place a new key may take: of the first partition at or after `from` that has one, the row
    /// that expired first; else one that this unit wrote.
    fn expired_row<K: Plain + Eq, V: Plain>(
        &mut self,
        table: &Table<K, V>,
        from: usize,
    ) -> TxnResult<Option<K>> {
        let count = table.partitions();
        for partition in (0..count).map(|i| (from + i) % count) {
            if table.is_fresh(partition, self.now) {
                continue;
            }
            self.work.claim(partition, false)?;
            let writes = &self.work.writes;
            let untouched = |key: &K| !writes.has(number(table), table.place(key).hash, key.as_bytes());
            if let Some(old) = table.evictable(partition, self.now, &self.work.held, untouched) {
                return Ok(Some(old));
            }
        }
        let key = self.work.writes.first_expired(number(table), self.now);
        Ok(key.and_then(|key| K::read_from_bytes(key).ok()))
    }

    /// Notes that all of a table was read.
    fn read_all<K: Plain + Eq, V: Plain>(&mut self, table: &Table<K, V>) -> TxnResult<()> {
        let all = PartitionSet::first(table.partitions());
        self.work.claim_all(all, false)?;
        all.iter().for_each(|partition| self.work.writes.note_read(partition));
        Ok(())
    }
}

/// Rows of a table, those that are not committed included.
fn rows_of<K: Plain + Eq, V: Plain>(table: &Table<K, V>, writes: &WriteSet) -> usize {
    table.len().saturating_add_signed(writes.growth(number(table)))
}

#[inline]
fn number<K: Plain + Eq, V: Plain>(table: &Table<K, V>) -> u8 {
    table.number()
}
