//! Chains over DPDK's virtual devices beside `dpdk-testpmd` in mac mode, on the same capture: one core each.

use super::{ROUNDS, Table, output, spread};
use anyhow::Context;
use pannier_runtime::port::pcap::{InterfaceDescription, Writer};
use pannier_runtime::wire::FrameBuilder;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Seconds of each run.
const SECONDS: u64 = 3;

/// What is run beside testpmd: a name, a chain, and f.
const CHAINS: [(&str, &str, usize); 6] = [
    ("forwarding through the port alone", "", 0),
    ("monitor, f = 0", "monitor", 0),
    ("monitor, f = 1", "monitor", 1),
    ("NAT, f = 0", "nat(external=203.0.113.1)", 0),
    ("NAT, f = 1", "nat(external=203.0.113.1)", 1),
    ("firewall, f = 1", "firewall", 1),
];

pub(super) fn compare() -> anyhow::Result<()> {
    if Command::new("dpdk-testpmd").arg("--version").output().is_err() {
        println!("SKIPPED: testpmd is compared where it is installed (Debian: dpdk, libdpdk-dev)");
        return Ok(());
    }
    let features = ["build", "--release", "--locked", "--features", "dpdk"];
    output("cargo", &[&features[..], &["-p", "pannier"]].concat())?;
    output("cargo", &[&features[..], &["-p", "pannier-runtime", "--example", "dpdk_forward"]].concat())?;
    let folder = tempfile::tempdir()?;
    for flows in [1_000u32, 50_000] {
        let capture = folder.path().join(format!("{flows}.pcap"));
        write_capture(&capture, flows)?;
        let names = ["dpdk-testpmd, mac"].into_iter().chain(CHAINS.map(|(name, ..)| name));
        let title = if flows == 1_000 { "1,000 flows of 60 bytes" } else { "50,000 flows of 60 bytes" };
        let mut table = Table::new(title, "Mpps", &names.collect::<Vec<_>>());
        for round in 0..ROUNDS {
            let capture = capture.display().to_string();
            for (at, (name, values)) in table.rows.iter_mut().enumerate() {
                let rate = match at.checked_sub(1).map(|at| CHAINS[at]) {
                    None => testpmd(&capture),
                    Some((_, "", _)) => forward(&capture, flows),
                    Some((_, chain, f)) => pannier(&capture, chain, f, flows),
                };
                values.push(rate.with_context(|| name.clone())?);
                println!("round {round}: {:.2} Mpps  {name}", values[values.len() - 1]);
            }
        }
        table.print();
    }
    Ok(())
}

/// A capture with one UDP frame of 60 bytes per flow.
fn write_capture(path: &Path, flows: u32) -> anyhow::Result<()> {
    let mut writer = Writer::create(path, &[InterfaceDescription { name: "flows", description: None }])?;
    for flow in 0..flows {
        let [_, _, high, low] = (flow / 50).to_be_bytes();
        let builder = FrameBuilder::ipv4([192, 168, high, low.saturating_add(1)], [198, 51, 100, 2]);
        writer.write(0, 0, &builder.udp(1_024 + (flow % 50) as u16, 53, &[0; 18]), 60)?;
    }
    writer.finish()?;
    Ok(())
}

fn devices(capture: &str) -> [String; 2] {
    [format!("net_pcap0,rx_pcap={capture},infinite_rx=1"), "net_null0,no-rx=1".to_owned()]
}

/// Mpps of testpmd on one forwarding core, from its last statistics.
fn testpmd(capture: &str) -> anyhow::Result<f64> {
    let [from, to] = devices(capture);
    let words = ["-l", "0,1", "--no-pci", "--in-memory", "--no-telemetry", "--vdev", &from, "--vdev", &to];
    let mode = ["--", "--forward-mode=mac", "--total-num-mbufs=200000", "--stats-period=1"];
    let mut command = Command::new("timeout");
    command.args(["-s", "INT", &(SECONDS + 2).to_string(), "dpdk-testpmd"]).args(words).args(mode);
    let said = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&said.stdout);
    let rates = text.lines().filter_map(|line| line.trim().strip_prefix("Tx-pps:"));
    let rates = rates.filter_map(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    let rates: Vec<f64> = rates.filter(|rate| *rate > 0.0).collect();
    anyhow::ensure!(
        !rates.is_empty(),
        "testpmd gave no rate: {}",
        String::from_utf8_lossy(&said.stderr).trim()
    );
    Ok(spread(rates.into_iter())[1] / 1e6)
}

/// Mpps of `dpdk_forward`: the port, and nothing of a chain.
fn forward(capture: &str, flows: u32) -> anyhow::Result<f64> {
    let [from, to] = devices(capture);
    let (from, to) = (format!("dpdk:{from},buffers={}", buffers(flows)), format!("dpdk:{to}"));
    let said = output("target/release/examples/dpdk_forward", &[&from, &to, &SECONDS.to_string()])?;
    let text = String::from_utf8_lossy(&said.stdout);
    let rate = text.split(", ").last().and_then(|last| last.split_whitespace().next());
    Ok(rate.context("no rate was said")?.parse()?)
}

/// Mpps of a chain on one core, from its summary.
fn pannier(capture: &str, chain: &str, f: usize, flows: u32) -> anyhow::Result<f64> {
    let [from, to] = devices(capture);
    let (inside, outside) = (format!("dpdk:{from},buffers={}", buffers(flows)), format!("dpdk:{to}"));
    let set = format!("f={f}");
    let words = ["run", chain, "--in", &inside, "--out", &outside, "--set", &set, "--cores", "1"];
    let rest = ["--idle", "spin", "--for", &SECONDS.to_string(), "--json"];
    let said = output("target/release/pannier", &[&words[..], &rest].concat())?;
    let summary: serde_json::Value = serde_json::from_slice(&said.stdout)?;
    let sent = summary["ports"]["outside"]["sent"].as_u64().context("the summary counts no packets")?;
    Ok(sent as f64 / Duration::from_secs(SECONDS).as_micros() as f64)
}

/// The device keeps the whole capture in buffers.
fn buffers(flows: u32) -> u32 {
    flows + 20_000
}
