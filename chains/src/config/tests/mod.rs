//! Tests of chain files: a small catalogue that belongs to them, good chains, bad chains, and any text at all.

mod good;
mod wrong;

use std::net::Ipv4Addr;
use std::sync::Arc;

use pannier_nf::{NfKind, OptionDoc, OptionError, Options};
use pannier_runtime::{AnyNf, Verdict, nf, state};
use serde::Deserialize;

use super::{ChainError, ChainSpec, Document};

state! {
    /// A state with a large row.
    struct Big {
        /// Rows of 264 bytes.
        rows: u64 => [u8; 256] [16],
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nat {
    external: Ipv4Addr,
    #[serde(default)]
    ports: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Firewall {
    #[serde(default)]
    rules: Vec<String>,
}

fn passing() -> Arc<dyn AnyNf> {
    Arc::new(nf(|_frame, _: &(), _txn| Ok(Verdict::Forward)))
}

fn nat(options: Options) -> Result<Arc<dyn AnyNf>, OptionError> {
    let nat: Nat = options.parse()?;
    if nat.external.is_unspecified() {
        return Err(OptionError::whole("there is nowhere to translate to"));
    }
    match nat.ports.as_deref() {
        None | Some("keep" | "any") => Ok(passing()),
        Some(other) => Err(OptionError::at("ports", format!("`{other}` is no policy"))),
    }
}

fn firewall(options: Options) -> Result<Arc<dyn AnyNf>, OptionError> {
    let firewall: Firewall = options.parse()?;
    match firewall.rules.iter().position(|rule| !rule.starts_with("allow")) {
        None => Ok(passing()),
        Some(at) => Err(OptionError::at(format!("rules[{at}]"), "a rule begins with `allow`")),
    }
}

fn bare(options: Options) -> Result<Arc<dyn AnyNf>, OptionError> {
    options.none()?;
    Ok(passing())
}

/// The network functions of these tests.
pub(crate) static KINDS: &[NfKind] = &[
    NfKind { name: "monitor", summary: "counts", options: &[], build: bare },
    NfKind {
        name: "firewall",
        summary: "filters",
        options: &[OptionDoc {
            name: "rules",
            takes: "list of rules",
            default: Some("[]"),
            help: "first match",
        }],
        build: firewall,
    },
    NfKind {
        name: "nat",
        summary: "translates",
        options: &[
            OptionDoc {
                name: "external",
                takes: "IPv4 address",
                default: None,
                help: "what is seen outside",
            },
            OptionDoc {
                name: "ports",
                takes: "`keep` or `any`",
                default: Some("any"),
                help: "which are taken",
            },
        ],
        build: nat,
    },
    NfKind {
        name: "big",
        summary: "writes much",
        options: &[],
        build: |_| Ok(Arc::new(nf(|_frame, _: &Big, _txn| Ok(Verdict::Forward)))),
    },
];

/// The chain of a chain file's text.
pub(crate) fn file(text: &str) -> Result<ChainSpec, ChainError> {
    Document::from_toml("edge.toml", text, "configs")?.chain_of(KINDS)
}

/// The chain of one line, after settings.
pub(crate) fn line(line: &str, sets: &[&str]) -> Result<ChainSpec, ChainError> {
    let mut document = Document::from_line(line)?;
    for set in sets {
        document.set(set)?;
    }
    document.chain_of(KINDS)
}
