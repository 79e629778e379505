//! A chain on its capture, from memory, beside the same chain without replication.

use std::time::{Duration, Instant};

use pannier_chains::config::{self, ChainSpec};
use pannier_chains::{Chain, ChainStage, RunError, run};
use pannier_runtime::Packet;
use pannier_runtime::port::Faults;
use serde_json::json;

use super::Args;
use super::spread::Spread;
use crate::{Ended, Failure, fail, print};

pub(super) fn bench(chain: &str, args: &Args) -> Ended {
    // No node crashes here, whatever the chain file plans; without crashes any f is possible.
    let sets: Vec<&str> = args.sets.iter().map(String::as_str).chain(["crash=[]"]).collect();
    let opened = config::open(chain, &sets);
    let spec = match opened.and_then(|mut spec| spec.read_from(&args.read).map(|()| spec)) {
        Ok(spec) => spec,
        Err(error) => return fail(Failure::Usage, error),
    };
    let packets = match run::load(&spec) {
        Ok(packets) if packets.is_empty() => return fail(Failure::Files, "the capture has no packets"),
        Ok(packets) => packets,
        Err(error @ RunError::Input(_)) => return fail(Failure::Files, error),
        Err(error) => return fail(Failure::Usage, error),
    };
    match measure(&spec, &packets, args.rounds(), args.length()) {
        Ok(result) => print(if args.json { result.json() } else { result.to_string() }),
        Err(error) => fail(Failure::Usage, error),
    }
}

/// Packets per second with and without replication, pair by pair.
struct Measured {
    f: usize,
    packets: usize,
    pairs: Vec<(f64, f64)>,
}

fn measure(
    spec: &ChainSpec,
    packets: &[Packet],
    rounds: u32,
    length: Duration,
) -> Result<Measured, RunError> {
    let (mut with, mut without) = (Bench::new(spec, spec.plan.f())?, Bench::new(spec, 0)?);
    with.run(packets, length);
    without.run(packets, length); // both have seen every flow now
    let pair = |_| (with.run(packets, length), without.run(packets, length));
    Ok(Measured { f: spec.plan.f(), packets: packets.len(), pairs: (0..rounds).map(pair).collect() })
}

/// A chain that is fed from memory again and again.
struct Bench {
    chain: Chain,
    burst: usize,
    left: Vec<Packet>,
}

impl Bench {
    fn new(spec: &ChainSpec, f: usize) -> Result<Self, RunError> {
        let plan = spec.plan.with_geometry(spec.stages.len(), f)?;
        let stage = |s: &config::StageSpec| ChainStage { name: s.name.clone(), nf: s.nf.clone() };
        let stages = spec.stages.iter().map(stage).collect();
        Ok(Bench {
            chain: Chain::new(plan, stages, spec.burst, Faults::NONE)?,
            burst: spec.burst,
            left: Vec::new(),
        })
    }

    /// Feeds the packets over and over for `length`, and returns packets per second.
    fn run(&mut self, packets: &[Packet], length: Duration) -> f64 {
        let (start, mut fed) = (Instant::now(), 0u64);
        while start.elapsed() < length {
            for burst in packets.chunks(self.burst) {
                for template in burst {
                    let packet = self.chain.pool().copy(template);
                    self.chain.admit(packet);
                }
                self.turn();
                fed += burst.len() as u64;
                while !self.chain.has_room() {
                    self.turn();
                }
            }
        }
        fed as f64 / start.elapsed().as_secs_f64()
    }

    fn turn(&mut self) {
        self.chain.turn();
        self.chain.take_released(&mut self.left);
        self.left.drain(..).for_each(|packet| self.chain.pool().give(packet));
    }
}

impl Measured {
    /// With, without, and the cost: how many times longer a packet takes with replication.
    fn rows(&self) -> [Spread; 3] {
        [
            Spread::of(self.pairs.iter().map(|(with, _)| with / 1e6)),
            Spread::of(self.pairs.iter().map(|(_, without)| without / 1e6)),
            Spread::of(self.pairs.iter().map(|(with, without)| without / with)),
        ]
    }

    fn json(&self) -> String {
        let [with, without, cost] = self.rows();
        let result = json!({
            "f": self.f, "packets": self.packets, "rounds": self.pairs.len(),
            "mpps": with.json(), "mpps_f0": without.json(), "cost": cost.json(),
        });
        format!("{result}\n")
    }
}

impl std::fmt::Display for Measured {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [with, without, cost] = self.rows();
        writeln!(
            out,
            "{} packets from memory, {} pairs of runs in one thread",
            self.packets,
            self.pairs.len()
        )?;
        writeln!(out, "                 minimum   median  maximum")?;
        writeln!(out, "f = {}   Mpps    {:8.3} {:8.3} {:8.3}", self.f, with.min, with.median, with.max)?;
        writeln!(out, "f = 0   Mpps    {:8.3} {:8.3} {:8.3}", without.min, without.median, without.max)?;
        writeln!(
            out,
            "cost of f = {}   {:8.3} {:8.3} {:8.3}  (time per packet, f = {} to f = 0)",
            self.f, cost.min, cost.median, cost.max, self.f
        )
    }
}
