//! NAT between network namespaces: `pannier run` on real ports beside the kernel's masquerade, on the same veth pairs.
//!
//! ```text
//! client: flood ── inside [NAT] outside ── server: counts what arrives
//! ```

use super::{ROUNDS, Table, output};
use anyhow::Context;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const FLOWS: &str = "1000";
/// What an interface is set to, so that every frame is for the machine it reaches.
const INSIDE_MAC: &str = "02:00:00:00:00:09";
/// Nobody's, so that the server's kernel drops what arrives at once.
const NOBODY: &str = "02:00:00:00:00:77";
/// How long the flood runs before counting begins, and how long is counted.
const WARM: Duration = Duration::from_millis(700);
const COUNTED: Duration = Duration::from_millis(1_500);

/// The programs that are compared; the first is the reference.
const NAMES: [&str; 4] = [
    "kernel: nftables masquerade",
    "pannier af_xdp, f = 0",
    "pannier af_xdp, f = 1",
    "pannier af_packet, f = 1",
];

pub(super) fn compare() -> anyhow::Result<()> {
    for program in ["ip", "nft"] {
        if Command::new(program).arg("-V").output().is_err() {
            println!("SKIPPED: the kernel's NAT is compared where `{program}` is installed");
            return Ok(());
        }
    }
    output("cargo", &["build", "--release", "--locked", "-p", "pannier"])?;
    output("cargo", &["build", "--release", "--locked", "-p", "pannier-runtime", "--example", "flood"])?;
    let mut table = Table::new("NAT of 1,000 flows, 60 bytes, between namespaces over veth", "Mpps", &NAMES);
    for round in 0..ROUNDS {
        for (at, (name, values)) in table.rows.iter_mut().enumerate() {
            let rate = measure(at).with_context(|| name.clone())?;
            println!("round {round}: {rate:.3} Mpps  {name}");
            values.push(rate);
        }
    }
    table.print();
    Ok(())
}

/// Packets that reach the server per microsecond.
fn measure(which: usize) -> anyhow::Result<f64> {
    let lab = Lab::build()?;
    let chain = match which {
        0 => {
            lab.masquerade()?;
            None
        }
        1 => Some(lab.start("af_xdp", 0)?),
        2 => Some(lab.start("af_xdp", 1)?),
        _ => Some(lab.start("af_packet", 1)?),
    };
    let mut flood = lab.flood()?;
    thread::sleep(WARM);
    let (before, start) = (lab.arrived()?, Instant::now());
    thread::sleep(COUNTED);
    let (after, took) = (lab.arrived()?, start.elapsed());
    flood.kill().and_then(|()| flood.wait()).context("ending the flood")?;
    drop(chain);
    Ok((after - before) as f64 / took.as_micros() as f64)
}

/// A process that is ended when this value goes.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Three namespaces in a row. They go when this value does.
struct Lab([String; 3]);

const CLIENT: usize = 0;
const CHAIN: usize = 1;
const SERVER: usize = 2;

impl Lab {
    fn build() -> anyhow::Result<Self> {
        let names = ["client", "chain", "server"];
        let lab = Lab(names.map(|role| format!("pannier-peers-{}-{role}", std::process::id())));
        for name in &lab.0 {
            output("ip", &["netns", "add", name])?;
        }
        for (host, end) in [(CLIENT, "inside"), (SERVER, "outside")] {
            let (host, chain) = (&lab.0[host], &lab.0[CHAIN]);
            let pair =
                ["link", "add", "eth0", "netns", host, "type", "veth", "peer", "name", end, "netns", chain];
            output("ip", &pair)?;
            output("ip", &["-n", host, "link", "set", "eth0", "up"])?;
            output("ip", &["-n", chain, "link", "set", end, "up"])?;
        }
        lab.ip(CHAIN, &["link", "set", "inside", "address", INSIDE_MAC])?;
        Ok(lab)
    }

    fn ip(&self, namespace: usize, words: &[&str]) -> anyhow::Result<()> {
        output("ip", &[&["-n", &self.0[namespace]], words].concat()).map(|_| ())
    }

    fn command(&self, namespace: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[namespace], program]);
        command
    }

    /// Lets the kernel in the middle route and translate.
    fn masquerade(&self) -> anyhow::Result<()> {
        self.ip(CHAIN, &["address", "add", "192.168.0.1/16", "dev", "inside"])?;
        self.ip(CHAIN, &["address", "add", "203.0.113.1/24", "dev", "outside"])?;
        self.ip(CHAIN, &["route", "add", "198.51.100.0/24", "dev", "outside"])?;
        self.ip(CHAIN, &["neighbour", "add", "198.51.100.2", "lladdr", NOBODY, "dev", "outside"])?;
        let rules = "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 && nft add table ip nat && \
             nft 'add chain ip nat post { type nat hook postrouting priority 100 ; }' && \
             nft add rule ip nat post oifname outside masquerade";
        let status = self.command(CHAIN, "sh").args(["-c", rules]).status()?;
        anyhow::ensure!(status.success(), "the rules of the kernel's NAT were refused");
        Ok(())
    }

    fn start(&self, port: &str, f: usize) -> anyhow::Result<Running> {
        let (inside, outside) = (format!("{port}:inside"), format!("{port}:outside"));
        let child = self
            .command(CHAIN, "target/release/pannier")
            .args(["run", "nat(external=203.0.113.1)", "--in", &inside, "--out", &outside])
            .args(["--set", &format!("f={f}"), "--idle", "yield"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        thread::sleep(Duration::from_millis(300)); // it opens its ports
        Ok(Running(child))
    }

    fn flood(&self) -> anyhow::Result<Child> {
        let mut command = self.command(CLIENT, "target/release/examples/flood");
        command.args(["af_xdp:eth0", INSIDE_MAC, FLOWS, "10"]).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command.spawn()?)
    }

    /// Frames that have reached the server's interface.
    fn arrived(&self) -> anyhow::Result<u64> {
        let said = self.command(SERVER, "cat").arg("/proc/net/dev").output()?;
        let text = String::from_utf8_lossy(&said.stdout);
        let line = text.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
        let field = line.and_then(|line| line.split_whitespace().nth(1)).context("no eth0 at the server")?;
        Ok(field.parse()?)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}
