//! The model: the same scripts, one after the other, on maps of the standard library.

use std::collections::{BTreeMap, HashSet};

use pannier_runtime::ring::Store;
use pannier_runtime::state::AnyTable;

use super::{Broken, Scene, broken, cell, keys, once};
use crate::journal::{Entries, Transaction};
use crate::provenance::{Cell, Cells, Script};

/// One stage's state.
#[derive(Default)]
struct Model {
    cells: BTreeMap<u64, Cell>,
    /// Values and when they expire.
    fleeting: BTreeMap<u64, (u64, u64)>,
    sums: BTreeMap<u64, u64>,
}

impl Model {
    /// Runs a transaction, which must see what it saw.
    fn run(&mut self, id: u64, done: &Transaction) -> Result<(), String> {
        let Some(packet) = done.packet else {
            self.cells.extend(done.written.iter().copied());
            self.fleeting.retain(|key, _| !done.removed.contains(key));
            return Ok(());
        };
        let script = Script::of(packet, done.stage);
        for (key, writes) in script.touches {
            let old = self.cells.get(&key).copied().unwrap_or_default();
            let saw = done.read.iter().find(|(read, _)| *read == key).map(|(_, cell)| *cell);
            if saw != Some(old) {
                return Err(format!("packet {packet} saw {saw:?} at key {key}, the model has {old:?}"));
            }
            if writes {
                self.cells.insert(key, old.written_by(id));
            }
        }
        if let Some((key, looks)) = script.sum {
            let sum = self.sums.entry(key).or_default();
            *sum = sum.wrapping_add(id);
            if looks && done.sum != Some(*sum) {
                return Err(format!("packet {packet} saw the sum {:x?}, the model has {sum:x}", done.sum));
            }
        }
        if let (Some(key), Some((_, value, expires))) = (script.fleeting, done.fleeting) {
            self.fleeting.insert(key, (value, expires));
        }
        Ok(())
    }
}

/// Runs what survives of each stage, in the order of its commits, and compares the rows.
pub(super) fn check(scene: &impl Scene, entries: &Entries, now: u64) -> Result<(), Broken> {
    for stage in 0..scene.plan().stages() {
        let Some(store) = scene.up(stage).and_then(|node| node.store(stage)) else { continue };
        let histories = once::histories(entries, store)?;
        let writers: HashSet<u64> = histories.iter().flat_map(|history| &history.writers).copied().collect();
        let mut survivors: Vec<(u64, &Transaction)> =
            writers.iter().map(|id| (*id, &entries.transactions[id])).collect();
        survivors.sort_by_key(|(_, done)| done.order);
        let mut model = Model::default();
        for (id, done) in survivors {
            model.run(id, done).or_else(|what| broken("closure", format!("stage {stage}: {what}")))?;
        }
        for key in keys() {
            let (found, expected) = (cell(store, key), model.cells.get(&key).copied().unwrap_or_default());
            if found != expected {
                return broken(
                    "closure",
                    format!("key {key} of stage {stage} is {found:?}, the model has {expected:?}"),
                );
            }
        }
        let sums = &store.state.downcast::<Cells>().expect("worlds run provenance").sums;
        let (found, expected) = (sums.rows(), Vec::from_iter(model.sums));
        if found != expected {
            return broken(
                "closure",
                format!("sums of stage {stage} are {found:x?}, the model has {expected:x?}"),
            );
        }
        let (found, live) =
            (live_rows(store, scene.plan().layout.partitions, now), |row: &(u64, u64)| row.1 > now);
        model.fleeting.retain(|_, row| live(row));
        if found != model.fleeting {
            let expected = &model.fleeting;
            return broken(
                "closure",
                format!("fleeting rows of stage {stage}: {found:?}, the model has {expected:?}"),
            );
        }
    }
    Ok(())
}

/// The fleeting rows that expire after `now`: by key their values and when they expire.
fn live_rows(store: &Store, partitions: usize, now: u64) -> BTreeMap<u64, (u64, u64)> {
    let cells = store.state.downcast::<Cells>().expect("worlds run provenance");
    let mut rows = BTreeMap::new();
    for partition in 0..partitions {
        cells.fleeting.visit(partition, &cells.fleeting.outside(), &mut |row| {
            let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            if row.expires > now {
                rows.insert(number(row.key), (number(row.value.unwrap_or_default()), row.expires));
            }
        });
    }
    rows
}
