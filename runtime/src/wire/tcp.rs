//! TCP header (RFC 9293 §3.1).

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    byteorder::network_endian::{U16, U32},
};

use super::{Malformed, view, view_mut};

/// Bits of [`TcpHeader::flags`].
pub mod flags {
    /// Sender has finished.
    pub const FIN: u8 = 0x01;
    /// Sequence numbers are synchronised.
    pub const SYN: u8 = 0x02;
    /// The connection is reset.
    pub const RST: u8 = 0x04;
    /// The receiver shall hand the data on at once.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// Congestion was experienced (RFC 3168 §6.1).
    pub const ECE: u8 = 0x40;
    /// The congestion window was reduced (RFC 3168 §6.1).
    pub const CWR: u8 = 0x80;
}

/// The 20 fixed bytes of a TCP header; options follow, up to [`header_length`](Self::header_length).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TcpHeader {
    /// Sender's port.
    pub source_port: U16,
    /// Receiver's port.
    pub destination_port: U16,
    /// Sequence number of the first data byte, or of the SYN.
    pub sequence: U32,
    /// Next sequence number the sender expects, if ACK is set.
    pub acknowledgement: U32,
    /// Header length in units of 4 bytes (4 bits), reserved (4 bits).
    pub data_offset: u8,
    /// Control bits, see [`flags`].
    pub flags: u8,
    /// Receive window, before scaling.
    pub window: U16,
    /// Checksum over pseudo header, header and data.
    pub checksum: U16,
    /// End of urgent data, relative to the sequence number.
    pub urgent: U16,
}

impl TcpHeader {
    /// Bytes of the header without options.
    pub const LENGTH: usize = 20;
    /// Where the checksum lies.
    pub const CHECKSUM_AT: usize = 16;

    /// The header at `at`, options included, inside `packet`, whose end is the IP payload's.
    ///
    /// # Errors
    /// [`Malformed::TruncatedTcp`], [`Malformed::TcpDataOffset`].
    #[inline]
    pub fn view(packet: &[u8], at: usize) -> Result<&TcpHeader, Malformed> {
        let header: &TcpHeader = view(packet, at).ok_or(Malformed::TruncatedTcp)?;
        if header.header_length() < Self::LENGTH {
            return Err(Malformed::TcpDataOffset);
        }
        if packet.len() - at < header.header_length() { Err(Malformed::TruncatedTcp) } else { Ok(header) }
    }

    /// The 20 bytes at `at`, to be edited in place; nothing but their presence is checked.
    ///
    /// # Errors
    /// [`Malformed::TruncatedTcp`].
    pub fn view_mut(packet: &mut [u8], at: usize) -> Result<&mut TcpHeader, Malformed> {
        view_mut(packet, at).ok_or(Malformed::TruncatedTcp)
    }

    /// Bytes of the header with its options.
    #[inline]
    #[must_use]
    pub fn header_length(&self) -> usize {
        usize::from(self.data_offset >> 4) * 4
    }

    /// Whether all bits of `mask` are set.
    #[must_use]
    pub fn has(&self, mask: u8) -> bool {
        self.flags & mask == mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_offset_bounds_the_header() {
        // Goal: options never reach past the segment. Method: offsets around the limits.
        let mut bytes = [0; 24];
        for (units, expected) in
            [(4, Some(Malformed::TcpDataOffset)), (5, None), (6, None), (7, Some(Malformed::TruncatedTcp))]
        {
            bytes[12] = units << 4;
            assert_eq!(TcpHeader::view(&bytes, 0).err(), expected, "{units} units");
        }
        assert_eq!(TcpHeader::view(&bytes[..19], 0).err(), Some(Malformed::TruncatedTcp));
    }

    #[test]
    fn flags_are_tested_together() {
        // Goal: `has` means all of them. Method: a SYN-ACK.
        let mut bytes = [0; 20];
        let header = TcpHeader::view_mut(&mut bytes, 0).expect("20 bytes are there");
        header.flags = flags::SYN | flags::ACK;
        assert!(header.has(flags::SYN) && header.has(flags::SYN | flags::ACK));
        assert!(!header.has(flags::SYN | flags::FIN));
        assert_eq!(bytes[13], 0x12);
    }
}
