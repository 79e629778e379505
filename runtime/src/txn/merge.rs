//! Merges: rows that many write and few look at (see [`PerLane`]).

use super::{Txn, TxnResult};
use crate::state::{Merge, PerLane, Plain, merge_all};

impl Txn<'_> {
    /// Merges `operand` into the row of `key`, or makes it the row where there is none. Transactions of other lanes that do so
    /// too are not waited for, unless the lanes [share](PerLane::set_sharing) a part.
    ///
    /// # Errors
    /// As [`Txn::put`].
    #[inline]
    pub fn merge<K: Plain + Eq, V: Merge>(
        &mut self,
        table: &PerLane<K, V>,
        key: K,
        operand: V,
    ) -> TxnResult<()> {
        let part = table.part_of(self.work.lane, key);
        let with_operand = |old: Option<V>| match old {
            Some(mut value) => {
                value.merge(&operand);
                value
            }
            None => operand,
        };
        self.update(table.parts(), part, with_operand).map(drop)
    }

    /// The row of a key: all that was merged into it. To see it is dearer than to merge: it reads a part of each lane, and waits
    /// for the lanes that write theirs.
    ///
    /// # Errors
    /// [`Abort::CONFLICT`](super::Abort::CONFLICT).
    pub fn merged<K: Plain + Eq, V: Merge>(
        &mut self,
        table: &PerLane<K, V>,
        key: &K,
    ) -> TxnResult<Option<V>> {
        let mut sum = None;
        for part in table.parts_of(self.work.lanes, *key) {
            let value = self.peek(table.parts(), &part)?.map(|value| *value);
            sum = merge_all(sum.into_iter().chain(value));
        }
        Ok(sum)
    }

    /// Deletes the row of a key, and returns what it had come to.
    ///
    /// # Errors
    /// As [`Txn::delete`].
    pub fn take_merged<K: Plain + Eq, V: Merge>(
        &mut self,
        table: &PerLane<K, V>,
        key: &K,
    ) -> TxnResult<Option<V>> {
        let merged = self.merged(table, key)?;
        for part in table.parts_of(self.work.lanes, *key) {
            self.delete(table.parts(), &part)?;
        }
        Ok(merged)
    }
}
