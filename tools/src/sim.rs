//! `pannier sim`: the ring's promises under random schedules.

use std::fmt;
use std::io::{self, IsTerminal};
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
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    runs: u64,
    /// Seed of the first; the others have the seeds that follow
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Random steps of each schedule, before the faults stop
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    steps: usize,
    /// Runs schedules for so long, however many they are
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
    /// Breaks a rule on purpose, in a build with --features mutants; the command ends well if
    /// that is noticed
    #[arg(long, verbatim_doc_comment, value_name = "NAME", value_parser = mutant)]
    mutant: Option<Mutant>,
    /// Plays one schedule from a file that an earlier run has saved
    #[arg(long, value_name = "FILE", conflicts_with_all = ["runs", "minutes", "mutant", "exhaustive"])]
    replay: Option<PathBuf>,
    /// Runs every schedule of some small worlds in place of random ones
    #[arg(long, conflicts_with_all = ["runs", "minutes"])]
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
    let limit =
        args.minutes.map(|minutes| Duration::try_from_secs_f64(minutes * 60.0).unwrap_or(Duration::MAX));
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
            return match self.args.mutant {
                Some(mutant) => {
                    fail(Failure::Promise, format_args!("nobody noticed the mutant {}", mutant.name()))
                }
                None => Ok(()),
            };
        };
        let save = &self.args.save;
        if let Err(error) = std::fs::write(save, Schedule::of(small)) {
            return fail(Failure::Files, format_args!("{} can't be written: {error}", save.display()));
        }
        match self.args.mutant {
            Some(_) => Ok(()),
            None => fail(
                Failure::Promise,
                format_args!(
                    "a promise was broken; `pannier sim --replay {}` plays it again",
                    save.display()
                ),
            ),
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
            writeln!(f, "{} events, made of those of seed {}", small.events.len(), small.options.seed)?;
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

/// Every schedule of the small worlds.
fn exhaust(args: &Args) -> Ended {
    let bar = bar(args, None);
    for world in SMALL_WORLDS {
        let options = Options { mutant: args.mutant, ..world.options() };
        let start = Instant::now();
        match world.explore(options, |so_far| bar.set_position(so_far.states)) {
            Err(error) => return fail(Failure::Usage, error),
            Ok(Ok(explored)) => print(format_args!(
                "{}: {} states, {} steps, {} ends, at most {} events; {:.1} s\n",
                world.name,
                HumanCount(explored.states),
                HumanCount(explored.steps),
                HumanCount(explored.ends),
                explored.deepest,
                start.elapsed().as_secs_f64()
            ))?,
            Ok(Err(failure)) => {
                let sum = Sum { schedules: 1, failure: Some(failure.clone()), ..Sum::default() };
                return Campaign { args, sum, small: Some(*failure), took: start.elapsed() }.report();
            }
        }
    }
    bar.finish_and_clear();
    Ok(())
}
