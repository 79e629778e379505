//! `pannier check`: what a chain would run, and its ring as a picture.

use pannier_chains::{config, draw};

use crate::{Ended, Failure, fail, print};

/// Says what a chain would run, and draws its ring
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A chain file, or a chain on one line: 'firewall -> nat(external=203.0.113.1)'
    chain: String,
    /// Changes a setting: f=2, limits.mtu=1500, nat.ports=preserve
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Prints the ring as a Mermaid flowchart, and nothing else
    #[arg(long)]
    mermaid: bool,
    /// Prints the whole chain file with every default spelt out, and nothing else
    #[arg(long, conflicts_with = "mermaid")]
    toml: bool,
}

pub(crate) fn check(args: &Args) -> Ended {
    let chain = match config::open(&args.chain, &args.sets) {
        Ok(chain) => chain,
        Err(error) => return fail(Failure::Usage, error),
    };
    if args.mermaid {
        print(draw::mermaid(&chain))
    } else if args.toml {
        print(chain.to_toml())
    } else {
        print(draw::describe(&chain))
    }
}
