//! ICMP for IPv4 (RFC 792) and IPv6 (RFC 4443): the first 8 bytes, which all messages share.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, byteorder::network_endian::U16};

use super::{Malformed, view, view_mut};

/// Message types of ICMP for IPv4.
pub mod v4 {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable, an error.
    pub const UNREACHABLE: u8 = 3;
    /// Source quench, an error (deprecated by RFC 6633).
    pub const SOURCE_QUENCH: u8 = 4;
    /// Redirect, which quotes like an error.
    pub const REDIRECT: u8 = 5;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// Time exceeded, an error.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Parameter problem, an error.
    pub const PARAMETER_PROBLEM: u8 = 12;
}

/// Message types of ICMP for IPv6.
pub mod v6 {
    /// Destination unreachable, an error.
    pub const UNREACHABLE: u8 = 1;
    /// Packet too big, an error.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time exceeded, an error.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter problem, an error.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
}

/// Which ICMP: the type numbers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IcmpVersion {
    /// RFC 792, inside IPv4.
    V4,
    /// RFC 4443, inside IPv6, with a pseudo header in the checksum.
    V6,
}

/// What a message's type makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IcmpRole {
    /// Asks, and carries an identifier: echo, timestamp, information, address mask.
    Request,
    /// Answers, and carries the request's identifier.
    Reply,
    /// Reports on a packet that it quotes from byte 8 on.
    Error,
    /// Anything else: neighbour discovery, multicast listeners, unknown types.
    Other,
}

impl IcmpRole {
    /// The role of a message of this type (RFC 1122 §3.2.2, RFC 4443 §2.1: below 128 is an error).
    #[must_use]
    pub const fn of(version: IcmpVersion, icmp_type: u8) -> IcmpRole {
        match (version, icmp_type) {
            (IcmpVersion::V4, 8 | 13 | 15 | 17) | (IcmpVersion::V6, 128) => IcmpRole::Request,
            (IcmpVersion::V4, 0 | 14 | 16 | 18) | (IcmpVersion::V6, 129) => IcmpRole::Reply,
            (IcmpVersion::V4, 3 | 4 | 5 | 11 | 12) | (IcmpVersion::V6, 0..128) => IcmpRole::Error,
            _ => IcmpRole::Other,
        }
    }

    /// Whether the message carries an identifier.
    #[must_use]
    pub const fn is_query(self) -> bool {
        matches!(self, IcmpRole::Request | IcmpRole::Reply)
    }
}

/// The first 8 bytes of an ICMP message of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IcmpHeader {
    /// Message type, see [`v4`] and [`v6`].
    pub icmp_type: u8,
    /// Refines the type.
    pub code: u8,
    /// Checksum over the message, and for IPv6 its pseudo header.
    pub checksum: U16,
    /// In a query: the identifier.
    pub id: U16,
    /// In a query: the sequence number.
    /// In "fragmentation needed": the next hop's MTU in bytes (RFC 1191 §4).
    pub sequence: U16,
}

impl IcmpHeader {
    /// Bytes of the common start.
    pub const LENGTH: usize = 8;
    /// Where the checksum lies.
    pub const CHECKSUM_AT: usize = 2;
    /// Where a query's identifier lies.
    pub const ID_AT: usize = 4;
    /// Where an error's quote of the packet it is about begins.
    pub const QUOTE_AT: usize = 8;

    /// The header at `at` inside `packet`, whose end is the IP payload's.
    ///
    /// # Errors
    /// [`Malformed::TruncatedIcmp`] below 8 bytes.
    pub fn view(packet: &[u8], at: usize) -> Result<&IcmpHeader, Malformed> {
        view(packet, at).ok_or(Malformed::TruncatedIcmp)
    }

    /// The header at `at`, to be edited in place.
    ///
    /// # Errors
    /// [`Malformed::TruncatedIcmp`] below 8 bytes.
    pub fn view_mut(packet: &mut [u8], at: usize) -> Result<&mut IcmpHeader, Malformed> {
        view_mut(packet, at).ok_or(Malformed::TruncatedIcmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_pair_requests_with_replies() {
        // Goal: each request type has its reply type, and errors are neither. Method: the full table.
        let requests: Vec<u8> =
            (0..=255).filter(|t| IcmpRole::of(IcmpVersion::V4, *t) == IcmpRole::Request).collect();
        assert_eq!(requests, [8, 13, 15, 17]);
        for icmp_type in [13, 15, 17] {
            assert_eq!(IcmpRole::of(IcmpVersion::V4, icmp_type + 1), IcmpRole::Reply);
        }
        assert_eq!(IcmpRole::of(IcmpVersion::V4, v4::TIME_EXCEEDED), IcmpRole::Error);
        assert_eq!(IcmpRole::of(IcmpVersion::V6, v6::PACKET_TOO_BIG), IcmpRole::Error);
        assert_eq!(IcmpRole::of(IcmpVersion::V6, 135), IcmpRole::Other);
        assert!(IcmpRole::of(IcmpVersion::V6, v6::ECHO_REPLY).is_query());
    }

    #[test]
    fn fields_are_read_in_network_order() {
        // Goal: the layout is RFC 792's. Method: an echo request by hand.
        let header = IcmpHeader::view(&[8, 0, 0xF7, 0xFB, 0, 1, 0, 3], 0).expect("8 bytes are there");
        assert_eq!((header.icmp_type, header.id.get(), header.sequence.get()), (8, 1, 3));
        assert_eq!(IcmpHeader::view(&[0; 7], 0), Err(Malformed::TruncatedIcmp));
    }
}
