//! DPDK's ports on devices that need no network card. A process has one DPDK: each test has devices of its own names.

use std::path::Path;
use std::time::{Duration, SystemTime};

use pannier_runtime::Packet;
use pannier_runtime::packet::Pool;
use pannier_runtime::port::pcap::{InterfaceDescription, Reader, Writer};
use pannier_runtime::port::{Device, Port, PortContext};
use pannier_runtime::wire::ethernet::ethertype;

use crate::netns::{Line, Namespace, join, without_rights};
use crate::traffic::{frames, open, pass, receive, send, tcp, try_open, udp, wait, while_forwarding};

/// Frames of these lengths, all different.
fn of_lengths(lengths: impl IntoIterator<Item = usize>) -> Vec<Vec<u8>> {
    lengths.into_iter().map(|length| (0..length).map(|i| (i * 7 + length) as u8).collect()).collect()
}

/// Takes all frames that have arrived, and returns how many.
fn drain(port: &mut Device) -> usize {
    let (mut pool, mut burst) = (Pool::default(), Vec::new());
    port.rx_burst(10_000, &mut PortContext { now: 0, pool: &mut pool }, &mut burst).expect("the port works")
}

fn since_epoch() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64)
}

#[test]
fn a_null_device_gives_and_takes() {
    // Goal: bursts, times and counters are right. Method: a device that always gives frames of 100 bytes and takes all.
    let mut port = open("dpdk:net_null0,size=100");
    let start = since_epoch();
    let (mut pool, mut burst) = (Pool::default(), Vec::new());
    for most in [0, 1, 32, 33, 100] {
        let before = burst.len();
        let got = port.rx_burst(most, &mut PortContext { now: 0, pool: &mut pool }, &mut burst);
        assert_eq!((got, burst.len() - before), (Ok(most), most));
    }
    let end = since_epoch();
    assert!(burst.iter().all(|packet| packet.frame().len() == 100));
    assert!(burst.iter().all(|packet| (start..=end).contains(&packet.meta.time)));
    port.tx_burst(&mut PortContext { now: 0, pool: &mut pool }, &mut burst).expect("the port works");
    let stats = port.stats();
    assert_eq!((stats.received, stats.sent), (166, 166));
    assert_eq!((stats.receive_drops.total(), stats.send_drops.total()), (0, 0), "{stats:?}");
    assert_eq!((port.name(), port.wake_fd().is_none()), ("dpdk:net_null0,size=100", true));
}

#[test]
fn a_ring_gives_back_what_it_took() {
    // Goal: bytes and order survive, in one buffer and in chains. Method: a device whose two ends are one
    // ring; lengths around those of a buffer, up to the longest frame.
    let mut port = open("dpdk:net_ring0");
    let mut twin = open("dpdk:net_ring9");
    let frames =
        of_lengths((14..200).chain([1_514, 2_047, 2_048, 2_049, 4_096, 4_097, 9_018, 65_536, 262_144]));
    for _ in 0..5 {
        for some in frames.chunks(64) {
            send(&mut port, some);
            let arrived = receive(&mut port, some.len(), |_| true);
            assert!(arrived.iter().map(Packet::frame).eq(some.iter().map(Vec::as_slice)));
        }
    }
    assert_eq!(drain(&mut twin), 0);
    assert_eq!(port.stats().sent, 5 * frames.len() as u64);
}

#[test]
fn what_is_done_to_a_frame_in_a_ports_buffer_arrives() {
    // Goal: frames are sent as they are now, whatever buffer they are in by then. Method: edits of both ends and of the
    // middle, a unit behind, growth into a chain of buffers; the same on packets with memory of their own.
    type Edit = fn(&mut Packet);
    let edits: [Edit; 8] = [
        |_| (),
        |packet| packet.frame_mut()[3..9].fill(0xab),
        |packet| assert!(packet.push_front(64) && !packet.push_front(1)),
        |packet| assert!(packet.push_front(-20)),
        |packet| packet.resize(20),
        |packet| packet.resize(2_048),
        |packet| packet.resize(9_000),
        |packet| packet.set_unit(&[1; 3_000]),
    ];
    let mut port = open("dpdk:net_ring3");
    for length in [60, 1_514, 2_048, 3_000] {
        let frames = of_lengths([length; 8]);
        for _ in 0..3 {
            send(&mut port, &frames);
            let mut lent = receive(&mut port, 8, |_| true);
            let mut own: Vec<Packet> = frames.iter().map(|frame| Packet::new(frame)).collect();
            lent.iter_mut().zip(edits).for_each(|(packet, edit)| edit(packet));
            own.iter_mut().zip(edits).for_each(|(packet, edit)| edit(packet));
            port.tx_burst(&mut PortContext { now: 0, pool: &mut Pool::default() }, &mut lent)
                .expect("it works");
            let arrived = receive(&mut port, 8, |_| true);
            assert!(arrived.iter().map(Packet::frame).eq(own.iter().map(Packet::frame)));
        }
    }
}

#[test]
fn what_a_full_ring_does_not_take_is_counted() {
    // Goal: nothing is lost in silence, and a full ring works again when it is empty. Method: fill a ring beyond its
    // room, several times; frames that are none in between.
    let mut port = open("dpdk:net_ring1");
    let frames = of_lengths(std::iter::repeat_n(60, 3_000));
    for round in 1..=3 {
        send(&mut port, &[vec![0; 13], vec![0; 262_145]]);
        send(&mut port, &frames);
        let stats = port.stats();
        let room = stats.sent / round;
        assert!((1_000..=1_024).contains(&room), "{stats:?}");
        let drops = stats.send_drops.sorted();
        let expected = [
            ("longer_than_port_takes", round),
            ("not_ethernet", round),
            ("ring_full", round * (3_000 - room)),
        ];
        assert_eq!(drops, expected);
        assert_eq!(receive(&mut port, room as usize, |_| true).len() as u64, room);
        assert_eq!(drain(&mut port), 0);
    }
}

#[test]
fn a_port_may_move_between_threads_and_be_opened_again() {
    // Goal: caches of threads and of earlier ports harm nobody. Method: a ring that sends in one thread and receives in
    // another, many times, closed with frames in it, and opened again under its name.
    for _ in 0..3 {
        let mut port = open("dpdk:net_ring2");
        for _ in 0..20 {
            let frames = of_lengths([60; 100]);
            let send_all = |mut port: Device, frames: &[Vec<u8>]| {
                send(&mut port, frames);
                port
            };
            port =
                std::thread::scope(|scope| scope.spawn(|| send_all(port, &frames)).join().expect("it sends"));
            assert_eq!(receive(&mut port, 100, |_| true).len(), 100);
        }
        send(&mut port, &of_lengths([60; 500]));
        let error = try_open("dpdk:net_ring2").expect_err("it is open").to_string();
        assert!(error.starts_with("dpdk:net_ring2: a port with this device is open: close it"), "{error}");
    }
}

#[test]
fn captures_are_read_and_written() {
    // Goal: frames of a capture are the same behind two ports. Method: read a capture by one device and write another;
    // single buffers and chains.
    let folder = tempfile::tempdir().expect("there is room for files");
    let (from, to) = (folder.path().join("from.pcapng"), folder.path().join("to.pcap"));
    let frames = of_lengths((14..300).chain([1_514, 2_048, 2_049, 9_018]));
    let interface = InterfaceDescription { name: "test", description: None };
    let mut writer = Writer::create(&from, &[interface]).expect("it can be written");
    for frame in &frames {
        writer.write(0, 1_700_000_000_000_000_000, frame, frame.len() as u32).expect("it can be written");
    }
    writer.finish().expect("it can be written");
    let mut reader = open(&format!("dpdk:net_pcap0,rx_pcap={}", from.display()));
    let mut writer = open(&format!("dpdk:net_pcap1,tx_pcap={}", to.display()));
    let mut packets = receive(&mut reader, frames.len(), |_| true);
    assert!(packets.iter().map(Packet::frame).eq(frames.iter().map(Vec::as_slice)));
    let mut pool = Pool::default();
    writer.tx_burst(&mut PortContext { now: 0, pool: &mut pool }, &mut packets).expect("the port works");
    assert_eq!(drain(&mut reader), 0);
    // This driver does not say that it can send chains.
    let (short, long): (Vec<_>, Vec<_>) = frames.into_iter().partition(|frame| frame.len() <= 2_048);
    let stats = writer.stats();
    assert_eq!(stats.sent, short.len() as u64);
    assert_eq!(stats.send_drops.sorted(), [("longer_than_port_takes", long.len() as u64)]);
    drop(writer);
    assert_eq!(read(&to), short);
}

fn read(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = Reader::open(path).expect("it is there");
    let (mut frames, mut frame) = (Vec::new(), Vec::new());
    while reader.next(&mut frame).expect("it is whole").is_some() {
        frames.push(frame.clone());
    }
    frames
}

#[test]
fn frames_pass_a_veth_both_ways() {
    // Goal: an interface of the kernel works as a port, tags included, also after it was down. Method: both ends of a
    // veth in two namespaces; all lengths, both ways; one end down for a while.
    let (Some(one), Some(other)) = (Namespace::new(), Namespace::new()) else { return };
    let (one, other) = (one.without_ipv6(), other.without_ipv6());
    join((&one, "a"), (&other, "b"));
    let mut a = one.run(|| open("dpdk:net_af_packet0,iface=a"));
    let mut b = other.run(|| open("dpdk:net_af_packet1,iface=b"));
    let mut sent = 0;
    for tags in [&[][..], &[(ethertype::VLAN, 0x6005)], &[(ethertype::VLAN, 5), (ethertype::VLAN, 6)]] {
        let frames = frames(tags);
        pass(&mut a, &mut b, &frames);
        pass(&mut b, &mut a, &frames);
        sent += frames.len() as u64;
    }
    assert_eq!((a.stats().sent, b.stats().sent), (sent, sent));
    one.ip("link set dev a down");
    send(&mut a, &frames(&[])[..5]);
    let stats = a.stats();
    assert_eq!((stats.sent, stats.send_drops.total()), (sent, 5), "{stats:?}");
    one.ip("link set dev a up");
    // The driver hears of the interruption with the first burst after it, and sends that one late.
    wait(|| {
        send(&mut a, &of_lengths([99]));
        std::thread::sleep(Duration::from_millis(10));
        drain(&mut b) > 0
    });
    pass(&mut a, &mut b, &frames(&[]));
}

#[test]
fn traffic_of_the_kernel_passes_when_it_leaves_no_work_to_a_device() {
    // Goal: what the documentation says about checksums and super-frames is enough. Method: TCP and UDP of the kernel
    // through two ports that forward, with the senders' offloads off.
    let Some(line) = Line::new() else { return };
    for end in [&line.client, &line.server] {
        let off = end.command("ethtool").args(["-K", "wire", "tx", "off"]).output();
        if !off.is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED: traffic of the kernel, without the program `ethtool`");
            return;
        }
    }
    let mut inside = line.chain.run(|| open("dpdk:net_af_packet2,iface=inside"));
    let mut outside = line.chain.run(|| open("dpdk:net_af_packet3,iface=outside"));
    while_forwarding(&mut inside, &mut outside, || {
        for address in Line::SERVER {
            tcp(&line.client, &line.server, address);
            udp(&line.client, &line.server, address, 1_000);
        }
    });
}

#[test]
fn what_is_wrong_is_said_in_one_sentence() {
    // Goal: a person learns what to do. Method: each kind of mistake, and the words of its error.
    let _root = open("dpdk:net_null7");
    for (name, words) in [
        ("dpdk:", "no device is named: name one"),
        ("dpdk:net_nothing0", "DPDK has no driver of this name: name one"),
        ("dpdk:net_null8,colour=red", "the driver refuses: its options: check its options"),
        ("dpdk:net_af_packet8,iface=nowhere", "No such device: check its options, that the interface"),
        ("dpdk:net_pcap8,rx_pcap=/nowhere", "No such file or directory: check"),
        ("dpdk:net_null8,buffers=7", "buffers is 7: give a number from 1023"),
        ("dpdk:crypto_null0", "this device has no port: name a network device"),
    ] {
        let error = try_open(name).expect_err(name).to_string();
        assert!(error.starts_with(name) && error.contains(words), "{error}");
    }
    let error =
        without_rights(|| try_open("dpdk:net_af_packet9,iface=lo")).expect_err("no right").to_string();
    assert!(error.contains("Could not open AF_PACKET socket: check") && error.contains("root"), "{error}");
}
