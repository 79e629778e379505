//! A chain that leaves provenance in everything it writes: what was released is in the final state, transaction by
//! transaction.

use std::sync::Arc;

use pannier_chains::{Chain, ChainStage};
use pannier_runtime::clock::SECOND;
use pannier_runtime::entropy::Entropy;
use pannier_runtime::port::Faults;
use pannier_runtime::ring::{Node, Plan};
use pannier_runtime::{Direction, Packet};
use pannier_sim::check::{self, Scene};
use pannier_sim::provenance::path;
use pannier_sim::{Journal, Provenance};

use super::{BURST, Case, STAGES, TRACE, for_every_index, play};

#[test]
fn no_crash_undoes_a_transaction_of_what_was_released() {
    // Goal: released, closure, causality and once hold for the final state. Method: crashes of each node and of each two
    // neighbours at every packet, eight in each run, with units of one and of eight packets; questions about sets.
    let trace = trace();
    for_every_index(TRACE / 8, |case| {
        for unit_frames in [1, BURST] {
            play_and_check(&trace, case, unit_frames)
                .unwrap_or_else(|broken| panic!("{case:?}, unit {unit_frames}: {broken}"));
        }
    });
}

fn play_and_check(trace: &[Packet], case: Case, unit_frames: usize) -> Result<(), String> {
    let mut plan = Plan::new(STAGES, case.nodes.len()).map_err(|wrong| wrong.to_string())?;
    plan.unit_frames = unit_frames;
    let journal = Journal::default();
    let stage = |stage| ChainStage {
        name: format!("stage{stage}"),
        nf: Arc::new(Provenance::new(stage, journal.clone())),
    };
    let mut chain = Chain::new(plan, (0..STAGES).map(stage).collect(), BURST, Faults::NONE)
        .map_err(|wrong| wrong.to_string())?;
    let released = play(&mut chain, trace, case, |packet| path(packet.frame()));
    let ended = Ended { chain, journal, released };
    let held = check::of_heads(&ended).and_then(|()| check::at_rest(&ended));
    held.map_err(|broken| broken.to_string())
}

/// Numbered packets of a few flows, three in ten of them inbound, some with little room for a unit.
fn trace() -> Vec<Packet> {
    let mut random = Entropy::new(1_000);
    let packet = |number: u64| {
        let mut packet = Packet::new(&number.to_le_bytes());
        if random.chance(0.02) {
            packet.resize(9_000);
            packet.frame_mut()[8..].fill(0xFF);
        }
        packet.meta.direction = if random.chance(0.3) { Direction::Inbound } else { Direction::Outbound };
        packet.meta.flow = random.below(16) as u32;
        packet.meta.time = (1 + number) * SECOND; // rows that expire do so on the way
        packet
    };
    (0..TRACE as u64).map(packet).collect()
}

/// A chain at rest and what it did.
struct Ended {
    chain: Chain,
    journal: Journal,
    released: Vec<Vec<u64>>,
}

impl Scene for Ended {
    fn plan(&self) -> &Plan {
        self.chain.plan()
    }

    fn up(&self, index: usize) -> Option<&Node> {
        self.chain.node(index).filter(|node| node.is_up())
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn released(&self) -> &[Vec<u64>] {
        &self.released
    }
}
