//! Conversations that a host inside begins and a server outside answers: TCP, DNS, a QUIC-like stream, echo.

use std::net::Ipv4Addr;

use pannier_runtime::Direction;
use pannier_runtime::clock::Nanos;
use pannier_runtime::wire::FrameBuilder;
use pannier_runtime::wire::tcp::{TcpHeader, flags};

use super::{MILLISECOND, Trace, inbound, outbound};

const TCP_TALKS: u64 = 136;
const DNS_TALKS: u64 = 230;
const STREAMS: u64 = 9;
const ECHOES: u64 = 30;
/// Bytes of the longest TCP payload that fits into an Ethernet frame.
const MSS: u16 = 1_460;
const RESOLVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);

/// Who talks, and when the next packet passes the chain.
struct Talk {
    host: Ipv4Addr,
    server: Ipv4Addr,
    /// The inside port or the ICMP identifier, and outside the same.
    port: u16,
    server_port: u16,
    now: Nanos,
    /// From the chain to the server and back.
    outside: Nanos,
    /// From the chain to the host and back.
    inside: Nanos,
}

impl Talk {
    fn builder(&self, direction: Direction) -> FrameBuilder {
        match direction {
            Direction::Outbound => outbound(self.host, self.server),
            Direction::Inbound => inbound(self.server),
        }
    }

    fn udp(&self, direction: Direction, payload: &[u8]) -> Vec<u8> {
        let (from, to) = match direction {
            Direction::Outbound => (self.port, self.server_port),
            Direction::Inbound => (self.server_port, self.port),
        };
        self.builder(direction).udp(from, to, payload)
    }
}

/// A TCP connection: what each side sends next, by direction.
struct Tcp {
    talk: Talk,
    next: [u32; 2],
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Finished,
    ResetByHost,
    ResetByServer,
}

impl Trace {
    pub(super) fn conversations(&mut self) {
        for number in 0..TCP_TALKS {
            let talk = self.talk(if number.is_multiple_of(4) { 80 } else { 443 });
            self.connection(talk, number);
        }
        for number in 0..DNS_TALKS {
            let talk = Talk { server: RESOLVER, ..self.talk(53) };
            self.question(talk, number);
        }
        for _ in 0..STREAMS {
            let talk = self.talk(443);
            self.stream(talk);
        }
        for _ in 0..ECHOES {
            let talk = self.talk(0);
            self.echoes(talk);
        }
    }

    /// Who talks to whom from when on; the inside port is drawn by who knows the protocol.
    fn talk(&mut self, server_port: u16) -> Talk {
        Talk {
            host: self.host(),
            server: self.server(),
            port: 0,
            server_port,
            now: self.moment(),
            outside: self.between(120, 190) * MILLISECOND,
            inside: self.between(300, 900) * (MILLISECOND / 1_000),
        }
    }

    /// Handshake, requests with their responses, and one of several ends.
    fn connection(&mut self, mut talk: Talk, number: u64) {
        talk.port = self.tcp.next();
        let next = [self.random.next_u64() as u32, self.random.next_u64() as u32];
        let mut tcp = Tcp { talk, next };
        self.segment(&mut tcp, Direction::Outbound, flags::SYN, &[]);
        tcp.talk.now += tcp.talk.outside;
        if number % 32 == 5 {
            return self.segment(&mut tcp, Direction::Inbound, flags::RST | flags::ACK, &[]);
        }
        self.segment(&mut tcp, Direction::Inbound, flags::SYN | flags::ACK, &[]);
        tcp.talk.now += tcp.talk.inside;
        self.segment(&mut tcp, Direction::Outbound, flags::ACK, &[]);
        for _ in 0..self.between(1, 4) {
            self.exchange(&mut tcp);
        }
        let end = match number % 16 {
            3 => End::ResetByHost,
            11 => End::ResetByServer,
            _ => End::Finished,
        };
        self.end(&mut tcp, end);
    }

    /// A request, its response of one to five segments, and the acknowledgements.
    fn exchange(&mut self, tcp: &mut Tcp) {
        let request =
            if tcp.talk.server_port == 80 { request(tcp.talk.server) } else { self.record(100, 400) };
        self.segment(tcp, Direction::Outbound, flags::PSH | flags::ACK, &request);
        tcp.talk.now += tcp.talk.outside + self.between(1, 20) * MILLISECOND;
        let segments = self.between(1, 5);
        for segment in 1..=segments {
            let is_long = segment < segments && self.random.below(12) == 0;
            let payload = if is_long { self.bytes(u64::from(MSS)) } else { self.record(60, 420) };
            let last = if segment == segments { flags::PSH } else { 0 };
            self.segment(tcp, Direction::Inbound, last | flags::ACK, &payload);
            tcp.talk.now += tcp.talk.inside;
            if segment % 2 == 0 || segment == segments {
                self.segment(tcp, Direction::Outbound, flags::ACK, &[]);
            }
            tcp.talk.now += self.between(1, 12) * MILLISECOND;
        }
        tcp.talk.now += self.between(5, 300) * MILLISECOND;
    }

    fn end(&mut self, tcp: &mut Tcp, end: End) {
        match end {
            End::ResetByHost => self.segment(tcp, Direction::Outbound, flags::RST | flags::ACK, &[]),
            End::ResetByServer => self.segment(tcp, Direction::Inbound, flags::RST | flags::ACK, &[]),
            End::Finished => {
                self.segment(tcp, Direction::Outbound, flags::FIN | flags::ACK, &[]);
                tcp.talk.now += tcp.talk.outside;
                self.segment(tcp, Direction::Inbound, flags::FIN | flags::ACK, &[]);
                tcp.talk.now += tcp.talk.inside;
                self.segment(tcp, Direction::Outbound, flags::ACK, &[]);
            }
        }
    }

    fn segment(&mut self, tcp: &mut Tcp, direction: Direction, flags: u8, payload: &[u8]) {
        let talk = &tcp.talk;
        let (ports, (mine, other)) = match direction {
            Direction::Outbound => ((talk.port, talk.server_port), (0, 1)),
            Direction::Inbound => ((talk.server_port, talk.port), (1, 0)),
        };
        let header = TcpHeader {
            source_port: ports.0.into(),
            destination_port: ports.1.into(),
            sequence: tcp.next[mine].into(),
            acknowledgement: if flags & flags::ACK == 0 { 0.into() } else { tcp.next[other].into() },
            data_offset: 0,
            flags,
            window: 64_240.into(),
            checksum: 0.into(),
            urgent: 0.into(),
        };
        let [high, low] = MSS.to_be_bytes();
        let options = if flags & flags::SYN == 0 { &[][..] } else { &[2, 4, high, low] };
        let frame = talk.builder(direction).tcp_segment(header, options, payload);
        let counts = u32::from(flags & (flags::SYN | flags::FIN) != 0);
        tcp.next[mine] = tcp.next[mine].wrapping_add(payload.len() as u32 + counts);
        self.add(tcp.talk.now, direction, frame);
    }

    /// Bytes with the head of a TLS record in front, so that a dissector has something to show.
    fn record(&mut self, least: u64, most: u64) -> Vec<u8> {
        let length = self.between(least, most);
        let [high, low] = (length as u16).to_be_bytes();
        [&[23, 3, 3, high, low], &self.bytes(length)[..]].concat()
    }

    /// A DNS question for an address and its answer.
    fn question(&mut self, mut talk: Talk, number: u64) {
        talk.port = self.udp.next();
        let id = self.random.next_u64() as u16;
        let answer = self.server();
        self.add(talk.now, Direction::Outbound, talk.udp(Direction::Outbound, &dns(id, number, None)));
        talk.now += talk.outside;
        self.add(talk.now, Direction::Inbound, talk.udp(Direction::Inbound, &dns(id, number, Some(answer))));
    }

    /// A QUIC-like stream: long headers first, then short ones, most of them towards the host.
    fn stream(&mut self, mut talk: Talk) {
        talk.port = self.udp.next();
        let hello = [&[0xC0, 0, 0, 0, 1][..], &self.bytes(1_195)].concat();
        self.add(talk.now, Direction::Outbound, talk.udp(Direction::Outbound, &hello));
        talk.now += talk.outside;
        let answer = [&[0xC0, 0, 0, 0, 1][..], &self.bytes(600)].concat();
        self.add(talk.now, Direction::Inbound, talk.udp(Direction::Inbound, &answer));
        for number in 0..self.between(40, 70) {
            talk.now += self.between(3, 60) * MILLISECOND;
            let direction = if number % 3 == 0 { Direction::Outbound } else { Direction::Inbound };
            let length = if direction == Direction::Outbound { 30 } else { self.between(80, 330) };
            let payload = [&[0x40][..], &self.bytes(length)].concat();
            self.add(talk.now, direction, talk.udp(direction, &payload));
        }
    }

    /// A few echo requests, 200 ms apart, each with its reply.
    fn echoes(&mut self, mut talk: Talk) {
        talk.port = self.icmp.next();
        let payload: Vec<u8> = (0..56).collect();
        for sequence in 1..=self.between(3, 5) as u16 {
            let request = talk.builder(Direction::Outbound).icmp_echo_request(talk.port, sequence, &payload);
            self.add(talk.now, Direction::Outbound, request);
            let reply = talk.builder(Direction::Inbound).icmp_echo_reply(talk.port, sequence, &payload);
            self.add(talk.now + talk.outside, Direction::Inbound, reply);
            talk.now += 200 * MILLISECOND;
        }
    }
}

fn request(server: Ipv4Addr) -> Vec<u8> {
    format!("GET /news HTTP/1.1\r\nHost: {server}\r\nAccept: text/html\r\nConnection: keep-alive\r\n\r\n")
        .into_bytes()
}

/// A DNS message for one of the names `host0.example` and so on: a question, or the same with an address behind it.
fn dns(id: u16, number: u64, answer: Option<Ipv4Addr>) -> Vec<u8> {
    let label = format!("host{number}");
    let flags: u16 = if answer.is_some() { 0x8180 } else { 0x0100 };
    let counts = [1, u16::from(answer.is_some()), 0, 0];
    let mut message: Vec<u8> = [id, flags].into_iter().chain(counts).flat_map(u16::to_be_bytes).collect();
    for label in [label.as_str(), "example", ""] {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 1, 0, 1]);
    if let Some(address) = answer {
        message.extend_from_slice(&[0xC0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4]);
        message.extend_from_slice(&address.octets());
    }
    message
}
