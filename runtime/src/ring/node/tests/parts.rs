//! Rows in parts, on threads.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::entropy::Entropy;
use crate::nf::{Frame, Nf};
use crate::state::{Layout, State};
use crate::txn::{Txn, TxnResult};

const LANES: usize = 4;
const THREADS: usize = 3;
const KEYS: u64 = 2;
/// What else a frame asks for: to take all away.
const TAKE: u8 = 3;

crate::state! {
    struct Sums {
        these: u8 => u64 [100] per_lane,
        those: u8 => u64 [100] per_lane,
        taken: u8 => u64 [2],
    }
}

/// Adds to two rows in parts at once, looks whether both have come to the same, or takes both away.
struct Adding {
    sharing: usize,
    differing: AtomicU64,
}

impl Nf for Arc<Adding> {
    type State = Sums;

    fn state(&self, layout: &Layout) -> Sums {
        let mut state = Sums::new(layout);
        state.these.set_sharing(self.sharing);
        state
    }

    fn process(&self, frame: &mut Frame<'_>, state: &Sums, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        let (key, ask) = (frame.bytes()[0], frame.bytes()[1]);
        let both = match ask {
            LOOK => [txn.merged(&state.these, &key)?, txn.merged(&state.those, &key)?],
            TAKE => {
                let both = [txn.take_merged(&state.these, &key)?, txn.take_merged(&state.those, &key)?];
                txn.update(&state.taken, key, |sum| sum.unwrap_or(0) + both[0].unwrap_or(0))?;
                both
            }
            _ => {
                txn.merge(&state.these, key, 1)?;
                txn.merge(&state.those, key, 1)?;
                return Ok(Verdict::Forward);
            }
        };
        self.differing.fetch_add(u64::from(both[0] != both[1]), Ordering::Relaxed);
        Ok(Verdict::Forward)
    }
}

/// What is under way between a head and its replica, to each by lane; and what both have let out.
#[derive(Default)]
struct Links {
    to: [[Vec<Packet>; LANES]; 2],
    released: usize,
    out: Output,
}

impl Links {
    fn turn(&mut self, nodes: &[SharedNode; 2], lane: usize, now: Now) -> bool {
        let mut is_idle = true;
        for (at, node) in nodes.iter().enumerate() {
            let mut burst = std::mem::take(&mut self.to[at][lane]);
            let state = node.turn(lane, &mut burst, now, true, &mut self.out);
            is_idle &= state.is_some_and(|state| state.is_idle);
            let sent = self.out.forward.drain(..).chain(self.out.backward.drain(..));
            self.to[1 - at][lane].extend(sent);
            self.released += self.out.released.drain(..).count();
        }
        is_idle
    }
}

#[test]
fn whoever_looks_at_rows_in_parts_sees_whole_transactions() {
    // Goal: no part is missed, seen early or counted twice, and lanes that claim all their home at once neither stop each
    // other nor a replica. Method: threads add to two rows in each transaction, look at both and take both away, with parts
    // of one row shared otherwise than those of the other; then what was added has been taken or is there, at both nodes.
    for (partitions, sharing) in [(1, 1), (2, 2), (3, 3), (8, 1), (64, 2), (64, 1)] {
        let mut plan = plan(1, 1);
        (plan.lanes, plan.layout.partitions, plan.unit_frames) = (LANES, partitions, 5);
        let adding = Arc::new(Adding { sharing, differing: AtomicU64::new(0) });
        let nfs: Arc<[Arc<dyn AnyNf>]> = Arc::from([Arc::new(Arc::clone(&adding)) as Arc<dyn AnyNf>]);
        let view = Orchestrator::new(&plan).view().clone();
        let nodes = [0, 1].map(|at| SharedNode::from(Node::new(at, plan, Arc::clone(&nfs), view.clone())));
        let work = |thread: usize| {
            let (mut links, mut random) = (Links::default(), Entropy::new(thread as u64 + 1));
            let (mut added, mut sent) = (0, 0);
            for step in 1..600u64 {
                for lane in (thread..LANES).step_by(THREADS) {
                    for _ in 0..random.below(8) {
                        let ask = [WRITE, WRITE, WRITE, WRITE, LOOK, TAKE][random.below(6) as usize];
                        let mut packet = frame(random.below(KEYS) as u8, ask, 0, 60);
                        packet.meta.lane = lane as u8;
                        links.to[0][lane].push(packet);
                        (added, sent) = (added + u64::from(ask == WRITE), sent + 1);
                    }
                    links.turn(&nodes, lane, Now { timer: step * 10_000, wall: step });
                }
            }
            (links, added, sent)
        };
        let done: Vec<_> = std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        });
        let (mut links, mut added, mut sent) = (Links::default(), 0, 0_usize);
        for (part, more, frames) in done {
            for (all, part) in links.to.iter_mut().flatten().zip(part.to.into_iter().flatten()) {
                all.extend(part);
            }
            (added, sent, links.released) = (added + more, sent + frames, links.released + part.released);
        }
        // In each round at least one unit is applied that waited for another lane's, however unevenly the threads ran.
        let rests = (1..500 + sent as u64).any(|round| {
            let now = Now { timer: 10_000_000 + round * 3_000_000, wall: 1_000 };
            let busy = (0..LANES).filter(|&lane| !links.turn(&nodes, lane, now)).count();
            busy == 0
        });
        assert!(rests, "the lanes do not come to rest: {nodes:?}");
        assert_eq!((adding.differing.load(Ordering::Relaxed), links.released), (0, sent));
        let sums = nodes.map(|node| {
            let node = Node::from(node);
            assert_eq!(node.stats().lost, 0);
            let store = node.store(0).expect("it is in the group");
            let state = store.state.downcast::<Sums>().expect("of the function");
            let sum = |rows: Vec<(u8, u64)>| rows.iter().map(|row| row.1).sum::<u64>();
            let taken = sum(state.taken.rows());
            (taken + sum(state.these.rows()), taken + sum(state.those.rows()), state.taken.rows())
        });
        assert_eq!((sums[0].0, sums[0].1), (added, added));
        assert_eq!(sums[0], sums[1]);
    }
}
