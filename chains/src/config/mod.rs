//! Chain files: what a chain consists of, how it runs, and where its packets come from and go to.
//!
//! ```toml
//! f = 1                        # failures to survive, 0 ..= 63
//! partitions = 64              # of each store, 1 ..= 64
//! hash_seed = 7                # places keys in partitions
//! seed = 1                     # of random numbers and faults
//! burst = 32                   # packets read at once, 1 ..= 256
//! unit = 32                    # packets committed together, 1 ..= 64
//! shards = 2                   # that run a node of a live chain, 1 ..= 8; not said: one a queue of the ports, 1 with `lanes`
//! lanes = 2                    # that flows are spread over: as many shards as a node can have; `shards` at least
//! crash = ["nat@500"]          # nodes that crash, and after how many packets
//!
//! [limits]                     # bounds of each node
//! mtu = 9018
//! retained_bytes = 16777216
//! waiting = 4096
//! held = 16384
//! repair_after_us = 1000
//! idle_acknowledge_us = 1000
//! sweep_every_us = 15625
//! snapshot_bytes = 1048576     # of state in one message to a replacement, about
//!
//! [input]
//! read = "edge.pcapng"         # from the chain file's folder; "-" is standard input; a list of files and of
//!                              # { side = "inside", file = "lan.pcap" }
//! inside = ["192.168.0.0/16"]  # prefixes and MAC addresses; else the private ranges
//! undecided = "outbound"       # or "inbound" or "drop": packets that are neither from nor to the inside
//!
//! [output]
//! write = "output.pcapng"      # from the current directory; "-" is standard output
//!
//! [faults]                     # of ring links, probabilities
//! loss = 0.01
//! duplicate = 0.01
//! reorder = 0.01
//! delay = 0.01
//!
//! [[stage]]
//! name = "edge"                # else the network function's name
//! nf = "firewall"
//! rules = []                   # the network function's own options
//! ```
//! Every key has a default but `nf`. [`open`] reads a file or a chain on one line; [`Document`] takes settings before
//! it is understood ([`Document::set`]), and network functions of your own ([`Document::chain_of`]).

mod address;
mod crash;
mod document;
mod error;
mod line;
mod near;
mod read;
mod section;
#[cfg(test)]
pub(crate) mod tests;
mod write;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pannier_nf::NfKind;
use pannier_runtime::AnyNf;
use pannier_runtime::limits::MAX_LANES;
use pannier_runtime::packet::Direction;
use pannier_runtime::port::Faults;
use pannier_runtime::ring::Plan;

pub use address::Inside;
pub use crash::Crash;
use document::At;
pub use document::Document;
pub use error::{ChainError, Place};
pub use line::looks_like_line;

/// Longest chain file in bytes.
const MAX_FILE: u64 = 4 << 20;

/// A chain that can run: everything is checked, and the network functions are made.
#[derive(Clone, Debug)]
pub struct ChainSpec {
    /// Where it was written: the chain file's path, or `chain` for a chain on one line.
    pub origin: String,
    /// The ring: stages, f, layout, unit, limits and seed.
    pub plan: Plan,
    /// The stages in outbound order.
    pub stages: Vec<StageSpec>,
    /// Packets that are read at once.
    pub burst: usize,
    /// Shards of each node of a live chain, at its start, where the chain says; see [`ChainSpec::shards_for`].
    pub shards: Option<usize>,
    /// Where packets come from.
    pub input: InputSpec,
    /// The capture that is written; `-` is standard output.
    pub output: Option<PathBuf>,
    /// What ring links do wrong.
    pub faults: Faults,
    /// Which nodes crash, and when, in the order of time.
    pub crashes: Vec<Crash>,
}

impl ChainSpec {
    /// How many shards a node of the live chain has between ports of so many queues: one for each, where the chain does not say;
    /// then it has as many lanes from now on.
    pub fn shards_for(&mut self, queues: usize) -> usize {
        if self.shards.is_none() {
            self.plan.lanes = queues.clamp(1, MAX_LANES);
        }
        self.shards.unwrap_or(self.plan.lanes)
    }
}

/// One stage.
#[derive(Clone, Debug)]
pub struct StageSpec {
    /// Its name, which no other stage has.
    pub name: String,
    /// What it is.
    pub kind: &'static NfKind,
    /// The network function, made from the options.
    pub nf: Arc<dyn AnyNf>,
    /// The options as they were given.
    pub options: toml::Table,
}

/// Where packets come from and which way they go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputSpec {
    /// The captures, merged by time. None where the chain does not say.
    pub sources: Vec<Source>,
    /// Who is inside.
    pub inside: Inside,
    /// What becomes of packets that are neither from nor to the inside.
    pub undecided: Undecided,
}

/// One capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The side on which all of it was captured, where one is given: then addresses decide nothing.
    pub side: Option<Side>,
    /// The file; `-` is standard input.
    pub file: PathBuf,
}

impl Source {
    /// Reads a file's name, `inside:FILE` or `outside:FILE`, as `--read` has it.
    ///
    /// # Errors
    /// The file's name is empty.
    pub fn parse(text: &str) -> Result<Self, ChainError> {
        let (side, file) = match text.split_once(':') {
            Some(("inside", file)) => (Some(Side::Inside), file),
            Some(("outside", file)) => (Some(Side::Outside), file),
            _ => (None, text),
        };
        if file.is_empty() {
            let help = "write `edge.pcapng` or `inside:lan.pcap`; standard input is `-`";
            let error = ChainError::new("the name of the capture is empty", help);
            return Err(error.or_at(Place::whole("--read", text)));
        }
        Ok(Source { side, file: PathBuf::from(file) })
    }

    /// Whether it is standard input.
    pub fn is_stdin(&self) -> bool {
        self.file == Path::new("-")
    }
}

/// A side of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where outbound packets come from.
    Inside,
    /// Where inbound packets come from.
    Outside,
}

impl Side {
    /// The way of packets that come from this side.
    pub fn direction(self) -> Direction {
        match self {
            Side::Inside => Direction::Outbound,
            Side::Outside => Direction::Inbound,
        }
    }
}

/// What becomes of packets whose direction the addresses don't tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Undecided {
    /// They pass as outbound ones.
    #[default]
    Outbound,
    /// They pass as inbound ones.
    Inbound,
    /// They are dropped.
    Drop,
}

impl Undecided {
    /// The way of such packets; `None` where they are dropped.
    pub fn direction(self) -> Option<Direction> {
        match self {
            Undecided::Outbound => Some(Direction::Outbound),
            Undecided::Inbound => Some(Direction::Inbound),
            Undecided::Drop => None,
        }
    }
}

impl ChainSpec {
    /// Adds a crash, `nat@500`: see [`Crash::parse`].
    ///
    /// # Errors
    /// There is no such stage or node, or the ring would not survive it.
    pub fn add_crash(&mut self, text: &str) -> Result<(), ChainError> {
        let place = || Place::whole("--crash", text);
        let names: Vec<&str> = self.stages.iter().map(|stage| stage.name.as_str()).collect();
        let crash = Crash::parse(text, &names, self.plan.nodes()).map_err(|error| error.or_at(place()))?;
        self.crashes.push(crash);
        if let Err((_, error)) = Crash::check(&self.crashes, self.plan.f()) {
            self.crashes.pop();
            return Err(error.or_at(place()));
        }
        self.crashes.sort_unstable();
        Ok(())
    }

    /// Reads these captures in place of those of the chain file: see [`Source::parse`]. Where there are none, the chain
    /// file's stay.
    ///
    /// # Errors
    /// A name is empty, or standard input is named twice.
    pub fn read_from<S: AsRef<str>>(&mut self, captures: &[S]) -> Result<(), ChainError> {
        let mut sources: Vec<Source> = Vec::new();
        for text in captures.iter().map(AsRef::as_ref) {
            let source = Source::parse(text)?;
            if source.is_stdin() && sources.iter().any(Source::is_stdin) {
                let help = "standard input can be read once: keep one `-`";
                let error = ChainError::new("`--read` names standard input twice", help);
                return Err(error.or_at(Place::whole("--read", text)));
            }
            sources.push(source);
        }
        if !sources.is_empty() {
            self.input.sources = sources;
        }
        Ok(())
    }

    /// What a node is called: its stage's name, or `node3` where it has none.
    pub fn node_name(&self, node: usize) -> String {
        self.stages.get(node).map_or_else(|| format!("node{node}"), |stage| stage.name.clone())
    }
}

impl Document {
    /// The document of a chain file. Relative input paths start from the file's folder.
    ///
    /// # Errors
    /// The file can't be read, or it is not TOML.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ChainError> {
        let path = path.as_ref();
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
        if let Err(error) = read {
            return Err(unreadable(path, &error));
        }
        let shown = path.display();
        if bytes.len() as u64 > MAX_FILE {
            let help = "is it a capture? A chain file names captures in `[input]`";
            return Err(ChainError::new(format!("`{shown}` is too long for a chain file"), help));
        }
        let text = as_text(&shown.to_string(), bytes)?;
        Document::from_toml(&shown.to_string(), &text, path.parent().unwrap_or(Path::new("")))
    }
}

/// A chain file's bytes as text.
fn as_text(shown: &str, bytes: Vec<u8>) -> Result<String, ChainError> {
    let line = |at: usize| bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    let help = "a chain file is TOML in UTF-8; captures belong into its `[input]`, or behind `--read`";
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        let problem = format!("`{shown}` is no text: byte {at}, in line {}, is NUL", line(at));
        return Err(ChainError::new(problem, help));
    }
    let (lossy, at) = match std::str::from_utf8(&bytes) {
        Ok(_) => (String::new(), 0),
        Err(error) => (String::from_utf8_lossy(&bytes).into_owned(), error.valid_up_to()),
    };
    let line = line(at);
    String::from_utf8(bytes).map_err(|_| {
        let problem = format!("`{shown}` is no text: byte {at}, in line {line}, is not UTF-8");
        ChainError::new(problem, help).or_at(Place::find(
            shown,
            &lossy,
            At { text: 0, start: at, end: at + 1 },
        ))
    })
}

fn unreadable(path: &Path, error: &std::io::Error) -> ChainError {
    let shown = path.display();
    if error.kind() != std::io::ErrorKind::NotFound {
        let help = "name a chain file, or write a chain on one line: `firewall -> nat(external=203.0.113.1)`";
        return ChainError::new(format!("the chain file `{shown}` can't be read: {error}"), help);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(1_000).flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| Path::new(name).extension().is_some_and(|extension| extension == "toml"));
    names.sort_unstable();
    let wanted = path.file_name().unwrap_or_default().to_string_lossy();
    let functions = pannier_nf::catalogue::catalogue().iter().map(|kind| kind.name);
    if let Some(help) = line_hint(&path.to_string_lossy()) {
        return ChainError::new(format!("`{shown}` is no chain file and no chain on one line"), help);
    }
    let help =
        match (near::nearest(&wanted, names.iter().map(String::as_str)), near::nearest(&wanted, functions)) {
            (Some(name), _) => format!("did you mean `{}`?", path.with_file_name(name).display()),
            (None, Some(nf)) => format!("did you mean the network function `{nf}`?"),
            (None, None) => {
                "a chain can also be written on one line: `firewall -> nat(external=203.0.113.1)`".to_owned()
            }
        };
    ChainError::new(format!("no such chain file `{shown}`"), help)
}

/// What to write where a text looks like a chain on one line with its arrows left out, or with settings in it.
fn line_hint(text: &str) -> Option<String> {
    let (settings, stages): (Vec<&str>, Vec<&str>) = text.split_whitespace().partition(|w| w.contains('='));
    if !stages.iter().all(|stage| pannier_nf::find(stage).is_some()) {
        return None;
    }
    let chain = if stages.is_empty() { "monitor".to_owned() } else { stages.join(" -> ") };
    match (settings.as_slice(), stages.as_slice()) {
        ([], _) => (stages.len() > 1).then(|| format!("stages have `->` between them: `{chain}`")),
        (_, _) => {
            let sets: Vec<String> = settings.iter().map(|setting| format!(" --set {setting}")).collect();
            Some(format!("settings stand behind the chain: `'{chain}'{}`", sets.concat()))
        }
    }
}

/// Reads a chain file.
///
/// # Errors
/// As [`Document::load`] and [`Document::chain`].
pub fn load(path: impl AsRef<Path>) -> Result<ChainSpec, ChainError> {
    Document::load(path)?.chain()
}

/// Reads a chain on one line, with defaults for everything else.
///
/// # Errors
/// As [`Document::from_line`] and [`Document::chain`].
pub fn parse_line(line: &str) -> Result<ChainSpec, ChainError> {
    Document::from_line(line)?.chain()
}

/// Reads what stands for a chain on a command line, a file or a chain on one line, and changes the settings `sets`
/// (`key=value`).
///
/// # Errors
/// As [`Document::load`], [`Document::from_line`], [`Document::set`] and [`Document::chain`].
pub fn open<S: AsRef<str>>(chain: &str, sets: &[S]) -> Result<ChainSpec, ChainError> {
    let mut document =
        if looks_like_line(chain) { Document::from_line(chain)? } else { Document::load(chain)? };
    for set in sets {
        document.set(set.as_ref())?;
    }
    document.chain()
}
