//! Every format, byte order, resolution and compression gives the packets that were put in.

use std::io::Cursor;

use super::super::{LinkType, Reader, Refused};
use super::build::{self, Capture, Order};
use super::{Dribble, drain, hear};

#[test]
fn every_kind_is_read() {
    // Goal: all kinds of captures give their packets and end well. Method: read what the builder made.
    for capture in build::all() {
        let heard = hear(&capture.bytes);
        assert_eq!(heard.packets, capture.packets, "{}", capture.what);
        assert!(heard.error.is_none() && heard.truncated.is_none(), "{}: {heard:?}", capture.what);
    }
}

#[test]
fn gzip_is_unpacked() {
    // Goal: compressed captures read like plain ones. Method: one member, and two that meet inside a record.
    for capture in build::all() {
        let (front, back) = capture.bytes.split_at(capture.header + 21);
        for packed in [build::gzip(&capture.bytes), [build::gzip(front), build::gzip(back)].concat()] {
            let heard = hear(&packed);
            assert_eq!(heard.packets, capture.packets, "{}", capture.what);
            assert!(heard.error.is_none() && heard.truncated.is_none(), "{}: {heard:?}", capture.what);
        }
    }
}

#[test]
fn a_slow_source_changes_nothing() {
    // Goal: short reads and interruptions do no harm. Method: a source of one byte a call, interrupted often.
    for capture in build::all() {
        for bytes in [capture.bytes.clone(), build::gzip(&capture.bytes)] {
            let source = Dribble { bytes: Cursor::new(bytes), interrupted: false };
            let heard = drain(Reader::new(Box::new(source), "slow").expect("the capture opens"));
            assert_eq!(heard.packets, capture.packets, "{}", capture.what);
            assert!(heard.error.is_none() && heard.truncated.is_none(), "{}: {heard:?}", capture.what);
        }
    }
}

#[test]
fn interfaces_are_told() {
    // Goal: interfaces() lists all sections' interfaces with their names. Method: the pcapng capture of the builder.
    let mut reader = super::reader(&build::sections(Order::Big).bytes).expect("the capture opens");
    let mut frame = Vec::new();
    while reader.next(&mut frame).expect("nothing is wrong").is_some() {}
    let links: Vec<_> = reader.interfaces().iter().map(|interface| interface.link).collect();
    assert_eq!(links, [LinkType::Ethernet, LinkType::RawIp, LinkType::RawIpv4, LinkType::LinuxSll]);
    assert!(reader.interfaces().iter().all(|interface| interface.name.as_deref() == Some("eth0")));
    assert_eq!(reader.name(), "test.pcap");
}

#[test]
fn a_long_packet_is_read() {
    // Goal: the window grows for a record that it does not hold. Method: 1 MiB between two short packets.
    let mut capture = Capture::sections("long", Order::Little);
    capture.interface(1, 0, None, None);
    for length in [10, 1 << 20, 10] {
        let frame = vec![7; length];
        let original = u32::try_from(length).expect("it is short enough");
        capture.enhanced(0, 0, &frame, original);
        capture.expect(0, 0, LinkType::Ethernet, &frame, original);
    }
    assert_eq!(hear(&capture.bytes).packets, capture.packets);
}

#[test]
fn a_frame_is_used_again() {
    // Goal: nothing is allocated per packet. Method: the frame's memory is the same after 10,000 packets.
    let mut capture = Capture::classic("many", Order::Little, 0xa1b2_c3d4, (2, 4), 1);
    for index in 0..10_000_u32 {
        let frame = vec![1; index as usize % 100];
        capture.record([0, 0, index % 100, 100], &[], &frame);
    }
    let mut reader = super::reader(&capture.bytes).expect("the capture opens");
    let mut frame = Vec::with_capacity(128);
    let memory = frame.as_ptr();
    while reader.next(&mut frame).expect("nothing is wrong").is_some() {
        assert_eq!(frame.as_ptr(), memory);
    }
}

#[test]
fn raw_ip_becomes_ethernet() {
    // Goal: Ethernet and raw IP can be carried, in place. Method: one frame of each kind, bytes by hand.
    let convert = |number: u16, bytes: &[u8]| {
        let mut frame = bytes.to_vec();
        LinkType::from(number).to_ethernet(&mut frame).map(|()| frame)
    };
    let framed = |kind: [u8; 2], bytes: &[u8]| [&[0; 12][..], &kind, bytes].concat();
    let (four, six) = ([0x45, 1, 2, 3], [0x60, 1, 2]);
    assert_eq!(convert(1, b"as it is"), Ok(b"as it is".to_vec()));
    for number in [12, 14, 101] {
        assert_eq!(convert(number, &four), Ok(framed([8, 0], &four)));
        assert_eq!(convert(number, &six), Ok(framed([0x86, 0xdd], &six)));
        assert_eq!(convert(number, &[0x50]), Err(Refused::Version { version: 5 }));
        assert_eq!(convert(number, &[]), Err(Refused::NoVersion));
    }
    assert_eq!(convert(228, &[0xf5; 40]), Ok(framed([8, 0], &[0xf5; 40])), "the link type says it");
    assert_eq!(convert(229, &[]), Ok(framed([0x86, 0xdd], &[])));
}

#[test]
fn other_links_are_refused_by_name() {
    // Goal: a refusal says number and name, and leaves the frame. Method: all numbers but the carried ones.
    for number in (0..300).filter(|number| ![1, 12, 14, 101, 228, 229].contains(number)) {
        let link = LinkType::from(number);
        assert_eq!(link.number(), number);
        let mut frame = vec![1, 2, 3];
        let refused = link.to_ethernet(&mut frame).expect_err("it is refused").to_string();
        assert!(refused.contains(&format!("link type {number} ({})", link.name())), "{refused}");
        assert_eq!(frame, [1, 2, 3]);
    }
    let refused = LinkType::LinuxSll.to_ethernet(&mut Vec::new()).expect_err("it is refused").to_string();
    assert_eq!(
        refused,
        "link type 113 (Linux cooked) cannot be carried as Ethernet: only Ethernet and raw IP can"
    );
}
