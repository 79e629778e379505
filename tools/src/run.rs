//! `pannier run`: a chain on captures, or live.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use pannier_chains::config::{self, ChainSpec, Document};
use pannier_chains::run::Progress;
use pannier_chains::{Outcome, Run, RunError};
use pannier_replay::{Header, LogError, LogWriter};

use crate::{Ended, Failure, fail, live, print, stop_on_interrupt};

/// Runs a chain on captures, or live between two ports
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A chain file, or a chain on one line: 'firewall -> nat(external=203.0.113.1)'
    chain: String,
    /// A capture to read, '-' for standard input; inside:FILE or outside:FILE says on
    /// which side it was taken. Several are merged by time.
    /// In place of what the chain file reads
    #[arg(long, verbatim_doc_comment, value_name = "[SIDE:]FILE")]
    read: Vec<String>,
    /// The capture to write, '-' for standard output
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Lets a stage's node crash once so many packets were read
    #[arg(long = "crash", value_name = "STAGE@PACKET")]
    crashes: Vec<String>,
    /// What the ring's links do, each with a probability:
    /// loss=0.01,duplicate=0.01,reorder=0.01,delay=0.01
    #[arg(long, verbatim_doc_comment, value_name = "FAULT=P,…", value_delimiter = ',')]
    faults: Vec<String>,
    /// Seed of random numbers and faults: the same seed, the same run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Changes a setting: f=2, limits.mtu=1500, nat.ports=preserve
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Writes a log of what the heads committed and what left the chain; `pannier log` reads it
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Prints the summary as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    live: live::Args,
}

pub(crate) fn run(args: &Args) -> Ended {
    let spec = match read_chain(args) {
        Ok(spec) => spec,
        Err(error) => return fail(Failure::Usage, error),
    };
    if args.live.ports().is_some() {
        return live::run(spec, &args.live, args.json, &stop_on_interrupt());
    }
    let writes_to_stdout = spec.output.as_deref() == Some(Path::new("-"));
    let bar = progress_bar(&spec);
    let shown = bar.clone();
    let log = match args.record.as_deref().map(|path| start_log(path, &spec)).transpose() {
        Ok(log) => log,
        Err(error) => return fail(Failure::Files, error),
    };
    let mut run = Run::from(spec).stop_on(stop_on_interrupt()).progress(move |at: Progress| {
        shown.set_position(at.bytes);
        shown.set_message(at.packets.to_string());
    });
    if let Some(log) = &log {
        run = run.record(Box::new(log.recorders()));
    }
    let ended = run.start();
    bar.finish_and_clear();
    if let Some(Err(error)) = log.map(LogWriter::finish) {
        return fail(Failure::Files, error);
    }
    let outcome = match ended {
        Ok(outcome) => outcome,
        Err(error @ (RunError::Input(_) | RunError::Output(_))) => return fail(Failure::Files, error),
        Err(error) => return fail(Failure::Usage, error),
    };
    report(&outcome, args.json, writes_to_stdout)
}

fn start_log(path: &Path, spec: &ChainSpec) -> Result<LogWriter, LogError> {
    let names = spec.stages.iter().map(|stage| stage.name.as_str());
    LogWriter::create(path, &Header::new(&spec.plan, names))
}

/// The chain, with everything that the command line changes.
fn read_chain(args: &Args) -> Result<ChainSpec, config::ChainError> {
    let mut document = if config::looks_like_line(&args.chain) {
        Document::from_line(&args.chain)?
    } else {
        Document::load(&args.chain)?
    };
    for set in &args.sets {
        document.set(set)?;
    }
    for fault in &args.faults {
        document.set_fault(fault)?;
    }
    if let Some(seed) = args.seed {
        document.set(&format!("seed={seed}"))?;
    }
    let mut spec = document.chain()?;
    for crash in &args.crashes {
        spec.add_crash(crash)?;
    }
    spec.read_from(&args.read)?;
    if let Some(write) = &args.write {
        spec.output = Some(write.clone());
    }
    Ok(spec)
}

/// A bar on a terminal, nothing elsewhere. Its length is that of the captures, where that is known.
fn progress_bar(spec: &ChainSpec) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let sizes = spec.input.sources.iter().map(|source| std::fs::metadata(&source.file).ok().map(|m| m.len()));
    let bar = match sizes.sum::<Option<u64>>().filter(|bytes| *bytes > 0) {
        Some(bytes) => ProgressBar::new(bytes),
        None => ProgressBar::no_length(),
    };
    let style = ProgressStyle::with_template("{elapsed_precise} {bar:40} {msg} packets");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn report(outcome: &Outcome, json: bool, writes_to_stdout: bool) -> Ended {
    let text = if json {
        match serde_json::to_string(&outcome.summary) {
            Ok(text) => text + "\n",
            Err(error) => return fail(Failure::Files, error),
        }
    } else {
        outcome.summary.to_string()
    };
    if writes_to_stdout {
        let _ = write!(io::stderr(), "{text}"); // standard output holds the capture
    } else {
        print(text)?;
    }
    if !outcome.broken.is_empty() {
        return fail(
            Failure::Promise,
            format_args!("a promise was broken:\n  {}", outcome.broken.join("\n  ")),
        );
    }
    match &outcome.input_error {
        Some(error) => fail(Failure::Files, format_args!("the input ended early: {error}")),
        None => Ok(()),
    }
}
