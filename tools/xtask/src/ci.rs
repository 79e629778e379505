//! The continuous check: every step with its heading and its time, and at the end what was skipped.

use crate::{check_run, step, step::Step};
use anyhow::{Context, ensure};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A test that cannot do its work on this machine prints a line with these words and its reason.
const SKIP_MARK: &str = "SKIPPED:";
/// Set to 1 where every test must do its work.
const FORBID_SKIPS: &str = "PANNIER_FORBID_SKIPS";

const FIRST_NF: Step = Step::new("cargo run --release --locked -p pannier-chains --example first_nf");
const CRASH_AND_RECOVER: Step =
    Step::new("cargo run --release --locked -p pannier-chains --example crash_and_recover");
const RUN_CHAIN: Step = Step::new("cargo run --release --locked -- run chains/configs/edge.toml");
const PLANTED_BUGS: Step =
    Step::new("cargo run --release --locked -p pannier-chains --features testing --example planted_bugs");
const FRESH_SCHEDULES: Step = Step::new("cargo run --release --locked -- sim --runs 2000 --seed");
const DENY: Step = Step::new("cargo deny --locked check licenses bans sources");

/// Runs all steps; the first that fails ends the run.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut times = Times::default();
    times.step("format", step::FORMAT_CHECK.command, || step::FORMAT_CHECK.run(&[]))?;
    times.step("lint", step::LINT.command, || step::LINT.run(&[]))?;
    times.step("documentation", step::DOC.command, || step::DOC.run(&[]))?;
    let mut skips = times.step("tests", step::TEST.command, || step::TEST_ALOUD.run_watching(SKIP_MARK))?;
    if dpdk_is_installed() {
        let (lint, test) = (step::DPDK_LINT, step::DPDK_TEST_ALOUD);
        times.step("lint with DPDK", lint.command, || lint.run(&[]))?;
        skips.extend(times.step("ports of DPDK", test.command, || test.run_watching(SKIP_MARK))?);
    } else {
        println!("\n== ports of DPDK: SKIPPED, libdpdk-dev is not installed");
    }
    let loom = step::INTERLEAVINGS;
    times.step("interleavings", loom.command, || loom.run(&[]))?;
    times.step("example: a first network function", FIRST_NF.command, || FIRST_NF.run(&[]))?;
    times.step("example: crash and recover", CRASH_AND_RECOVER.command, || CRASH_AND_RECOVER.run(&[]))?;
    times.step("the README's chain", RUN_CHAIN.command, || RUN_CHAIN.run(&[]))?;
    times.step("the chain's report", "cargo xtask check-run", check_run::run)?;
    times.step("example: planted bugs", PLANTED_BUGS.command, || PLANTED_BUGS.run(&[]))?;
    let seed = seed_of_commit();
    times.step("fresh schedules", &format!("{} {seed}", FRESH_SCHEDULES.command), || {
        FRESH_SCHEDULES.run(&[seed.to_string()])
    })?;
    if cargo_deny_is_installed() {
        times.step("dependencies", DENY.command, || DENY.run(&[]))?;
    } else {
        println!("\n== dependencies: left out, cargo-deny is not installed");
    }
    times.print();
    println!("\n== skipped tests: {}", skips.len());
    for skip in &skips {
        println!("{skip}");
    }
    judge_skips(&skips, std::env::var(FORBID_SKIPS).is_ok_and(|value| value == "1"))
}

/// A seed that each commit has of its own; outside of a repository a fixed one.
fn seed_of_commit() -> u64 {
    let commit = Command::new("git").args(["rev-parse", "HEAD"]).stderr(Stdio::null()).output();
    let digits =
        commit.ok().and_then(|output| Some(String::from_utf8(output.stdout).ok()?.get(..10)?.to_owned()));
    digits.and_then(|digits| u64::from_str_radix(&digits, 16).ok()).unwrap_or(1_000_000)
}

/// What each step took.
#[derive(Default)]
struct Times(Vec<(&'static str, Duration)>);

impl Times {
    fn step<T>(
        &mut self,
        name: &'static str,
        command: &str,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        println!("\n== {name}: {command}");
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        println!(
            "-- {name}: {} after {:.1} s",
            if result.is_ok() { "done" } else { "FAILED" },
            took.as_secs_f32()
        );
        self.0.push((name, took));
        result.with_context(|| format!("step `{name}`"))
    }

    fn print(&self) {
        println!("\n== times");
        for (name, took) in &self.0 {
            println!("{:8.1} s  {name}", took.as_secs_f32());
        }
        let total: Duration = self.0.iter().map(|(_, took)| *took).sum();
        println!("{:8.1} s  in all", total.as_secs_f32());
    }
}

/// An error if tests left their work out where none may.
fn judge_skips(skips: &[String], forbidden: bool) -> anyhow::Result<()> {
    ensure!(skips.is_empty() || !forbidden, "{} tests skipped although {FORBID_SKIPS}=1", skips.len());
    Ok(())
}

fn cargo_deny_is_installed() -> bool {
    succeeds("cargo", &["deny", "--version"])
}

fn dpdk_is_installed() -> bool {
    succeeds("pkg-config", &["--exists", "libdpdk"])
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_fail_only_where_they_are_forbidden() {
        // Goal: a machine without captures passes, one with them does not hide a skip. Method: all four cases.
        let skip = ["SKIPPED: no captures".to_owned()];
        assert!(judge_skips(&[], false).is_ok());
        assert!(judge_skips(&[], true).is_ok());
        assert!(judge_skips(&skip, false).is_ok());
        assert!(judge_skips(&skip, true).is_err());
    }

    #[test]
    fn a_step_hands_its_result_on_and_names_itself_when_it_fails() {
        // Goal: a failing step stops the run with its name. Method: one step that succeeds, one that does not.
        let mut times = Times::default();
        assert_eq!(times.step("one of a test", "succeeds on purpose", || Ok(7)).expect("it returns Ok"), 7);
        let error =
            times.step("two of a test", "fails on purpose", || -> anyhow::Result<()> { anyhow::bail!("no") });
        assert_eq!(error.expect_err("it returns Err").to_string(), "step `two of a test`");
        assert_eq!(times.0.len(), 2);
    }
}
