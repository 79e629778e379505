//! `once`: no delta counts twice, whatever is sent again.

use pannier_runtime::ring::Store;

use super::{Broken, broken, cell, keys};
use crate::journal::{ById, Entries, Ids};
use crate::provenance::Cell;

/// The transactions that wrote one key.
pub(super) struct History {
    /// By the hash of a cell: its place in the list, counted from 1. The empty list is at 0.
    places: ById<u64>,
    /// The writers.
    pub(super) writers: Ids,
}

impl History {
    /// Whether the key has ever been `cell` in this history.
    pub(super) fn holds(&self, cell: &Cell) -> bool {
        self.places.get(&cell.hash) == Some(&cell.count)
    }
}

/// The history of each key of a store.
pub(super) fn histories(entries: &Entries, store: &Store) -> Result<Vec<History>, Broken> {
    keys().map(|key| history(entries, cell(store, key))).collect()
}

/// The history that a cell stands for, from its hash and the journal.
pub(super) fn history(entries: &Entries, cell: Cell) -> Result<History, Broken> {
    let (mut hash, mut place) = (cell.hash, cell.count);
    let mut history = History { places: ById::default(), writers: Ids::default() };
    history.places.insert(0, 0);
    while hash != 0 {
        let Some(&(writer, before)) = entries.writers.get(&hash) else {
            return broken("abort", format!("{hash:x} was never committed"));
        };
        if !history.writers.insert(writer) || place == 0 {
            return broken("once", format!("transaction {writer:x} counts twice"));
        }
        history.places.insert(hash, place);
        (hash, place) = (before, place - 1);
    }
    if place == 0 { Ok(history) } else { broken("once", format!("a cell counts {place} writes too many")) }
}
