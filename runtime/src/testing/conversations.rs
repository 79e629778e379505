//! Whole conversations: both sides of TCP, UDP and ICMP, as a chain between the sides sees them.

use proptest::prelude::*;
use proptest::sample::select;
use zerocopy::{
    FromZeros,
    byteorder::network_endian::{U16, U32},
};

use super::flows::{Network, Opening, Transport, echo, frame_builder, opening, pace, payload};
use super::shrink::plain_first;
use super::{Trace, TraceFrame};
use crate::clock::Nanos;
use crate::entropy::Entropy;
use crate::wire::Flow;
use crate::wire::tcp::{TcpHeader, flags};

/// Bytes that one segment carries at most: fits 1500 bytes of IPv6 with timestamps.
const SEGMENT: usize = 1_428;

/// Conversations of all kinds. Times count from 0. Shrinks to one UDP question without answer.
pub fn conversation(network: &Network) -> impl Strategy<Value = Trace> + use<> {
    prop_oneof![
        3 => udp_conversation(network),
        1 => icmp_conversation(network),
        4 => tcp_conversation(network),
    ]
}

/// UDP questions, one to four, most of them answered. Times count from 0.
pub fn udp_conversation(network: &Network) -> impl Strategy<Value = Trace> + use<> {
    let exchange = (payload(1_200), prop::bool::weighted(0.8), payload(1_400));
    let opening = opening(network, Just(Transport::Udp));
    (opening, timing(), prop::collection::vec(exchange, 1..=4)).prop_map(|(opening, timing, exchanges)| {
        let mut tape = Tape::new(opening, timing);
        for (question, is_answered, answer) in exchanges {
            let datagram = |flow: &Flow, payload: &[u8]| {
                frame_builder(flow).udp(flow.source_port(), flow.destination_port(), payload)
            };
            tape.push(Side::Client, |flow| datagram(flow, &question));
            if is_answered {
                tape.push(Side::Server, |flow| datagram(flow, &answer));
            }
        }
        tape.end()
    })
}

/// ICMP echo requests, one to four with sequence numbers from 0, most of them answered. Times count from 0.
pub fn icmp_conversation(network: &Network) -> impl Strategy<Value = Trace> + use<> {
    let exchange = (payload(1_400), prop::bool::weighted(0.8));
    let opening = opening(network, Just(Transport::Icmp));
    (opening, timing(), prop::collection::vec(exchange, 1..=4)).prop_map(|(opening, timing, exchanges)| {
        let mut tape = Tape::new(opening, timing);
        for (sequence, (data, is_answered)) in (0..).zip(exchanges) {
            let message = |flow: &Flow| echo(frame_builder(flow), flow, sequence, &data);
            tape.push(Side::Client, message);
            if is_answered {
                tape.push(Side::Server, message);
            }
        }
        tape.end()
    })
}

/// TCP connections (RFC 9293): handshake, up to eight segments of data in either direction, some sent twice, some
/// acknowledged late; then the connection stays open, is reset, or is closed by both sides. Some are refused. Sequence
/// numbers start anywhere, and wrap. Times count from 0. Shrinks to a handshake.
pub fn tcp_conversation(network: &Network) -> impl Strategy<Value = Trace> + use<> {
    let from = any::<bool>().prop_map(|is_server| if is_server { Side::Server } else { Side::Client });
    let segment = (from.clone(), payload(SEGMENT), prop::bool::weighted(0.1), prop::bool::weighted(0.3));
    let segments = prop::collection::vec(segment, 0..=8);
    let start =
        plain_first(0, prop_oneof![any::<u32>(), any::<u8>().prop_map(|below| u32::MAX - u32::from(below))]);
    let end = prop_oneof![2 => Just(End::Open), 1 => Just(End::Refuse), 2 => Just(End::Reset), 5 => Just(End::Close)];
    let options = select(&[Options::None, Options::Size, Options::Times][..]);
    (opening(network, Just(Transport::Tcp)), timing(), start.clone(), start, options, segments, end, from)
        .prop_map(|(opening, timing, client, server, options, segments, end, ends)| {
            let tape = Tape::new(opening, timing);
            let mut tcp = Tcp { tape, client, server, options };
            tcp.send(Side::Client, flags::SYN, &[]);
            if end == End::Refuse {
                tcp.server = 0;
                tcp.send(Side::Server, flags::RST | flags::ACK, &[]);
                return tcp.tape.end();
            }
            tcp.send(Side::Server, flags::SYN | flags::ACK, &[]);
            tcp.send(Side::Client, flags::ACK, &[]);
            for (side, data, is_repeated, is_late) in &segments {
                if data.is_empty() {
                    continue;
                }
                tcp.send(*side, flags::PSH | flags::ACK, data);
                if *is_repeated {
                    tcp.tape.repeat();
                }
                if !is_late {
                    tcp.send(side.other(), flags::ACK, &[]);
                }
            }
            tcp.end(end, ends);
            tcp.tape.end()
        })
}

/// How long the steps of a conversation take: about so many nanoseconds, drawn from this seed.
#[derive(Clone, Copy, Debug)]
struct Timing {
    pace: Nanos,
    seed: u32,
}

fn timing() -> impl Strategy<Value = Timing> {
    let timing = (pace(), any::<u32>()).prop_map(|(pace, seed)| Timing { pace, seed });
    plain_first(Timing { pace: 0, seed: 0 }, timing)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Who sends the first packet.
    Client,
    Server,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// The frames of a conversation so far.
struct Tape {
    opening: Opening,
    pace: Nanos,
    entropy: Entropy,
    now: Nanos,
    frames: Vec<TraceFrame>,
}

impl Tape {
    fn new(opening: Opening, timing: Timing) -> Self {
        let entropy = Entropy::new(timing.seed.into());
        Tape { opening, pace: timing.pace, entropy, now: 0, frames: Vec::new() }
    }

    /// Adds what `build` makes of the flow from this side.
    fn push(&mut self, side: Side, build: impl FnOnce(&Flow) -> Vec<u8>) {
        let Opening { direction, flow } = match side {
            Side::Client => self.opening,
            Side::Server => self.opening.reverse(),
        };
        self.frames.push(TraceFrame { time: self.now, direction, bytes: build(&flow) });
        self.now += 1 + self.entropy.below(2 * self.pace + 1);
    }

    /// Adds the last frame once more.
    fn repeat(&mut self) {
        if let Some(last) = self.frames.last().cloned() {
            self.frames.push(TraceFrame { time: self.now, ..last });
            self.now += 1 + self.entropy.below(2 * self.pace + 1);
        }
    }

    fn end(self) -> Trace {
        Trace(self.frames)
    }
}

/// How a connection goes on after its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It stays as it is.
    Open,
    /// It never began: the SYN is answered by a RST.
    Refuse,
    /// One side sends a RST.
    Reset,
    /// Both sides send a FIN.
    Close,
}

/// TCP options of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Options {
    None,
    /// The maximum segment size, on SYNs.
    Size,
    /// All that hosts of today send: sizes, selective acknowledgements and scaling on SYNs, timestamps on all.
    Times,
}

/// A connection under way.
struct Tcp {
    tape: Tape,
    /// The client's next sequence number.
    client: u32,
    /// The server's next sequence number.
    server: u32,
    options: Options,
}

impl Tcp {
    /// Sends a segment that acknowledges, where `flags` says so, everything that the other side has sent.
    fn send(&mut self, side: Side, flags: u8, data: &[u8]) {
        let (own, other) = match side {
            Side::Client => (self.client, self.server),
            Side::Server => (self.server, self.client),
        };
        let has = |flag: u8| flags & flag != 0;
        let acknowledgement = if has(flags::ACK) { other } else { 0 };
        let options = self.options(side, flags);
        self.tape.push(side, |flow| {
            let header = TcpHeader {
                source_port: U16::new(flow.source_port()),
                destination_port: U16::new(flow.destination_port()),
                sequence: U32::new(own),
                acknowledgement: U32::new(acknowledgement),
                flags,
                window: U16::MAX_VALUE,
                ..TcpHeader::new_zeroed()
            };
            frame_builder(flow).tcp_segment(header, &options, data)
        });
        let taken = data.len() as u32 + u32::from(has(flags::SYN)) + u32::from(has(flags::FIN));
        match side {
            Side::Client => self.client = own.wrapping_add(taken),
            Side::Server => self.server = own.wrapping_add(taken),
        }
    }

    /// The options of the next segment.
    fn options(&self, side: Side, flags: u8) -> Vec<u8> {
        const SIZE: [u8; 4] = [2, 4, 0x05, 0xB4];
        let is_syn = flags & flags::SYN != 0;
        match self.options {
            Options::Size if is_syn => SIZE.to_vec(),
            Options::Times if flags & flags::RST == 0 => {
                let stamps = |side: Side| match side {
                    Side::Client => 1_000 + self.tape.frames.len() as u32,
                    Side::Server => 2_000 + self.tape.frames.len() as u32,
                };
                let echoed = if flags & flags::ACK == 0 { 0 } else { stamps(side.other()) - 1 };
                let (value, echoed) = (stamps(side).to_be_bytes(), echoed.to_be_bytes());
                let start: &[u8] = if is_syn { &[4, 2] } else { &[1, 1] };
                let scale: &[u8] = if is_syn { &[1, 3, 3, 7] } else { &[] };
                let size: &[u8] = if is_syn { &SIZE } else { &[] };
                [size, start, &[8, 10], &value, &echoed, scale].concat()
            }
            _ => Vec::new(),
        }
    }

    fn end(&mut self, end: End, side: Side) {
        match end {
            End::Open | End::Refuse => {}
            End::Reset => self.send(side, flags::RST | flags::ACK, &[]),
            End::Close => {
                self.send(side, flags::FIN | flags::ACK, &[]);
                self.send(side.other(), flags::ACK, &[]);
                self.send(side.other(), flags::FIN | flags::ACK, &[]);
                self.send(side, flags::ACK, &[]);
            }
        }
    }
}
