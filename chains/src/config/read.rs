//! From a document to a chain that can run.

use std::path::{Path, PathBuf};

use pannier_nf::{NfKind, OptionError, Options};
use pannier_runtime::limits::{
    Limits, MAX_FRAME, MAX_LANES, MAX_NODES, MAX_PARTITIONS, MAX_UNIT, MAX_UNIT_FRAMES,
};
use pannier_runtime::port::Faults;
use pannier_runtime::ring::{Plan, PlanError};
use pannier_runtime::state::Layout;

use super::crash::numbered;
use super::document::{At, Document, Item, Table, Value};
use super::section::Section;
use super::{ChainError, ChainSpec, Crash, InputSpec, Inside, Side, Source, StageSpec, Undecided, near};

/// The keys of a chain file.
pub(super) const TOP: &[&str] = &[
    "f",
    "partitions",
    "hash_seed",
    "seed",
    "burst",
    "unit",
    "lanes",
    "shards",
    "limits",
    "input",
    "output",
    "faults",
    "crash",
    "stage",
];
/// Those that are tables.
pub(super) const SECTIONS: &[&str] = &["limits", "input", "output", "faults"];

const LIMITS: &[&str] = &[
    "mtu",
    "retained_bytes",
    "waiting",
    "held",
    "repair_after_us",
    "idle_acknowledge_us",
    "sweep_every_us",
    "snapshot_bytes",
];
const STAGE_EXAMPLE: &str = "add a stage: a line `[[stage]]`, and below it `nf = \"monitor\"`";
/// Most packets that are read at once.
const MAX_BURST: u64 = 256;
/// Longest timer, a minute, in microseconds.
const MAX_TIMER: u64 = 60_000_000;

impl Document {
    /// The chain that the document describes, with the network functions of the library.
    ///
    /// # Errors
    /// The first thing that is wrong, where it stands, and the way out.
    pub fn chain(&self) -> Result<ChainSpec, ChainError> {
        self.chain_of(pannier_nf::catalogue::catalogue())
    }

    /// The chain that the document describes, with these network functions.
    ///
    /// # Errors
    /// As [`Document::chain`].
    pub fn chain_of(&self, kinds: &'static [NfKind]) -> Result<ChainSpec, ChainError> {
        let top = Section::open(self, &self.root, "in the chain file", TOP)?;
        let stages = stages(&top, kinds)?;
        let plan = plan(&top, &stages)?;
        Ok(ChainSpec {
            origin: self.name().to_owned(),
            crashes: crashes(&top, &stages, &plan)?,
            plan,
            stages,
            burst: index(top.integer("burst", 1..=MAX_BURST, 32)?),
            shards: shards(&top)?.map(index),
            input: input(&top)?,
            output: output(&top)?,
            faults: faults(&top)?,
        })
    }
}

/// A number that was checked to be small.
fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn stages(top: &Section<'_>, kinds: &'static [NfKind]) -> Result<Vec<StageSpec>, ChainError> {
    let Some(item) = top.get("stage") else {
        let start = At { text: 0, start: 0, end: 0 };
        return Err(top.doc.error(start, "the chain has no stage", STAGE_EXAMPLE));
    };
    let items = match &item.value {
        Value::List(items) if !items.is_empty() => items,
        Value::List(_) => return Err(top.doc.error(item.at, "the chain has no stage", STAGE_EXAMPLE)),
        Value::Table(_) => {
            let help = "write `[[stage]]`, with two brackets: stages are a list";
            return Err(top.wrong_type("stage", "a list of stages", item, help));
        }
        _ => return Err(top.wrong_type("stage", "a list of stages", item, STAGE_EXAMPLE)),
    };
    let mut stages: Vec<StageSpec> = Vec::new();
    for item in items.iter().take(MAX_NODES + 1) {
        let Value::Table(table) = &item.value else {
            return Err(top.wrong_type("stage", "a list of stages", item, STAGE_EXAMPLE));
        };
        let kind = stage_kind(top.doc, table, item, kinds)?;
        let name = stage_name(top.doc, table, kind, &stages)?;
        let options = stage_options(top.doc, table, &name, kind)?;
        let made = (kind.build)(Options(options.clone()));
        let nf = made.map_err(|error| option_error(top.doc, table, item, (&name, kind), error))?;
        stages.push(StageSpec { name, kind, nf, options });
    }
    Ok(stages)
}

fn stage_kind(
    doc: &Document,
    table: &Table,
    item: &Item,
    kinds: &'static [NfKind],
) -> Result<&'static NfKind, ChainError> {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    let Some(nf) = table.get("nf") else {
        let help = format!("add `nf = \"…\"`: the network functions are {}", near::list(&names));
        return Err(doc.error(item.at, "the stage does not say what it is", help));
    };
    let Value::Text(word) = &nf.value else {
        let help = format!("the network functions are {}", near::list(&names));
        return Err(doc.error(
            nf.at,
            format!("`nf` takes a name in quotes, and this is {}", nf.kind()),
            help,
        ));
    };
    kinds.iter().find(|kind| kind.name == word).ok_or_else(|| {
        let help = near::suggest(word, &names, "network functions");
        doc.error(nf.at, format!("there is no network function `{word}`"), help)
    })
}

fn stage_name(
    doc: &Document,
    table: &Table,
    kind: &NfKind,
    before: &[StageSpec],
) -> Result<String, ChainError> {
    let (name, at) = match table.get("name") {
        None => (kind.name, table.get("nf").map(|nf| nf.at)),
        Some(Item { value: Value::Text(name), at }) => (name.as_str(), Some(*at)),
        Some(item) => {
            let problem = format!("`name` takes text, and this is {}", item.kind());
            return Err(doc.error(item.at, problem, "put the name into double quotes"));
        }
    };
    let at = at.unwrap_or_default();
    let plain = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(plain) {
        let help = "use letters, digits, `_` and `-`";
        return Err(doc.error(at, format!("`{}` is no name for a stage", name.escape_debug()), help));
    }
    if TOP.contains(&name) || numbered(name).is_some() {
        let help = format!("settings and crashes use that name for something else: take `{name}_stage`, say");
        return Err(doc.error(at, format!("a stage can't be named `{name}`"), help));
    }
    if before.iter().any(|stage| stage.name == name) {
        let taken = |number: &usize| before.iter().any(|stage| stage.name == format!("{name}{number}"));
        let free = (2..).find(|number| !taken(number)).unwrap_or(2);
        let help = format!("give this one a name of its own: `name = \"{name}{free}\"`");
        return Err(doc.error(at, format!("two stages are named `{name}`"), help));
    }
    Ok(name.to_owned())
}

/// The options of a stage as they were given, each of them known.
fn stage_options(
    doc: &Document,
    table: &Table,
    name: &str,
    kind: &NfKind,
) -> Result<toml::Table, ChainError> {
    let mut options = toml::Table::new();
    for entry in table.entries.iter().filter(|entry| entry.key != "name" && entry.key != "nf") {
        if kind.option(&entry.key).is_none() {
            let known: Vec<&str> = kind.options.iter().map(|option| option.name).collect();
            let help = match TOP.contains(&entry.key.as_str()) {
                true => {
                    format!("`{}` is a key of the chain: put it above the first section or stage", entry.key)
                }
                false => near::suggest(&entry.key, &known, &format!("options of `{}`", kind.name)),
            };
            let problem = format!("unknown option `{}` of stage `{name}`", entry.key);
            return Err(doc.error(entry.key_at, problem, help));
        }
        let value = entry.item.to_toml().map_err(|at| {
            doc.error(at, "this number has more than 63 bits", "no option takes a number as large as that")
        })?;
        options.insert(entry.key.clone(), value);
    }
    Ok(options)
}

/// Gives an error of a network function's options its place, and says what the option takes.
fn option_error(
    doc: &Document,
    table: &Table,
    stage: &Item,
    (name, kind): (&str, &NfKind),
    error: OptionError,
) -> ChainError {
    let Some(key) = error.key else {
        let known: Vec<&str> = kind.options.iter().map(|option| option.name).collect();
        let help = format!("the options of `{}` are {}", kind.name, near::list(&known));
        let at = table.get("nf").map_or(stage.at, |nf| nf.at);
        return doc.error(at, format!("stage `{name}`: {}", error.message), help);
    };
    let option = kind.option(key.split(['.', '[']).next().unwrap_or_default());
    let takes = option.map_or(String::new(), |option| {
        let default = option.default.map_or(String::new(), |default| format!("; the default is {default}"));
        format!("`{}` ({}): {}{default}", option.name, option.takes, option.help)
    });
    let (at, has) = match table.locate(&key) {
        Some(item) => (item.at, ","),
        None => (
            table.get("nf").map_or(stage.at, |nf| nf.at),
            if option.is_some_and(|option| option.default.is_none()) { " lacks its" } else { "," },
        ),
    };
    doc.error(at, format!("stage `{name}`{has} option `{key}`: {}", error.message), takes)
}

fn plan(top: &Section<'_>, stages: &[StageSpec]) -> Result<Plan, ChainError> {
    let layout = Layout::default();
    let f = index(top.integer("f", 0..=MAX_NODES as u64 - 1, 1)?);
    let partitions = top.integer("partitions", 1..=MAX_PARTITIONS as u64, layout.partitions as u64)?;
    let unit = top.integer("unit", 1..=MAX_UNIT_FRAMES as u64, 32)?;
    let (hash_seed, seed) =
        (top.integer("hash_seed", 0..=u64::MAX, layout.hash_seed)?, top.integer("seed", 0..=u64::MAX, 1)?);
    let limits = limits(top)?;
    let mut plan = Plan::new(stages.len(), f).map_err(|error| plan_error(top, &error, None))?;
    plan.layout = Layout { partitions: index(partitions), hash_seed };
    plan.unit_frames = index(unit);
    let shards = shards(top)?.unwrap_or(1);
    plan.lanes = index(top.integer("lanes", shards..=MAX_LANES as u64, shards)?);
    plan.seed = seed;
    plan.limits = limits;
    let largest = stages.iter().map(|stage| stage.nf.largest_delta_in(&plan.layout)).max().unwrap_or(0);
    plan.check(largest).map_err(|error| plan_error(top, &error, Some((plan, largest))))?;
    Ok(plan)
}

/// Shards, where the chain says: with lanes of its own it does.
fn shards(top: &Section<'_>) -> Result<Option<u64>, ChainError> {
    let said = top.get("shards").is_some() || top.get("lanes").is_some();
    let shards = top.integer("shards", 1..=MAX_LANES as u64, 1)?;
    Ok(said.then_some(shards))
}

fn limits(top: &Section<'_>) -> Result<Limits, ChainError> {
    let (section, default) = (top.child("limits", LIMITS)?, Limits::default());
    let count = |key, least, default: usize| section.integer(key, least..=1 << 40, default as u64).map(index);
    let micros =
        |key, nanos: u64| Ok(section.integer(key, 1..=MAX_TIMER, nanos / 1_000)?.saturating_mul(1_000));
    Ok(Limits {
        mtu: index(section.integer("mtu", 64..=MAX_FRAME as u64, default.mtu as u64)?),
        retained_bytes: count("retained_bytes", MAX_UNIT as u64, default.retained_bytes)?,
        waiting: count("waiting", 1, default.waiting)?,
        held: count("held", 1, default.held)?,
        repair_after: micros("repair_after_us", default.repair_after)?,
        idle_acknowledge: micros("idle_acknowledge_us", default.idle_acknowledge)?,
        sweep_every: micros("sweep_every_us", default.sweep_every)?,
        snapshot_bytes: count("snapshot_bytes", 1, default.snapshot_bytes)?,
    })
}

/// Points to what makes a plan impossible, and says which values would do.
fn plan_error(top: &Section<'_>, error: &PlanError, plan: Option<(Plan, usize)>) -> ChainError {
    let limits = top.get("limits").and_then(|item| match &item.value {
        Value::Table(table) => table.get("mtu").map(|mtu| mtu.at),
        _ => None,
    });
    let (at, help) = match error {
        PlanError::NoStage | PlanError::StageCount { .. } => (top.at("stage"), STAGE_EXAMPLE.to_owned()),
        PlanError::TooManyNodes(_) => {
            (top.at("stage"), format!("leave out stages: {MAX_NODES} are possible"))
        }
        PlanError::UnitFrames(_) => (top.at("unit"), "set `unit = 1`".to_owned()),
        PlanError::Lanes(_) => (top.at("lanes"), "set `lanes = 1`".to_owned()),
        PlanError::Partitions(_) => (top.at("partitions"), "set `partitions = 64`".to_owned()),
        PlanError::Mtu { f, .. } => (top.at("f").or(limits), room(*f, plan)),
    };
    top.doc.error(at.or(limits).unwrap_or_default(), error.to_string(), help)
}

/// Which of f, the MTU and the number of partitions would leave room for a transaction.
fn room(f: usize, plan: Option<(Plan, usize)>) -> String {
    let Some((plan, row)) = plan else { return format!("set a smaller f than {f}") };
    let fits = |change: &dyn Fn(&mut Plan)| {
        let mut changed = plan;
        change(&mut changed);
        changed.check(row).is_ok()
    };
    let fits_f = |f| {
        let smaller = plan.with_geometry(plan.stages(), f);
        smaller.is_ok_and(|it| it.check(row).is_ok())
    };
    let mut ways: Vec<String> = Vec::new();
    if let Some(mtu) = (plan.limits.mtu..=MAX_UNIT).find(|mtu| fits(&|it| it.limits.mtu = *mtu)) {
        ways.push(format!("`limits.mtu = {mtu}`"));
    }
    let mut fewer = (1..plan.layout.partitions).rev();
    if let Some(partitions) = fewer.find(|number| fits(&|it| it.layout.partitions = *number)) {
        ways.push(format!("`partitions = {partitions}`"));
    }
    if let Some(f) = (0..f).rev().find(|f| fits_f(*f)) {
        ways.push(format!("`f = {f}`"));
    }
    format!("any of these would do: {}", ways.join(", "))
}

fn input(top: &Section<'_>) -> Result<InputSpec, ChainError> {
    let section = top.child("input", &["read", "inside", "undecided"])?;
    let ways =
        [("outbound", Undecided::Outbound), ("inbound", Undecided::Inbound), ("drop", Undecided::Drop)];
    let undecided = section.choice("undecided", &ways, Undecided::default())?;
    let mut inside = Inside::default();
    if let Some(items) = section.list("inside") {
        inside = Inside::nothing();
        for item in items {
            let text = section.as_text("inside", item)?;
            inside.add(text).map_err(|error| top.doc.place_error(item.at, error))?;
        }
    }
    let mut sources = Vec::new();
    for item in section.list("read").unwrap_or_default() {
        sources.push(source(&section, item)?);
    }
    let mut stdin = sources.iter().enumerate().filter(|(_, source)| source.is_stdin()).skip(1);
    if let (Some((at, _)), Some(items)) = (stdin.next(), section.list("read")) {
        let help = "standard input can be read once: keep one `\"-\"`";
        return Err(top.doc.error(items[at].at, "`read` names standard input twice", help));
    }
    Ok(InputSpec { sources, inside, undecided })
}

fn source(section: &Section<'_>, item: &Item) -> Result<Source, ChainError> {
    let (side, file, at) = match &item.value {
        Value::Text(file) => (None, file.as_str(), item.at),
        Value::Table(table) => {
            let entry = Section::open(section.doc, table, "in an entry of `read`", &["side", "file"])?;
            let sides = [("inside", Some(Side::Inside)), ("outside", Some(Side::Outside))];
            let side = entry.choice("side", &sides, None)?;
            let help = "write `{ side = \"inside\", file = \"lan.pcap\" }`";
            let missing = || section.doc.error(item.at, "the entry of `read` names no `file`", help);
            (side, entry.text("file")?.ok_or_else(missing)?, entry.at("file").unwrap_or(item.at))
        }
        _ => {
            let help = "write `read = \"edge.pcapng\"`, or a list of such names";
            return Err(section.wrong_type("read", "the name of a capture", item, help));
        }
    };
    if file.is_empty() {
        return Err(section.doc.error(at, "the name of the capture is empty", "standard input is `\"-\"`"));
    }
    let base = &section.doc.base;
    let file = if file == "-" || at.text > 0 { PathBuf::from(file) } else { base.join(Path::new(file)) };
    Ok(Source { side, file })
}

fn output(top: &Section<'_>) -> Result<Option<PathBuf>, ChainError> {
    let section = top.child("output", &["write"])?;
    let file = section.text("write")?;
    match (file, section.at("write")) {
        (Some(""), Some(at)) => {
            let help = "leave `write` out to write nothing; standard output is `\"-\"`";
            Err(top.doc.error(at, "the name of the output is empty", help))
        }
        _ => Ok(file.map(PathBuf::from)),
    }
}

fn faults(top: &Section<'_>) -> Result<Faults, ChainError> {
    let section = top.child("faults", &["loss", "duplicate", "reorder", "delay"])?;
    let faults = Faults {
        loss: section.probability("loss")?,
        duplicate: section.probability("duplicate")?,
        reorder: section.probability("reorder")?,
        delay: section.probability("delay")?,
    };
    match section.at("loss") {
        Some(at) if faults.loss >= 1.0 => {
            let help = "take at most 0.99: what is lost is sent again, and has to arrive at last";
            Err(top.doc.error(at, "with `loss = 1` nothing ever arrives and the run has no end", help))
        }
        _ => Ok(faults),
    }
}

fn crashes(top: &Section<'_>, stages: &[StageSpec], plan: &Plan) -> Result<Vec<Crash>, ChainError> {
    let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
    let items = top.list("crash").unwrap_or_default();
    let mut crashes = Vec::new();
    for item in items {
        crashes.push(match &item.value {
            Value::Text(text) => Crash::parse(text, &names, plan.nodes())
                .map_err(|error| top.doc.place_error(item.at, error))?,
            Value::Table(table) => {
                let entry = Section::open(top.doc, table, "in [[crash]]", &["stage", "packet"])?;
                let help =
                    "write `stage = \"nat\"` and `packet = 500`; `stage = \"node3\"` is a node by its number";
                let missing = |key| top.doc.error(item.at, format!("the crash has no `{key}`"), help);
                let stage = entry.text("stage")?.ok_or_else(|| missing("stage"))?;
                let at = entry.at("stage").unwrap_or(item.at);
                let node = Crash::node(stage, &names, plan.nodes())
                    .map_err(|error| top.doc.place_error(at, error))?;
                entry.get("packet").ok_or_else(|| missing("packet"))?;
                Crash { node, packet: entry.integer("packet", 0..=u64::MAX, 500)? }
            }
            _ => {
                let help =
                    "write `crash = [\"nat@500\"]`: the stage, and the number of packets taken in before it";
                return Err(top.wrong_type("crash", "a list of crashes", item, help));
            }
        });
    }
    Crash::check(&crashes, plan.f()).map_err(|(at, error)| top.doc.place_error(items[at].at, error))?;
    crashes.sort_unstable();
    Ok(crashes)
}
