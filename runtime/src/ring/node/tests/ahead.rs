//! What a node looks at ahead of its transactions.

use std::sync::Mutex;

use super::*;
use crate::nf::{Ahead, Frame, Nf};
use crate::txn::{Txn, TxnResult};

crate::state! {
    struct Wide {
        rows: u8 => [u64; 64] [256],
    }
}

/// Writes a row for each frame, and keeps a list of what it was asked.
#[derive(Default)]
struct Listing(Mutex<Vec<(&'static str, u8)>>);

impl Listing {
    fn note(&self, what: &'static str, frame: &[u8]) {
        self.0.lock().expect("nobody panics").push((what, frame[0]));
    }

    fn take(&self) -> Vec<(&'static str, u8)> {
        std::mem::take(&mut self.0.lock().expect("nobody panics"))
    }
}

impl Nf for Arc<Listing> {
    type State = Wide;

    fn process(&self, frame: &mut Frame<'_>, state: &Wide, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        self.note("process", frame.bytes());
        txn.put(&state.rows, frame.bytes()[0], [7; 64])?;
        Ok(Verdict::Forward)
    }

    fn look_ahead(&self, frame: &[u8], _: Direction, state: &Wide, ahead: &Ahead<'_>) {
        self.note("look", frame);
        ahead.look(&state.rows, &frame[0]);
    }
}

#[test]
fn a_burst_is_looked_up_before_its_transactions_where_the_store_is_large_and_not_shared() {
    // Goal: rows are fetched for a whole burst at once, nobody is slowed down where they are in the cache anyway, and nothing is
    // looked at without a claim. Method: a function that lists what it is asked; a small store, a large one, a shared one.
    let listing = Arc::new(Listing::default());
    let plan = plan(1, 0);
    let view = Orchestrator::new(&plan).view().clone();
    let mut node = Node::new(0, plan, Arc::from([Arc::new(Arc::clone(&listing)) as Arc<dyn AnyNf>]), view);
    let (now, mut out) = (Now { timer: 1, wall: 1 }, Output::default());
    let burst = |keys: std::ops::Range<u8>| keys.map(|key| frame(key, WRITE, 0, 60)).collect::<Vec<_>>();
    node.accept(&mut burst(0..255), now, &mut out);
    node.accept(&mut vec![frame(255, WRITE, 0, 60)], now, &mut out);
    assert!(listing.take().iter().all(|(what, _)| *what == "process"));

    let digest = |node: &Node| node.store(0).expect("it is the head").state.digest(&plan.layout);
    let before = digest(&node);
    node.accept(&mut burst(3..5), now, &mut out);
    assert_eq!(listing.take(), [("look", 3), ("look", 4), ("process", 3), ("process", 4)]);
    assert_eq!(digest(&node), before);

    SharedNode::from(node).turn(0, &mut burst(3..5), now, false, &mut out);
    assert_eq!(listing.take(), [("process", 3), ("process", 4)]);
    assert_eq!(out.released.len(), 260);
}
