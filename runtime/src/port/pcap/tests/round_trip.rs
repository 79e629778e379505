//! What is written is read again, and what cannot be written is said.

use std::io::{self, Write};
use std::path::Path;

use proptest::prelude::*;

use super::super::{InterfaceDescription, LinkType, Reader, Writer};
use super::{Seen, drain, hear};

const SIDES: [InterfaceDescription<'_>; 2] = [
    InterfaceDescription { name: "left", description: Some("where packets come in") },
    InterfaceDescription { name: "right", description: None },
];

fn packet() -> impl Strategy<Value = Seen> {
    let frame = prop_oneof![
        20 => prop::collection::vec(any::<u8>(), 0..200),
        1 => prop::collection::vec(any::<u8>(), 60_000..70_000),
    ];
    (any::<u64>(), 0_u32..2, frame, 0_u32..100).prop_map(|(time, interface, frame, more)| {
        let original_len = u32::try_from(frame.len()).expect("a short frame") + more;
        Seen { time, original_len, interface, link: LinkType::Ethernet, frame }
    })
}

fn write(packets: &[Seen]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &SIDES).expect("memory takes everything");
    for packet in packets {
        writer
            .write(packet.interface, packet.time, &packet.frame, packet.original_len)
            .expect("memory takes everything");
    }
    writer.finish().expect("memory takes everything")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn what_is_written_is_read(packets in prop::collection::vec(packet(), 0..20)) {
        // Goal: times, lengths, interfaces and bytes survive writing. Method: any packets, written and read.
        let heard = hear(&write(&packets));
        prop_assert_eq!(heard.packets, packets);
        prop_assert!(heard.error.is_none() && heard.truncated.is_none());
    }
}

#[test]
fn a_capture_has_these_bytes() {
    // Goal: the file is what the format says, not only what our reader reads. Method: one packet, bytes by hand.
    let bytes = write(&[Seen {
        time: 0x0102_0304_0506_0708,
        original_len: 9,
        interface: 1,
        link: LinkType::Ethernet,
        frame: b"frame".to_vec(),
    }]);
    let section = b"\x0a\x0d\x0d\x0a\x2c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\
        \x04\0\x07\0pannier\0\0\0\0\0\x2c\0\0\0";
    let left =
        b"\x01\0\0\0\x44\0\0\0\x01\0\0\0\0\0\0\0\x02\0\x04\0left\x03\0\x15\0where packets come in\0\0\0\
        \x09\0\x01\0\x09\0\0\0\0\0\0\0\x44\0\0\0";
    let right =
        b"\x01\0\0\0\x2c\0\0\0\x01\0\0\0\0\0\0\0\x02\0\x05\0right\0\0\0\x09\0\x01\0\x09\0\0\0\0\0\0\0\
        \x2c\0\0\0";
    let packet =
        b"\x06\0\0\0\x28\0\0\0\x01\0\0\0\x04\x03\x02\x01\x08\x07\x06\x05\x05\0\0\0\x09\0\0\0frame\0\0\0\
        \x28\0\0\0";
    assert_eq!(bytes, [&section[..], left, right, packet].concat());
}

#[test]
fn a_file_is_written_and_read() {
    // Goal: create and open meet. Method: a file in the temporary folder, read back with its names.
    let path = std::env::temp_dir().join(format!("pannier-capture-{}.pcapng", std::process::id()));
    let mut writer = Writer::create(&path, &SIDES).expect("the temporary folder is writable");
    writer.write(1, 42, b"frame", 3).expect("there is room");
    writer.finish().expect("there is room");
    let mut reader = Reader::open(&path).expect("it was written");
    let mut frame = Vec::new();
    let captured = reader.next(&mut frame).expect("nothing is wrong").expect("a packet is there");
    assert_eq!((captured.time, captured.original_len, captured.interface), (42, 5, 1), "3 is raised to 5");
    let names: Vec<_> = reader.interfaces().iter().map(|interface| interface.name.as_deref()).collect();
    assert_eq!(names, [Some("left"), Some("right")]);
    assert!(drain(reader).packets.is_empty());
    std::fs::remove_file(&path).expect("it was written");
}

#[test]
fn what_cannot_be_written_is_said() {
    // Goal: a full disk, a wrong interface and a missing folder are errors with the path. Method: provoke each.
    let full = Path::new("/dev/full");
    if full.exists() {
        let mut writer = Writer::create(full, &SIDES).expect("nothing is written yet");
        writer.write(0, 0, b"frame", 5).expect("it is held");
        let error = writer.finish().map(drop).expect_err("the disk is full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("cannot write the capture /dev/full: "), "{error}");
    } else {
        eprintln!("SKIPPED: the full disk, there is no /dev/full");
    }
    let error = Writer::create(Path::new("/no/such/folder/x.pcapng"), &SIDES).expect_err("no folder");
    assert!(error.to_string().contains("/no/such/folder/x.pcapng"), "{error}");
    let mut writer = Writer::new(io::sink(), &SIDES).expect("a sink takes everything");
    let error = writer.write(2, 0, b"frame", 5).expect_err("there are two interfaces");
    assert!(error.to_string().contains("interface 2 is none of its 2 interfaces"), "{error}");
    let long = "x".repeat(70_000);
    let long = InterfaceDescription { name: &long, description: None };
    assert!(Writer::new(io::sink(), &[long]).is_err());
}

#[test]
fn few_writes_reach_the_file() {
    // Goal: no system call per packet. Method: count the writes that pass the buffer.
    struct Count(usize);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += 1;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::new(Count(0), &SIDES).expect("it takes everything");
    for time in 0..10_000 {
        writer.write(0, time, &[0; 68], 68).expect("it takes everything");
    }
    let Count(writes) = writer.finish().expect("it takes everything");
    assert!(writes <= 5, "{writes} writes for 1 MB");
}
