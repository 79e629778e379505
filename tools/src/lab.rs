//! `pannier lab`: a client, a chain and a server in network namespaces of their own, joined by veth pairs.
//!
//! ```text
//! client 192.168.1.2 ── inside [chain] outside ── 198.51.100.2 server
//! ```
//! The chain is a second `pannier run` in the namespace between. Everything goes when the command ends.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio, id};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::{Ended, Failure, fail, stop_on_interrupt_or};

/// The client's address, which edge.toml has for inside; the server's; and where its answers to a NAT go.
const CLIENT: &str = "192.168.1.2";
const SERVER: &str = "198.51.100.2";
const NAT: &str = "203.0.113.0/24";
/// Ethernet addresses, so that nobody has to ask for them: a chain passes no question on.
const CLIENT_MAC: &str = "02:00:00:00:00:01";
const SERVER_MAC: &str = "02:00:00:00:00:02";

/// Makes namespaces client - chain - server, and runs the chain between them
///
/// As root. The client is 192.168.1.2, the server 198.51.100.2; answers to 203.0.113.0/24
/// go to the chain. With a COMMAND, runs it at the client, stops the chain, and ends as it ended;
/// else goes on until Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// A chain file, or a chain on one line
    chain: String,
    /// The kind of both ports, af_packet or af_xdp
    ///
    /// Options stand behind it: af_packet,blocks=128
    #[arg(long, value_name = "KIND", default_value = "af_packet", value_parser = port)]
    port: String,
    /// A command that runs at the server meanwhile, in a shell
    #[arg(long, value_name = "COMMAND")]
    serve: Option<String>,
    /// An option for `pannier run`, as in --with=--json or --with=--crash=nat@1000
    #[arg(long = "with", value_name = "OPTION", allow_hyphen_values = true)]
    with: Vec<String>,
    /// A command that runs at the client
    #[arg(last = true)]
    command: Vec<String>,
}

/// A kind of port that can be on a veth pair, with whatever options; whoever opens it knows those.
fn port(text: &str) -> Result<String, String> {
    match text.split(',').next() {
        Some("af_packet" | "af_xdp") => Ok(text.to_owned()),
        _ => Err("a lab has ports of the kinds af_packet and af_xdp".to_owned()),
    }
}

/// The signal that Ctrl-C sends (signal(7)).
const INTERRUPT: i32 = 2;

pub(crate) fn lab(args: &Args) -> Ended {
    let stop = stop_on_interrupt_or(|| names().iter().for_each(|name| clear_up(name)));
    let lab = match Lab::build() {
        Ok(lab) => lab,
        Err(error) => return fail(Failure::Files, error),
    };
    let mut chain = match lab.start_chain(args) {
        Ok(chain) => chain,
        Err(error) => return fail(Failure::Files, error),
    };
    let served = args.serve.as_ref().map(|serve| lab.inside("server").args(["sh", "-c", serve]).spawn());
    let mut server = match served.transpose() {
        Ok(server) => server,
        Err(error) => return fail(Failure::Files, LabError::program("ip", &error)),
    };
    let ended = if stop.load(Ordering::Relaxed) {
        end_chain(&mut chain)
    } else if args.command.is_empty() {
        lab.explain();
        wait_for_chain(&mut chain, &stop)
    } else {
        lab.inside("client").args(&args.command).status().map_err(|error| LabError::program("ip", &error))
    };
    if let Some(server) = &mut server {
        let _ = server.kill().and_then(|()| server.wait()); // it may have ended by itself
    }
    let chain = end_chain(&mut chain);
    // Ctrl-C is the command's, too, which may have ended by it before this process hears of it.
    let has_ended_by_it = ended.as_ref().is_ok_and(|command| command.signal() == Some(INTERRUPT));
    let is_interrupted = has_ended_by_it || stop.load(Ordering::Relaxed);
    match (ended, chain) {
        (Err(error), _) | (_, Err(error)) => fail(Failure::Files, error),
        (_, Ok(chain)) if !chain.success() => {
            fail(Failure::Promise, format_args!("the chain ended with {chain}"))
        }
        _ if is_interrupted && !args.command.is_empty() => Err(Failure::Interrupted),
        (Ok(command), Ok(_)) if !command.success() => {
            fail(Failure::Files, format_args!("the command ended with {command}"))
        }
        _ => Ok(()),
    }
}

/// Why there is no lab, with the way out.
#[derive(Debug)]
struct LabError(String);

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl LabError {
    fn program(name: &str, error: &io::Error) -> Self {
        LabError(format!("the program `{name}` can't be run: {error}; install it (Debian: iproute2)"))
    }
}

/// The namespaces. They go when this value does.
struct Lab {
    names: [String; 3],
}

impl Lab {
    fn build() -> Result<Self, LabError> {
        let lab = Lab { names: names() };
        for name in &lab.names {
            ip(&["netns", "add", name])?;
            // Nobody here speaks IPv6 unasked.
            let quiet = ["netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"];
            let _ = ip(&quiet); // a machine without `sysctl` is only less quiet
        }
        lab.attach("client", CLIENT_MAC, CLIENT, "inside")?;
        lab.attach("server", SERVER_MAC, SERVER, "outside")?;
        lab.route("client", SERVER, SERVER_MAC, "198.51.100.0/24")?;
        lab.route("server", CLIENT, CLIENT_MAC, "192.168.0.0/16")?;
        lab.route("server", "203.0.113.1", CLIENT_MAC, NAT)?;
        Ok(lab)
    }

    fn name(&self, role: &str) -> &str {
        self.names.iter().find(|name| name.ends_with(role)).map_or("", String::as_str)
    }

    /// A command that runs in a namespace; its program is to follow as an argument.
    fn inside(&self, role: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.name(role)]);
        command
    }

    /// Joins an end to the chain: `eth0` there, `end` at the chain.
    fn attach(&self, role: &str, mac: &str, address: &str, end: &str) -> Result<(), LabError> {
        let (host, chain) = (self.name(role), self.name("chain"));
        ip(&["link", "add", "eth0", "netns", host, "type", "veth", "peer", "name", end, "netns", chain])?;
        ip(&["-n", host, "link", "set", "eth0", "address", mac, "up"])?;
        ip(&["-n", host, "link", "set", "lo", "up"])?;
        ip(&["-n", host, "address", "add", &format!("{address}/32"), "dev", "eth0"])?;
        ip(&["-n", chain, "link", "set", end, "arp", "off", "up"])
    }

    /// Sends what is for `network` to the other end, and says who `address` is.
    fn route(&self, role: &str, address: &str, mac: &str, network: &str) -> Result<(), LabError> {
        let host = self.name(role);
        ip(&["-n", host, "route", "add", network, "dev", "eth0"])?;
        ip(&["-n", host, "neighbour", "add", address, "lladdr", mac, "dev", "eth0"])
    }

    /// Starts the chain, and waits until it runs.
    fn start_chain(&self, args: &Args) -> Result<Child, LabError> {
        let me = std::env::current_exe().map_err(|error| LabError::program("pannier", &error))?;
        let mut command = self.inside("chain");
        // Of a group of its own: Ctrl-C is the lab's, which then asks the chain to drain. Two signals would end it at once.
        command.arg(me).args(["run", &args.chain]).args(&args.with).process_group(0);
        let (kind, options) = args.port.split_at(args.port.find(',').unwrap_or(args.port.len()));
        for (option, interface) in [("--in", "inside"), ("--out", "outside")] {
            command.args([option, &format!("{kind}:{interface}{options}")]);
        }
        let started = command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn();
        let mut child = started.map_err(|error| LabError::program("ip", &error))?;
        let Some(stderr) = child.stderr.take() else { return Ok(child) };
        let mut lines = BufReader::new(stderr).lines();
        let running = lines.by_ref().map_while(Result::ok).any(|line| {
            let _ = writeln!(io::stderr(), "{line}");
            line.contains("running between")
        });
        // What it says later is passed on until it ends.
        thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| drop(writeln!(io::stderr(), "{line}")));
        });
        if running {
            return Ok(child);
        }
        let ended = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        Err(LabError(format!("the chain did not start: {ended}")))
    }

    fn explain(&self) {
        let _ = writeln!(
            io::stderr(),
            "pannier: try, in another terminal\n  ip netns exec {} ping {SERVER}\n  ip netns exec {} bash",
            self.name("client"),
            self.name("server"),
        );
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| clear_up(name));
    }
}

/// The names of this command's namespaces.
fn names() -> [String; 3] {
    ["client", "chain", "server"].map(|role| format!("pannier-{}-{role}", id()))
}

/// Ends a namespace and all that still runs in it, where there is one.
fn clear_up(name: &str) {
    let inside = Command::new("ip").args(["netns", "pids", name]).stderr(Stdio::null()).output();
    let inside = inside.map_or_else(|_| Vec::new(), |output| output.stdout);
    let inside = String::from_utf8_lossy(&inside);
    if !inside.trim().is_empty() {
        let _ =
            Command::new("kill").arg("-KILL").args(inside.split_whitespace()).stderr(Stdio::null()).status();
    }
    let _ = Command::new("ip").args(["netns", "del", name]).stderr(Stdio::null()).status();
}

fn wait_for_chain(chain: &mut Child, stop: &Arc<AtomicBool>) -> Result<ExitStatus, LabError> {
    loop {
        match chain.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if stop.load(Ordering::Relaxed) => return end_chain(chain),
            Ok(None) => thread::sleep(Duration::from_millis(50)),
            Err(error) => return Err(LabError(format!("the chain can't be waited for: {error}"))),
        }
    }
}

/// Asks the chain to drain and to sum up, and waits for it.
fn end_chain(chain: &mut Child) -> Result<ExitStatus, LabError> {
    let status = |chain: &mut Child| chain.wait();
    if let Ok(None) = chain.try_wait() {
        let term = Command::new("kill").args(["-TERM", &chain.id().to_string()]).status();
        term.map_err(|error| LabError::program("kill", &error))?;
    }
    status(chain).map_err(|error| LabError(format!("the chain can't be waited for: {error}")))
}

/// Runs `ip`.
fn ip(words: &[&str]) -> Result<(), LabError> {
    let output = Command::new("ip").args(words).output().map_err(|error| LabError::program("ip", &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let help = if said.contains("not permitted") { "; a lab needs root" } else { "" };
    Err(LabError(format!("`ip {}` failed: {}{help}", words.join(" "), said.trim())))
}
