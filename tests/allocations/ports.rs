//! No packet costs an allocation in ports: between the two ends of a veth pair, through a TAP, through a ring of DPDK.

use pannier_runtime::Packet;
use pannier_runtime::packet::Pool;
use pannier_runtime::port::{Device, Port, PortContext, PortSpec};
use pannier_runtime::wire::FrameBuilder;
use pannier_runtime::wire::tcp::flags;

use super::allocations;
use super::netns::{Namespace, join, send_with_header};

/// Rounds of 64 packets each over which nothing may be allocated, and before them.
const ROUNDS: usize = 1_000;
const WARM: usize = 10;

fn open(text: &str) -> Device {
    PortSpec::parse(text).and_then(|spec| spec.open()).unwrap_or_else(|error| panic!("{error}"))
}

/// Receives until nothing arrives, gives everything back and returns how many packets there were.
fn drain(port: &mut Device, pool: &mut Pool, burst: &mut Vec<Packet>) -> usize {
    let mut count = 0;
    // Frames are where they are going when a call that sends returns; one that is not is taken in the next round.
    while port.rx_burst(32, &mut PortContext { now: 0, pool }, burst).expect("the port works") > 0 {
        count += burst.len();
        burst.drain(..).for_each(|packet| pool.give(packet));
    }
    count
}

/// Sends bursts from one port to another and counts the allocations, those of `more` left out.
fn measure(from: &mut Device, to: &mut Device, mut more: impl FnMut(usize)) -> (usize, u64) {
    let (mut pool, mut burst, frame) = (Pool::default(), Vec::new(), [7; 1_000]);
    let (mut arrived, mut counted) = (0, 0);
    for round in 0..WARM + ROUNDS {
        more(round);
        let before = allocations();
        for _ in 0..64 {
            let mut packet = pool.take();
            packet.set_frame(&frame);
            burst.push(packet);
        }
        from.tx_burst(&mut PortContext { now: 0, pool: &mut pool }, &mut burst).expect("the port works");
        let count = drain(to, &mut pool, &mut burst);
        if round >= WARM {
            arrived += count;
            counted += allocations() - before;
        }
    }
    (arrived, counted)
}

#[test]
fn packets_cost_no_allocation_in_ports_on_interfaces() {
    // Goal: buffers come from the pool, and nothing else is asked for, super-frames included. Method: bursts through a
    // veth pair with a super-frame now and then, then through a TAP both ways, after warm-up.
    let (Some(one), Some(other)) = (Namespace::new(), Namespace::new()) else { return };
    let (one, other) = (one.without_ipv6(), other.without_ipv6());
    join((&one, "left"), (&other, "right"));
    let (mut left, mut right) = (one.run(|| open("af_packet:left")), other.run(|| open("af_packet:right")));
    let whole = FrameBuilder::ipv4([10, 77, 0, 1], [10, 77, 0, 2]).tcp(1, 2, flags::ACK, &[7; 40_000]);
    // Needs a checksum, TCP over IPv4, length of the headers, of a segment, and where the checksum is.
    let numbers = [54_u16, 1_400, 34, 16].map(u16::to_ne_bytes);
    let super_frame = [&[1, 1][..], numbers.as_flattened(), &whole].concat();
    let (arrived, counted) = measure(&mut left, &mut right, |round| {
        if round % 20 == 0 {
            one.run(|| send_with_header("left", &super_frame));
        }
    });
    assert!(arrived > ROUNDS * 64 + ROUNDS, "only {arrived} packets arrived: {:?}", right.stats());
    assert_eq!(counted, 0, "allocations on a veth pair");

    let (mut tap, mut kernel) = one.run(|| (open("tap:tap"), open("af_packet:tap")));
    for is_sending in [true, false] {
        let (from, to) = if is_sending { (&mut tap, &mut kernel) } else { (&mut kernel, &mut tap) };
        let (arrived, counted) = measure(from, to, |_| ());
        assert!(arrived > ROUNDS * 60, "only {arrived} packets arrived: {:?}", to.stats());
        assert_eq!(counted, 0, "allocations at a TAP");
    }
}

#[test]
fn packets_cost_no_allocation_in_af_xdp() {
    // Goal: buffers come from the pool, and nothing else is asked for. Method: bursts through a veth pair after warm-up.
    let Some(namespace) = Namespace::new().map(Namespace::without_ipv6) else { return };
    join((&namespace, "left"), (&namespace, "right"));
    let (mut left, mut right) = namespace.run(|| (open("af_xdp:left"), open("af_xdp:right")));
    let (arrived, counted) = measure(&mut left, &mut right, |_| ());
    assert!(arrived > ROUNDS * 60, "only {arrived} packets arrived: {:?}", right.stats());
    assert_eq!(counted, 0);
}

#[cfg(feature = "dpdk")]
#[test]
fn packets_cost_no_allocation_in_ports_of_dpdk() {
    // Goal: neither lending DPDK's buffers nor copies ask for memory. Method: short and long frames through a ring,
    // more of them than it takes, after warm-up.
    let mut port = open("dpdk:net_ring0");
    let (mut pool, mut burst) = (Pool::default(), Vec::new());
    let (mut arrived, mut counted) = (0, 0);
    for round in 0..WARM + ROUNDS {
        let before = allocations();
        pool.take_many(1_100, &mut burst);
        burst.iter_mut().enumerate().for_each(|(i, packet)| packet.set_frame(&[7; 3_000][..60 + i % 2_900]));
        port.tx_burst(&mut PortContext { now: 0, pool: &mut pool }, &mut burst).expect("the port works");
        let count = drain(&mut port, &mut pool, &mut burst);
        if round >= WARM {
            arrived += count;
            counted += allocations() - before;
        }
    }
    assert!(arrived >= ROUNDS * 1_000, "only {arrived} packets arrived: {:?}", port.stats());
    assert_eq!(counted, 0, "allocations in a port of DPDK");
}
