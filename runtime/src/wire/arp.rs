//! ARP for IPv4 on Ethernet (RFC 826).

use core::net::Ipv4Addr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, byteorder::network_endian::U16};

use super::{
    Malformed,
    ethernet::{MacAddr, ethertype},
    view, view_mut,
};

/// The 28 bytes of an ARP packet that resolves IPv4 addresses to MAC addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ArpPacket {
    /// Hardware type, 1 for Ethernet.
    pub hardware: U16,
    /// Ethertype of the resolved protocol, 0x0800 for IPv4.
    pub protocol: U16,
    /// Bytes of a hardware address, 6.
    pub hardware_length: u8,
    /// Bytes of a protocol address, 4.
    pub protocol_length: u8,
    /// 1 for a request, 2 for a reply.
    pub operation: U16,
    /// MAC address of the sender.
    pub sender_mac: MacAddr,
    /// IPv4 address of the sender.
    pub sender: [u8; 4],
    /// MAC address of the target, zero in a request.
    pub target_mac: MacAddr,
    /// IPv4 address of the target.
    pub target: [u8; 4],
}

impl ArpPacket {
    /// Bytes of the packet.
    pub const LENGTH: usize = 28;
    /// [`operation`](Self::operation): who has the target address?
    pub const REQUEST: u16 = 1;
    /// [`operation`](Self::operation): the sender has it.
    pub const REPLY: u16 = 2;

    /// The packet at `at`.
    ///
    /// # Errors
    /// [`Malformed::TruncatedArp`]; [`Malformed::ArpFormat`] for other hardware or protocols.
    pub fn view(frame: &[u8], at: usize) -> Result<&ArpPacket, Malformed> {
        let packet: &ArpPacket = view(frame, at).ok_or(Malformed::TruncatedArp)?;
        let is_ethernet = packet.hardware.get() == 1 && packet.hardware_length == 6;
        let is_ipv4 = packet.protocol.get() == ethertype::IPV4 && packet.protocol_length == 4;
        if is_ethernet && is_ipv4 { Ok(packet) } else { Err(Malformed::ArpFormat) }
    }

    /// The 28 bytes at `at`, to be edited in place; nothing but their presence is checked.
    ///
    /// # Errors
    /// [`Malformed::TruncatedArp`].
    pub fn view_mut(frame: &mut [u8], at: usize) -> Result<&mut ArpPacket, Malformed> {
        view_mut(frame, at).ok_or(Malformed::TruncatedArp)
    }

    /// IPv4 address of the sender.
    #[must_use]
    pub fn sender(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.sender)
    }

    /// IPv4 address of the target.
    #[must_use]
    pub fn target(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.target)
    }

    /// The reply that names `mac` as the owner of this request's target address.
    #[must_use]
    pub fn answered_by(&self, mac: MacAddr) -> ArpPacket {
        ArpPacket {
            operation: U16::new(Self::REPLY),
            sender_mac: mac,
            sender: self.target,
            target_mac: self.sender_mac,
            target: self.sender,
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_and_answered() {
        // Goal: the layout is RFC 826's. Method: a request by hand, and its reply as bytes.
        let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, 1];
        bytes.extend([2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        let request = ArpPacket::view(&bytes, 0).expect("the request is well-formed");
        assert_eq!(
            (request.sender(), request.target()),
            (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
        );
        let reply = request.answered_by(MacAddr([2, 0, 0, 0, 0, 2]));
        let expected = [2, 0, 0, 0, 0, 2, 10, 0, 0, 2, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1];
        assert_eq!(reply.as_bytes()[8..], expected);
        assert_eq!(reply.operation.get(), ArpPacket::REPLY);
        assert_eq!(ArpPacket::view(&bytes[..27], 0), Err(Malformed::TruncatedArp));
        bytes[5] = 16;
        assert_eq!(ArpPacket::view(&bytes, 0), Err(Malformed::ArpFormat));
    }
}
