//! Runs the example chain and checks that its report and its output capture keep the promises.

use crate::capture::count_packets;
use crate::step::Step;
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

const CHAIN: &str = "chains/configs/edge.toml";
const BUILD: Step = Step::new("cargo build --release --locked");

/// Builds the command if need be, runs the chain into a temporary folder and checks what came out.
pub(crate) fn run() -> anyhow::Result<()> {
    BUILD.run(&[])?;
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("output.pcapng");
    let program = program();
    let mut command = Command::new(&program);
    command.args(["run", CHAIN, "--json", "--write"]).arg(&capture);
    command.stderr(std::process::Stdio::inherit());
    let output = command.output().with_context(|| format!("starting {}", program.display()))?;
    ensure!(output.status.success(), "the chain ended with {}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).context("the report is not JSON")?;
    let released = judge(&report)?;
    let written = std::fs::read(&capture).context("the output capture is missing")?;
    let packets = count_packets(&written).context("the output capture is broken")?;
    ensure!(packets == released, "{released} packets were released, {packets} are in the output capture");
    println!("{CHAIN}: {released} packets released and written, all replicas agree, one recovery");
    Ok(())
}

fn program() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    target.join("release/pannier")
}

/// Returns how many packets were released, or every promise that the report breaks.
fn judge(report: &Value) -> anyhow::Result<u64> {
    let mut broken = Vec::new();
    let released = judge_packets(report, &mut broken)?;
    judge_replicas(report, &mut broken)?;
    let recoveries = list(report, "/recoveries")?.len();
    if recoveries != 1 {
        broken.push(format!("the chain file plans one crash, {recoveries} recoveries are reported"));
    }
    if !broken.is_empty() {
        bail!("the report breaks its promises:\n  {}", broken.join("\n  "));
    }
    Ok(released)
}

fn judge_packets(report: &Value, broken: &mut Vec<String>) -> anyhow::Result<u64> {
    let count = |name: &str| number(report, &format!("/packets/{name}"));
    let entered = count("in")? + count("generated")? + count("duplicated")?;
    let (released, dropped, held, lost) =
        (count("released")?, count("dropped")?, count("held")?, count("lost")?);
    let accounted = released + dropped + held + lost;
    if entered != accounted {
        broken.push(format!(
            "{entered} packets came into being, {accounted} are accounted for \
             ({released} released, {dropped} dropped, {held} held, {lost} lost)"
        ));
    }
    if held != 0 {
        broken.push(format!("{held} packets are still held after the last one"));
    }
    if released == 0 {
        broken.push("no packet was released".to_owned());
    }
    Ok(released)
}

fn judge_replicas(report: &Value, broken: &mut Vec<String>) -> anyhow::Result<()> {
    let mut replicas_seen = 0;
    for stage in list(report, "/stages")? {
        let name = field(stage, "/name")?;
        let head = field(stage, "/digest")?;
        for replica in list(stage, "/replicas")? {
            replicas_seen += 1;
            let (node, digest) = (field(replica, "/node")?, field(replica, "/digest")?);
            if digest != head {
                broken.push(format!("stage {name}: node {node} has digest {digest}, the head has {head}"));
            }
        }
    }
    if replicas_seen == 0 {
        broken.push("no stage has a replica".to_owned());
    }
    Ok(())
}

fn field<'a>(value: &'a Value, path: &str) -> anyhow::Result<&'a Value> {
    value.pointer(path).with_context(|| format!("the report has no {path}"))
}

fn number(value: &Value, path: &str) -> anyhow::Result<u64> {
    field(value, path)?.as_u64().with_context(|| format!("{path} is not a count"))
}

fn list<'a>(value: &'a Value, path: &str) -> anyhow::Result<&'a Vec<Value>> {
    field(value, path)?.as_array().with_context(|| format!("{path} is not a list"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sound() -> Value {
        json!({
            "packets": {"in": 10, "generated": 2, "duplicated": 1, "released": 9, "dropped": 3, "held": 0, "lost": 1},
            "stages": [
                {"name": "firewall", "digest": "0a", "replicas": [{"node": 1, "digest": "0a"}]},
                {"name": "nat", "digest": "0b", "replicas": [{"node": 2, "digest": "0b"}]},
            ],
            "recoveries": [{"node": 1, "stage": "firewall"}],
        })
    }

    fn changed(path: &str, to: Value) -> Value {
        let mut report = sound();
        *report.pointer_mut(path).expect("the path is in the sound report") = to;
        report
    }

    #[test]
    fn a_sound_report_passes() {
        // Goal: the check does not refuse what is right. Method: a small report that keeps every promise.
        assert_eq!(judge(&sound()).expect("it is sound"), 9);
    }

    #[test]
    fn every_broken_promise_is_found() {
        // Goal: no promise can break unseen. Method: change one value of the sound report at a time.
        let broken = [
            ("/packets/in", json!(11), "accounted"),
            ("/packets/held", json!(1), "held"),
            ("/packets/released", json!(0), "no packet was released"),
            ("/recoveries", json!([]), "0 recoveries"),
            ("/stages/1/replicas/0/digest", json!("0c"), "nat"),
            ("/stages", json!([]), "no stage has a replica"),
        ];
        for (path, to, words) in broken {
            let error = judge(&changed(path, to)).expect_err(path).to_string();
            assert!(error.contains(words), "{path}: {error}");
        }
    }

    #[test]
    fn a_report_of_another_shape_is_an_error() {
        // Goal: a renamed field is not read as zero. Method: take the counts away, then give one a wrong type.
        assert!(judge(&changed("/packets", json!({}))).is_err());
        assert!(judge(&changed("/packets/lost", json!(-1))).is_err());
        assert!(judge(&changed("/recoveries", json!({}))).is_err());
    }
}
