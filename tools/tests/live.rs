//! Live chains at the command line: ports, signals, the lab, and what is said when something is missing.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

fn pannier(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pannier"));
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    pannier(args).output().expect("the command starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn capture() -> String {
    let home = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo runs the tests"));
    home.join("../chains/configs/edge.pcapng").display().to_string()
}

fn assert_balanced(summary: &Value) -> u64 {
    let number = |key: &str| summary["packets"][key].as_u64().expect("a number");
    let came = number("in") + number("generated") + number("duplicated");
    assert_eq!(came, number("released") + number("dropped") + number("held") + number("lost"), "{summary}");
    number("in")
}

/// Longest wait for anything, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether namespaces can be made here; says aloud where not.
fn has_namespaces() -> bool {
    let probe = format!("pannier-probe-{}", std::process::id());
    let made = Command::new("ip").args(["netns", "add", &probe]).output();
    let made = made.is_ok_and(|output| output.status.success());
    if made {
        let _ = Command::new("ip").args(["netns", "del", &probe]).status();
    } else {
        eprintln!("SKIPPED: a lab needs root and the program `ip` (Debian: iproute2)");
    }
    made
}

#[test]
fn a_capture_passes_a_live_chain_and_every_packet_is_accounted_for() {
    // Goal: `run --in --out` does what `run` does, on threads. Method: the example's capture into a chain of two nodes with
    // one shard and with two, a crash in the middle; the summary, and the capture that came out.
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.pcapng");
    let (inside, outside) = (format!("pcap:{}", capture()), format!("pcap:,write={}", out.display()));
    for shards in ["1", "2"] {
        let set = format!("shards={shards}");
        let args = ["run", "monitor -> gen", "--in", &inside, "--out", &outside, "--set", &set];
        let more = ["--crash", "monitor@2000", "--json", "--set", "lanes=2"];
        let more = [&more[..], &["--reshard", "gen=2@1000", "--reshard", "monitor=1@3000"]].concat();
        let run_for = |seconds: &str| {
            let output = run(&[&args[..], &more, &["--for", seconds]].concat());
            assert_eq!(output.status.code(), Some(0), "{}", said(&output));
            let summary: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
            let recoveries = summary["recoveries"].as_array().map(Vec::len).expect("a list");
            (assert_balanced(&summary), recoveries, summary)
        };
        // A machine that does much else needs more time to read the capture to its end, and to see that the crash is due.
        let was_too_short =
            |(entered, recoveries, _): &(u64, usize, Value)| *entered < 3_996 || *recoveries < 1;
        let longer = ["20", "200"].into_iter();
        let told =
            longer.fold(run_for("2"), |told, more| if was_too_short(&told) { run_for(more) } else { told });
        let (entered, recoveries, summary) = told;
        assert_eq!((entered, recoveries), (3_996, 1), "{summary}");
        assert_eq!(summary["ports"]["outside"]["sent"], summary["packets"]["released"]);
    }
    assert!(std::fs::metadata(&out).expect("it was written").len() > 100_000);
}

#[test]
fn a_signal_drains_the_chain_and_prints_the_summary() {
    // Goal: operators lose nothing when they stop a chain. Method: SIGTERM and SIGINT, once the chain says that it runs.
    for signal in ["-TERM", "-INT"] {
        let inside = format!("pcap:{}", capture());
        let args = ["run", "monitor", "--in", &inside, "--out", "pcap:,write=/dev/null", "--json"];
        let args = [&args[..], &["--for", "18446744073709551615"]].concat(); // longer than any clock
        let mut child =
            pannier(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("it says that it runs");
        assert!(line.contains("running between"), "{line}");
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(killed.expect("there is `kill`").success());
        let mut text = String::new();
        child.stdout.take().expect("piped").read_to_string(&mut text).expect("a summary");
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
        assert_balanced(&serde_json::from_str(&text).expect("one JSON object"));
    }
}

#[test]
fn what_is_missing_is_said_in_one_sentence() {
    // Goal: nobody has to guess. Method: ports that are not there, half a pair, and options that make no sense.
    let sentences = [
        (3, "af_packet:nosuch0", "nosuch0"),
        (3, "af_xdp:nosuch0", "nosuch0"),
        (3, "teleport:x", "there is no kind of port `teleport`"),
        (3, "pcap:/no/such/file", "/no/such/file"),
        (3, "af_packet:lo,speed=9", "there is no option `speed`"),
    ];
    for (status, port, words) in sentences {
        let output = run(&["run", "monitor", "--in", port, "--out", "pcap:,write=/dev/null"]);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(status), "{port}: {text}");
        assert!(text.contains(words) && text.lines().count() == 1, "{port}: {text}");
    }
    for wrong in [
        &["run", "monitor", "--in", "pcap:x"][..],
        &["run", "monitor", "--cores", "1"],
        &["run", "monitor", "--in", "pcap:x", "--out", "pcap:y", "--read", "z"],
        &["run", "monitor", "--in", "pcap:x", "--out", "pcap:y", "--set", "shards=9"],
        &["run", "monitor", "--in", "pcap:x", "--out", "pcap:y", "--idle", "never"],
        &["run", "monitor", "--in", "pcap:x", "--out", "pcap:y", "--cores", "0,4096"],
        &[
            "run",
            "monitor",
            "--in",
            "pcap:,write=/dev/null",
            "--out",
            "pcap:,write=/dev/null",
            "--reshard",
            "nat=1@5",
        ],
        &[
            "run",
            "monitor",
            "--in",
            "pcap:,write=/dev/null",
            "--out",
            "pcap:,write=/dev/null",
            "--reshard",
            "monitor=9@5",
        ],
    ] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// Runs a lab to its end, and wants it to leave no namespace behind.
fn lab(args: &[&str]) -> Output {
    let child = pannier(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the command starts");
    let id = child.id();
    let output = child.wait_with_output().expect("it ends");
    assert_leaves_no_namespace(id);
    output
}

/// Wants no namespace of the lab with this process number to be there; other labs may have theirs.
fn assert_leaves_no_namespace(lab: u32) {
    let left = Command::new("ip").args(["netns", "list"]).output().expect("there is `ip`");
    let left = String::from_utf8_lossy(&left.stdout).into_owned();
    assert!(!left.contains(&format!("pannier-{lab}-")), "a namespace stays: {left}");
}

#[test]
fn a_lab_runs_a_command_at_the_client_and_leaves_nothing_behind() {
    // Goal: a chain between two kernels in one line. Method: a ping through a NAT whose node dies, and one through ports with
    // options; then a command that fails, and a chain that can't start. No namespace stays.
    if !has_namespaces() {
        return;
    }
    // It pings until so many answers have come (ping(8), -w); the node dies after the second question at the earliest.
    let ping = ["ping", "-c", "20", "-i", "0.1", "-w", "60", "198.51.100.2"];
    let chain = "monitor -> nat(external=203.0.113.1)";
    let args = ["lab", chain, "--with=--crash=nat@4", "--with=--json", "--"];
    let output = lab(&[&args[..], &ping].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}{}", said(&output));
    let json = text.lines().find(|line| line.starts_with('{')).expect("the chain's summary");
    let summary: Value = serde_json::from_str(json).expect("one JSON object");
    assert!(assert_balanced(&summary) >= 40);
    assert_eq!(summary["recoveries"].as_array().map(Vec::len), Some(1), "{summary}");

    let ping = ["ping", "-c", "1", "-w", "60", "198.51.100.2"];
    let blocks = lab(&[&["lab", "monitor", "--port", "af_packet,blocks=8", "--"][..], &ping].concat());
    assert_eq!(blocks.status.code(), Some(0), "{}", said(&blocks));
    assert!(
        said(&blocks).contains("af_packet:inside,blocks=8 and af_packet:outside,blocks=8"),
        "{}",
        said(&blocks)
    );

    let failing = lab(&["lab", "monitor", "--", "false"]);
    assert_eq!(failing.status.code(), Some(3), "{}", said(&failing));
    let wrong = lab(&["lab", "no-such-function", "--", "true"]);
    assert!(said(&wrong).contains("no such chain file"), "{}", said(&wrong));
    assert_eq!(wrong.status.code(), Some(3));
}

/// A lab in a group of processes of its own, as at a terminal, that runs a command at the client. The command says on
/// standard error that it is `ready`.
fn lab_at_terminal(command: &str) -> std::process::Child {
    let args =
        ["lab", "monitor", "--with=--json", "--serve", "sleep 77 & sleep 77", "--", "sh", "-c", command];
    let mut lab = pannier(&args);
    let lab = lab.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = lab.spawn().expect("the command starts");
    let said = BufReader::new(child.stderr.take().expect("piped"));
    let mut lines = said.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("running between")), "the chain does not start");
    assert!(lines.any(|line| line == "ready"), "the command does not start");
    thread::spawn(move || lines.for_each(drop));
    child
}

/// Whether any process of a group still runs, by /proc/PID/stat (proc_pid_stat(5)).
fn lives(group: u32) -> bool {
    let all = std::fs::read_dir("/proc").expect("there is /proc").flatten();
    all.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok()).any(|stat| {
        let mut behind_name = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        behind_name.next() != Some("Z") && behind_name.nth(1) == Some(&group.to_string())
    })
}

/// What Ctrl-C at a terminal does: all of the group hear of it.
fn interrupt(child: &std::process::Child) {
    let killed = Command::new("kill").args(["-INT", "--", &format!("-{}", child.id())]).status();
    assert!(killed.expect("there is `kill`").success());
}

#[test]
fn a_lab_that_is_interrupted_sums_up_and_leaves_nothing_behind() {
    // Goal: Ctrl-C is the way to end a lab. Method: once, while a command runs: the chain drains and sums up. Twice, while a
    // command runs that does not listen: the end at once. Neither leaves a namespace or a process.
    if !has_namespaces() {
        return;
    }
    for (command, is_deaf) in
        [("echo ready >&2; exec sleep 77", false), ("trap '' INT; echo ready >&2; sleep 77", true)]
    {
        let mut child = lab_at_terminal(command);
        let began = Instant::now();
        interrupt(&child);
        // Two that a process has not heard of yet are one.
        while is_deaf && child.try_wait().expect("it is ours").is_none() {
            thread::sleep(Duration::from_millis(300));
            interrupt(&child);
        }
        let mut text = String::new();
        child.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
        assert_eq!(child.wait().expect("it ends").code(), Some(130), "{text}");
        assert!(began.elapsed() < PATIENCE, "it waited for the command to end by itself");
        if !is_deaf {
            assert_balanced(&serde_json::from_str(text.trim()).expect("the chain's summary"));
        }
        assert_leaves_no_namespace(child.id());
        let end = Instant::now() + PATIENCE;
        while lives(child.id()) && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(!lives(child.id()), "a process stays");
    }
}
