//! Damaged and late messages are refused with their reason, and the node goes on.

use proptest::prelude::*;

use super::*;
use crate::ring::control;
use crate::ring::node::recover::Life;

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
fn a_name_that_is_damaged_behind_a_sound_one_is_refused() {
    // Goal: what was found of a name holds for the very same bytes only. Method: a burst whose frames name one unit; all
    // bits and cuts of the last one's name, right behind the sound one.
    let mut plan = plan(2, 1);
    plan.unit_frames = 8;
    let mut ring = Ring::new(plan);
    ring.accept(0, (0..3).map(|serial| frame(1, WRITE, serial, 60)).collect());
    let sent = ring.network.drain(..).map(|(_, packet)| packet);
    let sent: Vec<Packet> = sent.filter(|packet| packet.meta.kind == Kind::Frame).collect();
    let [whole, sound, last] = <[Packet; 3]>::try_from(sent).expect("three frames");
    assert!(sound.unit() == last.unit() && sound.unit().len() < whole.unit().len());
    let damages = damages(last.unit());
    for (i, damage) in damages.iter().enumerate() {
        let mut damaged = last.clone();
        damaged.set_unit(damage);
        ring.accept(1, vec![whole.clone(), sound.clone(), damaged]);
        assert_eq!(ring.nodes[1].stats().refused.total(), i as u64 + 1);
    }
    assert_eq!(ring.nodes[1].stats().processed, 2 * damages.len() as u64);
    ring.accept(1, vec![whole, sound, last]);
    assert_eq!(ring.nodes[1].stats().refused.total(), damages.len() as u64);
    assert_eq!(count(&ring.nodes[1], 0, 1), Some(3));
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
    let nfs = Arc::clone(&ring.nodes[0].control.core.nfs);
    for (i, damage) in damages(acknowledge.frame()).iter().enumerate() {
        ring.accept(0, vec![with_frame(&acknowledge, damage)]);
        assert_eq!(ring.nodes[0].stats().refused.total(), i as u64 + 1);
    }
    assert!(!ring.nodes[0].lanes[0].retained.is_empty());
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
    let nfs = Arc::clone(&ring.nodes[0].control.core.nfs);
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

type Taken<'a> = (&'a [u8], &'a [u8], Vec<&'a [u8]>, &'a [u8]);

/// A snapshot in one part, taken apart: what is in front of the rows, the rows, the vectors of each store with its
/// stage, and what is retained for them.
fn parts(body: &[u8]) -> Taken<'_> {
    const FRONT: usize = 8 + 8 + 4 + 1;
    const VECTORS: usize = 1 + 2 * 8 * 8; // stage, then versions and commits of 8 partitions
    let (front, rest) = body.split_at(FRONT);
    let mut end = 0;
    while rest[end] != u8::MAX {
        end += 9 + u64::from_le_bytes(rest[end + 1..end + 9].try_into().unwrap()) as usize;
    }
    let (rows, mut rest) = (&rest[..end], &rest[end + 1..]);
    let mut vectors = Vec::new();
    while rest[0] != u8::MAX {
        let (store, after) = rest.split_at(VECTORS);
        vectors.push(store);
        rest = after;
    }
    (front, rows, vectors, &rest[1..])
}

#[test]
fn snapshots_that_are_no_answer_to_the_question_are_refused() {
    // Goal: a checksum makes no sense of nonsense. Method: a snapshot put together anew: stores left out, doubled or of
    // another stage, vectors that can't be, retained units that this node could never let go; then as it was.
    let (mut ring, fetch, snapshot) = replaced();
    let body = snapshot.frame()[control::HEADER..].to_vec();
    let (front, rows, vectors, units) = parts(&body);
    assert!(
        vectors.len() == 2 && !rows.is_empty() && !units.is_empty(),
        "stages 0 and 1, and what stage 1 wrote"
    );
    let put = |rows: &[u8], vectors: &[&[u8]], units: &[u8]| {
        [front, rows, &[u8::MAX], &vectors.concat(), &[u8::MAX], units].concat()
    };
    assert_eq!(put(rows, &vectors, units), body);
    let with = |at: usize, bytes: &[u8]| {
        let mut store = vectors[0].to_vec();
        store[at..at + bytes.len()].copy_from_slice(bytes);
        store
    };
    let commit_ahead = with(1 + 8 * 8, &9u64.to_le_bytes());
    let overflowing = with(1, &u64::MAX.to_le_bytes());
    let (own, unknown) = (with(0, &[2]), with(0, &[3]));
    let mut forged = vec![
        put(rows, &[], units),
        put(rows, &vectors[..1], units),
        put(rows, &[vectors[0], vectors[0]], units),
    ];
    for store in [&commit_ahead, &overflowing, &own, &unknown] {
        forged.push(put(rows, &[store, vectors[1]], units));
    }
    forged.push(put(rows, &[vectors[0], vectors[1], &own], units));
    let of_own_stage: Vec<u8> =
        rows.iter().enumerate().map(|(at, &byte)| if at == 0 { 2 } else { byte }).collect();
    forged.push(put(&of_own_stage, &vectors, units));
    for stage in [0, 3, u8::MAX] {
        let (mut unit, mut bytes) = (crate::piggyback::UnitBuilder::default(), Vec::new());
        unit.record(stage).note(0, 0, true);
        unit.encode(&mut bytes);
        forged.push(put(rows, &vectors, &[&[0], &(bytes.len() as u32).to_le_bytes()[..], &bytes].concat()));
    }
    forged.push(put(rows, &vectors, &[&[1], &units[1..]].concat())); // there is one lane
    for (i, body) in forged.iter().enumerate() {
        ring.accept(2, vec![resealed(&snapshot, body)]);
        assert_eq!(ring.nodes[2].stats().refused.total(), i as u64 + 1, "forgery {i}");
        assert!(
            ring.nodes[2].control.core.stores.iter().all(Option::is_none)
                && ring.nodes[2].lanes[0].retained.is_empty()
        );
    }
    let twice = [&fetch.frame()[control::HEADER..], &[0]].concat();
    ring.accept(1, vec![resealed(&fetch, &twice)]);
    assert_eq!((refused(&ring.nodes[1], "damaged_record"), ring.out.control.len()), (1, 0));
    ring.accept(2, vec![snapshot]);
    let Life::Joining(joining) = &ring.nodes[2].control.life else { panic!("stage 2 is still missing") };
    let counts = joining.stores[0].as_ref().and_then(|store| store.state.downcast::<Counts>());
    assert_eq!(counts.and_then(|state| state.counts.inspect(&1)), Some(1));
}

#[test]
fn a_store_is_copied_in_parts_while_its_source_goes_on() {
    // Goal: fuzzy copies are exact. Method: parts of one partition each; the source takes a packet between any two, and
    // its replacement, which gets the parts in reverse, ends with what the source has.
    let mut small = plan(2, 1);
    small.limits.snapshot_bytes = 1;
    let mut ring = Ring::new(small);
    (0..8).for_each(|key| ring.accept(0, vec![frame(key, WRITE, 0, 60)]));
    ring.settle();
    let mut orchestrator = Orchestrator::new(&ring.plan);
    orchestrator.declare_dead(1);
    orchestrator.admit();
    let view = orchestrator.view().clone();
    let nfs = Arc::clone(&ring.nodes[0].control.core.nfs);
    ring.nodes[1] = Node::replacement(1, ring.plan, nfs, view.clone(), ring.now, &mut ring.out);
    ring.nodes[0].adopt(&view, &mut ring.out);
    let fetches: Vec<Packet> =
        ring.out.control.drain(..).filter(|(to, _)| *to == 0).map(|(_, packet)| packet).collect();
    ring.accept(0, fetches);
    let mut answers: Vec<Packet> = ring.out.control.drain(..).map(|(_, packet)| packet).collect();
    for key in 0..20 {
        ring.accept(0, vec![frame(key % 8, WRITE, 1, 60)]);
        answers.extend(ring.out.control.drain(..).map(|(_, packet)| packet));
    }
    assert!(answers.len() > 6, "{} parts for two stores", answers.len());
    assert!(!ring.nodes[1].is_up());
    ring.accept(1, answers.into_iter().rev().collect());
    assert!(ring.nodes[1].is_up());
    ring.settle();
    ring.assert_equal_replicas();
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
