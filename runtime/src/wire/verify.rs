//! Whole checksums of a frame: right, wrong, absent; and recomputed.

use super::{
    Layers,
    checksum::Sum,
    icmp::IcmpHeader,
    ip::protocol,
    ipv4::{self, Ipv4Header},
    ipv6::Ipv6Header,
    layers::L3,
    tcp::TcpHeader,
    udp::UdpHeader,
    view,
};

/// What a look at an L4 checksum found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum L4Checksum {
    /// It verifies.
    Right,
    /// It does not verify: damaged, or left to the sender's hardware.
    Wrong,
    /// UDP with checksum 0: the sender computed none (allowed in IPv4 only).
    Absent,
    /// It cannot be told: a fragment, another protocol, a routing header with stops left.
    Unknown,
}

/// Whether the frame's IPv4 header checksum is right; false without IPv4.
#[must_use]
pub fn ipv4_checksum_is_right(frame: &[u8], layers: &Layers) -> bool {
    layers.l3() == L3::Ipv4 && ipv4::checksum_is_valid(frame, layers.l3_offset())
}

/// Verifies the TCP, UDP or ICMP checksum over all covered bytes.
#[must_use]
pub fn l4_checksum(frame: &[u8], layers: &Layers) -> L4Checksum {
    let Some((sum, at)) = l4_sum(frame, layers) else { return L4Checksum::Unknown };
    let stored: Option<&[u8; 2]> = view(frame, at);
    match stored {
        Some([0, 0]) if layers.protocol() == Some(protocol::UDP) => L4Checksum::Absent,
        _ if sum.is_valid() => L4Checksum::Right,
        _ => L4Checksum::Wrong,
    }
}

/// Recomputes the IPv4 header checksum, and the L4 checksum where it can be told. A UDP checksum
/// that was absent is computed. Returns whether the L4 checksum was recomputed.
pub fn recompute(frame: &mut [u8], layers: &Layers) -> bool {
    if layers.l3() == L3::Ipv4
        && let Ok(header) = Ipv4Header::view(frame, layers.l3_offset())
    {
        let length = header.header_length();
        let at = layers.l3_offset() + Ipv4Header::CHECKSUM_AT;
        frame[at..at + 2].fill(0);
        let sum = Sum::new().bytes(&frame[layers.l3_offset()..layers.l3_offset() + length]);
        frame[at..at + 2].copy_from_slice(&sum.checksum().to_be_bytes());
    }
    recompute_l4(frame, layers)
}

/// Completes the checksum of a TCP or UDP frame that left it to its sender's hardware, which a virtual link does not
/// have: Linux then leaves the pseudo header's sum in the field, not complemented (CHECKSUM_PARTIAL in its `skbuff.h`).
/// Other frames stay as they are. A field that is right and looks the same by chance gets the same value again; of
/// damaged ones, one in 65,535 gets a value that hides it. Returns whether a checksum was completed.
pub fn complete_partial(frame: &mut [u8], layers: &Layers) -> bool {
    if !matches!(layers.protocol(), Some(protocol::TCP | protocol::UDP)) {
        return false;
    }
    let Some(covered) = covered(frame, layers) else { return false };
    let partial = !covered.pseudo.checksum();
    view(frame, covered.checksum_at) == Some(&partial.to_be_bytes()) && recompute_l4(frame, layers)
}

fn recompute_l4(frame: &mut [u8], layers: &Layers) -> bool {
    let Some((_, at)) = l4_sum(frame, layers) else { return false };
    frame[at..at + 2].fill(0);
    let Some((sum, _)) = l4_sum(frame, layers) else { return false };
    let is_udp = layers.protocol() == Some(protocol::UDP);
    let checksum = if is_udp { sum.udp_checksum() } else { sum.checksum() };
    frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// The sum over pseudo header and L4 bytes as they are, and where the checksum lies in the frame.
fn l4_sum(frame: &[u8], layers: &Layers) -> Option<(Sum, usize)> {
    let covered = covered(frame, layers)?;
    Some((covered.pseudo.bytes(covered.bytes), covered.checksum_at))
}

/// What an L4 checksum covers.
struct Covered<'a> {
    /// The pseudo header; nothing where the protocol has none.
    pseudo: Sum,
    /// The L4 header and what is behind it.
    bytes: &'a [u8],
    /// Where the checksum lies in the frame.
    checksum_at: usize,
}

fn covered<'a>(frame: &'a [u8], layers: &Layers) -> Option<Covered<'a>> {
    if layers.is_fragment() || layers.has_stops_left() {
        return None;
    }
    let (at, protocol) = layers.l4_offset().zip(layers.protocol())?;
    let l4 = frame.get(at..layers.end())?;
    let (checksum_at, bytes) = match protocol {
        protocol::TCP => (TcpHeader::CHECKSUM_AT, l4),
        protocol::UDP => {
            let length = UdpHeader::view(l4, 0, false).ok()?.length.get();
            (UdpHeader::CHECKSUM_AT, &l4[..usize::from(length)])
        }
        _ => (IcmpHeader::CHECKSUM_AT, l4),
    };
    let length = bytes.len() as u16;
    let pseudo = match layers.l3() {
        L3::Ipv4 if protocol == protocol::ICMP => Sum::new(),
        L3::Ipv4 => {
            let header: &Ipv4Header = view(frame, layers.l3_offset())?;
            Sum::pseudo_ipv4(header.source, header.destination, protocol, length)
        }
        _ => {
            let header: &Ipv6Header = view(frame, layers.l3_offset())?;
            Sum::pseudo_ipv6(header.source, header.destination, protocol, u32::from(length))
        }
    };
    Some(Covered { pseudo, bytes, checksum_at: at + checksum_at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FrameBuilder;

    #[test]
    fn recomputing_restores_what_was_destroyed() {
        // Goal: verify and recompute agree. Method: destroy both checksums of each protocol, recompute.
        let builders =
            [FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]), FrameBuilder::ipv6([1; 16], [2; 16])];
        for builder in builders {
            let frames = [
                builder.clone().udp(1, 2, b"odd"),
                builder.clone().tcp(1, 2, 2, b"odd"),
                builder.clone().icmp_echo_reply(1, 2, b"odd"),
            ];
            for original in frames {
                let layers = Layers::parse(&original).expect("the frame is well-formed");
                assert_eq!(l4_checksum(&original, &layers), L4Checksum::Right);
                let mut frame = original.clone();
                let (_, at) = l4_sum(&frame, &layers).expect("the checksum can be told");
                frame[at] ^= 0xFF;
                assert_eq!(l4_checksum(&frame, &layers), L4Checksum::Wrong);
                if layers.l3() == L3::Ipv4 {
                    frame[24] ^= 0xFF;
                    assert!(!ipv4_checksum_is_right(&frame, &layers));
                }
                frame.extend([0xAA; 5]);
                assert!(recompute(&mut frame, &layers));
                assert_eq!(frame[..original.len()], original);
            }
        }
    }

    #[test]
    fn partial_checksums_are_completed_and_others_left() {
        // Goal: what hardware was to compute is computed, nothing else touched. Method: put the pseudo header's sum, by
        // the definition, into right frames, or something else.
        let addresses = [10_u8, 0, 0, 1, 10, 0, 0, 2];
        let frames: [(u16, usize, Vec<u8>); 2] = [
            (6, 50, FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2, 2, b"odd")),
            (17, 40, FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2, b"odd")),
        ];
        for (protocol, at, right) in frames {
            let layers = Layers::parse(&right).expect("the frame is well-formed");
            let words = addresses.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
            let sum = words.sum::<u32>() + u32::from(protocol) + (right.len() - 34) as u32;
            let mut frame = right.clone();
            frame[at..at + 2].copy_from_slice(&(sum as u16).to_be_bytes());
            assert!(complete_partial(&mut frame, &layers));
            assert_eq!(frame, right);
            assert!(!complete_partial(&mut frame, &layers));
            frame[at] ^= 1;
            let damaged = frame.clone();
            assert!(!complete_partial(&mut frame, &layers));
            assert_eq!(frame, damaged);
        }
    }

    #[test]
    fn what_cannot_be_told_is_unknown() {
        // Goal: no fragment is called damaged. Method: a first fragment, GRE, UDP without checksum.
        let builder = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
        let verdict = |frame: &[u8]| l4_checksum(frame, &Layers::parse(frame).expect("well-formed"));
        assert_eq!(verdict(&builder.clone().fragment(1, 0, true).udp(1, 2, b"")), L4Checksum::Unknown);
        assert_eq!(verdict(&builder.clone().raw(47, b"")), L4Checksum::Unknown);
        let mut absent = builder.udp(1, 2, b"");
        absent[40..42].fill(0);
        assert_eq!(verdict(&absent), L4Checksum::Absent);
    }
}
