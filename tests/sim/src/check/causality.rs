//! `causality`: a surviving effect of a packet implies its effects at all stages before.

use pannier_runtime::ring::Node;

use super::{Broken, Survey, broken, cell, keys};
use crate::journal::Entries;

/// A unit is applied whole: what was written last at a node is not there without what the same packet did before it at
/// stages that the node holds too.
pub(super) fn locally(
    node: &Node,
    stages: impl Iterator<Item = usize>,
    entries: &Entries,
) -> Result<(), Broken> {
    for (stage, store) in stages.filter_map(|stage| Some((stage, node.store(stage)?))) {
        let last = keys().filter_map(|key| entries.writers.get(&cell(store, key).hash));
        for transaction in last.filter_map(|(id, _)| entries.transactions.get(id)) {
            for earlier in transaction.path.iter().filter_map(|id| entries.transactions.get(id)) {
                let Some(before) = node.store(earlier.stage) else { continue };
                if earlier.written.iter().any(|(key, written)| cell(before, *key).count < written.count) {
                    let (index, packet) = (node.index(), transaction.packet.unwrap_or_default());
                    let there = earlier.stage;
                    return broken(
                        "causality",
                        format!(
                            "node {index} has what stage {stage} did for packet {packet}, not what {there} did"
                        ),
                    );
                }
            }
        }
    }
    Ok(())
}

pub(super) fn check(survey: &Survey<'_>) -> Result<(), Broken> {
    let survives = |id: &u64| {
        let transaction = &survey.entries.transactions[id];
        let Some(histories) = &survey.heads[transaction.stage] else { return true };
        transaction.written.iter().all(|(key, cell)| histories[*key as usize].holds(cell))
    };
    for id in survey.heads.iter().flatten().flatten().flat_map(|history| &history.writers) {
        let transaction = &survey.entries.transactions[id];
        if let Some(earlier) = transaction.path.iter().find(|earlier| !survives(earlier)) {
            let (here, there) = (transaction.stage, survey.entries.transactions[earlier].stage);
            let packet = transaction.packet.unwrap_or_default();
            return broken(
                "causality",
                format!(
                    "what stage {here} did for packet {packet} survives, what stage {there} did does not"
                ),
            );
        }
    }
    Ok(())
}
