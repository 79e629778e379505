//! Tests of the NAT: requirements by their ids, and cases that broke others.

mod errors;

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;
use crate::harness::{Harness, assert_checksums};
use crate::values::{OneOrMany, Ports};
use pannier_runtime::wire::FrameBuilder;
use pannier_runtime::wire::tcp::flags::{ACK, FIN, SYN};

const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 5);
const HOST: [u8; 4] = [192, 168, 0, 10];
const SERVER: [u8; 4] = [198, 51, 100, 1];
const OTHER: [u8; 4] = [198, 51, 100, 2];

fn harness(change: impl FnOnce(&mut NatConfig)) -> Harness {
    let mut config = NatConfig::new(EXTERNAL);
    change(&mut config);
    Harness::new(nat(config).expect("possible options"))
}

fn to(server: [u8; 4]) -> FrameBuilder {
    FrameBuilder::ipv4(HOST, server)
}

/// A frame back to what the outside saw in `sent`.
fn answer(sent: &[u8]) -> Vec<u8> {
    let flow = Flow::parse(sent).expect("well-formed").reverse();
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (flow.source(), flow.destination()) else {
        panic!("the frame is IPv4")
    };
    let builder = FrameBuilder::ipv4(source, destination);
    match flow.protocol() {
        protocol::UDP => builder.udp(flow.source_port(), flow.destination_port(), b"answer"),
        protocol::TCP => builder.tcp(flow.source_port(), flow.destination_port(), SYN | ACK, b""),
        _ => builder.icmp_echo_reply(flow.destination_port(), 1, b"answer"),
    }
}

/// Sends a frame outwards and returns what leaves, and its external port.
#[track_caller]
fn translated(harness: &mut Harness, frame: &[u8]) -> (Vec<u8>, u16) {
    let sent = harness.outbound(frame).forwarded();
    assert_checksums(&sent);
    let flow = Flow::parse(&sent).expect("well-formed");
    assert_eq!(flow.source(), EXTERNAL);
    (sent, flow.source_port())
}

#[test]
fn rfc4787_r1_mapping_is_endpoint_independent() {
    // Goal: case 8. Method: one inside endpoint to three destinations, UDP and TCP; another port differs.
    let mut harness = harness(|_| ());
    let ports: Vec<u16> = [(SERVER, 1), (SERVER, 2), (OTHER, 1)]
        .into_iter()
        .map(|(server, port)| translated(&mut harness, &to(server).udp(1, port, b"")).1)
        .collect();
    assert_eq!(ports, [ports[0]; 3]);
    let tcp = [(SERVER, 1), (SERVER, 2), (OTHER, 1)]
        .map(|(server, port)| translated(&mut harness, &to(server).tcp(1, port, SYN, b"")).1);
    assert_eq!(tcp, [tcp[0]; 3]);
    assert_ne!(translated(&mut harness, &to(SERVER).udp(2, 1, b"")).1, ports[0]);
}

#[test]
fn rfc4787_r2_a_host_shows_one_address() {
    // Goal: pooling is paired. Method: many ports and protocols of many hosts over three addresses.
    let pool = [EXTERNAL, Ipv4Addr::new(203, 0, 113, 6), Ipv4Addr::new(203, 0, 113, 7)];
    let mut harness = harness(|config| config.external = OneOrMany(pool.to_vec()));
    let mut seen = Vec::new();
    for host in 1..40 {
        let builder = FrameBuilder::ipv4([192, 168, 0, host], SERVER);
        let frames = [
            builder.clone().udp(1, 9, b""),
            builder.clone().udp(2, 9, b""),
            builder.clone().tcp(3, 9, SYN, b""),
            builder.icmp_echo_request(4, 1, b""),
        ];
        let sources = frames
            .map(|frame| Flow::parse(&harness.outbound(&frame).forwarded()).expect("well-formed").source());
        assert_eq!(sources, [sources[0]; 4]);
        seen.push(sources[0]);
    }
    assert!(pool.iter().all(|address| seen.contains(&(*address).into())), "all addresses are used");
}

#[test]
fn rfc4787_r3_no_two_endpoints_share_a_port() {
    // Goal: no overloading. Method: fill a range of 64 ports to the last, from one port of 64 hosts.
    let mut harness = harness(|config| {
        config.port_range = Ports::between(2_000, 2_063);
        config.ports = PortChoice::Preserve;
    });
    let mut ports: Vec<u16> = (1..=64)
        .map(|host| {
            let frame = FrameBuilder::ipv4([192, 168, 0, host], SERVER).udp(2_010, 9, b"");
            translated(&mut harness, &frame).1
        })
        .collect();
    assert_eq!(ports[0], 2_010, "the inside port is kept where it is free");
    ports.sort_unstable();
    assert_eq!(ports, (2_000..2_064).collect::<Vec<_>>());
}

#[test]
fn rfc4787_r5_timers_run_from_the_last_outbound_packet() {
    // Goal: each protocol has its time. Method: for each, an answer just before the end and one at it.
    let cases = [
        (to(SERVER).udp(1, 53, b""), 300),
        (to(SERVER).tcp(1, 80, ACK, b""), 7_440),
        (to(SERVER).tcp(1, 80, SYN, b""), 240),
        (to(SERVER).icmp_echo_request(1, 1, b""), 60),
    ];
    for (frame, seconds) in cases {
        let mut harness = harness(|_| ());
        let answer = answer(&translated(&mut harness, &frame).0);
        harness.wait(seconds - 1);
        assert_eq!(harness.inbound(&answer).reason(), None);
        harness.wait(1);
        assert_eq!(harness.inbound(&answer).reason(), Some("no_mapping"));
    }
}

#[test]
fn rfc4787_r6_only_outbound_packets_refresh_and_seldom_write() {
    // Goal: busy mappings are read only, and the outside keeps none alive. Method: packets at steps of a timeout.
    let mut harness = harness(|_| ());
    let frame = to(SERVER).udp(1, 53, b"");
    let (sent, port) = translated(&mut harness, &frame);
    assert!(!harness.outbound(&frame).wrote);
    harness.wait(200);
    assert!(!harness.inbound(&answer(&sent)).wrote);
    assert!(harness.outbound(&frame).wrote);
    harness.wait(200);
    assert_eq!(harness.inbound(&answer(&sent)).reason(), None);
    assert_eq!(translated(&mut harness, &frame).1, port);
    harness.wait(300);
    assert_eq!(harness.inbound(&answer(&sent)).reason(), Some("no_mapping"));
}

#[test]
fn rfc4787_r8_a_mapped_endpoint_is_open_to_all_and_others_to_none() {
    // Goal: filtering is endpoint-independent. Method: a stranger to a mapped port, to others, with a SYN, a ping.
    let mut harness = harness(|_| ());
    let (_, port) = translated(&mut harness, &to(SERVER).udp(1, 53, b""));
    let stranger = FrameBuilder::ipv4(OTHER, EXTERNAL);
    let received = harness.inbound(&stranger.clone().udp(9, port, b"hello")).forwarded();
    assert_checksums(&received);
    assert_eq!(
        Flow::parse(&received).expect("well-formed").to_string(),
        "udp 198.51.100.2:9 -> 192.168.0.10:1"
    );
    let unmapped = [
        stranger.clone().udp(9, port ^ 1, b""),
        stranger.clone().tcp(9, port, SYN, b""),
        stranger.icmp_echo_request(0, 1, b""),
        FrameBuilder::ipv4(OTHER, HOST).udp(9, 1, b""),
    ];
    for frame in unmapped {
        assert_eq!(harness.inbound(&frame).reason(), Some("no_mapping"));
    }
}

#[test]
fn hairpin_is_refused_by_name() {
    // Goal: nothing loops. Method: an inside host sends to the external address of another.
    let mut harness = harness(|_| ());
    let (_, port) = translated(&mut harness, &to(SERVER).udp(1, 53, b""));
    let frame = FrameBuilder::ipv4([192, 168, 0, 11], EXTERNAL).udp(9, port, b"");
    assert_eq!(harness.outbound(&frame).reason(), Some("hairpin_unsupported"));
}

#[test]
fn rfc5508_r1_any_identifier_is_mapped_and_comes_back() {
    // Goal: identifiers are 16-bit numbers with a pool of their own. Method: extreme ones there and back.
    let mut harness = harness(|config| {
        config.ports = PortChoice::Preserve;
        config.port_range = Ports::between(9, 9);
    });
    for id in [0, 1, 5, 0xFFFF] {
        let request = to(SERVER).icmp_echo_request(id, 1, b"ping");
        let (sent, external) = translated(&mut harness, &request);
        assert_eq!(external == id, id != 0, "0 stands for no identifier outside");
        let received = harness.inbound(&answer(&sent)).forwarded();
        assert_checksums(&received);
        let flow = Flow::parse(&received).expect("well-formed");
        assert_eq!((flow.destination(), flow.destination_port()), (HOST.into(), id));
    }
}

#[test]
fn rfc6888_r15_ports_are_not_guessable() {
    // Goal: a port says nothing about the next one. Method: 64 flows; ports lie in all parts of the range, and no
    // two that follow each other are near.
    let mut harness = harness(|_| ());
    let ports: Vec<u16> =
        (1..=64).map(|port| translated(&mut harness, &to(SERVER).udp(port, 53, b"")).1).collect();
    for part in 0..8 {
        assert!(ports.iter().any(|port| port / 8_192 == part), "part {part}");
    }
    let near = ports.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 16).count();
    assert_eq!(near, 0);
}

#[test]
fn rfc5508_r8_an_empty_pool_refuses_new_flows_with_an_error() {
    // Goal: case 13. Method: two ports, three flows; the third hears 3/13, the others go on.
    let mut harness = harness(|config| config.port_range = Ports::between(7, 8));
    let frame = |port| to(SERVER).vlan(3).udp(port, 53, b"data");
    translated(&mut harness, &frame(1));
    translated(&mut harness, &frame(2));
    let refused = harness.outbound(&frame(3));
    assert_eq!((refused.reason(), refused.wrote), (Some("no_free_port"), false));
    let [(Direction::Inbound, error)] = &refused.emitted[..] else { panic!("one error goes inwards") };
    assert_checksums(error);
    assert_eq!(error[38..40], [3, 13]);
    let flow = Flow::parse(error).expect("well-formed");
    assert_eq!((flow.source(), flow.destination()), (EXTERNAL.into(), HOST.into()));
    assert_eq!(error[46..], frame(3)[18..], "the refused packet is quoted as it was sent");
    for port in [1, 2] {
        translated(&mut harness, &frame(port));
    }
}

#[test]
fn a_full_table_of_expired_mappings_takes_new_ones() {
    // Goal: case 14, and a table of live ones refuses with 3/13. Method: room for three, a fourth early and late.
    let mut harness = harness(|config| {
        config.mappings = 3;
        config.port_range = Ports::between(1, 3);
    });
    for port in 1..=3 {
        translated(&mut harness, &to(SERVER).udp(port, 53, b""));
    }
    let refused = harness.outbound(&to(SERVER).tcp(4, 80, SYN, b""));
    assert_eq!((refused.reason(), refused.emitted.len()), (Some("table_full"), 1));
    harness.wait(300);
    let (sent, _) = translated(&mut harness, &to(SERVER).udp(4, 53, b""));
    let received = harness.inbound(&answer(&sent)).forwarded();
    assert_eq!(Flow::parse(&received).expect("well-formed").destination_port(), 4);
}

#[test]
fn a_sweep_takes_both_rows_and_no_live_ones() {
    // Goal: mappings go whole. Method: expire two, let a third take a port of theirs, sweep, look at the rows.
    let mut harness = harness(|config| config.port_range = Ports::between(1, 2));
    translated(&mut harness, &to(SERVER).udp(1, 53, b""));
    translated(&mut harness, &to(SERVER).udp(2, 53, b""));
    harness.wait(300);
    let (sent, port) = translated(&mut harness, &to(SERVER).udp(3, 53, b""));
    harness.sweep();
    let state = harness.state::<NatState>();
    let inside = Endpoint::new(protocol::UDP, HOST.into(), 3);
    let external = Endpoint::new(protocol::UDP, EXTERNAL, port);
    assert_eq!(state.by_inside.rows(), [(inside, external)]);
    assert_eq!(state.by_outside.rows(), [(external, inside)]);
    harness.inbound(&answer(&sent)).forwarded();
}

#[test]
fn padding_is_in_no_checksum() {
    // Goal: case 3. Method: a 54-byte ACK padded with zeros and with 0xAA gives the same packet.
    let mut harness = harness(|_| ());
    let frames = [0, 0xAA].map(|fill| {
        let mut frame = to(SERVER).tcp(1, 80, ACK, b"");
        frame.resize(60, fill);
        translated(&mut harness, &frame).0
    });
    assert_eq!(frames[0][..54], frames[1][..54]);
    assert_eq!((frames[0][54..].to_vec(), frames[1][54..].to_vec()), (vec![0; 6], vec![0xAA; 6]));
}

#[test]
fn what_cannot_be_translated_has_a_name() {
    // Goal: no untranslated inside address leaves. Method: each kind of packet outside of the NAT's scope.
    let mut harness = harness(|_| ());
    let cases = [
        (FrameBuilder::ipv6([1; 16], [2; 16]).udp(1, 2, b""), "not_ipv4"),
        (to(SERVER).raw(47, &[0; 8]), "protocol_unsupported"),
        (to(SERVER).fragment(1, 8, true).raw(17, &[0; 8]), "fragment_unsupported"),
        (to(SERVER).icmp_echo_reply(1, 1, b""), "no_mapping"),
        (to(SERVER).icmp(9, 0, [0; 4], b""), "icmp_unsupported"),
        (FrameBuilder::ipv4([0; 4], [255; 4]).udp(68, 67, b""), "source_is_no_host"),
    ];
    for (frame, reason) in cases {
        let outcome = harness.outbound(&frame);
        assert_eq!((outcome.reason(), outcome.wrote), (Some(reason), false));
    }
    let arp = FrameBuilder::new().ethernet_payload(0x0806, &[0; 28]);
    assert_eq!(harness.outbound(&arp).forwarded(), arp);
}

#[test]
fn options_are_read() {
    // Goal: chain files set what they say, and mistakes are named. Method: build from options.
    let nf =
        KIND.build(&[("external", vec!["203.0.113.5", "203.0.113.6"].into()), ("ports", "preserve".into())]);
    assert_eq!(nf.expect("possible").outside_addresses().len(), 2);
    for external in ["0.0.0.0", "224.0.0.1", "::1"] {
        let error = KIND.build(&[("external", external.into())]).unwrap_err();
        assert_eq!(error.key.as_deref(), Some("external"), "{external}");
    }
    let twice = vec!["203.0.113.5", "203.0.113.6", "203.0.113.5"];
    let error = KIND.build(&[("external", twice.into())]).unwrap_err();
    assert!(error.key.as_deref() == Some("external[2]") && error.message.contains("twice"), "{error}");
    let zero = KIND.build(&[("external", "203.0.113.5".into()), ("port_range", "0-9".into())]);
    assert_eq!(zero.unwrap_err().key.as_deref(), Some("port_range"));
}

/// What an inside host may send: kind, last byte of its address, port, payload.
fn packets() -> impl Strategy<Value = Vec<(u8, u8, u16, Vec<u8>)>> {
    prop::collection::vec((0..3_u8, 1..4_u8, 0..4_u16, prop::collection::vec(any::<u8>(), 0..20)), 1..30)
}

fn packet(kind: u8, host: u8, port: u16, payload: &[u8]) -> Vec<u8> {
    let builder = FrameBuilder::ipv4([192, 168, 0, host], SERVER);
    match kind {
        0 => builder.udp(port, 53, payload),
        1 => builder.tcp(port, 80, [SYN, ACK, ACK, FIN | ACK][usize::from(port)], payload),
        _ => builder.icmp_echo_request(port, 1, payload),
    }
}

proptest! {
    #[test]
    fn an_answer_comes_back_to_who_asked(packets in packets(), unit_frames in 1..9_usize, preserve: bool) {
        // Goal: case 10, reverse(translate(p)) is accepted and gives p's tuple. Method: random packets, units and
        // choice of ports; all checksums by the oracle.
        let mut harness = harness(|config| {
            config.ports = if preserve { PortChoice::Preserve } else { PortChoice::Random };
            config.port_range = Ports::between(1, 40);
        });
        harness.unit_frames = unit_frames;
        for (kind, host, port, payload) in packets {
            let frame = packet(kind, host, port, &payload);
            let (sent, _) = translated(&mut harness, &frame);
            let received = harness.inbound(&answer(&sent)).forwarded();
            assert_checksums(&received);
            let expected = Flow::parse(&frame).expect("well-formed").reverse();
            prop_assert_eq!(Flow::parse(&received).expect("well-formed"), expected);
        }
    }

    #[test]
    fn both_directions_of_a_translated_flow_take_one_lane(
        kind in 0u8..3, host in 1u8..9, port in 1u16.., server: [u8; 2],
    ) {
        // Goal: the lane chosen on the inside is the one chosen on the outside. Method: any outbound packet and the answer to
        // what left, as each enters the chain; and not all flows take one lane.
        let nat = nat(NatConfig::new(EXTERNAL)).expect("possible options");
        let mut harness = harness(|_| ());
        let builder = FrameBuilder::ipv4([192, 168, 0, host], [198, 51, server[0], server[1]]);
        let frame = match kind {
            0 => builder.udp(port, 53, b"x"),
            1 => builder.tcp(port, 80, SYN, b""),
            _ => builder.icmp_echo_request(port, 1, b"x"),
        };
        let (sent, _) = translated(&mut harness, &frame);
        let steer = |frame: &[u8], direction| nat.steer(&Flow::parse(frame).expect("well-formed"), direction);
        let lane = steer(&frame, Direction::Outbound);
        prop_assert_eq!(lane, steer(&answer(&sent), Direction::Inbound));
        let other = to([server[0], server[1], 7, 7]).udp(port, 53, b"x");
        prop_assert!(lane.is_some() && lane != steer(&other, Direction::Outbound));
    }

    #[test]
    fn units_do_not_show(packets in packets(), waits in prop::collection::vec(0..200_u64, 30)) {
        // Goal: how transactions are committed together changes nothing. Method: units of 1 and of 6, with time
        // passing; frames, reasons and state are equal.
        let run = |unit_frames| {
            let mut harness = harness(|config| config.port_range = Ports::between(1, 5));
            harness.unit_frames = unit_frames;
            let mut outcomes = Vec::new();
            for ((kind, host, port, payload), wait) in packets.iter().zip(&waits) {
                harness.wait(*wait);
                let outcome = harness.outbound(&packet(*kind, *host, *port, payload));
                outcomes.push((outcome.verdict, outcome.frame, outcome.emitted));
            }
            harness.commit();
            (outcomes, harness.digest())
        };
        prop_assert_eq!(run(1), run(6));
    }

    #[test]
    fn the_two_tables_mirror_each_other(packets in packets(), waits in prop::collection::vec(0..200_u64, 30)) {
        // Goal: each live mapping has exactly its two rows. Method: few ports and rows, time passing, sweeps between.
        let mut harness = harness(|config| {
            config.port_range = Ports::between(1, 5);
            config.mappings = 6;
        });
        for ((kind, host, port, payload), wait) in packets.iter().zip(&waits) {
            harness.wait(*wait);
            harness.outbound(&packet(*kind, *host, *port, payload));
            if wait % 3 == 0 {
                harness.sweep();
            }
        }
        harness.sweep();
        let state = harness.state::<NatState>();
        let mut mirrored: Vec<_> = state.by_outside.rows().into_iter().map(|(external, inside)| (inside, external)).collect();
        mirrored.sort();
        let mut rows = state.by_inside.rows();
        rows.sort();
        prop_assert_eq!(rows, mirrored);
    }

    #[test]
    fn any_bytes_are_endured(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        // Goal: no panic, and no trace of what is malformed. Method: random bytes bare, as IPv4, as quote, as TCP.
        let mut harness = harness(|_| ());
        harness.endure(&bytes);
        harness.endure(&FrameBuilder::new().ethernet_payload(0x0800, &bytes));
        harness.endure(&FrameBuilder::ipv4(SERVER, EXTERNAL).icmp(3, 3, [0; 4], &bytes));
        harness.endure(&to(SERVER).raw(6, &bytes));
    }
}
