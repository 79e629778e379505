//! Rehearsals, for the feature `testing`: what a transaction does on a copy of its workspace, or when a new row of it
//! is refused.

use super::{Txn, Workspace};
use crate::state::{Plain, Table};

/// Counts the new rows that a transaction asks room for, and refuses one of them if it is told to.
#[derive(Clone, Debug, Default)]
pub(super) struct NewRows {
    asked: usize,
    refuse: Option<usize>,
    refused: Option<(u8, Vec<u8>)>,
}

impl Txn<'_> {
    /// A copy of the workspace as this transaction has left it so far: a transaction begun on the copy sees the same
    /// rows and draws the same random numbers, and nothing of it comes back.
    pub fn fork(&self) -> Workspace {
        self.work.clone()
    }

    /// Refuses room to the new row with this number, counted from 0, as a full table would.
    pub fn refuse_new_row(&mut self, number: usize) {
        self.new_rows.refuse = Some(number);
    }

    /// How many new rows this transaction has asked room for; each of them could be refused.
    pub fn new_rows(&self) -> usize {
        self.new_rows.asked
    }

    /// The row that was refused because of [`Txn::refuse_new_row`]: its table's number and its key's bytes.
    pub fn refused_row(&self) -> Option<(u8, &[u8])> {
        self.new_rows.refused.as_ref().map(|(table, key)| (*table, key.as_slice()))
    }

    /// Whether a new row is to be refused.
    pub(super) fn refuses<K: Plain + Eq, V: Plain>(&mut self, table: &Table<K, V>, key: &K) -> bool {
        let number = self.new_rows.asked;
        self.new_rows.asked += 1;
        if self.new_rows.refuse != Some(number) {
            return false;
        }
        self.new_rows.refused = Some((super::number(table), key.as_bytes().to_vec()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Entropy;
    use crate::packet::{Direction, Pool};
    use crate::state;
    use crate::state::{Layout, State};
    use crate::txn::Abort;

    state! { struct Two { rows: u8 => u64 [8], } }

    #[test]
    fn a_fork_sees_and_draws_the_same_and_gives_nothing_back() {
        // Goal: a rehearsal is the transaction itself, without a trace. Method: run one on a fork, then for good.
        let state = Two::new(&Layout::default());
        let (mut work, mut pool) = (Workspace::new(Entropy::new(5), 1_000), Pool::default());
        let act = |txn: &mut Txn<'_>| {
            let drawn = txn.random();
            txn.put(&state.rows, 1, drawn).expect("room");
            txn.emit(b"frame", Direction::Inbound);
            drawn
        };
        let mut txn = Txn::new(&mut work, &mut pool, 7);
        txn.put(&state.rows, 0, 9).expect("room");
        let mut fork = txn.fork();
        let mut beside = Pool::default();
        let mut rehearsed = Txn::new(&mut fork, &mut beside, 7);
        assert_eq!(rehearsed.peek(&state.rows, &0).expect("no conflict").map(|value| *value), Some(9));
        let drawn = act(&mut rehearsed);
        assert!(txn.peek(&state.rows, &1).expect("no conflict").is_none() && txn.fork().emitted.is_empty());
        assert_eq!(drawn, act(&mut txn));
        let written = |work: &Workspace| {
            let mut bytes = Vec::new();
            work.writes.encode(&mut bytes);
            bytes
        };
        assert_eq!((written(&fork), fork.entropy), (written(&work), work.entropy));
    }

    #[test]
    fn the_row_that_is_to_be_refused_is_refused_and_no_other() {
        // Goal: each refusal can be tried alone. Method: three new rows and one that is there, each number in turn.
        let state = Two::new(&Layout { partitions: 4, hash_seed: 1 });
        for refused in 0..4 {
            let (mut work, mut pool) = (Workspace::new(Entropy::new(5), 1_000), Pool::default());
            let mut txn = Txn::new(&mut work, &mut pool, 7);
            txn.refuse_new_row(refused);
            let said: Vec<_> = [1, 2, 2, 3].map(|key| txn.put(&state.rows, key, 1)).into();
            let expected = match refused {
                0 => vec![Err(Abort::TABLE_FULL), Ok(()), Ok(()), Ok(())],
                1 => vec![Ok(()), Err(Abort::TABLE_FULL), Ok(()), Ok(())],
                2 => vec![Ok(()), Ok(()), Ok(()), Err(Abort::TABLE_FULL)],
                _ => vec![Ok(()); 4],
            };
            let asked = if refused == 1 { 4 } else { 3 }; // asked for again after the refusal
            assert_eq!((said, txn.new_rows()), (expected, asked));
            assert_eq!(txn.refused_row().is_some(), refused < 3);
            assert_eq!(work.writes.read().len() == 4, refused < 3);
        }
    }
}
