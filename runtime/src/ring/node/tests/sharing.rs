//! Lanes of one node in the hands of several shards.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::time::Duration;

use super::*;

/// Counts all frames in one row, and panics at those that ask for it.
fn fragile() -> Arc<dyn AnyNf> {
    Arc::new(nf(|frame, state: &Counts, txn| {
        txn.update(&state.counts, 0, |count| count.unwrap_or(0) + 1)?;
        if frame.bytes()[1] == ABORT {
            resume_unwind(Box::new("on purpose"));
        }
        Ok(Verdict::Forward)
    }))
}

#[test]
fn a_lane_that_panics_stops_no_other() {
    // Goal: what a lane had claimed is free once its network function has panicked; the lane does nothing more, and the
    // node gives nothing away. Method: one lane panics at a row that another then writes.
    let mut plan = Plan::new(1, 1).unwrap();
    plan.lanes = 2;
    let view = Orchestrator::new(&plan).view().clone();
    let node = Arc::new(SharedNode::from(Node::new(0, plan, Arc::from([fragile()]), view.clone())));
    let now = Now { timer: 1, wall: 1 };
    let give = move |node: &SharedNode, lane: u8, ask: u8, out: &mut Output| {
        let mut packet = frame(lane, ask, 0, 60);
        packet.meta.lane = lane;
        node.turn(usize::from(lane), &mut vec![packet], now, false, out);
    };
    let panicked = catch_unwind(AssertUnwindSafe(|| give(&node, 0, ABORT, &mut Output::default())));
    assert!(panicked.is_err() && node.has_panicked());

    let (done, is_done) = mpsc::channel();
    let other = Arc::clone(&node);
    std::thread::spawn(move || {
        let mut out = Output::default();
        give(&other, 1, WRITE, &mut out);
        done.send(out.forward.len()).unwrap();
    });
    // Its unit goes to the replica; the frame is held.
    assert_eq!(is_done.recv_timeout(Duration::from_secs(20)), Ok(1), "the other lane waits for good");

    let mut out = Output::default();
    give(&node, 0, WRITE, &mut out);
    assert!(out.forward.is_empty(), "a lane went on in the middle of a transaction");
    let (stats, inside) = node.bury(0);
    assert_eq!((stats.lost, stats.refused.total(), inside), (1, 1, 1), "the frame that it was at is inside");
    let mut newer = view;
    newer.number += 1;
    newer.members[1].standing = Standing::Dead;
    node.adopt(&newer, &mut out);
    assert!(node.is_up() && out.control.is_empty());
    assert_eq!(node.bury(1).1, 1, "the frame that the other lane holds");
    assert_eq!(node.bury(1).1, 0, "nothing is counted twice");
}

#[test]
fn a_lane_that_waits_much_for_another_gets_no_more() {
    // Goal: what is tried again for each unit of another lane stays little. Method: a replica gets units of one lane that all
    // come behind one of the other lane, which is late: there is no room any more, and then there is again.
    let mut plan = Plan::new(1, 1).unwrap();
    plan.lanes = 2;
    let view = Orchestrator::new(&plan).view().clone();
    let [head, replica] =
        [0, 1].map(|at| SharedNode::from(Node::new(at, plan, Arc::from([fragile()]), view.clone())));
    let now = Now { timer: 1, wall: 1 };
    let unit = |lane: u8| {
        let (mut packet, mut out) = (frame(lane, WRITE, 0, 60), Output::default());
        packet.meta.lane = lane;
        head.turn(usize::from(lane), &mut vec![packet], now, false, &mut out);
        assert_eq!(out.forward.len(), 1);
        out.forward
    };
    let take = |lane: usize, mut units: Vec<Packet>| {
        let state = replica.turn(lane, &mut units, now, false, &mut Output::default());
        state.expect("there was something to do").has_room
    };
    let (late, mut turns) = (unit(1), 0);
    while take(0, unit(0)) {
        turns += 1;
        assert!(turns < plan.limits.waiting / 4, "it takes ever more");
    }
    assert!(turns > 32, "a burst finds room");
    assert!(take(1, late) && take(0, Vec::new()));
}
