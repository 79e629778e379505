//! `pannier bench`: what the ring costs, as a ratio measured side by side.

use std::time::{Duration, Instant};

use pannier_chains::config::{self, ChainSpec};
use pannier_chains::{Chain, ChainStage, RunError, run};
use pannier_runtime::Packet;
use pannier_runtime::port::Faults;
use serde_json::json;

use crate::{Ended, Failure, fail, print};

/// Measures a chain on its capture from memory, beside the same chain without replication
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A chain file, or a chain on one line
    chain: String,
    /// A capture to read, '-' for standard input; inside:FILE or outside:FILE says on
    /// which side it was taken. Several are merged by time.
    /// In place of what the chain file reads
    #[arg(long, verbatim_doc_comment, value_name = "[SIDE:]FILE")]
    read: Vec<String>,
    /// Changes a setting: f=2, unit=1
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Pairs of measurements, one with and one without replication each
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Milliseconds of each measurement
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    millis: u64,
    /// Prints the result as one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn bench(args: &Args) -> Ended {
    // No node crashes here, whatever the chain file plans; without crashes any f is possible.
    let sets: Vec<&str> = args.sets.iter().map(String::as_str).chain(["crash=[]"]).collect();
    let opened = config::open(&args.chain, &sets);
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
    match measure(&spec, &packets, args) {
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

fn measure(spec: &ChainSpec, packets: &[Packet], args: &Args) -> Result<Measured, RunError> {
    let length = Duration::from_millis(args.millis);
    let (mut with, mut without) = (Bench::new(spec, spec.plan.f())?, Bench::new(spec, 0)?);
    with.run(packets, length);
    without.run(packets, length); // both have seen every flow now
    let pair = |_| (with.run(packets, length), without.run(packets, length));
    Ok(Measured { f: spec.plan.f(), packets: packets.len(), pairs: (0..args.rounds).map(pair).collect() })
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

/// Minimum, median and maximum.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    [sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1]]
}

impl Measured {
    /// With, without, and the cost: how many times longer a packet takes with replication.
    fn rows(&self) -> [[f64; 3]; 3] {
        [
            spread(self.pairs.iter().map(|(with, _)| with / 1e6)),
            spread(self.pairs.iter().map(|(_, without)| without / 1e6)),
            spread(self.pairs.iter().map(|(with, without)| without / with)),
        ]
    }

    fn json(&self) -> String {
        let [with, without, cost] = self.rows();
        let row = |r: [f64; 3]| json!({ "min": r[0], "median": r[1], "max": r[2] });
        let result = json!({
            "f": self.f, "packets": self.packets, "rounds": self.pairs.len(),
            "mpps": row(with), "mpps_f0": row(without), "cost": row(cost),
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
        writeln!(out, "f = {}   Mpps    {:8.3} {:8.3} {:8.3}", self.f, with[0], with[1], with[2])?;
        writeln!(out, "f = 0   Mpps    {:8.3} {:8.3} {:8.3}", without[0], without[1], without[2])?;
        writeln!(
            out,
            "cost of f = {}   {:8.3} {:8.3} {:8.3}  (time per packet, f = {} to f = 0)",
            self.f, cost[0], cost[1], cost[2], self.f
        )
    }
}
