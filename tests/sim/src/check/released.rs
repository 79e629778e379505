//! `released`: every transaction of a released packet, and all it read, is in every later recovered state.

use super::{Broken, Scene, Survey, broken, cell};
use crate::journal::Entries;

pub(super) fn check(survey: &Survey<'_>, released: &[Vec<u64>]) -> Result<(), Broken> {
    for id in released.iter().flatten() {
        let transaction = &survey.entries.transactions[id];
        let Some(histories) = &survey.heads[transaction.stage] else { continue };
        let mut touched = transaction.written.iter().chain(&transaction.read);
        if let Some((key, cell)) = touched.find(|(key, cell)| !histories[*key as usize].holds(cell)) {
            let (stage, packet) = (transaction.stage, transaction.packet.unwrap_or_default());
            return broken(
                "released",
                format!(
                    "stage {stage} forgot version {} of key {key}, which packet {packet} left with",
                    cell.count
                ),
            );
        }
    }
    Ok(())
}

/// A packet leaves when what it did and saw is on every node of the groups: each one that is up must have it now.
pub(super) fn at_once(scene: &impl Scene, entries: &Entries, paths: &[Vec<u64>]) -> Result<(), Broken> {
    for transaction in paths.iter().flatten().filter_map(|id| entries.transactions.get(id)) {
        let stage = transaction.stage;
        for node in scene.plan().group(stage) {
            let Some(store) = scene.up(node).and_then(|node| node.store(stage)) else { continue };
            let mut touched = transaction.written.iter().chain(&transaction.read);
            if let Some((key, seen)) = touched.find(|(key, seen)| cell(store, *key).count < seen.count) {
                let (packet, version) = (transaction.packet.unwrap_or_default(), seen.count);
                return broken(
                    "released",
                    format!(
                        "packet {packet} left, and node {node} lacks version {version} of key {key} of stage {stage}"
                    ),
                );
            }
        }
    }
    Ok(())
}
