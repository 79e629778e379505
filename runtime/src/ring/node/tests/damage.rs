//! Damaged and late messages are refused with their reason, and the node goes on.

use proptest::prelude::*;

use super::*;
use crate::ring::control;

/// Every bit flipped, and every cut, of a message's bytes.
fn damages(bytes: &[u8]) -> Vec<Vec<u8>> {
    let flip = |bit: usize| {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        damaged
    };
    (0..bytes.len() * 8).map(flip).chain((1..bytes.len()).map(|len| bytes[..len].to_vec())).collect()
}

fn with_frame(packet: &Packet, bytes: &[u8]) -> Packet {
    let mut damaged = Packet::new(bytes);
    damaged.meta = packet.meta;
    damaged
}

#[test]
fn damaged_units_are_refused_and_the_node_goes_on() {
    // Goal: damage costs its frame only. Method: all bits and cuts of a unit, then the unit as it was.
    let mut ring = Ring::new(plan(2, 1));
    ring.accept(0, vec![frame(1, WRITE, 0, 60)]);
    let (_, sent) = ring.network.drain(..).find(|(to, p)| *to == 1 && !p.unit().is_empty()).expect("a unit");
    let damages = damages(sent.unit());
    for (i, damage) in damages.iter().enumerate() {
        let mut packet = sent.clone();
        packet.set_unit(damage);
        ring.accept(1, vec![packet]);
        assert_eq!(ring.nodes[1].stats().refused.total(), i as u64 + 1);
        assert_eq!((count(&ring.nodes[1], 0, 1), ring.released.len()), (None, 0));
    }
    let stats = ring.nodes[1].stats().clone();
    assert_eq!(stats.lost, damages.len() as u64);
    assert!(refused(&ring.nodes[1], "damaged_checksum") > 0 && refused(&ring.nodes[1], "damaged_length") > 0);
    ring.accept(1, vec![sent]);
    assert_eq!(count(&ring.nodes[1], 0, 1), Some(1));
}

#[test]
fn units_of_a_fenced_incarnation_are_refused() {
    // Goal: a late packet never reuses a version. Method: two heads, 1 and its replacement; units of 1 come late.
    let mut ring = Ring::new(plan(2, 1));
    ring.accept(0, vec![frame(1, WRITE, 0, 60)]);
    let late: Vec<Packet> = ring.network.drain(..).filter(|(to, _)| *to == 1).map(|(_, p)| p).collect();
    let mut orchestrator = Orchestrator::new(&ring.plan);
    orchestrator.declare_dead(0);
    orchestrator.admit();
    let view = orchestrator.view().clone();
    ring.nodes[1].adopt(&view, &mut ring.out);
    let units = late.iter().filter(|p| !p.unit().is_empty()).count() as u64;
    ring.accept(1, late.into_iter().filter(|p| p.meta.kind != Kind::Acknowledge).collect());
    assert_eq!((units, refused(&ring.nodes[1], "fenced")), (1, 1));
    assert_eq!(count(&ring.nodes[1], 0, 1), None);
}

#[test]
fn damaged_control_messages_are_refused_and_counted() {
    // Goal: no damage in an acknowledgement, a fetch or a snapshot gets in. Method: all bits and cuts of each.
    let mut ring = Ring::new(plan(2, 1));
    ring.accept(0, vec![frame(1, WRITE, 0, 60)]);
    let (_, sent) = ring.network.pop_front().expect("a frame");
    ring.network.clear();
    ring.accept(1, vec![sent]);
    let to_head = ring.network.drain(..).find(|(to, p)| *to == 0 && p.meta.kind == Kind::Acknowledge);
    let acknowledge = to_head.expect("an acknowledgement").1;
    let mut orchestrator = Orchestrator::new(&ring.plan);
    orchestrator.declare_dead(0);
    orchestrator.admit();
    let view = orchestrator.view().clone();
    let nfs = Arc::clone(&ring.nodes[0].nfs);
    for (i, damage) in damages(acknowledge.frame()).iter().enumerate() {
        ring.accept(0, vec![with_frame(&acknowledge, damage)]);
        assert_eq!(ring.nodes[0].stats().refused.total(), i as u64 + 1);
    }
    assert!(!ring.nodes[0].retained.is_empty());
    ring.nodes[0] = Node::replacement(0, ring.plan, nfs, view.clone(), Now::default(), &mut ring.out);
    ring.nodes[1].adopt(&view, &mut ring.out);
    let (_, fetch) = ring.out.control.pop().expect("a fetch");
    for (i, damage) in damages(fetch.frame()).iter().enumerate() {
        ring.accept(1, vec![with_frame(&fetch, damage)]);
        assert_eq!(ring.nodes[1].stats().refused.total(), i as u64 + 1);
        assert!(ring.out.control.is_empty());
    }
    ring.accept(1, vec![fetch]);
    let (_, snapshot) = ring.out.control.pop().expect("a snapshot");
    for (i, damage) in damages(snapshot.frame()).iter().enumerate() {
        ring.accept(0, vec![with_frame(&snapshot, damage)]);
        assert_eq!(ring.nodes[0].stats().refused.total(), i as u64 + 1);
        assert!(!ring.nodes[0].is_up());
    }
    ring.accept(0, vec![snapshot]);
    assert!(ring.nodes[0].is_up());
    assert_eq!(count(&ring.nodes[0], 0, 1), Some(1));
}

/// A ring whose node 2 of 3 is being replaced, with f = 2: its question, and the answer to it.
fn replaced() -> (Ring, Packet, Packet) {
    let mut ring = Ring::new(plan(3, 2));
    ring.accept(0, vec![frame(1, WRITE, 0, 60)]);
    let (_, unit) = ring.network.pop_front().expect("a frame with its unit");
    ring.network.clear();
    ring.accept(1, vec![unit]);
    let mut orchestrator = Orchestrator::new(&ring.plan);
    orchestrator.declare_dead(2);
    orchestrator.admit();
    let view = orchestrator.view().clone();
    let nfs = Arc::clone(&ring.nodes[0].nfs);
    ring.nodes[2] = Node::replacement(2, ring.plan, nfs, view.clone(), Now::default(), &mut ring.out);
    ring.nodes[1].adopt(&view, &mut ring.out);
    let (_, fetch) = ring.out.control.drain(..).find(|(to, _)| *to == 1).expect("a fetch");
    ring.accept(1, vec![fetch.clone()]);
    let (_, snapshot) = ring.out.control.pop().expect("a snapshot");
    (ring, fetch, snapshot)
}

/// The same message with another body, behind a good checksum.
fn resealed(packet: &Packet, body: &[u8]) -> Packet {
    let mut forged = Packet::default();
    control::seal(&mut forged, packet.meta.kind, body);
    forged.meta = packet.meta;
    forged
}

/// `snapshot` taken apart: the view, each store with its stage, and what is retained for them.
fn parts(body: &[u8]) -> (&[u8], Vec<&[u8]>, &[u8]) {
    const VECTORS: usize = 1 + 2 * 8 * 8; // stage, then versions and commits of 8 partitions
    let (view, mut rest) = body.split_at(8);
    let mut stores = Vec::new();
    while rest[0] != u8::MAX {
        let rows = u64::from_le_bytes(rest[VECTORS..VECTORS + 8].try_into().unwrap());
        let (store, after) = rest.split_at(VECTORS + 8 + rows as usize);
        stores.push(store);
        rest = after;
    }
    (view, stores, &rest[1..])
}

#[test]
fn snapshots_that_are_no_answer_to_the_question_are_refused() {
    // Goal: a checksum makes no sense of nonsense. Method: a snapshot put together anew: stores left out, doubled or of
    // another stage, vectors that can't be, retained units that this node could never let go; then as it was.
    let (mut ring, fetch, snapshot) = replaced();
    let body = snapshot.frame()[control::HEADER..].to_vec();
    let (view, stores, units) = parts(&body);
    assert!(stores.len() == 2 && !units.is_empty(), "stages 0 and 1, and what stage 1 wrote");
    let put = |stores: &[&[u8]], units: &[u8]| [view, &stores.concat(), &[u8::MAX], units].concat();
    assert_eq!(put(&stores, units), body);
    let with = |at: usize, bytes: &[u8]| {
        let mut store = stores[0].to_vec();
        store[at..at + bytes.len()].copy_from_slice(bytes);
        store
    };
    let commit_ahead = with(1 + 8 * 8, &9u64.to_le_bytes());
    let overflowing = with(1, &u64::MAX.to_le_bytes());
    let (own, unknown) = (with(0, &[2]), with(0, &[3]));
    let mut forged = vec![put(&[], units), put(&stores[..1], units), put(&[stores[0], stores[0]], units)];
    for store in [&commit_ahead, &overflowing, &own, &unknown] {
        forged.push(put(&[store, stores[1]], units));
    }
    forged.push(put(&[stores[0], stores[1], &own], units));
    for stage in [0, 3, u8::MAX] {
        let (mut unit, mut bytes) = (crate::piggyback::UnitBuilder::default(), Vec::new());
        unit.add(stage).note(0, 0, true);
        unit.encode(&mut bytes);
        forged.push(put(&stores, &[&(bytes.len() as u32).to_le_bytes(), &bytes[..]].concat()));
    }
    for (i, body) in forged.iter().enumerate() {
        ring.accept(2, vec![resealed(&snapshot, body)]);
        assert_eq!(ring.nodes[2].stats().refused.total(), i as u64 + 1, "forgery {i}");
        assert!(ring.nodes[2].stores.iter().all(Option::is_none) && ring.nodes[2].retained.is_empty());
    }
    let twice = [&fetch.frame()[control::HEADER..], &[0]].concat();
    ring.accept(1, vec![resealed(&fetch, &twice)]);
    assert_eq!((refused(&ring.nodes[1], "damaged_record"), ring.out.control.len()), (1, 0));
    ring.accept(2, vec![snapshot]);
    assert_eq!(count(&ring.nodes[2], 0, 1), Some(1));
}

proptest! {
    #[test]
    fn no_control_message_panics(body in prop::collection::vec(any::<u8>(), 0..120), kind in 0usize..3, sealed: bool) {
        // Goal: any bytes are refused or taken. Method: noise to a node, also with a good checksum around it.
        let mut ring = Ring::new(plan(2, 1));
        let kind = [Kind::Acknowledge, Kind::Fetch, Kind::Snapshot][kind];
        let mut packet = Packet::new(&body);
        if sealed {
            control::seal(&mut packet, kind, &body);
        }
        packet.meta.kind = kind;
        packet.meta.sender = 1;
        packet.meta.incarnation = ring.nodes[1].incarnation();
        ring.accept(0, vec![packet]);
        prop_assert!(sealed || ring.nodes[0].stats().refused.total() == 1);
    }
}
