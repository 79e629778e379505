//! The port `af_xdp` on veth pairs, alone and as a bump in the wire between two namespaces.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use pannier_runtime::Packet;
use pannier_runtime::wire::ethernet::ethertype;

use crate::netns::{Line, Namespace, join, sleep_on, without_rights};
use crate::traffic::{
    EXPERIMENT, PATIENCE, frames as tagged, hear, open, pass, ping, poll, receive, send, tcp, try_open, udp,
    wait, while_forwarding,
};

/// A namespace with the pair `left` and `right`, both up.
fn pair() -> Option<Namespace> {
    let namespace = Namespace::new()?.without_ipv6();
    join((&namespace, "left"), (&namespace, "right"));
    Some(namespace)
}

/// A frame of `length` bytes that no kernel answers.
fn frame(length: usize, seed: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..length).map(|i| (i * 31 + seed * 17 + i * seed / 7) as u8).collect();
    frame[12..14].copy_from_slice(&EXPERIMENT.to_be_bytes());
    frame
}

fn frames_of(packets: &[Packet]) -> Vec<&[u8]> {
    packets.iter().map(Packet::frame).collect()
}

fn epoch_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right").as_nanos() as u64
}

#[test]
fn frames_cross_a_veth_unchanged_both_ways() {
    // Goal: what is sent is what arrives, in order and with its time. Method: frames of all lengths from the Ethernet
    // header to the MTU and a tag, in a burst larger than a ring, and back in small ones; then frames with a tag.
    let Some(namespace) = pair() else { return };
    let [mut left, mut right] =
        ["af_xdp:left,frames=64", "af_xdp:right,mode=copy"].map(|port| namespace.run(|| open(port)));
    let lengths = [14, 15, 59, 60, 61, 64, 590, 1_513, 1_514, 1_518];
    let frames: Vec<_> = (0..500).map(|i| frame(lengths[i % lengths.len()], i)).collect();
    let before = epoch_nanos();
    send(&mut left, &frames);
    let arrived = receive(&mut right, frames.len(), |_| true);
    assert!(frames_of(&arrived) == frames, "{} arrived", arrived.len());
    for packet in &arrived {
        assert!((before..=epoch_nanos()).contains(&packet.meta.time), "{}", packet.meta.time);
    }
    for part in frames.chunks(32) {
        pass(&mut right, &mut left, part);
    }
    let tagged = tagged(&[(ethertype::VLAN, 0x6005)]);
    pass(&mut right, &mut left, &tagged);
    pass(&mut left, &mut right, &tagged);
    let count = 500 + tagged.len() as u64;
    for stats in [left.stats(), right.stats()] {
        assert_eq!((stats.sent, stats.received), (count, count));
        assert_eq!((stats.send_drops.total(), stats.receive_drops.total()), (0, 0));
    }
}

#[test]
fn what_does_not_fit_is_dropped_and_counted() {
    // Goal: no frame vanishes uncounted, at either end. Method: frames too short and too long; then the MTU grows.
    // Then more frames than the receiver has chunks.
    let Some(namespace) = pair() else { return };
    let [mut left, mut right] =
        ["af_xdp:left", "af_xdp:right,frames=64"].map(|port| namespace.run(|| open(port)));
    send(&mut left, &[vec![1; 13], frame(1_519, 1), frame(9_000, 2), frame(60, 3)]);
    assert_eq!(frames_of(&receive(&mut right, 1, |_| true)), [frame(60, 3)]);
    let drops = [("longer_than_mtu", 2), ("not_ethernet", 1)];
    assert_eq!((left.stats().sent, left.stats().send_drops.sorted()), (1, drops.to_vec()));
    for side in ["left", "right"] {
        namespace.ip(&format!("link set dev {side} mtu 3000"));
    }
    pass(&mut left, &mut right, &[frame(3_014, 4)]);
    let many: Vec<_> = (0..100).map(|i| frame(100, i)).collect();
    send(&mut left, &many);
    wait(|| right.stats().receive_drops.total() == 68);
    assert_eq!(frames_of(&receive(&mut right, 32, |_| true)), many[..32]);
    pass(&mut left, &mut right, &many[..32]);
}

#[test]
fn a_driver_that_declines_the_program_is_gone_round() {
    // Goal: the port works where the driver takes no program, with what fits into a chunk. Method: a veth takes none
    // while its MTU is large; frames of as many bytes as a chunk holds of one that arrives, and of one more.
    let Some(namespace) = pair() else { return };
    for side in ["left", "right"] {
        namespace.ip(&format!("link set dev {side} mtu 9000"));
    }
    let [mut left, mut right] = ["af_xdp:left", "af_xdp:right"].map(|port| namespace.run(|| open(port)));
    let shown = show(&namespace, "right");
    assert!(shown.contains("xdpgeneric"), "{shown}");
    let frames = [frame(3_841, 1), frame(3_840, 2), frame(60, 3)];
    send(&mut left, &frames);
    assert_eq!(frames_of(&receive(&mut right, 2, |_| true)), frames[1..]);
    assert_eq!(right.stats().receive_drops.sorted(), [("too_long_or_no_chunk", 1)]);
}

#[test]
fn a_sleeper_is_woken() {
    // Goal: nobody must poll. Method: sleep on the descriptor before a frame arrives, with it, and after it is taken.
    let Some(namespace) = pair() else { return };
    let [mut left, mut right] = ["af_xdp:left", "af_xdp:right"].map(|port| namespace.run(|| open(port)));
    assert_eq!(sleep_on(&[&right], 0), 0);
    send(&mut left, &[frame(60, 1)]);
    assert_eq!(sleep_on(&[&right], PATIENCE.as_millis() as i32), 1);
    assert_eq!(poll(&mut right), Ok(1));
    assert_eq!(sleep_on(&[&right], 0), 0);
}

#[test]
fn an_interface_may_go_down_and_come_up_again() {
    // Goal: down is no error, and no frame from before comes after. Method: send while the peer, then both are down;
    // then up again.
    let Some(namespace) = pair() else { return };
    let [mut left, mut right] = ["af_xdp:left", "af_xdp:right"].map(|port| namespace.run(|| open(port)));
    namespace.ip("link set dev right down");
    send(&mut left, &vec![frame(60, 1); 200]);
    namespace.ip("link set dev left down");
    send(&mut left, &[frame(60, 3), frame(60, 4), frame(60, 5)]);
    assert_eq!(poll(&mut right), Ok(0));
    let drops = [("interface_down", 3), ("refused_by_kernel", 200)];
    assert_eq!((left.stats().sent, left.stats().send_drops.sorted()), (0, drops.to_vec()));
    namespace.ip("link set dev left up");
    namespace.ip("link set dev right up");
    pass(&mut left, &mut right, &[frame(60, 6)]);
    pass(&mut right, &mut left, &[frame(60, 7)]);
    assert_eq!((left.stats().sent, right.stats().received), (1, 1));
}

#[test]
fn a_deleted_interface_is_an_error() {
    // Goal: a port that will never work again says so. Method: delete the pair; one end sends, which is counted, the
    // other only looks.
    let Some(namespace) = pair() else { return };
    let [mut left, mut right] = ["af_xdp:left", "af_xdp:right"].map(|port| namespace.run(|| open(port)));
    namespace.ip("link del dev left");
    for count in [1, 2] {
        send(&mut left, &[frame(60, 1)]);
        assert_eq!(left.stats().send_drops.sorted(), [("interface_deleted", count)]);
    }
    for (name, port) in [("left", &mut left), ("right", &mut right)] {
        let sentence = "the interface was deleted: make it again and open the port anew";
        assert_eq!(hear(port), format!("af_xdp:{name}: {sentence}"));
    }
}

/// What `ip` says about an interface.
fn show(namespace: &Namespace, interface: &str) -> String {
    let output = namespace.command("ip").args(["link", "show", "dev", interface]).output();
    String::from_utf8_lossy(&output.expect("there is the program `ip`").stdout).into_owned()
}

#[test]
fn the_program_is_gone_after_the_port() {
    // Goal: nothing stays behind. Method: what the kernel says about the interface before, while the port is open, and
    // after; all of it again.
    let Some(namespace) = pair() else { return };
    for _ in 0..2 {
        assert!(!show(&namespace, "left").contains("xdp"));
        let port = namespace.run(|| open("af_xdp:left"));
        assert!(show(&namespace, "left").contains("prog/xdp"));
        drop(port);
        wait(|| !show(&namespace, "left").contains("xdp"));
    }
}

#[test]
fn each_refusal_is_a_sentence() {
    // Goal: a person learns what is wrong and what to do. Method: provoke what a veth can refuse, and a missing right.
    let Some(namespace) = pair() else { return };
    namespace.ip("link add name two numrxqueues 2 numtxqueues 2 type veth peer name owt");
    let heard = |port: &str| namespace.run(|| try_open(port).err().map(|error| error.to_string()));
    let _taken = namespace.run(|| open("af_xdp:two,queue=0"));
    for (port, sentence) in [
        ("af_xdp:none", "there is no interface `none`: `ip link` lists those that there are"),
        (
            "af_xdp:left,queue=1",
            "`left` has no queue 1: `ethtool -l left` shows how many it has, counted from 0",
        ),
        (
            "af_xdp:left,mode=zerocopy",
            "the driver of `left` can't do without copying: leave out mode=zerocopy",
        ),
        (
            "af_xdp:two",
            "what arrives at `two` is spread over 2 queues, of which the chain would see 1: leave so many to it \
             (`ethtool -L two combined 1`, or `rx 1`), set shards=2, or name one with queue=0",
        ),
        (
            "af_xdp:two,queue=0",
            "another AF_XDP socket has queue 0 of `two`: close that one, or take another queue",
        ),
        (
            "af_xdp:two,queue=1",
            "another XDP program is attached to `two`: stop the process that attached it, or take it off with \
             `ip link set two xdp off`",
        ),
    ] {
        assert_eq!(heard(port), Some(format!("{port}: {sentence}")));
    }
    let powerless =
        namespace.run(|| without_rights(|| try_open("af_xdp:left").expect_err("it may not").to_string()));
    assert_eq!(
        powerless,
        "af_xdp:left: one of the rights CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF is missing: run as root, or once \
         `setcap cap_net_raw,cap_net_admin,cap_bpf+ep` on the program"
    );
    assert_eq!(heard("af_xdp:left"), None, "what was refused left nothing behind");
}

#[test]
fn three_rights_and_enough_memory_to_lock_will_do() {
    // Goal: a limit that few know is told, and three rights are enough. Method: this test runs itself again with a
    // limit and these rights only; the new process says what it hears.
    const ASK: &str = "PANNIER_TEST_OPENS";
    if let Ok(port) = std::env::var(ASK) {
        println!(
            "heard {}.",
            try_open(&port).map_or_else(|error| error.to_string(), |_| "nothing".to_owned())
        );
        return;
    }
    let Some(namespace) = pair() else { return };
    if Command::new("setpriv").arg("-V").output().is_err() {
        eprintln!("SKIPPED: a limit of locked memory needs prlimit and setpriv (Debian: util-linux)");
        return;
    }
    let hear = |port: &str| {
        let rights = "--bounding-set=-all,+net_raw,+net_admin,+bpf";
        let limits = ["--memlock=1048576", "setpriv", rights, "--inh-caps=-all"];
        let test = ["af_xdp::three_rights_and_enough_memory_to_lock_will_do", "--exact", "--nocapture"];
        let mut child = namespace.command("prlimit");
        child.args(limits).arg(std::env::current_exe().expect("a test has a file")).args(test).env(ASK, port);
        String::from_utf8_lossy(&child.output().expect("there is the program `ip`").stdout).into_owned()
    };
    let heard = hear("af_xdp:left");
    let sentence = "it may not lock 16384 KiB of memory: raise the limit with `ulimit -l`";
    assert!(heard.contains(sentence), "{heard}");
    let heard = hear("af_xdp:left,frames=128");
    assert!(heard.contains("heard nothing."), "{heard}");
}

#[test]
fn traffic_of_the_kernel_passes() {
    // Goal: a bump in the wire works as it is, without a word to ethtool. Method: the kernel's own ping, UDP and TCP
    // between two namespaces, over both versions of IP, with the offloads that the kernel has by itself.
    let Some(line) = Line::new() else { return };
    let [mut inside, mut outside] =
        ["af_xdp:inside", "af_xdp:outside"].map(|port| line.chain.run(|| open(port)));
    while_forwarding(&mut inside, &mut outside, || {
        for address in Line::SERVER {
            ping(&line.client, address);
            udp(&line.client, &line.server, address, 1_400);
            tcp(&line.client, &line.server, address);
        }
        tcp(&line.server, &line.client, Line::CLIENT[0]);
    });
    for stats in [inside.stats(), outside.stats()] {
        assert_eq!((stats.send_drops.total(), stats.receive_drops.total()), (0, 0));
        assert!(stats.sent > 1_000 && stats.received > 1_000);
    }
}
