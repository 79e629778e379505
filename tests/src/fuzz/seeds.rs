//! What corpora begin with, all of our own making: good inputs of every kind, for libFuzzer to take apart.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use pannier_runtime::packet::Kind;
use pannier_runtime::port::pcap::{InterfaceDescription, Writer};
use pannier_runtime::wire::{FrameBuilder, Layers};

use super::chain_file::SETTING;
use super::unit::{self, CONTROL_HEADER, SEALED};

/// The example chain file, which explains all that a chain needs.
const EDGE: &str = include_str!("../../../chains/configs/edge.toml");

const ALL_KEYS: &str = r#"
f = 2
partitions = 16
hash_seed = 18_446_744_073_709_551_615
seed = 0x2a
burst = 8
unit = 4
crash = [{ stage = "edge", packet = 500 }, "node1@600"]
limits = { mtu = 3000, retained_bytes = 100000, waiting = 10, held = 20, repair_after_us = 5, sweep_every_us = 7 }
[input]
read = ["a.pcap", { side = "outside", file = '/b.pcap' }, "-"]
inside = ["192.168.0.0/16", "2001:db8::/32", "02:00:00:00:00:01"]
undecided = "drop"
[output]
write = "out.pcapng"
[faults]
loss = 0.25
duplicate = 1
[[stage]]
name = "edge"
nf = "firewall"
rules = [{ action = "allow", from = "10.0.0.0/8", to_ports = "80-90", vlan = 7 }, { action = "deny" }]
timeouts = { udp = 30, tcp = 1.5 }
[[stage]]
nf = "gen"
size = 32
[[stage]]
nf = "nat"
external = ["203.0.113.1", "203.0.113.2"]
ports = "preserve"
port_range = "1024-2048"
"#;

/// Chain files and chains on one line.
pub fn chains() -> Vec<Vec<u8>> {
    let with = |chain: &str, settings: &[&str]| [&[chain], settings].concat().join(SETTING).into_bytes();
    vec![
        with(EDGE, &["crash=[]", "nat.ports=random"]),
        with(ALL_KEYS, &[]),
        with("[[stage]]\nnf = \"monitor\"", &["f=2", "limits.mtu=1500", "input.inside=[10.0.0.0/8]"]),
        with("firewall -> monitor -> nat(external=203.0.113.1, ports=preserve)", &["nat.other=drop"]),
        with("edge:firewall(rules=[{action=allow}], default='deny') -> gen(size=16)", &["crash=[edge@5]"]),
        with("monitor(flows=10,idle=1.5) → monitor2:monitor()", &["faults={loss=0.01}", "monitor2.idle=2"]),
        with("monitor", &["input.read=[{side=inside, file=\"a\\u00b5\"}]", "input.undecided=inbound"]),
        with("nat(external=[203.0.113.1,\"203.0.113.2\"], timeouts={udp=300})", &["seed=0x2A", "unit=1"]),
    ]
}

/// Frames of every protocol.
pub fn frames() -> Vec<Vec<u8>> {
    let v4 = FrameBuilder::ipv4([10, 0, 0, 1], [203, 0, 113, 9]);
    let v6 = FrameBuilder::ipv6([0x20; 16], [0x21; 16]);
    let tcp = v4.clone().tcp(40_000, 443, 0x12, b"GET /");
    let udp6 = v6.clone().extension(43, &[4, 1, 0, 0, 0, 0]).udp(5_353, 53, b"query");
    let quoted =
        |frame: &[u8]| Layers::parse(frame).map_or(Vec::new(), |layers| frame[layers.l3_offset()..].to_vec());
    vec![
        v4.clone().udp(1_234, 53, b"question"),
        v4.clone().vlan(5).tag(0x88a8, 0x6007).ipv4_options(&[7, 4, 0, 0]).udp(1, 2, b""),
        v4.clone().icmp_echo_request(7, 1, b"ping"),
        v4.clone().icmp_echo_reply(0, 0, &[0; 8]),
        v4.clone().icmp(3, 4, [0, 0, 5, 0xdc], &quoted(&tcp)),
        v4.clone().icmp(11, 0, [0, 8, 0, 0], &quoted(&v4.clone().udp(1, 2, &[9; 40]))),
        v4.clone().fragment(9, 0, true).udp(1, 2, &[1; 24]),
        v4.clone().fragment(9, 64, false).raw(17, &[1; 11]),
        v4.clone().raw(47, b"other"),
        v4.ethernet_payload(
            0x0806,
            &[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
        ),
        v6.clone().tcp(1, 2, 2, b"six"),
        v6.clone().icmp_echo_request(1, 2, b"ping"),
        v6.clone().icmp(1, 4, [0; 4], &quoted(&udp6)),
        v6.clone().extension(0, &[1, 4, 0, 0, 0, 0]).fragment(3, 0, true).udp(1, 2, &[5; 16]),
        v6.extension(60, &[1, 4, 0, 0, 0, 0]).raw(59, b""),
        tcp,
        udp6,
    ]
}

/// Captures of both formats, in both byte orders, cut, and packed.
pub fn captures() -> Vec<Vec<u8>> {
    let mut files = vec![written()];
    for big in [false, true] {
        files.push(sections(big));
        for (magic, minor, link) in [(0xa1b2_c3d4, 4, 1), (0xa1b2_3c4d, 3, 101), (0xa1b2_cd34, 2, 229)] {
            files.push(classic(big, magic, minor, link));
        }
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&files[1]).expect("memory does not fail");
    files.push(packed.finish().expect("memory does not fail"));
    files.push(files[1][..files[1].len() - 9].to_vec());
    files
}

fn written() -> Vec<u8> {
    let sides = [InterfaceDescription { name: "inside", description: Some("first") }];
    let mut writer = Writer::new(Vec::new(), &sides).expect("memory does not fail");
    for (at, frame) in frames().iter().take(3).enumerate() {
        writer.write(0, at as u64 * 1_000_000_007, frame, 900).expect("memory does not fail");
    }
    writer.finish().expect("memory does not fail")
}

/// Numbers of 32 bits in one byte order.
fn words(big: bool, words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| if big { word.to_be_bytes() } else { word.to_le_bytes() }).collect()
}

/// Two numbers of 16 bits as one of 32, in the order in which they stand in the file.
fn halves(big: bool, first: u16, second: u16) -> u32 {
    let (first, second) = (u32::from(first), u32::from(second));
    if big { first << 16 | second } else { second << 16 | first }
}

fn classic(big: bool, magic: u32, minor: u16, link: u32) -> Vec<u8> {
    let mut file = words(big, &[magic, halves(big, 2, minor), 0, 0, 0xffff, link]);
    for frame in [&b"\x45raw"[..], b"\x60longer packet"] {
        let length = frame.len() as u32;
        file.extend(words(big, &[1_577_952_000, 999_999, length, length + 3]));
        file.extend(if magic == 0xa1b2_cd34 { vec![0; 8] } else { Vec::new() });
        file.extend(frame);
    }
    file
}

fn block(file: &mut Vec<u8>, big: bool, kind: u32, head: &[u32], rest: &[u8]) {
    let padding = rest.len().wrapping_neg() & 3;
    let length = (12 + 4 * head.len() + rest.len() + padding) as u32;
    file.extend(words(big, &[kind, length]));
    file.extend(words(big, head));
    file.extend(rest);
    file.resize(file.len() + padding, 0);
    file.extend(words(big, &[length]));
}

/// Two sections with all kinds of packet blocks, an unknown block and an interface with options.
fn sections(big: bool) -> Vec<u8> {
    let mut file = Vec::new();
    for link in [1, 101] {
        block(&mut file, big, 0x0a0d_0d0a, &[0x1a2b_3c4d, halves(big, 1, 0), u32::MAX, u32::MAX], b"");
        let resolution = [halves(big, 9, 1), if big { 0x0900_0000 } else { 9 }];
        let offset = [halves(big, 14, 8), 0, 100];
        let name = words(big, &[halves(big, 2, 4)]);
        let mut options = words(big, &[&resolution[..], &offset].concat());
        options.extend([&name[..], b"eth0", &[0; 4]].concat());
        block(&mut file, big, 1, &[halves(big, link, 0), 64], &options);
        block(&mut file, big, 6, &[0, 1, 2, 5, 60], b"\x45 six");
        block(&mut file, big, 2, &[halves(big, 0, 3), 1, 2, 5, 5], b"\x60 two");
        block(&mut file, big, 3, &[7], b"\x45simple");
        block(&mut file, big, 0xbad, &[], b"unknown");
    }
    file
}

/// Scripts for the ring: traffic, time, crashes, and what was then under way once more as forged messages.
pub fn units() -> Vec<Vec<u8>> {
    // One delta: a row put, one that expires, one deleted, and a tag that means nothing.
    let put = [&[0, 0, 7][..], &[1; 8]].concat();
    let mut scripts = vec![[&put[..], &[5], &[9; 8], &[1, 2, 3, 4, 5], &[2, 7], &[3]].concat()];
    for setup in [0b000_0001, 0b000_1010, 0b011_0101, 0b101_1110] {
        let mut script = vec![setup];
        for (node, key, ask) in [(0, 1, 0), (1, 2, 2), (0, 3, 4), (0, 1, 3), (1, 4, 6), (0, 2, 2)] {
            script.extend([0, node | if key == 2 { 16 } else { 0 }, 5, 0, 4, key, ask, 7, 7]);
            scripts.push(forged(&script));
            script.extend([5, 2]);
        }
        script.extend([5, 30, 6, 9]);
        scripts.push(forged(&script));
        script.extend([0, 0, 5, 0, 4, 9, 0, 7, 7]);
        for node in [1, 0] {
            script.extend([7, node]);
            scripts.push(forged(&script)); // fetches
            script.extend([5, 2]);
            scripts.push(forged(&script)); // snapshots
            script.extend([5, 40, 6, 3, 5, 40]);
        }
        scripts.push(script);
    }
    scripts
}

/// A script that goes on with what is under way after it, each message forged: its body behind a new checksum.
fn forged(script: &[u8]) -> Vec<u8> {
    let mut script = script.to_vec();
    for (to, packet) in &unit::run(&script).network {
        let (kind, body) = match packet.meta.kind {
            Kind::Frame => {
                let (frame, records) = (packet.frame(), unit::records_of(packet.unit()));
                (0, [&[frame.len() as u8][..], frame, &records].concat())
            }
            Kind::Unit => (1, unit::records_of(packet.frame())),
            Kind::Acknowledge => (2, packet.frame()[CONTROL_HEADER..].to_vec()),
            Kind::Fetch => (3, packet.frame()[CONTROL_HEADER..].to_vec()),
            Kind::Snapshot => (4, packet.frame()[CONTROL_HEADER..].to_vec()),
        };
        script.extend([kind, *to as u8 | SEALED | packet.meta.sender << 5]);
        script.extend((body.len() as u16).to_le_bytes());
        script.extend(body);
    }
    script
}
