//! `closure`: what a surviving transaction read or overwrote survives, in the same order.

use super::{Broken, Survey, broken};

pub(super) fn check(survey: &Survey<'_>) -> Result<(), Broken> {
    for histories in survey.heads.iter().flatten() {
        for id in histories.iter().flat_map(|history| &history.writers) {
            let transaction = &survey.entries.transactions[id];
            let touched = transaction.written.iter().chain(&transaction.read);
            let lost = touched.into_iter().find(|(key, cell)| !histories[*key as usize].holds(cell));
            if let Some((key, cell)) = lost {
                let stage = transaction.stage;
                return broken(
                    "closure",
                    format!("{id:x} of stage {stage} survives, but not version {} of key {key}", cell.count),
                );
            }
        }
    }
    Ok(())
}
