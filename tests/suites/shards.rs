//! Shards, their mailboxes and links, and what looks after them, in one thread: a seed says whose turn it is.
//!
//! Actors never block, and a turn is bounded. So every order of turns is an order that threads can come to, and this suite
//! needs no scheduler of threads, which would not see into the rings and channels between them. What happens *within* a turn
//! that others have at the same time is loom's business (`state/claims_loom.rs`, `ring/node/news.rs`), and that of the suite
//! `live`, on threads.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use pannier_chains::ChainStage;
use pannier_chains::live::{Host, LiveOptions, Sides, Supervisor};
use pannier_runtime::clock::Now;
use pannier_runtime::entropy::Entropy;
use pannier_runtime::mutant::{self, Mutant};
use pannier_runtime::packet::{Packet, Pool};
use pannier_runtime::port::{Duplex, Faults, Port, PortContext, memory_device};
use pannier_runtime::ring::Plan;
use pannier_runtime::shard::{Actor, Turn, take_turn};
use pannier_runtime::wire::FrameBuilder;
use pannier_runtime::{AnyNf, Direction, TxnResult, Verdict, nf, state};

/// Mutants that this suite notices, and the simulator does not: its nodes do not panic.
pub(crate) const MUTANTS: &[Mutant] = &[Mutant::PanickedLane];
/// Schedules, each of its own seed.
const SEEDS: u64 = 1_500;
/// Steps of a schedule before the chain is ended.
const STEPS: u64 = 250;
/// Flows each way.
const FLOWS: u64 = 12;
/// Where the payload of a frame begins, and what is in it: its number in its flow, the stage at which it panics (counted
/// from 1), and a ticket of each stage.
const NUMBER: usize = 42;
const PANICS: usize = 50;
const TICKETS: usize = 58;
const STAGES: u64 = 3;

state! {
    /// Numbers that packets are given in their order.
    struct Tickets {
        /// The next, by counter.
        next: u8 => u64 [8],
        /// By flow: the last packet's number.
        last: u16 => u64 [4_096],
    }
}

fn number(frame: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(frame[at..at + 8].try_into().expect("eight bytes"))
}

fn flow(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[34], frame[35]])
}

/// Gives each packet the next number of one counter for all, or panics where the packet says so.
fn tickets(stage: usize) -> Arc<dyn AnyNf> {
    Arc::new(nf(move |frame, state: &Tickets, txn| -> TxnResult<Verdict> {
        let ticket = txn.update(&state.next, 0, |next| next.unwrap_or(0) + 1)?;
        txn.put(&state.last, flow(frame.bytes()), ticket)?;
        if number(frame.bytes(), PANICS) == stage as u64 + 1 {
            resume_unwind(Box::new("on purpose")); // without a word on the terminal
        }
        frame.bytes_mut()[TICKETS + 8 * stage..][..8].copy_from_slice(&ticket.to_le_bytes());
        Ok(Verdict::Forward)
    }))
}

/// How long a turn takes at most, in nanoseconds.
const PACE: u64 = 20_000;

/// Gives actors their turns, in an order that a seed says.
struct Table {
    random: Entropy,
    timer: u64,
    pace: u64,
    actors: Vec<Box<dyn Actor>>,
}

impl Table {
    fn turns(&mut self, most: u64) {
        for _ in 0..=self.random.below(most) {
            self.timer += self.random.below(self.pace);
            let now = self.now();
            let Some(at) = (self.random.next_u64() as usize).checked_rem(self.actors.len()) else { return };
            if take_turn(&mut *self.actors[at], now) == Turn::Ended {
                self.actors.swap_remove(at);
            }
        }
    }
}

impl Host for Table {
    fn now(&self) -> Now {
        Now { timer: self.timer, wall: self.timer }
    }

    fn add_shard(&mut self, _node: usize, _shard: usize, actor: Box<dyn Actor>) {
        self.actors.push(actor);
    }

    fn add_edge(&mut self, _direction: Direction, _queue: usize, actor: Box<dyn Actor>) {
        self.actors.push(actor);
    }

    fn wait(&mut self) {
        self.turns(8);
    }

    fn end(&mut self) {
        for _ in 0..100_000 {
            self.turns(8);
            if self.actors.is_empty() {
                return;
            }
        }
        panic!("{} actors do not end", self.actors.len());
    }
}

/// A chain, what keeps it going, and the ends of its ports.
struct Rig {
    table: Table,
    random: Entropy,
    /// Until the chain is ended.
    supervisor: Option<Supervisor>,
    stages: usize,
    f: usize,
    lanes: usize,
    faulty: bool,
    /// The ends of the ports at which packets of a direction enter, by queue.
    ends: [Vec<Duplex>; 2],
    pool: Pool,
    sent: HashMap<(usize, u16), u64>,
    /// By direction and flow: the numbers that came out, and by which queue.
    came: HashMap<(usize, u16), (usize, Vec<u64>)>,
    /// By stage: all tickets that came out, each with its packet: direction, flow and number.
    tickets: [Vec<(u64, usize, u16, u64)>; STAGES as usize],
    /// A packet is under way at which a node panics.
    panics: bool,
}

impl Rig {
    fn new(seed: u64, pace: u64) -> Self {
        let mut random = Entropy::stream(seed, 1);
        let mut one_of = |choices: &[usize]| choices[random.below(choices.len() as u64) as usize];
        let (stages, f) = (one_of(&[1, 2, 3]), one_of(&[0, 1, 1, 2]));
        let mut plan = Plan::new(stages, f).expect("a sound geometry");
        plan.lanes = one_of(&[1, 2, 3, 4]);
        plan.unit_frames = one_of(&[1, 4, 32]);
        plan.layout.partitions = one_of(&[1, 4, 64]);
        plan.limits.snapshot_bytes = one_of(&[100, 1 << 20]);
        plan.seed = seed;
        let is_slow = pace > PACE;
        let faulty = one_of(&[0, 0, 1]) == 1 && !is_slow;
        let faults = Faults { loss: 0.02, duplicate: 0.02, reorder: 0.05, delay: 0.02 };
        let options = LiveOptions {
            shards: 1 + one_of(&[0, 1, 2]).min(plan.lanes - 1),
            faults: if faulty { faults } else { Faults::NONE },
            patience: Duration::from_micros(if is_slow {
                1 << 40
            } else {
                one_of(&[500, 1 << 40, 1 << 40]) as u64
            }),
            ..LiveOptions::default()
        };
        let mut queues = Entropy::stream(seed, 3);
        let mut side = || (0..=queues.below(3)).map(|_| memory_device(1_024)).unzip();
        let ((inside, out_of_inside), (outside, out_of_outside)) = (side(), side());
        let stage = |at| ChainStage { name: format!("s{at}"), nf: tickets(at) };
        let sides = Sides { inside, outside };
        let mut table = Table { random: Entropy::stream(seed, 2), timer: 1, pace, actors: Vec::new() };
        let all = (0..stages).map(stage).collect();
        let supervisor =
            Supervisor::start(plan, all, sides, &options, &mut table).expect("the plan is sound");
        Rig {
            table,
            random,
            supervisor: Some(supervisor),
            stages,
            f,
            lanes: plan.lanes,
            faulty,
            ends: [out_of_inside, out_of_outside],
            pool: Pool::default(),
            sent: HashMap::new(),
            came: HashMap::new(),
            tickets: Default::default(),
            panics: false,
        }
    }

    fn send(&mut self, panics_at: u64) {
        let side = self.random.below(2) as usize;
        let mut burst = Vec::new();
        for _ in 0..1 + self.random.below(12) {
            let flow = 1_000 + self.random.below(FLOWS) as u16;
            let sequence = self.sent.entry((side, flow)).or_default();
            *sequence += 1;
            let mut payload = sequence.to_le_bytes().to_vec();
            payload.extend(if burst.is_empty() { panics_at } else { 0 }.to_le_bytes());
            payload.extend([0; 8 * STAGES as usize]);
            let (inner, outer) = ([10, 0, 0, 1], [192, 0, 2, 1]);
            let (from, to) = if side == 0 { (inner, outer) } else { (outer, inner) };
            burst.push(Packet::new(&FrameBuilder::ipv4(from, to).udp(flow, 53, &payload)));
        }
        let context = &mut PortContext { now: 0, pool: &mut self.pool };
        let queues = self.ends[side].len();
        for (queue, end) in self.ends[side].iter_mut().enumerate() {
            let is_here = |packet: &mut Packet| usize::from(flow(packet.frame())) % queues == queue;
            let Ok(()) = end.tx_burst(context, &mut burst.extract_if(.., is_here).collect());
        }
    }

    fn take(&mut self) {
        let [outbound, inbound] = [1, 0].map(|side: usize| 0..self.ends[side].len());
        let all = outbound.map(|queue| (0, queue)).chain(inbound.map(|queue| (1, queue)));
        for (side, queue) in all {
            let context = &mut PortContext { now: 0, pool: &mut self.pool };
            let mut burst = Vec::new();
            let Ok(_) = self.ends[1 - side][queue].rx_burst(usize::MAX, context, &mut burst);
            for packet in burst {
                let frame = packet.frame();
                let (flow, sequence) = (flow(frame), number(frame, NUMBER));
                let (by, numbers) = self.came.entry((side, flow)).or_insert((queue, Vec::new()));
                assert_eq!(*by, queue, "flow {flow} leaves by two queues");
                numbers.push(sequence);
                for (stage, tickets) in self.tickets.iter_mut().enumerate().take(self.stages) {
                    tickets.push((number(frame, TICKETS + 8 * stage), side, flow, sequence));
                }
            }
        }
    }

    fn step(&mut self) {
        let supervisor = self.supervisor.as_mut().expect("the chain has not ended");
        let node = self.random.below(supervisor.plan().nodes() as u64) as usize;
        let may_lose = supervisor.down() + usize::from(self.panics) < self.f;
        match self.random.below(100) {
            0..25 => self.send(0),
            25..27 if may_lose && !self.faulty && !self.panics => {
                self.panics = true;
                let stage = 1 + self.random.below(self.stages as u64);
                self.send(stage);
            }
            27..30 if may_lose => drop(supervisor.crash(node, &mut self.table)),
            30..38 => {
                let count = 1 + self.random.below(self.lanes as u64) as usize;
                supervisor.set_shards(node, count, &mut self.table);
            }
            38..60 => supervisor.watch(&mut self.table),
            _ => self.table.turns(30),
        }
        self.take();
    }

    /// Ends the chain, and checks the chain's own promises (everything is accounted for, replicas are equal, nothing stays
    /// inside), order within flows, and that no ticket is given twice. Returns how many packets left, and how many nodes were
    /// replaced.
    fn finish(mut self) -> (usize, usize) {
        assert_eq!(self.supervisor.as_ref().and_then(Supervisor::unrecoverable), None);
        let outcome = self.supervisor.take().expect("it is there until now").finish(&mut self.table);
        assert_eq!(outcome.port_error, None);
        assert!(outcome.broken.is_empty(), "{:?}\n{:#?}", outcome.broken, outcome.summary);
        self.take();
        self.check();
        (self.tickets[0].len(), outcome.summary.recoveries.len())
    }

    fn check(&mut self) {
        for (flow, (_, numbers)) in &self.came {
            assert!(self.faulty || numbers.is_sorted(), "flow {flow:?} left as {numbers:?}");
        }
        for (stage, tickets) in self.tickets.iter_mut().enumerate().take(self.stages) {
            tickets.sort_unstable();
            if self.faulty {
                tickets.dedup(); // a frame that a link doubles is two packets from there on
            }
            let twice = tickets.windows(2).find(|pair| pair[0].0 == pair[1].0);
            assert_eq!(twice, None, "a ticket of stage {stage} was given twice");
            assert_ne!(tickets.first().map(|first| first.0), Some(0), "stage {stage} gave no ticket");
        }
    }
}

fn play(seed: u64) -> (usize, usize) {
    let mut rig = Rig::new(seed, PACE);
    (0..STEPS).for_each(|_| rig.step());
    rig.finish()
}

#[test]
fn shards_keep_the_promises_in_any_order_of_their_turns() {
    // Goal: no order of turns, orders and reports loses, doubles or reorders anything, while the number of shards changes
    // and nodes crash, panic and are suspected. Method: the product's actors and supervisor under a scheduler with a seed.
    let first = std::env::var("PANNIER_SHARDS_SEED").ok().and_then(|seed| seed.parse().ok());
    let (mut left, mut recoveries) = (0, 0);
    for seed in first.map_or(0..SEEDS, |seed: u64| seed..seed + 1) {
        let (packets, recovered) = std::panic::catch_unwind(|| play(seed))
            .unwrap_or_else(|_| panic!("PANNIER_SHARDS_SEED={seed} plays the failing schedule again"));
        left += packets;
        recoveries += recovered;
    }
    println!("{left} packets left, {recoveries} nodes were replaced");
    assert!(first.is_some() || (left > 100_000 && recoveries > 1_000), "{left}, {recoveries}");
}

#[test]
fn shards_that_break_a_rule_are_noticed() {
    // Goal: the suite sees each kind of fault that shards can bring. Method: one broken rule at a time, until a schedule
    // fails.
    for &mutant in MUTANTS.iter().chain(&[Mutant::SilentLane, Mutant::LostInReshard]) {
        mutant::activate(Some(mutant));
        let caught = (0..SEEDS).find(|&seed| std::panic::catch_unwind(|| play(seed)).is_err());
        mutant::activate(None);
        println!("| `{}` | {caught:?} |", mutant.name());
        assert!(caught.is_some(), "nobody noticed {}", mutant.name());
    }
}

#[test]
fn a_state_that_is_lost_for_good_ends_a_chain_at_once() {
    // Goal: nobody waits for packets that never can leave. Method: a panic where there is no replica; by the table's clock the end
    // takes a fraction of the seconds that it may wait for what is under way.
    let rigs = (0..100).map(|seed| Rig::new(seed, PACE)).filter(|rig| rig.f == 0 && !rig.faulty);
    let mut ends = 0;
    for mut rig in rigs {
        rig.send(1);
        let mut supervisor = rig.supervisor.take().expect("the chain has not ended");
        for _ in 0..10_000 {
            supervisor.watch(&mut rig.table);
            rig.table.turns(30);
        }
        assert_eq!(supervisor.unrecoverable(), Some(0));
        let began = rig.table.timer;
        supervisor.finish(&mut rig.table);
        assert!(rig.table.timer - began < 1_000_000_000, "{} ns", rig.table.timer - began);
        ends += 1;
    }
    assert!(ends > 5, "{ends} chains without a replica show little");
}

#[test]
fn a_node_is_suspected_where_somebody_looked_while_it_gave_no_sign() {
    // Goal: a machine that stood still, or a process that was stopped, costs no node. Method: time passes without a turn of
    // anybody, at once between two looks, where no node may be replaced, and in steps with looks in between, where one is.
    let mut suspected = 0;
    for seed in 0..100 {
        let mut rig = Rig::new(seed, PACE);
        let mut supervisor = rig.supervisor.take().expect("the chain has not ended");
        for _ in 0..3 {
            supervisor.watch(&mut rig.table);
            rig.table.timer += 3_000_000_000;
        }
        supervisor.watch(&mut rig.table);
        assert_eq!(supervisor.down(), 0, "seed {seed}");
        for _ in 0..10 {
            rig.table.timer += 100_000;
            supervisor.watch(&mut rig.table);
        }
        suspected += supervisor.down();
    }
    assert!(suspected > 10, "{suspected} nodes of all were suspected");
}

#[test]
fn an_end_waits_for_actors_that_seldom_have_a_turn() {
    // Goal: a crowded machine makes no broken promise of a packet that is on a link. Method: turns of up to ten milliseconds,
    // as of threads that wait for a core; packets enter, and the chain is ended.
    for seed in 0..100 {
        let mut rig = Rig::new(seed, 10_000_000);
        for _ in 0..4 {
            rig.send(0);
            rig.table.turns(8);
        }
        rig.finish();
    }
}
