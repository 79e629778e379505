//! `pannier sim`: the ring's promises under random schedules.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use pannier_runtime::mutant::Mutant;
use pannier_sim::explore::SMALL_WORLDS;
use pannier_sim::{Failure as Broken, Options, OptionsError, Schedule, Sum, campaign, shrink, timeline};
use serde_json::json;

use crate::{Ended, Failure, fail, print, stop_on_interrupt};

/// Schedules that are played to make a failing one small.
const SHRINK_TRIES: usize = 20_000;

/// Looks for a schedule that breaks a promise of the ring: real nodes, one seed, all faults
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Schedules to run
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Seed of the first; the others have the seeds that follow
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Random steps of each schedule, before the faults stop
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = steps)]
    steps: usize,
    /// Runs schedules for so long, however many they are
    #[arg(long, value_name = "M", value_parser = minutes)]
    minutes: Option<Duration>,
    /// Breaks a rule on purpose, in a build with --features mutants; the command ends well if
    /// that is noticed
    #[arg(long, verbatim_doc_comment, value_name = "NAME", value_parser = mutant)]
    mutant: Option<Mutant>,
    /// Plays one schedule from a file that an earlier run has saved
    #[arg(long, value_name = "FILE", conflicts_with_all = ["runs", "seed", "steps", "minutes", "mutant", "exhaustive", "save", "json"])]
    replay: Option<PathBuf>,
    /// Runs every schedule of some small worlds in place of random ones
    #[arg(long, conflicts_with_all = ["runs", "seed", "steps", "minutes"])]
    exhaustive: bool,
    /// Where a failing schedule is saved
    #[arg(long, default_value = "failing.schedule", value_name = "FILE")]
    save: PathBuf,
    /// Prints the result as one JSON object
    #[arg(long)]
    json: bool,
}

const NO_MUTANTS: &str = "this build has no mutants: `cargo run --release --features mutants -- sim …` has";

fn mutant(name: &str) -> Result<Mutant, String> {
    if cfg!(feature = "mutants") { name.parse() } else { Err(NO_MUTANTS.to_owned()) }
}

/// So many steps fit into memory, and are more than anybody waits for.
fn steps(text: &str) -> Result<usize, String> {
    let steps = text.parse().ok().filter(|steps| (1..=10_000_000).contains(steps));
    steps.ok_or_else(|| "1 to 10000000 steps are possible".to_owned())
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse::<f64>().ok().filter(|minutes| *minutes > 0.0 && *minutes <= 100_000.0);
    let minutes =
        minutes.ok_or_else(|| "a number of minutes above 0 and up to 100000 is needed".to_owned())?;
    Ok(Duration::from_secs_f64(minutes * 60.0))
}

pub(crate) fn sim(args: &Args) -> Ended {
    if let Some(file) = &args.replay {
        return replay(file);
    }
    if args.exhaustive {
        return exhaust(args);
    }
    match random(args) {
        Ok(campaign) => campaign.report(),
        Err(error) => fail(Failure::Usage, error),
    }
}

/// A hidden bar where nobody looks, or where the result is for a machine.
fn bar(args: &Args, length: Option<u64>) -> ProgressBar {
    if args.json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let style = ProgressStyle::with_template("{elapsed_precise} {bar:40} {human_pos} schedules, {msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn random(args: &Args) -> Result<Campaign<'_>, OptionsError> {
    let stop = stop_on_interrupt();
    let start = Instant::now();
    let limit = args.minutes;
    let runs = if limit.is_some() { u64::MAX } else { args.runs };
    let bar = bar(args, limit.is_none().then_some(args.runs));
    let progress = |sum: &Sum| {
        bar.set_position(sum.schedules);
        bar.set_message(format!("{} packets released", HumanCount(sum.released)));
        if limit.is_some_and(|limit| start.elapsed() >= limit) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let options = |seed| Options { mutant: args.mutant, ..Options::random(seed, args.steps) };
    let sum = campaign(args.seed, runs, threads, options, &stop, progress)?;
    bar.finish_and_clear();
    let took = start.elapsed();
    let small = sum.failure.as_ref().map(|failure| shrink(failure, SHRINK_TRIES)).transpose()?;
    Ok(Campaign { args, sum, small, took })
}

/// What a campaign came to.
struct Campaign<'a> {
    args: &'a Args,
    sum: Sum,
    /// The failing schedule, made small.
    small: Option<Broken>,
    took: Duration,
}

impl Campaign<'_> {
    fn per_second(&self) -> f64 {
        self.sum.schedules as f64 / self.took.as_secs_f64().max(1e-9)
    }

    fn report(&self) -> Ended {
        if self.args.json {
            print(self.json())?;
        } else {
            print(self)?;
        }
        let Some(small) = &self.small else {
            let all = self.args.minutes.is_some() || self.sum.schedules == self.args.runs;
            return match self.args.mutant {
                _ if !all => fail(Failure::Interrupted, "stopped before all schedules had run"),
                Some(mutant) => unnoticed(mutant),
                None => Ok(()),
            };
        };
        let save = &self.args.save;
        let saved = match std::fs::write(save, Schedule::of(small)) {
            Ok(()) => format!("`pannier sim --replay {}` plays it again", save.display()),
            Err(error) => format!("{} can't be written: {error}", save.display()),
        };
        match self.args.mutant {
            Some(mutant) => {
                let _ = writeln!(io::stderr(), "{} was noticed; {saved}", mutant.name());
                Ok(())
            }
            None => fail(Failure::Promise, format_args!("a promise was broken; {saved}")),
        }
    }

    fn json(&self) -> String {
        let broken = self.small.as_ref().map(|small| {
            json!({
                "promise": small.broken.promise,
                "what": small.broken.what,
                "options": small.options.to_string(),
                "events": small.events.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        });
        let result = json!({
            "first_seed": self.args.seed,
            "schedules": self.sum.schedules,
            "steps": self.args.steps,
            "released": self.sum.released,
            "recoveries": self.sum.recoveries,
            "seconds": self.took.as_secs_f64(),
            "schedules_per_second": self.per_second(),
            "mutant": self.args.mutant.map(Mutant::name),
            "broken": broken,
        });
        format!("{result}\n")
    }
}

impl fmt::Display for Campaign<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = &self.sum;
        if let Some(small) = &self.small {
            let told =
                timeline(small.options, &small.events).map_or_else(|e| e.to_string(), |told| told.text);
            writeln!(f, "{told}\n{}\noptions {}", small.broken, small.options)?;
            writeln!(f, "{} events", small.events.len())?;
        }
        if self.args.exhaustive {
            return Ok(());
        }
        writeln!(
            f,
            "{} schedules of {} steps from seed {}: {} packets released, {} nodes recovered",
            HumanCount(sum.schedules),
            HumanCount(self.args.steps as u64),
            self.args.seed,
            HumanCount(sum.released),
            HumanCount(sum.recoveries)
        )?;
        let kept = if self.small.is_some() { "a promise was broken" } else { "every promise was kept" };
        writeln!(f, "{kept}; {:.1} s, {:.0} schedules a second", self.took.as_secs_f64(), self.per_second())
    }
}

fn replay(file: &PathBuf) -> Ended {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => return fail(Failure::Files, format_args!("{} can't be read: {error}", file.display())),
    };
    let schedule = match Schedule::parse(&text) {
        Ok(schedule) => schedule,
        Err(error) => return fail(Failure::Usage, format_args!("{}: {error}", file.display())),
    };
    if schedule.options.mutant.is_some() && !cfg!(feature = "mutants") {
        return fail(Failure::Usage, NO_MUTANTS);
    }
    let told = match timeline(schedule.options, &schedule.events) {
        Ok(told) => told,
        Err(error) => return fail(Failure::Usage, error),
    };
    print(&told.text)?;
    match told.broken {
        None => Ok(()),
        Some(broken) => fail(Failure::Promise, format_args!("a promise was broken: {broken}")),
    }
}

fn unnoticed(mutant: Mutant) -> Ended {
    fail(Failure::Promise, format_args!("nobody noticed the mutant {}", mutant.name()))
}

/// Every schedule of the small worlds.
fn exhaust(args: &Args) -> Ended {
    let bar = bar(args, None);
    let mut explored = Vec::new();
    for world in SMALL_WORLDS {
        let options = Options { mutant: args.mutant, ..world.options() };
        let start = Instant::now();
        let ended = match world.explore(options, |so_far| bar.set_position(so_far.states)) {
            Ok(ended) => ended,
            Err(error) => return fail(Failure::Usage, error),
        };
        let took = start.elapsed();
        match ended {
            Ok(seen) if args.json => explored.push(json!({
                "world": world.name, "states": seen.states, "steps": seen.steps, "ends": seen.ends,
                "deepest": seen.deepest, "seconds": took.as_secs_f64(),
            })),
            Ok(seen) => print(format_args!(
                "{}: {} states, {} steps, {} ends, at most {} events; {:.1} s\n",
                world.name,
                HumanCount(seen.states),
                HumanCount(seen.steps),
                HumanCount(seen.ends),
                seen.deepest,
                took.as_secs_f64()
            ))?,
            Err(failure) => {
                bar.finish_and_clear();
                let small = shrink(&failure, SHRINK_TRIES).unwrap_or(*failure);
                let sum = Sum { schedules: 1, ..Sum::default() };
                return Campaign { args, sum, small: Some(small), took }.report();
            }
        }
    }
    bar.finish_and_clear();
    if args.json {
        print(format_args!("{}\n", json!({ "worlds": explored })))?;
    }
    args.mutant.map_or(Ok(()), unnoticed)
}
