//! An ICMP error in answer to a frame (RFC 792, RFC 1122 §3.2.2, RFC 1812 §4.3.2).

use core::net::Ipv4Addr;

use zerocopy::{
    IntoBytes,
    byteorder::network_endian::{U16, U32},
};

use super::{
    Layers,
    checksum::{Sum, internet},
    ethernet::EthernetHeader,
    icmp::{IcmpHeader, IcmpRole, v4},
    ip::protocol,
    ipv4::Ipv4Header,
    layers::L3,
};

/// Longest IP packet an error may be, in bytes (RFC 1812 §4.3.2.3).
const LONGEST: usize = 576;
/// Traffic class of errors: internetwork control (RFC 1812 §4.3.2.5).
const CONTROL: u8 = 0xC0;

/// What an error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IcmpError {
    /// Message type, see [`v4`].
    pub icmp_type: u8,
    /// Refines the type.
    pub code: u8,
    /// Bytes 4 to 7 of the message, whose meaning depends on the type.
    pub rest: u32,
}

impl IcmpError {
    /// 3/1, host unreachable.
    pub const HOST_UNREACHABLE: IcmpError = IcmpError::new(v4::UNREACHABLE, 1);
    /// 3/3, port unreachable.
    pub const PORT_UNREACHABLE: IcmpError = IcmpError::new(v4::UNREACHABLE, 3);
    /// 3/13, communication administratively prohibited.
    pub const PROHIBITED: IcmpError = IcmpError::new(v4::UNREACHABLE, 13);
    /// 11/0, time to live exceeded in transit.
    pub const TTL_EXCEEDED: IcmpError = IcmpError::new(v4::TIME_EXCEEDED, 0);

    /// An error whose bytes 4 to 7 are zero.
    #[must_use]
    pub const fn new(icmp_type: u8, code: u8) -> IcmpError {
        IcmpError { icmp_type, code, rest: 0 }
    }

    /// 3/4, fragmentation needed and DF set; `mtu` of the next hop in bytes (RFC 1191 §4).
    #[must_use]
    pub const fn fragmentation_needed(mtu: u16) -> IcmpError {
        IcmpError { icmp_type: v4::UNREACHABLE, code: 4, rest: mtu as u32 }
    }
}

/// Writes into `out` the frame that tells the sender of `original` about `error`, and returns its
/// length. It has the MAC addresses swapped, the same VLAN tags, `source` as its sender, and quotes
/// the original IP packet as far as 576 bytes reach.
///
/// `None` if no error may be sent: the original is not IPv4, an ICMP error or an ICMP message of
/// unknown type, a later fragment, sent to a group on either layer, or from an address that names
/// no single host (RFC 1812 §4.3.2.7). `None` too if `out` is too short; 612 bytes always suffice.
#[must_use]
pub fn icmp_error(
    original: &[u8],
    layers: &Layers,
    error: IcmpError,
    source: Ipv4Addr,
    out: &mut [u8],
) -> Option<usize> {
    let packet = original.get(layers.l3_offset()..layers.end())?;
    if !may_be_answered(original, layers) {
        return None;
    }
    let quoted = &packet[..packet.len().min(LONGEST - Ipv4Header::LENGTH - IcmpHeader::LENGTH)];
    let ip_at = layers.l3_offset();
    let icmp_at = ip_at + Ipv4Header::LENGTH;
    let quote_at = icmp_at + IcmpHeader::LENGTH;
    let out = out.get_mut(..quote_at + quoted.len())?;

    out[..ip_at].copy_from_slice(&original[..ip_at]);
    EthernetHeader::view_mut(out).ok()?.swap_addresses();

    let mut ip = Ipv4Header {
        version_length: 0x45,
        dscp_ecn: CONTROL,
        total_length: U16::new((out.len() - ip_at) as u16),
        id: U16::ZERO, // never fragmented, so any will do (RFC 6864 §4.1)
        flags_offset: U16::new(Ipv4Header::DONT_FRAGMENT),
        ttl: 64,
        protocol: protocol::ICMP,
        checksum: U16::ZERO,
        source: source.octets(),
        destination: Ipv4Header::view(original, ip_at).ok()?.source,
    };
    ip.checksum = U16::new(internet(ip.as_bytes()));
    out[ip_at..icmp_at].copy_from_slice(ip.as_bytes());

    out[icmp_at..icmp_at + 4].copy_from_slice(&[error.icmp_type, error.code, 0, 0]);
    out[icmp_at + 4..quote_at].copy_from_slice(U32::new(error.rest).as_bytes());
    out[quote_at..].copy_from_slice(quoted);
    let checksum = Sum::new().bytes(&out[icmp_at..]).checksum();
    out[icmp_at + IcmpHeader::CHECKSUM_AT..][..2].copy_from_slice(&checksum.to_be_bytes());
    Some(out.len())
}

/// Whether a host or router may answer the frame with an error.
fn may_be_answered(original: &[u8], layers: &Layers) -> bool {
    let (Ok(ethernet), Ok(ip)) =
        (EthernetHeader::view(original), Ipv4Header::view(original, layers.l3_offset()))
    else {
        return false;
    };
    let (source, destination) = (ip.source(), ip.destination());
    let is_host = |address: Ipv4Addr| !address.is_multicast() && address.octets()[0] < 240;
    let from_host = is_host(source) && source.octets()[0] != 0 && !source.is_loopback();
    let is_answerable_icmp = match layers.protocol() {
        Some(protocol::ICMP) => layers.icmp_role(original).is_some_and(IcmpRole::is_query),
        _ => true,
    };
    layers.l3() == L3::Ipv4
        && !layers.is_later_fragment()
        && !ethernet.destination.is_multicast()
        && from_host
        && is_host(destination)
        && is_answerable_icmp
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{
        FrameBuilder, MacAddr, Quote,
        verify::{L4Checksum, ipv4_checksum_is_right, l4_checksum},
    };

    const NAT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);

    fn answer(original: &[u8], error: IcmpError) -> Option<Vec<u8>> {
        let layers = Layers::parse(original).expect("the original is well-formed");
        let mut out = vec![0; 612];
        let length = icmp_error(original, &layers, error, NAT, &mut out)?;
        out.truncate(length);
        Some(out)
    }

    #[test]
    fn the_answer_quotes_and_returns() {
        // Goal: a host can match the error to its flow. Method: answer a tagged frame, parse the answer.
        let builder = FrameBuilder::ipv4([10, 0, 0, 1], [198, 51, 100, 1]).vlan(7);
        let original = builder.tcp(1234, 80, 2, &[5; 900]);
        let frame = answer(&original, IcmpError::fragmentation_needed(1400)).expect("a SYN may be answered");
        let layers = Layers::parse(&frame).expect("the answer is well-formed");
        assert_eq!((&frame[..6], &frame[6..12]), (&original[6..12], &original[..6]));
        assert_eq!((layers.l3_length(), layers.vlan_ids()), (576, [7, 0]));
        assert!(ipv4_checksum_is_right(&frame, &layers));
        assert_eq!(l4_checksum(&frame, &layers), L4Checksum::Right);
        let ip = Ipv4Header::view(&frame, layers.l3_offset()).expect("the answer is IPv4");
        assert_eq!((ip.source(), ip.destination()), (NAT, Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(frame[38..46], [3, 4, frame[40], frame[41], 0, 0, 0x05, 0x78]);
        let quote = Quote::parse(&frame, &layers).expect("the quote is long enough");
        assert_eq!(Some(quote.flow()), crate::wire::Flow::parse(&original).ok());
    }

    #[test]
    fn padding_is_not_quoted() {
        // Goal: the quote is the IP packet. Method: answer a frame padded to 60 bytes.
        let mut original = FrameBuilder::ipv4([10, 0, 0, 1], [198, 51, 100, 1]).udp(1, 2, b"");
        original.resize(60, 0xAA);
        let frame = answer(&original, IcmpError::PROHIBITED).expect("a datagram may be answered");
        assert_eq!(frame[42..], original[14..42]);
        let layers = Layers::parse(&original).expect("padding is allowed");
        assert_eq!(icmp_error(&original, &layers, IcmpError::PROHIBITED, NAT, &mut [0; 69]), None);
    }

    #[test]
    fn some_packets_are_never_answered() {
        // Goal: RFC 1812 §4.3.2.7. Method: one packet per rule.
        let host = FrameBuilder::ipv4([10, 0, 0, 1], [198, 51, 100, 1]);
        let to = |address: [u8; 4]| FrameBuilder::ipv4([10, 0, 0, 1], address).udp(1, 2, b"");
        let from = |address: [u8; 4]| FrameBuilder::ipv4(address, [198, 51, 100, 1]).udp(1, 2, b"");
        let group = host.clone().ethernet(MacAddr([2; 6]), MacAddr::BROADCAST).udp(1, 2, b"");
        let silent = [
            host.clone().icmp(3, 0, [0; 4], &[0; 28]),
            host.clone().icmp(9, 0, [0; 4], b""),
            host.clone().fragment(1, 8, false).raw(17, &[0; 8]),
            to([224, 0, 0, 1]),
            to([255; 4]),
            from([0; 4]),
            from([127, 0, 0, 1]),
            from([224, 0, 0, 1]),
            from([255; 4]),
            group,
            FrameBuilder::ipv6([1; 16], [2; 16]).udp(1, 2, b""),
        ];
        for (index, original) in silent.iter().enumerate() {
            assert_eq!(answer(original, IcmpError::PROHIBITED), None, "packet {index}");
        }
        let answered = [host.clone().icmp_echo_request(1, 1, b""), host.fragment(1, 0, true).udp(1, 2, b"")];
        assert!(answered.iter().all(|original| answer(original, IcmpError::PROHIBITED).is_some()));
    }
}
