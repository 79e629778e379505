//! What no chain expects: ARP, scans from outside, refused services, an error about a packet, and damaged frames.

use std::net::Ipv4Addr;

use pannier_runtime::Direction;
use pannier_runtime::clock::{Nanos, SECOND};
use pannier_runtime::wire::FrameBuilder;
use pannier_runtime::wire::arp::ArpPacket;
use pannier_runtime::wire::ethernet::{MacAddr, ethertype};
use pannier_runtime::wire::icmp::v4;
use pannier_runtime::wire::tcp::flags;
use zerocopy::IntoBytes;

use super::{EXTERNAL, LENGTH, MILLISECOND, ROUTER, Trace, inbound, outbound};

const SCANNER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 250);
/// Ports that the scanner tries. None of them is the port of a conversation.
const SCANNED: [u16; 8] = [22, 23, 80, 443, 445, 3_389, 5_900, 8_080];

impl Trace {
    pub(super) fn noise(&mut self) {
        for second in 0..6 {
            self.arp(second * SECOND);
        }
        for number in 0..24 {
            let time = self.random.below(LENGTH);
            let port = SCANNED[number % SCANNED.len()];
            let from = 40_000 + number as u16;
            self.add(time, Direction::Inbound, inbound(SCANNER).tcp(from, port, flags::SYN, &[]));
        }
        self.telnet();
        self.closed_port();
        self.damaged();
    }

    /// The provider's router asks for the external address, as routers do now and then.
    fn arp(&mut self, time: Nanos) {
        let packet = ArpPacket {
            hardware: 1.into(),
            protocol: ethertype::IPV4.into(),
            hardware_length: 6,
            protocol_length: 4,
            operation: ArpPacket::REQUEST.into(),
            sender_mac: ROUTER,
            sender: [203, 0, 113, 254],
            target_mac: MacAddr([0; 6]),
            target: EXTERNAL.octets(),
        };
        let payload = [packet.as_bytes(), &[0; 18]].concat(); // padded to the shortest Ethernet frame
        let frame = FrameBuilder::new().ethernet(ROUTER, MacAddr::BROADCAST);
        self.add(time, Direction::Inbound, frame.ethernet_payload(ethertype::ARP, &payload));
    }

    /// A host that tries a service that the chain file's rules deny, three times.
    fn telnet(&mut self) {
        let (host, server, port) = (self.host(), self.server(), self.tcp.next());
        for second in [1, 2, 4] {
            let frame = outbound(host, server).tcp(port, 23, flags::SYN, &[]);
            self.add(second * SECOND, Direction::Outbound, frame);
        }
    }

    /// A datagram to a port where nobody listens, and the ICMP error that says so and quotes what arrived there.
    fn closed_port(&mut self) {
        let (host, server, port) = (self.host(), self.server(), self.udp.next());
        let time = 3 * SECOND;
        let hello = b"is anybody there?";
        self.add(time, Direction::Outbound, outbound(host, server).udp(port, 7, hello));
        let arrived = outbound(EXTERNAL, server).ttl(55).udp(port, 7, hello);
        let quote = &arrived[14..14 + 28];
        let error = inbound(server).icmp(v4::UNREACHABLE, 3, [0; 4], quote);
        self.add(time + 150 * MILLISECOND, Direction::Inbound, error);
    }

    /// Three frames that no sound sender makes: cut inside the IP header, a TCP header that is too short for itself,
    /// and flags that contradict each other.
    fn damaged(&mut self) {
        let (host, server, port) = (self.host(), self.server(), self.tcp.next());
        let sound = outbound(host, server).tcp(port, 443, flags::SYN, &[]);
        let mut short = sound.clone();
        short[14 + 20 + 12] = 4 << 4; // a data offset of 16 bytes
        let christmas = outbound(host, server).tcp(port, 443, flags::FIN | flags::PSH | flags::URG, &[]);
        for frame in [sound[..14 + 12].to_vec(), short, christmas] {
            let time = self.random.below(LENGTH);
            self.add(time, Direction::Outbound, frame);
        }
    }
}
