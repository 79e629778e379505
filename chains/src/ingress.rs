//! The entrance: which way a packet goes, and which flow it belongs to.

use std::net::IpAddr;

use pannier_runtime::limits::MAX_FRAME;
use pannier_runtime::wire::arp::ArpPacket;
use pannier_runtime::wire::ethernet::EthernetHeader;
use pannier_runtime::wire::{Flow, L3, Layers, protocol, symmetric_hash};
use pannier_runtime::{Direction, Packet};

use crate::config::{Inside, Undecided};

/// Decides directions.
#[derive(Clone, Debug)]
pub(crate) struct Ingress {
    inside: Inside,
    /// Addresses of network functions that the outside talks to: a NAT's.
    outside: Vec<IpAddr>,
    undecided: Undecided,
    /// Packets whose direction the addresses did not tell.
    pub(crate) undecided_count: u64,
}

impl Ingress {
    pub(crate) fn new(inside: Inside, outside: Vec<IpAddr>, undecided: Undecided) -> Self {
        Ingress { inside, outside, undecided, undecided_count: 0 }
    }

    /// Sets a packet's direction and flow. `side` says which way it goes where its port or capture does.
    ///
    /// # Errors
    /// The reason for which the packet does not enter.
    pub(crate) fn admit(&mut self, packet: &mut Packet, side: Option<Direction>) -> Result<(), &'static str> {
        let frame = packet.frame();
        if frame.len() > MAX_FRAME {
            return Err("frame_too_long");
        }
        let told = side.or_else(|| self.by_address(frame));
        packet.meta.flow = order(packet.frame());
        packet.meta.direction = match told {
            Some(direction) => direction,
            None => {
                self.undecided_count += 1;
                self.undecided.direction().ok_or("direction_undecided")?
            }
        };
        Ok(())
    }

    #[inline(never)] // ports mostly know
    fn by_address(&self, frame: &[u8]) -> Option<Direction> {
        let layers = Layers::parse(frame).ok();
        let flow = layers.and_then(|layers| Flow::of(frame, &layers));
        let ends = match (layers, flow) {
            (_, Some(flow)) => Some((flow.source(), flow.destination())),
            (Some(layers), None) if layers.l3() == L3::Arp => ArpPacket::view(frame, layers.l3_offset())
                .ok()
                .map(|arp| (IpAddr::from(arp.sender()), IpAddr::from(arp.target()))),
            _ => None,
        };
        let by_ip = ends.and_then(|(from, to)| {
            let to_inside = self.inside.contains_ip(to) || self.outside.contains(&to);
            decide(self.inside.contains_ip(from), to_inside)
        });
        by_ip.or_else(|| {
            let header = EthernetHeader::view(frame).ok()?;
            let inside = |mac: &[u8; 6]| self.inside.contains_mac(*mac);
            decide(inside(&header.source.0), inside(&header.destination.0))
        })
    }
}

/// Seed of the hash of a flow.
const ORDER: u64 = 0x6f72_6465_7265_6421;

/// Spreads a number over the upper bits of a word.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash that the packets of a flow share in both directions; 0 where there is no flow.
#[inline]
fn order(frame: &[u8]) -> u32 {
    plain_ends(frame).map_or_else(|| any_order(frame), hash)
}

/// One end of a flow without VLAN tags over IPv4: address, port, protocol.
type End = ([u8; 4], u16, u8);

/// Both ends of a TCP or UDP packet over IPv4 without tags, options and fragments, as most packets are. Nothing else of it
/// is looked at.
#[inline]
fn plain_ends(frame: &[u8]) -> Option<[End; 2]> {
    // Ethernet, the IP header and the ports: RFC 791, 3.1, from byte 14 on.
    let head = frame.first_chunk::<38>()?;
    let protocol = head[23];
    let is_whole = head[20] & 0x3f == 0 && head[21] == 0;
    let is_plain = head[12..15] == [0x08, 0x00, 0x45] && [protocol::TCP, protocol::UDP].contains(&protocol);
    let end = |address: usize, port: usize| {
        let octets = [head[address], head[address + 1], head[address + 2], head[address + 3]];
        (octets, u16::from_be_bytes([head[port], head[port + 1]]), protocol)
    };
    (is_plain && is_whole).then(|| [end(26, 34), end(30, 36)])
}

/// The same for all packets.
#[inline(never)]
fn any_order(frame: &[u8]) -> u32 {
    let Ok(flow) = Flow::parse(frame) else { return 0 };
    match (flow.source(), flow.destination(), flow.protocol()) {
        (IpAddr::V4(source), IpAddr::V4(destination), protocol @ (protocol::TCP | protocol::UDP))
            if flow.vlan_count() == 0 =>
        {
            let source = (source.octets(), flow.source_port(), protocol);
            hash([source, (destination.octets(), flow.destination_port(), protocol)])
        }
        _ => symmetric_hash(&flow),
    }
}

#[inline]
fn hash(ends: [End; 2]) -> u32 {
    let [one, other] = ends.map(|(address, port, protocol)| {
        let address = u64::from(u32::from_le_bytes(address));
        ORDER ^ (address | u64::from(port) << 32 | u64::from(protocol) << 48)
    });
    // A product forgets which side was which.
    let product = u128::from(one) * u128::from(other);
    (((product >> 64) as u64 ^ product as u64).wrapping_mul(SPREAD) >> 32) as u32
}

/// From the inside to elsewhere, or from elsewhere to the inside; anything else tells nothing.
fn decide(from_inside: bool, to_inside: bool) -> Option<Direction> {
    match (from_inside, to_inside) {
        (true, false) => Some(Direction::Outbound),
        (false, true) => Some(Direction::Inbound),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pannier_runtime::wire::FrameBuilder;

    #[test]
    fn both_directions_of_a_flow_have_one_hash_and_flows_have_their_own() {
        // Goal: a flow stays in order, and flows spread over lanes and do not wait for each other. Method: both directions of
        // flows of each kind, all hashes different; 4,096 flows of which each bit of the hash parts half.
        let (a, b) = ([10, 0, 0, 1], [192, 0, 2, 1]);
        let (there, back) = (FrameBuilder::ipv4(a, b), FrameBuilder::ipv4(b, a));
        let six = (FrameBuilder::ipv6([1; 16], [2; 16]), FrameBuilder::ipv6([2; 16], [1; 16]));
        let pairs = [
            (there.clone().udp(1, 2, b""), back.clone().udp(2, 1, b"x")),
            (there.clone().udp(2, 1, b""), back.clone().udp(1, 2, b"x")),
            (there.clone().tcp(1, 2, 2, b""), back.clone().tcp(2, 1, 0x12, b"x")),
            (there.clone().vlan(5).udp(1, 2, b""), back.clone().vlan(5).udp(2, 1, b"x")),
            (there.clone().icmp_echo_request(7, 1, b""), back.clone().icmp_echo_reply(7, 1, b"")),
            (
                there.clone().fragment(1, 8, true).raw(17, &[9; 8]),
                back.fragment(1, 8, false).raw(17, &[9; 8]),
            ),
            (six.0.udp(1, 2, b""), six.1.udp(2, 1, b"x")),
        ];
        let mut hashes: Vec<u32> = pairs.iter().map(|(one, _)| order(one)).collect();
        assert!(pairs.iter().all(|(one, other)| order(one) == order(other)));
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), pairs.len());
        for (frame, _) in &pairs[..3] {
            assert_eq!(order(frame), any_order(frame), "the short way is the long one");
        }
        let many: Vec<u32> = (0..4_096).map(|port| order(&there.clone().udp(port, 53, b""))).collect();
        for bit in 0..32 {
            let set = many.iter().filter(|hash| *hash >> bit & 1 == 1).count();
            assert!((1_850..2_250).contains(&set), "{set} of 4,096 have bit {bit}");
        }
    }

    #[test]
    fn frames_of_a_flow_have_one_hash_whatever_way_they_are_read() {
        // Goal: a frame with options does not overtake one without, and the short way takes no frame for another flow's.
        // Method: a flow's frames with and without options, flags and padding; and each value of each byte of a header.
        let there = FrameBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1]);
        let (udp, tcp) = (there.clone().udp(1, 2, b"data"), there.clone().tcp(1, 2, 2, b""));
        for (plain, is_tcp) in [(&udp, false), (&tcp, true)] {
            let end =
                |frame: FrameBuilder| if is_tcp { frame.tcp(1, 2, 16, b"") } else { frame.udp(1, 2, b"") };
            let padded = [&end(there.clone())[..], &[7; 6]].concat();
            let optioned = end(there.clone().ipv4_options(&[1, 1, 1, 0]));
            let first = end(there.clone().fragment(1, 0, true));
            for other in
                [end(there.clone().dont_fragment()), end(there.clone().ttl(1)), padded, optioned, first]
            {
                assert_eq!(order(&other), order(plain), "{other:x?}");
            }
            let mut frame = plain.clone();
            for at in 0..42 {
                for value in 0..=255 {
                    frame[at] = value;
                    if Flow::parse(&frame).is_ok() {
                        assert_eq!(order(&frame), any_order(&frame), "{frame:x?}");
                    }
                }
                frame[at] = plain[at];
            }
        }
    }
}
