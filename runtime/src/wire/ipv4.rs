//! IPv4 header (RFC 791 §3.1).

use core::net::Ipv4Addr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, byteorder::network_endian::U16};

use super::{Malformed, checksum, ip::Fragment, view, view_mut};

/// The 20 fixed bytes of an IPv4 header; options follow, up to [`header_length`](Self::header_length).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ipv4Header {
    /// Version (4 bits) and header length in units of 4 bytes (4 bits).
    pub version_length: u8,
    /// Differentiated services code point (6 bits, RFC 2474) and ECN (2 bits, RFC 3168).
    pub dscp_ecn: u8,
    /// Header and payload in bytes.
    pub total_length: U16,
    /// Identification of a fragmented datagram.
    pub id: U16,
    /// Reserved, don't fragment, more fragments (1 bit each), offset in units of 8 bytes (13 bits).
    pub flags_offset: U16,
    /// Hops left.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Checksum of the header with its options.
    pub checksum: U16,
    /// Sender.
    pub source: [u8; 4],
    /// Receiver.
    pub destination: [u8; 4],
}

impl Ipv4Header {
    /// Bytes of the header without options.
    pub const LENGTH: usize = 20;
    /// Where the checksum lies.
    pub const CHECKSUM_AT: usize = 10;
    /// Where the source address lies; the destination follows.
    pub const SOURCE_AT: usize = 12;
    /// "Don't fragment" in [`flags_offset`](Self::flags_offset).
    pub const DONT_FRAGMENT: u16 = 0x4000;
    /// "More fragments" in [`flags_offset`](Self::flags_offset).
    pub const MORE_FRAGMENTS: u16 = 0x2000;

    /// The offset in [`flags_offset`](Self::flags_offset).
    const OFFSET: u16 = 0x1FFF;

    /// The header at `at`, with its options inside `bytes` and its lengths consistent.
    /// The payload need not be there: a quote in an ICMP error is cut short.
    ///
    /// # Errors
    /// [`Malformed::TruncatedIpv4`], [`Malformed::Version`], [`Malformed::HeaderLength`],
    /// [`Malformed::TotalLengthShort`].
    #[inline]
    pub fn view(bytes: &[u8], at: usize) -> Result<&Ipv4Header, Malformed> {
        let header: &Ipv4Header = view(bytes, at).ok_or(Malformed::TruncatedIpv4)?;
        if header.version_length >> 4 != 4 {
            return Err(Malformed::Version);
        }
        let length = header.header_length();
        if length < Self::LENGTH {
            return Err(Malformed::HeaderLength);
        }
        if bytes.len() - at < length {
            return Err(Malformed::TruncatedIpv4);
        }
        if usize::from(header.total_length.get()) < length {
            return Err(Malformed::TotalLengthShort);
        }
        Ok(header)
    }

    /// The 20 bytes at `at`, to be edited in place; nothing but their presence is checked.
    ///
    /// # Errors
    /// [`Malformed::TruncatedIpv4`].
    pub fn view_mut(bytes: &mut [u8], at: usize) -> Result<&mut Ipv4Header, Malformed> {
        view_mut(bytes, at).ok_or(Malformed::TruncatedIpv4)
    }

    /// Bytes of the header with its options.
    #[inline]
    #[must_use]
    pub fn header_length(&self) -> usize {
        usize::from(self.version_length & 0x0F) * 4
    }

    /// Sender.
    #[must_use]
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.source)
    }

    /// Receiver.
    #[must_use]
    pub fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.destination)
    }

    /// Differentiated services code point, 0–63.
    #[must_use]
    pub fn dscp(&self) -> u8 {
        self.dscp_ecn >> 2
    }

    /// Whether routers must not fragment this packet.
    #[must_use]
    pub fn dont_fragment(&self) -> bool {
        self.flags_offset.get() & Self::DONT_FRAGMENT != 0
    }

    /// Whether the packet holds part of a datagram only.
    #[inline]
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.flags_offset.get() & (Self::MORE_FRAGMENTS | Self::OFFSET) != 0
    }

    /// The packet's place in a fragmented datagram; `None` for a whole one.
    #[must_use]
    pub fn fragment(&self) -> Option<Fragment> {
        let field = self.flags_offset.get();
        let fragment = Fragment {
            id: u32::from(self.id.get()),
            offset: (field & Self::OFFSET) << 3,
            more: field & Self::MORE_FRAGMENTS != 0,
        };
        self.is_fragment().then_some(fragment)
    }

    /// Replaces the code point (its low 6 bits), keeps ECN, updates the checksum.
    pub fn set_dscp(&mut self, dscp: u8) {
        let old = u16::from_be_bytes([self.version_length, self.dscp_ecn]);
        self.dscp_ecn = self.dscp_ecn & 3 | dscp << 2;
        let new = u16::from_be_bytes([self.version_length, self.dscp_ecn]);
        self.checksum.set(checksum::update16(self.checksum.get(), old, new));
    }

    /// Replaces the hop count and updates the checksum.
    pub fn set_ttl(&mut self, ttl: u8) {
        let old = u16::from_be_bytes([self.ttl, self.protocol]);
        self.ttl = ttl;
        let new = u16::from_be_bytes([self.ttl, self.protocol]);
        self.checksum.set(checksum::update16(self.checksum.get(), old, new));
    }
}

/// Whether the header at `at`, options included, carries the right checksum.
/// False also where there is no well-formed header.
#[must_use]
pub fn checksum_is_valid(bytes: &[u8], at: usize) -> bool {
    Ipv4Header::view(bytes, at)
        .is_ok_and(|header| checksum::Sum::new().bytes(&bytes[at..at + header.header_length()]).is_valid())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
        0xa8, 0x00, 0xc7,
    ];

    #[test]
    fn fields_are_read_in_network_order() {
        // Goal: the layout is RFC 791's. Method: read a header written out by hand.
        let header = Ipv4Header::view(&HEADER, 0).expect("the header is well-formed");
        assert_eq!(header.source(), Ipv4Addr::new(192, 168, 0, 1));
        assert_eq!(header.destination(), Ipv4Addr::new(192, 168, 0, 199));
        assert_eq!((header.total_length.get(), header.ttl, header.protocol), (115, 64, 17));
        assert!(header.dont_fragment() && header.fragment().is_none());
        assert!(checksum_is_valid(&HEADER, 0));
    }

    #[test]
    fn bad_headers_are_refused_by_name() {
        // Goal: each defect has its reason. Method: break one field at a time.
        let broken = |at: usize, value: u8| {
            let mut bytes = HEADER;
            bytes[at] = value;
            Ipv4Header::view(&bytes, 0).map(|_| ())
        };
        assert_eq!(Ipv4Header::view(&HEADER[..19], 0), Err(Malformed::TruncatedIpv4));
        assert_eq!(Ipv4Header::view(&HEADER, usize::MAX), Err(Malformed::TruncatedIpv4));
        assert_eq!(broken(0, 0x65), Err(Malformed::Version));
        assert_eq!(broken(0, 0x44), Err(Malformed::HeaderLength));
        assert_eq!(broken(0, 0x46), Err(Malformed::TruncatedIpv4));
        assert_eq!(broken(3, 19), Err(Malformed::TotalLengthShort));
    }

    #[test]
    fn field_edits_keep_the_checksum_right() {
        // Goal: DSCP and TTL edits leave a valid header. Method: every value of both, verified afresh.
        for value in 0..=255 {
            let mut bytes = HEADER;
            let header = Ipv4Header::view_mut(&mut bytes, 0).expect("20 bytes are there");
            header.set_ttl(value);
            header.set_dscp(value & 63);
            assert_eq!((header.ttl, header.dscp()), (value, value & 63));
            assert!(checksum_is_valid(&bytes, 0));
        }
    }

    #[test]
    fn marking_keeps_ecn() {
        // Goal: congestion marks survive DSCP marking. Method: set ECN, mark, read ECN.
        let mut bytes = HEADER;
        let header = Ipv4Header::view_mut(&mut bytes, 0).expect("20 bytes are there");
        header.dscp_ecn = 0b11;
        header.set_dscp(46);
        assert_eq!((header.dscp(), header.dscp_ecn & 3), (46, 3));
    }
}
