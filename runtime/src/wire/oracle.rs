//! The parse and the checksums against an independent implementation, `etherparse`.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::{
    Flow, FrameBuilder, Layers, Side,
    properties::mangled,
    rewrite,
    verify::{L4Checksum, ipv4_checksum_is_right, l4_checksum},
};

/// Which L4 a generated frame has.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Udp,
    Tcp,
    Request,
    Reply,
}

/// Frames of every kind the builder makes: 0–2 tags, either version, options or extensions.
pub(super) fn frames() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![Just(Kind::Udp), Just(Kind::Tcp), Just(Kind::Request), Just(Kind::Reply)];
    let payload = prop::collection::vec(any::<u8>(), 0..40);
    let tags = prop::collection::vec(0_u16..4096, 0..3);
    let more = prop::collection::vec(any::<u8>(), 0..12);
    (any::<(bool, [u8; 16], [u8; 16], u16, u16, u8)>(), kind, payload, tags, more).prop_map(
        |((is_ipv6, a, b, x, y, class), kind, payload, tags, more)| {
            let short = |long: [u8; 16]| [long[0], long[1], long[2], long[3]];
            let builder = match is_ipv6 {
                false => FrameBuilder::ipv4(short(a), short(b)).ipv4_options(&vec![1; more.len()]),
                true if more.is_empty() => FrameBuilder::ipv6(a, b),
                true => FrameBuilder::ipv6(a, b).extension(0, &[1, 4, 0, 0, 0, 0]).extension(60, &more),
            };
            let builder = tags.into_iter().fold(builder, FrameBuilder::vlan).traffic_class(class).ttl(class);
            match kind {
                Kind::Udp => builder.udp(x, y, &payload),
                Kind::Tcp => builder.tcp(x, y, class, &payload),
                Kind::Request => builder.icmp_echo_request(x, y, &payload),
                Kind::Reply => builder.icmp_echo_reply(x, y, &payload),
            }
        },
    )
}

/// The L4 checksum as the oracle computes it, and as the frame has it.
fn l4_checksums(packet: &SlicedPacket<'_>) -> (u16, u16) {
    let transport = packet.transport.as_ref().expect("the frame has an L4 header");
    match (packet.net.as_ref().expect("the frame is IP"), transport) {
        (NetSlice::Ipv4(ip), TransportSlice::Udp(udp)) => {
            let ip = ip.header().to_header();
            let checksum = udp.to_header().calc_checksum_ipv4(&ip, udp.payload());
            (checksum.expect("short enough"), udp.checksum())
        }
        (NetSlice::Ipv4(ip), TransportSlice::Tcp(tcp)) => {
            let ip = ip.header().to_header();
            let checksum = tcp.to_header().calc_checksum_ipv4(&ip, tcp.payload());
            (checksum.expect("short enough"), tcp.checksum())
        }
        (NetSlice::Ipv6(ip), TransportSlice::Udp(udp)) => {
            let ip = ip.header().to_header();
            let checksum = udp.to_header().calc_checksum_ipv6(&ip, udp.payload());
            (checksum.expect("short enough"), udp.checksum())
        }
        (NetSlice::Ipv6(ip), TransportSlice::Tcp(tcp)) => {
            let ip = ip.header().to_header();
            let checksum = tcp.to_header().calc_checksum_ipv6(&ip, tcp.payload());
            (checksum.expect("short enough"), tcp.checksum())
        }
        (_, TransportSlice::Icmpv4(icmp)) => {
            (icmp.icmp_type().calc_checksum(icmp.payload()), icmp.checksum())
        }
        (NetSlice::Ipv6(ip), TransportSlice::Icmpv6(icmp)) => {
            let header = ip.header();
            let checksum = icmp.icmp_type().calc_checksum(
                header.source_addr().octets(),
                header.destination_addr().octets(),
                icmp.payload(),
            );
            (checksum.expect("short enough"), icmp.checksum())
        }
        other => panic!("the builder makes no {other:?}"),
    }
}

/// Compares everything the oracle knows about a well-formed frame.
pub(crate) fn compare(frame: &[u8]) -> Result<(), TestCaseError> {
    let layers = Layers::parse(frame).expect("the oracle's frames are well-formed");
    let packet = SlicedPacket::from_ethernet(frame).expect("the frame is well-formed");
    let ids: Vec<u16> = packet.vlan_ids().iter().map(|id| id.value()).collect();
    prop_assert_eq!(&layers.vlan_ids()[..layers.vlan_count()], &ids[..]);
    let flow = Flow::of(frame, &layers).expect("the frame is IP");
    let (source, destination, payload) = match packet.net.as_ref().expect("the frame is IP") {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            prop_assert!(ipv4_checksum_is_right(frame, &layers));
            prop_assert_eq!(header.to_header().calc_header_checksum(), header.header_checksum());
            (header.source_addr().into(), header.destination_addr().into(), ip.payload())
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into(), ip.payload())
        }
        other => panic!("the builder makes no {other:?}"),
    };
    prop_assert_eq!((flow.source(), flow.destination()), (source, destination));
    prop_assert_eq!(layers.protocol(), Some(payload.ip_number.0));
    prop_assert_eq!(&frame[layers.ip_payload_offset()..layers.end()], payload.payload);
    match packet.transport.as_ref().expect("the frame has an L4 header") {
        TransportSlice::Udp(udp) => {
            prop_assert_eq!(
                (flow.source_port(), flow.destination_port()),
                (udp.source_port(), udp.destination_port())
            );
            prop_assert_eq!(&frame[layers.payload(frame).expect("UDP has a payload")], udp.payload());
        }
        TransportSlice::Tcp(tcp) => {
            prop_assert_eq!(
                (flow.source_port(), flow.destination_port()),
                (tcp.source_port(), tcp.destination_port())
            );
            prop_assert_eq!(&frame[layers.payload(frame).expect("TCP has a payload")], tcp.payload());
        }
        _ => prop_assert!(flow.is_icmp_query()),
    }
    let (expected, stored) = l4_checksums(&packet);
    prop_assert_eq!(l4_checksum(frame, &layers), L4Checksum::Right);
    prop_assert_eq!(expected, stored);
    Ok(())
}

proptest! {
    #[test]
    fn the_parse_agrees(frame in frames(), padding in 0_usize..20) {
        // Goal: offsets, lengths, flow and checksums are right. Method: compare with the oracle, padded too.
        let mut frame = frame;
        compare(&frame)?;
        frame.resize(frame.len() + padding, 0xAA);
        compare(&frame)?;
    }

    #[test]
    fn rewritten_frames_agree(frame in frames(), address: [u8; 16], port: u16, is_source: bool) {
        // Goal: incremental updates give the checksum a sender computes. Method: rewrite, ask the oracle.
        let mut frame = frame;
        let layers = Layers::parse(&frame).expect("the frame is well-formed");
        let side = if is_source { Side::Source } else { Side::Destination };
        let [a, b, c, d, ..] = address;
        let is_ipv4 = Flow::of(&frame, &layers).expect("the frame is IP").is_ipv4();
        let address = if is_ipv4 { [a, b, c, d].into() } else { address.into() };
        rewrite(&mut frame, &layers, side, address, port).expect("the version fits");
        compare(&frame)?;
    }

    #[test]
    fn mangled_frames_agree_where_both_accept(frame in mangled()) {
        // Goal: no field is misread in odd frames. Method: compare bounds where both call it well-formed.
        if let (Ok(layers), Ok(packet)) = (Layers::parse(&frame), SlicedPacket::from_ethernet(&frame))
            && let (Some(at), Some(transport)) = (layers.l4_offset(), &packet.transport)
        {
            let payload = packet.net.as_ref().and_then(|net| net.ip_payload_ref()).expect("L4 is in IP");
            prop_assert_eq!(layers.protocol(), Some(payload.ip_number.0));
            prop_assert_eq!(&frame[at..layers.end()], payload.payload);
            let data = match transport {
                TransportSlice::Udp(udp) => udp.payload(),
                TransportSlice::Tcp(tcp) => tcp.payload(),
                _ => &payload.payload[8..],
            };
            prop_assert_eq!(&frame[layers.payload(&frame).expect("there is an L4 header")], data);
        }
    }
}
