//! The flow key: who talks to whom, over what, on which VLANs.

use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, byteorder::network_endian::U16, transmute,
};

use super::{
    Endpoint, Malformed,
    icmp::{IcmpHeader, IcmpRole},
    ip::protocol,
    ipv4::Ipv4Header,
    ipv6::Ipv6Header,
    layers::{L3, Layers, MAX_VLAN_TAGS},
    view,
};

/// [`Flow::tags`]: the addresses are IPv4. Needed since IPv6 may carry mapped addresses itself.
const IPV4: u8 = 0x80;
/// [`Flow::tags`]: an ICMP query, so that identifier 0 is not taken for "no identifier".
const QUERY: u8 = 0x40;
/// [`Flow::tags`]: the number of VLAN tags.
const TAG_COUNT: u8 = 0x03;

/// One direction of a flow: 42 bytes without padding, compared whole.
///
/// Ports are 0 in later fragments and for protocols without ports. An ICMP query's identifier takes
/// the place of the source port in a request, and of the destination port in a reply, so that
/// [`reverse`](Flow::reverse) of a request is its reply. ICMP errors have neither.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Flow {
    /// Sender; IPv4 as `::ffff:a.b.c.d`.
    source: [u8; 16],
    /// Receiver; IPv4 as `::ffff:a.b.c.d`.
    destination: [u8; 16],
    source_port: U16,
    destination_port: U16,
    /// VLAN identifiers, outermost first, 0 where there is no tag.
    vlans: [U16; MAX_VLAN_TAGS],
    protocol: u8,
    /// Version, query mark, number of VLAN tags.
    tags: u8,
}

impl Flow {
    /// The flow of the packet in `frame`.
    ///
    /// # Errors
    /// Those of [`Layers::parse`]; [`Malformed::NotIp`].
    pub fn parse(frame: &[u8]) -> Result<Flow, Malformed> {
        Flow::of(frame, &Layers::parse(frame)?).ok_or(Malformed::NotIp)
    }

    /// The flow of the packet whose headers are known; `None` without IP.
    #[inline(always)]
    #[must_use]
    pub fn of(frame: &[u8], layers: &Layers) -> Option<Flow> {
        Flow::read(frame, layers, layers.l3(), layers.l3_offset(), layers.protocol()?, L4::of(layers))
    }

    /// The flow of a packet at `at` anywhere in `frame`, on the VLANs of `layers`.
    #[inline(always)]
    pub(super) fn read(
        frame: &[u8],
        layers: &Layers,
        l3: L3,
        at: usize,
        protocol: u8,
        l4: L4,
    ) -> Option<Flow> {
        let (source, destination, version) = match l3 {
            L3::Ipv4 => {
                let header: &Ipv4Header = view(frame, at)?;
                (mapped(header.source), mapped(header.destination), IPV4)
            }
            L3::Ipv6 => {
                let header: &Ipv6Header = view(frame, at)?;
                (header.source, header.destination, 0)
            }
            L3::Arp | L3::Other(_) => return None,
        };
        let (ports, query) = l4.ports(frame, l3, protocol)?;
        let tags = version | query | layers.vlan_count() as u8;
        Some(Words::new(source, destination, ports, layers.vlan_ids(), protocol, tags).into_flow())
    }

    /// A flow without VLAN tags. For ICMP it is a query: the identifier is a request's source port or
    /// a reply's destination port, and the other port is 0. If the addresses differ in version, the
    /// flow is IPv6 and the IPv4 address a mapped one.
    #[must_use]
    pub fn new(protocol: u8, source: SocketAddr, destination: SocketAddr) -> Flow {
        let octets = |address: IpAddr| match address {
            IpAddr::V4(address) => mapped(address.octets()),
            IpAddr::V6(address) => address.octets(),
        };
        let is_ipv4 = source.is_ipv4() && destination.is_ipv4();
        let is_icmp = protocol == if is_ipv4 { protocol::ICMP } else { protocol::ICMPV6 };
        Flow {
            source: octets(source.ip()),
            destination: octets(destination.ip()),
            source_port: U16::new(source.port()),
            destination_port: U16::new(destination.port()),
            vlans: [U16::ZERO; MAX_VLAN_TAGS],
            protocol,
            tags: if is_ipv4 { IPV4 } else { 0 } | if is_icmp { QUERY } else { 0 },
        }
    }

    /// The same flow on the VLANs of another.
    #[must_use]
    pub fn on_vlans_of(self, other: &Flow) -> Flow {
        Flow { vlans: other.vlans, tags: self.tags & !TAG_COUNT | other.tags & TAG_COUNT, ..self }
    }

    /// The flow of the answers.
    #[inline(always)]
    #[must_use]
    pub fn reverse(self) -> Flow {
        let words: Words = transmute!(self);
        words.reverse().into_flow()
    }

    /// The smaller of the flow and its [`reverse`](Self::reverse), as a key that both directions share, and whether that
    /// is the flow itself.
    #[inline(always)]
    #[must_use]
    pub fn ordered(self) -> (Flow, bool) {
        let end = |octets: [u8; 16], port: U16| (u128::from_be_bytes(octets), port.get());
        let source = end(self.source, self.source_port);
        let is_first = source <= end(self.destination, self.destination_port);
        (if is_first { self } else { self.reverse() }, is_first)
    }

    /// The flow with its ports zeroed: the same for all fragments of an IPv4 datagram.
    #[must_use]
    pub fn without_ports(self) -> Flow {
        Flow { source_port: U16::ZERO, destination_port: U16::ZERO, tags: self.tags & !QUERY, ..self }
    }

    /// Whether the packets are IPv4.
    #[inline]
    #[must_use]
    pub fn is_ipv4(&self) -> bool {
        self.tags & IPV4 != 0
    }

    /// Whether the packets are ICMP queries, with an identifier in place of a port.
    #[must_use]
    pub fn is_icmp_query(&self) -> bool {
        self.tags & QUERY != 0
    }

    /// Sender's address.
    #[inline]
    #[must_use]
    pub fn source(&self) -> IpAddr {
        self.address(self.source)
    }

    /// Receiver's address.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> IpAddr {
        self.address(self.destination)
    }

    /// Sender's port, host byte order; a request's identifier.
    #[inline]
    #[must_use]
    pub fn source_port(&self) -> u16 {
        self.source_port.get()
    }

    /// Receiver's port, host byte order; a reply's identifier.
    #[inline]
    #[must_use]
    pub fn destination_port(&self) -> u16 {
        self.destination_port.get()
    }

    /// IP protocol number.
    #[inline]
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// VLAN identifiers, outermost first; 0 where there is no tag.
    #[must_use]
    pub fn vlan_ids(&self) -> [u16; MAX_VLAN_TAGS] {
        self.vlans.map(U16::get)
    }

    /// Number of VLAN tags, 0 to 2.
    #[must_use]
    pub fn vlan_count(&self) -> usize {
        MAX_VLAN_TAGS.min(usize::from(self.tags & TAG_COUNT))
    }

    /// The sender as a key for translation tables; `None` for IPv6.
    #[must_use]
    pub fn source_endpoint(&self) -> Option<Endpoint> {
        self.endpoint(self.source, self.source_port)
    }

    /// The receiver as a key for translation tables; `None` for IPv6.
    #[must_use]
    pub fn destination_endpoint(&self) -> Option<Endpoint> {
        self.endpoint(self.destination, self.destination_port)
    }

    fn endpoint(&self, octets: [u8; 16], port: U16) -> Option<Endpoint> {
        match self.address(octets) {
            IpAddr::V4(address) => Some(Endpoint::new(self.protocol, address, port.get())),
            IpAddr::V6(_) => None,
        }
    }

    #[inline]
    fn address(&self, octets: [u8; 16]) -> IpAddr {
        let [.., a, b, c, d] = octets;
        if self.is_ipv4() { Ipv4Addr::new(a, b, c, d).into() } else { Ipv6Addr::from(octets).into() }
    }
}

/// A flow as it is made, turned round and read: in words. Where many small writes make a key, the processor has to wait
/// for them before it can read a word of it.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Words {
    source: [u8; 16],
    destination: [u8; 16],
    /// Both ports and both VLAN identifiers: a little-endian word.
    ports_vlans: [u8; 8],
    protocol_tags: [u8; 2],
}

impl Words {
    #[inline(always)]
    fn new(
        source: [u8; 16],
        destination: [u8; 16],
        ports: [U16; 2],
        vlans: [u16; MAX_VLAN_TAGS],
        protocol: u8,
        tags: u8,
    ) -> Words {
        let ports: [u8; 4] = transmute!(ports);
        let [outer, inner] = vlans.map(|id| u64::from(id.swap_bytes()));
        let ports_vlans = u64::from(u32::from_le_bytes(ports)) | outer << 32 | inner << 48;
        let protocol_tags = u16::from(protocol) | u16::from(tags) << 8;
        Words {
            source,
            destination,
            ports_vlans: ports_vlans.to_le_bytes(),
            protocol_tags: protocol_tags.to_le_bytes(),
        }
    }

    #[inline(always)]
    fn reverse(self) -> Words {
        let word = u64::from_le_bytes(self.ports_vlans);
        let ports = u64::from((word as u32).rotate_left(16));
        let ports_vlans = (word & !u64::from(u32::MAX) | ports).to_le_bytes();
        Words { source: self.destination, destination: self.source, ports_vlans, ..self }
    }

    #[inline(always)]
    fn into_flow(self) -> Flow {
        transmute!(self)
    }
}

/// What of an L4 header there is to read.
pub(super) enum L4 {
    /// None: a later fragment, or a protocol that the runtime does not look into.
    Absent,
    /// At least 8 bytes of TCP, UDP or ICMP, at this offset.
    Header(usize),
}

impl L4 {
    /// That of a frame.
    #[inline]
    pub(super) fn of(layers: &Layers) -> L4 {
        layers.l4_offset().map_or(L4::Absent, L4::Header)
    }

    /// Both ports, and whether they are an ICMP query's identifier.
    #[inline(always)]
    pub(super) fn ports(self, frame: &[u8], l3: L3, protocol: u8) -> Option<([U16; 2], u8)> {
        let L4::Header(at) = self else { return Some(([U16::ZERO; 2], 0)) };
        let Some(version) = super::icmp_version(l3, protocol) else {
            return Some((*view(frame, at)?, 0));
        };
        let header: &IcmpHeader = view(frame, at)?;
        Some(match IcmpRole::of(version, header.icmp_type) {
            IcmpRole::Request => ([header.id, U16::ZERO], QUERY),
            IcmpRole::Reply => ([U16::ZERO, header.id], QUERY),
            IcmpRole::Error | IcmpRole::Other => ([U16::ZERO; 2], 0),
        })
    }
}

/// The IPv4 address as `::ffff:a.b.c.d`.
#[inline]
fn mapped([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, a, b, c, d]
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match protocol::name(self.protocol) {
            Some(name) => write!(f, "{name} ")?,
            None => write!(f, "proto {} ", self.protocol)?,
        }
        let source = SocketAddr::new(self.source(), self.source_port());
        let destination = SocketAddr::new(self.destination(), self.destination_port());
        write!(f, "{source} -> {destination}")?;
        let ids = self.vlan_ids();
        match self.vlan_count() {
            0 => Ok(()),
            1 => write!(f, " vlan {}", ids[0]),
            _ => write!(f, " vlan {}.{}", ids[0], ids[1]),
        }
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A hash that is the same for both directions of a flow, on every machine and in every build:
/// it may be written to logs and decide placement. It is no defence against chosen collisions.
#[must_use]
pub fn symmetric_hash(flow: &Flow) -> u32 {
    let side = |octets: [u8; 16], port: U16| {
        let halves = u128::from_be_bytes(octets);
        mix(mix(mix((halves >> 64) as u64) ^ halves as u64) ^ u64::from(port.get()))
    };
    // Addition forgets which side was which.
    let sides =
        side(flow.source, flow.source_port).wrapping_add(side(flow.destination, flow.destination_port));
    let [outer, inner] = flow.vlan_ids().map(u64::from);
    let rest = u64::from(flow.protocol) | u64::from(flow.tags) << 8 | outer << 16 | inner << 32;
    (mix(sides ^ mix(rest)) >> 32) as u32
}

/// A bijection on 64 bits in which every input bit reaches every output bit: the finaliser of SplitMix64.
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FrameBuilder;

    fn text(frame: &[u8]) -> String {
        Flow::parse(frame).expect("the frame is well-formed").to_string()
    }

    #[test]
    fn flows_read_like_socket_pairs() {
        // Goal: logs are legible. Method: the text of one flow per protocol and version.
        let v4 = FrameBuilder::ipv4([10, 0, 0, 1], [1, 2, 3, 4]);
        assert_eq!(text(&v4.clone().tcp(80, 5, 2, b"")), "tcp 10.0.0.1:80 -> 1.2.3.4:5");
        assert_eq!(
            text(&v4.clone().vlan(7).vlan(0).udp(80, 5, b"")),
            "udp 10.0.0.1:80 -> 1.2.3.4:5 vlan 7.0"
        );
        assert_eq!(text(&v4.clone().raw(47, b"")), "proto 47 10.0.0.1:0 -> 1.2.3.4:0");
        assert_eq!(text(&v4.fragment(1, 8, true).raw(6, &[9; 8])), "tcp 10.0.0.1:0 -> 1.2.3.4:0");
        let v6 = FrameBuilder::ipv6(Ipv6Addr::LOCALHOST, [0xAB; 16]).udp(1, 2, b"");
        assert_eq!(text(&v6), "udp [::1]:1 -> [abab:abab:abab:abab:abab:abab:abab:abab]:2");
        let arp = FrameBuilder::new().ethernet_payload(0x0806, &[0; 28]);
        assert_eq!(Flow::parse(&arp), Err(Malformed::NotIp));
    }

    #[test]
    fn a_reply_has_the_reverse_flow() {
        // Goal: one lookup finds both directions. Method: packets of each direction, and a built key.
        let (a, b) = ([10, 0, 0, 1], [1, 2, 3, 4]);
        let parse = |frame: Vec<u8>| Flow::parse(&frame).expect("the frame is well-formed");
        let there = parse(FrameBuilder::ipv4(a, b).vlan(9).icmp_echo_request(77, 1, b""));
        let back = parse(FrameBuilder::ipv4(b, a).vlan(9).icmp_echo_reply(77, 1, b""));
        assert_eq!(there.reverse(), back);
        assert_eq!(symmetric_hash(&there), symmetric_hash(&back));
        let built = Flow::new(1, SocketAddr::from((a, 77)), SocketAddr::from((b, 0))).on_vlans_of(&back);
        assert_eq!(built, there);
        let there = parse(FrameBuilder::ipv6([1; 16], [2; 16]).tcp(5, 6, 2, b""));
        let back = parse(FrameBuilder::ipv6([2; 16], [1; 16]).tcp(6, 5, 0x12, b""));
        assert_eq!(there.reverse(), back);
    }

    #[test]
    fn keys_differ_where_flows_differ() {
        // Goal: no two flows share a key. Method: near misses of one flow, all different.
        let v4 = FrameBuilder::ipv4([10, 0, 0, 1], [1, 2, 3, 4]);
        let mapped_source = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped();
        let v6 = FrameBuilder::ipv6(mapped_source, Ipv4Addr::new(1, 2, 3, 4).to_ipv6_mapped());
        let frames = [
            v4.clone().udp(1, 2, b""),
            v4.clone().vlan(0).udp(1, 2, b""),
            v4.clone().vlan(0).vlan(0).udp(1, 2, b""),
            v4.clone().tcp(1, 2, 2, b""),
            v6.udp(1, 2, b""),
            v4.clone().icmp_echo_request(0, 0, b""),
            v4.icmp(3, 0, [0; 4], &[0; 28]),
        ];
        let flows: std::collections::BTreeSet<Flow> =
            frames.iter().map(|frame| Flow::parse(frame).expect("well-formed")).collect();
        assert_eq!(flows.len(), frames.len());
    }

    #[test]
    fn a_flow_is_its_bytes() {
        // Goal: keys go to logs and deltas as they are. Method: size, and a round trip through bytes.
        let frame = FrameBuilder::ipv4([10, 0, 0, 1], [1, 2, 3, 4]).vlan(0x123).udp(1, 2, b"");
        let flow = Flow::parse(&frame).expect("the frame is well-formed");
        assert_eq!(flow.as_bytes().len(), 42);
        assert_eq!(flow.as_bytes()[32..], [0, 1, 0, 2, 0x01, 0x23, 0, 0, 17, 0x81]);
        assert_eq!(Flow::read_from_bytes(flow.as_bytes()), Ok(flow));
        assert_eq!(flow.source_endpoint(), Some(Endpoint::new(17, Ipv4Addr::new(10, 0, 0, 1), 1)));
        assert_eq!(flow.without_ports().to_string(), "udp 10.0.0.1:0 -> 1.2.3.4:0 vlan 291");
    }

    #[test]
    fn the_hash_never_changes_and_spreads() {
        // Goal: logs replay on any build, shards share load. Method: known values; 4096 flows in 16 bins.
        let flow = |port| {
            Flow::new(6, SocketAddr::from(([10, 0, 0, 1], port)), SocketAddr::from(([1, 2, 3, 4], 80)))
        };
        assert_eq!([symmetric_hash(&flow(1)), symmetric_hash(&flow(2))], [0x75FF_E10F, 0x0FE1_6043]);
        let mut bins = [0; 16];
        for port in 0..4096 {
            bins[symmetric_hash(&flow(port)) as usize % 16] += 1;
        }
        assert!(bins.iter().all(|bin| (190..330).contains(bin)), "{bins:?}");
    }
}
