//! Bounds that no input and no network function may break.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::state::{AnyState, AnyTable, NEVER, State};
use crate::txn::{Txn, TxnResult};

crate::state! {
    struct Wide {
        rows: u64 => [u8; 64] [10_000],
    }
}

/// Writes far more than a unit carries, and takes no notice of the errors.
fn careless(_: &mut crate::nf::Frame<'_>, state: &Wide, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
    for key in 0..1_200 {
        let _ = txn.put(&state.rows, key, [7; 64]);
    }
    Ok(Verdict::Forward)
}

#[test]
fn a_network_function_that_ignores_an_overflow_commits_nothing() {
    // Goal: no unit that a link can't carry. Method: write 80 kB in one transaction and ignore the errors.
    let plan = plan(1, 1);
    let nfs: Arc<[Arc<dyn AnyNf>]> = Arc::new([Arc::new(nf(careless)) as Arc<dyn AnyNf>]);
    let mut node = Node::new(0, plan, nfs, Orchestrator::new(&plan).view().clone());
    let mut out = Output::default();
    node.accept(&mut vec![frame(1, WRITE, 0, 60)], Now { timer: 1, wall: 1 }, &mut out);
    assert!(out.forward.is_empty() && out.released.is_empty() && node.is_idle());
    assert_eq!(node.stats().drops.sorted(), [("transaction_too_large", 1)]);
    assert_eq!(node.store(0).map(Store::versions), Some(crate::dependency::Vector::default()));
}

/// Counts in the first row, and writes as many others as the frame's first byte says; edits the frame before each.
fn several(frame: &mut crate::nf::Frame<'_>, state: &Wide, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
    txn.update(&state.rows, 0, |old| old.map_or([1; 64], |bytes| bytes.map(|byte| byte + 1)))?;
    let serial = u32::from_le_bytes(frame.bytes()[2..6].try_into().expect("four bytes"));
    for row in 1..=u64::from(frame.bytes()[0]) {
        frame.bytes_mut()[1] += 1;
        txn.put(&state.rows, u64::from(serial) << 8 | row, [frame.bytes()[1]; 64])?;
    }
    Ok(Verdict::Forward)
}

proptest::proptest! {
    #[test]
    fn a_transaction_that_finds_no_room_runs_again_in_the_next_unit(
        sizes in proptest::collection::vec(0u8..18, 1..60), mtu in 3_300usize..9_000,
    ) {
        // Goal: units are as full as links allow, and nothing is lost, done twice or too long for a link. Method: bursts of
        // transactions of any size up to the bound, of which more is written than is expected.
        let mut plan = plan(1, 1);
        (plan.limits.mtu, plan.unit_frames) = (mtu, 64);
        let nfs: Arc<[Arc<dyn AnyNf>]> = Arc::new([Arc::new(nf(several)) as Arc<dyn AnyNf>]);
        let mut ring = Ring::new(plan);
        let view = Orchestrator::new(&plan).view().clone();
        ring.nodes = (0..2).map(|i| Node::new(i, plan, Arc::clone(&nfs), view.clone())).collect();
        let burst = sizes.iter().enumerate().map(|(serial, size)| frame(*size, 0, serial as u32, 6));
        ring.accept(0, burst.collect());
        let units = ring.nodes[0].stats().units_sent as usize;
        ring.settle();
        let mut edited: Vec<&[u8]> = ring.released.iter().map(Packet::frame).collect();
        edited.sort_by_key(|frame| frame[2]);
        proptest::prop_assert!(edited.iter().map(|frame| (frame[0], frame[1])).eq(sizes.iter().map(|n| (*n, *n))));
        for node in &ring.nodes {
            let rows = node.store(0).and_then(|store| store.state.downcast::<Wide>()).map(|state| state.rows.rows());
            let others = (0u64..).zip(&sizes).flat_map(|(serial, n)| (1..=*n).map(move |row| (serial, row)));
            let others = others.map(|(serial, row)| (serial << 8 | u64::from(row), [row; 64]));
            let mut expected: Vec<_> = std::iter::once((0, [sizes.len() as u8; 64])).chain(others).collect();
            expected.sort_by_key(|(key, _)| key.to_le_bytes());
            proptest::prop_assert_eq!(rows, Some(expected));
        }
        proptest::prop_assert!(ring.longest <= mtu, "{} bytes", ring.longest);
        let written: usize = sizes.iter().map(|n| 81 * usize::from(*n)).sum();
        let (room, largest) = (2 * plan.delta_limit(), 81 * 18);
        proptest::prop_assert!(units <= 1 + written / (room - largest), "{units} units for {written} bytes");
    }
}

#[test]
fn the_end_of_time_takes_no_row_that_never_expires() {
    // Goal: one damaged timestamp does not wipe the state. Method: packets and ticks at the last moment there is.
    let mut ring = Ring::new(plan(1, 1));
    ring.accept(0, vec![frame(1, WRITE, 0, 60)]);
    ring.settle();
    ring.now.wall = Nanos::MAX;
    let mut last = frame(1, WRITE, 1, 60);
    last.meta.time = Nanos::MAX;
    ring.accept(0, vec![last]);
    for _ in 0..50 {
        ring.settle();
        ring.now.timer += 1_000_000_000;
        (0..2).for_each(|index| ring.nodes[index].tick(ring.now, &mut ring.out));
    }
    assert_eq!(count(&ring.nodes[0], 0, 1), Some(2));
    assert_eq!(count(&ring.nodes[1], 0, 1), Some(2));
}

#[test]
fn without_replicas_the_mtu_bounds_no_transaction() {
    // Goal: f = 0 sends nothing, so no link bounds it. Method: the smallest MTU.
    let mut small = plan(1, 0);
    small.limits.mtu = 64;
    small.check(200).expect("nothing travels");
    let mut ring = Ring::new(small);
    ring.accept(0, vec![frame(1, WRITE, 0, 60)]);
    assert_eq!((ring.released.len(), count(&ring.nodes[0], 0, 1)), (1, Some(1)));
}

#[test]
fn an_acknowledgement_is_cut_to_the_mtu() {
    // Goal: no message of the ring is longer than its links carry. Method: 64 partitions, f = 4, a full acknowledgement.
    let mut plan = Plan::new(5, 4).expect("small");
    plan.limits.mtu = 757;
    let mut ring = Ring::new(plan);
    ring.accept(4, Vec::new());
    let told: Vec<&Packet> = ring.network.iter().map(|(_, packet)| packet).collect();
    assert!(told.len() > 2 && told.iter().all(|packet| packet.frame().len() <= 757));
    let before: u64 = ring.nodes[3].stats().refused.total();
    ring.settle();
    assert_eq!(ring.nodes[3].stats().refused.total(), before);
}

#[test]
fn repair_that_brings_nothing_grows_rare() {
    // Goal: a crowded link is not crowded more. Method: a successor that speaks and never applies; count what is sent.
    let mut ring = Ring::new(plan(2, 1));
    ring.accept(0, vec![frame(1, WRITE, 0, 60)]);
    ring.network.clear();
    let mut sent = 0;
    for _ in 0..400 {
        ring.now.timer += ring.plan.limits.repair_after;
        ring.nodes[1].tick(ring.now, &mut ring.out);
        let told: Vec<Packet> = ring.out.backward.drain(..).collect();
        ring.accept(0, told);
        ring.nodes[0].tick(ring.now, &mut ring.out);
        ring.out.forward.clear();
        ring.network.clear();
        sent = ring.nodes[0].stats().units_repaired;
    }
    assert!((3..40).contains(&sent), "{sent} repairs in 400 waits");
    ring.settle();
    ring.assert_equal_replicas();
}

/// Counts, in a state that plays another lane: who looks at its table finds that something was applied meanwhile.
#[derive(Clone, Debug)]
struct Restless(Counts, Arc<std::sync::OnceLock<Arc<Core>>>, Arc<AtomicUsize>);

/// How often that lane applies something before it rests.
const APPLIES: usize = 5_000;

impl AnyState for Restless {
    fn tables(&self) -> usize {
        1
    }

    fn table(&self, number: usize) -> Option<&dyn AnyTable> {
        if let Some(core) = self.1.get().filter(|_| self.2.fetch_add(1, Ordering::Relaxed) < APPLIES) {
            core.tell(&core.applied);
        }
        self.0.table(number)
    }

    fn boxed_clone(&self) -> Box<dyn AnyState> {
        Box::new(self.clone())
    }
}

#[test]
fn a_turn_ends_although_another_lane_applies_without_a_pause() {
    // Goal: no lane is starved of its links by what others do. Method: a unit waits, of which one record is ready and the
    // other is not; each look at it finds that another lane has applied something. The turn must end all the same.
    let plan = plan(3, 2);
    let nfs: Arc<[Arc<dyn AnyNf>]> = (0..3).map(|_| counter()).collect();
    let view = Orchestrator::new(&plan).view().clone();
    let mut node = Node::new(2, plan, nfs, view.clone());
    let (core, looks) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
    let counts = Counts::new(&plan.layout);
    let mut delta = Vec::new();
    let row = crate::state::Change { table: 0, key: &[7], value: Some(&[0; 8]), expires: NEVER };
    crate::txn::delta::put_change(&mut delta, &row);
    let partition = counts.counts.place_of(&[7]).partition;
    let state = Restless(counts, Arc::clone(&core), Arc::clone(&looks));
    let mut stores: Vec<Option<Store>> =
        (0..3).map(|_| Some(Store::new(Box::new(Counts::new(&plan.layout)), false))).collect();
    stores[0] = Some(Store::new(Box::new(state), true));
    node.control.core = node.control.core.with_stores(stores.into());
    node.lanes[0].set_core(Arc::clone(&node.control.core));
    let (mut unit, mut bytes) = (crate::piggyback::UnitBuilder::default(), Vec::new());
    unit.record(0).note(partition, 0, true);
    unit.record(0).delta_mut().extend_from_slice(&delta);
    unit.record(1).note(0, 5, true);
    unit.encode(&mut bytes);
    let mut packet = Packet::new(&bytes);
    packet.meta.kind = Kind::Unit;
    (packet.meta.sender, packet.meta.incarnation) = (1, view.members[1].incarnation);
    let (now, mut out) = (Now { timer: 1, wall: 1 }, Output::default());
    node.accept(&mut vec![packet], now, &mut out);
    assert!(core.set(Arc::clone(&node.control.core)).is_ok());
    core.get().expect("set").tell(&node.control.core.applied);
    node.accept(&mut Vec::new(), now, &mut out);
    assert!(!node.is_idle(), "it waits");
    let looks = looks.load(Ordering::Relaxed);
    assert!((1..100).contains(&looks), "{looks} looks in one turn");
}
