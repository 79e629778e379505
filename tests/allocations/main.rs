//! No packet costs an allocation: the chain at work, once it has met its traffic, is fed 100,000 packets while an
//! allocator counts. This is a test binary of its own, since an allocator serves a whole program.
#![allow(unsafe_code)] // an allocator can't be written without

mod live;
#[path = "../ports/netns.rs"]
#[allow(dead_code)] // most of it serves the tests of ports
mod netns;
mod ports;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pannier_chains::Chain;
use pannier_chains::config::parse_line;
use pannier_runtime::Packet;
use pannier_tests::edge;

/// The system's allocator, with a count of what each thread asks for.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends has lost its count, and may still allocate.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: all four functions hand their arguments on to the system's allocator, which keeps the contract; what they do
// besides touches a number without destructor, and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of this very function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of this very function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of this very function, and `block` is the system's.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of this very function, and `block` is the system's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread has asked for memory.
fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

/// Packets over which nothing may be allocated.
const PACKETS: usize = 100_000;
/// How often the chain has seen its traffic by then.
const WARM: u64 = 8;

/// A chain that is fed the same traffic over and over, later each time.
struct Fed {
    chain: Chain,
    burst: usize,
    trace: Vec<Packet>,
    length: u64,
    rounds: u64,
    left: Vec<Packet>,
    released: usize,
}

impl Fed {
    fn new(chain: Chain, burst: usize, trace: Vec<Packet>) -> Self {
        let times = trace.iter().map(|packet| packet.meta.time);
        let length = times.clone().max().zip(times.min()).map_or(0, |(last, first)| last - first + 1);
        Fed { chain, burst, trace, length, rounds: 0, left: Vec::new(), released: 0 }
    }

    /// Feeds the trace once more: admit, turn, take what left, give it back.
    fn round(&mut self) {
        for burst in self.trace.chunks(self.burst) {
            for packet in burst {
                let mut packet = self.chain.pool().copy(packet);
                packet.meta.time += self.rounds * self.length;
                self.chain.admit(packet);
            }
            self.chain.turn();
            self.chain.take_released(&mut self.left);
            self.released += self.left.len();
            self.left.drain(..).for_each(|packet| self.chain.pool().give(packet));
        }
        self.rounds += 1;
    }
}

/// Warms the chain up and counts the allocations of what follows.
fn measure(mut fed: Fed, what: &str) {
    (0..WARM).for_each(|_| fed.round());
    let (rounds, released) = (PACKETS.div_ceil(fed.trace.len()), fed.released);
    let per_round: Vec<u64> = (0..rounds)
        .map(|_| {
            let before = allocations();
            fed.round();
            allocations() - before
        })
        .collect();
    let left = fed.released - released;
    assert!(left > PACKETS * 9 / 10, "{what}: only {left} packets left the chain");
    assert!(fed.chain.drain(), "{what}: the chain comes to rest");
    assert_eq!(fed.chain.broken_promises(), Vec::<String>::new(), "{what}");
    assert_eq!(per_round.iter().sum::<u64>(), 0, "{what}: allocations by round of the trace: {per_round:?}");
}

#[test]
fn the_counter_counts() {
    // Goal: a count of zero means something. Method: allocate, grow and look at the count.
    let before = allocations();
    let mut bytes: Vec<u8> = Vec::with_capacity(100);
    let once = allocations();
    bytes.resize(10_000, 1);
    assert_eq!((once - before, allocations() - once), (1, 1));
    let zeroed = vec![0_u8; bytes.len()];
    assert_eq!((allocations() - once, zeroed.len()), (2, 10_000));
}

#[test]
fn packets_of_established_flows_cost_no_allocation_in_the_edge_chain() {
    // Goal: no packet costs an allocation, replicated or not. Method: the example capture over and over, after warm-up,
    // with f of 0 to 2 and units of 1, 8 and 32 packets.
    for f in 0..=2 {
        for unit in [1, 8, 32] {
            let (f, unit) = (format!("f={f}"), format!("unit={unit}"));
            let spec = edge::spec(&[&f, &unit]);
            measure(Fed::new(edge::chain(&spec), spec.burst, edge::packets(&spec)), &format!("{f} {unit}"));
        }
    }
}

#[test]
fn a_write_per_packet_costs_no_allocation() {
    // Goal: the same where every packet changes state. Method: a chain of two monitors on the example capture.
    let trace = edge::packets(&edge::spec(&[]));
    for f in 0..=2 {
        for unit_frames in [1, 8, 32] {
            let mut spec = parse_line("monitor -> second:monitor").expect("two stages");
            let mut plan = pannier_runtime::ring::Plan::new(2, f).expect("a small ring");
            plan.unit_frames = unit_frames;
            spec.plan = plan;
            measure(
                Fed::new(edge::chain(&spec), 8, trace.clone()),
                &format!("monitors, f={f} unit={unit_frames}"),
            );
        }
    }
}
