//! The packet that an ICMP error is about, which the error quotes from byte 8 on (RFC 792, RFC 4443 §2.4).
//!
//! Only the IP header and 8 bytes behind it are guaranteed. What the quote has beyond, its TCP
//! checksum for instance, is edited too (RFC 5508 R4, R5); what it lacks is not missed,
//! and half a checksum stays as it is.

use core::net::IpAddr;

use super::{
    Flow, Layers, Malformed,
    edit::{L4Site, Side, Site, Uneditable, update},
    flow::L4,
    icmp::{IcmpHeader, IcmpRole, IcmpVersion},
    icmp_version,
    ip::protocol,
    ipv4::{self, Ipv4Header},
    ipv6::{self, Ipv6Header},
    layers::L3,
    view,
};

/// Bytes behind the quoted IP header that an error must have (RFC 792).
const GUARANTEED: usize = 8;

/// Where an ICMP error keeps the packet it quotes, and that packet's flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    site: Site,
    flow: Flow,
    is_later_fragment: bool,
}

impl Quote {
    /// Finds the quoted packet. Its lengths may exceed the quote; its L4 checksum is not looked at
    /// (RFC 5508 R3c). Its flow is on the VLANs of the error.
    ///
    /// # Errors
    /// [`Malformed::NoQuote`] if the frame is no ICMP error; [`Malformed::TruncatedQuote`]; a defect
    /// of the quoted IP header.
    pub fn parse(frame: &[u8], layers: &Layers) -> Result<Quote, Malformed> {
        let (at, end) = quoted_bytes(frame, layers).ok_or(Malformed::NoQuote)?;
        let message = frame.get(..end).ok_or(Malformed::TruncatedQuote)?;
        let found = match layers.l3() {
            L3::Ipv4 => Found::ipv4(message, at),
            _ => Found::ipv6(message, at),
        };
        let found = found.map_err(|reason| match reason {
            Malformed::TruncatedIpv4 | Malformed::TruncatedIpv6 | Malformed::TruncatedExtension => {
                Malformed::TruncatedQuote
            }
            other => other,
        })?;
        let is_known = matches!(found.protocol, protocol::TCP | protocol::UDP)
            || icmp_version(layers.l3(), found.protocol).is_some();
        let has_l4 = is_known && !found.is_later_fragment;
        if has_l4 && found.end - found.l4_offset < GUARANTEED {
            return Err(Malformed::TruncatedQuote);
        }
        let l4 = if has_l4 { L4::Header(found.l4_offset) } else { L4::Absent };
        let flow = Flow::read(message, layers, layers.l3(), at, found.protocol, l4);
        let l4 = L4Site::at(message, layers.l3(), found.protocol, found.l4_offset).filter(|_| has_l4);
        let site =
            Site { l3: layers.l3(), l3_offset: at, end: found.end, has_stops_left: found.has_stops_left, l4 };
        let flow = flow.ok_or(Malformed::TruncatedQuote)?;
        Ok(Quote { site, flow, is_later_fragment: found.is_later_fragment })
    }

    /// The quoted packet's flow, in the direction it travelled: towards the sender of the error.
    #[must_use]
    pub fn flow(&self) -> Flow {
        self.flow
    }

    /// Whether the quoted packet is a fragment without L4 header, so that its flow has no ports.
    #[must_use]
    pub fn is_later_fragment(&self) -> bool {
        self.is_later_fragment
    }

    /// First byte of the quoted IP header, from the frame's start.
    #[must_use]
    pub fn l3_offset(&self) -> usize {
        self.site.l3_offset
    }

    /// Whether the quoted IPv4 header's checksum is right (RFC 5508 R3a). IPv6 has none: true.
    #[must_use]
    pub fn header_checksum_is_right(&self, frame: &[u8]) -> bool {
        self.site.l3 == L3::Ipv6 || ipv4::checksum_is_valid(frame, self.site.l3_offset)
    }
}

/// Gives the quoted packet a new address and port (or ICMP identifier, host byte order) on one
/// side. Updated with it: the quoted IPv4 header checksum, the quoted L4 checksum as far as the
/// quote reaches, and the error's own checksum, which covers all of these.
///
/// A NAT that passes an error inwards rewrites the quoted source, and the error's destination with
/// [`set_destination`](super::set_destination); outwards, the quoted destination and the source.
///
/// # Errors
/// [`Uneditable::Version`], [`Uneditable::FrameLength`]; the frame is then as it was.
pub fn rewrite_quoted(
    frame: &mut [u8],
    layers: &Layers,
    quote: &Quote,
    side: Side,
    address: impl Into<IpAddr>,
    port: u16,
) -> Result<(), Uneditable> {
    let l4 = layers.l4_offset().filter(|_| frame.len() >= layers.end()).ok_or(Uneditable::FrameLength)?;
    let delta = quote.site.edit(frame, side, Some(address.into()), Some(port))?;
    update(frame, l4 + IcmpHeader::CHECKSUM_AT, |old| delta.apply(old));
    Ok(())
}

/// Where the quote begins and where it ends at the latest; `None` if the frame is no ICMP error.
fn quoted_bytes(frame: &[u8], layers: &Layers) -> Option<(usize, usize)> {
    if layers.icmp_role(frame)? != IcmpRole::Error {
        return None;
    }
    let l4 = layers.l4_offset()?;
    let start: &[u8; IcmpHeader::LENGTH] = view(frame, l4)?;
    // RFC 4884 §4: the quote's length, behind which extensions follow; 0 in a message without them.
    let length = match (layers.icmp_version()?, start[0]) {
        (IcmpVersion::V4, 3 | 11 | 12) => usize::from(start[5]) * 4,
        (IcmpVersion::V6, 1 | 3) => usize::from(start[4]) * 8,
        _ => 0,
    };
    let (at, end) = (l4 + IcmpHeader::QUOTE_AT, layers.end());
    Some(if length == 0 { (at, end) } else { (at, end.min(at + length)) })
}

/// What the quoted IP header says.
struct Found {
    protocol: u8,
    l4_offset: usize,
    /// The quote's end or the quoted packet's, whichever comes first.
    end: usize,
    is_later_fragment: bool,
    has_stops_left: bool,
}

impl Found {
    fn ipv4(message: &[u8], at: usize) -> Result<Found, Malformed> {
        let header = Ipv4Header::view(message, at)?;
        Ok(Found {
            protocol: header.protocol,
            l4_offset: at + header.header_length(),
            end: message.len().min(at + usize::from(header.total_length.get())),
            is_later_fragment: header.fragment().is_some_and(|fragment| fragment.is_later()),
            has_stops_left: false,
        })
    }

    fn ipv6(message: &[u8], at: usize) -> Result<Found, Malformed> {
        let header = Ipv6Header::view(message, at)?;
        let length = Ipv6Header::LENGTH + usize::from(header.payload_length.get());
        let end = message.len().min(at + length);
        let walk = ipv6::walk(&message[..end], at)?;
        Ok(Found {
            protocol: walk.protocol,
            l4_offset: walk.offset,
            end,
            is_later_fragment: walk.fragment.is_some_and(|fragment| fragment.is_later()),
            has_stops_left: walk.has_stops_left,
        })
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::wire::{
        FrameBuilder, set_destination,
        verify::{L4Checksum, ipv4_checksum_is_right, l4_checksum},
    };

    const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
    const ROUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

    /// An ICMP error to the outside address, with the given quote.
    fn error(icmp_type: u8, quoted: &[u8]) -> Vec<u8> {
        FrameBuilder::ipv4(ROUTER, OUTSIDE).icmp(icmp_type, 0, [0; 4], quoted)
    }

    /// Passes an error inwards, and returns the quoted IP packet.
    fn inwards(mut frame: Vec<u8>) -> Vec<u8> {
        let layers = Layers::parse(&frame).expect("the error is well-formed");
        let quote = Quote::parse(&frame, &layers).expect("the quote is well-formed");
        assert!(quote.header_checksum_is_right(&frame));
        rewrite_quoted(&mut frame, &layers, &quote, Side::Source, INSIDE, 7).expect("the quote is IPv4");
        set_destination(&mut frame, &layers, INSIDE).expect("the error is IPv4");
        assert!(ipv4_checksum_is_right(&frame, &layers) && quote.header_checksum_is_right(&frame));
        assert_eq!(l4_checksum(&frame, &layers), L4Checksum::Right);
        let quote = Quote::parse(&frame, &layers).expect("still well-formed");
        assert_eq!((quote.flow().source(), quote.flow().destination()), (INSIDE.into(), SERVER.into()));
        frame.split_off(quote.l3_offset())
    }

    #[test]
    fn traceroute_by_echo_has_four_right_checksums() {
        // Goal: case 1. Method: pass a time-exceeded with a whole echo inwards, verify all four.
        let sent = FrameBuilder::ipv4(OUTSIDE, SERVER).icmp_echo_request(4711, 1, b"trace");
        let original = FrameBuilder::ipv4(INSIDE, SERVER).icmp_echo_request(7, 1, b"trace");
        assert_eq!(inwards(error(11, &sent[14..])), original[14..]);
    }

    #[test]
    fn the_quote_becomes_the_packet_that_was_sent() {
        // Goal: RFC 5508 R4 restores the original header, checksums included. Method: whole and cut quotes.
        let sent = FrameBuilder::ipv4(OUTSIDE, SERVER);
        let original = FrameBuilder::ipv4(INSIDE, SERVER);
        let pairs = [
            (sent.clone().udp(4711, 53, b"question"), original.clone().udp(7, 53, b"question")),
            (sent.tcp(4711, 80, 0x18, b"GET"), original.tcp(7, 80, 0x18, b"GET")),
        ];
        for (sent, original) in pairs {
            for length in 28..=sent.len() - 14 {
                let quoted = inwards(error(3, &sent[14..14 + length]));
                // Half a TCP checksum, in a quote of 37 bytes, cannot be updated.
                let whole = if length == 37 { 36 } else { length };
                assert_eq!(quoted[..whole], original[14..14 + whole], "{length} bytes");
            }
        }
    }

    #[test]
    fn twenty_eight_bytes_are_enough_and_twenty_seven_are_not() {
        // Goal: case 2. Method: cut the quote at every length up to 28.
        let sent = FrameBuilder::ipv4(OUTSIDE, SERVER).tcp(4711, 80, 0x10, b"");
        for length in 0..=28 {
            let frame = error(3, &sent[14..14 + length]);
            let layers = Layers::parse(&frame).expect("the error is well-formed");
            let quote = Quote::parse(&frame, &layers);
            assert_eq!(quote.err(), (length < 28).then_some(Malformed::TruncatedQuote), "{length} bytes");
        }
    }

    #[test]
    fn udp_without_checksum_is_quoted_without() {
        // Goal: case 4. Method: quote a datagram with checksum 0, compare after translation.
        let mut sent = FrameBuilder::ipv4(OUTSIDE, SERVER).udp(4711, 53, b"");
        sent[40..42].fill(0);
        let quoted = inwards(error(3, &sent[14..]));
        assert_eq!(quoted[26..28], [0, 0]);
    }

    #[test]
    fn extensions_behind_the_quote_are_left_alone() {
        // Goal: RFC 4884 extensions are not taken for a TCP checksum. Method: a 28-byte quote, length 7.
        let sent = FrameBuilder::ipv4(OUTSIDE, SERVER).tcp(4711, 80, 0x10, b"");
        let mut rest = sent[14..42].to_vec();
        rest.extend([0x20; 12]);
        let frame = FrameBuilder::ipv4(ROUTER, OUTSIDE).icmp(11, 0, [0, 7, 0, 0], &rest);
        assert_eq!(inwards(frame)[28..], [0x20; 12]);
    }

    #[test]
    fn a_quoted_later_fragment_keeps_its_payload() {
        // Goal: payload is not taken for ports. Method: quote a later fragment, compare behind its IP header.
        let sent = FrameBuilder::ipv4(OUTSIDE, SERVER).fragment(5, 8, true).raw(protocol::TCP, &[0x11; 24]);
        let frame = error(11, &sent[14..]);
        let layers = Layers::parse(&frame).expect("the error is well-formed");
        let quote = Quote::parse(&frame, &layers).expect("the quote is well-formed");
        assert!(quote.is_later_fragment() && quote.flow().source_port() == 0);
        assert_eq!(inwards(frame)[20..], [0x11; 24]);
    }

    #[test]
    fn queries_quote_nothing() {
        // Goal: only errors are errors. Method: ask for the quote of an echo and of a UDP datagram.
        let builder = FrameBuilder::ipv4(ROUTER, OUTSIDE);
        for frame in [builder.clone().icmp_echo_request(1, 1, &[0x45; 40]), builder.udp(1, 2, &[0x45; 40])] {
            let layers = Layers::parse(&frame).expect("the frame is well-formed");
            assert_eq!(Quote::parse(&frame, &layers), Err(Malformed::NoQuote));
        }
    }

    #[test]
    fn ipv6_errors_are_translated_too() {
        // Goal: the outer ICMPv6 checksum follows the quote. Method: rewrite a quoted source, verify.
        let [inside, outside, server] = [[1; 16], [2; 16], [3; 16]];
        let sent = FrameBuilder::ipv6(outside, server).extension(60, &[1, 4, 0, 0, 0, 0]).tcp(9, 80, 2, b"");
        let original =
            FrameBuilder::ipv6(inside, server).extension(60, &[1, 4, 0, 0, 0, 0]).tcp(7, 80, 2, b"");
        let mut frame = FrameBuilder::ipv6([4; 16], outside).icmp(2, 0, [0, 0, 5, 0], &sent[14..]);
        let layers = Layers::parse(&frame).expect("the error is well-formed");
        let quote = Quote::parse(&frame, &layers).expect("the quote is well-formed");
        let address = Ipv6Addr::from(inside);
        rewrite_quoted(&mut frame, &layers, &quote, Side::Source, address, 7).expect("the quote is IPv6");
        assert_eq!(l4_checksum(&frame, &layers), L4Checksum::Right);
        assert_eq!(frame[quote.l3_offset()..], original[14..]);
    }
}
