//! Chains that are possible: every key, defaults, both forms, settings, and the way back to text.

use std::path::Path;

use proptest::prelude::*;

use pannier_runtime::limits::Limits;
use pannier_runtime::packet::Direction;
use pannier_runtime::state::Layout;

use super::super::*;
use super::{file, line};

const FULL: &str = r#"
f = 2
partitions = 16
hash_seed = 18_446_744_073_709_551_615
seed = 0x2a
burst = 8
unit = 4
shards = 1
crash = ["edge@500", "node1@600"]

[limits]
mtu = 1500
retained_bytes = 100000
waiting = 10
held = 20
repair_after_us = 5
idle_acknowledge_us = 6
sweep_every_us = 7
snapshot_bytes = 8

[input]
read = ["a.pcap", { side = "outside", file = "/b.pcap" }, "-"]
inside = ["192.168.0.0/16", "02:00:00:00:00:01"]
undecided = "drop"

[output]
write = "out.pcapng"

[faults]
loss = 0.25
duplicate = 1
reorder = 0.5
delay = 0.125

[[stage]]
name = "edge"
nf = "firewall"
rules = ["allow all", "allow \"me\""]

[[stage]]
nf = "nat"
external = "203.0.113.1"
ports = "keep"
"#;

#[test]
fn every_key_of_a_chain_file_arrives() {
    // Goal: no key is forgotten. Method: a file with all of them, each compared.
    let chain = file(FULL).expect("complete");
    let plan = &chain.plan;
    assert_eq!((plan.stages(), plan.f(), plan.nodes(), plan.unit_frames, plan.seed), (2, 2, 3, 4, 42));
    assert_eq!(plan.layout, Layout { partitions: 16, hash_seed: u64::MAX });
    let limits = Limits {
        mtu: 1500,
        retained_bytes: 100_000,
        waiting: 10,
        held: 20,
        repair_after: 5_000,
        idle_acknowledge: 6_000,
        sweep_every: 7_000,
        snapshot_bytes: 8,
    };
    assert_eq!((plan.limits, chain.burst, chain.origin.as_str()), (limits, 8, "edge.toml"));
    assert_eq!(chain.faults, Faults { loss: 0.25, duplicate: 1.0, reorder: 0.5, delay: 0.125 });
    assert_eq!(chain.crashes, [Crash { packet: 500, node: 0 }, Crash { packet: 600, node: 1 }]);
    assert_eq!(chain.output.as_deref(), Some(Path::new("out.pcapng")));
    let input = &chain.input;
    let files: Vec<&Path> = input.sources.iter().map(|source| source.file.as_path()).collect();
    assert_eq!(files, [Path::new("configs/a.pcap"), Path::new("/b.pcap"), Path::new("-")]);
    assert_eq!(input.sources[1].side.map(Side::direction), Some(Direction::Inbound));
    assert!(input.sources[2].is_stdin() && input.undecided.direction().is_none());
    assert_eq!(input.inside.to_string(), "192.168.0.0/16, 02:00:00:00:00:01");
    let stages: Vec<(&str, &str)> = chain.stages.iter().map(|s| (s.name.as_str(), s.kind.name)).collect();
    assert_eq!(stages, [("edge", "firewall"), ("nat", "nat")]);
    assert_eq!(chain.stages[1].options["ports"].as_str(), Some("keep"));
    assert_eq!((chain.node_name(1), chain.node_name(2)), ("nat".to_owned(), "node2".to_owned()));
}

#[test]
fn one_stage_is_enough() {
    // Goal: defaults for everything. Method: the shortest file and the shortest line, against the documented values.
    for chain in [file("[[stage]]\nnf = \"monitor\"").expect("file"), line(" monitor ", &[]).expect("line")] {
        let plan = &chain.plan;
        assert_eq!((plan.f(), plan.unit_frames, plan.seed, chain.burst), (1, 32, 1, 32));
        assert_eq!((plan.layout, plan.limits), (Layout::default(), Limits::default()));
        assert_eq!(chain.input, InputSpec::default());
        assert!(chain.output.is_none() && chain.crashes.is_empty() && chain.faults == Faults::NONE);
    }
}

#[test]
fn a_line_says_what_a_file_says() {
    // Goal: both forms mean the same. Method: one chain in both, compared as the text that nothing is left out of.
    let stages = "[[stage]]\nname = 'edge'\nnf = 'firewall'\nrules = ['allow tcp', 'allow (all), ok']\n\
                  [[stage]]\nnf = 'monitor'\n[[stage]]\nnf = 'nat'\nexternal = '203.0.113.1'\nports = 'keep'";
    let written = "edge:firewall( rules=[allow tcp, \"allow (all), ok\",], )->monitor() -> \
                   nat(external=203.0.113.1, ports='keep')";
    assert_eq!(line(written, &[]).expect("line").to_toml(), file(stages).expect("file").to_toml());
}

#[test]
fn plain_words_are_numbers_where_they_look_like_numbers() {
    // Goal: no surprise in types. Method: options of several kinds in the document itself.
    let values =
        "a=1, b=-2.5, c=true, d=10.0.0.1, e=2001:db8::1, f=2020-01-01, g=[[1], {x=1, y=[]}], h=\"\", i=nan";
    let document = Document::from_line(&format!("nat({values})")).expect("well formed");
    let stage = document.root.get("stage").and_then(|item| item.to_toml().ok()).expect("a value");
    let expected: toml::Table = "nf = 'nat'\na = 1\nb = -2.5\nc = true\nd = '10.0.0.1'\ne = '2001:db8::1'\n\
        f = '2020-01-01'\ng = [[1], { x = 1, y = [] }]\nh = ''\ni = 'nan'"
        .parse()
        .expect("TOML");
    assert_eq!(stage, toml::Value::Array(vec![toml::Value::Table(expected)]));
}

#[test]
fn settings_change_what_is_written_and_add_what_is_not() {
    // Goal: any key can be set. Method: settings of each form on a line and on a file, then the values.
    let sets = [
        "f=2",
        " limits.mtu = 1500",
        "input.undecided=drop",
        "input.inside=[10.0.0.0/8]",
        "input.read=a, b.pcap",
        "nat.ports=any",
        "nat.external = \"203.0.113.9\"",
        "crash=[nat@5]",
        "output.write=x=y.pcap",
        "faults.loss=0.5",
        "f=3",
    ];
    let chain = line("monitor -> nat(external=203.0.113.1, ports=keep)", &sets).expect("possible");
    assert_eq!((chain.plan.f(), chain.plan.limits.mtu, chain.faults.loss), (3, 1500, 0.5));
    assert_eq!(
        (chain.input.undecided, chain.input.inside.to_string()),
        (Undecided::Drop, "10.0.0.0/8".to_owned())
    );
    assert_eq!(chain.input.sources[0].file, Path::new("a, b.pcap"));
    assert_eq!(chain.output.as_deref(), Some(Path::new("x=y.pcap")));
    assert_eq!(chain.stages[1].options["ports"].as_str(), Some("any"));
    assert_eq!(chain.stages[1].options["external"].as_str(), Some("203.0.113.9"));
    assert_eq!(chain.crashes, [Crash { packet: 5, node: 1 }]);
    let mut document = Document::from_toml("edge.toml", FULL, "configs").expect("TOML");
    document.set("edge.rules=[allow one]").expect("a stage by its name");
    let chain = document.chain_of(super::KINDS).expect("possible");
    assert_eq!(chain.stages[0].options["rules"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_chain_written_out_is_the_same_chain() {
    // Goal: logs keep the whole chain. Method: text to chain to text and back, for several chains.
    let base = file(FULL).expect("complete").to_toml();
    let again = Document::from_toml("edge.toml", &base, "").and_then(|it| it.chain_of(super::KINDS));
    let again = again.unwrap_or_else(|error| panic!("{base}\n{error}"));
    assert_eq!(again.to_toml(), base);
    assert_eq!(format!("{again:?}"), format!("{:?}", file(FULL).expect("complete")));
    let short = line("monitor -> n:nat(external=1.2.3.4)", &["input.inside=[]"]).expect("line").to_toml();
    let again =
        Document::from_toml("x", &short, "").and_then(|it| it.chain_of(super::KINDS)).expect("its own text");
    assert_eq!(again.to_toml(), short);
}

#[test]
fn files_and_lines_are_told_apart() {
    // Goal: one argument for both. Method: lines, names of files, and a file whose name looks like a line.
    assert!(looks_like_line("a -> b") && looks_like_line("nat(external=1.2.3.4)"));
    assert!(!looks_like_line("edge.toml") && !looks_like_line("configs/edge") && !looks_like_line(""));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("edge (old).toml");
    std::fs::write(&path, "[[stage]]\nnf = 'monitor'\n").expect("written");
    let path = path.to_string_lossy();
    assert!(!looks_like_line(&path) && looks_like_line(&format!("{path}x")));
    let document = Document::load(path.as_ref()).expect("readable");
    assert_eq!(document.base, folder.path());
    assert_eq!(document.chain_of(super::KINDS).expect("possible").origin, path.as_ref());
}

#[test]
fn crashes_can_be_added_to_a_chain() {
    // Goal: `--crash` on a command line. Method: possible and impossible ones; the latter leave nothing behind.
    let mut chain = line("monitor -> nat(external=1.2.3.4)", &["f=2"]).expect("possible");
    chain.add_crash("node2@9").expect("a replica");
    chain.add_crash("monitor@7").expect("a stage");
    assert!(chain.add_crash("nta@1").is_err());
    chain.add_crash("nat@9").expect("two at once");
    let error = chain.add_crash("monitor@9").expect_err("three at once");
    assert!(error.help.contains("set `f = 3` or more"), "{error}");
    assert_eq!(
        chain.crashes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["node0@7", "node1@9", "node2@9"]
    );
}

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z_-]{0,3}[a-z]".prop_filter("taken", |name| !read::TOP.contains(&name.as_str()))
}

proptest! {
    #[test]
    fn any_chain_survives_the_way_to_text_and_back(
        names in prop::collection::btree_set(name(), 1..5),
        f in 0u64..5,
        numbers in (1u64..=64, any::<u64>(), any::<u64>(), 1u64..=256, 1u64..=64),
        (loss, rule) in (0.0f64..0.99, any::<String>().prop_map(|text| format!("allow {text}"))),
        shards in prop::option::of(1u64..=8),
    ) {
        // Goal: nothing is lost on the way. Method: chains from random parts, written, read and written again.
        let (partitions, hash_seed, seed, burst, unit) = numbers;
        let rule = toml::Value::String(rule);
        let mut text = format!("f={f}\npartitions={partitions}\nhash_seed={hash_seed}\nseed={seed}\nburst={burst}\n");
        text.push_str(&format!("unit={unit}\nfaults.loss={}\n", toml::Value::Float(loss)));
        shards.iter().for_each(|shards| text.insert_str(0, &format!("shards={shards}\n")));
        for name in &names {
            text.push_str(&format!("[[stage]]\nname='{name}'\nnf='firewall'\nrules=[{rule}]\n"));
        }
        let chain = file(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let again = file(&chain.to_toml()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(format!("{chain:?}"), format!("{again:?}"));
        prop_assert_eq!((again.plan.seed, again.plan.layout.hash_seed, again.faults.loss), (seed, hash_seed, loss));
    }
}

#[test]
fn a_live_chain_has_a_shard_for_each_queue_unless_it_says_otherwise() {
    // Goal: who says nothing gets all queues, who says something that. Method: what is said, the queues, shards and lanes.
    for (said, queues, shards, lanes) in [
        ("", 1, 1, 1),
        ("", 4, 4, 4),
        ("", 100, 8, 8),
        ("shards = 2", 4, 2, 2),
        ("shards = 2\nlanes = 4", 1, 2, 4),
        ("lanes = 4", 4, 1, 4),
    ] {
        let mut spec = file(&format!("{said}\n[[stage]]\nnf = 'monitor'\n")).expect("a chain");
        assert_eq!(
            (spec.shards_for(queues), spec.plan.lanes),
            (shards, lanes),
            "`{said}` with {queues} queues"
        );
    }
}
