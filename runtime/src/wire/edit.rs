//! New addresses and ports in a packet, with every checksum that covers them updated (RFC 1624).
//!
//! An edit is all or nothing: on an error the frame is as it was.

use core::{fmt, net::IpAddr};

use super::{
    checksum::Delta,
    icmp::{IcmpHeader, IcmpRole},
    icmp_version,
    ip::protocol,
    ipv4::Ipv4Header,
    ipv6::Ipv6Header,
    layers::{L3, Layers},
    tcp::TcpHeader,
    udp::UdpHeader,
    view, view_mut,
};

/// Which end of a packet an edit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The sender.
    Source,
    /// The receiver.
    Destination,
}

/// Why an edit was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Uneditable {
    /// The packet is not of the new address's IP version.
    Version,
    /// The packet has neither ports nor an ICMP identifier.
    NoPort,
    /// The frame is shorter than the one whose layers were given.
    FrameLength,
}

impl Uneditable {
    /// The reason as a stable `snake_case` identifier.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Uneditable::Version => "address_of_other_ip_version",
            Uneditable::NoPort => "packet_without_port",
            Uneditable::FrameLength => "frame_shorter_than_parsed",
        }
    }
}

impl fmt::Display for Uneditable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for Uneditable {}

/// Gives the packet a new sender: address, and port or ICMP identifier (host byte order).
/// Packets without one (later fragments, ICMP errors, other protocols) get the address only.
///
/// # Errors
/// [`Uneditable::Version`], [`Uneditable::FrameLength`].
#[inline(always)]
pub fn rewrite_source(
    frame: &mut [u8],
    layers: &Layers,
    address: impl Into<IpAddr>,
    port: u16,
) -> Result<(), Uneditable> {
    rewrite(frame, layers, Side::Source, address.into(), port)
}

/// Gives the packet a new receiver, as [`rewrite_source`] does a new sender.
///
/// # Errors
/// [`Uneditable::Version`], [`Uneditable::FrameLength`].
#[inline(always)]
pub fn rewrite_destination(
    frame: &mut [u8],
    layers: &Layers,
    address: impl Into<IpAddr>,
    port: u16,
) -> Result<(), Uneditable> {
    rewrite(frame, layers, Side::Destination, address.into(), port)
}

/// Gives the packet a new address and port on one side, see [`rewrite_source`].
///
/// # Errors
/// [`Uneditable::Version`], [`Uneditable::FrameLength`].
#[inline(always)]
pub fn rewrite(
    frame: &mut [u8],
    layers: &Layers,
    side: Side,
    address: IpAddr,
    port: u16,
) -> Result<(), Uneditable> {
    match rewrite_plain(frame, layers, side, address, port) {
        Some(()) => Ok(()),
        None => rewrite_any(frame, *layers, side, address, port),
    }
}

/// The rewrite of most packets: TCP and UDP over IPv4. `None`, and the frame is as it was, for others.
#[inline(always)]
pub(super) fn rewrite_plain(
    frame: &mut [u8],
    layers: &Layers,
    side: Side,
    address: IpAddr,
    port: u16,
) -> Option<()> {
    let (IpAddr::V4(address), L3::Ipv4) = (address, layers.l3()) else { return None };
    let packet = frame.get_mut(..layers.end())?;
    let (header, segment) = packet.split_at_mut_checked(layers.l4_offset()?)?;
    let header: &mut Ipv4Header = view_mut(header, layers.l3_offset())?;
    let is_udp = layers.protocol() == Some(protocol::UDP);
    let (ports, checksum) = if is_udp {
        let udp: &mut UdpHeader = view_mut(segment, 0)?;
        ([&mut udp.source_port, &mut udp.destination_port], &mut udp.checksum)
    } else {
        let tcp: &mut TcpHeader =
            view_mut(segment, 0).filter(|_| layers.protocol() == Some(protocol::TCP))?;
        ([&mut tcp.source_port, &mut tcp.destination_port], &mut tcp.checksum)
    };
    let [source_port, destination_port] = ports;
    let (old_address, old_port) = match side {
        Side::Source => (&mut header.source, source_port),
        Side::Destination => (&mut header.destination, destination_port),
    };
    let new = address.octets();
    let change = Delta::new().bytes(core::mem::replace(old_address, new), new);
    header.checksum.set(change.apply(header.checksum.get()));
    let change = change.word(old_port.get(), port);
    old_port.set(port);
    let old = checksum.get();
    checksum.set(if is_udp { change.apply_udp(old) } else { change.apply(old) });
    Some(())
}

/// The rewrite of any packet.
#[inline(never)]
pub(super) fn rewrite_any(
    frame: &mut [u8],
    layers: Layers,
    side: Side,
    address: IpAddr,
    port: u16,
) -> Result<(), Uneditable> {
    Site::of(frame, &layers)?.edit(frame, side, Some(address), Some(port)).map(drop)
}

/// Gives the packet a new source address and leaves ports alone.
///
/// # Errors
/// [`Uneditable::Version`], [`Uneditable::FrameLength`].
pub fn set_source(frame: &mut [u8], layers: &Layers, address: impl Into<IpAddr>) -> Result<(), Uneditable> {
    Site::of(frame, layers)?.edit(frame, Side::Source, Some(address.into()), None).map(drop)
}

/// Gives the packet a new destination address and leaves ports alone.
///
/// # Errors
/// [`Uneditable::Version`], [`Uneditable::FrameLength`].
pub fn set_destination(
    frame: &mut [u8],
    layers: &Layers,
    address: impl Into<IpAddr>,
) -> Result<(), Uneditable> {
    Site::of(frame, layers)?.edit(frame, Side::Destination, Some(address.into()), None).map(drop)
}

/// Gives the packet a new source port, or ICMP identifier (host byte order).
///
/// # Errors
/// [`Uneditable::NoPort`], [`Uneditable::FrameLength`].
pub fn set_source_port(frame: &mut [u8], layers: &Layers, port: u16) -> Result<(), Uneditable> {
    set_port(frame, layers, Side::Source, port)
}

/// Gives the packet a new destination port, or ICMP identifier (host byte order).
///
/// # Errors
/// [`Uneditable::NoPort`], [`Uneditable::FrameLength`].
pub fn set_destination_port(frame: &mut [u8], layers: &Layers, port: u16) -> Result<(), Uneditable> {
    set_port(frame, layers, Side::Destination, port)
}

fn set_port(frame: &mut [u8], layers: &Layers, side: Side, port: u16) -> Result<(), Uneditable> {
    let site = Site::of(frame, layers)?;
    if site.l4.is_none_or(|l4| l4.ports_at.is_none()) {
        return Err(Uneditable::NoPort);
    }
    site.edit(frame, side, None, Some(port)).map(drop)
}

/// A packet somewhere in a frame, either the frame's own or one quoted in an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) l3: L3,
    pub(super) l3_offset: usize,
    /// First byte that is no longer the packet's: nothing is edited from here on.
    pub(super) end: usize,
    pub(super) has_stops_left: bool,
    pub(super) l4: Option<L4Site>,
}

/// Where an L4 header keeps what edits touch, in bytes from the frame's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct L4Site {
    start: usize,
    checksum_at: usize,
    /// Source and destination; both the identifier in an ICMP query.
    ports_at: Option<[usize; 2]>,
    /// Whether the checksum covers the addresses.
    has_pseudo_header: bool,
    is_udp: bool,
}

impl L4Site {
    /// The TCP, UDP or ICMP header at `at`, of which at least 8 bytes are in `frame`.
    pub(super) fn at(frame: &[u8], l3: L3, protocol: u8, at: usize) -> Option<L4Site> {
        let ports = |checksum, is_udp| L4Site {
            start: at,
            checksum_at: at + checksum,
            ports_at: Some([at, at + 2]),
            has_pseudo_header: true,
            is_udp,
        };
        match protocol {
            protocol::TCP => return Some(ports(TcpHeader::CHECKSUM_AT, false)),
            protocol::UDP => return Some(ports(UdpHeader::CHECKSUM_AT, true)),
            _ => {}
        }
        let version = icmp_version(l3, protocol)?;
        let header: &IcmpHeader = view(frame, at)?;
        let is_query = IcmpRole::of(version, header.icmp_type).is_query();
        Some(L4Site {
            start: at,
            checksum_at: at + IcmpHeader::CHECKSUM_AT,
            ports_at: is_query.then_some([at + IcmpHeader::ID_AT; 2]),
            has_pseudo_header: matches!(l3, L3::Ipv6),
            is_udp: false,
        })
    }
}

impl Site {
    /// The packet of the frame itself.
    fn of(frame: &[u8], layers: &Layers) -> Result<Site, Uneditable> {
        if frame.len() < layers.end() {
            return Err(Uneditable::FrameLength);
        }
        let l4 = layers.l4_offset().zip(layers.protocol());
        Ok(Site {
            l3: layers.l3(),
            l3_offset: layers.l3_offset(),
            end: layers.end(),
            has_stops_left: layers.has_stops_left(),
            l4: l4.and_then(|(at, protocol)| L4Site::at(frame, layers.l3(), protocol, at)),
        })
    }

    /// Edits one side, and returns the change of the sum over all bytes of the packet.
    pub(super) fn edit(
        &self,
        frame: &mut [u8],
        side: Side,
        address: Option<IpAddr>,
        port: Option<u16>,
    ) -> Result<Delta, Uneditable> {
        match (address, self.l3) {
            (None, _) | (Some(IpAddr::V4(_)), L3::Ipv4) | (Some(IpAddr::V6(_)), L3::Ipv6) => {}
            _ => return Err(Uneditable::Version),
        }
        let packet = frame.get_mut(..self.end).ok_or(Uneditable::FrameLength)?;
        let (addresses, header) = self.edit_address(packet, side, address);
        let Some(l4) = self.l4 else { return Ok(addresses.and(header)) };

        let mut ports = Delta::new();
        if let (Some(port), Some(at)) = (port, l4.ports_at) {
            ports = replace(packet, at[side as usize], port.to_be_bytes());
        }
        // Under a routing header the checksum covers the last stop, not the address just changed.
        let is_covered = l4.has_pseudo_header && !(self.has_stops_left && side == Side::Destination);
        let covered = if is_covered { ports.and(addresses) } else { ports };
        let checksum = update(packet, l4.checksum_at, |old| match l4.is_udp {
            true => covered.apply_udp(old),
            false => covered.apply(old),
        });
        let all_zero = Self::avoid_zero(packet, &l4, ports);
        Ok(addresses.and(header).and(ports).and(checksum).and(all_zero))
    }

    /// Edits an address and the IPv4 header checksum, and returns the change of each.
    fn edit_address(&self, packet: &mut [u8], side: Side, address: Option<IpAddr>) -> (Delta, Delta) {
        match address {
            None => (Delta::new(), Delta::new()),
            Some(IpAddr::V4(address)) => {
                let at = self.l3_offset + Ipv4Header::SOURCE_AT + 4 * side as usize;
                let delta = replace(packet, at, address.octets());
                (delta, update(packet, self.l3_offset + Ipv4Header::CHECKSUM_AT, |old| delta.apply(old)))
            }
            Some(IpAddr::V6(address)) => {
                let at = self.l3_offset + Ipv6Header::SOURCE_AT + 16 * side as usize;
                (replace(packet, at, address.octets()), Delta::new())
            }
        }
    }

    /// An ICMP reply of nothing but zeros, as identifier 0 may make it, sums up to 0 instead of
    /// 0xFFFF, and would fail verification with checksum 0: it is the one case that
    /// RFC 1624 equation 3 gets wrong. No header with a pseudo header can be all zeros.
    fn avoid_zero(packet: &mut [u8], l4: &L4Site, ports: Delta) -> Delta {
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        if l4.has_pseudo_header || ports.is_nothing() || !packet.get(l4.start..).is_some_and(is_zero) {
            return Delta::new();
        }
        replace(packet, l4.checksum_at, [0xFF; 2])
    }
}

/// Overwrites the bytes at `at`, and returns the change. Outside of `packet` nothing changes.
pub(super) fn replace<const N: usize>(packet: &mut [u8], at: usize, new: [u8; N]) -> Delta {
    match packet.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
        Some(bytes) => Delta::new().bytes(core::mem::replace(bytes, new), new),
        None => Delta::new(),
    }
}

/// Updates the checksum at `at`, and returns the change. Outside of `packet` nothing changes.
pub(super) fn update(packet: &mut [u8], at: usize, with: impl Fn(u16) -> u16) -> Delta {
    match view::<[u8; 2]>(packet, at) {
        Some(old) => replace(packet, at, with(u16::from_be_bytes(*old)).to_be_bytes()),
        None => Delta::new(),
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::wire::{
        Flow, FrameBuilder,
        verify::{L4Checksum, ipv4_checksum_is_right, l4_checksum},
    };

    const NEW: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);

    /// Rewrites both sides of a frame; the checksums must then be right.
    fn rewritten(mut frame: Vec<u8>) -> (Flow, Vec<u8>) {
        let layers = Layers::parse(&frame).expect("the frame is well-formed");
        rewrite_source(&mut frame, &layers, NEW, 40_000).expect("the packet is IPv4");
        rewrite_destination(&mut frame, &layers, Ipv4Addr::new(198, 51, 100, 1), 80)
            .expect("the packet is IPv4");
        assert!(ipv4_checksum_is_right(&frame, &layers));
        let flow = Flow::of(&frame, &layers).expect("the packet is IPv4");
        (flow, frame)
    }

    #[test]
    fn every_protocol_keeps_its_checksums() {
        // Goal: rewrites leave valid packets. Method: rewrite each protocol, verify in full.
        let builder = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).vlan(3);
        let text = |frame| {
            let (flow, frame) = rewritten(frame);
            let layers = Layers::parse(&frame).expect("still well-formed");
            assert_eq!(l4_checksum(&frame, &layers), L4Checksum::Right);
            flow.to_string()
        };
        let ends = "192.0.2.77:40000 -> 198.51.100.1:80 vlan 3";
        assert_eq!(text(builder.clone().udp(1, 2, b"odd")), format!("udp {ends}"));
        assert_eq!(text(builder.clone().tcp(1, 2, 0x12, b"even")), format!("tcp {ends}"));
        // A query has one identifier: the later of the two rewrites wins.
        assert_eq!(
            text(builder.clone().icmp_echo_request(1, 2, b"x")),
            "icmp 192.0.2.77:80 -> 198.51.100.1:0 vlan 3"
        );
        assert_eq!(text(builder.icmp_echo_reply(1, 2, b"x")), "icmp 192.0.2.77:0 -> 198.51.100.1:80 vlan 3");
    }

    #[test]
    fn later_fragments_and_other_protocols_keep_their_payload() {
        // Goal: payload is not taken for ports. Method: rewrite, compare all bytes behind the IP header.
        let builder = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
        for frame in [builder.clone().fragment(1, 8, false).raw(6, &[7; 24]), builder.raw(47, &[7; 24])] {
            let (flow, after) = rewritten(frame.clone());
            assert_eq!(after[34..], frame[34..]);
            assert_eq!((flow.source_port(), flow.destination_port()), (0, 0));
            let layers = Layers::parse(&after).expect("still well-formed");
            assert_eq!(set_source_port(&mut after.clone(), &layers, 5), Err(Uneditable::NoPort));
        }
    }

    #[test]
    fn udp_without_checksum_stays_without() {
        // Goal: RFC 768's zero survives. Method: rewrite a datagram with checksum 0.
        let mut frame = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2, b"data");
        frame[40..42].fill(0);
        let (_, frame) = rewritten(frame);
        assert_eq!(frame[40..42], [0, 0]);
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        // Goal: an edit hides no damage. Method: damage, rewrite there and back, compare bytes.
        let mut frame = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2, 0x10, b"data");
        frame[50] ^= 0x40;
        let before = frame.clone();
        let layers = Layers::parse(&frame).expect("the frame is well-formed");
        rewrite_source(&mut frame, &layers, NEW, 9).expect("the packet is IPv4");
        assert_eq!(l4_checksum(&frame, &layers), L4Checksum::Wrong);
        rewrite_source(&mut frame, &layers, Ipv4Addr::new(10, 0, 0, 1), 1).expect("the packet is IPv4");
        assert_eq!(frame, before);
    }

    #[test]
    fn an_all_zero_reply_verifies() {
        // Goal: any identifier is allowed (RFC 5508 R1), 0 too. Method: a zero reply gets identifier 0.
        let mut frame = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).icmp_echo_reply(5, 0, &[0; 8]);
        let layers = Layers::parse(&frame).expect("the frame is well-formed");
        set_destination_port(&mut frame, &layers, 0).expect("a query has an identifier");
        assert_eq!((&frame[36..38], l4_checksum(&frame, &layers)), (&[0xFF; 2][..], L4Checksum::Right));
        set_destination_port(&mut frame, &layers, 5).expect("a query has an identifier");
        assert_eq!(l4_checksum(&frame, &layers), L4Checksum::Right);
    }

    #[test]
    fn ipv6_addresses_count_in_every_l4_checksum() {
        // Goal: ICMPv6 has a pseudo header, ICMP has none. Method: rewrite each protocol over IPv6.
        let builder = FrameBuilder::ipv6([1; 16], [2; 16]).extension(60, &[1, 4, 0, 0, 0, 0]);
        let frames = [
            builder.clone().udp(1, 2, b"abc"),
            builder.clone().tcp(1, 2, 2, b""),
            builder.icmp_echo_request(1, 2, b""),
        ];
        for mut frame in frames {
            let layers = Layers::parse(&frame).expect("the frame is well-formed");
            rewrite_source(&mut frame, &layers, Ipv6Addr::LOCALHOST, 7).expect("the packet is IPv6");
            set_destination(&mut frame, &layers, Ipv6Addr::from([9; 16])).expect("the packet is IPv6");
            assert_eq!(l4_checksum(&frame, &layers), L4Checksum::Right);
            let before = frame.clone();
            assert_eq!(set_source(&mut frame, &layers, NEW), Err(Uneditable::Version));
            let short = frame.len() - 1;
            assert_eq!(set_source_port(&mut frame[..short], &layers, 1), Err(Uneditable::FrameLength));
            assert_eq!(frame, before);
        }
    }

    #[test]
    fn a_routing_header_hides_the_destination_from_the_checksum() {
        // Goal: RFC 8200 §8.1. Method: change the destination with stops left, compare the L4 bytes.
        let mut frame =
            FrameBuilder::ipv6([1; 16], [2; 16]).extension(43, &[4, 1, 0, 0, 0, 0]).udp(1, 2, b"data");
        let layers = Layers::parse(&frame).expect("the frame is well-formed");
        let before = frame[layers.ip_payload_offset()..].to_vec();
        set_destination(&mut frame, &layers, Ipv6Addr::LOCALHOST).expect("the packet is IPv6");
        assert_eq!(frame[layers.ip_payload_offset()..], before);
        assert_eq!(l4_checksum(&frame, &layers), L4Checksum::Unknown);
    }
}
