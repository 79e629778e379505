//! `pannier run CHAIN --in PORT --out PORT`: a chain on real traffic, a bump in the wire.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pannier_chains::ChainStage;
use pannier_chains::config::{ChainSpec, Crash};
use pannier_chains::live::{Live, LiveOptions, LiveOutcome, Sides};
use pannier_runtime::limits::MAX_LANES;
use pannier_runtime::port::{Faults, PortError, PortSpec, PortStats};
use pannier_runtime::shard::{Idle, cores, tell_panics_briefly};
use serde_json::json;

use crate::{Ended, Failure, fail, print};

/// How often the command looks whether it is to stop, and whether a crash is due.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The arguments of a live run.
#[derive(Debug, clap::Args)]
#[group(id = "live")]
#[command(next_help_heading = "Live traffic")]
pub(crate) struct Args {
    /// The port to the inside: af_packet:INTERFACE, af_xdp:INTERFACE, tap:NAME, dpdk:DEVICE
    ///
    /// Options stand behind it. With af_packet:INTERFACE,blocks=128 a flood is less work,
    /// but each frame is late by about a millisecond.
    #[arg(
        long = "in",
        verbatim_doc_comment,
        value_name = "PORT",
        requires = "outside",
        conflicts_with_all = ["read", "write", "record"]
    )]
    inside: Option<String>,
    /// The port to the outside
    #[arg(long = "out", value_name = "PORT", requires = "inside")]
    outside: Option<String>,
    /// The cores to run on; default: all that the process may use
    #[arg(long, value_name = "CORE,…", value_delimiter = ',', requires = "inside")]
    cores: Vec<usize>,
    /// What idle cores do
    #[arg(long, value_name = "WAY", default_value = "sleep", value_parser = ["spin", "yield", "sleep"], requires = "inside")]
    idle: String,
    /// Gives a stage's node another number of shards once so many packets have entered;
    /// the chain needs as many lanes
    #[arg(long = "reshard", verbatim_doc_comment, value_name = "STAGE=N@PACKET", requires = "inside")]
    reshards: Vec<String>,
    /// Stops after so many seconds
    #[arg(long = "for", value_name = "SECONDS", requires = "inside")]
    seconds: Option<u64>,
}

impl Args {
    /// The two ports, where the chain is to run live.
    pub(crate) fn ports(&self) -> Option<(&str, &str)> {
        Some((self.inside.as_deref()?, self.outside.as_deref()?))
    }

    /// The cores to run on.
    fn cores(&self) -> Vec<usize> {
        if self.cores.is_empty() { cores() } else { self.cores.clone() }
    }

    fn options(&self, shards: usize, faults: Faults) -> LiveOptions {
        let idle = match self.idle.as_str() {
            "spin" => Idle::SPIN,
            "yield" => Idle::YIELD,
            _ => Idle::SLEEP,
        };
        LiveOptions { cores: self.cores(), idle, shards, faults, ..LiveOptions::default() }
    }
}

/// Runs a chain between two ports until somebody stops it.
pub(crate) fn run(mut spec: ChainSpec, args: &Args, as_json: bool, stop: &AtomicBool) -> Ended {
    let Some((inside, outside)) = args.ports() else { return Ok(()) };
    let there = cores();
    if let Some(core) = args.cores.iter().find(|core| !there.contains(core)) {
        let there = there.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        return fail(
            Failure::Usage,
            format_args!("`--cores {core}`: the cores that there are for it: {there}"),
        );
    }
    let most = spec.shards.unwrap_or(args.cores().len().min(MAX_LANES));
    let open = |text: &str| PortSpec::parse(text).and_then(|port| port.open_queues(most));
    let sides = match open(inside).and_then(|inside| Ok(Sides { inside, outside: open(outside)? })) {
        Ok(sides) => sides,
        Err(error) => return fail(Failure::Files, error),
    };
    let shards = spec.shards_for(sides.inside.len().max(sides.outside.len()));
    let reshards = match args.reshards.iter().map(|text| Reshard::parse(text, &spec)).collect() {
        Ok(reshards) => reshards,
        Err(error) => return fail(Failure::Usage, error),
    };
    tell_panics_briefly();
    let (options, plan) = (args.options(shards, spec.faults), spec.plan);
    let due = Due { crashes: spec.crashes.into(), reshards };
    let stages = spec.stages.into_iter().map(|stage| ChainStage { name: stage.name, nf: stage.nf }).collect();
    let live = match Live::start(plan, stages, sides, &options) {
        Ok(live) => live,
        Err(error) => return fail(Failure::Usage, error),
    };
    // Somebody may wait for this line before he sends traffic; nobody is hurt where it can't be written.
    let _ = writeln!(io::stderr(), "pannier: running between {inside} and {outside}; Ctrl-C stops");
    // A time that no clock reaches never comes.
    let end = args.seconds.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)));
    let (outcome, missed) = look_after(live, due, end, stop);
    report(outcome, &missed, as_json)
}

/// A change of a node's shards.
#[derive(Clone, Copy, Debug)]
struct Reshard {
    node: usize,
    shards: usize,
    packet: u64,
}

impl Reshard {
    fn parse(text: &str, spec: &ChainSpec) -> Result<Self, String> {
        let wrong = || format!("`--reshard {text}` is not STAGE=N@PACKET, as in nat=2@10000");
        let (stage, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (shards, packet) = rest.split_once('@').ok_or_else(wrong)?;
        let shards = shards.parse().map_err(|_| wrong())?;
        let packet = packet.parse().map_err(|_| wrong())?;
        let node = spec.stages.iter().position(|other| other.name == stage);
        let node = node.ok_or_else(|| format!("`--reshard {text}`: no stage is called `{stage}`"))?;
        let lanes = spec.plan.lanes;
        if !(1..=lanes).contains(&shards) {
            return Err(format!(
                "`--reshard {text}`: with {lanes} lanes a node has 1 to {lanes} shards; set lanes"
            ));
        }
        Ok(Reshard { node, shards, packet })
    }
}

/// What is to happen to a chain once packets have entered, in the order of time.
struct Due {
    crashes: VecDeque<Crash>,
    reshards: Vec<Reshard>,
}

/// Looks after a chain until it is to stop. Returns what it came to, and the crashes that never were.
fn look_after(
    mut live: Live,
    mut due: Due,
    end: Option<Instant>,
    stop: &AtomicBool,
) -> (LiveOutcome, VecDeque<Crash>) {
    let over = |live: &Live| {
        stop.load(Ordering::Relaxed)
            || end.is_some_and(|end| Instant::now() >= end)
            || live.port_error().is_some()
            || live.unrecoverable().is_some()
    };
    while !over(&live) {
        live.watch(LOOK_EVERY);
        let entered = live.entered();
        // One that the ring would not survive now is tried again.
        while due.crashes.pop_front_if(|crash| crash.packet <= entered && live.crash(crash.node)).is_some() {}
        for reshard in due.reshards.extract_if(.., |reshard| reshard.packet <= entered) {
            live.set_shards(reshard.node, reshard.shards);
        }
    }
    (live.finish(), due.crashes)
}

fn report(outcome: LiveOutcome, missed: &VecDeque<Crash>, as_json: bool) -> Ended {
    let mut summary = outcome.summary;
    summary.warnings.extend(missed.iter().map(|crash| {
        format!("node {} was to crash after {} packets, and the run ended before", crash.node, crash.packet)
    }));
    let [inside, outside] = &outcome.ports;
    if as_json {
        let mut value = match serde_json::to_value(&summary) {
            Ok(value) => value,
            Err(error) => return fail(Failure::Files, error),
        };
        value["ports"] = json!({ "inside": port_json(inside), "outside": port_json(outside) });
        print(format_args!("{value}\n"))?;
    } else {
        print(format_args!("{summary}{}{}", Port("inside ", inside), Port("outside", outside)))?;
    }
    if !outcome.broken.is_empty() {
        return fail(
            Failure::Promise,
            format_args!("a promise was broken:\n  {}", outcome.broken.join("\n  ")),
        );
    }
    match outcome.port_error {
        Some(error @ PortError { .. }) => fail(Failure::Files, error),
        None => Ok(()),
    }
}

fn port_json(stats: &PortStats) -> serde_json::Value {
    let reasons = |drops: &pannier_runtime::stats::Reasons| serde_json::Value::from_iter(drops.sorted());
    json!({
        "received": stats.received, "sent": stats.sent,
        "receive_drops": reasons(&stats.receive_drops), "send_drops": reasons(&stats.send_drops),
    })
}

struct Port<'a>(&'static str, &'a PortStats);

impl fmt::Display for Port<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Port(side, stats) = self;
        writeln!(f, "{side}   {} received, {} sent", stats.received, stats.sent)?;
        for (what, drops) in [("not received", &stats.receive_drops), ("not sent", &stats.send_drops)] {
            for (reason, count) in drops.sorted() {
                writeln!(f, "            {what}: {count} x {reason}")?;
            }
        }
        Ok(())
    }
}
