//! Units get through whole and once, frames in order, and no link carries more than it may.

use proptest::prelude::*;

use super::*;
use crate::limits::MAX_PARTITIONS;
use crate::packet::Meta;

/// What node 0 of a ring of two sends for `keys`, as units without frames.
fn units(ring: &mut Ring, keys: &[u8]) -> Vec<Packet> {
    let mut units = Vec::new();
    for (i, key) in keys.iter().enumerate() {
        ring.accept(0, vec![frame(*key, WRITE, i as u32, 60)]);
        let sent =
            ring.network.drain(..).find(|(_, p)| !p.unit().is_empty()).expect("a write sends a unit").1;
        let mut unit = Packet::new(sent.unit());
        unit.meta = Meta { kind: Kind::Unit, ..sent.meta };
        units.push(unit);
    }
    units
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn units_twice_and_in_any_order_count_once(
        keys in prop::collection::vec(0u8..5, 1..12), order in prop::collection::vec(any::<prop::sample::Index>(), 40),
        start in prop::sample::select(vec![0u64, u64::from(u32::MAX) - 3, (1 << 33) - 3]),
    ) {
        // Goal: `once`, across the wrap of short versions too. Method: each unit twice, at random, then the rest.
        let mut ring = Ring::new(plan(2, 1));
        for store in ring.nodes.iter().flat_map(|node| node.control.core.stores.iter().flatten()) {
            (0..MAX_PARTITIONS).for_each(|partition| store.live_versions().set(partition, start));
        }
        let units = units(&mut ring, &keys);
        let picks = order.iter().map(|index| units[index.index(units.len())].clone());
        for unit in picks.chain(units.iter().rev().cloned()) {
            ring.accept(1, vec![unit]);
        }
        prop_assert!(ring.nodes[1].lanes[0].waiting.is_empty());
        for key in 0..5 {
            let expected = keys.iter().filter(|k| **k == key).count() as u64;
            prop_assert_eq!(count(&ring.nodes[1], 0, key).unwrap_or(0), expected);
        }
        let versions = |node: usize| ring.nodes[node].store(0).unwrap().versions();
        prop_assert_eq!(versions(0), versions(1));
    }

    #[test]
    fn no_message_forward_is_longer_than_the_mtu(
        sizes in prop::collection::vec((0u8..4, 0u8..3, prop_oneof![60usize..1515, 1440usize..1515]), 1..40),
        unit_frames in prop::sample::select(vec![1, 2, 8, 64]), burst in 1usize..9,
    ) {
        // Goal: the MTU rule, with every frame whole and in order. Method: random sizes and bursts through two nodes.
        let mut plan = plan(3, 1);
        (plan.limits.mtu, plan.unit_frames) = (1_514, unit_frames);
        let mut ring = Ring::new(plan);
        let mut sent: Vec<Packet> = Vec::new();
        for part in sizes.chunks(burst) {
            let first = sent.len() as u32;
            let part: Vec<Packet> =
                (first..).zip(part).map(|(i, &(key, ask, len))| frame(key, ask, i, len)).collect();
            sent.extend(part.iter().cloned());
            ring.accept(0, part);
        }
        ring.settle();
        prop_assert!(ring.longest <= 1_514, "{} bytes", ring.longest);
        for key in 0..4 {
            let of_flow = |p: &&Packet| p.frame()[0] == key;
            let came: Vec<&[u8]> = ring.released.iter().filter(of_flow).map(Packet::frame).collect();
            let passed = sent.iter().filter(of_flow).filter(|p| p.frame()[1] != ABORT);
            prop_assert_eq!(came, passed.map(Packet::frame).collect::<Vec<_>>());
        }
        ring.assert_equal_replicas();
    }

    #[test]
    fn the_size_of_units_does_not_show_in_the_state(
        asks in prop::collection::vec((0u8..6, 0u8..3), 1..60), f in 0usize..3,
    ) {
        // Goal: a burst is its packets one by one. Method: the same burst as units of 1 and of 32, digests compared.
        let digest = |unit_frames: usize| {
            let mut plan = plan(2, f);
            plan.unit_frames = unit_frames;
            let mut ring = Ring::new(plan);
            ring.accept(0, asks.iter().map(|&(key, ask)| frame(key, ask, 0, 60)).collect());
            ring.settle();
            ring.assert_equal_replicas();
            (ring.digests(0), ring.digests(1), ring.released.len())
        };
        prop_assert_eq!(digest(1), digest(32));
    }

    #[test]
    fn frames_of_a_flow_leave_in_order_in_both_directions(
        asks in prop::collection::vec((0u8..4, 0u8..2, any::<bool>()), 1..60), f in 0usize..3,
    ) {
        // Goal: order within a flow. Method: both directions at once, links without faults, serial numbers compared.
        let mut ring = Ring::new(plan(3, f));
        for (i, &(key, ask, inbound)) in asks.iter().enumerate() {
            let mut packet = frame(key + if inbound { 4 } else { 0 }, ask, i as u32, 60);
            if inbound {
                packet.meta.direction = Direction::Inbound;
            }
            ring.accept(if inbound { 2 } else { 0 }, vec![packet]);
            if i % 3 == 0 {
                let next = ring.network.pop_front();
                next.into_iter().for_each(|(to, packet)| ring.accept(to, vec![packet]));
            }
        }
        ring.settle();
        prop_assert_eq!(ring.released.len(), asks.len());
        prop_assert!((0..8).all(|key| ring.serials(key).is_sorted()));
    }
}

#[test]
fn a_longest_frame_leaves_unchanged_and_its_unit_travels_alone() {
    // Goal: units cost no byte of the MTU. Method: 1,514 bytes through a ring of MTU 1,514.
    let mut plan = plan(2, 1);
    plan.limits.mtu = 1_514;
    let mut ring = Ring::new(plan);
    let sent = frame(1, WRITE, 9, 1_514);
    ring.accept(0, vec![sent.clone()]);
    let unit = ring.network.iter().find(|(to, p)| *to == 1 && p.meta.kind == Kind::Unit);
    assert!(unit.is_some() && ring.network.iter().all(|(_, p)| p.unit().is_empty()));
    ring.settle();
    assert_eq!(ring.released.iter().map(Packet::frame).collect::<Vec<_>>(), [sent.frame()]);
}

#[test]
fn established_flows_carry_no_byte_and_wait_for_nobody() {
    // Goal: reads of committed rows are free. Method: one write, committed everywhere, then reads only.
    let mut ring = Ring::new(plan(2, 1));
    ring.accept(0, vec![frame(1, WRITE, 0, 60)]);
    ring.settle();
    ring.network.clear();
    let before = ring.nodes[0].stats().unit_bytes;
    for i in 1..20 {
        ring.accept(0, vec![frame(1, LOOK, i, 60)]);
        let frames: Vec<Packet> =
            ring.network.drain(..).map(|(_, p)| p).filter(|p| p.meta.kind == Kind::Frame).collect();
        assert!(frames.len() == 1 && frames[0].unit().is_empty());
        ring.accept(1, frames);
    }
    assert_eq!((ring.released.len(), ring.nodes[0].stats().unit_bytes), (20, before));
}

#[test]
fn without_replicas_nothing_is_held() {
    // Goal: f = 0 costs nothing. Method: each frame leaves in the very turn in which it comes.
    let mut ring = Ring::new(plan(1, 0));
    for i in 0..10 {
        ring.accept(0, vec![frame(i, WRITE, 0, 60)]);
        assert_eq!((ring.released.len(), ring.network.len()), (usize::from(i) + 1, 0));
    }
    assert!(ring.nodes[0].is_idle());
}

#[test]
fn a_full_waiting_place_costs_frames_and_no_unit() {
    // Goal: bounds lose frames, never units. Method: the first unit is lost, four places, ten more frames.
    let mut plan = plan(2, 1);
    plan.layout.partitions = 1;
    plan.limits.waiting = 4;
    let mut ring = Ring::new(plan);
    ring.accept(0, (0..11).map(|i| frame(1, WRITE, i, 60)).collect());
    ring.network.pop_front().expect("the first frame, with its unit");
    ring.settle();
    assert_eq!(refused(&ring.nodes[1], "waiting_place_full"), 6);
    assert_eq!((count(&ring.nodes[1], 0, 1), ring.serials(1)), (Some(11), vec![1, 2, 3, 4]));
    ring.assert_equal_replicas();
}
