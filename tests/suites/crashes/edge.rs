//! The example chain: what was released can be found in the tables of firewall, monitor and NAT.

use std::collections::HashMap;

use pannier_chains::Chain;
use pannier_nf::firewall::NO_RULE;
use pannier_nf::{FirewallState, MonitorState, NatState};
use pannier_runtime::clock::Nanos;
use pannier_runtime::state::State;
use pannier_runtime::wire::tcp::{TcpHeader, flags};
use pannier_runtime::wire::{Endpoint, Flow, Layers, Malformed, protocol};
use pannier_runtime::{Direction, Packet};
use pannier_tests::edge;

use super::{BURST, Case, STAGES, TRACE, for_every_index, play};

const FIREWALL: usize = 0;
const MONITOR: usize = 1;
const NAT: usize = 2;

#[test]
fn no_crash_undoes_what_left_the_edge_chain() {
    // Goal: the effects of every released packet are in the final state. Method: crashes of each node and of each two
    // neighbours at every packet of the example capture's beginning; each released packet is looked up in all tables.
    let mut trace = edge::packets(&edge::spec(&[]));
    trace.truncate(TRACE);
    let sent: HashMap<Nanos, Flow> =
        trace.iter().filter_map(|p| Some((p.meta.time, Flow::parse(p.frame()).ok()?))).collect();
    let specs = [1, 2].map(|f| edge::spec(&[&format!("f={f}"), &format!("burst={BURST}")]));
    for_every_index(TRACE, |case| {
        let mut chain = edge::chain(&specs[case.nodes.len() - 1]);
        let left = play(&mut chain, &trace, case, Left::note);
        check_effects(&chain, &sent, &left).unwrap_or_else(|broken| panic!("{case:?}: {broken}"));
    });
}

/// A packet that left the chain.
struct Left {
    /// When it had entered: that names it.
    time: Nanos,
    direction: Direction,
    flow: Result<Flow, Malformed>,
    is_reset: bool,
}

impl Left {
    fn note(packet: &Packet) -> Self {
        let (time, direction) = (packet.meta.time, packet.meta.direction);
        Left { time, direction, flow: Flow::parse(packet.frame()), is_reset: is_reset(packet.frame()) }
    }
}

/// Released packets of a flow.
#[derive(Default)]
struct Seen {
    all: u64,
    /// Those that leave a connection behind: where all before were lost, a reset is forwarded and forgotten.
    lasting: u64,
}

fn is_reset(frame: &[u8]) -> bool {
    let header = Layers::parse(frame).ok().filter(|layers| layers.protocol() == Some(protocol::TCP));
    let header = header.and_then(|layers| TcpHeader::view(frame, layers.l4_offset()?).ok());
    header.is_some_and(|header| header.flags & flags::RST != 0)
}

fn state<S: State>(chain: &Chain, stage: usize) -> &S {
    let store = chain.node(stage).and_then(|node| node.store(stage));
    store.and_then(|store| store.state.downcast()).expect("a chain at rest has all its state")
}

/// Looks for what each released packet did, in the tables of the heads. (The replicas' digests are the same.)
fn check_effects(chain: &Chain, sent: &HashMap<Nanos, Flow>, released: &[Left]) -> Result<(), String> {
    let nat: &NatState = state(chain, NAT);
    let mut seen = HashMap::<Flow, Seen>::new();
    let mut owners = HashMap::<Endpoint, Endpoint>::new();
    for packet in released {
        let Some(entered) = sent.get(&packet.time) else { continue }; // no IP: ARP passes untouched
        let left = packet.flow.map_err(|wrong| format!("{entered} left as {wrong}"))?;
        let (private, inside, outside) = match packet.direction {
            Direction::Outbound => (*entered, entered.source_endpoint(), left.source_endpoint()),
            Direction::Inbound => (left, left.destination_endpoint(), entered.destination_endpoint()),
        };
        let (inside, outside) = inside.zip(outside).ok_or_else(|| format!("{entered} is not IPv4"))?;
        if *owners.entry(outside).or_insert(inside) != inside {
            return Err(format!("{outside} was shown for {inside} and for {}", owners[&outside]));
        }
        let seen = seen.entry(private).or_default();
        seen.all += 1;
        seen.lasting += u64::from(!packet.is_reset);
    }
    for (outside, inside) in &owners {
        let rows = (nat.by_outside.inspect(outside), nat.by_inside.inspect(inside));
        if rows != (Some(*inside), Some(*outside)) {
            return Err(format!("the NAT forgot that {inside} is {outside}: {rows:?}"));
        }
    }
    check_counters(state(chain, MONITOR), &seen, released.len() as u64)?;
    check_connections(state(chain, FIREWALL), &seen)
}

/// The monitor has counted at least what was released; more passed it and was dropped or lost behind it.
fn check_counters(monitor: &MonitorState, seen: &HashMap<Flow, Seen>, released: u64) -> Result<(), String> {
    for (flow, Seen { all: count, .. }) in seen {
        let key = (*flow).min(flow.reverse());
        let row = monitor.flows.inspect(&key).unwrap_or_default();
        let counted = if *flow == key { row.sent } else { row.received };
        if counted.packets < *count {
            return Err(format!("{count} packets of {flow} were released, the monitor counts {counted:?}"));
        }
    }
    let totals = monitor.totals.inspect(&0).unwrap_or_default();
    let flows =
        monitor.flows.rows().iter().map(|(_, row)| row.sent.packets + row.received.packets).sum::<u64>();
    if totals.all.packets < released || totals.all.packets != flows + totals.non_ip {
        return Err(format!("{released} packets were released, {flows} counted by flow: {totals:?}"));
    }
    Ok(())
}

/// The firewall knows the connection of each flow. All of them began with a packet that a rule allowed.
fn check_connections(firewall: &FirewallState, seen: &HashMap<Flow, Seen>) -> Result<(), String> {
    let mut opened = 0;
    for (flow, _) in seen.iter().filter(|(_, seen)| seen.lasting > 0) {
        let key = (*flow).min(flow.reverse());
        if firewall.connections.inspect(&key).is_none() {
            return Err(format!("packets of {flow} were released, the firewall knows no connection"));
        }
        opened += u64::from(!seen.contains_key(&flow.reverse()) || *flow == key);
    }
    let hits: u64 =
        firewall.hits.rows().iter().filter(|(rule, _)| *rule != NO_RULE).map(|(_, hits)| hits).sum();
    if hits < opened {
        return Err(format!(
            "the rules decided {hits} packets, and {opened} connections had packets released"
        ));
    }
    Ok(())
}

#[test]
fn the_check_finds_a_state_that_forgot() {
    // Goal: the check can fail. Method: what one run released, held against the state of a run that had less.
    let spec = edge::spec(&["f=1"]);
    let trace = edge::packets(&spec);
    let sent = trace.iter().filter_map(|p| Some((p.meta.time, Flow::parse(p.frame()).ok()?))).collect();
    let case = Case { nodes: &[1], at: TRACE / 2, every: TRACE };
    let (mut whole, mut half) = (edge::chain(&spec), edge::chain(&spec));
    let left = play(&mut whole, &trace[..TRACE], case, Left::note);
    half.turn();
    for packet in &trace[..TRACE - 100] {
        half.admit(packet.clone());
        half.turn();
    }
    assert!(half.drain() && whole.plan().stages() == STAGES);
    assert_eq!(check_effects(&whole, &sent, &left), Ok(()));
    assert!(check_effects(&half, &sent, &left).is_err());
}
