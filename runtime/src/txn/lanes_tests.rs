//! Units of several lanes side by side against a model that takes them one by one, as they were committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::{Abort, Txn, TxnResult, Workspace, delta};
use crate::clock::Nanos;
use crate::entropy::Entropy;
use crate::packet::Pool;
use crate::state::{AnyState, Claims, Held, Layout, NEVER, State};

const IDLE: Nanos = 64;
const LANES: usize = 3;

crate::state! {
    struct Shared {
        timed: u8 => u32 [100],
        plain: u8 => u32 [100],
        sums: u8 => u32 [100] per_lane,
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Peek,
    Get,
    Update(u32),
    Merge(u32),
    Merged,
    TakeMerged,
    Put(u32),
    Delete,
}

#[derive(Clone, Debug)]
struct Attempt {
    lane: usize,
    acts: Vec<(usize, u8, Act)>,
    aborts: bool,
    closes: bool,
    pause: Nanos,
}

/// What was done, when, and what was seen.
type Done = (Nanos, (usize, u8, Act), Option<u32>);

fn attempts() -> impl Strategy<Value = Vec<Attempt>> {
    let act = prop_oneof![
        Just(Act::Peek),
        Just(Act::Get),
        any::<u32>().prop_map(Act::Update),
        any::<u32>().prop_map(Act::Merge),
        any::<u32>().prop_map(Act::Merge),
        any::<u32>().prop_map(Act::Merge),
        Just(Act::Merged),
        Just(Act::TakeMerged),
        any::<u32>().prop_map(Act::Put),
        Just(Act::Delete),
    ];
    let acts = prop::collection::vec((0usize..2, 0u8..4, act), 1..4);
    let one = (0..LANES, acts, prop::bool::weighted(0.2), prop::bool::weighted(0.2), 0u64..30);
    let one =
        one.prop_map(|(lane, acts, aborts, closes, pause)| Attempt { lane, acts, aborts, closes, pause });
    prop::collection::vec(one, 1..60)
}

/// Does it, and says what was seen.
fn perform(state: &Shared, txn: &mut Txn<'_>, (table, key, act): (usize, u8, Act)) -> TxnResult<Option<u32>> {
    let table = [&state.timed, &state.plain][table];
    match act {
        Act::Peek => Ok(txn.peek(table, &key)?.map(|value| *value)),
        Act::Get => txn.get(table, &key),
        Act::Update(more) => txn.update(table, key, |old| old.unwrap_or(7).wrapping_add(more)).map(Some),
        Act::Merge(more) => txn.merge(&state.sums, key, more).map(|()| None),
        Act::Merged => txn.merged(&state.sums, &key),
        Act::TakeMerged => txn.take_merged(&state.sums, &key),
        Act::Put(value) => txn.put(table, key, value).map(|()| None),
        // An expired row may be there to another lane, whose clock is behind.
        Act::Delete if txn.peek(table, &key)?.is_none() => Ok(None),
        Act::Delete => Ok(txn.delete(table, &key)?.then_some(0)),
    }
}

#[derive(Default)]
struct Model([BTreeMap<u8, (u32, Nanos)>; 3]);

impl Model {
    fn run(&mut self, (now, (table, key, act), seen): Done) {
        let table = if matches!(act, Act::Merge(_) | Act::Merged | Act::TakeMerged) { 2 } else { table };
        let idle = if table == 0 { IDLE } else { NEVER };
        let (rows, until) = (&mut self.0[table], now.saturating_add(idle));
        let stored = rows.get(&key).copied();
        let old = stored.filter(|row| row.1 > now);
        let value = old.map(|row| row.0);
        let (expected, row) = match act {
            Act::Get if old.is_some_and(|row| row.1 < now.saturating_add(idle - idle / 8)) => {
                (value, value.map(|value| (value, until)))
            }
            Act::Peek | Act::Get | Act::Merged => (value, stored),
            Act::TakeMerged => (value, None),
            Act::Update(more) => {
                let new = value.unwrap_or(7).wrapping_add(more);
                (Some(new), Some((new, until)))
            }
            Act::Merge(more) => (None, Some((value.map_or(more, |value| value.wrapping_add(more)), until))),
            Act::Put(value) => (None, Some((value, until))),
            Act::Delete => (value.map(|_| 0), stored.filter(|_| old.is_none())),
        };
        assert_eq!(seen, expected, "{act:?} of {key} in {table} at {now}");
        match row {
            Some(row) => drop(rows.insert(key, row)),
            None => drop(rows.remove(&key)),
        }
    }
}

struct Node {
    state: Shared,
    lanes: Vec<(Workspace, Vec<Done>)>,
    model: Model,
    now: Nanos,
}

impl Node {
    fn new(partitions: usize, capacity: usize) -> Self {
        let mut state = Shared::new(&Layout { partitions, hash_seed: 3 });
        state.timed.set_idle(Some(IDLE));
        state.plain.set_capacity(capacity);
        (&state as &dyn AnyState).iter().for_each(|table| table.set_shared(true, &Held::whole()));
        let claims = Arc::<Claims>::default();
        let lane = |lane| {
            let mut work = Workspace::new(Entropy::new(5), 60_000).on_lane(lane, LANES);
            work.held = Held::shared(Arc::clone(&claims), lane);
            (work, Vec::new())
        };
        Node { state, lanes: (0..LANES).map(lane).collect(), model: Model::default(), now: 1 }
    }

    /// Commits a lane's unit.
    fn close(&mut self, lane: usize) {
        let (work, done) = &mut self.lanes[lane];
        let mut delta = Vec::new();
        work.writes.encode(&mut delta);
        assert_eq!(delta::check(&self.state, &delta, work.writes.written()), Ok(()));
        delta::apply_held(&self.state, &delta, work.writes.sites(), &work.held);
        work.clear();
        done.drain(..).for_each(|done| self.model.run(done));
    }

    fn attempt(&mut self, attempt: &Attempt) {
        self.now += attempt.pause;
        for again in [false, true] {
            let (work, open) = &mut self.lanes[attempt.lane];
            let (beginning, mut pool, mut done) = (work.begin(), Pool::default(), Vec::new());
            let mut txn = Txn::new(work, &mut pool, self.now);
            for act in &attempt.acts {
                match perform(&self.state, &mut txn, *act) {
                    Ok(seen) => done.push((self.now, *act, seen)),
                    Err(Abort::TABLE_FULL) => {}
                    Err(_) => break,
                }
            }
            if work.conflicted() {
                assert!(!again, "nobody else holds anything");
                work.abort(&beginning, &mut pool);
                (0..LANES).for_each(|lane| self.close(lane));
                continue;
            }
            if attempt.aborts {
                work.abort(&beginning, &mut pool);
            } else {
                work.keep();
                open.extend(done);
            }
            break;
        }
        if attempt.closes {
            self.close(attempt.lane);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn units_side_by_side_are_as_if_one_came_behind_the_other(
        attempts in attempts(), partitions in prop::sample::select(vec![1, 2, 64]),
        capacity in prop::sample::select(vec![3, 100]),
    ) {
        // Goal: transactions of lanes that share rows are as if they came one by one, and what is merged is there once.
        // Method: random units of three lanes with real claims; at each commit a model runs the unit's transactions.
        let mut node = Node::new(partitions, capacity);
        attempts.iter().for_each(|attempt| node.attempt(attempt));
        (0..LANES).for_each(|lane| node.close(lane));
        let Node { state, mut model, now, .. } = node;
        (&state as &dyn AnyState).iter().for_each(|table| table.set_shared(false, &Held::whole()));
        for (table, key) in (0..2).flat_map(|table| (0..4).map(move |key| (table, key))) {
            let row = [&state.timed, &state.plain][table];
            let held = Held::whole();
            let found = row.row(row.place(&key), &key, &held).filter(|row| row.1 > now).map(|row| *row.0);
            model.run((now, (table, key, Act::Peek), found));
        }
        (0..4).for_each(|key| model.run((now, (0, key, Act::Merged), state.sums.inspect(&key))));
    }
}

#[test]
fn lanes_that_merge_into_one_row_do_not_meet_and_whoever_looks_waits_for_them() {
    // Goal: a shared counter costs no lane a wait, and a look at it is exact. Method: each lane merges while the others' units are
    // open; a look conflicts until they are committed, and then has the sum.
    let mut node = Node::new(64, 100);
    let act = |lane, act| Attempt { lane, acts: vec![(0, 7, act)], aborts: false, closes: false, pause: 1 };
    for lane in 0..LANES {
        node.attempt(&act(lane, Act::Merge(5)));
        let open = node.lanes.iter().filter(|(_, done)| !done.is_empty()).count();
        assert_eq!(open, lane + 1, "nobody had to commit");
    }
    let (work, _) = &mut node.lanes[0];
    let (beginning, mut pool) = (work.begin(), Pool::default());
    let looked = Txn::new(work, &mut pool, 9).merged(&node.state.sums, &7);
    assert_eq!(looked, Err(Abort::CONFLICT));
    work.abort(&beginning, &mut pool);
    node.attempt(&act(0, Act::Merged)); // closes the others first
    (0..LANES).for_each(|lane| node.close(lane));
}
