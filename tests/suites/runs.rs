//! Runs on captures: what a person at the command line relies on.

use std::path::PathBuf;

use pannier_chains::config::{self, ChainSpec};
use pannier_chains::{Outcome, Run, RunError};
use pannier_runtime::clock::Nanos;

fn configs() -> PathBuf {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    PathBuf::from(manifest).join("../chains/configs")
}

/// The edge chain on its capture, with settings changed, without crash and output.
fn edge(sets: &[&str]) -> ChainSpec {
    let mut all = vec!["crash=[]"];
    all.extend(sets);
    let mut spec =
        config::open(&configs().join("edge.toml").display().to_string(), &all).expect("the edge chain");
    spec.output = None;
    spec
}

fn run(spec: ChainSpec) -> Outcome {
    let outcome = Run::from(spec).start().expect("the run begins");
    assert_eq!(outcome.broken, Vec::<String>::new());
    assert!(outcome.summary.packets.is_balanced() && outcome.summary.packets.held == 0);
    outcome
}

#[test]
fn answers_do_not_meet_their_question_on_the_way() {
    // Goal: the size of bursts and units shows in no result. Method: the edge capture with the smallest and largest.
    let small = run(edge(&["burst=1", "unit=1"]));
    let large = run(edge(&["burst=256", "unit=64"]));
    assert_eq!(small.summary.packets, large.summary.packets);
    assert_eq!(small.summary.drops, large.summary.drops);
    // The monitor keeps no times; those of the others may differ by what one turn stands for.
    assert_eq!(small.summary.stages[1], large.summary.stages[1]);
    assert_eq!(small.summary.drops["nat"]["no_mapping"], 24, "the scans in the capture, and no answer");
}

#[test]
fn a_crash_takes_effect_where_it_is_asked_for() {
    // Goal: each packet number is a crash of its own. Method: neighbouring numbers inside one burst, frames in flight.
    let at = |packet: u64| {
        let mut spec = edge(&["burst=64"]);
        spec.add_crash(&format!("nat@{packet}")).expect("one crash");
        run(spec).summary.recoveries
    };
    for packet in [0, 1, 777, 778, 3_996] {
        let recoveries = at(packet);
        assert_eq!(recoveries.len(), 1, "nat@{packet}");
        assert!(recoveries[0].at_packet.abs_diff(packet) <= 2, "nat@{packet}: {recoveries:?}");
    }
}

#[test]
fn a_crash_too_many_is_put_off_and_said() {
    // Goal: the ring is never asked for more than it promises. Method: three crashes at neighbouring packets with f = 1.
    let mut spec = edge(&[]);
    for crash in ["nat@1000", "monitor@1001", "firewall@1002"] {
        spec.add_crash(crash).expect("one after the other");
    }
    let summary = run(spec).summary;
    assert_eq!(summary.recoveries.len(), 3);
    let lost: u64 = summary.recoveries.iter().map(|recovery| recovery.frames_lost).sum();
    assert_eq!(summary.packets.lost, lost);
}

#[test]
fn a_run_never_overwrites_its_input() {
    // Goal: a capture is safe. Method: write to the capture itself, by another path and by a link.
    let folder = tempfile::tempdir().expect("a folder");
    let capture = folder.path().join("in.pcapng");
    std::fs::copy(configs().join("edge.pcapng"), &capture).expect("a copy");
    let before = std::fs::read(&capture).expect("the copy");
    let link = folder.path().join("link.pcapng");
    std::fs::hard_link(&capture, &link).expect("a link");
    for output in [capture.clone(), folder.path().join("./in.pcapng"), link] {
        let mut spec = edge(&[]);
        spec.input.sources[0].file = capture.clone();
        spec.output = Some(output);
        assert!(matches!(Run::from(spec).start(), Err(RunError::SameFile(_))));
    }
    assert_eq!(std::fs::read(&capture).expect("still there"), before);
}

#[test]
fn slow_timers_and_eager_repair_come_to_rest() {
    // Goal: any timer that can be set ends. Method: a minute and a microsecond, on links that double and lose.
    let minute = "limits.idle_acknowledge_us=60000000";
    let eager = ["limits.repair_after_us=1", "limits.idle_acknowledge_us=1", "faults.duplicate=0.5"];
    for sets in
        [&[minute, "faults.loss=0.1", "burst=2"][..], &[minute, "limits.repair_after_us=60000000"], &eager]
    {
        let mut all = sets.to_vec();
        all.push("f=2");
        let mut spec = edge(&all);
        spec.add_crash("nat@2000").expect("one crash");
        run(spec);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    // Goal: a failure can be run again. Method: two runs with every fault and a crash; capture and summary are equal.
    let folder = tempfile::tempdir().expect("a folder");
    let faults = ["faults.loss=0.02", "faults.duplicate=0.02", "faults.reorder=0.02", "faults.delay=0.02"];
    let once = |name: &str| {
        let mut spec = edge(&faults);
        spec.output = Some(folder.path().join(name));
        spec.add_crash("monitor@1500").expect("one crash");
        let mut summary = run(spec).summary;
        let micros: Vec<Nanos> =
            summary.recoveries.iter_mut().map(|r| std::mem::take(&mut r.micros)).collect();
        assert_eq!(micros.len(), 1);
        (summary, std::fs::read(folder.path().join(name)).expect("written"))
    };
    assert!(once("a.pcapng") == once("b.pcapng"), "two runs of one seed differ");
}
