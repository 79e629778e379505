//! What IPv4 and IPv6 share: protocol numbers and fragment information.

/// IP protocol numbers (IANA registry) that the runtime looks into.
pub mod protocol {
    /// IPv6 hop-by-hop options (RFC 8200 §4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: u8 = 1;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// IPv6 routing header (RFC 8200 §4.4).
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header (RFC 8200 §4.5).
    pub const FRAGMENT: u8 = 44;
    /// Authentication header (RFC 4302).
    pub const AUTHENTICATION: u8 = 51;
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// IPv6 "nothing follows" (RFC 8200 §4.7).
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 destination options (RFC 8200 §4.6).
    pub const DESTINATION: u8 = 60;

    /// The protocol's usual short name, if the runtime looks into it.
    #[must_use]
    pub const fn name(protocol: u8) -> Option<&'static str> {
        match protocol {
            ICMP => Some("icmp"),
            TCP => Some("tcp"),
            UDP => Some("udp"),
            ICMPV6 => Some("icmp6"),
            _ => None,
        }
    }
}

/// Where a packet lies in a fragmented datagram (RFC 791 §3.2, RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// Identification, 16 bits in IPv4 and 32 bits in IPv6.
    pub id: u32,
    /// Where this fragment's payload starts in the datagram's, in bytes, a multiple of 8.
    pub offset: u16,
    /// Whether more fragments follow this one.
    pub more: bool,
}

impl Fragment {
    /// The first of several: it starts the datagram and more follow.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.offset == 0 && self.more
    }

    /// Not the first, hence without an L4 header.
    #[must_use]
    pub const fn is_later(&self) -> bool {
        self.offset != 0
    }

    /// A whole datagram that carries a fragment header all the same (RFC 6946).
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}
