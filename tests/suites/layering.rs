//! The one-way arrows: between the modules of the runtime, and between the crates.

use crate::source::{Finding, Source, Token, closing_brace, expect_none, files, sources};
use std::collections::BTreeMap;

const RUNTIME: &str = "runtime/src/";

/// A module uses itself and modules of a strictly lower level.
const LEVELS: &[(usize, &[&str])] = &[
    (0, &["limits", "clock", "crc", "entropy", "sync", "stats", "mutant"]),
    (1, &["wire"]),
    (2, &["packet", "dependency"]),
    (3, &["state", "port"]),
    (4, &["txn"]),
    (5, &["nf", "piggyback"]),
    (6, &["ring"]),
    (7, &[NODE]),
    (8, &["shard"]),
    (9, &[TESTING]),
];
/// Stands above the rest of `ring`, which only hands its name on.
const NODE: &str = "ring::node";
/// May use everything; nothing but tests may use it.
const TESTING: &str = "testing";

/// The crates by folder, and the folders whose crates each may name as a dependency of any kind.
const ARROWS: &[(&str, &[&str])] = &[
    ("runtime/dpdk-sys", &[]),
    ("runtime", &["runtime/dpdk-sys"]),
    ("nf-lib", &["runtime"]),
    ("chains", &["nf-lib", "runtime"]),
    ("replay", &["runtime"]),
    ("tests/sim", &["runtime"]),
    ("tests", &["tests/sim", "chains", "replay", "nf-lib", "runtime"]),
    ("tests/fuzz", &["tests"]), // the same targets under libFuzzer
    (TOOLS, &["tests/sim", "chains", "replay", "nf-lib", "runtime"]),
];
/// Every crate below this folder follows the folder's arrows.
const TOOLS: &str = "tools";

#[test]
fn runtime_modules_use_lower_ones_only() {
    // Goal: the runtime can be read bottom up. Method: scan all paths in its code and compare levels.
    let runtime: Vec<Source> =
        sources().into_iter().filter(|source| source.path.starts_with(RUNTIME)).collect();
    assert!(!runtime.is_empty(), "no source of the runtime was found");
    let findings: Vec<Finding> = runtime.iter().flat_map(check_layers).collect();
    expect_none(&findings);
}

#[test]
fn crates_depend_in_one_direction_only() {
    // Goal: no crate knows one that is built upon it. Method: read all manifests and compare with the arrows.
    let manifests = files(|path| path.ends_with("Cargo.toml"));
    assert!(manifests.len() >= 8, "only {} manifests were found", manifests.len());
    let broken = check_arrows(&manifests);
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// All uses in one file of the runtime that go upward, sideways, or through the crate root.
fn check_layers(source: &Source) -> Vec<Finding> {
    let home = module_path(&source.path);
    let Some(own) = module_of(&home) else { return Vec::new() };
    if own == TESTING || source.is_test_file() {
        return Vec::new();
    }
    let Some(level) = level_of(&own) else { return vec![source.finding(0, without_level(&own))] };
    let mut findings = Vec::new();
    for (at, path, handed_on) in references(source, &home) {
        let Some(used) =
            module_of(&path).filter(|used| !used.starts_with(|c: char| c.is_uppercase() || c == '*'))
        else {
            findings.push(source.finding(at, "the crate root is no module: name the one that it comes from"));
            continue;
        };
        let only_named = handed_on && used == NODE && home == ["ring"];
        let what = match level_of(&used) {
            _ if used == own || only_named => continue,
            Some(below) if below < level => continue,
            Some(other) => format!(
                "`{own}` of level {level} uses `{used}` of level {other}: only lower levels may be used"
            ),
            None => without_level(&used),
        };
        findings.push(source.finding(at, what));
    }
    findings
}

fn without_level(module: &str) -> String {
    format!("module `{module}` has no level: give it one in LEVELS of {}", file!())
}

fn level_of(module: &str) -> Option<usize> {
    LEVELS.iter().find(|(_, modules)| modules.contains(&module)).map(|(level, _)| *level)
}

/// The part of a module path that has a level.
fn module_of(path: &[String]) -> Option<String> {
    match path {
        [ring, node, ..] if format!("{ring}::{node}") == NODE => Some(NODE.to_owned()),
        [module, ..] => Some(module.clone()),
        [] => None,
    }
}

/// The module path that a file of the runtime holds; the crate root has none.
fn module_path(file: &str) -> Vec<String> {
    let inside = file.trim_start_matches(RUNTIME).trim_end_matches(".rs");
    let mut path: Vec<String> = inside.split('/').map(str::to_owned).collect();
    path.pop_if(|last| ["mod", "lib"].contains(&last.as_str()));
    path
}

/// All paths in the code that lead out of a module: where they stand, where they lead to, seen from the crate
/// root, and whether a `pub use` hands the name on.
fn references(source: &Source, home: &[String]) -> Vec<(usize, Vec<String>, bool)> {
    let tokens = source.tokens();
    let tests = source.test_code();
    let text = |i: usize| tokens.get(i).map_or("", |token| token.text);
    let mut inline = Inline::default();
    let mut found = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        inline.enter(&tokens, i);
        let continues = i > 0 && ["::", ".", "mod", "fn"].contains(&text(i - 1));
        if continues || text(i + 1) != "::" || tests.iter().any(|range| range.contains(&token.at)) {
            continue;
        }
        let here = || home.iter().cloned().chain(inline.names()).collect::<Vec<_>>();
        let base = match token.text {
            "crate" => Vec::new(),
            "super" => here().split_last().map_or_else(Vec::new, |(_, above)| above.to_vec()),
            "self" => here(),
            "node" if here() == ["ring"] => vec!["ring".to_owned(), "node".to_owned()],
            _ => continue,
        };
        let handed_on = is_handed_on(&tokens, i);
        for path in branches(&tokens, i + 2, base).0 {
            let is_macro = path.len() == 1 && text(i + 3) == "!";
            if !is_macro {
                found.push((token.at, path, handed_on));
            }
        }
    }
    found
}

/// The inline modules around the place of a walk over the tokens.
#[derive(Default)]
struct Inline(Vec<(String, usize)>);

impl Inline {
    fn enter(&mut self, tokens: &[Token<'_>], i: usize) {
        self.0.retain(|(_, end)| i < *end);
        if let [module, name, brace, ..] = &tokens[i..]
            && (module.text, brace.text) == ("mod", "{")
            && let Some(end) = closing_brace(tokens, i + 2)
        {
            self.0.push((name.text.to_owned(), end));
        }
    }

    fn names(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, _)| name.clone())
    }
}

/// All paths that the tree of a path from token `i` on spells, each behind `base`, and the token behind the tree.
fn branches(tokens: &[Token<'_>], mut i: usize, mut base: Vec<String>) -> (Vec<Vec<String>>, usize) {
    let text = |i: usize| tokens.get(i).map_or("", |token| token.text);
    loop {
        match text(i) {
            "{" => break,
            "super" => drop(base.pop()),
            "self" => {}
            word => base.push(word.to_owned()),
        }
        if text(i + 1) != "::" {
            return (vec![base], i + 1);
        }
        i += 2;
    }
    let mut paths = Vec::new();
    i += 1;
    while i < tokens.len() && text(i) != "}" {
        let (more, mut behind) = branches(tokens, i, base.clone());
        paths.extend(more);
        while !["", ",", "}"].contains(&text(behind)) {
            behind += 1;
        }
        i = if text(behind) == "," { behind + 1 } else { behind };
    }
    (paths, i + 1)
}

/// Whether the statement around a token is a `pub use`.
fn is_handed_on(tokens: &[Token<'_>], i: usize) -> bool {
    let before = tokens[..i].iter().rev().take_while(|token| ![";", "{", "}"].contains(&token.text));
    let words: Vec<&str> = before.map(|token| token.text).collect();
    words.first() == Some(&"use") && words.contains(&"pub")
}

/// Every dependency between our own crates that no arrow allows.
fn check_arrows(manifests: &[(String, String)]) -> Vec<String> {
    let mut crates = BTreeMap::new();
    for (path, text) in manifests {
        let manifest: toml::Table = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
        let folder = path.trim_end_matches("Cargo.toml").trim_end_matches('/').to_owned();
        if let Some(name) =
            manifest.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str)
        {
            crates.insert(name.to_owned(), (folder, manifest));
        }
    }
    let mut broken = Vec::new();
    for (name, (folder, manifest)) in &crates {
        let Some(allowed) = arrows_from(folder) else {
            broken.push(format!(
                "crate `{name}` in `{folder}` has no arrows: give it some in ARROWS of {}",
                file!()
            ));
            continue;
        };
        for used in dependencies(manifest) {
            if let Some((target, _)) = crates.get(&used)
                && !allowed.contains(&target.as_str())
            {
                broken.push(format!(
                    "crate `{name}` must not depend on `{used}`: {folder} stands beside or below {target}"
                ));
            }
        }
    }
    broken
}

fn arrows_from(folder: &str) -> Option<&'static [&'static str]> {
    let folder = if folder.starts_with("tools/") { TOOLS } else { folder };
    ARROWS.iter().find(|(from, _)| *from == folder).map(|(_, to)| *to)
}

/// The package names of a manifest's dependencies: normal, for tests, for builds, for single targets.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let mut names = Vec::new();
    for (key, value) in manifest {
        let Some(table) = value.as_table() else { continue };
        if ["dependencies", "dev-dependencies", "build-dependencies"].contains(&key.as_str()) {
            let package = |(name, value): (&String, &toml::Value)| {
                value.get("package").and_then(toml::Value::as_str).unwrap_or(name).to_owned()
            };
            names.extend(table.iter().map(package));
        } else if key == "target" {
            names.extend(table.values().filter_map(toml::Value::as_table).flat_map(dependencies));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(file: &str, text: &str) -> Vec<String> {
        let source = Source::new(&format!("{RUNTIME}{file}"), text);
        check_layers(&source).iter().map(|finding| finding.what.clone()).collect()
    }

    #[test]
    fn upward_and_sideways_uses_are_found() {
        // Goal: the checker can fail. Method: each way of naming a module, planted where it must not stand.
        let planted = [
            ("state/table.rs", "use crate::txn::Txn;", "`txn` of level 4"),
            ("state/mod.rs", "fn f() { crate::port::open() }", "`port` of level 3"),
            ("state/table.rs", "use crate::{wire::Flow, ring::head::Head};", "`ring` of level 6"),
            ("state/table.rs", "use crate::{wire::{self, A as B, C}, nf::Nf, packet};", "`nf` of level 5"),
            ("txn/lock.rs", "use super::super::ring::Head;", "`ring` of level 6"),
            ("txn/mod.rs", "use super::shard;", "`shard` of level 8"),
            ("ring/head.rs", "use super::node::Node;", "`ring::node` of level 7"),
            ("ring/head.rs", "use super::{link, node::Node};", "`ring::node` of level 7"),
            ("ring/mod.rs", "use node::Node;", "`ring::node` of level 7"),
            ("ring/mod.rs", "fn f() { self::node::accept() }", "`ring::node` of level 7"),
            ("limits.rs", "const A: usize = crate::clock::B;", "`clock` of level 0"),
            ("wire/mod.rs", "mod inner { use super::super::state::Table; }", "`state` of level 3"),
            ("state/mod.rs", "macro_rules! m { () => { $crate::txn::new() } }", "`txn` of level 4"),
            ("nf.rs", "#[cfg(feature = \"testing\")]\nuse crate::testing::frames;", "`testing` of level 9"),
        ];
        for (file, text, words) in planted {
            let found = findings(file, text);
            assert!(found.len() == 1 && found[0].contains(words), "{file}: {text}: {found:?}");
        }
    }

    #[test]
    fn unknown_modules_and_the_crate_root_are_found() {
        // Goal: a new module asks for its level. Method: an unknown file, an unknown use, names from the root.
        for (file, text, words) in [
            ("metrics/mod.rs", "", "`metrics` has no level"),
            ("state/mod.rs", "use crate::metrics::Sum;", "`metrics` has no level"),
            ("state/mod.rs", "use crate::Packet;", "crate root"),
            ("state/mod.rs", "use crate::*;", "crate root"),
            ("state/mod.rs", "use super::{self};", "crate root"),
        ] {
            let found = findings(file, text);
            assert!(found.len() == 1 && found[0].contains(words), "{file}: {text}: {found:?}");
        }
    }

    #[test]
    fn downward_uses_pass() {
        // Goal: what is right is let through. Method: the allowed neighbours of the planted violations.
        for (file, text) in [
            ("lib.rs", "pub use crate::shard::Shard; pub mod ring;"),
            (
                "txn/lock.rs",
                "use super::Txn; use crate::state::{Table, store::Store}; use super::super::packet::Frame;",
            ),
            (
                "ring/mod.rs",
                "mod head;\npub mod node;\npub use node::Node;\npub use self::node::{Input, Output};",
            ),
            ("ring/node.rs", "use super::head::Head; use crate::ring::link;"),
            ("ring/node/accept.rs", "use super::Node; use crate::nf::Verdict;"),
            ("shard/mod.rs", "use crate::ring::node::Node; pub(in crate::shard) fn f() {}"),
            ("wire/mod.rs", "mod inner { use super::Flow; mod deeper { use super::super::Flow; } }"),
            ("wire/tcp.rs", "//! See crate::ring.\nconst A: &str = \"crate::ring::node\"; // crate::shard\n"),
            (
                "wire/tcp.rs",
                "fn f() { crate::bail!(1) }\n#[cfg(test)]\nmod tests { use crate::shard::Shard; }",
            ),
            ("txn/tests.rs", "use crate::shard::Shard;"),
            ("testing/mod.rs", "use crate::shard::Shard;"),
        ] {
            assert_eq!(findings(file, text), Vec::<String>::new(), "{file}: {text}");
        }
    }

    fn manifest(folder: &str, name: &str, rest: &str) -> (String, String) {
        (format!("{folder}/Cargo.toml"), format!("[package]\nname = \"{name}\"\n{rest}"))
    }

    #[test]
    fn arrows_in_the_wrong_direction_are_found() {
        // Goal: no table of a manifest is overlooked. Method: plant one wrong dependency at a time in each.
        for (folder, wrong) in [
            ("runtime", "[dependencies]\np-nf.workspace = true"),
            ("nf-lib", "[dev-dependencies]\np-chains = { path = \"../chains\" }"),
            ("chains", "[build-dependencies]\np-tools.workspace = true"),
            ("replay", "[target.'cfg(unix)'.dependencies]\np-nf.workspace = true"),
            ("tools/xtask", "[dependencies]\nother = { package = \"p-tests\", path = \"../tests\" }"),
            ("tests", "[dependencies]\np-tools.workspace = true"),
            ("tests", "[dependencies]\np-dpdk-sys.workspace = true"),
            ("extras", ""),
        ] {
            let manifests = [
                ("Cargo.toml".to_owned(), "[workspace]\nmembers = []".to_owned()),
                manifest("runtime/dpdk-sys", "p-dpdk-sys", ""),
                manifest("nf-lib", "p-nf", "[dependencies]\nserde.workspace = true"),
                manifest("chains", "p-chains", "[dependencies]\np-nf.workspace = true"),
                manifest("tools", "p-tools", "[dependencies]\np-chains.workspace = true"),
                manifest("tests", "p-tests", "[dependencies]\np-chains.workspace = true"),
                manifest(folder, "wrong", wrong),
            ];
            assert_eq!(check_arrows(&manifests[..6]), Vec::<String>::new());
            assert_eq!(check_arrows(&manifests).len(), 1, "{folder}: {wrong}");
        }
    }
}
