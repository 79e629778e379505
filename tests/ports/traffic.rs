//! What goes through ports: frames one by one, and the kernel's own traffic through a pair of ports that forwards.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pannier_runtime::Packet;
use pannier_runtime::packet::Pool;
use pannier_runtime::port::{Device, Port, PortContext, PortError, PortSpec};
use pannier_runtime::wire::ethernet::ethertype;
use pannier_runtime::wire::verify::{L4Checksum, l4_checksum};
use pannier_runtime::wire::{FrameBuilder, Layers};

use crate::netns::{Namespace, segment, sleep_on};

/// Bytes that a transfer moves.
const BYTES: usize = 10 << 20;
/// No step of a test takes longer, or it has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The Ethertype of the tests' frames that are not IP (IEEE 802, local experiment).
pub(crate) const EXPERIMENT: u16 = 0x88B5;

/// Opens a port.
pub(crate) fn open(text: &str) -> Device {
    try_open(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Opens a port that has just been closed. Another test that starts a program has a copy of the old one for a moment,
/// from fork to exec.
pub(crate) fn open_again(text: &str) -> Device {
    let start = Instant::now();
    loop {
        match try_open(text) {
            Err(error) if error.problem.ends_with("in use") && start.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(10));
            }
            result => return result.unwrap_or_else(|error| panic!("{error}")),
        }
    }
}

/// Opens a port, or says why not.
pub(crate) fn try_open(text: &str) -> Result<Device, PortError> {
    PortSpec::parse(text)?.open()
}

/// Frames of all lengths that Ethernet allows with an MTU of 1,500 bytes. A customer's tag in
/// front doesn't count to it, as in the kernel.
pub(crate) fn frames(tags: &[(u16, u16)]) -> Vec<Vec<u8>> {
    let builder =
        tags.iter().fold(FrameBuilder::new(), |builder, &(kind, control)| builder.tag(kind, control));
    let is_free = tags.first().is_some_and(|&(kind, _)| kind == ethertype::VLAN);
    let longest = 1_500 - 4 * (tags.len() - usize::from(is_free));
    (46..longest)
        .step_by(50)
        .chain([longest])
        .map(|length| {
            let payload: Vec<u8> = (0..length).map(|i| (i ^ length) as u8).collect();
            builder.clone().ethernet_payload(EXPERIMENT, &payload)
        })
        .collect()
}

/// Sends frames.
pub(crate) fn send(port: &mut Device, frames: &[Vec<u8>]) {
    let mut burst: Vec<Packet> = frames.iter().map(|frame| Packet::new(frame)).collect();
    let mut pool = Pool::default();
    port.tx_burst(&mut PortContext { now: 0, pool: &mut pool }, &mut burst).expect("the port works");
    assert!(burst.is_empty(), "all of the burst is taken");
}

/// Looks once for packets, and returns how many there were.
pub(crate) fn poll(port: &mut Device) -> Result<usize, PortError> {
    port.rx_burst(64, &mut PortContext { now: 0, pool: &mut Pool::default() }, &mut Vec::new())
}

/// Receives until `count` packets have arrived that are wanted, or patience ends.
pub(crate) fn receive(port: &mut Device, count: usize, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Packet> {
    let (mut pool, mut burst, start) = (Pool::default(), Vec::new(), Instant::now());
    while burst.len() < count && start.elapsed() < PATIENCE {
        let got = port
            .rx_burst(7, &mut PortContext { now: 0, pool: &mut pool }, &mut burst)
            .expect("the port works");
        assert!(got <= 7, "no more than asked for");
        burst.retain(|packet| is_wanted(packet.frame()));
        if got == 0 {
            sleep_on(&[port], 10);
        }
    }
    burst
}

/// Sends frames from one port and wants them to arrive at another, unchanged and in order.
pub(crate) fn pass(from: &mut Device, to: &mut Device, frames: &[Vec<u8>]) {
    send(from, frames);
    let arrived = receive(to, frames.len(), |frame| frames.iter().any(|sent| sent == frame));
    for (number, sent) in frames.iter().enumerate() {
        assert_eq!(
            arrived.get(number).map(Packet::frame),
            Some(&sent[..]),
            "{:?} {:?}",
            from.stats(),
            to.stats()
        );
    }
}

/// Ends a forwarder when a test does, whichever way.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Forwards between two ports both ways while `work` is done. Wants each frame to have a right checksum and to keep
/// to the MTU.
pub(crate) fn while_forwarding(one: &mut Device, other: &mut Device, work: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut pool, mut burst) = (Pool::default(), Vec::new());
            while !is_over.load(Ordering::Relaxed) {
                let moved =
                    forward(one, other, &mut pool, &mut burst) + forward(other, one, &mut pool, &mut burst);
                if moved == 0 {
                    sleep_on(&[one, other], 10);
                }
            }
        });
        let _stop = Stop(&is_over);
        work();
    });
}

/// Forwards one burst and returns how many packets there were.
fn forward(from: &mut Device, to: &mut Device, pool: &mut Pool, burst: &mut Vec<Packet>) -> usize {
    let mut context = PortContext { now: 0, pool };
    let count = from.rx_burst(64, &mut context, burst).expect("the port works");
    burst.iter().for_each(|packet| look(packet.frame()));
    to.tx_burst(&mut context, burst).expect("the port works");
    count
}

/// Wants a forwarded frame to be complete.
fn look(frame: &[u8]) {
    let Ok(layers) = Layers::parse(frame) else { return };
    assert_ne!(l4_checksum(frame, &layers), L4Checksum::Wrong, "a checksum was left open");
    assert!(frame.len() <= 1_514, "a frame of {} bytes", frame.len());
}

/// Bytes that differ everywhere.
pub(crate) fn content(length: usize) -> Vec<u8> {
    let next = |state: &mut u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some((*state >> 33) as u8)
    };
    std::iter::repeat_n((), length).scan(7_u64, |state, ()| next(state)).collect()
}

/// Moves content by the kernel's TCP from one namespace to another, and half of it back.
pub(crate) fn tcp(from: &Namespace, to: &Namespace, address: &str) {
    let at = SocketAddr::new(address.parse::<IpAddr>().expect("it is an address"), 7_000);
    let sent = content(BYTES);
    let listener = to.run(|| TcpListener::bind(at).expect("the address is there"));
    let mut client = from.run(|| TcpStream::connect_timeout(&at, PATIENCE).expect("the server is reached"));
    let (mut server, _) = listener.accept().expect("somebody has connected");
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        stream.set_write_timeout(Some(PATIENCE)).expect("it is not zero");
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut arrived = vec![0; BYTES];
            server.read_exact(&mut arrived).expect("all of it arrives");
            assert_eq!(crc32c::crc32c(&arrived), crc32c::crc32c(&sent));
            server.write_all(&arrived[..BYTES / 2]).expect("the client listens");
        });
        client.write_all(&sent).expect("the server listens");
        let mut back = vec![0; BYTES / 2];
        client.read_exact(&mut back).expect("all of it comes back");
        assert_eq!(crc32c::crc32c(&back), crc32c::crc32c(&sent[..BYTES / 2]));
    });
}

/// Sends datagrams of `size` bytes by the kernel's UDP, cut from longer ones as late as the kernel can.
pub(crate) fn udp(from: &Namespace, to: &Namespace, address: &str, size: u16) {
    let at = SocketAddr::new(address.parse::<IpAddr>().expect("it is an address"), 7_001);
    let any: SocketAddr = if at.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    let server = to.run(|| UdpSocket::bind(at).expect("the address is there"));
    server.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
    let client = from.run(|| UdpSocket::bind(any).expect("there is a free port"));
    segment(&client, size.into());
    let size = usize::from(size);
    let sent = content(size * 20 + 7);
    client.send_to(&sent, at).expect("it can be sent");
    let mut room = vec![0; 2 * size];
    for part in sent.chunks(size) {
        let length = server.recv(&mut room).expect("it arrives");
        assert!(room[..length] == *part, "each datagram is as it was cut");
    }
}

/// Pings an address three times; said aloud where there is no `ping`, which waits for the last answer no longer than for the
/// next question, once it has got one.
pub(crate) fn ping(from: &Namespace, address: &str) {
    let ping = from.command("ping").args(["-c", "3", "-i", "0.2", "-W", "5", address]).output();
    let ping = ping.expect("there is the program `ip`");
    let (said, error) = (String::from_utf8_lossy(&ping.stdout), String::from_utf8_lossy(&ping.stderr));
    if error.contains("exec of \"ping\" failed") {
        eprintln!("SKIPPED: a ping, without the program (Debian: iputils-ping)");
        return;
    }
    assert!(said.contains("3 received"), "{said}{error}");
}
