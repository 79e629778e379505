//! One side of an IPv4 flow, small enough for the keys of translation tables.

use core::{
    fmt,
    net::{Ipv4Addr, SocketAddrV4},
};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, byteorder::network_endian::U16};

use super::{
    edit::Side,
    flow::L4,
    ip::protocol,
    ipv4::Ipv4Header,
    layers::{L3, Layers},
    view,
};

/// Protocol, address and port in 8 bytes. For ICMP queries the identifier is the port.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Endpoint {
    /// IP protocol number.
    pub protocol: u8,
    /// Always zero, so that equal endpoints have equal bytes.
    pub zero: u8,
    /// Port, or identifier.
    pub port: U16,
    /// IPv4 address.
    pub address: [u8; 4],
}

impl Endpoint {
    /// An endpoint; `port` in host byte order.
    #[must_use]
    pub fn new(protocol: u8, address: Ipv4Addr, port: u16) -> Endpoint {
        Endpoint { protocol, zero: 0, port: U16::new(port), address: address.octets() }
    }

    /// One end of the packet in `frame`, whose headers are known, as its [`Flow`](super::Flow) has it; `None` without
    /// IPv4.
    #[inline(always)]
    #[must_use]
    pub fn of(frame: &[u8], layers: &Layers, side: Side) -> Option<Endpoint> {
        let header: &Ipv4Header = view(frame, layers.l3_offset()).filter(|_| layers.l3() == L3::Ipv4)?;
        let protocol = layers.protocol()?;
        let (ports, _) = L4::of(layers).ports(frame, L3::Ipv4, protocol)?;
        let address = match side {
            Side::Source => header.source,
            Side::Destination => header.destination,
        };
        Some(Endpoint { protocol, zero: 0, port: ports[side as usize], address })
    }

    /// IPv4 address.
    #[inline]
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.address)
    }

    /// Port or identifier, host byte order.
    #[inline]
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.get()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match protocol::name(self.protocol) {
            Some(name) => write!(f, "{name} ")?,
            None => write!(f, "proto {} ", self.protocol)?,
        }
        SocketAddrV4::new(self.address(), self.port()).fmt(f)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bytes_in_network_order() {
        // Goal: the key's bytes are the wire's. Method: compare them and the text with a literal.
        let endpoint = Endpoint::new(6, Ipv4Addr::new(10, 0, 0, 1), 443);
        assert_eq!(endpoint.as_bytes(), [6, 0, 1, 0xBB, 10, 0, 0, 1]);
        assert_eq!(endpoint.to_string(), "tcp 10.0.0.1:443");
        assert_eq!(Endpoint::new(47, Ipv4Addr::LOCALHOST, 0).to_string(), "proto 47 127.0.0.1:0");
    }
}
