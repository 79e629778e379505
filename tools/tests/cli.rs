//! The command line as a person or a script meets it: exit statuses, JSON, captures that end early, standard streams.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn configs() -> PathBuf {
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo runs the tests"))
        .join("../chains/configs")
}

fn pannier(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pannier"));
    command.args(args).stdin(Stdio::null());
    command
}

fn edge(args: &[&str]) -> Output {
    let chain = configs().join("edge.toml");
    let mut command = pannier(&["run"]);
    command.arg(chain).args(["--json", "--write", "/dev/null"]).args(args);
    command.output().expect("the command starts")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn assert_balanced(summary: &Value) {
    let number = |key: &str| summary["packets"][key].as_u64().expect("a number");
    let came = number("in") + number("generated") + number("duplicated");
    assert_eq!(came, number("released") + number("dropped") + number("held") + number("lost"));
    assert_eq!(number("held"), 0);
    for stage in summary["stages"].as_array().expect("stages") {
        for replica in stage["replicas"].as_array().expect("replicas") {
            assert_eq!(replica["digest"], stage["digest"]);
        }
    }
}

#[test]
fn the_exit_status_says_how_a_run_ended() {
    // Goal: scripts can tell. Method: one command for each documented status that a sound Pannier can give.
    let status = |output: Output| output.status.code();
    assert_eq!(status(edge(&[])), Some(0));
    assert_eq!(status(edge(&["--crash", "nobody@5"])), Some(2));
    assert_eq!(status(edge(&["--set", "nat.portz=preserve"])), Some(2));
    assert_eq!(status(edge(&["--read", "no/such/file.pcap"])), Some(3));
    let text = configs().join("edge.toml").display().to_string();
    assert_eq!(status(edge(&["--read", &text])), Some(3));
    assert_eq!(status(edge(&["--write", "no/such/folder/out.pcapng"])), Some(2), "--write was given twice");
    let missing = pannier(&["run", "monitor"]).output().expect("the command starts");
    assert_eq!(status(missing), Some(2));
}

#[test]
fn the_readme_shows_what_its_command_prints() {
    // Goal: nobody who tries it finds other numbers. Method: the README's chain, line by line but for the time of the recovery.
    let chain = configs().join("edge.toml");
    let output = pannier(&["run", "--write", "/dev/null"]).arg(chain).output().expect("the command starts");
    let printed = String::from_utf8(output.stdout).expect("text") + &String::from_utf8_lossy(&output.stderr);
    let readme = std::fs::read_to_string(configs().join("../../README.md")).expect("it is there");
    let (_, shown) = readme.split_once("```text\n").expect("the first text");
    let (shown, _) = shown.split_once("```").expect("its end");
    let timeless = |line: &str| match (line.split_once("after "), line.split_once(" µs ")) {
        (Some((before, _)), Some((_, behind))) => format!("{before}{behind}"),
        _ => line.to_owned(),
    };
    let lines = |text: &str| text.lines().map(timeless).collect::<Vec<String>>();
    assert_eq!(lines(&printed), lines(shown));
}

#[test]
fn errors_name_the_place_and_the_fix() {
    // Goal: nobody has to guess. Method: a chain file with a misspelt key, and a chain on one line with another.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("chain.toml");
    std::fs::write(&file, "f = 1\nbrust = 8\n[[stage]]\nnf = \"monitor\"\n").expect("written");
    let output = pannier(&["check"]).arg(&file).output().expect("the command starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("chain.toml:2:1") && text.contains("`burst`"), "{text}");
    let output = pannier(&["check", "monitor(flow=5)"]).output().expect("the command starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("`flows`"), "{text}");
}

#[test]
fn a_capture_that_ends_inside_a_record_is_processed_to_there() {
    // Goal: what is whole counts, with a warning and status 0. Method: the example capture, cut.
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = std::fs::read(configs().join("edge.pcapng")).expect("the capture");
    let cut = folder.path().join("cut.pcapng");
    std::fs::write(&cut, &bytes[..bytes.len() / 2 + 3]).expect("written");
    let output = edge(&["--read", cut.to_str().expect("a plain path")]);
    let summary = json(&output);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(summary["truncated_input"], Value::Bool(true));
    assert!(summary["warnings"].as_array().is_some_and(|all| !all.is_empty()));
    assert!(summary["packets"]["in"].as_u64().is_some_and(|count| count > 1_000));
    assert_balanced(&summary);
}

#[test]
fn crashes_faults_and_seeds_are_taken_from_the_command_line() {
    // Goal: what is asked for happens. Method: two adjacent crashes, all faults, f = 2, and the account of them.
    let faults = "loss=0.01,duplicate=0.01,reorder=0.01,delay=0.01";
    let more =
        ["--set", "f=2", "--crash", "monitor@900", "--crash", "nat@900", "--faults", faults, "--seed", "9"];
    let output = edge(&more);
    let summary = json(&output);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_balanced(&summary);
    assert_eq!(summary["recoveries"].as_array().map(Vec::len), Some(3));
    assert!(
        summary["packets"]["duplicated"].as_u64() > Some(0)
            && summary["units"]["repaired"].as_u64() > Some(0)
    );
}

#[test]
fn standard_streams_carry_captures() {
    // Goal: pipes work, and a capture on standard output is nothing else. Method: in and out, then read what came out.
    let capture = std::fs::File::open(configs().join("edge.pcapng")).expect("the capture");
    let chain = "monitor(name=m)";
    let through = pannier(&["run", chain, "--read", "-", "--write", "-"])
        .stdin(capture)
        .output()
        .expect("the command starts");
    assert_eq!(through.status.code(), Some(0));
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.pcapng");
    std::fs::write(&out, &through.stdout).expect("written");
    let again = pannier(&["run", chain, "--json", "--read"]).arg(&out).output().expect("the command starts");
    let released = |text: &[u8]| {
        let line = String::from_utf8_lossy(text).into_owned();
        line.split(" released").next().and_then(|head| head.rsplit(' ').next()?.parse::<u64>().ok())
    };
    assert_eq!(json(&again)["packets"]["in"].as_u64(), released(&through.stderr));
}

#[test]
fn a_recorded_run_can_be_listed() {
    // Goal: record and log fit together. Method: record the edge chain, and count the lines of its log.
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("run.log");
    let output = edge(&["--record", log.to_str().expect("a plain path")]);
    let released = json(&output)["packets"]["released"].as_u64().expect("a number");
    let listed = pannier(&["log"]).arg(Path::new(&log)).output().expect("the command starts");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let lines = text.lines().filter(|line| line.contains(" released at node ")).count() as u64;
    assert_eq!(lines, released);
}

fn sim(args: &[&str]) -> Output {
    pannier(&["sim"]).args(args).output().expect("the command starts")
}

#[test]
fn the_simulator_counts_what_it_ran_and_a_seed_is_a_run() {
    // Goal: a campaign is a function of its seed. Method: the same seeds twice, other ones once, as JSON.
    let counts = |seed: &str| {
        let output = sim(&["--runs", "20", "--steps", "200", "--seed", seed, "--json"]);
        assert_eq!(output.status.code(), Some(0));
        let result = json(&output);
        assert_eq!((&result["schedules"], &result["broken"]), (&Value::from(20), &Value::Null));
        (result["released"].clone(), result["recoveries"].clone())
    };
    assert_eq!(counts("7"), counts("7"));
    assert_ne!(counts("7"), counts("7000"));
    counts(&u64::MAX.to_string()); // beyond the last seed comes the first
}

#[test]
fn a_schedule_file_is_played_and_what_is_none_is_refused() {
    // Goal: a saved failure reruns, and no other file does anything. Method: a kept schedule, then files and arguments
    // that are wrong in a way each, with their exit statuses.
    let kept =
        configs().join("../../tests/sim/regressions/ghost-takes-what-its-replacement-is-sent.schedule");
    let kept = kept.display().to_string();
    let output = sim(&["--replay", &kept]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("node 1 is gone") && text.contains("kept"), "{text}");
    let folder = tempfile::tempdir().expect("a folder");
    let written = |text: &str| {
        let file = folder.path().join("wrong.schedule");
        std::fs::write(&file, text).expect("a file");
        file.display().to_string()
    };
    let title = "# pannier schedule 1\n";
    for (text, status) in [
        ("no schedule", 2),
        (title, 2),
        (&*format!("{title}options stages=0 f=1\n"), 2),
        (&*format!("{title}options stages=9999999 partitions=0 unit=0\n"), 2),
        (&*format!("{title}options seed=1\nexplode 1\n"), 2),
    ] {
        let output = sim(&["--replay", &written(text)]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{text}: {said}");
        assert!(said.starts_with("pannier: ") && !said.contains("panicked"), "{said}");
    }
    assert_eq!(sim(&["--replay", "no/such/file"]).status.code(), Some(3));
    for wrong in [
        ["--mutant", "no-such-rule"],
        ["--minutes", "nan"],
        ["--minutes", "0"],
        ["--runs", "0"],
        ["--seed", "x"],
    ] {
        assert_eq!(sim(&wrong).status.code(), Some(2), "{wrong:?}");
    }
}
