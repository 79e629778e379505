//! What is measured: a list of cases, each of which shows something that the others do not.

use std::error::Error;
use std::time::Duration;

use pannier_chains::config::{self, ChainSpec};

use super::Args;
use super::live::{Running, Way};
use super::report::{self, Goal, Row, Section};
use super::ring::Ring;
use super::traffic::{Feed, Popularity, Sizes, Traffic};
use crate::{Ended, Failure, fail, print};

const RING: Section = Section {
    name: "ring",
    title: "A node by itself: nanoseconds for a packet at a node with a stage, all nodes in one thread",
    measured: "f = 1",
    reference: Some("f = 0"),
    rate: false,
};

const FAILURES: Section = Section {
    name: "failures",
    title: "More failures: nanoseconds for a packet at a node, less the further replicas' own work",
    measured: "f",
    reference: Some("f = 1"),
    rate: false,
};

const CORES: Section = Section {
    name: "cores",
    title: "Live on cores: million packets a second; the ratio is of the times for a packet",
    measured: "Mpps",
    reference: Some("beside"),
    rate: true,
};

const LATENCY: Section = Section {
    name: "latency",
    title: "Live on two cores: microseconds in the chain, of half of the packets, at half of the load that it takes",
    measured: "f = 1",
    reference: Some("f = 0"),
    rate: false,
};

const RECOVERY: Section = Section {
    name: "recovery",
    title: "A replacement takes a monitor's flows over: milliseconds",
    measured: "minimum, median, maximum",
    reference: None,
    rate: false,
};

const SECTIONS: [Section; 5] = [RING, FAILURES, CORES, LATENCY, RECOVERY];

const MONITOR: &str = "monitor(flows=2000000)";
const FIREWALL: &str = "firewall(connections=2000000)";
const MAZU: &str = "firewall(connections=2000000) -> monitor(flows=2000000) -> nat";

type Measured<T> = Result<T, Box<dyn Error>>;

/// A case, before it is measured.
struct Case {
    section: &'static str,
    name: String,
    traffic: Traffic,
    goal: Option<f64>,
    kind: Kind,
}

/// How it is measured.
enum Kind {
    /// A chain's nodes by hand, with units of so many packets, beside f = 0.
    Ring(String, usize),
    /// Five monitors that survive so many failures, beside one.
    Failures(usize),
    /// A chain on cores, in one way and in another.
    Cores(String, Way, Way),
    /// Packets' time in so many monitors.
    Latency(usize),
    /// A replacement's time, by hand or live.
    Recovery { live: bool },
}

pub(super) fn bench(args: &Args) -> Ended {
    let wanted = |case: &Case| {
        let holds = |word: &String| case.section.contains(word.as_str()) || case.name.contains(word.as_str());
        args.only.is_empty() || args.only.iter().any(holds)
    };
    let cases: Vec<Case> = all().into_iter().filter(wanted).collect();
    if cases.is_empty() {
        let sections = SECTIONS.map(|section| section.name).join(", ");
        return fail(
            Failure::Usage,
            format_args!("no case has these words; there are the sections {sections}"),
        );
    }
    let progress = indicatif::ProgressBar::new(cases.len() as u64);
    let mut rows = Vec::new();
    for mut case in cases {
        if args.quick {
            case.traffic.flows = case.traffic.flows.min(2_000);
        }
        match case.measure(args.rounds(), args.length()) {
            Ok(row) => rows.push(row),
            Err(error) => return fail(Failure::Usage, format_args!("{}: {error}", case.name)),
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    let write = if args.json { report::json } else { report::text };
    print(write(&SECTIONS, &rows, args.rounds()))
}

/// A NAT that has addresses enough for every flow.
fn nat() -> String {
    let external: Vec<String> = (1..=32).map(|host| format!("\"203.0.113.{host}\"")).collect();
    format!("nat(mappings=2000000, external=[{}])", external.join(", "))
}

/// A chain of so many monitors.
fn monitors(count: usize) -> String {
    let stages: Vec<String> = (1..=count).map(|number| format!("m{number}:{MONITOR}")).collect();
    stages.join(" -> ")
}

fn all() -> Vec<Case> {
    [ring(), failures(), cores(), latency(), recovery()].into_iter().flatten().collect()
}

fn ring() -> Vec<Case> {
    let few = Traffic::uniform(64, 1_000);
    let many = Traffic::uniform(64, 60_000);
    let most = Traffic::uniform(64, 1_000_000);
    let zipf = Traffic { popularity: Popularity::Zipf, ..many };
    let imix = Traffic { sizes: Sizes::Imix, ..zipf };
    let (large, medium) = (Traffic::uniform(256, 60_000), Traffic::uniform(252, 1_000));
    let gen_nf = |bytes: usize| format!("gen(size={bytes})");
    let mazu = MAZU.replace("nat", &nat());
    let case = |name: &str, chain: String, traffic: Traffic, unit: usize, goal: Option<f64>| Case {
        section: RING.name,
        name: format!("{name}, unit {unit}"),
        traffic,
        goal,
        kind: Kind::Ring(chain, unit),
    };
    let mut cases = vec![
        case("nat", nat(), few, 32, Some(1.05)),
        case("nat", nat(), many, 32, Some(1.05)),
        case("nat", nat(), most, 32, Some(1.05)),
        case("nat", nat(), many, 1, None),
        case("firewall", FIREWALL.to_owned(), few, 32, Some(1.02)),
        case("firewall", FIREWALL.to_owned(), many, 32, Some(1.02)),
        case("monitor", MONITOR.to_owned(), few, 32, Some(1.25)),
        case("monitor", MONITOR.to_owned(), many, 32, Some(1.25)),
        case("monitor", MONITOR.to_owned(), zipf, 32, Some(1.25)),
        case("monitor", MONITOR.to_owned(), most, 32, Some(1.25)),
        case("monitor", MONITOR.to_owned(), large, 32, Some(1.25)),
        case("monitor", MONITOR.to_owned(), few, 1, None),
        case("firewall -> monitor -> nat", mazu, imix, 32, None),
        case("gen 16 B", gen_nf(16), large, 32, None),
        case("gen 64 B", gen_nf(64), large, 32, None),
        case("gen 256 B", gen_nf(256), large, 32, None),
        case("gen 64 B", gen_nf(64), large, 1, None),
    ];
    cases.extend((2..=5).map(|count| case(&format!("{count} monitors"), monitors(count), medium, 32, None)));
    cases.push(case("3 monitors", monitors(3), medium, 1, None));
    cases
}

fn failures() -> Vec<Case> {
    let case = |f: usize| Case {
        section: FAILURES.name,
        name: format!("5 monitors, unit 32, f = {f}"),
        traffic: Traffic::uniform(252, 1_000),
        goal: (f == 4).then_some(1.03),
        kind: Kind::Failures(f),
    };
    (2..=4).map(case).collect()
}

fn cores() -> Vec<Case> {
    let case = |name: String, traffic, goal, chain: String, way: Way, beside: Way| Case {
        section: CORES.name,
        name,
        traffic,
        goal,
        kind: Kind::Cores(chain, way, beside),
    };
    let medium = Traffic::uniform(252, 1_000);
    let (few, many) = (Traffic::uniform(64, 1_000), Traffic::uniform(64, 60_000));
    let one_core = |f: usize, unit: usize| Way { f, unit, shards: 1, cores: vec![0] };
    let shards = |shards: usize, unit: usize| Way { f: 1, unit, shards, cores: vec![0, 1] };
    let mut cases = Vec::new();
    for unit in [1, 32] {
        let name = format!("3 monitors on one core, unit {unit}, f = 1 beside f = 0");
        let goal = (unit == 32).then_some(1.6);
        cases.push(case(name, medium, goal, monitors(3), one_core(1, unit), one_core(0, unit)));
    }
    for (unit, sharing) in [(1, 1), (8, 1), (32, 1), (32, 2)] {
        let what = if sharing == 1 { "one counter in parts" } else { "one counter, sharing level 2" };
        let name = format!("monitor, {what}, unit {unit}, 2 shards beside 1");
        let chain = format!("monitor(flows=2000000, sharing={sharing})");
        cases.push(case(name, few, Some(1.0), chain, shards(2, unit), shards(1, unit)));
    }
    let name = "nat, unit 32, 2 shards beside 1".to_owned();
    cases.push(case(name, many, Some(1.0), nat(), shards(2, 32), shards(1, 32)));
    cases
}

fn latency() -> Vec<Case> {
    let case = |count: usize| Case {
        section: LATENCY.name,
        name: format!("{count} monitors, unit 32"),
        traffic: Traffic::uniform(256, 1_000),
        goal: None,
        kind: Kind::Latency(count),
    };
    (2..=5).map(case).collect()
}

fn recovery() -> Vec<Case> {
    let case = |live: bool, flows: u32, goal: f64| Case {
        section: RECOVERY.name,
        name: if live { "live, crash to caught up" } else { "by hand, the copy alone" }.to_owned(),
        traffic: Traffic::uniform(64, flows),
        goal: Some(goal),
        kind: Kind::Recovery { live },
    };
    let sizes = [(100_000, 10.0), (1_000_000, 100.0)];
    [false, true].into_iter().flat_map(|live| sizes.map(|(flows, goal)| case(live, flows, goal))).collect()
}

impl Case {
    fn measure(&self, rounds: u32, length: Duration) -> Measured<Row> {
        let feed = Feed::new(self.traffic);
        let (rounds, notes) = match &self.kind {
            Kind::Ring(chain, unit) => self.ring(chain, *unit, &feed, rounds, length)?,
            Kind::Failures(f) => self.failures(*f, &feed, rounds, length)?,
            Kind::Cores(chain, way, beside) => self.cores(chain, [way, beside], &feed, rounds, length)?,
            Kind::Latency(count) => self.latency(*count, &feed, rounds, length)?,
            Kind::Recovery { live } => self.recovery(*live, &feed, rounds)?,
        };
        Ok(Row {
            section: self.section,
            case: self.name.clone(),
            traffic: self.traffic.to_string(),
            rounds,
            goal: self.goal.map(Goal),
            notes,
        })
    }

    fn ring(
        &self,
        chain: &str,
        unit: usize,
        feed: &Feed,
        rounds: u32,
        length: Duration,
    ) -> Measured<Figures> {
        let spec = config::parse_line(chain)?;
        let ring = |f| Ring::new(&spec, f, unit, feed, self.traffic.flows);
        let (mut with, mut without) = (ring(1)?, ring(0)?);
        let costs: Vec<_> = (0..rounds).map(|_| (with.run(length), without.run(length))).collect();
        let (last, beside) = costs[costs.len() - 1];
        let mut notes = vec![("B/packet", last.unit_bytes), ("Mpps", last.mpps), ("of", beside.mpps)];
        if last.replica > 0.0 {
            notes.push(("replica ns", last.replica));
        }
        Ok((costs.iter().map(|(with, without)| (with.node, Some(without.node))).collect(), notes))
    }

    fn failures(&self, f: usize, feed: &Feed, rounds: u32, length: Duration) -> Measured<Figures> {
        let (five, one) = (config::parse_line(&monitors(5))?, config::parse_line(MONITOR)?);
        let ring = |spec: &ChainSpec, f| Ring::new(spec, f, 32, feed, self.traffic.flows);
        let (mut with, mut beside, mut alone) = (ring(&five, f)?, ring(&five, 1)?, ring(&one, 1)?);
        let costs: Vec<_> =
            (0..rounds).map(|_| [&mut with, &mut beside, &mut alone].map(|ring| ring.run(length))).collect();
        let [last, _, alone] = costs[costs.len() - 1];
        let notes = vec![("B/packet", last.unit_bytes), ("all ns", last.node), ("replica ns", alone.replica)];
        let less = (f - 1) as f64;
        let figures =
            costs.iter().map(|[with, beside, alone]| (with.node - less * alone.replica, Some(beside.node)));
        Ok((figures.collect(), notes))
    }

    fn cores(
        &self,
        chain: &str,
        ways: [&Way; 2],
        feed: &Feed,
        rounds: u32,
        length: Duration,
    ) -> Measured<Figures> {
        let spec = config::parse_line(chain)?;
        let mut figures = Vec::new();
        for _ in 0..rounds {
            let [way, beside] = ways.map(|way| {
                Running::start(&spec, way, feed, self.traffic.flows).map(|mut running| running.mpps(length))
            });
            figures.push((way?, Some(beside?)));
        }
        Ok((figures, Vec::new()))
    }

    fn latency(&self, count: usize, feed: &Feed, rounds: u32, length: Duration) -> Measured<Figures> {
        let spec = config::parse_line(&monitors(count))?;
        let (mut figures, mut last) = (Vec::new(), [0.0; 4]);
        for _ in 0..rounds {
            let mut measure = |f| {
                let way = Way { f, unit: 32, shards: 1, cores: vec![0, 1] };
                let mut running = Running::start(&spec, &way, feed, self.traffic.flows)?;
                let half = running.mpps(length) / 2.0;
                let [median, most, all] = running.latency(half, length);
                last = [median, most, all, half];
                Ok::<_, Box<dyn Error>>(median)
            };
            let without = measure(0)?;
            figures.push((measure(1)?, Some(without)));
        }
        Ok((figures, vec![("99 %", last[1]), ("99.9 %", last[2]), ("Mpps", last[3])]))
    }

    fn recovery(&self, live: bool, feed: &Feed, rounds: u32) -> Measured<Figures> {
        let (spec, flows) = (config::parse_line(MONITOR)?, self.traffic.flows);
        let took: Vec<(f64, u64)> = if live {
            let way = Way { f: 1, unit: 32, shards: 1, cores: vec![0, 1] };
            let mut running = Running::start(&spec, &way, feed, flows)?;
            (0..rounds).map(|round| running.recover(round as usize % 2)).collect()
        } else {
            let mut ring = Ring::new(&spec, 1, 32, feed, flows)?;
            let recover = |round| ring.recover(round as usize % 2);
            (0..rounds).map(recover).map(|(took, bytes)| (took.as_secs_f64() * 1e3, bytes as u64)).collect()
        };
        let megabytes = took.iter().map(|(_, bytes)| *bytes as f64 / 1e6).fold(0.0, f64::max);
        Ok((took.into_iter().map(|(millis, _)| (millis, None)).collect(), vec![("MB", megabytes)]))
    }
}

/// What a case came to: round by round, and besides.
type Figures = (Vec<(f64, Option<f64>)>, Vec<(&'static str, f64)>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_can_be_measured() {
        // Goal: no case fails in the middle of a long run. Method: each on little traffic, for a moment.
        let mut names = Vec::new();
        for mut case in all() {
            names.push((case.section, case.name.clone(), case.traffic.to_string()));
            case.traffic.flows = case.traffic.flows.min(500);
            let row = case.measure(1, Duration::from_millis(1)).expect("it can be measured");
            let sound = |&(measured, _): &(f64, Option<f64>)| measured.is_finite();
            assert!(row.rounds.len() == 1 && row.rounds.iter().all(sound), "{}: {row:?}", case.name);
        }
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "two cases have one name");
    }
}
