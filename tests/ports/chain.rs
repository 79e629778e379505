//! Whole chains between a client and a server: the kernel's own traffic through firewall, monitor and NAT, while nodes die.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pannier_chains::ChainStage;
use pannier_chains::live::{Live, LiveOptions, LiveOutcome, Sides};
use pannier_runtime::port::{Device, Faults};
use pannier_tests::edge;

use crate::netns::{Line, Namespace};
use crate::traffic::{content, open, ping, wait};

/// The NAT's address, on the client's and the server's network.
const NAT: &str = "10.77.0.9";
/// Bytes of the download.
const DOWNLOAD: usize = 100_000_000;
/// The NAT's node.
const NAT_NODE: usize = 2;
/// Longest time in which nothing goes on, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

/// Ports of a kind at both ends of a chain; the client and the server know each other's and the NAT's Ethernet address.
struct Wire {
    client: Namespace,
    server: Namespace,
    _chain: Option<Namespace>,
}

impl Wire {
    /// `kind` names a port of INTERFACE, or one for the inside and one for the outside with a blank between, or is `tap`. `None`,
    /// said aloud, where the machine has not what it takes.
    fn new(kind: &str) -> Option<(Wire, Sides)> {
        let (wire, sides) = match kind {
            "tap" => Wire::of_taps()?,
            _ => Wire::of_veths(kind)?,
        };
        let ends = [(&wire.client, "02:00:00:00:00:01"), (&wire.server, "02:00:00:00:00:02")];
        for (namespace, mac) in ends {
            namespace.ip(&format!("link set dev wire address {mac}"));
        }
        wire.client.ip("neighbour add 10.77.0.2 lladdr 02:00:00:00:00:02 dev wire");
        wire.server.ip(&format!("neighbour add {NAT} lladdr 02:00:00:00:00:01 dev wire"));
        Some((wire, sides))
    }

    fn of_veths(kind: &str) -> Option<(Wire, Sides)> {
        let Line { client, chain, server } = Line::new()?;
        if kind.starts_with("dpdk") {
            leave_no_work_to_devices([&client, &server])?;
        }
        let port = |kind: &str, name: &str| vec![chain.run(|| open(&kind.replace("INTERFACE", name)))];
        let (inside, outside) = kind.split_once(' ').unwrap_or((kind, kind));
        let sides = Sides { inside: port(inside, "inside"), outside: port(outside, "outside") };
        Some((Wire { client, server, _chain: Some(chain) }, sides))
    }

    fn of_taps() -> Option<(Wire, Sides)> {
        if !std::path::Path::new("/dev/net/tun").exists() {
            eprintln!("SKIPPED: there is no /dev/net/tun");
            return None;
        }
        let (client, server) = (Namespace::new()?, Namespace::new()?);
        let tap = |namespace: &Namespace, address: &str| -> Device {
            let port = namespace.run(|| open("tap:wire"));
            namespace.ip(&format!("address add {address}/24 dev wire"));
            port
        };
        let sides =
            Sides { inside: vec![tap(&client, "10.77.0.1")], outside: vec![tap(&server, "10.77.0.2")] };
        Some((Wire { client, server, _chain: None }, sides))
    }

    /// Starts edge.toml between the ports.
    fn start(sides: Sides, faults: Faults) -> Live {
        let spec = edge::spec(&[&format!("nat.external={NAT}")]);
        let stages = spec.stages.into_iter().map(|stage| ChainStage { name: stage.name, nf: stage.nf });
        let options = LiveOptions { faults, patience: PATIENCE, ..LiveOptions::default() };
        Live::start(spec.plan, stages.collect(), sides, &options).expect("threads and a sound chain")
    }

    /// Does `work`, while the chain is looked after. `between` is asked again and again meanwhile.
    fn while_running(
        &self,
        live: &mut Live,
        mut between: impl FnMut(&mut Live),
        work: impl FnOnce(&Wire) + Send,
    ) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let _over = Over(&over);
                work(self);
            });
            while !over.load(Ordering::Relaxed) {
                live.watch(Duration::from_millis(1));
                between(live);
            }
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    /// TCP connections that were reset, and resets that were sent, at both ends.
    fn resets(&self) -> u64 {
        let of = |namespace: &Namespace| {
            let text =
                namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp").expect("there"));
            let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
            let (names, numbers) = (lines.next().expect("names"), lines.next().expect("numbers"));
            let pairs = names.split_whitespace().zip(numbers.split_whitespace());
            let resets = pairs.filter(|(name, _)| ["EstabResets", "OutRsts"].contains(name));
            resets.map(|(_, number)| number.parse::<u64>().expect("a number")).sum::<u64>()
        };
        of(&self.client) + of(&self.server)
    }
}

/// Lets the kernels finish their own checksums: DPDK's driver does not.
fn leave_no_work_to_devices(ends: [&Namespace; 2]) -> Option<()> {
    for end in ends {
        let off = end.command("ethtool").args(["-K", "wire", "tx", "off"]).output();
        if !off.is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED: traffic of the kernel over DPDK, without the program `ethtool`");
            return None;
        }
    }
    Some(())
}

/// Sets the flag also where the work panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How far a download is.
#[derive(Default)]
struct Progress {
    bytes: AtomicU64,
    /// The NAT's node has died: before, the server does not send the last quarter.
    crashed: AtomicBool,
}

impl Progress {
    fn wait_for_crash(&self) {
        let start = Instant::now();
        while !self.crashed.load(Ordering::Relaxed) {
            assert!(start.elapsed() < PATIENCE, "the NAT's node does not die");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Downloads from the server over kernel TCP. Returns both ends of the connection: once they are closed, a
/// frame that a faulty link doubles is answered with a reset, as it should be.
fn download(wire: &Wire, bytes: usize, progress: &Progress) -> [TcpStream; 2] {
    let sent = content(bytes);
    let (before, behind) = sent.split_at(bytes / 4 * 3);
    let listener = wire.server.run(|| TcpListener::bind("10.77.0.2:80").expect("the address is there"));
    listener.set_nonblocking(true).expect("it is open");
    let mut stream = wire.client.run(|| TcpStream::connect("10.77.0.2:80").expect("the server answers"));
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut accepted = None;
            wait(|| {
                accepted = listener.accept().ok();
                accepted.is_some()
            });
            let (mut stream, from) = accepted.expect("it has been waited for");
            assert_eq!(from.ip().to_string(), NAT, "the server sees the NAT");
            stream.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
            stream.write_all(before).expect("the client reads on");
            progress.wait_for_crash();
            stream.write_all(behind).expect("the client reads to the end");
            stream.shutdown(Shutdown::Write).expect("it is open");
            stream
        });
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let (mut got, mut buffer) = (Vec::with_capacity(bytes), vec![0; 1 << 16]);
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => got.extend_from_slice(&buffer[..count]),
                // Whoever stops this process and lets it go on ends the wait (signal(7)).
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("no reset, no time-out: {error}"),
            }
            progress.bytes.store(got.len() as u64, Ordering::Relaxed);
        }
        assert!(got == sent, "{} of {bytes} bytes came, or others", got.len());
        [stream, server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))]
    })
}

/// A UDP echo through the NAT.
fn echo(wire: &Wire) {
    let server = wire.server.run(|| UdpSocket::bind("10.77.0.2:7").expect("the address is there"));
    let client = wire.client.run(|| UdpSocket::bind("10.77.0.1:7000").expect("the address is there"));
    client.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout can be set");
    server.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout can be set");
    let (start, mut buffer) = (Instant::now(), [0; 2_000]);
    for size in [1usize, 100, 1_472] {
        let question = content(size);
        // On faulty links a datagram may be lost.
        loop {
            assert!(start.elapsed() < PATIENCE, "no echo of {size} bytes");
            client.send_to(&question, "10.77.0.2:7").expect("it can be sent");
            let Ok((length, from)) = server.recv_from(&mut buffer) else { continue };
            server.send_to(&buffer[..length], from).expect("it can be sent");
            if let Ok(length) = client.recv(&mut buffer)
                && buffer[..length] == question
            {
                break;
            }
        }
    }
}

/// Runs everything over ports of a kind, and returns what the chain came to.
fn all(kind: &str, faults: Faults) -> Option<LiveOutcome> {
    let (wire, sides) = Wire::new(kind)?;
    let mut live = Wire::start(sides, faults);
    let progress = Progress::default();
    let between = |live: &mut Live| {
        let is_due = progress.bytes.load(Ordering::Relaxed) > DOWNLOAD as u64 / 2;
        if is_due && !progress.crashed.load(Ordering::Relaxed) {
            progress.crashed.store(live.crash(NAT_NODE), Ordering::Relaxed);
        }
    };
    wire.while_running(&mut live, between, |wire| {
        if faults == Faults::NONE {
            ping(&wire.client, "10.77.0.2");
        }
        echo(wire);
        let ends = download(wire, DOWNLOAD, &progress);
        assert_eq!(wire.resets(), 0, "a connection was reset");
        drop(ends);
    });
    let outcome = live.finish();
    assert_eq!(outcome.broken, Vec::<String>::new(), "{:#?}", outcome.summary);
    assert_eq!(outcome.port_error, None);
    assert_eq!(outcome.summary.recoveries.len(), 1, "{:#?}", outcome.summary);
    Some(outcome)
}

const SOME: Faults = Faults { loss: 0.01, duplicate: 0.01, reorder: 0.01, delay: 0.0 };

#[test]
fn a_download_survives_its_nat_over_af_packet() {
    // Goal: nothing that left is forgotten, seen by a kernel. Method: ping, UDP echo, and 100 MB over TCP through edge.toml,
    // whose NAT dies in the middle; every byte is right and no reset is seen.
    all("af_packet:INTERFACE", Faults::NONE);
}

#[test]
fn a_download_survives_its_nat_over_blocks_of_af_packet() {
    // Goal and method: as over af_packet.
    all("af_packet:INTERFACE,blocks=128", Faults::NONE);
}

#[test]
fn a_download_survives_its_nat_over_af_xdp() {
    // Goal and method: as over af_packet.
    all("af_xdp:INTERFACE", Faults::NONE);
}

#[test]
fn a_download_survives_its_nat_over_taps() {
    // Goal and method: as over af_packet.
    all("tap", Faults::NONE);
}

#[cfg(feature = "dpdk")]
#[test]
fn a_download_survives_its_nat_over_dpdk() {
    // Goal and method: as over af_packet.
    all("dpdk:net_af_packet_INTERFACE,iface=INTERFACE", Faults::NONE);
}

/// Runs everything over ports of a kind with faulty links, and wants them to have lost something.
fn all_with_faults(kind: &str) {
    if let Some(outcome) = all(kind, SOME) {
        let units = outcome.summary.units;
        assert!(units.repaired > 0, "{kind}: {units:?}");
    }
}

#[test]
fn a_download_survives_faulty_links_too() {
    // Goal: repair under real traffic. Method: as over af_packet, with loss, doubles and reordering on every ring link; over
    // each kind of port, and from one kind to another.
    let kinds = ["af_packet:INTERFACE", "af_xdp:INTERFACE", "tap", "af_packet:INTERFACE af_xdp:INTERFACE"];
    kinds.iter().for_each(|kind| all_with_faults(kind));
}

#[cfg(feature = "dpdk")]
#[test]
fn a_download_survives_faulty_links_over_dpdk_too() {
    // Goal and method: as over the other kinds.
    all_with_faults("dpdk:net_af_packet_faulty_INTERFACE,iface=INTERFACE");
}
