//! The bench: one transaction that can be tried again and again, from the same state, on any instance.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pannier_runtime::clock::Nanos;
use pannier_runtime::packet::Pool;
use pannier_runtime::state::AnyState;
use pannier_runtime::txn::Workspace;
use pannier_runtime::{Direction, Frame, Nf, Packet, Txn, TxnResult, Verdict};

use super::outcome::{Outcome, RowKey};

/// What a transaction is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// A frame.
    Frame(Direction, Vec<u8>),
    /// The removal of idle rows from a partition.
    Sweep(usize),
}

/// A transaction before it has begun.
pub(super) struct Bench<'a, N: Nf> {
    pub(super) act: Act,
    pub(super) state: &'a N::State,
    pub(super) before: Workspace,
    pub(super) now: Nanos,
}

/// A run on the bench.
pub(super) struct Tried {
    pub(super) outcome: Outcome,
    /// New rows that it asked room for.
    pub(super) new_rows: usize,
    /// The one that was refused.
    pub(super) refused: Option<RowKey>,
}

impl<N: Nf> Bench<'_, N> {
    /// Runs the transaction on an instance.
    ///
    /// # Errors
    /// What the network function panicked with.
    pub(super) fn on(&self, nf: &N) -> Result<Outcome, String> {
        self.refusing(nf, None).map(|tried| tried.outcome)
    }

    /// Runs the transaction on an instance and refuses one of its new rows.
    ///
    /// # Errors
    /// What the network function panicked with.
    pub(super) fn refusing(&self, nf: &N, refuse: Option<usize>) -> Result<Tried, String> {
        let (mut work, mut pool) = (self.before.clone(), Pool::default());
        let mut txn = Txn::new(&mut work, &mut pool, self.now);
        refuse.into_iter().for_each(|number| txn.refuse_new_row(number));
        let mut packet = Packet::new(match &self.act {
            Act::Frame(_, bytes) => bytes,
            Act::Sweep(_) => &[],
        });
        let said = catch_unwind(AssertUnwindSafe(|| act(nf, &self.act, &mut packet, self.state, &mut txn)));
        let said = said.map_err(|payload| words(&*payload))?;
        let refused = txn.refused_row().map(|(table, key)| (table, key.to_vec()));
        let new_rows = txn.new_rows();
        let state: &dyn AnyState = self.state;
        Ok(Tried { outcome: Outcome::new(said, packet.frame(), &work, state), new_rows, refused })
    }
}

fn act<N: Nf>(
    nf: &N,
    act: &Act,
    packet: &mut Packet,
    state: &N::State,
    txn: &mut Txn<'_>,
) -> TxnResult<Verdict> {
    match act {
        Act::Frame(direction, _) => {
            packet.meta.direction = *direction;
            nf.process(&mut Frame::new(packet), state, txn)
        }
        Act::Sweep(partition) => nf.sweep(state, txn, *partition).map(|()| Verdict::Drop("swept")),
    }
}

/// What a panic says.
fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref().cloned()).unwrap_or_else(|| "without a message".to_owned())
}
