//! Ethernet II header (IEEE 802.3) and VLAN tags (IEEE 802.1Q, 802.1ad).

use core::{fmt, str::FromStr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, byteorder::network_endian::U16};

use super::{Malformed, view, view_mut};

/// Ethertypes this module knows, in host byte order.
pub mod ethertype {
    /// IPv4 (RFC 894).
    pub const IPV4: u16 = 0x0800;
    /// ARP (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// IPv6 (RFC 2464).
    pub const IPV6: u16 = 0x86DD;
    /// Customer VLAN tag (802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// Service VLAN tag (802.1ad, "QinQ").
    pub const SERVICE_VLAN: u16 = 0x88A8;

    /// Whether the Ethertype announces a VLAN tag.
    #[must_use]
    pub const fn is_vlan(ethertype: u16) -> bool {
        ethertype == VLAN || ethertype == SERVICE_VLAN
    }
}

/// A 48-bit MAC address, first byte on the wire first.
#[derive(
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: MacAddr = MacAddr([0xFF; 6]);

    /// Whether the address names a group (broadcast included).
    #[must_use]
    pub const fn is_multicast(&self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not six two-digit hexadecimal bytes with colons between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacAddrError;

impl fmt::Display for MacAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is written as six hexadecimal bytes: aa:bb:cc:dd:ee:ff")
    }
}

impl std::error::Error for MacAddrError {}

impl FromStr for MacAddr {
    type Err = MacAddrError;

    fn from_str(text: &str) -> Result<MacAddr, MacAddrError> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or(MacAddrError)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(MacAddrError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| MacAddrError)?;
        }
        if parts.next().is_some() { Err(MacAddrError) } else { Ok(MacAddr(bytes)) }
    }
}

/// The 14-byte Ethernet II header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EthernetHeader {
    /// Receiver.
    pub destination: MacAddr,
    /// Sender.
    pub source: MacAddr,
    /// Ethertype of what follows: a protocol, or the first VLAN tag's identifier.
    pub ethertype: U16,
}

impl EthernetHeader {
    /// Bytes of the header.
    pub const LENGTH: usize = 14;

    /// The header at the start of `frame`.
    ///
    /// # Errors
    /// [`Malformed::TruncatedEthernet`] below 14 bytes.
    pub fn view(frame: &[u8]) -> Result<&EthernetHeader, Malformed> {
        view(frame, 0).ok_or(Malformed::TruncatedEthernet)
    }

    /// The header at the start of `frame`, to be edited in place.
    ///
    /// # Errors
    /// [`Malformed::TruncatedEthernet`] below 14 bytes.
    pub fn view_mut(frame: &mut [u8]) -> Result<&mut EthernetHeader, Malformed> {
        view_mut(frame, 0).ok_or(Malformed::TruncatedEthernet)
    }

    /// Exchanges sender and receiver.
    pub fn swap_addresses(&mut self) {
        core::mem::swap(&mut self.source, &mut self.destination);
    }
}

/// The 4 bytes behind a VLAN Ethertype: tag control information and the next Ethertype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct VlanTag {
    /// Priority (3 bits), drop eligible (1 bit), VLAN identifier (12 bits).
    pub control: U16,
    /// Ethertype of what follows.
    pub ethertype: U16,
}

impl VlanTag {
    /// Bytes of a tag, counted from behind its Ethertype.
    pub const LENGTH: usize = 4;

    /// The tag at `at`.
    ///
    /// # Errors
    /// [`Malformed::TruncatedVlan`] below 4 bytes.
    pub fn view(frame: &[u8], at: usize) -> Result<&VlanTag, Malformed> {
        view(frame, at).ok_or(Malformed::TruncatedVlan)
    }

    /// The tag at `at`, to be edited in place.
    ///
    /// # Errors
    /// [`Malformed::TruncatedVlan`] below 4 bytes.
    pub fn view_mut(frame: &mut [u8], at: usize) -> Result<&mut VlanTag, Malformed> {
        view_mut(frame, at).ok_or(Malformed::TruncatedVlan)
    }

    /// VLAN identifier, 0–4095 (0 is a priority tag, 4095 is reserved).
    #[must_use]
    pub fn id(&self) -> u16 {
        self.control.get() & 0x0FFF
    }

    /// Priority code point, 0–7.
    #[must_use]
    pub fn priority(&self) -> u8 {
        (self.control.get() >> 13) as u8
    }

    /// Drop eligible indicator.
    #[must_use]
    pub fn drop_eligible(&self) -> bool {
        self.control.get() & 0x1000 != 0
    }

    /// Replaces the identifier (its low 12 bits) and keeps priority and drop eligibility.
    pub fn set_id(&mut self, id: u16) {
        self.control.set(self.control.get() & 0xF000 | id & 0x0FFF);
    }

    /// Replaces the priority (its low 3 bits) and keeps the rest.
    pub fn set_priority(&mut self, priority: u8) {
        self.control.set(self.control.get() & 0x1FFF | u16::from(priority & 7) << 13);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_round_trip_as_text() {
        // Goal: configuration and output use one spelling. Method: print, parse, and refuse near misses.
        let mac = MacAddr([0x02, 0, 0xAB, 0xCD, 0xEF, 0x10]);
        assert_eq!(mac.to_string(), "02:00:ab:cd:ef:10");
        assert_eq!("02:00:AB:cd:ef:10".parse(), Ok(mac));
        for wrong in ["", "02:00:ab:cd:ef", "02:00:ab:cd:ef:10:11", "2:0:ab:cd:ef:10", "02:00:ab:cd:ef:+1"] {
            assert_eq!(wrong.parse::<MacAddr>(), Err(MacAddrError), "{wrong}");
        }
        assert!(MacAddr::BROADCAST.is_multicast() && !mac.is_multicast());
    }

    #[test]
    fn vlan_fields_are_edited_one_by_one() {
        // Goal: PCP and DEI survive a change of VID. Method: edit a tag and read all its fields.
        let mut bytes = [0xFF, 0xFF, 0x08, 0x00];
        let tag = VlanTag::view_mut(&mut bytes, 0).expect("four bytes are a tag");
        tag.set_id(0x123);
        assert_eq!((tag.priority(), tag.drop_eligible(), tag.id()), (7, true, 0x123));
        tag.set_priority(2);
        assert_eq!((tag.priority(), tag.drop_eligible(), tag.id()), (2, true, 0x123));
        assert_eq!(bytes, [0x51, 0x23, 0x08, 0x00]);
        assert_eq!(VlanTag::view(&bytes, 1), Err(Malformed::TruncatedVlan));
    }

    #[test]
    fn header_needs_fourteen_bytes() {
        // Goal: short frames are refused by name. Method: view 13 and 14 bytes.
        assert_eq!(EthernetHeader::view(&[0; 13]), Err(Malformed::TruncatedEthernet));
        let mut frame = [0; 14];
        frame[6] = 2;
        EthernetHeader::view_mut(&mut frame).expect("14 bytes are a header").swap_addresses();
        assert_eq!((frame[0], frame[6]), (2, 0));
    }
}
