//! Merges: changes of a row by transactions that need not see it.
//!
//! Whoever counts need not know the count. [`Txn::merge`] notes only what is to be merged into a row, the *operand*; the
//! committed value is looked up when the unit is committed. Until then the unit claims nothing for it: lanes that count in
//! one row run side by side, and meet for the moment of their commits only. (Merge operators of log-structured stores and
//! commutative updates of databases are the same idea.)
//!
//! Operands are *pending* only while their unit claims nothing of the store, so that it may wait for its claims at the
//! commit as anybody may who holds nothing. Where a transaction reads or writes in any other way, what is pending is
//! settled first, under claims that can be refused; and where something is claimed already, a merge is an update. So it is
//! for a shard that is alone: there is nobody to spare a wait.

use super::{Txn, TxnResult, Workspace, number, rows_of};
use crate::state::{AnyState, AnyTable, Change, NEVER, Plain, Table};

/// A value that others can be merged into: a counter, a maximum, a set of flags.
pub trait Merge: Plain {
    /// Merges `operand` in. It must not matter in which order operands come, nor whether they are merged into each other
    /// first: the operation is associative and commutative. A row that is not there yet becomes its first operand.
    fn merge(&mut self, operand: &Self);
}

/// See [`WriteSet::pend`].
fn onto<V: Merge>(committed: &[u8], pending: &mut [u8]) {
    if let (Ok(mut value), Ok(operand)) = (V::read_from_bytes(committed), V::read_from_bytes(pending)) {
        value.merge(&operand);
        pending.copy_from_slice(value.as_bytes());
    }
}

/// Numbers add up, and wrap around.
macro_rules! add_up {
    ($($number:ty),+) => {$(
        impl Merge for $number {
            fn merge(&mut self, more: &Self) {
                *self = self.wrapping_add(*more);
            }
        }
    )+};
}

add_up!(u8, u16, u32, u64, u128);

impl Txn<'_> {
    /// Merges `operand` into the row of `key`, or makes it the row where there is none; in a table with an idle timeout
    /// the row's time starts now. The transaction does not see the row: where it need not, this lets shards that write one
    /// row run side by side.
    ///
    /// # Errors
    /// As [`Txn::put`].
    #[inline]
    pub fn merge<K: Plain + Eq, V: Merge>(
        &mut self,
        table: &Table<K, V>,
        key: K,
        operand: V,
    ) -> TxnResult<()> {
        if self.work.may_pend() && self.pend(table, &key, &operand) {
            return self.check_size();
        }
        let merged = |old: Option<V>| match old {
            Some(mut value) => {
                value.merge(&operand);
                value
            }
            None => operand,
        };
        self.update(table, key, merged).map(drop)
    }

    /// Notes an operand. False, and nothing has changed, where the row must be seen: there may be no room for a new one,
    /// what this unit wrote is no operand, or has expired.
    #[inline(never)] // a shard that is alone does not come here
    fn pend<K: Plain + Eq, V: Merge>(&mut self, table: &Table<K, V>, key: &K, operand: &V) -> bool {
        let place = table.place(key);
        let (writes, number, now) = (&mut self.work.writes, number(table), self.now);
        let expires = table.idle().map_or(NEVER, |idle| now.saturating_add(idle));
        let mut value = *operand;
        let known = writes.position(number, place.hash, key.as_bytes());
        match known {
            Some(at) => {
                let Some(pending) = writes.operand(at, now) else { return false };
                onto::<V>(pending, value.as_mut_bytes());
            }
            None if rows_of(table, writes) < table.capacity() => {}
            None => return false,
        }
        let change = Change { table: number, key: key.as_bytes(), value: Some(value.as_bytes()), expires };
        writes.write(known, &change, place, size_of::<V>(), false);
        if known.is_none() {
            writes.pend(now, onto::<V>);
        }
        true
    }

    /// Settles what is pending, for a transaction that goes on to claim something.
    #[cold]
    pub(super) fn settle(&mut self) -> TxnResult<()> {
        self.work.claim_all(self.work.writes.written(), true)?;
        self.work.writes.settle(self.state, &self.work.held);
        Ok(())
    }
}

impl Workspace {
    /// Whether operands may wait for the commit: nothing is claimed that another lane could wait for.
    fn may_pend(&self) -> bool {
        self.defers && self.held.is_free()
    }

    /// Settles what the open unit has pending: for its commit, which may wait for others to that end.
    pub fn settle(&mut self, state: &dyn AnyState) {
        if self.writes.is_pending() {
            self.held.await_write(self.writes.written());
            self.writes.settle(state, &self.held);
        }
    }
}
