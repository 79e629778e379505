//! `pannier bench`: what the ring costs, each figure beside its reference, measured in turn.

mod cases;
mod chain;
mod live;
mod report;
mod ring;
mod spread;
mod traffic;

use std::time::Duration;

use crate::Ended;

/// Measures what the ring costs, beside the same without it
///
/// With a chain: the chain on its capture, from memory, with and without replication.
/// Without: a list of cases on made-up traffic, each beside its reference and its goal.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// A chain file, or a chain on one line
    chain: Option<String>,
    /// A capture to read, '-' for standard input; inside:FILE or outside:FILE says on
    /// which side it was taken. Several are merged by time.
    /// In place of what the chain file reads
    #[arg(long, verbatim_doc_comment, value_name = "[SIDE:]FILE", requires = "chain")]
    read: Vec<String>,
    /// Changes a setting: f=2, unit=1
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "chain")]
    sets: Vec<String>,
    /// Only cases whose section or name holds one of these words
    #[arg(long, value_name = "WORD", num_args = 1.., conflicts_with = "chain")]
    only: Vec<String>,
    /// Pairs of measurements, with and without each; 9, with --quick 1
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: Option<u32>,
    /// Milliseconds of each measurement; 300, without a chain 100, with --quick 5
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    millis: Option<u64>,
    /// Measures shortly and with few flows: to see that it works, not what it costs
    #[arg(long)]
    quick: bool,
    /// Prints the result as one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { 9 })
    }

    fn length(&self) -> Duration {
        let default = match (self.quick, &self.chain) {
            (true, _) => 5,
            (false, Some(_)) => 300,
            (false, None) => 100,
        };
        Duration::from_millis(self.millis.unwrap_or(default))
    }
}

pub(crate) fn bench(args: &Args) -> Ended {
    match &args.chain {
        Some(chain) => chain::bench(chain, args),
        None => cases::bench(args),
    }
}
