//! Ports with several queues: each frame comes by one of them, and each flow in order, also through a chain of two shards.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::slice;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pannier_chains::ChainStage;
use pannier_chains::live::{Live, LiveOptions, Sides};
use pannier_nf::monitor::{MonitorConfig, monitor};
use pannier_runtime::packet::Pool;
use pannier_runtime::port::{Device, Port, PortContext, PortSpec};
use pannier_runtime::ring::Plan;
use pannier_runtime::wire::FrameBuilder;

use crate::netns::{Line, Namespace, join};
use crate::traffic::{PATIENCE, open, receive, send};

const FLOWS: u16 = 64;
/// Frames of each flow.
const FRAMES: u16 = 40;
/// What the tests' frames end with, in front of flow and number.
const MARK: [u8; 4] = *b"mine";

/// A frame of a flow, to the server or back. Some flows have VLAN tags, some are fragments without transport ports.
fn frame(flow: u16, number: u16, is_outbound: bool) -> Vec<u8> {
    let [high, low] = flow.to_be_bytes();
    let (mut from, mut to) = ([10, 1, high, low], [192, 0, 2, 1]);
    if !is_outbound {
        (from, to) = (to, from);
    }
    let builder = FrameBuilder::ipv4(from, to);
    let builder = match flow % 4 {
        1 => builder.vlan(7),
        2 => builder.fragment(number.into(), 64, number.is_multiple_of(2)),
        _ => builder,
    };
    builder.udp(1_000, 2_000, &end(flow, number))
}

/// What a frame of a flow has behind its headers.
fn end(flow: u16, number: u16) -> Vec<u8> {
    [&[0; 40][..], &MARK, &flow.to_be_bytes(), &number.to_be_bytes()].concat()
}

fn is_mine(frame: &[u8]) -> bool {
    frame.len() > 8 && frame[frame.len() - 8..].starts_with(&MARK)
}

/// The frame's flow and number.
fn read(frame: &[u8]) -> (u16, u16) {
    let (_, end) = frame.split_at(frame.len() - 4);
    (u16::from_be_bytes([end[0], end[1]]), u16::from_be_bytes([end[2], end[3]]))
}

/// All frames one way, those of a flow in order.
fn all(is_outbound: bool) -> Vec<Vec<u8>> {
    let numbers = (0..FRAMES).flat_map(|number| (0..FLOWS).map(move |flow| (flow, number)));
    numbers.map(|(flow, number)| frame(flow, number, is_outbound)).collect()
}

fn queues(namespace: &Namespace, text: &str) -> Vec<Device> {
    let open = || PortSpec::parse(text).and_then(|spec| spec.open_queues(2)).expect("the port opens");
    namespace.run(open)
}

/// Receives all of a flow's frames, each once and in order, and no others of the test's.
fn wants_all(port: &mut Device) {
    let mut next = HashMap::new();
    for packet in receive(port, usize::from(FLOWS * FRAMES), is_mine) {
        let (flow, number) = read(packet.frame());
        let next = next.entry(flow).or_insert(0);
        assert_eq!(number, *next, "flow {flow}");
        *next += 1;
    }
    assert_eq!(next.len(), usize::from(FLOWS));
    assert!(next.values().all(|&next| next == FRAMES), "{next:?}");
    assert!(gather(slice::from_mut(port), 0).is_empty(), "a frame came twice");
}

/// Starts a monitor with two shards between two ports of two queues each.
fn start(line: &Line, kind: &str) -> Live {
    let side = |name: &str| queues(&line.chain, &format!("{kind}:{name}"));
    let sides = Sides { inside: side("inside"), outside: side("outside") };
    assert_eq!((sides.inside.len(), sides.outside.len()), (2, 2));
    let mut plan = Plan::new(1, 1).expect("a sound geometry");
    plan.lanes = 2;
    let stage = ChainStage { name: "monitor".to_owned(), nf: Arc::new(monitor(MonitorConfig::default())) };
    let options = LiveOptions { shards: 2, patience: PATIENCE, ..LiveOptions::default() };
    Live::start(plan, vec![stage], sides, &options).expect("threads and a sound plan")
}

/// Ends the chain, through which so many frames at least have passed.
fn finish(live: Live, frames: usize) {
    let outcome = live.finish();
    assert_eq!((outcome.broken, outcome.port_error), (Vec::new(), None));
    let received: u64 = outcome.ports.iter().map(|port| port.received).sum();
    let sent: u64 = outcome.ports.iter().map(|port| port.sent).sum();
    let both = frames as u64;
    assert!(received >= both && sent >= both, "{received} received, {sent} sent of {both}");
}

#[test]
fn flows_pass_a_chain_of_two_shards_by_two_queues_of_af_packet() {
    // Goal: no frame is lost, doubled or overtaken between queues, lanes and shards. Method: many flows, plain, with tags and
    // in fragments, both ways through a monitor with two shards and two queues a side; each frame arrives once, in order.
    let Some(line) = Line::new() else { return };
    let [mut client, mut server] = [&line.client, &line.server].map(|end| end.run(|| open("af_packet:wire")));
    let mut live = start(&line, "af_packet");
    let (outbound, inbound) = (all(true), all(false));
    for (out, back) in outbound.chunks(64).zip(inbound.chunks(64)) {
        send(&mut client, out);
        send(&mut server, back);
        live.watch(Duration::from_millis(1));
    }
    wants_all(&mut server);
    wants_all(&mut client);
    finish(live, outbound.len() + inbound.len());
}

/// A socket for each flow, to another end.
fn sockets(from: &Namespace, to: &str) -> Vec<UdpSocket> {
    let socket = || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("there is a free port");
        socket.connect((to, 7)).expect("there is a way");
        socket
    };
    from.run(|| (0..FLOWS).map(|_| socket()).collect())
}

#[test]
fn flows_pass_a_chain_of_two_shards_by_two_queues_of_af_xdp() {
    // Goal: as over af_packet. Method: as there, with interfaces of two queues, over which the kernel spreads what its sockets
    // send.
    let Some(line) = Line::of_two_queues() else { return };
    let ends = [(&line.client, Line::SERVER[0]), (&line.server, Line::CLIENT[0])];
    for (end, address) in ends {
        end.ip(&format!("neighbour add {address} lladdr 02:00:00:00:00:02 dev wire"));
    }
    let [mut client, mut server] = [&line.client, &line.server].map(|end| end.run(|| open("af_packet:wire")));
    let from = ends.map(|(end, address)| sockets(end, address));
    let mut live = start(&line, "af_xdp");
    for number in 0..FRAMES {
        for sockets in &from {
            for (flow, socket) in (0u16..).zip(sockets) {
                socket.send(&end(flow, number)).expect("it can be sent");
            }
        }
        live.watch(Duration::from_millis(1));
    }
    wants_all(&mut server);
    wants_all(&mut client);
    finish(live, 2 * usize::from(FLOWS * FRAMES));
}

#[test]
fn each_queue_of_af_xdp_gets_its_own() {
    // Goal: there are as many queues as the interface has, at most as many as wanted, and each gets its own frames. Method: an
    // interface of two queues: both get some of many flows; one is refused where it is not named; and an interface of one queue.
    let Some(line) = Line::of_two_queues() else { return };
    line.client.ip(&format!("neighbour add {} lladdr 02:00:00:00:00:02 dev wire", Line::SERVER[0]));
    let from = sockets(&line.client, Line::SERVER[0]);
    let mut ports = queues(&line.chain, "af_xdp:inside");
    let mut by = HashMap::new();
    for number in 0..4 {
        (0u16..).zip(&from).for_each(|(flow, socket)| drop(socket.send(&end(flow, number))));
        for (queue, frame) in gather(&mut ports, usize::from(FLOWS)) {
            let (flow, arrived) = read(&frame);
            assert_eq!((*by.entry(flow).or_insert(queue), arrived), (queue, number), "flow {flow}");
        }
    }
    assert_eq!(by.len(), usize::from(FLOWS));
    assert!([0, 1].iter().all(|queue| by.values().any(|by| by == queue)), "{by:?}");
    let too_few = line.chain.run(|| PortSpec::parse("af_xdp:outside").and_then(|spec| spec.open_queues(1)));
    let sentence = too_few.expect_err("half of the frames would pass it by").to_string();
    assert!(sentence.contains("is spread over 2 queues, of which the chain would see 1"), "{sentence}");
    assert_eq!(queues(&line.chain, "af_xdp:outside,queue=1").len(), 1);
    let Some(other) = Line::new() else { return };
    assert_eq!(queues(&other.chain, "af_xdp:inside").len(), 1);
}

#[test]
fn each_flow_of_af_packet_comes_by_one_queue() {
    // Goal: a frame comes once, by its flow's queue, whichever way it goes; what the machine sends does not come. Method: many
    // flows both ways, and datagrams that the kernel sends from the port's interface; then one queue goes. With both kinds of ring.
    comes_by_one_queue("af_packet:left");
    comes_by_one_queue("af_packet:left,blocks=128");
}

fn comes_by_one_queue(port: &str) {
    let Some((near, far)) = Namespace::new().zip(Namespace::new()) else { return };
    let (near, far) = (near.without_ipv6(), far.without_ipv6());
    join((&near, "left"), (&far, "right"));
    let mut ports = queues(&near, port);
    let mut other = far.run(|| open("af_packet:right"));
    near.ip("address add 10.77.0.1/24 dev left");
    near.ip("neighbour add 10.77.0.2 lladdr 02:00:00:00:00:02 dev left");
    let socket = near.run(|| UdpSocket::bind("10.77.0.1:0").expect("the address is there"));
    socket.send_to(&MARK.repeat(4), "10.77.0.2:7").expect("it can be sent");
    assert_eq!(receive(&mut other, 1, |frame| frame.ends_with(&MARK)).len(), 1);
    assert!(gather(&mut ports, 0).is_empty(), "what was sent has arrived");
    let mut by = HashMap::new();
    for is_outbound in [true, false] {
        let sent = all(is_outbound);
        sent.chunks(64).for_each(|frames| send(&mut other, frames));
        let mut arrived = Vec::new();
        for (queue, frame) in gather(&mut ports, sent.len()) {
            let (flow, number) = read(&frame);
            assert_eq!(*by.entry(flow).or_insert(queue), queue, "flow {flow}");
            arrived.push((flow, number));
        }
        assert!([0, 1].iter().all(|queue| by.values().any(|by| by == queue)), "{by:?}");
        arrived.sort_unstable();
        let mut wanted: Vec<(u16, u16)> = sent.iter().map(|frame| read(frame)).collect();
        wanted.sort_unstable();
        assert_eq!(arrived, wanted);
    }
    drop(ports.pop());
    let sent = all(true);
    send(&mut other, &sent[..64]);
    assert_eq!(gather(&mut ports, 64).len(), 64, "the queue that is left gets all");
}

/// All frames of the test's that arrive, each with its queue: `count` of them, patience permitting, and those that come on top
/// of them within a moment.
fn gather(ports: &mut [Device], count: usize) -> Vec<(usize, Vec<u8>)> {
    let (start, mut frames) = (Instant::now(), Vec::new());
    while frames.len() < count && start.elapsed() < PATIENCE {
        frames.extend(receive_now(ports));
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(50));
    frames.extend(receive_now(ports));
    frames
}

/// All frames of the test's that have arrived, each with its queue.
fn receive_now(ports: &mut [Device]) -> Vec<(usize, Vec<u8>)> {
    let mut frames = Vec::new();
    for (queue, port) in ports.iter_mut().enumerate() {
        let (mut pool, mut burst) = (Pool::default(), Vec::new());
        let context = &mut PortContext { now: 0, pool: &mut pool };
        while port.rx_burst(64, context, &mut burst).expect("the port works") > 0 {}
        let mine = burst.iter().map(pannier_runtime::Packet::frame);
        let mine = mine.filter(|frame| frame.ends_with(&MARK) || is_mine(frame));
        frames.extend(mine.map(|frame| (queue, frame.to_vec())));
    }
    frames
}
