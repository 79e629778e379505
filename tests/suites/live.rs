//! Chains on threads: what the simulator checks of nodes is asked here of shards, rings and workers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pannier_chains::ChainStage;
use pannier_chains::live::{Live, LiveOptions, LiveOutcome, Sides};
use pannier_nf::monitor;
use pannier_nf::monitor::MonitorConfig;
use pannier_runtime::entropy::Entropy;
use pannier_runtime::limits::MAX_LANES;
use pannier_runtime::packet::{Packet, Pool};
use pannier_runtime::port::{Duplex, Faults, Port, PortContext, memory_device};
use pannier_runtime::ring::Plan;
use pannier_runtime::shard::{Idle, tell_panics_briefly};
use pannier_runtime::wire::FrameBuilder;
use pannier_runtime::{AnyNf, Direction, Frame, Nf, Txn, TxnResult, Verdict, nf, state};
use std::sync::Arc;

state! {
    /// Numbers that packets are given in their order.
    struct Tickets {
        /// The next, by counter.
        next: u8 => u64 [8],
        /// By flow: the last packet's number.
        last: u16 => u64 [4_096],
    }
}

/// Gives each packet the next number of one counter for all, and writes it over the packet's last bytes.
fn tickets() -> Arc<dyn AnyNf> {
    Arc::new(nf(|frame, state: &Tickets, txn| -> TxnResult<Verdict> {
        let ticket = txn.update(&state.next, 0, |next| next.unwrap_or(0) + 1)?;
        let port = u16::from_be_bytes([frame.bytes()[34], frame.bytes()[35]]);
        txn.put(&state.last, port, ticket)?;
        let end = frame.bytes().len();
        frame.bytes_mut()[end - 8..].copy_from_slice(&ticket.to_le_bytes());
        Ok(Verdict::Forward)
    }))
}

/// A live chain, and the ends of its ports.
struct Rig {
    live: Option<Live>,
    inside: Duplex,
    outside: Duplex,
    pool: Pool,
    sent: HashMap<u16, u64>,
    /// By flow: the sequence numbers that came out; and all tickets.
    seen: HashMap<u16, Vec<u64>>,
    tickets: Vec<u64>,
}

const FLOWS: u64 = 64;

/// More packets than any test sends: a thread may not run for long on a machine that does much else.
const QUEUE: usize = 32_768;

/// Longest wait for anything, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

impl Rig {
    fn new(plan: Plan, nfs: &[Arc<dyn AnyNf>], options: &LiveOptions) -> Self {
        tell_panics_briefly();
        let (inside_port, inside) = memory_device(QUEUE);
        let (outside_port, outside) = memory_device(QUEUE);
        let stage =
            |(at, nf): (usize, &Arc<dyn AnyNf>)| ChainStage { name: format!("s{at}"), nf: nf.clone() };
        let stages = nfs.iter().enumerate().map(stage).collect();
        let sides = Sides { inside: vec![inside_port], outside: vec![outside_port] };
        // A node that gets no turn for long on such a machine is not dead.
        let options = LiveOptions { patience: PATIENCE, ..options.clone() };
        let live = Live::start(plan, stages, sides, &options).expect("threads and a sound plan");
        let (pool, sent, seen) = (Pool::default(), HashMap::new(), HashMap::new());
        Rig { live: Some(live), inside, outside, pool, sent, seen, tickets: Vec::new() }
    }

    fn live(&mut self) -> &mut Live {
        self.live.as_mut().expect("it runs until the rig is finished")
    }

    /// Sends `count` packets of random flows, as fast as they are taken, and takes what comes out.
    fn send(&mut self, count: u64, random: &mut Entropy) {
        let mut burst = Vec::new();
        for _ in 0..count {
            let flow = 1_000 + random.below(FLOWS) as u16;
            burst.push(self.packet(flow));
            if burst.len() == 16 {
                let context = &mut PortContext { now: 0, pool: &mut self.pool };
                let Ok(()) = self.inside.tx_burst(context, &mut burst);
                self.take();
            }
        }
        let context = &mut PortContext { now: 0, pool: &mut self.pool };
        let Ok(()) = self.inside.tx_burst(context, &mut burst);
    }

    /// The next packet of a flow.
    fn packet(&mut self, flow: u16) -> Packet {
        let sequence = self.sent.entry(flow).or_default();
        *sequence += 1;
        let payload = [sequence.to_le_bytes(), [0; 8]].concat();
        Packet::new(&FrameBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1]).udp(flow, 53, &payload))
    }

    /// Sends one packet of a flow.
    fn send_one(&mut self, flow: u16) {
        let mut burst = vec![self.packet(flow)];
        let context = &mut PortContext { now: 0, pool: &mut self.pool };
        let Ok(()) = self.inside.tx_burst(context, &mut burst);
    }

    /// Takes what has come out, and says how much that was.
    fn take(&mut self) -> usize {
        let context = &mut PortContext { now: 0, pool: &mut self.pool };
        let mut burst = Vec::new();
        let Ok(_) = self.inside.rx_burst(1_024, context, &mut burst); // sends on what waits at this end, too
        let Ok(_) = self.outside.rx_burst(1_024, context, &mut burst);
        let came = burst.len();
        for packet in burst {
            assert_eq!(packet.meta.direction, Direction::Outbound);
            let frame = packet.frame();
            let number = |at: usize| u64::from_le_bytes(frame[at..at + 8].try_into().expect("eight bytes"));
            self.seen.entry(u16::from_be_bytes([frame[34], frame[35]])).or_default().push(number(42));
            self.tickets.push(number(50));
            self.pool.give(packet);
        }
        came
    }

    /// Looks after the chain until something holds.
    fn wait(&mut self, what: &str, holds: impl Fn(&Self, &Live) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            while self.take() > 0 {}
            let live = self.live.as_ref().expect("it runs until the rig is finished");
            if holds(self, live) {
                return;
            }
            assert!(Instant::now() < end, "{what}");
            self.live().watch(Duration::from_millis(1));
        }
    }

    /// Waits until the newest packet of each flow has come out, and with it all that will: a flow keeps its order. Where a
    /// node dies or a link loses frames, the newest may be among the lost.
    fn settle(&mut self) {
        self.wait("a packet does not come out", |rig, _| {
            rig.sent
                .iter()
                .all(|(flow, newest)| rig.seen.get(flow).and_then(|seen| seen.last()) == Some(newest))
        });
    }

    /// Waits until so many nodes have been replaced in all.
    fn await_recoveries(&mut self, count: usize) {
        self.wait("a node does not come back", |_, live| live.recoveries().len() >= count);
    }

    /// Waits until all packets have entered: what is under way then is little, and an end waits for it.
    fn await_entry(&mut self) {
        let sent: u64 = self.sent.values().sum();
        self.wait("a packet does not enter", |_, live| live.entered() >= sent);
    }

    /// Ends the chain, and checks order within flows, that no ticket is given twice, and the chain's own promises.
    fn finish(mut self) -> (LiveOutcome, usize) {
        self.await_entry();
        let outcome = self.live.take().expect("it is finished once").finish();
        while self.take() > 0 {} // what came out while the chain was drained
        for (flow, sequence) in &self.seen {
            assert!(sequence.windows(2).all(|pair| pair[0] < pair[1]), "flow {flow} left as {sequence:?}");
        }
        let came = self.tickets.len();
        self.tickets.sort_unstable();
        self.tickets.dedup();
        assert_eq!(self.tickets.len(), came, "a ticket was given twice");
        assert_eq!(outcome.broken, Vec::<String>::new(), "{:#?}", outcome.summary);
        (outcome, came)
    }
}

fn plan(stages: usize, f: usize, lanes: usize, unit: usize) -> Plan {
    let mut plan = Plan::new(stages, f).expect("small");
    (plan.lanes, plan.unit_frames) = (lanes, unit);
    plan
}

#[test]
fn shards_that_share_a_counter_lose_no_count_and_no_order() {
    // Goal: claims exclude each other on real threads. Method: one counter for all packets, on one to four shards that
    // run at once; every packet must come, in its flow's order, with a ticket of its own, up to the number of packets.
    for (shards, unit) in [(1, 1), (2, 1), (2, 32), (4, 8)] {
        let options = LiveOptions { shards, idle: Idle::YIELD, ..LiveOptions::default() };
        let mut rig = Rig::new(plan(2, 1, shards, unit), &[tickets(), tickets()], &options);
        rig.send(20_000, &mut Entropy::new(shards as u64));
        rig.settle();
        let (outcome, came) = rig.finish();
        let ports = &outcome.ports[0];
        assert_eq!(came as u64, ports.received, "{shards} shards, units of {unit}: {:#?}", outcome.summary);
        assert_eq!(outcome.summary.packets.lost, 0);
    }
}

/// The flow whose packets ask for the count.
const ASKS: u16 = 2_000;

state! {
    /// How many packets there were.
    struct Counts {
        /// In all.
        all: u8 => u64 [MAX_LANES] per_lane,
        /// Of those that also write here, the last.
        last: u8 => u64 [1],
    }
}

/// Counts each packet without a look at the count; some look at or write something else besides. Packets that ask take the
/// count along. Each leaves with a number that no other has.
fn counts() -> Arc<dyn AnyNf> {
    Arc::new(nf(|frame, state: &Counts, txn| -> TxnResult<Verdict> {
        let bytes = frame.bytes();
        let port = u16::from_be_bytes([bytes[34], bytes[35]]);
        let sequence = u64::from_le_bytes(bytes[42..50].try_into().expect("eight bytes"));
        let mut ticket = u64::from(port) << 32 | sequence;
        if port == ASKS {
            ticket = u64::MAX - txn.merged(&state.all, &0)?.unwrap_or(0);
        } else {
            if sequence % 8 == 1 {
                txn.get(&state.last, &0)?;
            }
            txn.merge(&state.all, 0, 1)?;
            if sequence % 8 == 2 {
                txn.put(&state.last, 0, sequence)?;
            }
        }
        let end = frame.bytes().len();
        frame.bytes_mut()[end - 8..].copy_from_slice(&ticket.to_le_bytes());
        Ok(Verdict::Forward)
    }))
}

#[test]
fn shards_that_merge_into_one_row_lose_nothing() {
    // Goal: what is merged is there once, and whoever looks sees all of it, on real threads too. Method: one to four shards count all packets in
    // one row; a packet that comes when all have left asks for it, and asks again when the node has been replaced.
    for (shards, unit) in [(1, 32), (2, 1), (2, 32), (4, 8)] {
        let options = LiveOptions { shards, idle: Idle::YIELD, ..LiveOptions::default() };
        let mut rig = Rig::new(plan(1, 1, shards, unit), &[counts()], &options);
        rig.send(20_000, &mut Entropy::new(shards as u64));
        rig.settle();
        let answer = |rig: &mut Rig| {
            rig.send_one(ASKS);
            rig.settle();
            rig.tickets.pop().map(|ticket| u64::MAX - ticket)
        };
        let came = rig.tickets.len() as u64;
        assert_eq!((came, answer(&mut rig)), (20_000, Some(20_000)), "{shards} shards, units of {unit}");
        assert!(rig.live().crash(0), "the replica is up");
        rig.await_recoveries(1);
        assert_eq!(answer(&mut rig), Some(20_000), "{shards} shards, units of {unit}, after a crash");
        rig.finish();
    }
}

#[test]
fn a_monitor_counts_in_as_many_parts_as_its_sharing_leaves() {
    // Goal: lanes that share a part write one row, on threads too. Method: four shards count the packets of many flows, with each
    // sharing; the rows of the totals, and that replicas have what heads have.
    for (sharing, parts) in [(1, 4), (2, 2), (8, 1)] {
        let monitor = Arc::new(monitor(MonitorConfig { sharing, ..MonitorConfig::default() }));
        let options = LiveOptions { shards: 4, idle: Idle::YIELD, ..LiveOptions::default() };
        let mut rig = Rig::new(plan(2, 1, 4, 8), &[tickets(), monitor], &options);
        rig.send(4_000, &mut Entropy::new(sharing as u64));
        rig.settle();
        let (outcome, came) = rig.finish();
        assert_eq!((came, outcome.summary.stages[1].state["totals"]), (4_000, parts), "sharing {sharing}");
    }
}

#[test]
fn five_nodes_with_two_shards_each_run_on_the_cores_there_are() {
    // Goal: more shards than cores are no trouble. Method: ten shards and two edges on this machine's cores, with all kinds of
    // rest; every packet comes.
    for idle in [Idle::YIELD, Idle::SLEEP] {
        let options = LiveOptions { shards: 2, idle, ..LiveOptions::default() };
        let nfs: Vec<_> = (0..5).map(|_| tickets()).collect();
        let mut rig = Rig::new(plan(5, 1, 2, 32), &nfs, &options);
        rig.send(5_000, &mut Entropy::new(5));
        rig.settle();
        let (outcome, came) = rig.finish();
        assert_eq!((came as u64, outcome.summary.packets.lost), (outcome.ports[0].received, 0));
        assert_eq!(came, 5_000);
    }
}

#[test]
fn a_node_that_dies_is_replaced_and_no_ticket_is_given_twice() {
    // Goal: what left is never forgotten, on threads too. Method: each node dies in turn under traffic, with one shard and
    // with two; whatever left has tickets of its own, and replicas are equal at the end.
    for shards in [1, 2] {
        let options = LiveOptions { shards, idle: Idle::YIELD, ..LiveOptions::default() };
        let mut rig = Rig::new(plan(3, 1, shards, 8), &[tickets(), tickets(), tickets()], &options);
        let mut random = Entropy::new(7);
        for node in 0..3 {
            rig.send(4_000, &mut random);
            rig.settle();
            rig.send(1_000, &mut random);
            assert!(rig.live().crash(node), "all others are up");
            rig.send(1_000, &mut random);
            rig.await_recoveries(node + 1);
            assert_eq!(rig.live().recoveries().len(), node + 1, "{shards} shards");
        }
        let (_, came) = rig.finish();
        assert!(came >= 12_000, "{came} of 18,000 came");
    }
}

#[test]
fn shards_come_and_go_under_traffic_without_loss_or_disorder() {
    // Goal: elastic. Method: a node changes its number of shards while packets pass; the others have other numbers.
    let options = LiveOptions { shards: 2, idle: Idle::YIELD, ..LiveOptions::default() };
    let mut rig = Rig::new(plan(2, 1, 4, 8), &[tickets(), tickets()], &options);
    let mut random = Entropy::new(3);
    for shards in [1, 4, 3, 1, 2] {
        rig.send(2_000, &mut random);
        rig.live().set_shards(1, shards);
        rig.send(2_000, &mut random);
        assert_eq!((rig.live().shards(0), rig.live().shards(1)), (2, shards));
    }
    rig.settle();
    let (outcome, came) = rig.finish();
    assert_eq!((came as u64, outcome.summary.packets.lost), (outcome.ports[0].received, 0));
}

#[test]
fn faulty_links_cost_frames_but_no_state() {
    // Goal: repair works on threads. Method: loss, doubles and reordering on every link of the ring, a crash in the middle.
    let faults = Faults { loss: 0.01, duplicate: 0.01, reorder: 0.01, delay: 0.0 };
    let options = LiveOptions { faults, idle: Idle::YIELD, ..LiveOptions::default() };
    let mut rig = Rig::new(plan(2, 1, 1, 8), &[tickets(), tickets()], &options);
    let mut random = Entropy::new(11);
    rig.send(5_000, &mut random);
    rig.await_entry();
    assert!(rig.live().crash(0));
    rig.send(5_000, &mut random);
    rig.await_entry();
    rig.await_recoveries(1);
    rig.wait("hardly any packet comes out", |rig, _| rig.tickets.len() > 4_500);
    let outcome = rig.live.take().expect("it runs").finish();
    assert_eq!(outcome.broken, Vec::<String>::new(), "{:#?}", outcome.summary);
    assert_eq!(outcome.summary.recoveries.len(), 1);
}

#[test]
fn a_network_function_that_panics_is_replaced() {
    // Goal: a fault in an NF costs a recovery, not the chain. Method: one packet in the middle makes it panic.
    let poisoned = Arc::new(nf(|frame, state: &Tickets, txn| {
        txn.update(&state.next, 0, |next| next.unwrap_or(0) + 1)?;
        assert!(frame.bytes()[35] != 13, "thirteen");
        Ok(Verdict::Forward)
    }));
    for shards in [1, 2] {
        let nfs: [Arc<dyn AnyNf>; 2] = [poisoned.clone(), Arc::new(monitor(MonitorConfig::default()))];
        let options = LiveOptions { shards, ..LiveOptions::default() };
        let mut rig = Rig::new(plan(2, 1, shards, 1), &nfs, &options);
        let frame = |port: u16| FrameBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1]).udp(port, 53, &[0; 16]);
        for (port, left, recoveries) in [(0x100u16, 1, 0), (0x10d, 1, 1), (0x101, 2, 1)] {
            let context = &mut PortContext { now: 0, pool: &mut rig.pool };
            let Ok(()) = rig.inside.tx_burst(context, &mut vec![Packet::new(&frame(port))]);
            rig.wait("a packet does not leave", |_, live| live.left() >= left);
            rig.await_recoveries(recoveries);
        }
        let outcome = rig.live.take().expect("it runs").finish();
        assert_eq!(outcome.broken, Vec::<String>::new(), "{:#?}", outcome.summary);
        let (released, recoveries) = (outcome.summary.packets.released, outcome.summary.recoveries.len());
        assert_eq!((released, recoveries), (2, 1), "{:#?}", outcome.summary);
        assert!(outcome.summary.warnings[0].contains("thirteen"), "{:?}", outcome.summary.warnings);
    }
}

#[test]
fn a_panic_under_claims_stops_no_other_shard() {
    // Goal: nobody waits for a lane that has died. Method: a counter that all packets share, on two shards under full
    // traffic, and one ticket in a thousand, when it is given first, makes the function panic while it has the counter claimed.
    let last = AtomicU64::new(0);
    let fragile = Arc::new(nf(move |_, state: &Tickets, txn| {
        let ticket = txn.update(&state.next, 0, |next| next.unwrap_or(0) + 1)?;
        assert!(ticket % 1_000 != 500 || last.swap(ticket, Ordering::Relaxed) == ticket, "now and then");
        Ok(Verdict::Forward)
    }));
    let nfs: [Arc<dyn AnyNf>; 2] = [fragile, tickets()];
    let options = LiveOptions { shards: 2, idle: Idle::YIELD, ..LiveOptions::default() };
    let mut rig = Rig::new(plan(2, 1, 2, 8), &nfs, &options);
    let mut random = Entropy::new(5);
    for _ in 0..4 {
        let before = rig.sent.clone();
        rig.send(2_000, &mut random);
        rig.wait("nothing leaves any more", |rig, _| {
            rig.seen.iter().any(|(flow, seen)| seen.last() > before.get(flow))
        });
    }
    let outcome = rig.live.take().expect("it runs").finish();
    assert_eq!(outcome.broken, Vec::<String>::new(), "{:#?}", outcome.summary);
    assert!(!outcome.summary.recoveries.is_empty(), "nothing panicked");
}

#[test]
fn a_live_chain_that_can_not_be_is_refused() {
    // Goal: a sentence, not a panic. Method: more shards than lanes.
    let (inside, outside) = (memory_device(8).0, memory_device(8).0);
    let options = LiveOptions { shards: 3, ..LiveOptions::default() };
    let stages = vec![ChainStage { name: "one".to_owned(), nf: tickets() }];
    let refused = Live::start(
        plan(1, 1, 2, 1),
        stages,
        Sides { inside: vec![inside], outside: vec![outside] },
        &options,
    );
    let sentence = refused.err().expect("too many shards").to_string();
    assert!(sentence.contains("lanes = 3"), "{sentence}");
}

/// Forwards frames; the first sweep of all panics.
struct Sweeper(AtomicBool);

impl Nf for Sweeper {
    type State = Tickets;

    fn process(&self, _: &mut Frame<'_>, state: &Tickets, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        txn.update(&state.next, 0, |next| next.unwrap_or(0) + 1)?;
        Ok(Verdict::Forward)
    }

    fn sweep(&self, _: &Tickets, _: &mut Txn<'_>, _: usize) -> TxnResult<()> {
        assert!(self.0.swap(true, Ordering::Relaxed), "the first sweep");
        Ok(())
    }
}

#[test]
fn a_sweep_that_panics_costs_no_frame_that_never_was() {
    // Goal: everything is accounted for, whatever panics. Method: the first sweep does, while no frame is under way.
    for shards in [1, 2] {
        let nfs: [Arc<dyn AnyNf>; 1] = [Arc::new(Sweeper(AtomicBool::new(false)))];
        let options = LiveOptions { shards, ..LiveOptions::default() };
        let mut rig = Rig::new(plan(1, 1, shards, 1), &nfs, &options);
        rig.await_recoveries(1);
        let outcome = rig.live.take().expect("it runs").finish();
        assert_eq!(outcome.broken, Vec::<String>::new(), "{:#?}", outcome.summary);
        assert_eq!((outcome.summary.recoveries.len(), outcome.summary.packets.lost), (1, 0));
    }
}

#[test]
fn a_state_that_is_lost_for_good_is_told() {
    // Goal: nobody runs a chain that lets nothing through and says nothing. Method: no replica, and a panic.
    let fragile = Arc::new(nf(|_, _: &Tickets, _| panic!("at once")));
    let nfs: [Arc<dyn AnyNf>; 1] = [fragile];
    let mut rig = Rig::new(plan(1, 0, 1, 1), &nfs, &LiveOptions::default());
    rig.send(1, &mut Entropy::new(1));
    rig.wait("nobody says so", |_, live| live.unrecoverable().is_some());
    assert_eq!(rig.live().unrecoverable(), Some(0));
    let outcome = rig.live.take().expect("it runs").finish();
    assert!(outcome.broken[0].contains("no live node holds the state of s0"), "{:?}", outcome.broken);
}
