//! The port on a TAP interface.

use std::path::Path;

use pannier_runtime::port::Device;
use pannier_runtime::wire::ethernet::ethertype;

use crate::netns::{Namespace, address, join, sleep_on, without_rights};
use crate::traffic::{
    DATAGRAMS, frames, open, open_again, pass, ping, poll, receive, send, tcp, try_open, udp,
    while_forwarding,
};

/// A namespace, in a kernel that has TAP interfaces.
fn namespace() -> Option<Namespace> {
    if !Path::new("/dev/net/tun").exists() {
        eprintln!("SKIPPED: there is no /dev/net/tun");
        return None;
    }
    Namespace::new()
}

/// A namespace without IPv6, a TAP interface in it, and a packet socket's port on the kernel's side of it.
fn tap() -> Option<(Namespace, Device, Device)> {
    let namespace = namespace()?.without_ipv6();
    let (tap, kernel) = namespace.run(|| (open("tap:tap"), open("af_packet:tap")));
    Some((namespace, tap, kernel))
}

#[test]
fn frames_pass_both_ways_unchanged() {
    // Goal: what is sent arrives in the kernel, and the other way round. Method: all lengths with tags and without,
    // between the port and a packet socket on the same interface.
    let Some((_namespace, mut tap, mut kernel)) = tap() else { return };
    let tag = (ethertype::VLAN, 0x6005);
    for tags in [&[][..], &[tag], &[(ethertype::SERVICE_VLAN, 7), tag]] {
        pass(&mut tap, &mut kernel, &frames(tags));
        pass(&mut kernel, &mut tap, &frames(tags));
    }
    let stats = tap.stats();
    assert_eq!((stats.sent, stats.send_drops.total(), stats.receive_drops.total()), (stats.received, 0, 0));
}

#[test]
fn the_kernels_traffic_passes_with_all_offloads_on() {
    // Goal: two kernels talk through two TAPs. Method: TCP, UDP and ping between two namespaces, each with one; no
    // frame is longer than the MTU or lacks its checksum, and more packets came than the kernel sent frames.
    let (Some(client), Some(server)) = (namespace(), namespace()) else { return };
    let mut one = client.run(|| open("tap:tap"));
    let mut other = server.run(|| open("tap:tap"));
    address(&client, "tap", ["10.78.0.1", "fd78::1"]);
    address(&server, "tap", ["10.78.0.2", "fd78::2"]);
    while_forwarding(&mut one, &mut other, || {
        for to in ["10.78.0.2", "fd78::2"] {
            ping(&client, to);
            tcp(&client, &server, to);
            udp(&client, &server, to, 1_200);
        }
    });
    let (frames, pieces) = (client.frames_sent("tap"), one.stats().received);
    assert!(
        pieces > frames + 2 * DATAGRAMS,
        "{pieces} packets of {frames} frames: there were no super-frames of TCP"
    );
    assert_eq!(one.stats().send_drops.total() + other.stats().send_drops.total(), 0);
}

#[test]
fn the_mtu_is_kept() {
    // Goal: the interface has the MTU that was asked for, and no longer frame is sent. Method: a small one and a large
    // one, frames at both bounds, and a change while the port is open.
    let Some(namespace) = namespace() else { return };
    let namespace = namespace.without_ipv6();
    let (mut tap, mut kernel) = namespace.run(|| (open("tap:tap,mtu=1000"), open("af_packet:tap")));
    let (short, long) = (vec![1; 1_014], vec![1; 1_015]);
    send(&mut tap, &[long.clone(), short.clone()]);
    assert_eq!((tap.stats().sent, tap.stats().send_drops.sorted()), (1, vec![("longer_than_mtu", 1)]));
    assert_eq!(receive(&mut kernel, 1, |_| true)[0].frame(), short);
    namespace.ip("link set dev tap mtu 9000");
    pass(&mut tap, &mut kernel, &[short, long]);
    drop(tap);
    let _larger = namespace.run(|| open_again("tap:tap,mtu=9000"));
}

#[test]
fn an_interface_that_goes_down_comes_back_and_one_that_is_deleted_is_told() {
    // Goal: down is no error, deleted is one. Method: take it down, send and receive, bring it up, delete it.
    let Some((namespace, mut tap, kernel)) = tap() else { return };
    let frames = frames(&[]);
    namespace.ip("link set dev tap down");
    send(&mut tap, &frames[..4]);
    assert_eq!(tap.stats().send_drops.sorted(), [("interface_down", 4)]);
    assert!((0..200).all(|_| poll(&mut tap) == Ok(0)));
    assert_eq!(sleep_on(&[&tap], 0), 0, "an interface that is down wakes nobody");
    namespace.ip("link set dev tap up");
    drop(kernel);
    let mut kernel = namespace.run(|| open("af_packet:tap"));
    pass(&mut tap, &mut kernel, &frames);
    pass(&mut kernel, &mut tap, &frames);
    namespace.ip("link del dev tap");
    assert_eq!(
        poll(&mut tap).expect_err("it is gone").to_string(),
        "tap:tap: the interface was deleted: make it again and open the port anew"
    );
    send(&mut tap, &frames[..3]);
    assert_eq!(tap.stats().send_drops.sorted(), [("interface_deleted", 3), ("interface_down", 4)]);
}

#[test]
fn an_interface_that_is_there_is_used() {
    // Goal: an administrator can prepare the interface. Method: make one with `ip`, open and close the port twice.
    let Some(namespace) = namespace() else { return };
    let namespace = namespace.without_ipv6();
    namespace.ip("tuntap add dev kept mode tap");
    for _ in 0..2 {
        let (mut tap, mut kernel) = namespace.run(|| (open_again("tap:kept"), open("af_packet:kept")));
        pass(&mut tap, &mut kernel, &frames(&[]));
    }
    namespace.ip("link show dev kept");
}

#[test]
fn what_is_wrong_is_said_in_a_sentence() {
    // Goal: a person knows what went wrong and the way out. Method: each mistake, and the sentence.
    let (Some(namespace), Some(other)) = (namespace(), namespace()) else { return };
    join((&namespace, "veth"), (&other, "veth"));
    let said = |text: &str| namespace.run(|| try_open(text).expect_err("it is wrong").to_string());
    let _tap = namespace.run(|| open("tap:tap"));
    assert_eq!(
        said("tap:tap"),
        "tap:tap: the interface is in use: end the program that uses it, or name another one"
    );
    assert_eq!(
        said("tap:veth"),
        "tap:veth: no TAP interface can have this name: name a TAP interface, or a new one"
    );
    assert_eq!(
        said("tap:new,mtu=9"),
        "tap:new,mtu=9: the interface takes no MTU of 9: set mtu= from 68 to 65521"
    );
    assert_eq!(said("tap:new,mtu=x"), "tap:new,mtu=x: mtu is `x`: give a whole number");
    let powerless = namespace.run(|| without_rights(|| try_open("tap:new").expect_err("it is no root")));
    assert_eq!(
        powerless.to_string(),
        "tap:new: the right CAP_NET_ADMIN is missing: run as root, or once `setcap cap_net_admin+ep` on the program"
    );
}
