//! Buffers that ports lend to packets: all come back, and there is always one left.

use super::*;
use crate::packet::Pool;

/// A port that gives as many frames of 64 bytes as are asked for, and takes all.
fn open_null(number: usize, buffers: u32) -> Dpdk {
    let spec = PortSpec::parse(&format!("dpdk:net_null{number},buffers={buffers}")).expect("well formed");
    Dpdk::open(&spec).expect("this device needs nothing")
}

fn receive(port: &mut Dpdk, most: usize, pool: &mut Pool) -> Vec<Packet> {
    let mut burst = Vec::new();
    let count = port.rx_burst(most, &mut PortContext { now: 0, pool }, &mut burst);
    assert_eq!((count, burst.len()), (Ok(most), most));
    burst
}

fn send(port: &mut Dpdk, mut burst: Vec<Packet>, pool: &mut Pool) {
    let sent = port.stats().sent + burst.len() as u64;
    port.tx_burst(&mut PortContext { now: 0, pool }, &mut burst).expect("the port works");
    assert_eq!((port.stats().sent, port.stats().send_drops.total()), (sent, 0));
}

#[test]
fn lent_buffers_come_back_by_whatever_way() {
    // Goal: a port never runs dry. Method: each way that a packet can go, and how many buffers are left.
    let (mut port, mut other) = (open_null(100, 4_000), open_null(101, 4_000));
    let (mut pool, all) = (Pool::default(), port.ethdev.pool().available());
    let left = |port: &Dpdk| all - port.ethdev.pool().available();
    let mut packets = receive(&mut port, 600, &mut pool);
    assert_eq!(left(&port), 600);
    send(&mut port, packets.split_off(500), &mut pool);
    assert_eq!(left(&port), 500);
    send(&mut other, packets.split_off(400), &mut pool);
    assert_eq!(left(&port), 400);
    packets.split_off(300).into_iter().for_each(|packet| pool.give(packet));
    assert_eq!(left(&port), 300);
    drop(packets.split_off(200));
    assert_eq!(left(&port), 200);
    let copies = packets.clone();
    let behind = packets.split_off(100);
    std::thread::scope(|scope| drop(scope.spawn(|| drop(behind))));
    assert_eq!(left(&port), 100);
    packets.iter_mut().for_each(|packet| packet.set_unit(&[7; 4_000])); // which finds no room behind the frame
    assert_eq!(left(&port), 0);
    send(&mut port, packets, &mut pool);
    send(&mut port, copies, &mut pool);
    assert_eq!(left(&port), 0);
}

#[test]
fn a_port_whose_packets_wait_goes_on() {
    // Goal: packets that wait for their commit stop neither what arrives nor what leaves. Method: keep many times more
    // packets than there are buffers, and send others meanwhile.
    let mut port = open_null(102, 1_500);
    let mut pool = Pool::default();
    let mut waiting = Vec::new();
    for _ in 0..100 {
        waiting.append(&mut receive(&mut port, 100, &mut pool));
        send(&mut port, (0..100).map(|_| Packet::new(&[7; 60])).collect(), &mut pool);
    }
    assert!(waiting.iter().all(|packet| packet.frame().len() == 64));
    assert!((375..1_500).contains(&port.ethdev.pool().available()));
    assert_eq!(port.stats().receive_drops.total(), 0);
    send(&mut port, waiting, &mut pool);
    let lent = port.ethdev.pool().available();
    let packets = receive(&mut port, 64, &mut pool);
    assert_eq!((lent, port.ethdev.pool().available()), (1_500, 1_500 - 64), "it lends again");
    drop(packets);
}

#[test]
fn packets_outlive_their_port() {
    // Goal: memory that packets lie in stays, and is used again when they are gone. Method: close a port while packets of
    // it are under way, open others, let the packets go.
    let mut pool = Pool::default();
    let mut port = open_null(103, 5_000); // more than the other tests' ports have
    let first = port.ethdev.pool().as_ptr();
    let mut packets = receive(&mut port, 100, &mut pool);
    packets.iter_mut().for_each(|packet| packet.frame_mut().fill(9));
    drop(port);
    let mut port = open_null(103, 5_000);
    assert_ne!(port.ethdev.pool().as_ptr(), first);
    let others = receive(&mut port, 500, &mut pool);
    assert!(packets.iter().all(|packet| packet.frame() == [9; 64]));
    send(&mut port, packets, &mut pool);
    drop((port, others));
    let again = [open_null(104, 5_000), open_null(105, 5_000)];
    assert!(again.iter().any(|port| port.ethdev.pool().as_ptr() == first));
}

#[test]
fn more_threads_than_dpdk_has_places_for_give_buffers_back() {
    // Goal: a packet may end on any thread. Method: 200 threads at once, of which DPDK knows 128, each with one packet.
    let mut port = open_null(106, 4_000);
    let (all, mut pool) = (port.ethdev.pool().available(), Pool::default());
    let packets = receive(&mut port, 200, &mut pool);
    assert_eq!(port.ethdev.pool().available(), all - 200);
    let together = std::sync::Barrier::new(packets.len());
    std::thread::scope(|scope| {
        for packet in packets {
            let together = &together;
            scope.spawn(move || {
                drop(packet);
                together.wait();
            });
        }
    });
    assert_eq!(port.ethdev.pool().available(), all);
}
