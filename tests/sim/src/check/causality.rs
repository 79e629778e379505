//! `causality`: a surviving effect of a packet implies its effects at all stages before.

use super::{Broken, Survey, broken};

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
