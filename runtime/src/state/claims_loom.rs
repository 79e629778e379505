//! Claims under every interleaving: lanes as `ring::node` runs them, and cells in which loom notes who meets whom.

use std::sync::atomic::{AtomicU32 as Plain, Ordering::Relaxed};

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;

use super::*;

/// Switches of threads that nothing forces, in one run: more find nothing that these don't.
const PREEMPTIONS: usize = 3;

/// A partition's rows: loom notes who is at them; the number counts what was written.
struct Rows {
    cell: UnsafeCell<()>,
    count: Plain,
}

/// A store with two partitions.
struct Store {
    claims: Arc<Claims>,
    rows: [Rows; 2],
}

impl Store {
    fn new() -> Arc<Self> {
        let rows = || Rows { cell: UnsafeCell::new(()), count: Plain::new(0) };
        Arc::new(Store { claims: Arc::default(), rows: [rows(), rows()] })
    }

    fn held_by(&self, lane: usize) -> Held {
        Held::shared(Arc::clone(&self.claims), lane)
    }

    fn read(&self, partition: usize, held: &Held) -> u32 {
        assert!(held.may_read(partition));
        self.rows[partition].cell.with(|_| self.rows[partition].count.load(Relaxed))
    }

    fn write(&self, partition: usize, held: &Held, count: u32) {
        assert!(held.may_write(partition));
        self.rows[partition].cell.with_mut(|_| self.rows[partition].count.store(count, Relaxed));
    }

    /// What was written, once all lanes have gone; then nothing is claimed and the queue is empty.
    fn counts(&self) -> [u32; 2] {
        let mut held = self.held_by(0);
        assert!(held.claim_write(PartitionSet(0b11)), "a claim was left behind");
        held.release();
        held.queue();
        held.leave_queue();
        [self.read(0, &Held::whole()), self.read(1, &Held::whole())]
    }
}

/// What a transaction does to a partition: reads it, reads it and then counts it up, or counts it up without a claim to
/// read, as replicas do.
#[derive(Clone, Copy)]
enum Access {
    Read(usize),
    Count(usize),
    Put(usize),
}
use Access::{Count, Put, Read};

/// Runs a transaction as `Lane::attempt` does, and commits it as `Lane::close` does.
fn transact(store: &Store, held: &mut Held, accesses: &[Access]) {
    let attempt = |held: &mut Held| {
        let mut writes = Vec::new();
        for access in accesses {
            let (Read(partition) | Count(partition) | Put(partition)) = *access;
            let wanted = PartitionSet::only(partition);
            if !matches!(access, Put(_)) {
                if !held.claim_read(wanted) {
                    return None;
                }
                store.read(partition, held);
            }
            if !matches!(access, Read(_)) {
                if !held.claim_write(wanted) {
                    return None;
                }
                writes.push((partition, store.read(partition, held) + 1));
            }
        }
        Some(writes)
    };
    let writes = attempt(held).unwrap_or_else(|| {
        // As `Lane::give_way`: it gives everything back, waits in line, and runs a second time, not a third.
        held.release();
        held.queue();
        let writes = attempt(held).expect("who is first in the queue is never refused");
        held.leave_queue();
        writes
    });
    for (partition, count) in writes {
        store.write(partition, held, count);
    }
    held.release();
}

/// Runs the transactions of each lane, one after the other, in all interleavings, and checks what they counted.
fn check(lanes: &'static [&'static [&'static [Access]]], counts: [u32; 2]) {
    check_with(PREEMPTIONS, lanes, counts);
}

fn check_with(preemptions: usize, lanes: &'static [&'static [&'static [Access]]], counts: [u32; 2]) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(move || {
        let store = Store::new();
        let run = |lane: usize| {
            let store = Arc::clone(&store);
            move || {
                let mut held = store.held_by(lane);
                lanes[lane].iter().for_each(|accesses| transact(&store, &mut held, accesses));
            }
        };
        let others: Vec<_> = (1..lanes.len()).map(|lane| thread::spawn(run(lane))).collect();
        run(0)();
        others.into_iter().for_each(|other| other.join().expect("no lane panics"));
        assert_eq!(store.counts(), counts);
    });
}

#[test]
fn loom_two_lanes_that_write_the_same_partition() {
    // Goal: one after the other, and both. Method: every interleaving.
    check(&[&[&[Count(0)]], &[&[Count(0)]]], [2, 0]);
}

#[test]
fn loom_two_lanes_that_write_the_same_partition_twice() {
    // Goal: who comes again neither overtakes the queue nor finds rows of before. Method: every interleaving.
    check(&[&[&[Count(0)], &[Count(0)]], &[&[Count(0)]]], [3, 0]);
}

#[test]
fn loom_a_lane_that_reads_what_another_writes() {
    // Goal: no writer beside a reader. Method: every interleaving.
    check(&[&[&[Read(0)]], &[&[Count(0)]]], [1, 0]);
}

#[test]
fn loom_two_lanes_that_claim_in_opposite_orders() {
    // Goal: nobody waits for somebody who waits for him. Method: every interleaving.
    check(&[&[&[Count(0), Count(1)]], &[&[Count(1), Count(0)]]], [2, 2]);
}

#[test]
fn loom_two_lanes_that_read_what_the_other_writes() {
    // Goal: as above, where reads are in the way. Method: every interleaving.
    check(&[&[&[Read(0), Count(1)]], &[&[Read(1), Count(0)]]], [1, 1]);
}

#[test]
fn loom_a_lane_that_goes_on_to_another_partition() {
    // Goal: what was done under a claim is seen by whoever finds it gone, also where another claim has taken its place.
    // Method: one lane writes a partition and then the other, the second lane the first one.
    check(&[&[&[Count(0)], &[Count(1)]], &[&[Count(0)]]], [2, 1]);
    check(&[&[&[Count(0)], &[Read(1)]], &[&[Count(0)]]], [2, 0]);
    check(&[&[&[Read(0)], &[Read(1)]], &[&[Count(0)]]], [1, 0]);
    check(&[&[&[Put(0)], &[Put(1)]], &[&[Put(0)]]], [2, 1]);
}

#[test]
fn loom_three_lanes_that_write_the_same_partition() {
    // Goal: the queue lets everybody through. Method: every interleaving with fewer switches.
    check_with(1, &[&[&[Count(0)]], &[&[Count(0)]], &[&[Count(0)]]], [3, 0]);
}

#[test]
fn loom_a_refused_claim_leaves_what_was_held() {
    // Goal: a refusal changes nothing. Method: a lane that reads one partition is refused another, and the first to write.
    loom::model(|| {
        let store = Store::new();
        let (mut one, mut other) = (store.held_by(0), store.held_by(1));
        let (first, second) = (PartitionSet::only(0), PartitionSet::only(1));
        assert!(one.claim_read(first) && other.claim_read(first) && other.claim_write(second));
        assert!(!one.claim_read(second) && !one.claim_write(first) && !other.claim_write(first));
        assert!(one.may_read(0) && !one.may_write(0) && !one.may_read(1));
        other.release();
        assert!(one.claim_write(first) && one.claim_read(second));
        drop(one);
        assert_eq!(store.counts(), [0, 0]);
    });
}

#[test]
fn loom_units_over_two_stores_never_wait_in_a_circle() {
    // Goal: replicas claim store by store, and wait. Method: two lanes that apply units to both stores, in the order that
    // `Lane::claim` keeps, while a third runs a transaction on one of them that waits in line.
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 10_000;
    builder.check(|| {
        let stores = Arc::new([Store::new(), Store::new()]);
        let apply = |lane: usize| {
            let stores = Arc::clone(&stores);
            move || {
                let mut held = stores.each_ref().map(|store| store.held_by(lane));
                for held in &mut held {
                    held.await_write(PartitionSet::only(0));
                }
                for (store, held) in stores.iter().zip(&held) {
                    let count = store.read(0, held);
                    store.write(0, held, count + 1);
                }
                held.iter_mut().for_each(Held::release);
            }
        };
        let other = thread::spawn(apply(1));
        apply(0)();
        other.join().expect("no lane panics");
        assert!(stores.iter().all(|store| store.counts() == [2, 0]));
    });
}

#[test]
fn loom_a_head_that_applies_a_unit_while_it_holds_rows_of_its_own() {
    // Goal: a lane's open transactions hold its own store while it waits for others; who waits for them holds none of
    // those. Method: two such lanes.
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 10_000;
    builder.check(|| {
        let stores = Arc::new([Store::new(), Store::new()]);
        let run = |lane: usize| {
            let stores = Arc::clone(&stores);
            move || {
                let (mut own, mut replica) = (stores[1].held_by(lane), stores[0].held_by(lane));
                while !own.claim_write(PartitionSet::only(0)) {
                    own.release();
                    own.queue();
                }
                own.leave_queue();
                replica.await_write(PartitionSet::only(0));
                let count = stores[0].read(0, &replica);
                stores[0].write(0, &replica, count + 1);
                replica.release();
                let count = stores[1].read(0, &own);
                stores[1].write(0, &own, count + 1);
                own.release();
            }
        };
        let other = thread::spawn(run(1));
        run(0)();
        other.join().expect("no lane panics");
        assert!(stores.iter().all(|store| store.counts() == [2, 0]));
    });
}
