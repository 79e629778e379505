//! The capture is what its description says, and the committed file is what the command makes.

use std::collections::{BTreeMap, HashMap};

use pannier_runtime::wire::verify::{L4Checksum, l4_checksum};
use pannier_runtime::wire::{Endpoint, Flow, Layers, protocol};

use super::*;

/// Packets that may be under way between a mapping's first packet and its first answer: three nodes, a burst at each.
const UNDER_WAY: usize = 3 * 8;

#[test]
fn the_committed_capture_is_a_fresh_one() {
    // Goal: nobody edits the file, and the command makes the same bytes each time. Method: compare both.
    let file = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(FILE));
    let fresh = capture(&packets()).expect("memory takes everything");
    assert!(
        file.expect("the capture is committed") == fresh,
        "run `cargo xtask trace` and commit the capture"
    );
}

#[test]
fn the_capture_is_small_and_in_order() {
    // Goal: the bounds of the description. Method: count packets, bytes, seconds and both ways.
    let packets = packets();
    assert!((3_500..=4_500).contains(&packets.len()), "{} packets", packets.len());
    assert!(capture(&packets).expect("memory takes everything").len() < 1_000_000);
    assert!(packets.is_sorted_by_key(|packet| packet.time));
    assert!(packets.last().is_some_and(|packet| packet.time < 20 * SECOND));
    let outbound = packets.iter().filter(|packet| packet.direction == Direction::Outbound).count();
    assert!((packets.len() / 3..packets.len() * 2 / 3).contains(&outbound), "{outbound} outbound");
}

#[test]
fn addresses_alone_tell_the_way_and_checksums_are_right() {
    // Goal: no chain needs the interfaces. Method: over all frames with a flow, addresses against the way.
    let mut without_flow = 0;
    for Packet { direction, frame, .. } in packets() {
        let Ok(flow) = Flow::parse(&frame) else {
            without_flow += 1;
            continue;
        };
        let inside = flow.source().to_string().starts_with("192.168.1.");
        assert_eq!(inside, direction == Direction::Outbound, "{flow}");
        assert_eq!(!inside, flow.destination() == EXTERNAL, "{flow}");
        let layers = Layers::parse(&frame).expect("it has a flow");
        assert_eq!(l4_checksum(&frame, &layers), L4Checksum::Right, "{flow}");
    }
    assert_eq!(without_flow, 6 + 2, "ARP, and frames whose headers do not parse");
}

#[test]
fn answers_find_the_mapping_of_their_question() {
    // Goal: with ports kept, no answer is lost to a chain that is a few bursts long. Method: the packet that opens
    // each mapping, its owner, and how far behind it the first answer comes.
    let (mut opened, mut unsolicited) = (HashMap::<(u8, u16), (usize, Endpoint)>::new(), 0);
    let mut protocols = BTreeMap::new();
    for (at, packet) in packets().iter().enumerate() {
        let Ok(flow) = Flow::parse(&packet.frame) else { continue };
        *protocols.entry(protocol::name(flow.protocol())).or_insert(0) += 1;
        if packet.direction == Direction::Outbound {
            let owner = flow.source_endpoint().expect("all is IPv4");
            let (_, first) = *opened.entry((flow.protocol(), owner.port())).or_insert((at, owner));
            assert_eq!(first, owner, "two hosts share a port");
            assert!((20_000..60_000).contains(&owner.port()), "{flow}");
        } else if let Some((first, _)) = opened.get(&(flow.protocol(), flow.destination_port())) {
            assert!(at - first > UNDER_WAY, "{flow} comes {} packets after its question", at - first);
        } else {
            unsolicited += 1;
        }
    }
    assert_eq!(unsolicited, 24 + 1, "scans, and an ICMP error, which has no port");
    assert!(protocols.values().all(|count| *count > 150) && protocols.len() == 3, "{protocols:?}");
}
