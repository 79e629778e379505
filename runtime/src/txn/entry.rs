//! Entries: a key that is looked up once, to read its row and then perhaps to write it.

use super::{Seen, Spot, Txn, TxnResult};
use crate::clock::Nanos;
use crate::state::{Plain, Table};

/// The row of a key, or the place where it would be; see [`Txn::entry`].
#[derive(Debug)]
pub struct Entry<'t, 'a, 's, K, V> {
    txn: &'t mut Txn<'a>,
    table: &'s Table<K, V>,
    key: &'s K,
    seen: Seen<V>,
}

impl<'a> Txn<'a> {
    /// Looks a key up, without using it: its idle timeout goes on. What follows looks for nothing a second time.
    ///
    /// # Errors
    /// [`Abort::CONFLICT`](super::Abort::CONFLICT).
    #[inline(always)] // what is found stays in registers
    pub fn entry<'t, 's, K: Plain + Eq, V: Plain>(
        &'t mut self,
        table: &'s Table<K, V>,
        key: &'s K,
    ) -> TxnResult<Entry<'t, 'a, 's, K, V>> {
        let seen = self.read(table, key, false, |value| *value)?;
        Ok(Entry { txn: self, table, key, seen })
    }
}

impl<K: Plain + Eq, V: Plain> Entry<'_, '_, '_, K, V> {
    /// The key.
    #[inline]
    pub fn key(&self) -> &K {
        self.key
    }

    /// The value, where there is one that has not expired.
    #[inline]
    pub fn value(&self) -> Option<V> {
        self.seen.row.map(|(value, _)| value)
    }

    /// Lets the row live until `idle` nanoseconds from now, if that is more than an eighth of `idle` beyond what it has,
    /// and says whether it was rewritten for that. A key that is not there stays so.
    ///
    /// # Errors
    /// As [`Txn::put`].
    #[inline(always)]
    pub fn refresh(self, idle: Nanos) -> TxnResult<bool> {
        let Some((value, expires)) = self.seen.row else { return Ok(false) };
        let refreshed = expires < self.txn.now.saturating_add(idle - idle / 8);
        if refreshed {
            self.put_for(value, idle)?;
        }
        Ok(refreshed)
    }

    /// Writes the row, which then expires after `idle` nanoseconds, whatever the table's timeout is.
    ///
    /// # Errors
    /// As [`Txn::put`].
    #[inline(always)]
    pub fn put_for(self, value: V, idle: Nanos) -> TxnResult<()> {
        self.txn.claim_and_write(self.table, self.seen.spot, self.key, value, idle)
    }
}

impl Txn<'_> {
    /// Writes what was only read so far.
    #[inline(never)]
    fn claim_and_write<K: Plain + Eq, V: Plain>(
        &mut self,
        table: &Table<K, V>,
        spot: Spot,
        key: &K,
        value: V,
        idle: Nanos,
    ) -> TxnResult<()> {
        self.work.claim(spot.place.partition, true)?;
        self.write(table, spot, key, Some(&value), self.now.saturating_add(idle))
    }
}
