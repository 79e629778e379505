//! The example capture, made by ourselves: an office behind an edge chain, seen at both outer sides of the chain.
//!
//! Outbound packets are as the hosts send them, inbound ones as the Internet sends them to the NAT's external address.
//! A capture can't ask the NAT which port it chose, so the chain file says `ports = "preserve"`, and no two inside
//! hosts share a port (or an ICMP identifier): every answer finds its mapping. The way of a packet follows from its
//! interface, and from its addresses alone.

mod noise;
mod talks;

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Context;
use pannier_runtime::Direction;
use pannier_runtime::clock::{Nanos, SECOND};
use pannier_runtime::entropy::Entropy;
use pannier_runtime::port::pcap::{InterfaceDescription, Writer};
use pannier_runtime::wire::FrameBuilder;
use pannier_runtime::wire::ethernet::MacAddr;

/// Where the capture lies, from the root of the workspace.
const FILE: &str = "chains/configs/edge.pcapng";
const SEED: u64 = 2020;
/// The capture's beginning, 2020-01-02 08:00:00 UTC.
const START: Nanos = 1_577_952_000 * SECOND;
/// How long new conversations begin.
const LENGTH: Nanos = 9 * SECOND;
/// What inside hosts show outside.
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const HOSTS: u64 = 40;
const MILLISECOND: Nanos = SECOND / 1_000;

const SIDES: [InterfaceDescription<'_>; 2] = [
    InterfaceDescription { name: "inside", description: Some("outbound packets, as the hosts send them") },
    InterfaceDescription { name: "outside", description: Some("inbound packets, as they arrive") },
];

/// Makes the capture anew.
pub(crate) fn run() -> anyhow::Result<()> {
    let packets = packets();
    let file = capture(&packets)?;
    std::fs::write(Path::new(FILE), &file).with_context(|| format!("writing {FILE}"))?;
    println!("{FILE}: {} packets, {} bytes", packets.len(), file.len());
    Ok(())
}

/// The packets as a capture, its bytes always the same.
fn capture(packets: &[Packet]) -> anyhow::Result<Vec<u8>> {
    let mut writer = Writer::new(Vec::new(), &SIDES)?;
    for packet in packets {
        let interface = u32::from(packet.direction == Direction::Inbound);
        writer.write(interface, START + packet.time, &packet.frame, 0)?;
    }
    Ok(writer.finish()?)
}

/// A frame of the capture; its time counts from [`START`].
struct Packet {
    time: Nanos,
    direction: Direction,
    frame: Vec<u8>,
}

/// Everything that happens, in the order of time.
fn packets() -> Vec<Packet> {
    let mut trace = Trace {
        packets: Vec::new(),
        random: Entropy::new(SEED),
        tcp: Numbers::new(1),
        udp: Numbers::new(2),
        icmp: Numbers::new(3),
    };
    trace.conversations();
    trace.noise();
    trace.packets.sort_by_key(|packet| packet.time); // stable: what happens at once keeps its order
    trace.packets
}

/// Ports or identifiers from 20000 to 59999, none of them twice.
struct Numbers(Vec<u16>);

impl Numbers {
    fn new(stream: u64) -> Self {
        let mut random = Entropy::stream(SEED, stream);
        let mut all: Vec<u16> = (20_000..60_000).collect();
        for last in (1..all.len()).rev() {
            all.swap(last, random.below(last as u64 + 1) as usize);
        }
        Numbers(all)
    }

    fn next(&mut self) -> u16 {
        self.0.pop().expect("there are far more numbers than conversations")
    }
}

/// The capture while it is made.
struct Trace {
    packets: Vec<Packet>,
    random: Entropy,
    tcp: Numbers,
    udp: Numbers,
    icmp: Numbers,
}

impl Trace {
    fn add(&mut self, time: Nanos, direction: Direction, frame: Vec<u8>) {
        self.packets.push(Packet { time, direction, frame });
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.random.below(most - least + 1)
    }

    fn host(&mut self) -> Ipv4Addr {
        Ipv4Addr::new(192, 168, 1, self.between(10, 9 + HOSTS) as u8)
    }

    fn server(&mut self) -> Ipv4Addr {
        let last = self.between(1, 30) as u8;
        if last.is_multiple_of(3) {
            Ipv4Addr::new(192, 0, 2, last)
        } else {
            Ipv4Addr::new(198, 51, 100, last)
        }
    }

    /// The start of a conversation: many begin at once, as if the office came back from a break.
    fn moment(&mut self) -> Nanos {
        if self.random.below(8) == 0 {
            self.random.below(100) * MILLISECOND
        } else {
            self.random.below(LENGTH)
        }
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        (0..length).map(|_| self.random.next_u64() as u8).collect()
    }
}

/// A frame from a host to the world, up to its IP header.
fn outbound(host: Ipv4Addr, server: Ipv4Addr) -> FrameBuilder {
    FrameBuilder::ipv4(host, server).ethernet(host_mac(host), GATEWAY_INSIDE).dont_fragment()
}

/// A frame from the world to the external address, up to its IP header.
fn inbound(server: Ipv4Addr) -> FrameBuilder {
    let hops = 50 + server.octets()[3] % 10;
    FrameBuilder::ipv4(server, EXTERNAL).ethernet(ROUTER, GATEWAY_OUTSIDE).ttl(hops).dont_fragment()
}

const GATEWAY_INSIDE: MacAddr = MacAddr([2, 0, 0, 0, 1, 1]);
const GATEWAY_OUTSIDE: MacAddr = MacAddr([2, 0, 0, 0, 2, 1]);
const ROUTER: MacAddr = MacAddr([2, 0, 0, 0, 2, 254]);

fn host_mac(host: Ipv4Addr) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, host.octets()[3]])
}

#[cfg(test)]
mod tests;
