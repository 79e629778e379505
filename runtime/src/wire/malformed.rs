//! Why bytes are not the packet they claim to be.

use core::fmt;

/// The reason a frame was refused, one variant per reason, so that drops can be counted by it.
///
/// Only structure is judged here. Addresses, ports and checksums that look wrong are a network
/// function's business, and so is every policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Malformed {
    /// Fewer than the 14 bytes of an Ethernet header.
    TruncatedEthernet,
    /// The frame ends inside a VLAN tag.
    TruncatedVlan,
    /// The frame ends inside the ARP packet.
    TruncatedArp,
    /// An ARP packet that does not resolve IPv4 addresses on Ethernet.
    ArpFormat,
    /// The frame ends inside the IPv4 header or its options.
    TruncatedIpv4,
    /// The frame ends inside the fixed IPv6 header.
    TruncatedIpv6,
    /// The IP version field contradicts the Ethertype.
    Version,
    /// An IPv4 header length below 20 bytes.
    HeaderLength,
    /// An IPv4 total length below its own header length.
    TotalLengthShort,
    /// The IP header announces more bytes than the frame has.
    TotalLengthBeyondFrame,
    /// An IPv6 extension header runs past the end of the packet.
    TruncatedExtension,
    /// An IPv6 extension header whose length field is impossible for its type.
    ExtensionLength,
    /// More IPv6 extension headers than [`MAX_EXTENSION_HEADERS`](super::ipv6::MAX_EXTENSION_HEADERS).
    TooManyExtensions,
    /// A hop-by-hop options header that is not the first extension header (RFC 8200 §4.1).
    HopByHopPosition,
    /// A fragment header inside a fragment.
    SecondFragmentHeader,
    /// An IPv6 fragment, not the last, whose length is no multiple of 8 bytes (RFC 8200 §4.5).
    FragmentLength,
    /// A fragment that ends beyond byte 65,535 of its datagram.
    FragmentOverflow,
    /// The IP payload ends inside the TCP header or its options.
    TruncatedTcp,
    /// A TCP data offset below 20 bytes.
    TcpDataOffset,
    /// The IP payload ends inside the UDP header.
    TruncatedUdp,
    /// A UDP length below 8 bytes or beyond the IP payload.
    UdpLength,
    /// The IP payload ends inside the first 8 bytes of an ICMP message.
    TruncatedIcmp,
    /// An ICMP error with less than the IP header and 8 bytes of the packet it is about.
    TruncatedQuote,
    /// A quote was asked of a packet that is not an ICMP error.
    NoQuote,
    /// An IP packet was asked for, and the frame carries something else.
    NotIp,
}

impl Malformed {
    /// Every reason, in declaration order, for tables of counters.
    pub const ALL: [Malformed; 25] = [
        Malformed::TruncatedEthernet,
        Malformed::TruncatedVlan,
        Malformed::TruncatedArp,
        Malformed::ArpFormat,
        Malformed::TruncatedIpv4,
        Malformed::TruncatedIpv6,
        Malformed::Version,
        Malformed::HeaderLength,
        Malformed::TotalLengthShort,
        Malformed::TotalLengthBeyondFrame,
        Malformed::TruncatedExtension,
        Malformed::ExtensionLength,
        Malformed::TooManyExtensions,
        Malformed::HopByHopPosition,
        Malformed::SecondFragmentHeader,
        Malformed::FragmentLength,
        Malformed::FragmentOverflow,
        Malformed::TruncatedTcp,
        Malformed::TcpDataOffset,
        Malformed::TruncatedUdp,
        Malformed::UdpLength,
        Malformed::TruncatedIcmp,
        Malformed::TruncatedQuote,
        Malformed::NoQuote,
        Malformed::NotIp,
    ];

    /// The reason as a stable `snake_case` identifier for counters and logs.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Malformed::TruncatedEthernet => "truncated_ethernet",
            Malformed::TruncatedVlan => "truncated_vlan",
            Malformed::TruncatedArp => "truncated_arp",
            Malformed::ArpFormat => "arp_format",
            Malformed::TruncatedIpv4 => "truncated_ipv4",
            Malformed::TruncatedIpv6 => "truncated_ipv6",
            Malformed::Version => "bad_ip_version",
            Malformed::HeaderLength => "bad_header_length",
            Malformed::TotalLengthShort => "total_length_below_header",
            Malformed::TotalLengthBeyondFrame => "total_length_beyond_frame",
            Malformed::TruncatedExtension => "truncated_extension_header",
            Malformed::ExtensionLength => "bad_extension_length",
            Malformed::TooManyExtensions => "too_many_extension_headers",
            Malformed::HopByHopPosition => "hop_by_hop_not_first",
            Malformed::SecondFragmentHeader => "second_fragment_header",
            Malformed::FragmentLength => "fragment_length_not_multiple_of_8",
            Malformed::FragmentOverflow => "fragment_beyond_datagram",
            Malformed::TruncatedTcp => "truncated_tcp",
            Malformed::TcpDataOffset => "bad_tcp_data_offset",
            Malformed::TruncatedUdp => "truncated_udp",
            Malformed::UdpLength => "bad_udp_length",
            Malformed::TruncatedIcmp => "truncated_icmp",
            Malformed::TruncatedQuote => "truncated_icmp_quote",
            Malformed::NoQuote => "not_an_icmp_error",
            Malformed::NotIp => "not_ip",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::Malformed;

    #[test]
    fn every_reason_is_a_distinct_identifier() {
        // Goal: counters keyed by reason never merge two causes. Method: look at all names, in order.
        for (index, malformed) in Malformed::ALL.iter().enumerate() {
            assert_eq!(*malformed as usize, index);
            let name = malformed.reason();
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
            assert_eq!(Malformed::ALL.iter().filter(|other| other.reason() == name).count(), 1);
        }
    }
}
