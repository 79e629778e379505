//! Whole, valid frames for tests, examples and generators. The one place here that allocates.

use core::net::{Ipv4Addr, Ipv6Addr};

use zerocopy::{
    FromZeros, IntoBytes,
    byteorder::network_endian::{U16, U32},
};

use super::{
    Layers,
    checksum::{Sum, internet},
    ethernet::{EthernetHeader, MacAddr, ethertype},
    icmp::{IcmpHeader, v4, v6},
    ip::{Fragment, protocol},
    ipv4::Ipv4Header,
    ipv6::{FragmentHeader, Ipv6Header},
    tcp::TcpHeader,
    udp::UdpHeader,
};

/// Describes the headers from the outside in; the last call names L4 and payload, and returns the
/// frame's bytes with right lengths and checksums. Ports and numbers are in host byte order.
///
/// ```
/// use pannier_runtime::wire::{Flow, FrameBuilder};
/// let frame = FrameBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1]).vlan(7).udp(5000, 53, b"question");
/// assert_eq!(Flow::parse(&frame).unwrap().to_string(), "udp 10.0.0.1:5000 -> 192.0.2.1:53 vlan 7");
/// ```
#[derive(Clone, Debug)]
pub struct FrameBuilder {
    source: MacAddr,
    destination: MacAddr,
    tags: Vec<(u16, u16)>,
    addresses: Addresses,
    ttl: u8,
    traffic_class: u8,
    dont_fragment: bool,
    fragment: Option<Fragment>,
    options: Vec<u8>,
    extensions: Vec<(u8, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug)]
enum Addresses {
    None,
    V4([u8; 4], [u8; 4]),
    V6([u8; 16], [u8; 16]),
}

impl Default for FrameBuilder {
    fn default() -> FrameBuilder {
        FrameBuilder::new()
    }
}

impl FrameBuilder {
    /// A frame without IP, to be ended by [`ethernet_payload`](Self::ethernet_payload).
    #[must_use]
    pub fn new() -> FrameBuilder {
        FrameBuilder {
            source: MacAddr([2, 0, 0, 0, 0, 1]),
            destination: MacAddr([2, 0, 0, 0, 0, 2]),
            tags: Vec::new(),
            addresses: Addresses::None,
            ttl: 64,
            traffic_class: 0,
            dont_fragment: false,
            fragment: None,
            options: Vec::new(),
            extensions: Vec::new(),
        }
    }

    /// A frame with IPv4.
    #[must_use]
    pub fn ipv4(source: impl Into<Ipv4Addr>, destination: impl Into<Ipv4Addr>) -> FrameBuilder {
        let addresses = Addresses::V4(source.into().octets(), destination.into().octets());
        FrameBuilder { addresses, ..FrameBuilder::new() }
    }

    /// A frame with IPv6.
    #[must_use]
    pub fn ipv6(source: impl Into<Ipv6Addr>, destination: impl Into<Ipv6Addr>) -> FrameBuilder {
        let addresses = Addresses::V6(source.into().octets(), destination.into().octets());
        FrameBuilder { addresses, ..FrameBuilder::new() }
    }

    /// Other MAC addresses than `02:00:00:00:00:01` to `02:00:00:00:00:02`.
    #[must_use]
    pub fn ethernet(mut self, source: MacAddr, destination: MacAddr) -> FrameBuilder {
        (self.source, self.destination) = (source, destination);
        self
    }

    /// One more 802.1Q tag, inside those before.
    #[must_use]
    pub fn vlan(self, id: u16) -> FrameBuilder {
        self.tag(ethertype::VLAN, id)
    }

    /// One more tag with its Ethertype and all its control information, inside those before.
    #[must_use]
    pub fn tag(mut self, ethertype: u16, control: u16) -> FrameBuilder {
        self.tags.push((ethertype, control));
        self
    }

    /// Another TTL or hop limit than 64.
    #[must_use]
    pub fn ttl(mut self, ttl: u8) -> FrameBuilder {
        self.ttl = ttl;
        self
    }

    /// DSCP (upper 6 bits) and ECN.
    #[must_use]
    pub fn traffic_class(mut self, class: u8) -> FrameBuilder {
        self.traffic_class = class;
        self
    }

    /// Sets IPv4's "don't fragment".
    #[must_use]
    pub fn dont_fragment(mut self) -> FrameBuilder {
        self.dont_fragment = true;
        self
    }

    /// Makes the packet a fragment. `offset` in bytes, its low 3 bits are cut off. The L4 checksum
    /// is that of the bytes given, so split a datagram with [`raw`](Self::raw).
    #[must_use]
    pub fn fragment(mut self, id: u32, offset: u16, more: bool) -> FrameBuilder {
        self.fragment = Some(Fragment { id, offset: offset & 0xFFF8, more });
        self
    }

    /// IPv4 options, filled up with zeros to a multiple of 4 bytes, cut off at 40.
    #[must_use]
    pub fn ipv4_options(mut self, options: &[u8]) -> FrameBuilder {
        self.options = options[..options.len().min(40)].to_vec();
        self.options.resize(self.options.len().next_multiple_of(4), 0);
        self
    }

    /// One more IPv6 extension header of this kind, inside those before: the bytes behind its next
    /// header and length fields, filled up with zeros to a multiple of 8 in all.
    #[must_use]
    pub fn extension(mut self, kind: u8, body: &[u8]) -> FrameBuilder {
        self.extensions.push((kind, body.to_vec()));
        self
    }

    /// Ends with UDP.
    #[must_use]
    pub fn udp(self, source_port: u16, destination_port: u16, payload: &[u8]) -> Vec<u8> {
        let header = UdpHeader {
            source_port: U16::new(source_port),
            destination_port: U16::new(destination_port),
            length: U16::new((UdpHeader::LENGTH + payload.len()) as u16),
            checksum: U16::ZERO,
        };
        self.l4(protocol::UDP, UdpHeader::CHECKSUM_AT, [header.as_bytes(), payload].concat())
    }

    /// Ends with TCP, sequence and acknowledgement numbers 1 and 1.
    #[must_use]
    pub fn tcp(self, source_port: u16, destination_port: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
        let header = TcpHeader {
            source_port: U16::new(source_port),
            destination_port: U16::new(destination_port),
            sequence: U32::new(1),
            acknowledgement: U32::new(1),
            flags,
            window: U16::MAX_VALUE,
            ..TcpHeader::new_zeroed()
        };
        self.tcp_segment(header, &[], payload)
    }

    /// Ends with TCP; data offset and checksum are filled in. Options are filled up with zeros to a
    /// multiple of 4 bytes, and cut off at 40.
    #[must_use]
    pub fn tcp_segment(self, mut header: TcpHeader, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut options = options[..options.len().min(40)].to_vec();
        options.resize(options.len().next_multiple_of(4), 0);
        header.data_offset = ((TcpHeader::LENGTH + options.len()) as u8) << 2;
        header.checksum = U16::ZERO;
        self.l4(protocol::TCP, TcpHeader::CHECKSUM_AT, [header.as_bytes(), &options, payload].concat())
    }

    /// Ends with an echo request of the IP version's ICMP.
    #[must_use]
    pub fn icmp_echo_request(self, id: u16, sequence: u16, payload: &[u8]) -> Vec<u8> {
        let icmp_type = if self.is_ipv6() { v6::ECHO_REQUEST } else { v4::ECHO_REQUEST };
        self.echo(icmp_type, id, sequence, payload)
    }

    /// Ends with an echo reply of the IP version's ICMP.
    #[must_use]
    pub fn icmp_echo_reply(self, id: u16, sequence: u16, payload: &[u8]) -> Vec<u8> {
        let icmp_type = if self.is_ipv6() { v6::ECHO_REPLY } else { v4::ECHO_REPLY };
        self.echo(icmp_type, id, sequence, payload)
    }

    fn echo(self, icmp_type: u8, id: u16, sequence: u16, payload: &[u8]) -> Vec<u8> {
        let ([a, b], [c, d]) = (id.to_be_bytes(), sequence.to_be_bytes());
        self.icmp(icmp_type, 0, [a, b, c, d], payload)
    }

    /// Ends with any message of the IP version's ICMP; `rest` are its bytes 4 to 7.
    #[must_use]
    pub fn icmp(self, icmp_type: u8, code: u8, rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let number = if self.is_ipv6() { protocol::ICMPV6 } else { protocol::ICMP };
        let message = [&[icmp_type, code, 0, 0], &rest[..], payload].concat();
        self.l4(number, IcmpHeader::CHECKSUM_AT, message)
    }

    /// Ends with the payload of any protocol, as it is.
    #[must_use]
    pub fn raw(self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        match self.addresses {
            Addresses::None => self.ethernet_payload(0, payload),
            Addresses::V4(source, destination) => self.end_ipv4(source, destination, protocol, payload),
            Addresses::V6(source, destination) => self.end_ipv6(source, destination, protocol, payload),
        }
    }

    /// Ends without IP.
    #[must_use]
    pub fn ethernet_payload(self, ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = [self.destination.0, self.source.0].concat();
        for (kind, control) in &self.tags {
            frame.extend(kind.to_be_bytes());
            frame.extend(control.to_be_bytes());
        }
        frame.extend(ethertype.to_be_bytes());
        debug_assert!(frame.len() >= EthernetHeader::LENGTH);
        frame.extend_from_slice(payload);
        frame
    }

    /// The fragments, in order, of a datagram that this builder made: `chunk` bytes of IP payload
    /// each, rounded down to a multiple of 8, at least 8. Empty if `datagram` does not parse.
    #[must_use]
    pub fn split(&self, datagram: &[u8], id: u32, chunk: usize) -> Vec<Vec<u8>> {
        let Ok(layers) = Layers::parse(datagram) else { return Vec::new() };
        let Some(protocol) = layers.protocol() else { return Vec::new() };
        let payload = &datagram[layers.ip_payload_offset()..layers.end()];
        let chunk = (chunk & !7).max(8);
        let last = payload.len().saturating_sub(1) / chunk;
        let fragment = |(index, bytes)| {
            let builder = self.clone().fragment(id, (index * chunk) as u16, index < last);
            builder.raw(protocol, bytes)
        };
        payload.chunks(chunk).enumerate().map(fragment).collect()
    }

    fn is_ipv6(&self) -> bool {
        matches!(self.addresses, Addresses::V6(..))
    }

    /// Fills the checksum at `checksum_at` of the L4 bytes, and ends with them.
    fn l4(self, number: u8, checksum_at: usize, mut bytes: Vec<u8>) -> Vec<u8> {
        let pseudo = match self.addresses {
            Addresses::V4(source, destination) if number != protocol::ICMP => {
                Sum::pseudo_ipv4(source, destination, number, bytes.len() as u16)
            }
            Addresses::V6(source, destination) => {
                Sum::pseudo_ipv6(source, destination, number, bytes.len() as u32)
            }
            _ => Sum::new(),
        };
        let sum = pseudo.bytes(&bytes);
        let checksum = if number == protocol::UDP { sum.udp_checksum() } else { sum.checksum() };
        bytes[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
        self.raw(number, &bytes)
    }

    fn end_ipv4(self, source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let length = Ipv4Header::LENGTH + self.options.len();
        let fragment = self.fragment.unwrap_or(Fragment { id: 0, offset: 0, more: false });
        let dont = if self.dont_fragment { Ipv4Header::DONT_FRAGMENT } else { 0 };
        let more = if fragment.more { Ipv4Header::MORE_FRAGMENTS } else { 0 };
        let header = Ipv4Header {
            version_length: 0x40 | (length / 4) as u8,
            dscp_ecn: self.traffic_class,
            total_length: U16::new((length + payload.len()) as u16),
            id: U16::new(fragment.id as u16),
            flags_offset: U16::new(dont | more | fragment.offset >> 3),
            ttl: self.ttl,
            protocol,
            checksum: U16::ZERO,
            source,
            destination,
        };
        let mut packet = [header.as_bytes(), &self.options].concat();
        let checksum = internet(&packet);
        packet[Ipv4Header::CHECKSUM_AT..][..2].copy_from_slice(&checksum.to_be_bytes());
        packet.extend_from_slice(payload);
        self.ethernet_payload(ethertype::IPV4, &packet)
    }

    fn end_ipv6(self, source: [u8; 16], destination: [u8; 16], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let (next_header, chain) = self.extension_chain(protocol);
        let header = Ipv6Header {
            version_class_label: U32::new(6 << 28 | u32::from(self.traffic_class) << 20),
            payload_length: U16::new((chain.len() + payload.len()) as u16),
            next_header,
            hop_limit: self.ttl,
            source,
            destination,
        };
        let packet = [header.as_bytes(), &chain, payload].concat();
        self.ethernet_payload(ethertype::IPV6, &packet)
    }

    /// The extension headers in order, the fragment header last, and the number of the first.
    fn extension_chain(&self, last: u8) -> (u8, Vec<u8>) {
        let (mut next, mut chain) = (last, Vec::new());
        if let Some(fragment) = self.fragment {
            let header = FragmentHeader {
                next_header: next,
                reserved: 0,
                offset_more: U16::new(fragment.offset | u16::from(fragment.more)),
                id: U32::new(fragment.id),
            };
            (next, chain) = (protocol::FRAGMENT, header.as_bytes().to_vec());
        }
        for (kind, body) in self.extensions.iter().rev() {
            let length = (2 + body.len()).next_multiple_of(8);
            let units = if *kind == protocol::AUTHENTICATION { length / 4 - 2 } else { length / 8 - 1 };
            let mut header = [&[next, units as u8], &body[..]].concat();
            header.resize(length, 0);
            chain.splice(0..0, header);
            next = *kind;
        }
        (next, chain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_put_together_are_the_datagram() {
        // Goal: generators can fragment what they build. Method: split both versions, join the payloads.
        let builders = [
            FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).ipv4_options(&[1; 3]).vlan(4),
            FrameBuilder::ipv6([1; 16], [2; 16]).extension(protocol::DESTINATION, &[1, 4, 0, 0, 0, 0]),
        ];
        for builder in builders {
            let datagram = builder.clone().udp(1, 2, &[7; 61]);
            let whole = Layers::parse(&datagram).expect("the datagram is well-formed");
            let fragments = builder.split(&datagram, 99, 30);
            let mut joined = Vec::new();
            for (index, fragment) in fragments.iter().enumerate() {
                let layers = Layers::parse(fragment).expect("the fragment is well-formed");
                let place = Fragment { id: 99, offset: joined.len() as u16, more: index < 2 };
                assert_eq!((layers.fragment(), layers.l4_offset().is_some()), (Some(place), index == 0));
                joined.extend_from_slice(&fragment[layers.ip_payload_offset()..layers.end()]);
            }
            assert_eq!((fragments.len(), &joined[..]), (3, &datagram[whole.ip_payload_offset()..]));
        }
    }

    #[test]
    fn what_is_asked_for_is_in_the_frame() {
        // Goal: no setting is lost. Method: build with each, read it back from the bytes.
        let builder =
            FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).ttl(9).traffic_class(0xB9).dont_fragment();
        let frame = builder.tag(ethertype::SERVICE_VLAN, 0xE005).tcp(1, 2, 0x12, b"x");
        let layers = Layers::parse(&frame).expect("the frame is well-formed");
        let ip = Ipv4Header::view(&frame, layers.l3_offset()).expect("the frame is IPv4");
        assert_eq!((ip.ttl, ip.dscp_ecn, ip.dont_fragment()), (9, 0xB9, true));
        assert_eq!((layers.vlan_controls(), &frame[12..14]), (&[0xE005][..], &[0x88, 0xA8][..]));
        let header = TcpHeader { window: U16::new(512), ..TcpHeader::new_zeroed() };
        let frame = FrameBuilder::ipv4([1; 4], [2; 4]).tcp_segment(header, &[2, 4, 5, 0xB4, 1], b"data");
        let layers = Layers::parse(&frame).expect("the frame is well-formed");
        let tcp = TcpHeader::view(&frame, 34).expect("the frame is TCP");
        assert_eq!((tcp.header_length(), tcp.window.get()), (28, 512));
        assert_eq!(layers.payload(&frame), Some(62..66));
    }
}
