//! Traces keep their times apart, hold what was asked for, and come the same from the same seed.

use std::time::Instant;

use proptest::prelude::*;

use super::{tcp, values};
use crate::clock::SECOND;
use crate::port::pcap::Reader;
use crate::testing::{Network, Trace, TraceFrame, Traffic, fault_plan, trace};
use crate::wire::tcp::flags;
use crate::wire::verify::{L4Checksum, l4_checksum};
use crate::wire::{Layers, symmetric_hash};
use crate::{Direction, Packet};

/// A file that goes when the test ends, passed or failed.
struct Scratch(std::path::PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The interface's name, the time and the bytes of each frame in a capture.
fn captured(path: &std::path::Path) -> Vec<(Option<String>, u64, Vec<u8>)> {
    let mut reader = Reader::open(path).unwrap();
    let (mut frames, mut bytes) = (Vec::new(), Vec::new());
    while let Some(captured) = reader.next(&mut bytes).unwrap() {
        let name = reader.interfaces()[captured.interface as usize].name.clone();
        frames.push((name, captured.time, bytes.clone()));
    }
    frames
}

fn is_sound(frame: &TraceFrame) -> bool {
    Layers::parse(&frame.bytes).is_ok_and(|layers| l4_checksum(&frame.bytes, &layers) != L4Checksum::Wrong)
}

proptest! {
    #[test]
    fn a_time_names_a_frame(trace in trace(&Traffic::default())) {
        // Goal: times strictly increase from the begin on. Method: compare neighbours.
        prop_assert!(trace.0.is_sorted_by(|a, b| a.time < b.time));
        prop_assert!(trace.0.first().is_none_or(|frame| frame.time >= Traffic::default().begin));
    }

    #[test]
    fn packets_are_what_the_entrance_would_make_of_the_frames(trace in trace(&Traffic::default())) {
        // Goal: NFs get what a chain would give them. Method: compare bytes and meta of each packet with its frame.
        let packets = trace.packets();
        prop_assert_eq!((packets.len(), trace.is_empty()), (trace.len(), packets.is_empty()));
        for (frame, packet) in trace.0.iter().zip(&packets) {
            prop_assert_eq!(packet.frame(), &frame.bytes[..]);
            prop_assert_eq!((packet.meta.direction, packet.meta.time), (frame.direction, frame.time));
            let flow = frame.flow().map_or(0, |flow| symmetric_hash(&flow.reverse()));
            prop_assert_eq!(packet.meta, crate::packet::Meta { flow, ..with_time(packet) });
        }
    }

    #[test]
    fn without_strays_and_gaps_a_trace_is_its_conversations(
        trace in trace(&Traffic { odd: 0.0, broken: 0.0, gaps: false, conversations: 2..=3, ..Traffic::default() }),
    ) {
        // Goal: settings of zero are exact. Method: all frames are sound and IP; there are as many as openings at least.
        prop_assert!(trace.len() >= 2);
        for frame in &trace.0 {
            prop_assert!(is_sound(frame));
            prop_assert!(frame.flow().is_some());
        }
    }

    #[test]
    fn merging_keeps_all_frames_and_their_order(times in prop::collection::vec(prop::collection::vec(0..9_u64, 0..9), 0..4)) {
        // Goal: nothing is lost, no time is used twice, order holds. Method: merge traces of named frames.
        let mut number = 0_u8;
        let mut named = |time: u64| {
            number += 1;
            TraceFrame { time, direction: Direction::Outbound, bytes: vec![number] }
        };
        let traces: Vec<Trace> = times.into_iter().map(|mut times| {
            times.sort_unstable();
            Trace(times.into_iter().map(&mut named).collect())
        }).collect();
        let merged = Trace::merge(traces.clone());
        prop_assert!(merged.0.is_sorted_by(|a, b| a.time < b.time));
        for trace in &traces {
            let names: Vec<&Vec<u8>> = trace.0.iter().map(|frame| &frame.bytes).collect();
            let found = merged.0.iter().map(|frame| &frame.bytes).filter(|name| names.contains(name));
            prop_assert!(found.eq(names.iter().copied()));
        }
        prop_assert_eq!(merged.len(), traces.iter().map(Trace::len).sum::<usize>());
    }
}

fn with_time(packet: &Packet) -> crate::packet::Meta {
    crate::packet::Meta { time: packet.meta.time, direction: packet.meta.direction, ..Default::default() }
}

#[test]
fn the_same_seed_gives_the_same_traces() {
    // Goal: a failure can be repeated. Method: generate from one seed twice, and from another.
    let strategy = trace(&Traffic::default());
    let first = values(&strategy, 7, 20);
    assert_eq!(first, values(&trace(&Traffic::default()), 7, 20));
    assert_ne!(first, values(&strategy, 8, 20));
    let plans = fault_plan(4, 2, 100);
    assert_eq!(values(&plans, 7, 20), values(&plans, 7, 20));
}

#[test]
fn only_gaps_make_connections_begin_in_the_middle() {
    // Goal: conversations are whole unless asked for. Method: the first frame of single conversations, both ways.
    let begins_late = |gaps: bool| {
        let one = Traffic { conversations: 1..=1, odd: 0.0, broken: 0.0, gaps, ..Traffic::default() };
        let traces = values(&trace(&one), 1, 300);
        let first = |trace: &Trace| trace.0.first().and_then(|frame| tcp(&frame.bytes));
        traces.iter().filter_map(first).filter(|(header, _)| !header.has(flags::SYN)).count()
    };
    assert_eq!(begins_late(false), 0);
    assert!(begins_late(true) > 0);
}

#[test]
fn shares_are_kept_on_average() {
    // Goal: odd and broken frames come as often as asked for. Method: count unsound frames among many.
    let network = Network { tagged: 0.0, ..Network::default() };
    let traffic = Traffic { network, odd: 0.0, broken: 0.2, conversations: 4..=8, ..Traffic::default() };
    let frames: Vec<TraceFrame> =
        values(&trace(&traffic), 1, 300).into_iter().flat_map(|trace| trace.0).collect();
    let unsound = frames.iter().filter(|frame| !is_sound(frame)).count() as f64 / frames.len() as f64;
    // Some broken frames are sound to the parser: a bit in an address, noise that is no IP.
    assert!((0.10..0.25).contains(&unsound), "{unsound}");
    let sound = Traffic { broken: 0.0, odd: 0.3, ..traffic };
    assert!(values(&trace(&sound), 1, 50).iter().all(|trace| trace.0.iter().all(is_sound)));
}

#[test]
fn a_capture_keeps_times_bytes_and_directions() {
    // Goal: a failing trace can be run by the command line. Method: write traces, read them back.
    let path = std::env::temp_dir().join(format!("pannier-trace-{}.pcapng", std::process::id()));
    let scratch = Scratch(path);
    for trace in values(&trace(&Traffic::default()), 5, 10) {
        trace.write_pcapng(&scratch.0).unwrap();
        let expected = trace.0.iter().map(|frame| {
            let side = if frame.direction == Direction::Outbound { "inside" } else { "outside" };
            (Some(side.to_owned()), frame.time, frame.bytes.clone())
        });
        assert_eq!(captured(&scratch.0), expected.collect::<Vec<_>>());
    }
    assert!(Trace::default().write_pcapng(scratch.0.join("below")).is_err());
}

#[test]
fn a_trace_takes_no_time_worth_mentioning() {
    // Goal: generators are not what tests wait for. Method: 300 traces within a bound that only a blunder exceeds.
    let start = Instant::now();
    let frames: usize = values(&trace(&Traffic::default()), 2, 300).iter().map(Trace::len).sum();
    let taken = start.elapsed();
    assert!(frames > 3_000 && taken.as_secs() < 10, "{frames} frames in {taken:?}");
}

#[test]
fn a_frame_is_shown_for_people() {
    // Goal: a counterexample can be read. Method: the text of a datagram and of an empty frame.
    let bytes = crate::wire::FrameBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1]).udp(1_024, 53, b"?");
    let frame = TraceFrame { time: 2 * SECOND + 3, direction: Direction::Outbound, bytes };
    let text = format!("{frame:?}");
    assert!(
        text.starts_with("2.000000003 outbound, udp 10.0.0.1:1024 -> 192.0.2.1:53, 43 bytes 0200"),
        "{text}"
    );
    assert!(text.ends_with("3f"), "{text}");
    let empty = TraceFrame { time: 0, direction: Direction::Inbound, bytes: Vec::new() };
    assert!(empty.to_string().starts_with("0.000000000 inbound, "), "{empty}");
}
