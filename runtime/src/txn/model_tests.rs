//! Transactions against a model: sorted maps of the live rows, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{Abort, Txn, Workspace, delta};
use crate::clock::Nanos;
use crate::entropy::Entropy;
use crate::packet::{Direction, Packet, Pool};
use crate::state::{AnyTable, Layout, NEVER, State, Table};

const IDLE: Nanos = 64;
const CAPACITY: [usize; 2] = [4, 3];

crate::state! {
    struct Small {
        timed: u8 => u32 [CAPACITY[0]],
        plain: u8 => u32 [CAPACITY[1]],
        sums: u8 => u32 [64] per_lane,
    }
}

#[derive(Clone, Debug)]
enum Op {
    Get(usize, u8),
    GetFor(usize, u8, Nanos),
    Peek(usize, u8),
    Put(usize, u8, u32),
    PutFor(usize, u8, u32, Nanos),
    Refresh(usize, u8, Nanos),
    Update(usize, u8, u32),
    Merge(u8, u32),
    Merged(u8),
    TakeMerged(u8),
    Entry(usize, u8, u32, Nanos),
    Delete(usize, u8),
    Random,
    Emit(u8),
}

#[derive(Clone, Debug)]
struct Attempt {
    ops: Vec<Op>,
    aborts: bool,
    pause: Nanos,
}

fn ops() -> impl Strategy<Value = Op> {
    let (table, key, idle) = (0usize..2, 0u8..7, 1u64..100);
    prop_oneof![
        (table.clone(), key.clone()).prop_map(|(t, k)| Op::Get(t, k)),
        (table.clone(), key.clone(), idle.clone()).prop_map(|(t, k, i)| Op::GetFor(t, k, i)),
        (table.clone(), key.clone()).prop_map(|(t, k)| Op::Peek(t, k)),
        (table.clone(), key.clone(), any::<u32>()).prop_map(|(t, k, v)| Op::Put(t, k, v)),
        (table.clone(), key.clone(), any::<u32>(), idle.clone())
            .prop_map(|(t, k, v, i)| Op::PutFor(t, k, v, i)),
        (table.clone(), key.clone(), idle).prop_map(|(t, k, i)| Op::Refresh(t, k, i)),
        (table.clone(), key.clone(), any::<u32>()).prop_map(|(t, k, v)| Op::Update(t, k, v)),
        (key.clone(), any::<u32>()).prop_map(|(k, v)| Op::Merge(k, v)),
        key.clone().prop_map(Op::Merged),
        key.clone().prop_map(Op::TakeMerged),
        (table.clone(), key.clone(), any::<u32>(), 1u64..100).prop_map(|(t, k, v, i)| Op::Entry(t, k, v, i)),
        (table, key).prop_map(|(t, k)| Op::Delete(t, k)),
        Just(Op::Random),
        any::<u8>().prop_map(Op::Emit),
    ]
}

fn attempts() -> impl Strategy<Value = Vec<Attempt>> {
    let one = (prop::collection::vec(ops(), 1..6), prop::bool::weighted(0.25), 0u64..40);
    prop::collection::vec(one.prop_map(|(ops, aborts, pause)| Attempt { ops, aborts, pause }), 1..40)
}

/// What a transaction may see: live rows as key → (value, expiry), random numbers, frames made.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    rows: [BTreeMap<u8, (u32, Nanos)>; 2],
    sums: BTreeMap<u8, u32>,
    entropy: Entropy,
    emitted: Vec<u8>,
    /// Keys that the open unit has written; their places can't be taken before the commit.
    touched: BTreeSet<(usize, u8)>,
    refused: bool,
}

impl Model {
    fn expire(&mut self, now: Nanos) {
        self.rows.iter_mut().for_each(|rows| rows.retain(|_, row| row.1 > now));
    }

    fn set(&mut self, t: usize, k: u8, v: u32, expires: Nanos, now: Nanos) {
        self.touched.insert((t, k));
        self.rows[t].insert(k, (v, expires));
        self.expire(now);
    }

    fn get_for(&mut self, t: usize, k: u8, idle: Nanos, now: Nanos) -> Option<(u32, bool)> {
        let (value, expires) = *self.rows[t].get(&k)?;
        let refreshed = expires < NEVER && now + idle > expires && now + idle - expires > idle / 8;
        if refreshed {
            self.set(t, k, value, now + idle, now);
        }
        Some((value, refreshed))
    }

    /// Checks a write's result, and takes the write over where it was let through.
    fn put(&mut self, t: usize, k: u8, row: (u32, Nanos), now: Nanos, result: Result<(), Abort>) {
        let live = self.rows[t].len();
        let stuck = self.touched.iter().filter(|(tt, kk)| *tt == t && !self.rows[t].contains_key(kk)).count();
        let known = self.rows[t].contains_key(&k);
        match result {
            Ok(()) => {
                assert!(known || live < CAPACITY[t], "a new key in a table full of live rows");
                self.set(t, k, row.0, row.1, now);
            }
            Err(abort) => {
                assert_eq!(abort, Abort::TABLE_FULL);
                assert!(!known && live + stuck >= CAPACITY[t], "refused with {live} live rows");
                self.refused = true;
            }
        }
    }
}

struct Run {
    state: Small,
    replica: Small,
    work: Workspace,
    pool: Pool,
    model: Model,
    now: Nanos,
}

impl Run {
    fn new(layout: &Layout) -> Self {
        let make = || {
            let mut state = Small::new(layout);
            state.timed.set_idle(Some(IDLE));
            state
        };
        let entropy = Entropy::new(5);
        let model = Model {
            rows: [BTreeMap::new(), BTreeMap::new()],
            sums: BTreeMap::new(),
            entropy,
            emitted: Vec::new(),
            touched: BTreeSet::new(),
            refused: false,
        };
        let work = Workspace::new(entropy, 60_000);
        Run { state: make(), replica: make(), work, pool: Pool::default(), model, now: 1 }
    }

    fn attempt(&mut self, attempt: &Attempt) {
        self.now += attempt.pause;
        self.model.expire(self.now);
        let (before, trace) = (self.model.clone(), self.trace());
        let beginning = self.work.begin();
        let mut txn = Txn::new(&mut self.work, &mut self.pool, self.now);
        for op in &attempt.ops {
            step(op, &self.state, &mut txn, &mut self.model, self.now);
        }
        if attempt.aborts {
            self.work.abort(&beginning, &mut self.pool);
            let refused = self.model.refused;
            self.model = Model { refused, ..before };
            assert_eq!(self.trace(), trace, "an abort leaves no trace");
        } else {
            self.work.keep();
        }
        assert_eq!(self.work.entropy, self.model.entropy);
        let emitted: Vec<u8> = self.work.emitted.iter().map(|packet| packet.frame()[0]).collect();
        assert_eq!(emitted, self.model.emitted);
    }

    /// Everything of the open unit that anybody could see.
    fn trace(&self) -> (Vec<u8>, [u64; 2], usize, usize, Entropy) {
        let (mut delta, writes) = (Vec::new(), &self.work.writes);
        writes.encode(&mut delta);
        let sets = [writes.read().0, writes.written().0];
        (delta, sets, writes.delta_bytes(), self.work.emitted.len(), self.work.entropy)
    }

    fn commit(&mut self) {
        let (mut delta, written) = (Vec::new(), self.work.writes.written());
        self.work.writes.encode(&mut delta);
        assert!(delta.len() <= self.work.writes.delta_bytes());
        assert_eq!(delta.is_empty(), written.is_empty());
        for state in [&mut self.state, &mut self.replica] {
            assert_eq!(delta::check(state, &delta, written), Ok(()));
            delta::apply(state, &delta);
        }
        self.work.writes.clear();
        self.model.touched.clear();
        assert_eq!(live(&self.state, self.now), self.model.rows);
        assert_eq!(live(&self.replica, self.now), self.model.rows);
        for state in [&self.state, &self.replica] {
            assert_eq!(BTreeMap::from_iter(state.sums.rows()), self.model.sums);
        }
        assert!(self.state.timed.len() <= CAPACITY[0] && self.state.plain.len() <= CAPACITY[1]);
    }
}

fn live(state: &Small, now: Nanos) -> [BTreeMap<u8, (u32, Nanos)>; 2] {
    [&state.timed, &state.plain].map(|table| {
        let mut rows = BTreeMap::new();
        for partition in 0..partitions(table) {
            table.visit(partition, &table.outside(), &mut |row| {
                let value = row.value.expect("rows have values").try_into().expect("four bytes");
                if row.expires > now {
                    rows.insert(row.key[0], (u32::from_le_bytes(value), row.expires));
                }
            });
        }
        rows
    })
}

fn partitions(table: &Table<u8, u32>) -> usize {
    (0..=u8::MAX).map(|key| table.place(&key).partition).max().unwrap_or(0) + 1
}

fn step(op: &Op, state: &Small, txn: &mut Txn<'_>, model: &mut Model, now: Nanos) {
    let tables = [&state.timed, &state.plain];
    let until = [now + IDLE, NEVER];
    match *op {
        Op::Get(0, k) => {
            let expected = model.get_for(0, k, IDLE, now).map(|(value, _)| value);
            assert_eq!(txn.get(tables[0], &k), Ok(expected));
        }
        Op::Get(t, k) => assert_eq!(txn.get(tables[t], &k), Ok(model.rows[t].get(&k).map(|row| row.0))),
        Op::GetFor(t, k, idle) => {
            assert_eq!(txn.get_for(tables[t], &k, idle), Ok(model.get_for(t, k, idle, now)));
        }
        Op::Peek(t, k) => {
            let seen = txn.peek(tables[t], &k).expect("peek never fails").map(|value| *value);
            assert_eq!(seen, model.rows[t].get(&k).map(|row| row.0));
        }
        Op::Put(t, k, v) => model.put(t, k, (v, until[t]), now, txn.put(tables[t], k, v)),
        Op::PutFor(t, k, v, idle) => {
            model.put(t, k, (v, now + idle), now, txn.put_for(tables[t], k, v, idle));
        }
        Op::Refresh(t, k, idle) => {
            assert_eq!(txn.refresh(tables[t], &k, idle), Ok(()));
            model.get_for(t, k, idle, now);
        }
        Op::Update(t, k, add) => {
            let value = model.rows[t].get(&k).map_or(7, |row| row.0).wrapping_add(add);
            let result = txn.update(tables[t], k, |old| old.unwrap_or(7).wrapping_add(add));
            result.iter().for_each(|new| assert_eq!(*new, value));
            model.put(t, k, (value, until[t]), now, result.map(|_| ()));
        }
        Op::Merge(k, more) => {
            assert_eq!(txn.merge(&state.sums, k, more), Ok(()));
            let sum = model.sums.entry(k).or_default();
            *sum = sum.wrapping_add(more);
        }
        Op::Merged(k) => assert_eq!(txn.merged(&state.sums, &k), Ok(model.sums.get(&k).copied())),
        Op::TakeMerged(k) => assert_eq!(txn.take_merged(&state.sums, &k), Ok(model.sums.remove(&k))),
        Op::Entry(t, k, add, idle) => {
            let entry = txn.entry(tables[t], &k).expect("a look-up never fails");
            assert_eq!((*entry.key(), entry.value()), (k, model.rows[t].get(&k).map(|row| row.0)));
            let value = entry.value().unwrap_or(7).wrapping_add(add);
            model.put(t, k, (value, now + idle), now, entry.put_for(value, idle));
        }
        Op::Delete(t, k) => {
            assert_eq!(txn.delete(tables[t], &k), Ok(model.rows[t].contains_key(&k)));
            if model.rows[t].remove(&k).is_some() {
                model.touched.remove(&(t, k));
            }
        }
        Op::Random => assert_eq!(txn.random(), model.entropy.next_u64()),
        Op::Emit(byte) => {
            txn.emit(&[byte], Direction::Outbound);
            model.emitted.push(byte);
        }
    }
}

fn run(attempts: &[Attempt], unit: usize, partitions: usize) -> Run {
    let mut run = Run::new(&Layout { partitions, hash_seed: 3 });
    for unit in attempts.chunks(unit) {
        unit.iter().for_each(|attempt| run.attempt(attempt));
        run.commit();
    }
    run
}

proptest! {
    #[test]
    fn transactions_in_units_do_what_the_model_does(
        attempts in attempts(), unit in 1usize..9, partitions in prop::sample::select(vec![1, 2, 4, 64]),
    ) {
        // Goal: reads, writes, expiry, capacity, aborts. Method: random attempts beside a model of sorted maps.
        run(&attempts, unit, partitions);
    }

    #[test]
    fn the_size_of_units_changes_nothing(attempts in attempts()) {
        // Goal: a burst is the same as its packets one by one. Method: one history in units of 1 and of 8.
        let (one, eight) = (run(&attempts, 1, 4), run(&attempts, 8, 4));
        if !one.model.refused && !eight.model.refused {
            prop_assert_eq!(&one.model, &eight.model);
            let frames = |run: &Run| run.work.emitted.iter().map(Packet::frame).map(<[u8]>::to_vec).collect::<Vec<_>>();
            prop_assert_eq!(frames(&one), frames(&eight));
        }
    }

    #[test]
    fn any_bytes_as_a_delta_are_refused_or_taken_whole(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        // Goal: damage never panics, and nothing is half taken. Method: noise, then every change looked up.
        let mut state = Small::new(&Layout::default());
        let all = crate::dependency::PartitionSet::first(64);
        // Tags of the three tables come up more often than chance would have it.
        let bytes: Vec<u8> = bytes.iter().map(|b| if b % 3 == 0 { b / 3 % 12 } else { *b }).collect();
        if delta::check(&state, &bytes, all).is_ok() {
            let mut last = BTreeMap::new();
            for change in delta::changes(&state, &bytes) {
                let change = change.unwrap();
                last.insert((change.table, change.key.to_vec()), change.value.map(<[u8]>::to_vec));
            }
            delta::apply(&mut state, &bytes);
            let kept = last.values().filter(|value| value.is_some()).count();
            prop_assert_eq!(state.timed.len() + state.plain.len() + state.sums.any().len(), kept);
        }
    }

    #[test]
    fn changes_survive_the_way_through_bytes(
        changes in prop::collection::vec((0u8..2, any::<u8>(), prop::option::of(any::<u32>()), any::<u64>()), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        // Goal: one encoding, without loss, and foreign rows are seen. Method: encode, decode, compare, cut, forbid.
        let state = Small::new(&Layout::default());
        let (mut bytes, mut ends, mut written) = (Vec::new(), vec![0], crate::dependency::PartitionSet::default());
        let values: Vec<_> = changes.iter().map(|c| c.2.map(u32::to_le_bytes)).collect();
        let change_of = |i: usize| {
            let value = values[i].as_ref().map(|v| &v[..]);
            let expires = if value.is_some() { changes[i].3 } else { NEVER };
            crate::state::Change { table: changes[i].0, key: std::slice::from_ref(&changes[i].1), value, expires }
        };
        for (i, row) in changes.iter().enumerate() {
            delta::put_change(&mut bytes, &change_of(i));
            ends.push(bytes.len());
            written.insert(state.timed.place(&row.1).partition);
        }
        for (i, change) in delta::changes(&state, &bytes).enumerate() {
            prop_assert_eq!(change, Ok(change_of(i)));
        }
        prop_assert_eq!(delta::changes(&state, &bytes).count(), changes.len());
        prop_assert_eq!(delta::check(&state, &bytes, written), Ok(()));
        for partition in written.iter() {
            let fewer = crate::dependency::PartitionSet(written.0 & !(1 << partition));
            prop_assert_eq!(delta::check(&state, &bytes, fewer), Err(delta::DeltaError::ForeignPartition));
        }
        let cut = cut.index(bytes.len());
        let result = delta::check(&state, &bytes[..cut], written);
        prop_assert_eq!(result.is_ok(), ends.contains(&cut));
    }

    #[test]
    fn a_slot_that_is_no_more_right_does_no_harm(
        before in prop::collection::vec((0u8..40, any::<u32>()), 0..40),
        changes in prop::collection::vec((0u8..40, prop::option::of(any::<u32>())), 1..60),
    ) {
        // Goal: where the check saw a row is a hint. Method: in one delta rows come, go, and move as the table grows; taken in
        // with slots and without, from the same rows.
        let layout = Layout { partitions: 1, ..Layout::default() };
        let encode = |rows: &[(u8, Option<u32>)]| {
            let mut bytes = Vec::new();
            for (key, value) in rows {
                let (key, value) = (std::slice::from_ref(key), value.map(u32::to_le_bytes));
                let value = value.as_ref().map(|v| &v[..]);
                delta::put_change(&mut bytes, &crate::state::Change { table: 0, key, value, expires: NEVER });
            }
            bytes
        };
        let mut plain = Small::new(&layout);
        let before: Vec<_> = before.into_iter().map(|(key, value)| (key, Some(value))).collect();
        delta::apply(&mut plain, &encode(&before));
        let (hinted, bytes, mut sites) = (plain.clone(), encode(&changes), Vec::new());
        let (written, whole) = (crate::dependency::PartitionSet::only(0), crate::state::Held::whole());
        prop_assert_eq!(delta::find(&hinted, &bytes, written, &whole, &mut sites), Ok(()));
        prop_assert_eq!(sites.len(), changes.len());
        delta::apply_held(&hinted, &bytes, sites, &whole);
        delta::apply(&mut plain, &bytes);
        prop_assert_eq!(hinted.timed.rows(), plain.timed.rows());
        prop_assert_eq!(hinted.timed.len(), plain.timed.len());
    }
}
