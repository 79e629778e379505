//! The partitions of a table, as memory that several cores may touch: each under its claim.
#![allow(unsafe_code)] // rows are read and written behind `&`, and only claims say by whom

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use super::claims::Held;

/// One `T` per partition. Whoever shows a [`Held`] that covers a partition may touch it.
///
/// What makes this sound, beside the checks here:
/// - the tables of a state belong to one store, and the runtime shows them no [`Held`] but that store's: a table that is
///   written is a field of its state (`AnyState::own_table`), nothing else is a table (`AnyTable` is sealed), only this
///   crate can make a [`Held`], and one that claims nothing is refused while the store is shared;
/// - a reference that [`Cells::read`] gave out is gone before its lane writes or releases the partition: outside of this
///   crate it reaches the network function only, which returns before the commit; the runtime keeps none.
pub(super) struct Cells<T> {
    cells: Box<[UnsafeCell<T>]>,
    /// Other lanes may touch the partitions too.
    shared: AtomicBool,
}

// SAFETY: a `T` is touched only under its partition's claim, and claims of different threads exclude each other: many
// read (hence `Sync`), or one writes (hence `Send`).
unsafe impl<T: Send + Sync> Sync for Cells<T> {}

impl<T> Cells<T> {
    pub(super) fn new(count: usize, make: impl Fn(usize) -> T) -> Self {
        Cells {
            cells: (0..count).map(|partition| UnsafeCell::new(make(partition))).collect(),
            shared: AtomicBool::new(false),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// Says whether other lanes may touch the partitions. Nobody else may be at them meanwhile, and `whole` shows it.
    ///
    /// # Panics
    /// Where `whole` is not [`Held::whole`].
    pub(super) fn set_shared(&self, shared: bool, whole: &Held) {
        assert!(!whole.is_shared() && whole.may_write(0), "only who has a store to himself may share it");
        self.shared.store(shared, Ordering::Relaxed);
    }

    /// The proof for whoever looks at rows from outside of any transaction.
    ///
    /// # Panics
    /// While other lanes may be at the partitions.
    pub(super) fn outside(&self) -> Held {
        assert!(
            !self.shared.load(Ordering::Relaxed),
            "rows of a shared store are read through a transaction"
        );
        Held::to_look()
    }

    /// Refuses what was held when the store was not shared.
    #[inline]
    fn accepts(&self, held: &Held) -> bool {
        held.is_in_shared() || !self.shared.load(Ordering::Relaxed)
    }

    /// The partition, to read.
    ///
    /// # Panics
    /// Where `held` does not cover it.
    #[inline]
    pub(super) fn read(&self, partition: usize, held: &Held) -> &T {
        assert!(held.may_read(partition) && self.accepts(held), "partition {partition} is not claimed");
        let cell = self.cells[partition].get();
        // SAFETY: the claim keeps others from writing, and this lane writes only when the borrow has ended; see the type.
        unsafe { &*cell }
    }

    /// Lets `change` write the partition.
    ///
    /// # Panics
    /// Where `held` does not cover it.
    #[inline]
    pub(super) fn write<R>(&self, partition: usize, held: &Held, change: impl FnOnce(&mut T) -> R) -> R {
        assert!(held.may_write(partition) && self.accepts(held), "partition {partition} is not claimed");
        let cell = self.cells[partition].get();
        // SAFETY: the claim keeps all others away, this lane's own borrows have ended (see the type), and `change` can't
        // come back here: it is given no `Held`.
        change(unsafe { &mut *cell })
    }
}
