//! IPv6 header (RFC 8200 §3) and the walk over its extension headers (§4).

use core::net::Ipv6Addr;

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    byteorder::network_endian::{U16, U32},
};

use super::{
    Malformed,
    ip::{Fragment, protocol},
    view, view_mut,
};

/// Extension headers the walk passes before it gives up. Real packets have at most three.
pub const MAX_EXTENSION_HEADERS: usize = 8;

/// The 40-byte IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ipv6Header {
    /// Version (4 bits), traffic class (8 bits), flow label (20 bits).
    pub version_class_label: U32,
    /// Bytes behind this header, extension headers included.
    pub payload_length: U16,
    /// Protocol number of the first header behind this one.
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// Sender.
    pub source: [u8; 16],
    /// Receiver, or the next stop of a routing header.
    pub destination: [u8; 16],
}

impl Ipv6Header {
    /// Bytes of the header.
    pub const LENGTH: usize = 40;
    /// Where the source address lies; the destination follows.
    pub const SOURCE_AT: usize = 8;

    /// The header at `at`. The payload need not be there.
    ///
    /// # Errors
    /// [`Malformed::TruncatedIpv6`], [`Malformed::Version`].
    pub fn view(bytes: &[u8], at: usize) -> Result<&Ipv6Header, Malformed> {
        let header: &Ipv6Header = view(bytes, at).ok_or(Malformed::TruncatedIpv6)?;
        if header.version_class_label.get() >> 28 == 6 { Ok(header) } else { Err(Malformed::Version) }
    }

    /// The header at `at`, to be edited in place; nothing but its presence is checked.
    ///
    /// # Errors
    /// [`Malformed::TruncatedIpv6`].
    pub fn view_mut(bytes: &mut [u8], at: usize) -> Result<&mut Ipv6Header, Malformed> {
        view_mut(bytes, at).ok_or(Malformed::TruncatedIpv6)
    }

    /// Sender.
    #[must_use]
    pub fn source(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.source)
    }

    /// Receiver, or the next stop of a routing header.
    #[must_use]
    pub fn destination(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.destination)
    }

    /// Differentiated services code point, 0–63.
    #[must_use]
    pub fn dscp(&self) -> u8 {
        (self.version_class_label.get() >> 22 & 0x3F) as u8
    }

    /// Replaces the code point (its low 6 bits) and keeps ECN and flow label.
    pub fn set_dscp(&mut self, dscp: u8) {
        let kept = self.version_class_label.get() & !(0x3F << 22);
        self.version_class_label.set(kept | u32::from(dscp & 0x3F) << 22);
    }
}

/// The fragment extension header, 8 bytes (RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FragmentHeader {
    /// First header of the fragmented part.
    pub next_header: u8,
    /// Zero, ignored.
    pub reserved: u8,
    /// Offset in units of 8 bytes (13 bits), reserved (2 bits), more fragments (1 bit).
    pub offset_more: U16,
    /// Identification of the datagram.
    pub id: U32,
}

impl FragmentHeader {
    /// Bytes of the header.
    pub const LENGTH: usize = 8;

    /// The fields in units of bytes.
    #[must_use]
    pub fn fragment(&self) -> Fragment {
        let field = self.offset_more.get();
        Fragment { id: self.id.get(), offset: field & 0xFFF8, more: field & 1 == 1 }
    }
}

/// Where the walk over the extension headers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Protocol of what lies at `offset`. In a later fragment: the first header of the fragmented
    /// part, which may be an extension header that only the first fragment holds.
    pub protocol: u8,
    /// First byte behind the extension headers.
    pub offset: usize,
    /// The fragment header, if one was passed.
    pub fragment: Option<Fragment>,
    /// Whether a routing header has stops left: the address in the IPv6 header is then not the one
    /// in the L4 checksum (RFC 8200 §8.1).
    pub has_stops_left: bool,
}

/// Walks from the IPv6 header at `at` to the L4 header, inside `packet`, whose end is the packet's.
/// Stops at the first header that is no extension header, and at a later fragment's payload.
///
/// # Errors
/// [`Malformed::TruncatedIpv6`], [`Malformed::Version`], [`Malformed::TruncatedExtension`],
/// [`Malformed::ExtensionLength`], [`Malformed::TooManyExtensions`], [`Malformed::HopByHopPosition`],
/// [`Malformed::SecondFragmentHeader`].
pub fn walk(packet: &[u8], at: usize) -> Result<Walk, Malformed> {
    let header = Ipv6Header::view(packet, at)?;
    let mut walk = Walk {
        protocol: header.next_header,
        offset: at + Ipv6Header::LENGTH,
        fragment: None,
        has_stops_left: false,
    };
    for passed in 0..=MAX_EXTENSION_HEADERS {
        let is_extension = matches!(
            walk.protocol,
            protocol::HOP_BY_HOP
                | protocol::ROUTING
                | protocol::FRAGMENT
                | protocol::AUTHENTICATION
                | protocol::DESTINATION
        );
        if !is_extension || walk.fragment.is_some_and(|fragment| fragment.is_later()) {
            return Ok(walk);
        }
        if passed == MAX_EXTENSION_HEADERS {
            break;
        }
        if walk.protocol == protocol::HOP_BY_HOP && passed != 0 {
            return Err(Malformed::HopByHopPosition);
        }
        step(packet, &mut walk)?;
    }
    Err(Malformed::TooManyExtensions)
}

/// Passes the one extension header at `walk.offset`.
fn step(packet: &[u8], walk: &mut Walk) -> Result<(), Malformed> {
    // Every extension header has at least 8 bytes: next header, length, and 6 of its own.
    let start: &[u8; 8] = view(packet, walk.offset).ok_or(Malformed::TruncatedExtension)?;
    let (next_header, units) = (start[0], usize::from(start[1]));
    let length = match walk.protocol {
        protocol::FRAGMENT if walk.fragment.is_some() => return Err(Malformed::SecondFragmentHeader),
        protocol::FRAGMENT => {
            walk.fragment = view(packet, walk.offset).map(FragmentHeader::fragment);
            FragmentHeader::LENGTH
        }
        // RFC 4302 §2.2: in units of 4 bytes, minus 2; the fixed part alone has 12 bytes.
        protocol::AUTHENTICATION if units == 0 => return Err(Malformed::ExtensionLength),
        protocol::AUTHENTICATION => (units + 2) * 4,
        protocol::ROUTING => {
            walk.has_stops_left |= start[3] != 0;
            (units + 1) * 8
        }
        _ => (units + 1) * 8,
    };
    if packet.len() - walk.offset < length {
        return Err(Malformed::TruncatedExtension);
    }
    walk.protocol = next_header;
    walk.offset += length;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv6 packet of the header and the given bytes.
    fn packet(next_header: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0, 0, rest.len() as u8, next_header, 64];
        bytes.resize(Ipv6Header::LENGTH, 0);
        bytes.extend_from_slice(rest);
        bytes
    }

    #[test]
    fn every_extension_header_has_its_own_length_rule() {
        // Goal: the walk ends at the L4 header. Method: one packet with each kind, lengths by hand.
        let mut rest = vec![protocol::DESTINATION, 0, 1, 4, 0, 0, 0, 0];
        rest.extend([protocol::ROUTING, 1].into_iter().chain([0; 14]));
        rest.extend([protocol::FRAGMENT, 0, 0, 2, 0, 0, 0, 0]);
        rest.extend([protocol::AUTHENTICATION, 0, 0, 1, 0, 0, 0, 9]);
        rest.extend([protocol::UDP, 4].into_iter().chain([0; 22]));
        rest.extend([0; 8]);
        let walk = walk(&packet(protocol::HOP_BY_HOP, &rest), 0).expect("the chain is well-formed");
        assert_eq!((walk.protocol, walk.offset), (protocol::UDP, 40 + 8 + 16 + 8 + 8 + 24));
        assert_eq!(walk.fragment, Some(Fragment { id: 9, offset: 0, more: true }));
        assert!(walk.has_stops_left);
    }

    #[test]
    fn a_later_fragment_ends_the_walk() {
        // Goal: payload is not taken for headers. Method: a later fragment whose bytes look like one.
        let rest = [protocol::DESTINATION, 0, 0, 8, 0, 0, 0, 9, protocol::TCP, 255, 0, 0, 0, 0, 0, 0];
        let walk = walk(&packet(protocol::FRAGMENT, &rest), 0).expect("the fragment is well-formed");
        assert_eq!((walk.protocol, walk.offset), (protocol::DESTINATION, 48));
        assert_eq!(walk.fragment, Some(Fragment { id: 9, offset: 8, more: false }));
    }

    #[test]
    fn broken_chains_are_refused_by_name() {
        // Goal: bounded work and a reason for each defect. Method: one broken chain per reason.
        let options = |next| [next, 0, 1, 4, 0, 0, 0, 0];
        let chain = |count: usize| options(protocol::DESTINATION).repeat(count);
        let mut eight = chain(MAX_EXTENSION_HEADERS);
        eight[8 * (MAX_EXTENSION_HEADERS - 1)] = protocol::NO_NEXT_HEADER;
        assert!(walk(&packet(protocol::DESTINATION, &eight), 0).is_ok());
        let nine = packet(protocol::DESTINATION, &chain(MAX_EXTENSION_HEADERS + 1));
        assert_eq!(walk(&nine, 0), Err(Malformed::TooManyExtensions));
        let late = packet(protocol::DESTINATION, &options(protocol::HOP_BY_HOP).repeat(2));
        assert_eq!(walk(&late, 0), Err(Malformed::HopByHopPosition));
        let twice = packet(protocol::FRAGMENT, &[protocol::FRAGMENT, 0, 0, 1, 0, 0, 0, 0].repeat(2));
        assert_eq!(walk(&twice, 0), Err(Malformed::SecondFragmentHeader));
        let long = packet(protocol::DESTINATION, &[protocol::UDP, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(walk(&long, 0), Err(Malformed::TruncatedExtension));
        let none = packet(protocol::AUTHENTICATION, &[protocol::UDP, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(walk(&none, 0), Err(Malformed::ExtensionLength));
    }

    #[test]
    fn marking_keeps_ecn_and_label() {
        // Goal: DSCP edits touch six bits. Method: all ones, mark, compare the word.
        let mut bytes = packet(protocol::UDP, &[]);
        let header = Ipv6Header::view_mut(&mut bytes, 0).expect("40 bytes are there");
        header.version_class_label.set(0x6FFF_FFFF);
        header.set_dscp(0);
        assert_eq!(header.version_class_label.get(), 0x603F_FFFF);
        assert_eq!(header.dscp(), 0);
    }
}
