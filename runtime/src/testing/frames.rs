//! Frames by how sound they are: valid ones, and any.

use proptest::prelude::*;
use proptest::sample::select;
use zerocopy::{
    FromZeros, IntoBytes,
    byteorder::network_endian::{U16, U32},
};

use super::broken::broken_frame;
use super::flows::{Network, Opening, Transport, echo, mac_of, opening, payload, prioritized, transports};
use super::odd::odd_frame;
use super::shrink::plain_first;
use crate::packet::Direction;
use crate::wire::arp::ArpPacket;
use crate::wire::ethernet::ethertype;
use crate::wire::tcp::{TcpHeader, flags};
use crate::wire::{Flow, FrameBuilder, MacAddr, protocol};

/// Longest IP packet of a valid frame in bytes.
pub(super) const MTU: usize = 1_500;

/// A frame and which way it goes.
pub(super) type Directed = (Direction, Vec<u8>);

/// Frames as healthy hosts send them, in either direction: IPv4 and IPv6 with TCP, UDP and echo, some with IP options
/// or extension headers, TCP options, VLAN tags; and ARP. All lengths and checksums are right, and IP packets have at
/// most 1500 bytes. Shrinks to an empty UDP datagram from 10.0.0.1 to 198.18.0.1.
pub fn valid_frame() -> impl Strategy<Value = Vec<u8>> {
    valid(&Network::default()).prop_map(|(_, frame)| frame)
}

/// Frames of all kinds: six in ten are [valid](valid_frame), two [odd](odd_frame), two [broken](broken_frame).
pub fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![6 => valid_frame(), 2 => odd_frame(), 2 => broken_frame()]
}

/// Valid frames of a network's hosts.
pub(super) fn valid(network: &Network) -> impl Strategy<Value = Directed> + use<> {
    let ip = (opening(network, transports()), payload(MTU), trimmings(), segment());
    let ip = ip.prop_map(|(opening, payload, trimmings, segment)| {
        (opening.direction, ip_frame(&opening.flow, &payload, &trimmings, &segment))
    });
    let plain = Network { ipv6: 0.0, ..network.clone() };
    let arp = (opening(&plain, Just(Transport::Udp)), any::<bool>()).prop_map(|(opening, is_reply)| {
        let opening = if is_reply { opening.reverse() } else { opening };
        (opening.direction, arp_frame(&opening, is_reply))
    });
    prop_oneof![12 => ip, 1 => arp]
}

/// What a packet may have between Ethernet and L4.
#[derive(Clone, Copy, Debug)]
struct Trimmings {
    /// Priority and drop eligibility in VLAN tags, 4 bits.
    priority: u16,
    traffic_class: u8,
    ttl: u8,
    dont_fragment: bool,
    /// Which of the options or extension headers, one bit each.
    headers: u8,
    /// Turns an echo request into its reply, and has servers answer.
    is_answer: bool,
}

fn trimmings() -> impl Strategy<Value = Trimmings> {
    let class = prop_oneof![3 => Just(0), 1 => any::<u8>()];
    let ttl = prop_oneof![3 => Just(64), 1 => 2..=255_u8];
    let trimmings = (0..16_u16, class, ttl, any::<bool>(), mask(), any::<bool>()).prop_map(
        |(priority, traffic_class, ttl, dont_fragment, headers, is_answer)| Trimmings {
            priority,
            traffic_class,
            ttl,
            dont_fragment,
            headers,
            is_answer,
        },
    );
    let plain = Trimmings {
        priority: 0,
        traffic_class: 0,
        ttl: 64,
        dont_fragment: false,
        headers: 0,
        is_answer: false,
    };
    plain_first(plain, trimmings)
}

/// Mostly nothing, else some of four bits.
fn mask() -> impl Strategy<Value = u8> {
    prop_oneof![3 => Just(0), 1 => prop::bits::u8::masked(0x0F)]
}

/// What a TCP segment has beside its flow and data.
#[derive(Clone, Copy, Debug)]
struct Segment {
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
    window: u16,
    options: u8,
}

/// Segments with the flags that connections really use.
fn segment() -> impl Strategy<Value = Segment> {
    const FLAGS: [u8; 8] = [
        flags::ACK,
        flags::SYN,
        flags::SYN | flags::ACK,
        flags::PSH | flags::ACK,
        flags::FIN | flags::ACK,
        flags::FIN | flags::PSH | flags::ACK,
        flags::RST,
        flags::RST | flags::ACK,
    ];
    let number = || plain_first(0, any::<u32>());
    let segment = (select(&FLAGS[..]), number(), number(), any::<u16>(), mask()).prop_map(
        |(flags, sequence, acknowledgement, window, options)| Segment {
            flags,
            sequence,
            acknowledgement: if flags & flags::ACK == 0 { 0 } else { acknowledgement },
            window,
            options,
        },
    );
    plain_first(
        Segment { flags: flags::ACK, sequence: 0, acknowledgement: 0, window: 0, options: 0 },
        segment,
    )
}

fn ip_frame(flow: &Flow, payload: &[u8], trimmings: &Trimmings, segment: &Segment) -> Vec<u8> {
    let flow = &if trimmings.is_answer && flow.is_icmp_query() { answer(flow) } else { *flow };
    let builder = with_trimmings(prioritized(flow, trimmings.priority), flow, trimmings);
    let end = |payload: &[u8]| {
        let builder = builder.clone();
        let (source, destination) = (flow.source_port(), flow.destination_port());
        match flow.protocol() {
            protocol::UDP => builder.udp(source, destination, payload),
            protocol::TCP => tcp(builder, flow, segment, payload),
            _ => echo(builder, flow, segment.window, payload),
        }
    };
    let frame = end(payload);
    let excess = frame.len().saturating_sub(14 + 4 * flow.vlan_count() + MTU);
    if excess == 0 { frame } else { end(&payload[..payload.len() - excess]) }
}

/// The echo reply that goes the same way as a request.
fn answer(flow: &Flow) -> Flow {
    let (source, destination) = ((flow.source(), 0).into(), (flow.destination(), flow.source_port()).into());
    Flow::new(flow.protocol(), source, destination).on_vlans_of(flow)
}

fn with_trimmings(builder: FrameBuilder, flow: &Flow, trimmings: &Trimmings) -> FrameBuilder {
    /// No operation; router alert (RFC 2113); record route, empty; security (RFC 1108, unclassified).
    const OPTIONS: [&[u8]; 4] = [&[1; 4], &[0x94, 4, 0, 0], &[1, 7, 7, 4, 0, 0, 0, 0], &[0x82, 4, 0xAB, 0]];
    /// Hop-by-hop with a router alert (RFC 2711), which must come first; destination options with padding; a routing
    /// header without stops left (RFC 6554); destination options for the last stop only.
    const EXTENSIONS: [(u8, &[u8]); 4] = [
        (protocol::HOP_BY_HOP, &[5, 2, 0, 0, 1, 0]),
        (protocol::DESTINATION, &[1, 4, 0, 0, 0, 0]),
        (protocol::ROUTING, &[3, 0, 0, 0, 0, 0]),
        (protocol::DESTINATION, &[1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    let mut builder = builder.ttl(trimmings.ttl).traffic_class(trimmings.traffic_class);
    if !flow.is_ipv4() {
        let chosen = chosen(&EXTENSIONS, trimmings.headers);
        return chosen.fold(builder, |builder, (kind, body)| builder.extension(kind, body));
    }
    if trimmings.dont_fragment {
        builder = builder.dont_fragment();
    }
    builder.ipv4_options(&chosen(&OPTIONS, trimmings.headers).collect::<Vec<_>>().concat())
}

fn tcp(builder: FrameBuilder, flow: &Flow, segment: &Segment, payload: &[u8]) -> Vec<u8> {
    /// Maximum segment size; window scale; selective acknowledgement permitted; timestamps.
    const OPTIONS: [&[u8]; 4] =
        [&[2, 4, 5, 0xB4], &[1, 3, 3, 7], &[1, 1, 4, 2], &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0]];
    let header = TcpHeader {
        source_port: U16::new(flow.source_port()),
        destination_port: U16::new(flow.destination_port()),
        sequence: U32::new(segment.sequence),
        acknowledgement: U32::new(segment.acknowledgement),
        flags: segment.flags,
        window: U16::new(segment.window),
        ..TcpHeader::new_zeroed()
    };
    let options: Vec<&[u8]> = chosen(&OPTIONS, segment.options).collect();
    builder.tcp_segment(header, &options.concat(), payload)
}

/// Those whose bit is set, in their order.
fn chosen<T: Copy>(all: &[T; 4], mask: u8) -> impl Iterator<Item = T> {
    all.iter().enumerate().filter(move |(bit, _)| mask >> bit & 1 == 1).map(|(_, one)| *one)
}

/// A request for the owner of the destination's address, or a reply to the destination.
fn arp_frame(opening: &Opening, is_reply: bool) -> Vec<u8> {
    let flow = &opening.flow;
    let (sender, target) = (mac_of(flow.source()), mac_of(flow.destination()));
    let octets =
        |endpoint: Option<crate::wire::Endpoint>| endpoint.map_or([0; 4], |endpoint| endpoint.address);
    let packet = ArpPacket {
        hardware: U16::new(1),
        protocol: U16::new(ethertype::IPV4),
        hardware_length: 6,
        protocol_length: 4,
        operation: U16::new(if is_reply { ArpPacket::REPLY } else { ArpPacket::REQUEST }),
        sender_mac: sender,
        sender: octets(flow.source_endpoint()),
        target_mac: if is_reply { target } else { MacAddr::default() },
        target: octets(flow.destination_endpoint()),
    };
    let to = if is_reply { target } else { MacAddr::BROADCAST };
    prioritized(flow, 0).ethernet(sender, to).ethernet_payload(ethertype::ARP, packet.as_bytes())
}
