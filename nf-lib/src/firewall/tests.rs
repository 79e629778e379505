//! Tests of the firewall.

use proptest::prelude::*;

use super::*;
use crate::harness::Harness;
use crate::values::Seconds;
use pannier_runtime::wire::FrameBuilder;
use pannier_runtime::wire::tcp::flags::{ACK, FIN, RST, SYN};

const INSIDE: [u8; 4] = [192, 168, 0, 1];
const OUTSIDE: [u8; 4] = [192, 0, 2, 1];

fn out() -> FrameBuilder {
    FrameBuilder::ipv4(INSIDE, OUTSIDE)
}

fn back() -> FrameBuilder {
    FrameBuilder::ipv4(OUTSIDE, INSIDE)
}

fn segment(direction: Direction, tcp: u8) -> Vec<u8> {
    match direction {
        Direction::Outbound => out().tcp(4000, 80, tcp, b""),
        Direction::Inbound => back().tcp(80, 4000, tcp, b""),
    }
}

fn harness(config: &str) -> Harness {
    let config = toml::from_str(config).expect("options");
    Harness::new(firewall(config).expect("possible options"))
}

/// Sends segments in turn, `>` outbound and `<` inbound; all must pass. Returns how many wrote.
#[track_caller]
fn pass(harness: &mut Harness, segments: &[(char, u8)]) -> usize {
    let mut wrote = 0;
    for (way, tcp) in segments {
        let direction = if *way == '>' { Direction::Outbound } else { Direction::Inbound };
        let outcome = harness.run(direction, &segment(direction, *tcp));
        assert_eq!(outcome.reason(), None, "{way} {tcp:#x}");
        wrote += usize::from(outcome.wrote);
    }
    wrote
}

const HANDSHAKE: [(char, u8); 3] = [('>', SYN), ('<', SYN | ACK), ('>', ACK)];

#[test]
fn without_rules_the_inside_may_ask_and_the_outside_may_answer() {
    // Goal: the default policy. Method: the same datagram before and after the inside has asked, and ARP.
    let mut harness = harness("");
    let answer = back().udp(53, 5000, b"");
    assert_eq!(harness.inbound(&answer).reason(), Some("denied"));
    assert_eq!(harness.outbound(&out().udp(5000, 53, b"")).reason(), None);
    assert_eq!(harness.inbound(&answer).reason(), None);
    assert_eq!(harness.inbound(&back().vlan(5).udp(53, 5000, b"")).reason(), Some("denied"));
    let arp = FrameBuilder::new().ethernet_payload(0x0806, &[0; 28]);
    assert_eq!(harness.inbound(&arp).reason(), None);
    let hits = harness.state::<FirewallState>().hits.rows();
    assert_eq!(hits, [(0, 1), (NO_RULE, 2)]);
}

#[test]
fn established_packets_write_nothing() {
    // Goal: busy connections are read only. Method: a handshake and 100 segments, count the writes.
    let mut harness = harness("");
    assert_eq!(pass(&mut harness, &HANDSHAKE), 3);
    assert_eq!(pass(&mut harness, &[('>', ACK), ('<', ACK)].repeat(50)), 0);
    harness.wait(432_000 / 8 + 1);
    assert_eq!(pass(&mut harness, &[('<', ACK), ('<', ACK)]), 1);
}

#[test]
fn the_first_rule_that_matches_decides() {
    // Goal: order matters, and the default comes last. Method: a hole in a denied prefix, hits compared.
    let mut harness = harness(
        "default = 'allow'
         rules = [
             { action = 'allow', protocol = 'tcp', to = '192.0.2.1', to_ports = [80, 443] },
             { action = 'deny', to = '192.0.2.0/24' },
         ]",
    );
    assert_eq!(harness.outbound(&out().tcp(1, 443, SYN, b"")).reason(), None);
    assert_eq!(harness.outbound(&out().tcp(1, 22, SYN, b"")).reason(), Some("denied"));
    assert_eq!(harness.inbound(&back().tcp(1, 22, SYN, b"")).reason(), None);
    assert_eq!(harness.state::<FirewallState>().hits.rows(), [(0, 1), (1, 1), (NO_RULE, 1)]);
}

#[test]
fn a_close_passes_to_its_last_segment() {
    // Goal: case 11. Method: FIN, ACK, FIN, ACK, the last FIN again; gone after the closing timeout.
    let mut harness = harness("");
    pass(&mut harness, &HANDSHAKE);
    let close = [('>', FIN | ACK), ('<', ACK), ('<', FIN | ACK), ('>', ACK), ('<', FIN | ACK), ('>', ACK)];
    pass(&mut harness, &close);
    harness.wait(120);
    let late = segment(Direction::Inbound, ACK);
    assert_eq!(harness.inbound(&late).reason(), Some("denied"));
}

#[test]
fn a_closed_connection_opens_again_by_the_rules() {
    // Goal: ports are used again at once, by the allowed side only. Method: reset, then SYNs of both sides.
    let mut harness = harness("");
    pass(&mut harness, &HANDSHAKE);
    pass(&mut harness, &[('<', RST)]);
    assert_eq!(harness.inbound(&segment(Direction::Inbound, SYN)).reason(), Some("denied"));
    pass(&mut harness, &HANDSHAKE);
    let rows = harness.state::<FirewallState>().connections.rows();
    assert_eq!((rows.len(), rows[0].1.state), (1, ESTABLISHED));
}

#[test]
fn half_open_connections_go_soon() {
    // Goal: only a whole handshake gets the long timeout. Method: a SYN, its answer and more of it, then silence.
    let mut harness = harness("");
    pass(&mut harness, &HANDSHAKE[..2]);
    pass(&mut harness, &[('<', ACK)]);
    harness.wait(120);
    assert_eq!(harness.inbound(&segment(Direction::Inbound, ACK)).reason(), Some("denied"));
    harness.sweep();
    assert!(harness.state::<FirewallState>().connections.rows().is_empty());
}

#[test]
fn established_connections_live_for_their_timeout() {
    // Goal: case 19. Method: idle for 2 h 4 min, then beyond the timeout without midstream pickup.
    let mut harness = harness("timeouts = { tcp = 7440 }\nmidstream = 'drop'");
    pass(&mut harness, &HANDSHAKE);
    harness.wait(7_439);
    pass(&mut harness, &[('<', ACK)]);
    harness.wait(7_440);
    assert_eq!(harness.outbound(&segment(Direction::Outbound, ACK)).reason(), Some("no_connection"));
}

#[test]
fn a_connection_is_picked_up_midstream() {
    // Goal: a firewall may start on running traffic. Method: a data segment first, then both sides.
    let mut harness = harness("");
    pass(&mut harness, &[('>', ACK), ('<', ACK), ('>', ACK)]);
    assert_eq!(harness.state::<FirewallState>().connections.rows()[0].1.state, ESTABLISHED);
    assert_eq!(pass(&mut harness, &[('>', ACK), ('<', ACK)]), 0);
}

#[test]
fn unsound_packets_have_their_reasons() {
    // Goal: each check has its name, whatever the rules say. Method: one packet each, everything allowed.
    let mut harness = harness("default = 'allow'");
    let cases = [
        (FrameBuilder::ipv4(INSIDE, INSIDE).udp(1, 1, b""), "land"),
        (out().ttl(0).udp(1, 2, b""), "ttl_zero"),
        (FrameBuilder::ipv4([224, 0, 0, 1], OUTSIDE).udp(1, 2, b""), "multicast_source"),
        (FrameBuilder::ipv4([255; 4], OUTSIDE).udp(1, 2, b""), "multicast_source"),
        (FrameBuilder::ipv4([127, 0, 0, 1], OUTSIDE).udp(1, 2, b""), "loopback_on_wire"),
        (out().tcp(1, 2, SYN | FIN, b""), "bad_tcp_flags"),
        (out().tcp(1, 2, SYN | RST, b""), "bad_tcp_flags"),
        (out().tcp(1, 2, 0, b""), "bad_tcp_flags"),
        (out().tcp(1, 2, 0x29, b""), "bad_tcp_flags"),
        (out().fragment(1, 8, false).raw(17, &[0; 8]), "fragment_unsupported"),
        (out().icmp_echo_reply(1, 1, b""), "unsolicited_reply"),
    ];
    for (frame, reason) in cases {
        let outcome = harness.outbound(&frame);
        assert_eq!((outcome.reason(), outcome.wrote), (Some(reason), false));
    }
}

#[test]
fn errors_pass_iff_they_quote_a_live_connection() {
    // Goal: RELATED in the right direction only. Method: errors about a live and a dead flow, and to a third host.
    let mut harness = harness("");
    let sent = out().udp(5000, 53, b"");
    harness.outbound(&sent);
    let error = |to: [u8; 4], quoted: &[u8]| {
        FrameBuilder::ipv4([203, 0, 113, 1], to).icmp(3, 1, [0; 4], &quoted[14..])
    };
    assert_eq!(harness.inbound(&error(INSIDE, &sent)).reason(), None);
    let others =
        [error(INSIDE, &out().udp(5001, 53, b"")), error([192, 168, 0, 2], &sent), error(OUTSIDE, &sent)];
    for frame in others {
        assert_eq!(harness.inbound(&frame).reason(), Some("unrelated_icmp_error"));
    }
    assert_eq!(harness.inbound(&error(INSIDE, &sent[..41])).reason(), Some("truncated_icmp_quote"));
}

#[test]
fn ipv6_connections_and_neighbours_pass() {
    // Goal: IPv6 works as IPv4 does, and its neighbour discovery as ARP. Method: echo both ways, a solicitation.
    let mut harness = harness("");
    let (inside, outside) = ([1; 16], [2; 16]);
    let reply = FrameBuilder::ipv6(outside, inside).icmp_echo_reply(7, 1, b"");
    assert_eq!(harness.inbound(&reply).reason(), Some("unsolicited_reply"));
    harness.outbound(&FrameBuilder::ipv6(inside, outside).icmp_echo_request(7, 1, b""));
    assert_eq!(harness.inbound(&reply).reason(), None);
    let solicit = |ttl| FrameBuilder::ipv6(outside, inside).ttl(ttl).icmp(135, 0, [0; 4], &inside);
    assert_eq!(harness.inbound(&solicit(255)).reason(), None);
    assert_eq!(harness.inbound(&solicit(254)).reason(), Some("denied"));
}

#[test]
fn a_full_table_refuses_new_connections_only() {
    // Goal: what is open stays open. Method: room for one connection, a second one, then the first again.
    let mut harness = harness("connections = 1");
    harness.outbound(&out().udp(1, 53, b""));
    assert_eq!(harness.outbound(&out().udp(2, 53, b"")).reason(), Some("table_full"));
    assert_eq!(harness.inbound(&back().udp(53, 1, b"")).reason(), None);
    harness.wait(120);
    assert_eq!(harness.outbound(&out().udp(2, 53, b"")).reason(), None);
}

#[test]
fn options_are_read() {
    // Goal: chain files set what they say, and mistakes are named. Method: build from options.
    let config: FirewallConfig = toml::from_str("timeouts = { udp = 60 }").unwrap();
    assert_eq!((config.timeouts.udp, config.timeouts.tcp), (Seconds::new(60), Seconds::new(432_000)));
    assert!(KIND.build(&[]).is_ok());
    let error = KIND.build(&[("default", "reject".into())]).unwrap_err();
    assert_eq!(error.key.as_deref(), Some("default"));
    assert_eq!(error.message, "it takes `allow` or `deny`, and this is `reject`");
    for (rules, key, words) in [
        (
            "[{ action = 'allow' }, { action = 'deny', to_ports = true }]",
            "rules[1].to_ports",
            "a list of values",
        ),
        ("[{ action = 'deny', to_ports = [80, 70000] }]", "rules[0].to_ports[1]", "from 0 to 65535"),
        (
            "[{ action = 'deny', vlan = -1 }]",
            "rules[0].vlan",
            "a whole number from 0 to 65535, and this is -1",
        ),
        ("[{ action = 'deny', protocol = 'gre' }]", "rules[0].protocol", "tcp, udp"),
        ("[{ action = 'deny', from = '10.0.0.1/8' }]", "rules[0].from", "10.0.0.0/8"),
        ("[{ action = 'deny', ports = 80 }]", "rules[0].ports", "`to_ports`"),
        ("[{ direction = 'inbound' }]", "rules[0].action", "missing"),
        ("'allow'", "rules", "a list"),
        ("['allow']", "rules[0]", "a table"),
    ] {
        let table: toml::Table = toml::from_str(&format!("rules = {rules}")).unwrap();
        let error = KIND.build(&[("rules", table["rules"].clone())]).unwrap_err();
        assert_eq!(error.key.as_deref(), Some(key), "{error}");
        assert!(error.message.contains(words), "{error}");
    }
    let zero = toml::Table::from_iter([("udp".to_owned(), 0.into())]);
    let error = KIND.build(&[("timeouts", zero.into())]).unwrap_err();
    assert!(error.key.as_deref() == Some("timeouts.udp") && error.message.contains("seconds, 1 or more"));
}

proptest! {
    #[test]
    fn any_bytes_are_endured(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        // Goal: no panic, and no trace of what is malformed. Method: random bytes, also behind IP Ethertypes.
        let mut harness = harness("default = 'allow'");
        harness.endure(&bytes);
        harness.endure(&FrameBuilder::new().ethernet_payload(0x0800, &bytes));
        harness.endure(&out().icmp(3, 3, [0; 4], &bytes));
        harness.endure(&out().raw(6, &bytes));
    }

    #[test]
    fn units_do_not_show(steps in prop::collection::vec((any::<bool>(), 0..4_u16, 0..6_usize, 0..40_u64), 0..60)) {
        // Goal: how transactions are committed together changes nothing. Method: units of 1 and of 5, all compared.
        let run = |unit_frames| {
            let mut harness = harness("connections = 64");
            harness.unit_frames = unit_frames;
            let reasons: Vec<_> = steps
                .iter()
                .map(|(is_outbound, port, tcp, seconds)| {
                    let tcp = [SYN, SYN | ACK, ACK, ACK, FIN | ACK, RST][*tcp];
                    harness.wait(*seconds);
                    match is_outbound {
                        true => harness.outbound(&out().tcp(*port, 80, tcp, b"")).reason(),
                        false => harness.inbound(&back().tcp(80, *port, tcp, b"")).reason(),
                    }
                })
                .collect();
            harness.commit();
            (reasons, harness.digest())
        };
        prop_assert_eq!(run(1), run(5));
    }
}
