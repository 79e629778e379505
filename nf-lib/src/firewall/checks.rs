//! Looks at single packets: is it sound, what does its TCP header say, is it neighbour discovery?

use std::net::IpAddr;

use pannier_runtime::wire::icmp::IcmpHeader;
use pannier_runtime::wire::ipv4::Ipv4Header;
use pannier_runtime::wire::ipv6::Ipv6Header;
use pannier_runtime::wire::tcp::{TcpHeader, flags};
use pannier_runtime::wire::{Flow, L3, Layers, Malformed, protocol};

/// The reason to drop a packet that no sound sender makes, whatever the rules say.
#[inline]
pub(super) fn insane(flow: &Flow, hops_left: u8, tcp: Option<u8>) -> Option<&'static str> {
    let (source, destination) = (flow.source(), flow.destination());
    let is_broadcast = source == IpAddr::from([255; 4]);
    let has = |tcp: u8, mask: u8| tcp & mask != 0;
    let is_impossible = |tcp: u8| {
        has(tcp, flags::SYN) && has(tcp, flags::FIN | flags::RST)
            || !has(tcp, flags::SYN | flags::RST | flags::ACK)
    };
    match () {
        () if hops_left == 0 => Some("ttl_zero"),
        () if source == destination => Some("land"),
        () if source.is_multicast() || is_broadcast => Some("multicast_source"),
        () if source.is_loopback() || destination.is_loopback() => Some("loopback_on_wire"),
        () if tcp.is_some_and(is_impossible) => Some("bad_tcp_flags"),
        () => None,
    }
}

/// The TTL or hop limit.
#[inline]
pub(super) fn hops_left(bytes: &[u8], layers: &Layers) -> Result<u8, Malformed> {
    match layers.l3() {
        L3::Ipv4 => Ok(Ipv4Header::view(bytes, layers.l3_offset())?.ttl),
        _ => Ok(Ipv6Header::view(bytes, layers.l3_offset())?.hop_limit),
    }
}

/// The control bits of a TCP segment; `None` for anything else.
#[inline]
pub(super) fn tcp_flags(bytes: &[u8], layers: &Layers) -> Option<u8> {
    let at = layers.l4_offset().filter(|_| layers.protocol() == Some(protocol::TCP))?;
    TcpHeader::view(bytes, at).ok().map(|header| header.flags)
}

/// Whether a TCP segment asks for a new connection.
#[inline]
pub(super) fn is_syn(tcp: u8) -> bool {
    tcp & (flags::SYN | flags::ACK) == flags::SYN
}

/// Whether a packet is neighbour discovery that cannot have passed a router (RFC 4861 §7.1.1).
pub(super) fn is_neighbour_discovery(bytes: &[u8], layers: &Layers) -> Result<bool, Malformed> {
    let Some(at) = layers.l4_offset() else { return Ok(false) };
    let is_message = matches!(IcmpHeader::view(bytes, at)?.icmp_type, 133..=137);
    Ok(is_message && layers.l3() == L3::Ipv6 && hops_left(bytes, layers)? == 255)
}
