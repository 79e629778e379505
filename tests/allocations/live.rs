//! A live chain: what its workers ask for while packets pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pannier_chains::ChainStage;
use pannier_chains::live::{Live, LiveOptions, Sides};
use pannier_runtime::packet::{Packet, Pool};
use pannier_runtime::port::{Duplex, Port, PortContext, memory_device};
use pannier_runtime::ring::Plan;
use pannier_runtime::shard::Idle;
use pannier_runtime::wire::FrameBuilder;
use pannier_runtime::{Verdict, nf, state};

use super::allocations;

state! {
    /// Counts of flows.
    struct Counts {
        /// By port.
        counts: u16 => u64 [1_024],
    }
}

/// Packets for warm-up, and packets that are counted.
const WARM: usize = 60_000;
const COUNTED: usize = 100_000;

/// Longest wait for a packet, or for a sign of a node, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

fn send(ends: &mut [Vec<Duplex>; 2], pool: &mut Pool, count: usize, live: &mut Live) {
    let [inside, outside] = ends;
    let (mut burst, mut left) = (Vec::new(), Vec::new());
    let (mut sent, mut came, mut last) = (0, 0, Instant::now());
    while came < count && last.elapsed() < PATIENCE {
        let context = &mut PortContext { now: 0, pool };
        // So few under way that no bound is met: what is beyond bounds may cost memory.
        while sent < count && sent - came < 400 {
            let mut packet = context.pool.take();
            let port = 1_000 + (sent % 500) as u16;
            packet.set_frame(&FrameBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1]).udp(port, 53, &[7; 64]));
            burst.push(packet);
            sent += 1;
        }
        for (queue, end) in inside.iter_mut().enumerate().rev() {
            // A flow's packets by its queue: what is not for the last ones is for the first.
            let is_here = |packet: &mut Packet| queue == 0 || packet.frame()[35] % 2 == 1;
            let Ok(()) = end.tx_burst(context, &mut burst.extract_if(.., is_here).collect());
        }
        for end in &mut *outside {
            let Ok(_) = end.rx_burst(1_024, context, &mut left);
        }
        if left.is_empty() {
            thread::yield_now();
        } else {
            (came, last) = (came + left.len(), Instant::now());
        }
        context.pool.give_all(&mut left);
        if sent % 4_000 == 0 {
            live.watch(Duration::ZERO);
        }
    }
    assert_eq!(came, count, "all packets come out");
}

/// Which of the two workers this is; their names end in the number of their core.
fn worker() -> usize {
    thread::current().name().map_or(0, |name| usize::from(name.ends_with('1')))
}

#[test]
fn packets_of_a_live_chain_cost_no_allocation() {
    // Goal: shards, links and edges ask for no memory once they have met their traffic. Method: a function that reads the
    // count of the worker it runs on; two nodes that write for every packet, on two workers, 100,000 packets; then on two
    // shards each, with one queue a port and with two.
    for (shards, queues) in [(1, 1), (2, 1), (2, 2)] {
        let counts: Arc<[AtomicU64; 2]> = Arc::default();
        let stage = |at: usize| {
            let counts = Arc::clone(&counts);
            let nf = nf(move |frame, state: &Counts, txn| {
                counts[worker()].store(allocations(), Ordering::Relaxed);
                let port = u16::from_be_bytes([frame.bytes()[34], frame.bytes()[35]]);
                txn.update(&state.counts, port, |count| count.unwrap_or(0) + 1)?;
                Ok(Verdict::Forward)
            });
            ChainStage { name: format!("s{at}"), nf: Arc::new(nf) }
        };
        let mut plan = Plan::new(2, 1).expect("small");
        (plan.unit_frames, plan.lanes) = (32, shards);
        let side = || (0..queues).map(|_| memory_device(1_024)).unzip();
        let ((inside, into), (outside, out_of)) = (side(), side());
        let (cores, idle) = (vec![0, 1], Idle::YIELD);
        let options = LiveOptions { cores, shards, idle, patience: PATIENCE, ..LiveOptions::default() };
        let mut live = Live::start(plan, vec![stage(0), stage(1)], Sides { inside, outside }, &options)
            .expect("it can start");
        let (mut ends, mut pool) = ([into, out_of], Pool::default());
        send(&mut ends, &mut pool, WARM, &mut live);
        let read = || [0, 1].map(|at: usize| counts[at].load(Ordering::Relaxed));
        let before = read();
        send(&mut ends, &mut pool, COUNTED, &mut live);
        let after = read();
        drop(live.finish());
        // Pools grow to what is under way at worst, which is when a thread was not run: a few hundred packets, once.
        let grown: u64 = before.iter().zip(after).map(|(before, after)| after.saturating_sub(*before)).sum();
        assert!(
            grown < COUNTED as u64 / 50,
            "{shards} shards, {queues} queues: {grown} allocations for {COUNTED} packets"
        );
    }
}
