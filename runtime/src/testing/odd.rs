//! Odd frames: legal, but rare enough that network functions are wrong about them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;
use proptest::sample::select;
use zerocopy::{
    FromZeros,
    byteorder::network_endian::{U16, U32},
};

use super::flows::{Network, Opening, filled, frame_builder, opening, packet_of, payload, transports};
use super::frames::{Directed, MTU};
use super::shrink::plain_first;
use crate::packet::Direction;
use crate::wire::ethernet::ethertype;
use crate::wire::icmp::{v4, v6};
use crate::wire::tcp::TcpHeader;
use crate::wire::{Flow, FrameBuilder, Layers, MacAddr, protocol};

/// Legal frames that few hosts send: UDP without checksum, fragments, TTL 0 and 1, padding, broadcast and multicast,
/// unknown protocols, ICMP errors, TCP with any set of flags, jumbo frames, a third VLAN tag. All parse; checksums are
/// right where there are any. Shrinks to an empty packet with TTL 1.
pub fn odd_frame() -> impl Strategy<Value = Vec<u8>> {
    odd(&Network::default()).prop_map(|(_, frame)| frame)
}

/// Odd frames of a network's hosts.
pub(super) fn odd(network: &Network) -> impl Strategy<Value = Directed> + use<> {
    (opening(network, transports()), payload(600), oddity())
        .prop_map(|(opening, payload, oddity)| (opening.direction, oddity.frame(&opening, &payload)))
}

/// What is odd about a frame.
#[derive(Clone, Copy, Debug)]
enum Oddity {
    /// TTL or hop limit 0 or 1.
    Ttl(u8),
    /// So many bytes behind the packet, or as many as fill the shortest Ethernet frame (60 bytes without its checksum).
    Trailing(Option<usize>),
    /// UDP without checksum over IPv4; an atomic fragment (RFC 6946) over IPv6.
    WithoutChecksum,
    /// A fragment: first, middle or last of three, of so many times 8 bytes.
    Fragment { part: usize, units: usize },
    /// To all hosts of the link, or to a group of them.
    Group { is_broadcast: bool },
    /// Neither IP nor ARP.
    Ethertype(u16),
    /// Not TCP, UDP or ICMP.
    Protocol(u8),
    /// An ICMP error about a packet of the other direction: its type, how many bytes of the packet it quotes beyond
    /// those it must, and whether a router on the way says it.
    Error { kind: usize, code: u8, more: usize, is_router: bool },
    /// TCP with these flags, window and urgent pointer.
    Segment { flags: u8, window: u16, urgent: u16 },
    /// An IP packet of more than 1500 bytes: by how many.
    Jumbo(usize),
    /// Three VLAN tags.
    Tags,
}

fn oddity() -> impl Strategy<Value = Oddity> {
    // IPX, MPLS, PPPoE, LLDP, the length of an 802.3 frame, and the reserved last one.
    let ethertypes = select(&[0x8137_u16, 0x8847, 0x8864, 0x88CC, 0x0026, 0xFFFF][..]);
    // GRE, ESP, "no next header", OSPF, SCTP, and a number for experiments.
    let protocols = select(&[47_u8, 50, 59, 89, 132, 253][..]);
    let error = (0..4_usize, 0..4_u8, 0..200_usize, any::<bool>());
    let oddity = prop_oneof![
        (0..2_u8).prop_map(|below| Oddity::Ttl(1 - below)),
        prop::option::of(1..64_usize).prop_map(Oddity::Trailing),
        Just(Oddity::WithoutChecksum),
        (0..3_usize, 3..16_usize).prop_map(|(part, units)| Oddity::Fragment { part, units }),
        any::<bool>().prop_map(|is_broadcast| Oddity::Group { is_broadcast }),
        ethertypes.prop_map(Oddity::Ethertype),
        protocols.prop_map(Oddity::Protocol),
        error.prop_map(|(kind, code, more, is_router)| Oddity::Error { kind, code, more, is_router }),
        any::<(u8, u16, u16)>().prop_map(|(flags, window, urgent)| Oddity::Segment { flags, window, urgent }),
        (1..=7_400_usize).prop_map(Oddity::Jumbo),
        Just(Oddity::Tags),
    ];
    plain_first(Oddity::Ttl(1), oddity)
}

impl Oddity {
    fn frame(self, opening: &Opening, payload: &[u8]) -> Vec<u8> {
        let flow = &opening.flow;
        let builder = frame_builder(flow);
        match self {
            Oddity::Ttl(ttl) => ended(builder.ttl(ttl), flow, payload),
            Oddity::Trailing(count) => {
                let mut frame = packet_of(flow, payload);
                let length = count.map_or(60.max(frame.len()), |count| frame.len() + count);
                frame.resize(length, 0xAA);
                frame
            }
            Oddity::WithoutChecksum if flow.is_ipv4() => without_checksum(flow, payload),
            Oddity::WithoutChecksum => ended(builder.fragment(1, 0, false), flow, payload),
            Oddity::Fragment { part, units } => {
                let chunk = 8 * units;
                // Data of two chunks and a byte give three fragments, whatever the L4 header's length.
                let data = [&filled(2 * chunk + 1, 0)[..], payload].concat();
                let mut fragments = builder.split(&packet_of(flow, &data), 7, chunk);
                let last = fragments.len().saturating_sub(1);
                fragments.swap_remove(if part == 2 { last } else { part.min(last) })
            }
            Oddity::Group { is_broadcast } => grouped(flow, is_broadcast, payload),
            Oddity::Ethertype(kind) => builder.ethernet_payload(kind, payload),
            Oddity::Protocol(number) => builder.raw(number, payload),
            Oddity::Error { kind, code, more, is_router } => {
                let quoted = packet_of(&flow.reverse(), payload);
                error(opening, kind, code, &quoted, more, is_router)
            }
            Oddity::Segment { flags, window, urgent } => {
                let header = TcpHeader {
                    source_port: U16::new(flow.source_port()),
                    destination_port: U16::new(flow.destination_port()),
                    sequence: U32::new(1),
                    acknowledgement: U32::new(1),
                    flags,
                    window: U16::new(window),
                    urgent: U16::new(urgent),
                    ..TcpHeader::new_zeroed()
                };
                builder.tcp_segment(header, &[], payload)
            }
            Oddity::Jumbo(excess) => packet_of(flow, &filled(MTU - 28 + excess, 0)),
            Oddity::Tags => {
                let tag = |builder, id| FrameBuilder::tag(builder, ethertype::VLAN, id);
                let tagged = (1 + flow.vlan_count() as u16..=3).fold(builder, tag);
                ended(tagged, flow, payload)
            }
        }
    }
}

/// A packet of the flow behind headers of one's own.
fn ended(builder: FrameBuilder, flow: &Flow, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (flow.source_port(), flow.destination_port());
    match flow.protocol() {
        protocol::UDP => builder.udp(source, destination, payload),
        protocol::TCP => builder.tcp(source, destination, crate::wire::tcp::flags::ACK, payload),
        _ => builder.icmp_echo_request(source, 0, payload),
    }
}

fn without_checksum(flow: &Flow, payload: &[u8]) -> Vec<u8> {
    let mut frame = frame_builder(flow).udp(flow.source_port(), flow.destination_port(), payload);
    let at = frame.len() - payload.len() - 2;
    frame[at..at + 2].fill(0);
    frame
}

/// The packet, to 255.255.255.255, 224.0.0.251 or ff02::fb (IPv6 has no broadcast), on both layers.
fn grouped(flow: &Flow, is_broadcast: bool, payload: &[u8]) -> Vec<u8> {
    let (address, mac): (IpAddr, _) = match (flow.is_ipv4(), is_broadcast) {
        (true, true) => (Ipv4Addr::BROADCAST.into(), MacAddr::BROADCAST),
        (true, false) => (Ipv4Addr::new(224, 0, 0, 251).into(), MacAddr([1, 0, 0x5E, 0, 0, 0xFB])),
        (false, _) => {
            (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb).into(), MacAddr([0x33, 0x33, 0, 0, 0, 0xFB]))
        }
    };
    let (source, destination) = (
        SocketAddr::new(flow.source(), flow.source_port()),
        SocketAddr::new(address, flow.destination_port()),
    );
    let to_group = Flow::new(flow.protocol(), source, destination).on_vlans_of(flow);
    let builder = frame_builder(&to_group).ethernet(super::flows::mac_of(flow.source()), mac);
    ended(builder, &to_group, payload)
}

/// An error that quotes at least the IP header and 8 bytes of `about`.
fn error(opening: &Opening, kind: usize, code: u8, about: &[u8], more: usize, is_router: bool) -> Vec<u8> {
    let flow = &opening.flow;
    let at = Layers::parse(about).map_or(about.len(), |layers| layers.l3_offset());
    let header = if flow.is_ipv4() { 20 } else { 40 };
    let quote = &about[at..about.len().min(at + header + 8 + more)];
    let kinds = match flow.is_ipv4() {
        true => [v4::UNREACHABLE, v4::TIME_EXCEEDED, v4::PARAMETER_PROBLEM, v4::REDIRECT],
        false => [v6::UNREACHABLE, v6::PACKET_TOO_BIG, v6::TIME_EXCEEDED, v6::PARAMETER_PROBLEM],
    };
    let sender = if is_router { router(opening.direction, flow.is_ipv4()) } else { flow.source() };
    let from = SocketAddr::new(sender, 0);
    let envelope = Flow::new(flow.protocol(), from, SocketAddr::new(flow.destination(), 0));
    frame_builder(&envelope.on_vlans_of(flow)).icmp(kinds[kind % kinds.len()], code, [0; 4], quote)
}

/// A router's address on the side that a packet of this direction comes from.
fn router(direction: Direction, is_ipv4: bool) -> IpAddr {
    match (direction, is_ipv4) {
        (Direction::Outbound, true) => Ipv4Addr::new(10, 255, 255, 254).into(),
        (Direction::Outbound, false) => Ipv6Addr::new(0xfd00, 0xffff, 0, 0, 0, 0, 0, 1).into(),
        (Direction::Inbound, true) => Ipv4Addr::new(203, 0, 113, 1).into(),
        (Direction::Inbound, false) => Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1).into(),
    }
}
