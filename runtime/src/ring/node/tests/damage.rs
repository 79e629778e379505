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
        packet.meta.addressee = ring.nodes[0].incarnation();
        ring.accept(0, vec![packet]);
        prop_assert!(sealed || ring.nodes[0].stats().refused.total() == 1);
    }
}
