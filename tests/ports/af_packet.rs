//! The port on an existing interface.

use std::io::Write;
use std::time::SystemTime;

use pannier_runtime::port::Device;
use pannier_runtime::wire::checksum::Sum;
use pannier_runtime::wire::ethernet::ethertype;
use pannier_runtime::wire::tcp::flags;
use pannier_runtime::wire::{FrameBuilder, Layers, protocol, verify};

use crate::netns::{Line, Namespace, join, raw_tap, send_with_header, sleep_on, without_rights};
use crate::traffic::{
    DATAGRAMS, frames, hear, open, pass, ping, poll, receive, send, tcp, try_open, udp, wait,
    while_forwarding,
};

/// A small ring of each kind.
const RINGS: [&str; 2] = ["frames=64", "blocks=16"];

/// Two namespaces, a veth pair between them, and a port at each end, one with such a ring.
fn pair(ring: &str) -> Option<(Namespace, Namespace, Device, Device)> {
    let (one, other) = (Namespace::new()?.without_ipv6(), Namespace::new()?.without_ipv6());
    join((&one, "left"), (&other, "right"));
    let (a, b) = (one.run(|| open("af_packet:left")), other.run(|| open(&format!("af_packet:right,{ring}"))));
    Some((one, other, a, b))
}

/// Does a test with each kind of ring; said aloud where there are no namespaces.
fn each_ring(test: impl Fn(Namespace, Namespace, Device, Device)) {
    for ring in RINGS {
        let Some((one, other, a, b)) = pair(ring) else { return };
        test(one, other, a, b);
    }
}

fn since_epoch() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64)
}

#[test]
fn frames_pass_both_ways_unchanged() {
    // Goal: bytes, order and time are right. Method: all lengths from end to end of a veth, both ways, and more than
    // the smaller ring has slots; the counters of both ends.
    each_ring(|_one, _other, mut a, mut b| {
        let (frames, start) = (frames(&[]), since_epoch());
        for _ in 0..5 {
            pass(&mut a, &mut b, &frames);
            pass(&mut b, &mut a, &frames);
        }
        send(&mut a, &frames[..1]);
        let last = receive(&mut b, 1, |_| true);
        assert!(last[0].meta.time >= start && last[0].meta.time <= since_epoch());
        let count = 5 * frames.len() as u64;
        assert_eq!((a.stats().sent, a.stats().received), (count + 1, count));
        assert_eq!((b.stats().sent, b.stats().received), (count, count + 1));
        for port in [a, b] {
            let stats = port.stats();
            assert_eq!((stats.send_drops.total(), stats.receive_drops.total()), (0, 0), "{stats:?}");
        }
    });
}

#[test]
fn tags_are_kept() {
    // Goal: a tag that the kernel takes out is back in the frame. Method: one tag and two, of both kinds, with
    // priorities, at all lengths, both ways.
    each_ring(|_one, _other, mut a, mut b| {
        let (customer, service) = ((ethertype::VLAN, 0x6005), (ethertype::SERVICE_VLAN, 0xF123));
        for tags in [&[customer][..], &[service], &[service, customer], &[(ethertype::VLAN, 0), customer]] {
            pass(&mut a, &mut b, &frames(tags));
            pass(&mut b, &mut a, &frames(tags));
        }
    });
}

#[test]
fn what_cannot_be_sent_is_counted() {
    // Goal: a frame that is refused takes no other one with it. Method: frames that are too long or too short between
    // good ones.
    each_ring(|_one, _other, mut a, mut b| {
        let good = frames(&[]);
        let (mut long, short) = (good[good.len() - 1].clone(), vec![1; 13]);
        long.push(0);
        send(&mut a, &[long.clone(), good[0].clone(), short.clone(), long, short, good[1].clone()]);
        let arrived = receive(&mut b, 2, |_| true);
        assert_eq!((arrived[0].frame(), arrived[1].frame()), (&good[0][..], &good[1][..]));
        let stats = a.stats();
        assert_eq!(
            (stats.sent, stats.send_drops.sorted()),
            (2, vec![("longer_than_mtu", 2), ("not_ethernet", 2)])
        );
    });
}

#[test]
fn what_a_ring_has_no_room_for_is_counted() {
    // Goal: no frame is lost in silence. Method: more than the ring has room for: of slots exactly so many arrive, of blocks many
    // and not all, which depends on how often their timers run out meanwhile; then the ring goes on.
    each_ring(|_one, _other, mut a, mut b| {
        let (good, rounds) = (frames(&[]), 300);
        (0..rounds).for_each(|_| send(&mut a, &good));
        let (sent, mut arrived, has_slots) = (rounds * good.len(), 0, b.name().contains("frames"));
        // The kernel may deliver the last of them a little later.
        wait(|| !has_slots || b.stats().receive_drops.total() >= sent as u64 - 64);
        wait(|| {
            while let Ok(count @ 1..) = poll(&mut b) {
                arrived += count;
            }
            arrived + b.stats().receive_drops.total() as usize >= sent
        });
        assert!(if has_slots { arrived == 64 } else { (256..sent).contains(&arrived) });
        assert_eq!(b.stats().receive_drops.sorted(), [("ring_full", (sent - arrived) as u64)]);
        assert_eq!(b.stats(), b.stats());
        pass(&mut a, &mut b, &good);
    });
}

#[test]
fn an_interface_that_goes_down_comes_back() {
    // Goal: down is no error, and up again is as before. Method: take the interface down, send and receive, bring it up.
    each_ring(|_one, other, mut a, mut b| {
        let frames = frames(&[]);
        for round in 1..=2 {
            other.ip("link set dev right down");
            send(&mut b, &frames[..4]);
            assert_eq!(b.stats().send_drops.sorted(), [("interface_down", 4 * round)]);
            for _ in 0..200 {
                assert_eq!(poll(&mut b), Ok(0));
            }
            assert_eq!(sleep_on(&[&b], 0), 0, "an interface that is down wakes nobody");
            other.ip("link set dev right up");
            pass(&mut a, &mut b, &frames);
            pass(&mut b, &mut a, &frames);
        }
    });
}

#[test]
fn a_deleted_interface_is_told() {
    // Goal: nobody waits for ever for what is gone. Method: delete the interface, receive and send.
    each_ring(|_one, other, _a, mut b| {
        other.ip("link del dev right");
        let sentence =
            format!("{}: the interface was deleted: make it again and open the port anew", b.name());
        assert_eq!(hear(&mut b), sentence);
        assert_eq!(poll(&mut b).expect_err("it is gone").to_string(), sentence);
        send(&mut b, &frames(&[])[..3]);
        assert_eq!(b.stats().send_drops.sorted(), [("interface_deleted", 3)]);
    });
}

#[test]
fn the_kernels_traffic_passes_with_all_offloads_on() {
    // Goal: partial checksums and super-frames leave the port as whole frames. Method: kernel TCP, UDP and ping between
    // two namespaces through two ports that forward, one of blocks; the content arrives, and there were super-frames.
    let Some(line) = Line::new() else { return };
    let mut inside = line.chain.run(|| open("af_packet:inside"));
    let mut outside = line.chain.run(|| open("af_packet:outside,blocks=64"));
    while_forwarding(&mut inside, &mut outside, || {
        for address in Line::SERVER {
            ping(&line.client, address);
            tcp(&line.client, &line.server, address);
            let before = line.chain.frames_received("inside");
            udp(&line.client, &line.server, address, 1_200);
            let datagrams = line.chain.frames_received("inside") - before;
            assert!(datagrams < 10, "{datagrams} frames for {DATAGRAMS} datagrams: there was no super-frame");
        }
    });
    let (frames, pieces) = (line.chain.frames_received("inside"), inside.stats().received);
    assert!(
        pieces > frames + 2 * DATAGRAMS,
        "{pieces} packets of {frames} frames: there were no super-frames of TCP"
    );
    let drops = inside.stats().send_drops.total() + outside.stats().send_drops.total();
    assert_eq!(drops, 0, "{:?} {:?}", inside.stats(), outside.stats());
}

const CLIENT: [u8; 4] = [10, 77, 0, 1];
const SERVER: [u8; 4] = [10, 77, 0, 2];

/// A tagged frame of TCP without its checksum, as the kernel is given it: behind a header that says so, and that it is
/// to be cut into segments of `size` bytes, if any.
fn unfinished(builder: &FrameBuilder, payload: &[u8], size: u16) -> Vec<u8> {
    let mut frame = builder.clone().tcp(1, 2, flags::ACK, payload);
    let sum = Sum::pseudo_ipv4(CLIENT, SERVER, protocol::TCP, (frame.len() - L4) as u16);
    frame[L4 + 16..L4 + 18].copy_from_slice(&(!sum.checksum()).to_be_bytes());
    // Needs a checksum, TCP over IPv4, length of the headers, of a segment, and where the checksum is.
    let numbers = [58, size, L4 as u16, 16].map(u16::to_ne_bytes);
    [&[1, u8::from(size > 0)][..], numbers.as_flattened(), &frame].concat()
}

/// Where TCP begins behind one tag.
const L4: usize = 38;

#[test]
fn a_tagged_super_frame_is_cut_into_tagged_frames() {
    // Goal: each piece has the tag that the kernel took out, and is what a sender without offloads sends. Method: give
    // the kernel super-frames with a tag, too long for a slot of the ring and not, and build the pieces by hand. The port
    // at the interface that they are sent on gets none.
    each_ring(|one, _other, mut left, mut right| {
        let builder = FrameBuilder::ipv4(CLIENT, SERVER).tag(ethertype::VLAN, 0x6005);
        for (length, size) in [(40_000, 1_400), (1_200, 500)] {
            let payload: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            let parts: Vec<&[u8]> = payload.chunks(size).collect();
            one.run(|| send_with_header("left", &unfinished(&builder, &payload, size as u16)));
            let arrived = receive(&mut right, parts.len(), |_| true);
            assert_eq!(arrived.len(), parts.len(), "{:?}", right.stats());
            for (number, (packet, part)) in arrived.iter().zip(parts).enumerate() {
                let (id, sequence) = (number as u16, 1 + (number * size) as u32);
                let mut expected = builder.clone().tcp(1, 2, flags::ACK, part);
                expected[22..24].copy_from_slice(&id.to_be_bytes());
                expected[L4 + 4..L4 + 8].copy_from_slice(&sequence.to_be_bytes());
                let layers = Layers::parse(&expected).expect("it is well formed");
                verify::recompute(&mut expected, &layers);
                assert_eq!(packet.frame(), expected);
            }
        }
        assert_eq!(poll(&mut left), Ok(0), "what the machine itself sends does not arrive");
    });
}

#[test]
fn a_frame_that_no_ring_has_room_for_costs_no_other() {
    // Goal: such a frame is counted, no other is lost or comes twice. Method: super-frames of 300,000 bytes (BIG TCP) among others,
    // for more than a round of the ring; a block is handed over empty for each.
    each_ring(|one, _other, mut left, mut right| {
        one.ip("link set dev left gso_max_size 400000");
        let mut frame = FrameBuilder::ipv6([0xFD; 16], [0xFE; 16]).tcp(1, 2, flags::ACK, &[]);
        frame.resize(300_000, 7);
        // Needs a checksum, TCP over IPv6, length of the headers, of a segment, and where the checksum is.
        let numbers = [74_u16, 1_400, 54, 16].map(u16::to_ne_bytes);
        let long = [&[1, 4][..], numbers.as_flattened(), &frame].concat();
        for (before, good) in (0..).zip(&frames(&[])) {
            pass(&mut left, &mut right, std::slice::from_ref(good));
            one.run(|| send_with_header("left", &long));
            wait(|| {
                let _ = poll(&mut right);
                right.stats().receive_drops.total() > before
            });
        }
        let (count, stats) = (frames(&[]).len() as u64, right.stats());
        assert_eq!((stats.received, stats.receive_drops.sorted()), (count, vec![("frame_too_long", count)]));
    });
}

#[test]
fn a_tagged_frame_gets_its_checksum() {
    // Goal: the checksum is completed where it belongs, though kernels differ in whether they count the tag. Method:
    // give the kernel a frame with a tag and half a checksum.
    each_ring(|one, _other, _left, mut right| {
        let builder = FrameBuilder::ipv4(CLIENT, SERVER).tag(ethertype::VLAN, 0x6005);
        one.run(|| send_with_header("left", &unfinished(&builder, b"payload", 0)));
        let arrived = receive(&mut right, 1, |_| true);
        assert_eq!(arrived[0].frame(), builder.tcp(1, 2, flags::ACK, b"payload"));
    });
}

#[test]
fn a_frame_that_the_kernel_cannot_describe_stops_nothing() {
    // Goal: the ring goes on after a super-frame of a kind that has no name in the header. Method: give the kernel a
    // datagram to be cut into fragments on a TAP interface, which stops a ring of slots and leaves a head without a frame in
    // a block, then ordinary frames.
    for ring in RINGS {
        let Some(namespace) = Namespace::new() else { return };
        let namespace = namespace.without_ipv6();
        let (mut tap, mut port) = namespace.run(|| {
            let tap = raw_tap("tap");
            namespace.ip("link set dev tap up");
            (tap, open(&format!("af_packet:tap,{ring}")))
        });
        let frame = FrameBuilder::ipv4(CLIENT, SERVER).udp(1, 2, &[7; 4_000]);
        // Needs a checksum, UDP to be cut into fragments, length of the headers, of a fragment, and where the checksum is.
        let numbers = [42_u16, 1_480, 34, 6].map(u16::to_ne_bytes);
        tap.write_all(&[&[1, 3][..], numbers.as_flattened(), &frame].concat()).expect("the kernel takes it");
        let plain = frames(&[])[0].clone();
        for _ in 0..100 {
            tap.write_all(&[&[0; 10][..], &plain].concat()).expect("the kernel takes it");
            for _ in 0..100 {
                let _ = poll(&mut port);
            }
        }
        wait(|| {
            let _ = poll(&mut port);
            port.stats().received > 50 && port.stats().receive_drops.total() > 0
        });
        // And nothing but frames that were sent.
        while sleep_on(&[&port], 100) > 0 {
            let _ = poll(&mut port);
        }
        assert!(port.stats().received <= 100, "{:?}", port.stats());
    }
}

#[test]
fn what_is_wrong_is_said_in_a_sentence() {
    // Goal: a person knows what went wrong and the way out. Method: each mistake, and the sentence.
    let Some(namespace) = Namespace::new() else { return };
    namespace.ip("link add name left type veth peer name right");
    let said = |text: &str| namespace.run(|| try_open(text).expect_err("it is wrong").to_string());
    assert_eq!(
        said("af_packet:c"),
        "af_packet:c: there is no interface `c`: `ip link` lists those that there are"
    );
    assert_eq!(
        said("af_packet:sixteen.or.more.."),
        "af_packet:sixteen.or.more..: the name of the interface has 17 bytes: 15 are the most that Linux allows"
    );
    namespace.ip("tuntap add dev tun mode tun");
    assert_eq!(
        said("af_packet:tun"),
        "af_packet:tun: the interface is not Ethernet: name one whose frames are"
    );
    assert_eq!(
        said("af_packet:left,queue=1"),
        "af_packet:left,queue=1: there is no option `queue`: there are frames, blocks"
    );
    assert_eq!(
        said("af_packet:left,frames=100000000"),
        "af_packet:left,frames=100000000: there is no memory for a ring of 100000000 frames: set frames= lower"
    );
    assert_eq!(
        said("af_packet:left,blocks=100000"),
        "af_packet:left,blocks=100000: there is no memory for a ring of 100000 blocks: set blocks= lower"
    );
    assert_eq!(
        said("af_packet:left,frames=64,blocks=2"),
        "af_packet:left,frames=64,blocks=2: a ring has either frames or blocks: leave one of them out"
    );
    assert_eq!(
        said("af_packet:left,blocks=0"),
        "af_packet:left,blocks=0: a ring of no blocks receives nothing: set blocks= higher, or leave it out"
    );
    let powerless =
        namespace.run(|| without_rights(|| try_open("af_packet:left").expect_err("it is no root")));
    assert_eq!(
        powerless.to_string(),
        "af_packet:left: the right CAP_NET_RAW is missing: run as root, or once `setcap cap_net_raw+ep` on the program"
    );
}
