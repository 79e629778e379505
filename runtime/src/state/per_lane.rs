//! Tables whose rows are kept in parts, one for each lane that writes them.
//!
//! Whoever counts need not know the count. Lanes that write one row wait for each other; a row in parts lets each write its
//! own, in a partition that it has to itself, and whoever wants to see the row merges the parts. (Per-CPU counters of
//! kernels and striped counters of run-time libraries are the same idea.) A part is a row like any other: it is
//! committed, replicated, copied and recorded as such.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{AnyTable, Layout, Plain, Table};
use crate::limits::MAX_LANES;

/// A value that others can be merged into: a counter, a maximum, a set of flags.
pub trait Merge: Plain {
    /// Merges `other` in. It must not matter in which order values come, nor whether they are merged into each other first: the
    /// operation is associative and commutative.
    fn merge(&mut self, other: &Self);
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

/// The key of a part of a row. The lane, which chooses the partition, stands first.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C, packed)]
pub struct Part<K> {
    /// The first of the lanes that share the part.
    lane: u8,
    /// The key of the row.
    key: K,
}

impl<K: Plain + Eq> PartialEq for Part<K> {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl<K: Plain + Eq> Eq for Part<K> {}

/// A table whose rows are in parts, to be written with [`Txn::merge`](crate::Txn::merge) and seen with
/// [`Txn::merged`](crate::Txn::merged). Rows never expire.
pub struct PerLane<K, V> {
    parts: Table<Part<K>, V>,
    /// So many lanes share a part.
    sharing: usize,
}

impl<K: Plain + Eq, V: Merge> Clone for PerLane<K, V> {
    fn clone(&self) -> Self {
        PerLane { parts: self.parts.clone(), sharing: self.sharing }
    }
}

impl<K: Plain + Eq, V: Merge> fmt::Debug for PerLane<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerLane").field("parts", &self.parts).field("sharing", &self.sharing).finish()
    }
}

impl<K: Plain + Eq, V: Merge> PerLane<K, V> {
    /// An empty table that takes `capacity` parts: rows times lanes. `number` is its place in its state.
    pub fn new(name: &'static str, number: u8, capacity: usize, layout: &Layout) -> Self {
        PerLane { parts: Table::new(name, number, capacity, layout).placed_by_lane(), sharing: 1 }
    }

    /// Sets how many parts the table takes. Parts that are there stay.
    pub fn set_capacity(&mut self, parts: usize) {
        self.parts.set_capacity(parts);
    }

    /// Lets so many neighbouring lanes share a part, at least 1: fewer parts to merge for whoever looks, and lanes that wait for
    /// each other again. The parts that are there already are not merged.
    pub fn set_sharing(&mut self, lanes: usize) {
        self.sharing = lanes.max(1);
    }

    /// The table of the parts.
    pub(crate) fn parts(&self) -> &Table<Part<K>, V> {
        &self.parts
    }

    /// The table, whatever its types.
    pub fn any(&self) -> &dyn AnyTable {
        &self.parts
    }

    /// The key of the part that `lane` writes.
    #[inline]
    pub(crate) fn part_of(&self, lane: usize, key: K) -> Part<K> {
        Part { lane: (lane / self.sharing * self.sharing) as u8, key }
    }

    /// The keys of the parts that `lanes` lanes write.
    pub(crate) fn parts_of(&self, lanes: usize, key: K) -> impl Iterator<Item = Part<K>> + use<K, V> {
        (0..lanes).step_by(self.sharing).map(move |lane| Part { lane: lane as u8, key })
    }

    /// The committed row of a key, for tests, examples and reports: outside of any transaction.
    ///
    /// # Panics
    /// While several shards share the store.
    pub fn inspect(&self, key: &K) -> Option<V> {
        merge_all(self.parts_of(MAX_LANES, *key).filter_map(|part| self.parts.inspect(&part)))
    }

    /// All committed rows in the order of their keys' bytes, for tests, examples and reports.
    ///
    /// # Panics
    /// As [`PerLane::inspect`].
    pub fn rows(&self) -> Vec<(K, V)> {
        let mut parts: Vec<(K, V)> =
            self.parts.rows().into_iter().map(|(part, value)| (part.key, value)).collect();
        parts.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
        let rows = parts.chunk_by(|a, b| a.0 == b.0);
        rows.filter_map(|parts| Some((parts[0].0, merge_all(parts.iter().map(|part| part.1))?))).collect()
    }
}

/// What parts come to; nothing where there is none.
pub(crate) fn merge_all<V: Merge>(parts: impl IntoIterator<Item = V>) -> Option<V> {
    parts.into_iter().reduce(|mut sum, part| {
        sum.merge(&part);
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_PARTITIONS;

    #[test]
    fn each_lane_has_its_parts_in_a_partition_of_its_own() {
        // Goal: lanes that write one row never meet. Method: the partitions of the parts of many rows, for each sharing.
        for sharing in [1, 2, 3, 64] {
            let mut table = PerLane::<u16, u64>::new("counts", 0, 1_000, &Layout::default());
            table.set_sharing(sharing);
            for (lane, key) in (0..MAX_LANES).flat_map(|lane| (0..50).map(move |key| (lane, key))) {
                let place = table.parts().place(&table.part_of(lane, key));
                assert_eq!(place.partition, lane / sharing * sharing % MAX_PARTITIONS);
                assert_eq!(place, table.any().place_of(table.part_of(lane, key).as_bytes()));
            }
            let parts: Vec<_> = table.parts_of(MAX_LANES, 7).collect();
            assert!((0..MAX_LANES).all(|lane| parts.contains(&table.part_of(lane, 7))));
            assert_eq!(parts.len(), MAX_LANES.div_ceil(sharing), "none is merged twice");
        }
    }
}
