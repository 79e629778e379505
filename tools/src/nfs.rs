//! `pannier nfs`: which network functions there are, with their options and state.

use std::fmt::Write as _;

use pannier_nf::NfKind;
use pannier_nf::catalogue::{catalogue, find};

use crate::{Ended, Failure, fail, print};

/// Lists the network functions, their options and their state
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this one
    name: Option<String>,
}

pub(crate) fn nfs(args: &Args) -> Ended {
    let Some(name) = &args.name else {
        return print(catalogue().iter().map(describe).collect::<Vec<_>>().join("\n"));
    };
    match find(name) {
        Some(kind) => print(describe(kind)),
        None => {
            let names: Vec<&str> = catalogue().iter().map(|kind| kind.name).collect();
            fail(Failure::Usage, format_args!("no network function `{name}`; there are {}", names.join(", ")))
        }
    }
}

fn describe(kind: &NfKind) -> String {
    let mut text = format!("{}: {}\n", kind.name, kind.summary);
    for option in kind.options {
        let default =
            option.default.map_or_else(|| "required".to_owned(), |value| format!("default {value}"));
        // Writing to a string can't fail.
        let _ = writeln!(text, "  {} ({}; {default})\n      {}", option.name, option.takes, option.help);
    }
    match kind.tables() {
        None => text.push_str("  state: depends on its options\n"),
        Some(tables) => {
            for t in tables {
                let _ = writeln!(
                    text,
                    "  state {}: up to {} rows of {} + {} bytes",
                    t.name, t.capacity, t.key_bytes, t.value_bytes
                );
            }
        }
    }
    text
}
