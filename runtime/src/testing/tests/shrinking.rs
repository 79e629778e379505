//! Failures shrink to what a person can look at.

use super::{minimal, tcp};
use crate::Direction;
use crate::testing::{
    Network, Trace, TraceFrame, Traffic, any_frame, broken_frame, odd_frame, tcp_conversation, trace,
    valid_frame,
};
use crate::wire::tcp::flags;
use crate::wire::{FrameBuilder, L3, Layers};

const SEEDS: core::ops::Range<u8> = 0..20;
/// Tries that a failure may take to become small; proptest gives up after 1024 by default.
const PATIENCE: usize = 400;

fn has(trace: &Trace, is_it: impl Fn(&TraceFrame) -> bool) -> bool {
    trace.0.iter().any(is_it)
}

fn is_fin(frame: &TraceFrame) -> bool {
    tcp(&frame.bytes).is_some_and(|(header, _)| header.has(flags::FIN))
}

#[test]
fn a_frame_to_port_80_shrinks_to_itself() {
    // Goal: nothing but the culprit is left, and nothing on it. Method: traces without inbound frames to port 80.
    let is_culprit = |frame: &TraceFrame| {
        frame.direction == Direction::Inbound
            && frame.flow().is_some_and(|flow| flow.destination_port() == 80)
    };
    for seed in SEEDS {
        let (trace, tried) = minimal(&trace(&Traffic::default()), seed, |trace| has(trace, is_culprit));
        assert_eq!(trace.len(), 1, "seed {seed}: {trace:#?}");
        assert!(trace.0[0].bytes.len() <= 62, "seed {seed}: {trace:#?}");
        assert!(tried <= PATIENCE, "seed {seed}: {tried} traces");
    }
}

#[test]
fn a_fin_shrinks_to_itself_or_to_one_short_connection() {
    // Goal: both ways to shrink come to their end. Method: traces without FIN, with gaps and without.
    for seed in SEEDS {
        let (found, tried) = minimal(&trace(&Traffic::default()), seed, |trace| has(trace, is_fin));
        assert!(found.len() == 1 && tried <= PATIENCE, "seed {seed}: {tried} traces, {found:#?}");
        let whole = Traffic { gaps: false, ..Traffic::default() };
        let (found, tried) = minimal(&trace(&whole), seed, |trace| has(trace, is_fin));
        assert!(found.len() <= 7 && tried <= PATIENCE, "seed {seed}: {tried} traces, {found:#?}");
        let begin = Traffic::default().begin;
        assert!(
            found.0.iter().zip(begin..).all(|(frame, time)| frame.time == time),
            "seed {seed}: {found:#?}"
        );
    }
}

#[test]
fn a_handshake_and_its_data_stay_together() {
    // Goal: what belongs together is kept, the rest goes. Method: fail on a SYN, and data later, of one flow.
    let is_bad = |trace: &Trace| {
        trace.0.iter().enumerate().any(|(at, syn)| {
            let flow = syn.flow();
            let is_syn = tcp(&syn.bytes).is_some_and(|(header, _)| header.flags == flags::SYN);
            is_syn && trace.0[at..].iter().any(|frame| frame.flow() == flow && holds_data(frame))
        })
    };
    for seed in SEEDS {
        let (found, tried) = minimal(&trace(&Traffic::default()), seed, is_bad);
        assert!(found.len() == 2 && tried <= PATIENCE, "seed {seed}: {tried} traces, {found:#?}");
        assert_eq!(found.0[1].bytes.len(), 14 + 20 + 20 + 1, "seed {seed}: {found:#?}");
    }
}

fn holds_data(frame: &TraceFrame) -> bool {
    tcp(&frame.bytes).is_some_and(|(_, data)| !data.is_empty())
}

#[test]
fn as_many_frames_as_it_takes_are_left() {
    // Goal: no frame too many, no time between. Method: traces of fewer than ten frames.
    for seed in SEEDS {
        let (found, tried) = minimal(&trace(&Traffic::default()), seed, |trace| trace.len() >= 10);
        assert!(found.len() == 10 && tried <= PATIENCE, "seed {seed}: {tried} traces, {found:#?}");
        let longest = found.0.iter().map(|frame| frame.bytes.len()).max();
        assert!(longest <= Some(80), "seed {seed}: {found:#?}");
    }
}

#[test]
fn frames_shrink_to_the_plainest() {
    // Goal: each strategy has its floor, and a bound is met exactly. Method: fail on all, and on a long payload.
    let plainest = FrameBuilder::ipv4([10, 0, 0, 1], [198, 18, 0, 1]).udp(1_024, 1, b"");
    for seed in SEEDS {
        let (frame, _) = minimal(&valid_frame(), seed, |_| true);
        assert_eq!(frame[14..], plainest[14..], "seed {seed}");
        assert_eq!(minimal(&any_frame(), seed, |_| true).0[14..], plainest[14..], "seed {seed}");
        assert_eq!(minimal(&odd_frame(), seed, |_| true).0.len(), 42, "seed {seed}");
        assert_eq!(minimal(&broken_frame(), seed, |_| true).0.len(), 0, "seed {seed}");
        assert_eq!(minimal(&valid_frame(), seed, |frame| frame.len() >= 200).0.len(), 200, "seed {seed}");
        let is_ipv6 = |frame: &Vec<u8>| Layers::parse(frame).is_ok_and(|layers| layers.l3() == L3::Ipv6);
        assert_eq!(minimal(&valid_frame(), seed, is_ipv6).0.len(), 14 + 40 + 8, "seed {seed}");
        let connection = minimal(&tcp_conversation(&Network::default()), seed, |_| true).0;
        assert_eq!(connection.len(), 3, "seed {seed}");
    }
}

#[test]
fn shrinking_never_leaves_the_settings() {
    // Goal: no counterexample that its strategy does not make. Method: shrink with shares of 1, and whole traffic.
    let network = Network { ipv6: 1.0, tagged: 1.0, from_outside: 1.0, ..Network::default() };
    let traffic = Traffic {
        network,
        odd: 0.0,
        broken: 0.0,
        gaps: false,
        conversations: 2..=5,
        begin: 7,
        ..Traffic::default()
    };
    for seed in SEEDS {
        let (found, _) = minimal(&trace(&traffic), seed, |trace| trace.len() >= 2);
        assert_eq!(found.len(), 2, "seed {seed}: {found:#?}");
        for (frame, time) in found.0.iter().zip(7..) {
            let flow = frame.flow().expect("conversations are IP");
            assert_eq!((flow.is_ipv4(), flow.vlan_count()), (false, 1), "seed {seed}: {found:#?}");
            assert_eq!((frame.direction, frame.time), (Direction::Inbound, time), "seed {seed}: {found:#?}");
        }
    }
}

#[test]
fn many_failures_shrink_in_few_tries() {
    // Goal: predicates of all kinds end small and soon. Method: several over each seed, with the sizes they need.
    type Predicate = (&'static str, fn(&Trace) -> bool, usize);
    let predicates: [Predicate; 5] = [
        ("two flows", |trace| flows(trace) >= 2, 2),
        ("a long payload", |trace| has(trace, |frame| frame.bytes.len() >= 500), 1),
        ("a pause", |trace| trace.0.windows(2).any(|two| two[1].time - two[0].time > 60_000_000_000), 2),
        ("a damaged frame", |trace| has(trace, |frame| Layers::parse(&frame.bytes).is_err()), 1),
        ("a repeated frame", |trace| trace.0.windows(2).any(|two| two[0].bytes == two[1].bytes), 2),
    ];
    for (name, is_bad, frames) in predicates {
        for seed in SEEDS {
            let (found, tried) = minimal(&trace(&Traffic::default()), seed, is_bad);
            assert_eq!(found.len(), frames, "{name}, seed {seed}: {found:#?}");
            assert!(tried <= PATIENCE, "{name}, seed {seed}: {tried} traces");
        }
    }
}

fn flows(trace: &Trace) -> usize {
    let flows = trace.0.iter().filter_map(TraceFrame::flow).map(|flow| flow.min(flow.reverse()));
    flows.collect::<std::collections::BTreeSet<_>>().len()
}
