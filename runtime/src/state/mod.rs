//! State: what a network function must not lose, as typed tables in partitions.
//!
//! [`state!`](crate::state!) declares a state. Rows are typed; only changes are bytes ([`Change`]), and one function
//! takes them in, [`AnyTable::apply`], whether they come from a commit, a unit, a snapshot or a log.

mod cells;
mod claims;
mod fetch;
mod hash;
mod per_lane;
mod table;

use std::any::Any;
use std::fmt;

pub(crate) use claims::Claims;
pub use claims::Held;
pub(crate) use hash::spread;
pub use hash::{Place, Placement, hash_bytes};
pub(crate) use per_lane::merge_all;
pub use per_lane::{Merge, Part, PerLane};
pub use table::{NEVER, Plain, Table};

use crate::clock::Nanos;
use crate::limits::MAX_PARTITIONS;

/// How the stores of a chain are cut: the same on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Partitions of each store, 1 … 64.
    pub partitions: usize,
    /// Seed of the hash that places keys.
    pub hash_seed: u64,
}

impl Default for Layout {
    fn default() -> Self {
        Layout { partitions: MAX_PARTITIONS, hash_seed: 0x7061_6e6e_6965_7221 }
    }
}

impl Layout {
    /// The placement of keys that this layout asks for.
    pub fn placement(&self) -> Placement {
        Placement::new(self.hash_seed, self.partitions)
    }
}

/// One row's change, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The table's number in its state.
    pub table: u8,
    /// The key's bytes.
    pub key: &'a [u8],
    /// The new value's bytes; `None` deletes the row.
    pub value: Option<&'a [u8]>,
    /// When the row expires, or [`NEVER`].
    pub expires: Nanos,
}

/// Where a key lives, and where its row may stand meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Where the key lives.
    pub place: Place,
    /// A slot of its partition: a hint.
    slot: usize,
}

impl From<Place> for Site {
    fn from(place: Place) -> Self {
        Site { place, slot: usize::MAX }
    }
}

/// Sizes of a table's rows in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowBytes {
    /// Bytes of a key.
    pub key: usize,
    /// Bytes of a value.
    pub value: usize,
}

/// Nothing but [`Table`] is a table: rows are touched by what holds them only.
mod sealed {
    pub trait Sealed {}
    impl<K, V> Sealed for super::Table<K, V> {}
}

/// A table whose types are not known: what replicas, snapshots, digests and reports see.
pub trait AnyTable: Send + Sync + fmt::Debug + sealed::Sealed {
    /// The table's name.
    fn name(&self) -> &'static str;
    /// The table's number in its state.
    fn number(&self) -> u8;
    /// Rows in the table, expired ones included.
    fn len(&self) -> usize;
    /// Whether the table has no rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// How many rows the table takes: a bound for new keys at the head. Replicas take what the head took.
    fn capacity(&self) -> usize;
    /// Sizes of the rows.
    fn row_bytes(&self) -> RowBytes;
    /// Where a key, given as bytes, lives.
    fn place_of(&self, key: &[u8]) -> Place;
    /// The proof that rows may be read, for whoever comes from outside of any transaction.
    ///
    /// # Panics
    /// While several shards share the store.
    fn outside(&self) -> Held;
    /// Says whether several shards share the store. The runtime alone can call it: who shows `whole` has all of it.
    fn set_shared(&self, shared: bool, whole: &Held);
    /// [`AnyTable::place_of`], and where `held` covers it the slot of the key's row, which the processor fetches.
    fn locate(&self, key: &[u8], held: &Held) -> Site;
    /// Takes a change in, in a partition that `held` covers. Lengths must be those of [`AnyTable::row_bytes`]; others
    /// change nothing. The place must be that of the key.
    fn apply(&self, change: &Change<'_>, site: Site, held: &Held);
    /// Makes room for so many more rows in a partition that `held` covers, in one go.
    fn reserve(&self, partition: usize, rows: usize, held: &Held);
    /// Shows each row of a partition that `held` covers, in no order.
    fn visit(&self, partition: usize, held: &Held, visit: &mut dyn FnMut(Change<'_>));
    /// Shows the keys of a partition that have expired at `now`, oldest first, at most `most`.
    fn visit_expired(
        &self,
        partition: usize,
        now: Nanos,
        most: usize,
        held: &Held,
        visit: &mut dyn FnMut(&[u8]),
    );
}

/// A state whose type is not known.
pub trait AnyState: Any + Send + Sync + fmt::Debug {
    /// How many tables there are.
    fn tables(&self) -> usize;
    /// A table by its number.
    fn table(&self, number: usize) -> Option<&dyn AnyTable>;
    /// A copy with the same rows.
    fn boxed_clone(&self) -> Box<dyn AnyState>;
}

impl Clone for Box<dyn AnyState> {
    fn clone(&self) -> Self {
        (**self).boxed_clone()
    }
}

impl dyn AnyState {
    /// The state as the type `S` that it was made as.
    pub fn downcast<S: State>(&self) -> Option<&S> {
        (self as &dyn Any).downcast_ref()
    }

    /// A table by its number, to write to. The tables of a state are fields of it: whoever has the state has its tables, and
    /// no other state has them too.
    ///
    /// # Panics
    /// Where a state that was written by hand gives out a table that lies elsewhere.
    pub(crate) fn own_table(&self, number: usize) -> Option<&dyn AnyTable> {
        let table = self.table(number)?;
        let start = (&raw const *self).cast::<u8>().addr();
        let at = (&raw const *table).cast::<u8>().addr();
        let is_inside = at >= start && at + size_of_val(table) <= start + size_of_val(self);
        assert!(is_inside, "table {number} is not a field of its state");
        Some(table)
    }

    /// All tables in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &dyn AnyTable> {
        (0..self.tables()).filter_map(|number| self.table(number))
    }

    /// A number that two states with the same rows share: independent of the order of rows, partitions and nodes.
    ///
    /// # Panics
    /// While several shards share the store.
    pub fn digest(&self, layout: &Layout) -> u64 {
        let mut sum = 0u64;
        for table in self.iter() {
            for partition in 0..layout.partitions {
                table.visit(partition, &table.outside(), &mut |row| {
                    let key = hash_bytes(u64::from(row.table) + 1, row.key);
                    let value = hash_bytes(key, row.value.unwrap_or_default());
                    sum = sum.wrapping_add(hash_bytes(value, &row.expires.to_le_bytes()));
                });
            }
        }
        sum
    }
}

/// A network function's state: a struct of tables. Declare it with [`state!`](crate::state!).
pub trait State: AnyState + Sized {
    /// An empty state.
    fn new(layout: &Layout) -> Self;
}

/// Declares a state: a struct of tables, each `name: Key => Value [capacity]`. Rows that many packets add to and few look at are
/// best kept in parts: `name: Key => Value [capacity] per_lane` is a [`PerLane`], and takes so many parts.
///
/// ```
/// pannier_runtime::state! {
///     /// What a counter must not lose.
///     pub struct Counters {
///         /// Packets per VLAN.
///         packets: u16 => u64 [4_096],
///     }
/// }
/// ```
#[macro_export]
macro_rules! state {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident : $key:ty => $value:ty [$capacity:expr] $($per_lane:ident)?),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        $vis struct $name { $($(#[$field_meta])* pub $field: $crate::table!($key => $value $(, $per_lane)?),)+ }

        impl $crate::state::State for $name {
            fn new(layout: &$crate::state::Layout) -> Self {
                let mut number = 0u8;
                let mut next = || { number += 1; number - 1 };
                $name { $($field: <$crate::table!($key => $value $(, $per_lane)?)>::new(stringify!($field), next(), $capacity, layout),)+ }
            }
        }

        const _: () = assert!([$(stringify!($field)),+].len() <= $crate::limits::MAX_TABLES, "too many tables");

        impl $crate::state::AnyState for $name {
            fn tables(&self) -> usize {
                [$(stringify!($field)),+].len()
            }
            fn table(&self, number: usize) -> Option<&dyn $crate::state::AnyTable> {
                let mut rest = number;
                $(if rest == 0 {
                    return Some(self.$field.any());
                }
                rest = rest.wrapping_sub(1);)+
                let _ = rest;
                None
            }
            fn boxed_clone(&self) -> Box<dyn $crate::state::AnyState> {
                Box::new(self.clone())
            }
        }
    };
}

/// The type of a table of a [`state!`](crate::state!).
#[doc(hidden)]
#[macro_export]
macro_rules! table {
    ($key:ty => $value:ty) => { $crate::state::Table<$key, $value> };
    ($key:ty => $value:ty, per_lane) => { $crate::state::PerLane<$key, $value> };
}

/// The state of a network function that keeps nothing.
impl State for () {
    fn new(_: &Layout) -> Self {}
}

impl AnyState for () {
    fn tables(&self) -> usize {
        0
    }
    fn table(&self, _: usize) -> Option<&dyn AnyTable> {
        None
    }
    fn boxed_clone(&self) -> Box<dyn AnyState> {
        Box::new(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::delta;

    /// A state that gives out a table which is not its own.
    #[derive(Debug)]
    struct Lender(&'static Table<u8, u8>);

    impl AnyState for Lender {
        fn tables(&self) -> usize {
            1
        }
        fn table(&self, number: usize) -> Option<&dyn AnyTable> {
            (number == 0).then_some(self.0 as &dyn AnyTable)
        }
        fn boxed_clone(&self) -> Box<dyn AnyState> {
            Box::new(Lender(self.0))
        }
    }

    #[test]
    #[should_panic(expected = "is not a field of its state")]
    fn a_table_that_two_states_could_have_is_never_written() {
        // Goal: claims of one store protect all that it writes. Method: a state with a table that lies elsewhere.
        let shared = Box::leak(Box::new(Table::<u8, u8>::new("shared", 0, 8, &Layout::default())));
        let mut changes = Vec::new();
        delta::put_change(&mut changes, &Change { table: 0, key: &[1], value: Some(&[2]), expires: NEVER });
        delta::apply(&mut Lender(shared), &changes);
    }
}
