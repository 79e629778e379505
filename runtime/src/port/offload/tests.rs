//! Checksums and segments against frames that were whole from the start, and against an independent implementation.

use proptest::prelude::*;
use zerocopy::{FromZeros, byteorder::network_endian};

use super::*;
use crate::crc;
use crate::packet::Pool;
use crate::wire::ipv4::Ipv4Header;
use crate::wire::tcp::{TcpHeader, flags};
use crate::wire::{FrameBuilder, L3, oracle, protocol};

/// The layers of a frame that is well formed.
fn layers(frame: &[u8]) -> Layers {
    Layers::parse(frame).expect("the frame is well formed")
}

/// A header that leaves the L4 checksum of a frame open.
fn needs_checksum(frame: &[u8]) -> VnetHeader {
    let layers = layers(frame);
    let offset = match layers.protocol() {
        Some(protocol::TCP) => TcpHeader::CHECKSUM_AT,
        Some(protocol::UDP) => UdpHeader::CHECKSUM_AT,
        Some(protocol) if protocol == SCTP.1 => SCTP.0,
        other => panic!("no checksum of {other:?} is left open"),
    };
    let start = layers.ip_payload_offset() as u16;
    VnetHeader {
        flags: VnetHeader::NEEDS_CHECKSUM,
        checksum_start: start.into(),
        checksum_offset: (offset as u16).into(),
        ..VnetHeader::default()
    }
}

/// A header that makes a super-frame of a frame.
fn super_header(frame: &[u8], size: usize) -> VnetHeader {
    let gso_type = match (layers(frame).protocol(), layers(frame).l3()) {
        (Some(protocol::UDP), _) => VnetHeader::GSO_UDP,
        (_, L3::Ipv4) => VnetHeader::GSO_TCPV4 | VnetHeader::GSO_ECN,
        _ => VnetHeader::GSO_TCPV6,
    };
    VnetHeader { gso_type, gso_size: (size as u16).into(), ..needs_checksum(frame) }
}

/// The frame as the kernel hands it over: the sum of the pseudo header in place of the checksum.
fn unfinished(frame: &[u8]) -> Vec<u8> {
    let (layers, header) = (layers(frame), needs_checksum(frame));
    let (l3, l4) = (layers.l3_offset(), layers.ip_payload_offset());
    let protocol = layers.protocol().expect("the frame is IP");
    let length = layers.l4_length();
    let addresses = if layers.l3() == L3::Ipv4 { &frame[l3 + 12..l3 + 20] } else { &frame[l3 + 8..l3 + 40] };
    let sum = Sum::new().bytes(addresses).word(protocol.into()).word(length as u16);
    let at = l4 + usize::from(header.checksum_offset.get());
    let mut frame = frame.to_vec();
    frame[at..at + 2].copy_from_slice(&(!sum.checksum()).to_be_bytes());
    frame
}

/// All pieces of a frame.
fn pieces(frame: &[u8], header: &VnetHeader, mtu: usize) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut pieces = Pieces::new(frame, header, mtu)?;
    let mut made = Vec::new();
    let mut packet = Packet::new(&[]);
    while let Some(result) = pieces.next(frame, &mut packet) {
        result?;
        made.push(packet.frame().to_vec());
        assert!(made.len() <= frame.len() + 1, "there is no end of pieces");
    }
    assert_eq!(pieces.left(), 0);
    Ok(made)
}

/// Headers of all kinds: 0 to 2 tags, either version, with options or extensions.
fn builders() -> impl Strategy<Value = FrameBuilder> {
    let tags = prop::collection::vec(0_u16..4096, 0..3);
    (any::<(bool, [u8; 16], [u8; 16], u8)>(), tags, 0_usize..4).prop_map(
        |((is_ipv6, a, b, class), tags, more)| {
            let short = |long: [u8; 16]| [long[0], long[1], long[2], long[3]];
            let builder = match is_ipv6 {
                false => {
                    FrameBuilder::ipv4(short(a), short(b)).ipv4_options(&vec![1; 4 * more]).dont_fragment()
                }
                true if more == 0 => FrameBuilder::ipv6(a, b),
                true => FrameBuilder::ipv6(a, b).extension(60, &[1, 4, 0, 0, 0, 0]),
            };
            tags.into_iter().fold(builder, FrameBuilder::vlan).traffic_class(class)
        },
    )
}

fn tcp_header(sequence: u32, flags: u8) -> TcpHeader {
    let mut header = TcpHeader::new_zeroed();
    (header.sequence, header.flags) = (network_endian::U32::new(sequence), flags);
    header
}

fn payloads() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..100),
        (1_usize..9_000, any::<u8>()).prop_map(|(len, seed)| (0..len).map(|i| (i as u8) ^ seed).collect()),
    ]
}

proptest! {
    #[test]
    fn a_checksum_left_open_is_completed(builder in builders(), payload in payloads(), is_tcp: bool) {
        // Goal: the frame leaves as if its sender had summed it. Method: leave the sum of a whole frame open, complete.
        let whole = match is_tcp {
            true => builder.tcp(1, 2, flags::ACK, &payload),
            false => builder.udp(1, 2, &payload),
        };
        let made = pieces(&unfinished(&whole), &needs_checksum(&whole), 0).expect("it can be completed");
        prop_assert_eq!(made, vec![whole.clone()]);
        let untouched = unfinished(&whole);
        prop_assert_eq!(pieces(&untouched, &VnetHeader::default(), 0), Ok(vec![untouched]));
    }

    #[test]
    fn tcp_segments_are_the_super_frame(
        builder in builders(), payload in payloads(), sequence: u32, bits: u8, id: u16,
        size in 1_usize..3_000, mtu in 200_usize..3_000,
        options in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        // Goal: payload, order, lengths, ids, flags and checksums of segments. Method: cut, put together, ask the oracle.
        let size = size.max(payload.len() / 200 + 1);
        let mut whole = builder.tcp_segment(tcp_header(sequence, bits), &options, &payload);
        let l3 = layers(&whole).l3_offset();
        if layers(&whole).l3() == L3::Ipv4 {
            Ipv4Header::view_mut(&mut whole, l3).expect("it is IPv4").id.set(id);
        }
        let made = pieces(&unfinished(&whole), &super_header(&whole, size), mtu).expect("it can be cut");
        let start = layers(&whole).payload(&whole).expect("it is TCP").start;
        let size = size.min(mtu + l3 - start);
        prop_assert_eq!(made.len(), payload.len().div_ceil(size).max(1));
        let mut together = Vec::new();
        for (number, piece) in made.iter().enumerate() {
            oracle::compare(piece)?;
            let layers = layers(piece);
            let header = TcpHeader::view(piece, layers.l4_offset().expect("it is TCP")).expect("it is TCP");
            prop_assert_eq!(header.sequence.get(), sequence.wrapping_add(together.len() as u32));
            let mut expected = bits;
            if number > 0 {
                expected &= !flags::CWR;
            }
            if number + 1 < made.len() {
                expected &= !(flags::FIN | flags::PSH);
            }
            prop_assert_eq!(header.flags, expected);
            if let Ok(header) = Ipv4Header::view(piece, l3) && layers.l3() == L3::Ipv4 {
                prop_assert_eq!(header.id.get(), id.wrapping_add(number as u16));
                prop_assert!(header.dont_fragment());
            }
            prop_assert!(piece.len() - l3 <= mtu);
            prop_assert_eq!(layers.end(), piece.len());
            let data = &piece[layers.payload(piece).expect("it is TCP")];
            prop_assert!(data.len() == size || number + 1 == made.len());
            prop_assert_eq!(&piece[..12], &whole[..12]);
            together.extend_from_slice(data);
        }
        prop_assert_eq!(together, payload);
    }

    #[test]
    fn udp_datagrams_keep_their_senders_length(
        builder in builders(), payload in payloads(), size in 1_usize..3_000, id: u16,
    ) {
        // Goal: each datagram is the sender's. Method: cut a chain of datagrams, compare each with its part, ask the
        // oracle; the MTU does not count.
        let size = size.max(payload.len() / 200 + 1);
        let whole = builder.udp(id, 2, &payload);
        let made = pieces(&unfinished(&whole), &super_header(&whole, size), 0).expect("it can be cut");
        let expected: Vec<&[u8]> = if payload.is_empty() { vec![&[]] } else { payload.chunks(size).collect() };
        prop_assert_eq!(made.len(), expected.len());
        for (piece, part) in made.iter().zip(expected) {
            oracle::compare(piece)?;
            prop_assert_eq!(&piece[layers(piece).payload(piece).expect("it is UDP")], part);
            prop_assert_eq!(layers(piece).end(), piece.len());
        }
    }

    #[test]
    fn no_bytes_bring_it_down(
        builder in builders(), payload in payloads(), is_tcp: bool, header: [u8; VnetHeader::LENGTH], mtu in 0_usize..9_000,
        damage in prop::collection::vec((12_usize..90, any::<u8>()), 0..4), keep in 0_usize..200, kind in 0_usize..6,
    ) {
        // Goal: no frame and no header panics or loops. Method: damage good ones, cut them off, draw headers at random.
        let mut frame = match is_tcp {
            true => builder.tcp(1, 2, flags::ACK, &payload),
            false => builder.udp(1, 2, &payload),
        };
        let mut header = VnetHeader::read_from_bytes(&header).expect("it has the length of a header");
        header.gso_type = [0, 1, 3, 4, 5, header.gso_type][kind];
        for (at, value) in damage {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        if keep < 100 {
            frame.truncate(keep);
        }
        if let Ok(made) = pieces(&frame, &header, mtu) {
            prop_assert!(!made.is_empty());
        }
    }
}

#[test]
fn sctp_gets_its_own_kind_of_checksum() {
    // Goal: SCTP leaves with a CRC32c. Method: a packet without it; the sum as computed bit by bit.
    let mut frame = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).raw(SCTP.1, b"ports, tag, 0000, chunks");
    let header = needs_checksum(&frame);
    complete(&mut frame, &header).expect("it can be completed");
    let stored = [frame[42], frame[43], frame[44], frame[45]];
    frame[42..46].fill(0);
    assert_eq!(u32::from_le_bytes(stored), crc::slow(&frame[34..]));
    assert_eq!(crc::slow(b"123456789"), 0xE306_9283);
}

#[test]
fn what_cannot_be_cut_is_refused_with_its_reason() {
    // Goal: nothing leaves that is not what its sender meant. Method: super-frames that are each wrong in one point.
    let builder = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let frame = builder.clone().tcp(1, 2, flags::ACK, &[7; 3_000]);
    let good = super_header(&frame, 1_000);
    assert_eq!(pieces(&frame, &good, 1_500).map(|made| made.len()), Ok(3));
    let refused = |header: VnetHeader, mtu| pieces(&frame, &header, mtu).expect_err("it is wrong");
    assert_eq!(refused(VnetHeader { gso_type: 3, ..good }, 1_500), "super_frame_unknown");
    let in_tunnel = "super_frame_in_tunnel";
    assert_eq!(refused(VnetHeader { gso_type: VnetHeader::GSO_UDP, ..good }, 1_500), in_tunnel);
    assert_eq!(refused(VnetHeader { gso_type: VnetHeader::GSO_TCPV6, ..good }, 1_500), in_tunnel);
    let no_room = "super_frame_impossible";
    assert_eq!(refused(VnetHeader { gso_size: 0.into(), ..good }, 1_500), no_room);
    assert_eq!(refused(good, 40), no_room);
    assert_eq!(pieces(&frame[..1_000], &good, 1_500), Err("super_frame_broken"));
    let fragment = builder.fragment(7, 0, true).tcp(1, 2, flags::ACK, &[7; 3_000]);
    assert_eq!(pieces(&fragment, &good, 1_500), Err(in_tunnel));
    let outside = VnetHeader { checksum_start: (frame.len() as u16 - 17).into(), gso_type: 0, ..good };
    assert_eq!(refused(outside, 1_500), OUTSIDE);
    let inside = VnetHeader { checksum_start: (frame.len() as u16 - 18).into(), ..outside };
    assert!(pieces(&frame, &inside, 1_500).is_ok());
}

#[test]
fn a_tag_that_is_counted_is_not_counted_twice() {
    // Goal: the checksum is completed whether the kernel counts the tag beside the frame or not. Method: both headers,
    // for a frame as it is in the ring and for one that waits.
    let whole = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2, b"data");
    let header = needs_checksum(&whole);
    let counted = VnetHeader { checksum_start: header.checksum_start + 4, ..header };
    for header in [header, counted] {
        assert_eq!(header.without_tag(&whole).checksum_start.get(), 34);
        let (mut pending, mut pool) = (Pending::new(), Pool::default());
        pending.put(&header, &unfinished(&whole)).expect("it has room");
        let length = VnetHeader::LENGTH + whole.len();
        pending.start(length, 0, Some([0x81, 0, 0, 5]), || 1_500).expect("it can be handed on");
        let packet = pending.next(&mut pool).expect("it is there").expect("it is whole");
        assert_eq!((&packet.frame()[..12], &packet.frame()[16..]), (&whole[..12], &whole[12..]));
    }
}

#[test]
fn a_tag_goes_back_to_where_it_was() {
    // Goal: the frame is as it was on the wire. Method: put the tag back into the frame that was built without it.
    let builder = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let mut packet = Packet::new(&builder.clone().vlan(6).udp(1, 2, b"data"));
    put_tag(&mut packet, [0x88, 0xA8, 0x60, 0x05]);
    assert_eq!(packet.frame(), builder.tag(0x88A8, 0x6005).vlan(6).udp(1, 2, b"data"));
    let mut short = Packet::new(&[1; 13]);
    put_tag(&mut short, [0x81, 0, 0, 1]);
    assert_eq!(short.frame(), [1; 13]);
}

#[test]
fn a_frame_is_handed_on_over_several_bursts() {
    // Goal: pieces wait for the next burst with their time and their tag. Method: start, take one by one, start anew.
    let (mut pending, mut pool) = (Pending::new(), Pool::default());
    assert!(pending.next(&mut pool).is_none());
    let frame = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2, flags::ACK, &[7; 2_500]);
    let header = super_header(&frame, 1_000);
    pending.put(&header, &frame).expect("it has room");
    let length = VnetHeader::LENGTH + frame.len();
    pending.start(length, 9, Some([0x81, 0, 0, 5]), || 1_500).expect("it can be cut");
    for size in [1_000, 1_000, 500] {
        let packet = pending.next(&mut pool).expect("a piece is left").expect("it is whole");
        assert_eq!((packet.meta.time, packet.frame().len()), (9, 58 + size));
        assert_eq!(layers(packet.frame()).vlan_controls(), [5]);
    }
    assert!(pending.next(&mut pool).is_none());
    assert!(pending.put(&header, &vec![0; 1 << 17]).is_err());
    assert!(pending.start((1 << 17) + 1, 9, None, || 1_500).is_err());
    assert!(pending.start(VnetHeader::LENGTH - 1, 9, None, || 1_500).is_err());
    assert!(pending.next(&mut pool).is_none());
}
