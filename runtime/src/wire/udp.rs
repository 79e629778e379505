//! UDP header (RFC 768).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, byteorder::network_endian::U16};

use super::{Malformed, view, view_mut};

/// The 8-byte UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UdpHeader {
    /// Sender's port, 0 if no reply is expected.
    pub source_port: U16,
    /// Receiver's port.
    pub destination_port: U16,
    /// Header and data in bytes, of the whole datagram also in a first fragment.
    pub length: U16,
    /// Checksum over pseudo header, header and data; 0 for "not computed" (IPv4 only).
    pub checksum: U16,
}

impl UdpHeader {
    /// Bytes of the header.
    pub const LENGTH: usize = 8;
    /// Where the checksum lies.
    pub const CHECKSUM_AT: usize = 6;

    /// The header at `at` inside `packet`, whose end is the IP payload's. `is_fragment` says that
    /// the datagram may end in another packet.
    ///
    /// # Errors
    /// [`Malformed::TruncatedUdp`]; [`Malformed::UdpLength`] below 8 bytes, or, in a whole
    /// datagram, beyond the IP payload. Less than the IP payload is allowed.
    #[inline]
    pub fn view(packet: &[u8], at: usize, is_fragment: bool) -> Result<&UdpHeader, Malformed> {
        let header: &UdpHeader = view(packet, at).ok_or(Malformed::TruncatedUdp)?;
        let length = usize::from(header.length.get());
        let fits = is_fragment || length <= packet.len() - at;
        if length >= Self::LENGTH && fits { Ok(header) } else { Err(Malformed::UdpLength) }
    }

    /// The header at `at`, to be edited in place; nothing but its presence is checked.
    ///
    /// # Errors
    /// [`Malformed::TruncatedUdp`].
    pub fn view_mut(packet: &mut [u8], at: usize) -> Result<&mut UdpHeader, Malformed> {
        view_mut(packet, at).ok_or(Malformed::TruncatedUdp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_held_against_the_packet() {
        // Goal: data never reaches past the IP payload. Method: lengths around the limits.
        let mut bytes = [0; 10];
        for (length, whole, fragment) in
            [(7, false, false), (8, true, true), (10, true, true), (11, false, true)]
        {
            bytes[5] = length;
            assert_eq!(UdpHeader::view(&bytes, 0, false).is_ok(), whole, "{length} in a whole datagram");
            assert_eq!(UdpHeader::view(&bytes, 0, true).is_ok(), fragment, "{length} in a fragment");
        }
        assert_eq!(UdpHeader::view(&bytes, 3, false), Err(Malformed::TruncatedUdp));
    }
}
