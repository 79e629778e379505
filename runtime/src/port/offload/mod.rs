//! What the kernel left undone on a frame because a device would do it: checksums and the cutting of super-frames.
//!
//! Between virtual interfaces no device ever does it: a TCP segment of the kernel arrives with 64 KiB and half a
//! checksum. A virtio network header in front of the frame (virtio 1.2 §5.1.6, `struct virtio_net_hdr`) says what is
//! left to do, and whoever hands the frame on must do it:
//!
//! - `VIRTIO_NET_HDR_F_NEEDS_CSUM` (§5.1.6.2, §5.1.6.4): the checksum field holds the sum of the pseudo header only
//!   (RFC 9293 §3.1, RFC 768, RFC 8200 §8.1); the sum over the bytes from `csum_start` on is missing. For SCTP it is
//!   a CRC32c that is missing (RFC 9260 §6.8).
//! - `VIRTIO_NET_HDR_GSO_TCPV4`, `_TCPV6`, `_UDP_L4`: the payload is that of several segments of `gso_size` bytes
//!   each. A segment has its own lengths, IPv4 identification (RFC 791 §3.1) and sequence number; FIN and PSH belong
//!   to the last one (RFC 9293 §3.9.1), CWR to the first (RFC 3168 §6.1.2).
//!
//! All of this is functions over bytes: no system call, no allocation.

mod pending;
mod pieces;
#[cfg(test)]
mod tests;

pub(super) use pending::Pending;
pub(super) use pieces::Pieces;

use zerocopy::byteorder::native_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::crc::crc32c;
use crate::packet::Packet;
use crate::wire::checksum::Sum;
use crate::wire::ethernet::{EthernetHeader, VlanTag};
use crate::wire::udp::UdpHeader;
use crate::wire::{Layers, MacAddr};

/// The virtio network header without `num_buffers`, as packet sockets and TAP interfaces use it: in the byte order of
/// the machine (virtio 1.2 §5.1.6.1, legacy interface). All offsets count from the frame's first byte.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct VnetHeader {
    /// `VIRTIO_NET_HDR_F_…`
    pub(super) flags: u8,
    /// `VIRTIO_NET_HDR_GSO_…`
    pub(super) gso_type: u8,
    /// Bytes of all headers; a hint, not relied upon.
    pub(super) header_length: U16,
    /// Bytes of payload in each segment but the last.
    pub(super) gso_size: U16,
    /// Where the missing sum begins.
    pub(super) checksum_start: U16,
    /// Where, from there on, the checksum lies.
    pub(super) checksum_offset: U16,
}

impl VnetHeader {
    /// Bytes of the header.
    pub(super) const LENGTH: usize = size_of::<VnetHeader>();
    const NEEDS_CHECKSUM: u8 = 1;
    const GSO_NONE: u8 = 0;
    const GSO_TCPV4: u8 = 1;
    const GSO_TCPV6: u8 = 4;
    const GSO_UDP: u8 = 5;
    /// Beside the type: the first segment carries CWR.
    const GSO_ECN: u8 = 0x80;

    /// What kind of super-frame it is, if any.
    fn gso(&self) -> u8 {
        self.gso_type & !VnetHeader::GSO_ECN
    }

    /// The header of a frame whose tag came beside it. Kernels differ in whether they count the tag: the checksum begins
    /// where L4 does.
    pub(super) fn without_tag(mut self, frame: &[u8]) -> VnetHeader {
        let start = usize::from(self.checksum_start.get());
        let is_counted =
            Layers::parse(frame).is_ok_and(|layers| layers.ip_payload_offset() + VlanTag::LENGTH == start);
        if is_counted {
            self.checksum_start -= VlanTag::LENGTH as u16;
        }
        self
    }

    /// Whether the frame is one of several segments' length.
    pub(super) fn is_super_frame(&self) -> bool {
        self.gso() != VnetHeader::GSO_NONE
    }
}

/// Where the checksum of SCTP lies, and its protocol number (RFC 9260 §3.1).
const SCTP: (usize, u8) = (8, 132);

/// Completes the checksum of a frame that is no super-frame.
///
/// # Errors
/// A header that names a checksum outside of the frame.
pub(super) fn complete(frame: &mut [u8], header: &VnetHeader) -> Result<(), &'static str> {
    if header.flags & VnetHeader::NEEDS_CHECKSUM == 0 {
        return Ok(());
    }
    let (start, offset) = (header.checksum_start.get().into(), usize::from(header.checksum_offset.get()));
    let is_sctp = offset == SCTP.0
        && Layers::parse(frame).is_ok_and(|l| l.protocol() == Some(SCTP.1) && l.ip_payload_offset() == start);
    let covered = frame.get_mut(start..).ok_or(OUTSIDE)?;
    if is_sctp {
        covered.get_mut(offset..offset + 4).ok_or(OUTSIDE)?.fill(0);
        let checksum = crc32c(covered);
        covered[offset..offset + 4].copy_from_slice(&checksum.to_le_bytes());
        return Ok(());
    }
    covered.get(offset..offset + 2).ok_or(OUTSIDE)?;
    let sum = Sum::new().bytes(covered);
    let checksum = if offset == UdpHeader::CHECKSUM_AT { sum.udp_checksum() } else { sum.checksum() };
    covered[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Why a frame is dropped whose header cannot be followed.
const OUTSIDE: &str = "checksum_outside";

/// Puts a VLAN tag (its Ethertype and control information, IEEE 802.1Q §9.6) that came beside the frame back into it.
pub(super) fn put_tag(packet: &mut Packet, tag: [u8; VlanTag::LENGTH]) {
    const MACS: usize = 2 * size_of::<MacAddr>();
    if packet.frame().len() >= EthernetHeader::LENGTH && packet.push_front(VlanTag::LENGTH.cast_signed()) {
        let frame = packet.frame_mut();
        frame.copy_within(VlanTag::LENGTH..VlanTag::LENGTH + MACS, 0);
        frame[MACS..MACS + VlanTag::LENGTH].copy_from_slice(&tag);
    }
}
