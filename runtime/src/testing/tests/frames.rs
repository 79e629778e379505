//! Valid frames are valid to an independent parser, odd ones parse, broken ones break nothing.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::prelude::*;

use super::values;
use crate::Direction;
use crate::testing::broken::{Damage, damage};
use crate::testing::flows::{Network, flow, packet_of, packets_of};
use crate::testing::frames::valid;
use crate::testing::{any_frame, broken_frame, odd_frame, valid_frame};
use crate::wire::arp::ArpPacket;
use crate::wire::checksum::internet;
use crate::wire::icmp::IcmpRole;
use crate::wire::verify::{L4Checksum, ipv4_checksum_is_right, l4_checksum};
use crate::wire::{
    Flow, IcmpError, L3, Layers, Malformed, Quote, icmp_error, oracle, properties, symmetric_hash,
};

/// What a look at a frame finds that tests of variety count.
fn trait_of(frame: &[u8]) -> String {
    match Layers::parse(frame) {
        Err(reason) => format!("{reason:?}"),
        Ok(layers) => {
            let checksum = l4_checksum(frame, &layers);
            let fragment = (layers.is_first_fragment(), layers.is_later_fragment());
            let (l3, tags, number) = (layers.l3(), layers.vlan_count(), layers.protocol());
            format!("{l3:?} {tags} {number:?} {checksum:?} {fragment:?}")
        }
    }
}

fn variety(frames: &[Vec<u8>]) -> BTreeSet<String> {
    frames.iter().map(|frame| trait_of(frame)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn valid_frames_are_valid_to_others_too(frame in valid_frame()) {
        // Goal: lengths, checksums and flow are right. Method: this parser and an independent one; ARP by its view.
        let layers = Layers::parse(&frame).expect("a valid frame parses");
        prop_assert!(layers.l3_length() <= 1_500);
        if layers.l3() == L3::Arp {
            let arp = ArpPacket::view(&frame, layers.l3_offset()).expect("ARP is well-formed");
            prop_assert_eq!(frame.len(), layers.l3_offset() + ArpPacket::LENGTH);
            prop_assert!(arp.sender() != arp.target());
        } else {
            oracle::compare(&frame)?;
            prop_assert_eq!(frame.len(), layers.end());
        }
    }

    #[test]
    fn odd_frames_are_legal(frame in odd_frame()) {
        // Goal: odd is not broken. Method: each parses, and its checksums are right, absent, or can't be told.
        let layers = Layers::parse(&frame).expect("an odd frame parses");
        prop_assert!(layers.l3() != L3::Ipv4 || ipv4_checksum_is_right(&frame, &layers));
        prop_assert!(l4_checksum(&frame, &layers) != L4Checksum::Wrong);
        if layers.icmp_role(&frame) == Some(IcmpRole::Error) {
            let quote = Quote::parse(&frame, &layers).expect("an error quotes enough");
            let flow = Flow::of(&frame, &layers).expect("an error is IP");
            prop_assert_eq!(quote.flow().source(), flow.destination());
        }
    }

    #[test]
    fn no_frame_makes_a_view_panic(frame in any_frame(), broken in broken_frame(), port: u16) {
        // Goal: damage is a reason, never a panic. Method: frames of all kinds through everything that reads or edits.
        for frame in [frame, broken] {
            let _ = (0..=frame.len()).filter(|at| ArpPacket::view(&frame, *at).is_ok()).count();
            if let Ok(layers) = Layers::parse(&frame) {
                prop_assert!(layers.end() <= frame.len());
                if let Some(flow) = Flow::of(&frame, &layers) {
                    prop_assert_eq!(symmetric_hash(&flow), symmetric_hash(&flow.reverse()));
                }
                let _ = (ipv4_checksum_is_right(&frame, &layers), l4_checksum(&frame, &layers));
                let address = core::net::Ipv4Addr::LOCALHOST;
                let _ = icmp_error(&frame, &layers, IcmpError::PROHIBITED, address, &mut [0; 700]);
                properties::edit_all(&mut frame.clone(), &layers, port);
            }
        }
    }

    #[test]
    fn damage_is_what_it_says(frame in valid_frame(), damage in damage()) {
        // Goal: no damage is idle, and wrong checksums are found. Method: damage valid frames, look where it must show.
        let damaged = damage.apply(&frame);
        let flips_twice = matches!(&damage, Damage::Flip(flips) if flips.len() > 1);
        prop_assert!(damaged != frame || flips_twice);
        let before = Layers::parse(&frame).expect("a valid frame parses");
        match damage {
            Damage::L4Checksum(_) if before.l4_offset().is_some() => {
                prop_assert_eq!(l4_checksum(&damaged, &before), L4Checksum::Wrong);
            }
            Damage::HeaderChecksum(_) if before.l3() == L3::Ipv4 => {
                prop_assert!(!ipv4_checksum_is_right(&damaged, &before));
            }
            Damage::TotalLength(_) | Damage::UdpLength(_) if before.l3() == L3::Ipv4 => {
                let header = before.l3_offset()..before.l3_offset() + 20;
                let has_options = frame[header.start] != 0x45;
                prop_assert!(damaged.len() < frame.len() || has_options || internet(&damaged[header]) == 0);
            }
            Damage::Empty => prop_assert!(damaged.is_empty()),
            _ => {}
        }
    }

    #[test]
    fn packets_of_a_flow_are_the_flows(
        (flow, trace) in flow(&Network::default()).prop_flat_map(|flow| (Just(flow), packets_of(flow, 6))),
    ) {
        // Goal: each packet's flow is the one asked for, or its reverse. Method: parse, compare with the direction.
        for frame in &trace.0 {
            let expected = if frame.direction == Direction::Outbound { flow } else { flow.reverse() };
            prop_assert_eq!(frame.flow(), Some(expected));
            prop_assert_eq!(l4_checksum(&frame.bytes, &Layers::parse(&frame.bytes).unwrap()), L4Checksum::Right);
        }
        prop_assert!(trace.0.is_sorted_by(|a, b| a.time < b.time));
        prop_assert_eq!(Flow::parse(&packet_of(&flow, b"data")), Ok(flow));
    }

    #[test]
    fn frames_stay_on_their_network(
        (hosts, is_inbound, (direction, frame)) in (1_u16..300, any::<bool>()).prop_flat_map(|(hosts, is_inbound)| {
            let from_outside = if is_inbound { 1.0 } else { 0.0 };
            let network = Network { hosts, from_outside, ipv6: 0.0, tagged: 0.0, ..Network::default() };
            (Just(hosts), Just(is_inbound), valid(&network))
        }),
    ) {
        // Goal: hosts and shares of 0 and 1 are kept. Method: networks of either opener, addresses of valid frames.
        let layers = Layers::parse(&frame).expect("a valid frame parses");
        prop_assert!(layers.vlan_count() == 0 && layers.l3() != L3::Ipv6);
        if let Some(flow) = Flow::of(&frame, &layers) {
            prop_assert_eq!(direction == Direction::Inbound, is_inbound);
            let ends = [flow.source(), flow.destination()];
            let [inside, outside] = if is_inbound { [ends[1], ends[0]] } else { ends };
            for (address, first) in [(inside, [10, 0, 0, 1]), (outside, [198, 18, 0, 1])] {
                let IpAddr::V4(address) = address else { panic!("{address} is not IPv4") };
                prop_assert!(address.to_bits() - u32::from_be_bytes(first) < u32::from(hosts));
            }
        }
    }
}

#[test]
fn frames_are_of_many_kinds() {
    // Goal: no kind is missing. Method: 5000 frames of each strategy, count what the parse tells of them.
    let valid = variety(&values(&valid_frame(), 1, 5_000));
    for tags in 0..=2 {
        for kind in ["Ipv4 T Some(17)", "Ipv4 T Some(6)", "Ipv4 T Some(1)", "Ipv6 T Some(58)", "Arp T None"] {
            let kind = kind.replace('T', &tags.to_string());
            assert!(
                valid.iter().any(|found| found.starts_with(&kind)),
                "no valid frame is {kind}: {valid:#?}"
            );
        }
    }
    let odd = variety(&values(&odd_frame(), 1, 5_000));
    for part in ["Absent", "(true, false)", "(false, true)", "Other(35020)", "Other(33024)", "Some(132)"] {
        assert!(odd.iter().any(|found| found.contains(part)), "no odd frame is {part}: {odd:#?}");
    }
    let broken = variety(&values(&broken_frame(), 1, 5_000));
    let reasons = [
        Malformed::TruncatedEthernet,
        Malformed::TruncatedVlan,
        Malformed::TruncatedIpv4,
        Malformed::TruncatedIpv6,
        Malformed::TruncatedExtension,
        Malformed::TruncatedTcp,
        Malformed::TruncatedUdp,
        Malformed::HeaderLength,
        Malformed::TotalLengthShort,
        Malformed::TotalLengthBeyondFrame,
        Malformed::UdpLength,
        Malformed::TcpDataOffset,
        Malformed::Version,
    ];
    for reason in reasons {
        assert!(broken.contains(&format!("{reason:?}")), "no broken frame is {reason:?}: {broken:#?}");
    }
    assert!(broken.iter().any(|found| found.contains("Wrong")), "no broken frame has a wrong checksum");
}
