//! Every crash at every packet: whatever a chain released before, during and after it, its final state knows of.
//!
//! In a trace of 1,000 packets each crash pattern comes at each packet index: every node alone on a ring that survives
//! one failure, every two neighbours at once on a ring that survives two.

mod edge;
mod provenance;

use std::sync::atomic::{AtomicUsize, Ordering};

use pannier_chains::Chain;
use pannier_runtime::Packet;
use pannier_runtime::ring::Node;

/// Packets of the trace, and the number of indices at which nodes crash.
const TRACE: usize = 1_000;
const STAGES: usize = 3;
/// Packets that enter between two turns of the chain.
const BURST: usize = 8;

/// Which nodes crash, with f = their number.
const PATTERNS: [&[usize]; 6] = [&[0], &[1], &[2], &[0, 1], &[1, 2], &[2, 0]];

/// When and where nodes crash in one run.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// The nodes that die together.
    nodes: &'static [usize],
    /// How many packets have entered by then.
    at: usize,
    /// How many packets later they die again, and so on to the end of the trace.
    every: usize,
}

impl Case {
    fn crashes(self) -> impl ExactSizeIterator<Item = usize> {
        (self.at..TRACE).step_by(self.every)
    }
}

/// Runs `check` on cases in which every pattern crashes at every index, on two threads; the panic of a failing check
/// names its case. `every` is [`TRACE`] where no run shall have more than one crash.
fn for_every_index(every: usize, check: impl Fn(Case) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= every {
                return;
            }
            PATTERNS.iter().for_each(|nodes| check(Case { nodes, at, every }));
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        work();
        other.join().expect("the checks on the other thread hold as well");
    });
}

/// Feeds the packets to the chain in bursts, lets nodes crash on the way, and waits until all is at rest. Returns what
/// `note` makes of each packet that leaves. A burst ends where a crash is, so that it finds the frames of each index at
/// another place on the ring. At an odd index the last burst has not had its turn: its packets stand at the entrances.
fn play<T>(chain: &mut Chain, packets: &[Packet], case: Case, note: impl Fn(&Packet) -> T) -> Vec<T> {
    let (mut left, mut noted) = (Vec::new(), Vec::with_capacity(packets.len()));
    let mut take = |chain: &mut Chain| {
        chain.take_released(&mut left);
        for packet in left.drain(..) {
            noted.push(note(&packet));
            chain.pool().give(packet);
        }
    };
    let mut fed = 0;
    for at in case.crashes() {
        feed(chain, &packets[fed..at], &mut take);
        fed = at;
        if at.is_multiple_of(2) {
            chain.turn();
        }
        for &node in case.nodes {
            assert!(chain.node(node).is_some_and(Node::is_up), "{case:?}: node {node} is not back at {at}");
            chain.crash(node);
        }
    }
    feed(chain, &packets[fed..], &mut take);
    assert!(chain.drain(), "{case:?}: {:?}", chain.unrecoverable());
    take(chain);
    assert!(noted.len() > TRACE / 2, "{case:?}: only {} packets left, which shows little", noted.len());
    check_account(chain, case);
    noted
}

/// Lets packets in, the first burst shorter so that the last is whole, and has those taken that leave.
fn feed(chain: &mut Chain, packets: &[Packet], mut take: impl FnMut(&mut Chain)) {
    let (first, rest) = packets.split_at(packets.len() % BURST);
    for burst in std::iter::once(first).chain(rest.chunks(BURST)) {
        chain.turn();
        take(chain);
        for packet in burst {
            let packet = chain.pool().copy(packet);
            chain.admit(packet);
        }
    }
}

/// Every packet is accounted for, replicas are equal to their heads, and every crash was repaired.
fn check_account(chain: &Chain, case: Case) {
    assert_eq!(chain.broken_promises(), Vec::<String>::new(), "{case:?}");
    let summary = chain.summary();
    let packets = summary.packets;
    assert!(packets.is_balanced() && packets.held == 0, "{case:?}: {packets:?}");
    assert_eq!((packets.entered, packets.duplicated), (TRACE as u64, 0), "{case:?}");
    let mut back: Vec<usize> = summary.recoveries.iter().map(|recovery| recovery.node).collect();
    back.sort_unstable();
    let mut crashed = case.nodes.repeat(case.crashes().len());
    crashed.sort_unstable();
    assert_eq!(back, crashed, "{case:?}");
    let lost: u64 = summary.recoveries.iter().map(|recovery| recovery.frames_lost).sum();
    assert_eq!(packets.lost, lost, "{case:?}: links are without faults, so only crashes lose frames");
}
