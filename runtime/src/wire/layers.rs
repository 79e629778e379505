//! Where each header of a frame lies: the one parse that everything else builds on.

use core::ops::Range;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::{
    Malformed,
    ethernet::{EthernetHeader, VlanTag, ethertype},
    icmp::{IcmpHeader, IcmpRole, IcmpVersion},
    ip::{Fragment, protocol},
    ipv4::Ipv4Header,
    ipv6::{self, Ipv6Header},
    tcp::TcpHeader,
    udp::UdpHeader,
    view,
};

/// VLAN tags that the parse passes; what lies behind a third is [`L3::Other`].
pub const MAX_VLAN_TAGS: usize = 2;

/// What lies behind Ethernet and its VLAN tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum L3 {
    /// An IPv4 packet.
    Ipv4,
    /// An IPv6 packet.
    Ipv6,
    /// An ARP packet, not looked into.
    Arp,
    /// Anything else, by its Ethertype (below 0x0600: the length of an 802.3 frame).
    Other(u16),
}

/// Offsets into one frame, found by [`Layers::parse`]. All are in bytes from the frame's start.
///
/// The L4 length comes from the IP header, never from the frame: padding is not payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    l3: L3,
    protocol: u8,
    tags: u8,
    controls: [u16; MAX_VLAN_TAGS],
    l3_offset: u16,
    payload_offset: u16,
    payload_length: u16,
    has_l4: bool,
    has_stops_left: bool,
    fragment: Option<Fragment>,
}

/// How most frames start.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Start {
    ethernet: EthernetHeader,
    ip: Ipv4Header,
}

impl Layers {
    /// Finds the headers of an Ethernet frame. Frames that carry no IP parse too, see [`Layers::l3`].
    ///
    /// # Errors
    /// The first defect on the way in. Nothing is judged behind the L4 header.
    #[inline(always)] // in registers: callers read most fields at once
    pub fn parse(frame: &[u8]) -> Result<Layers, Malformed> {
        match Layers::plain(frame) {
            Some(layers) => Ok(layers),
            None => Layers::parse_any(frame),
        }
    }

    /// The layers of a whole TCP or UDP packet over IPv4 without VLAN tags and IP options, as most packets are. `None` for all
    /// others, and where anything is wrong: [`Layers::parse_any`] knows more.
    ///
    /// A function that takes plain packets apart from the others, in code that is inlined for both, is a good deal
    /// faster with them: most questions that it asks of their layers are answered when it is compiled.
    #[inline(always)]
    pub fn plain(frame: &[u8]) -> Option<Layers> {
        let Start { ethernet, ip } = view(frame, 0)?;
        let at = size_of::<Start>();
        let packet = frame.get(..EthernetHeader::LENGTH + usize::from(ip.total_length.get()))?;
        let is_whole_ipv4 =
            ethernet.ethertype == ethertype::IPV4 && ip.version_length == 0x45 && !ip.is_fragment();
        let has_l4 = match ip.protocol {
            protocol::TCP => TcpHeader::view(packet, at).is_ok(),
            protocol::UDP => UdpHeader::view(packet, at, false).is_ok(),
            _ => false,
        };
        (is_whole_ipv4 && has_l4).then(|| Layers {
            l3: L3::Ipv4,
            protocol: ip.protocol,
            tags: 0,
            controls: [0; MAX_VLAN_TAGS],
            l3_offset: EthernetHeader::LENGTH as u16,
            payload_offset: at as u16,
            payload_length: (packet.len() - at) as u16,
            has_l4,
            has_stops_left: false,
            fragment: None,
        })
    }

    /// Finds the headers as [`Layers::parse`] does, and does not expect a plain packet.
    ///
    /// # Errors
    /// As there.
    #[inline(never)]
    pub fn parse_any(frame: &[u8]) -> Result<Layers, Malformed> {
        let mut kind = EthernetHeader::view(frame)?.ethertype.get();
        let mut at = EthernetHeader::LENGTH;
        let mut controls = [0; MAX_VLAN_TAGS];
        let mut tags = 0;
        for control in &mut controls {
            if !ethertype::is_vlan(kind) {
                break;
            }
            let tag = VlanTag::view(frame, at)?;
            (*control, kind) = (tag.control.get(), tag.ethertype.get());
            at += VlanTag::LENGTH;
            tags += 1;
        }
        let l3 = match kind {
            ethertype::IPV4 => L3::Ipv4,
            ethertype::IPV6 => L3::Ipv6,
            ethertype::ARP => L3::Arp,
            other => L3::Other(other),
        };
        let mut layers = Layers {
            l3,
            protocol: 0,
            tags,
            controls,
            l3_offset: at as u16,
            payload_offset: at as u16,
            payload_length: 0,
            has_l4: false,
            has_stops_left: false,
            fragment: None,
        };
        match l3 {
            L3::Ipv4 => layers.enter_ipv4(frame, at)?,
            L3::Ipv6 => layers.enter_ipv6(frame, at)?,
            L3::Arp | L3::Other(_) => {}
        }
        Ok(layers)
    }

    fn enter_ipv4(&mut self, frame: &[u8], at: usize) -> Result<(), Malformed> {
        let header = Ipv4Header::view(frame, at)?;
        let end = at + usize::from(header.total_length.get());
        let packet = frame.get(..end).ok_or(Malformed::TotalLengthBeyondFrame)?;
        self.protocol = header.protocol;
        self.fragment = header.fragment();
        self.enter_payload(packet, at + header.header_length())
    }

    fn enter_ipv6(&mut self, frame: &[u8], at: usize) -> Result<(), Malformed> {
        let header = Ipv6Header::view(frame, at)?;
        let end = at + Ipv6Header::LENGTH + usize::from(header.payload_length.get());
        let packet = frame.get(..end).ok_or(Malformed::TotalLengthBeyondFrame)?;
        let walk = ipv6::walk(packet, at)?;
        self.protocol = walk.protocol;
        self.fragment = walk.fragment;
        self.has_stops_left = walk.has_stops_left;
        let length = packet.len() - walk.offset;
        if walk.fragment.is_some_and(|fragment| fragment.more) && !length.is_multiple_of(8) {
            return Err(Malformed::FragmentLength);
        }
        self.enter_payload(packet, walk.offset)
    }

    /// Takes the rest of `packet` as the IP payload, and checks the L4 header if there is one.
    fn enter_payload(&mut self, packet: &[u8], at: usize) -> Result<(), Malformed> {
        let length = packet.len() - at;
        // Both fit: a packet has at most 65,535 bytes behind its fixed header, and the headers
        // before `at` have at most 22 + 40 + 8 * 2048.
        self.payload_offset = at as u16;
        self.payload_length = length as u16;
        if let Some(fragment) = self.fragment {
            if usize::from(fragment.offset) + length > usize::from(u16::MAX) {
                return Err(Malformed::FragmentOverflow);
            }
            if fragment.is_later() {
                return Ok(());
            }
        }
        match (self.protocol, self.l3) {
            (protocol::TCP, _) => drop(TcpHeader::view(packet, at)?),
            (protocol::UDP, _) => drop(UdpHeader::view(packet, at, self.is_first_fragment())?),
            (protocol::ICMP, L3::Ipv4) | (protocol::ICMPV6, L3::Ipv6) => drop(IcmpHeader::view(packet, at)?),
            _ => return Ok(()),
        }
        self.has_l4 = true;
        Ok(())
    }

    /// What lies behind Ethernet and the VLAN tags.
    #[inline]
    #[must_use]
    pub const fn l3(&self) -> L3 {
        self.l3
    }

    /// Whether the frame carries IPv4 or IPv6.
    #[inline]
    #[must_use]
    pub const fn is_ip(&self) -> bool {
        matches!(self.l3, L3::Ipv4 | L3::Ipv6)
    }

    /// The Ethertype behind the VLAN tags, in host byte order.
    #[must_use]
    pub const fn ethertype(&self) -> u16 {
        match self.l3 {
            L3::Ipv4 => ethertype::IPV4,
            L3::Ipv6 => ethertype::IPV6,
            L3::Arp => ethertype::ARP,
            L3::Other(kind) => kind,
        }
    }

    /// Number of VLAN tags, 0 to 2.
    #[inline]
    #[must_use]
    pub const fn vlan_count(&self) -> usize {
        self.tags as usize
    }

    /// Tag control information of the VLAN tags, outermost first, host byte order.
    #[must_use]
    pub fn vlan_controls(&self) -> &[u16] {
        &self.controls[..self.vlan_count()]
    }

    /// VLAN identifiers, outermost first; 0 where there is no tag.
    #[inline]
    #[must_use]
    pub fn vlan_ids(&self) -> [u16; MAX_VLAN_TAGS] {
        self.controls.map(|control| control & 0x0FFF)
    }

    /// First byte behind Ethernet and the VLAN tags.
    #[inline]
    #[must_use]
    pub const fn l3_offset(&self) -> usize {
        self.l3_offset as usize
    }

    /// Bytes of the IP packet, headers included, padding excluded; 0 without IP.
    #[inline]
    #[must_use]
    pub const fn l3_length(&self) -> usize {
        self.end() - self.l3_offset()
    }

    /// The protocol behind all extension headers; `None` without IP. In a later IPv6 fragment it is
    /// the first header of the fragmented part (RFC 8200 §4.5).
    #[inline]
    #[must_use]
    pub const fn protocol(&self) -> Option<u8> {
        if self.is_ip() { Some(self.protocol) } else { None }
    }

    /// First byte of a TCP, UDP or ICMP header; `None` for other protocols and in later fragments.
    #[inline]
    #[must_use]
    pub const fn l4_offset(&self) -> Option<usize> {
        if self.has_l4 { Some(self.payload_offset as usize) } else { None }
    }

    /// Bytes of the L4 header and its payload (of the fragment's part in a fragment), whatever the
    /// protocol; 0 without IP.
    #[must_use]
    pub const fn l4_length(&self) -> usize {
        self.payload_length as usize
    }

    /// First byte behind the IP header and its extension headers, whatever follows.
    #[must_use]
    pub const fn ip_payload_offset(&self) -> usize {
        self.payload_offset as usize
    }

    /// First byte behind the IP packet: padding from here on. Without IP: the L3 offset.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> usize {
        self.payload_offset as usize + self.payload_length as usize
    }

    /// The fragment fields. IPv4: `None` for a whole datagram. IPv6: `Some` exactly if there is a
    /// fragment header, which may be atomic.
    #[must_use]
    pub const fn fragment(&self) -> Option<Fragment> {
        self.fragment
    }

    /// Whether the packet holds part of a datagram only.
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| !fragment.is_atomic())
    }

    /// Whether this is the first of several fragments.
    #[must_use]
    pub fn is_first_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.is_first())
    }

    /// Whether this is a fragment without L4 header.
    #[inline]
    #[must_use]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.is_later())
    }

    /// Whether an IPv6 routing header has stops left, so that the L4 checksum covers another
    /// destination than the IPv6 header's (RFC 8200 §8.1).
    #[must_use]
    pub const fn has_stops_left(&self) -> bool {
        self.has_stops_left
    }

    /// Which ICMP the L4 header is, if it is one.
    #[inline]
    #[must_use]
    pub const fn icmp_version(&self) -> Option<IcmpVersion> {
        match (self.has_l4, self.protocol) {
            (true, protocol::ICMP) => Some(IcmpVersion::V4),
            (true, protocol::ICMPV6) => Some(IcmpVersion::V6),
            _ => None,
        }
    }

    /// The role of the ICMP message in `frame`, if it is one. `frame` must be the parsed one.
    #[inline(always)]
    #[must_use]
    pub fn icmp_role(&self, frame: &[u8]) -> Option<IcmpRole> {
        let version = self.icmp_version()?;
        let header = IcmpHeader::view(frame, self.l4_offset()?).ok()?;
        Some(IcmpRole::of(version, header.icmp_type))
    }

    /// Where the application's bytes lie: behind the TCP header and its options, in a UDP datagram
    /// as far as its length says, behind 8 bytes of ICMP. `None` without L4 header.
    #[must_use]
    pub fn payload(&self, frame: &[u8]) -> Option<Range<usize>> {
        let at = self.l4_offset()?;
        let packet = frame.get(..self.end())?;
        Some(match self.protocol {
            protocol::TCP => at + TcpHeader::view(packet, at).ok()?.header_length()..self.end(),
            protocol::UDP => {
                let length = UdpHeader::view(packet, at, self.is_fragment()).ok()?.length.get();
                at + UdpHeader::LENGTH..self.end().min(at + usize::from(length))
            }
            _ => at + IcmpHeader::LENGTH..self.end(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FrameBuilder;

    /// A UDP frame of 42 bytes, broken at one byte.
    fn broken(at: usize, value: u8) -> Result<L3, Malformed> {
        let mut frame = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2, b"");
        frame[at] = value;
        Layers::parse(&frame).map(|layers| layers.l3())
    }

    #[test]
    fn each_defect_has_its_reason() {
        // Goal: drops are counted by cause. Method: break one byte of a good frame at a time.
        assert_eq!(broken(0, 1), Ok(L3::Ipv4));
        assert_eq!(broken(12, 0x86), Ok(L3::Other(0x8600)));
        assert_eq!(broken(14, 0x65), Err(Malformed::Version));
        assert_eq!(broken(14, 0x44), Err(Malformed::HeaderLength));
        assert_eq!(broken(17, 19), Err(Malformed::TotalLengthShort));
        assert_eq!(broken(17, 27), Err(Malformed::TruncatedUdp));
        assert_eq!(broken(17, 29), Err(Malformed::TotalLengthBeyondFrame));
        assert_eq!((broken(20, 0x20), broken(20, 0x1F)), (Ok(L3::Ipv4), Ok(L3::Ipv4)));
        assert_eq!(broken(23, protocol::TCP), Err(Malformed::TruncatedTcp));
        assert_eq!(broken(39, 7), Err(Malformed::UdpLength));
        assert_eq!(broken(39, 9), Err(Malformed::UdpLength));
    }

    #[test]
    fn every_cut_is_refused() {
        // Goal: no length is taken on trust. Method: cut a tagged frame at every byte.
        let frame = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).vlan(5).vlan(6).tcp(1, 2, 0x10, b"abc");
        for length in 0..frame.len() {
            let expected = match length {
                0..14 => Malformed::TruncatedEthernet,
                14..22 => Malformed::TruncatedVlan,
                22..42 => Malformed::TruncatedIpv4,
                _ => Malformed::TotalLengthBeyondFrame,
            };
            assert_eq!(Layers::parse(&frame[..length]), Err(expected), "cut at {length}");
        }
        let layers = Layers::parse(&frame).expect("the frame is well-formed");
        assert_eq!((layers.vlan_ids(), layers.vlan_count(), layers.l3_offset()), ([5, 6], 2, 22));
        assert_eq!(
            (layers.l4_offset(), layers.l4_length(), layers.payload(&frame)),
            (Some(42), 23, Some(62..65))
        );
    }

    #[test]
    fn padding_is_not_payload() {
        // Goal: the L4 length is the IP header's (case 3). Method: an ACK padded to 60 bytes with 0xAA.
        let mut frame = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2, 0x10, b"");
        frame.resize(60, 0xAA);
        let layers = Layers::parse(&frame).expect("padding is allowed");
        assert_eq!((layers.l4_length(), layers.end(), layers.l3_length()), (20, 54, 40));
        assert_eq!(layers.payload(&frame), Some(54..54));
    }

    #[test]
    fn udp_data_ends_where_its_length_says() {
        // Goal: bytes between the datagram's end and the packet's are no data. Method: shorten the UDP length.
        let mut frame = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2, b"data+surplus");
        frame[39] = 12;
        let layers = Layers::parse(&frame).expect("a surplus is allowed");
        assert_eq!((layers.payload(&frame), layers.l4_length()), (Some(42..46), 20));
    }

    #[test]
    fn fragments_show_their_place() {
        // Goal: only a first fragment has an L4 header, of either version. Method: first, later, atomic.
        for builder in
            [FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]), FrameBuilder::ipv6([1; 16], [2; 16])]
        {
            let first = builder.clone().fragment(7, 0, true).udp(1, 2, &[0; 16]);
            let layers = Layers::parse(&first).expect("the first fragment is well-formed");
            assert!(layers.is_first_fragment() && layers.l4_offset().is_some());
            let later = builder.clone().fragment(7, 24, true).raw(protocol::UDP, &[0; 16]);
            let layers = Layers::parse(&later).expect("the later fragment is well-formed");
            assert_eq!(layers.fragment(), Some(Fragment { id: 7, offset: 24, more: true }));
            assert!(layers.is_later_fragment() && layers.l4_offset().is_none());
            assert_eq!(layers.l4_length(), 16);
            let beyond = builder.clone().fragment(7, 65_528, false).raw(protocol::UDP, &[0; 8]);
            assert_eq!(Layers::parse(&beyond), Err(Malformed::FragmentOverflow));
        }
        let atomic = FrameBuilder::ipv6([1; 16], [2; 16]).fragment(7, 0, false).udp(1, 2, b"");
        let layers = Layers::parse(&atomic).expect("an atomic fragment is whole");
        assert!(!layers.is_fragment() && layers.l4_offset().is_some());
        let odd = FrameBuilder::ipv6([1; 16], [2; 16]).fragment(7, 8, true).raw(protocol::UDP, &[0; 9]);
        assert_eq!(Layers::parse(&odd), Err(Malformed::FragmentLength));
    }

    #[test]
    fn other_ethertypes_pass_as_not_ip() {
        // Goal: ARP, LLDP and a third VLAN tag are no errors. Method: parse one of each.
        for (kind, l3) in [(0x0806, L3::Arp), (0x88CC, L3::Other(0x88CC)), (0x0026, L3::Other(0x26))] {
            let frame = FrameBuilder::new().ethernet_payload(kind, &[1, 2, 3]);
            let layers = Layers::parse(&frame).expect("the frame is not looked into");
            assert_eq!((layers.l3(), layers.protocol(), layers.l4_length()), (l3, None, 0));
        }
        let three = FrameBuilder::ipv4([1; 4], [2; 4]).vlan(1).vlan(2).vlan(3).udp(1, 2, b"");
        let layers = Layers::parse(&three).expect("the third tag is not looked into");
        assert_eq!((layers.l3(), layers.vlan_count()), (L3::Other(0x8100), 2));
    }

    #[test]
    fn the_short_way_says_what_the_long_way_says() {
        // Goal: what most packets take is no other parse. Method: every bit and every length of five kinds of frames.
        let v4 = FrameBuilder::ipv4([10, 0, 0, 1], [1, 2, 3, 4]);
        let frames = [
            v4.clone().udp(1, 2, b"payload"),
            v4.clone().tcp(1, 2, 2, b"payload"),
            v4.clone().ipv4_options(&[1; 8]).tcp(1, 2, 2, b"payload"),
            v4.clone().vlan(5).udp(1, 2, b""),
            v4.fragment(1, 0, true).udp(1, 2, &[0; 16]),
        ];
        let mut short = 0;
        let mut compare = |frame: &[u8]| {
            assert_eq!(Layers::parse(frame), Layers::parse_any(frame), "{frame:02x?}");
            short += usize::from(Layers::plain(frame).is_some());
        };
        for mut frame in frames {
            (0..=frame.len()).for_each(|len| compare(&frame[..len]));
            for bit in 0..8 * frame.len() {
                frame[bit / 8] ^= 1 << (bit % 8);
                compare(&frame);
                frame[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert!(short > 500, "only {short} frames took the short way");
    }
}
