//! Tests of the monitor.

use proptest::prelude::*;

use super::*;
use crate::harness::Harness;
use pannier_runtime::wire::FrameBuilder;

fn udp(from: u8, to: u8, payload: &[u8]) -> Vec<u8> {
    FrameBuilder::ipv4([10, 0, 0, from], [10, 0, 0, to]).udp(from.into(), to.into(), payload)
}

fn totals(harness: &Harness) -> Totals {
    harness.state::<MonitorState>().totals.inspect(&ALL).unwrap_or_default()
}

#[test]
fn both_directions_count_to_one_row() {
    // Goal: a row per flow, a counter per direction. Method: two packets there, one back, compare the row.
    let mut harness = Harness::new(monitor(MonitorConfig::default()));
    harness.outbound(&udp(1, 2, b"12"));
    harness.inbound(&udp(2, 1, b"1234"));
    harness.outbound(&udp(1, 2, b""));
    let rows = harness.state::<MonitorState>().flows.rows();
    let row = FlowCounters {
        sent: Counter { packets: 2, bytes: 2 * 28 + 2 },
        received: Counter { packets: 1, bytes: 28 + 4 },
    };
    assert_eq!(rows, [(Flow::parse(&udp(1, 2, b"")).unwrap(), row)]);
    assert_eq!(totals(&harness).all, Counter { packets: 3, bytes: 3 * 28 + 6 });
}

#[test]
fn padding_and_tags_are_no_bytes() {
    // Goal: bytes are the IP header's (case 3). Method: a tagged ACK padded with 0xAA, and ARP.
    let mut harness = Harness::new(monitor(MonitorConfig::default()));
    let mut frame = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).vlan(5).tcp(1, 2, 0x10, b"");
    frame.resize(64, 0xAA);
    harness.outbound(&frame);
    harness.outbound(&FrameBuilder::new().ethernet_payload(0x0806, &[0; 46]));
    let expected = Totals { all: Counter { packets: 2, bytes: 40 }, non_ip: 1, ..Totals::default() };
    assert_eq!(totals(&harness), expected);
}

#[test]
fn a_full_table_drops_nothing() {
    // Goal: a monitor never drops for lack of room. Method: room for one flow, three of them.
    let mut harness = Harness::new(monitor(MonitorConfig { flows: 1, ..MonitorConfig::default() }));
    for (from, to) in [(1, 2), (1, 3), (2, 1), (4, 1)] {
        assert_eq!(harness.outbound(&udp(from, to, b"")).reason(), None);
    }
    assert_eq!(harness.state::<MonitorState>().flows.rows()[0].1.received.packets, 1);
    let expected = Totals {
        all: Counter { packets: 4, bytes: 4 * 28 },
        untracked: Counter { packets: 2, bytes: 2 * 28 },
        non_ip: 0,
    };
    assert_eq!(totals(&harness), expected);
}

#[test]
fn idle_flows_make_room() {
    // Goal: expired rows are usable at once. Method: room for one flow, another one after the timeout.
    let idle = Some(Seconds::new(10));
    let mut harness = Harness::new(monitor(MonitorConfig { flows: 1, idle, ..MonitorConfig::default() }));
    harness.outbound(&udp(1, 2, b""));
    harness.wait(10);
    harness.outbound(&udp(3, 4, b""));
    assert_eq!(
        (harness.state::<MonitorState>().flows.rows().len(), totals(&harness).untracked.packets),
        (1, 0)
    );
    harness.wait(10);
    harness.sweep();
    assert_eq!(harness.state::<MonitorState>().flows.rows(), []);
}

#[test]
fn options_are_read() {
    // Goal: chain files set what they say. Method: build from options, one of them wrong.
    assert!(KIND.build(&[("flows", 10.into()), ("idle", 60.into())]).is_ok());
    assert_eq!(KIND.build(&[("idle", 0.into())]).unwrap_err().key.as_deref(), Some("idle"));
}

proptest! {
    #[test]
    fn any_bytes_are_endured(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        // Goal: no panic, and no trace of what is malformed. Method: random bytes, also behind an IPv4 Ethertype.
        let mut harness = Harness::new(monitor(MonitorConfig::default()));
        harness.endure(&bytes);
        harness.endure(&FrameBuilder::new().ethernet_payload(0x0800, &bytes));
    }

    #[test]
    fn units_do_not_show(packets in prop::collection::vec((1..4_u8, 1..4_u8, 0..9_usize), 0..40)) {
        // Goal: how transactions are committed together changes nothing. Method: units of 1 and of 7, same digest.
        let digest = |unit_frames| {
            let mut harness = Harness::new(monitor(MonitorConfig { flows: 3, ..MonitorConfig::default() }));
            harness.unit_frames = unit_frames;
            for (from, to, len) in &packets {
                harness.outbound(&udp(*from, *to, &vec![0; *len]));
            }
            harness.commit();
            (harness.digest(), totals(&harness).all.packets)
        };
        prop_assert_eq!(digest(1), digest(7));
        prop_assert_eq!(digest(1).1, packets.len() as u64);
    }
}
