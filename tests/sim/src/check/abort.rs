//! `abort`: an aborted attempt leaves no trace in state, packet or random numbers. (That no value comes from an
//! aborted attempt is seen where histories are read, in `once`.)

use super::{Broken, Survey, broken};

pub(super) fn check(survey: &Survey<'_>, released: &[Vec<u64>]) -> Result<(), Broken> {
    for path in released {
        for (at, id) in path.iter().enumerate() {
            if !survey.entries.transactions.contains_key(id) {
                return broken("abort", format!("a packet left with {id:x}, which was never committed"));
            }
            if path[..at].contains(id) {
                return broken("abort", format!("a packet left with two marks of transaction {id:x}"));
            }
        }
    }
    match &survey.entries.kept_random {
        Some(what) => broken("abort", what.clone()),
        None => Ok(()),
    }
}
