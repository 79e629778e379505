//! Damaged captures, foreign files and files that cannot be read: a sentence each, after what came before.

use std::path::Path;

use proptest::prelude::*;

use super::super::{CaptureError, LinkType, MAX_RECORD, Reader};
use super::build::{self, Capture, Order};
use super::{drain, hear, reader};

/// Reads a capture with one good packet in front of damage, and gives the error's sentence.
fn damage_of(capture: &Capture, offset: usize) -> String {
    let heard = hear(&capture.bytes);
    assert_eq!(heard.packets.len(), 1, "{heard:?}");
    assert!(heard.truncated.is_none());
    let error = heard.error.expect("it is damaged");
    assert!(matches!(error, CaptureError::Corrupt { offset: at, .. } if at == offset as u64), "{error:?}");
    error.to_string()
}

#[test]
fn impossible_classic_lengths_are_damage() {
    // Goal: a length that cannot be is an error behind the packets before it. Method: lengths around the bound.
    for (length, damaged) in [(262_144, false), (262_145, true), (0x7fff_ffff, true), (u32::MAX, true)] {
        let mut capture = Capture::classic("damage", Order::Little, 0xa1b2_c3d4, (2, 4), 1);
        capture.record([0, 0, 4, 4], &[], b"good");
        let at = capture.bytes.len();
        capture.record([0, 0, length, length], &[], &[0; 100]);
        if damaged {
            let sentence = damage_of(&capture, at);
            assert!(sentence.contains(&format!("test.pcap is damaged at byte {at}")), "{sentence}");
            assert!(sentence.contains(&format!("a packet of {length} bytes")), "{sentence}");
        } else {
            assert!(hear(&capture.bytes).truncated.is_some(), "possible, so the file ends early");
        }
    }
}

#[test]
fn impossible_blocks_are_damage() {
    // Goal: each thing that a block cannot say is an error with its reason. Method: one damaged block each.
    type Body = fn(&mut Capture);
    let cases: [(&str, Body); 9] = [
        ("0 bytes", |c| c.words([6, 0, 0])),
        ("in fours", |c| c.words([6, 33, 0])),
        ("67108868 bytes", |c| c.words([6, 67_108_868, 0])),
        ("12 in front and 16 behind", |c| c.words([9, 12, 16])),
        ("a packet of interface 7, but its section describes 1", |c| c.enhanced(7, 0, b"x", 1)),
        ("a packet of 50 bytes", |c| {
            c.block(6, |b| b.words([0, 0, 0, 50, 50]));
        }),
        ("a simple packet of 50 bytes", |c| c.simple(b"short", 50)),
        ("does not say its byte order", |c| c.block(0x0a0d_0d0a, |b| b.bytes.extend([7; 16]))),
        ("version 2.0", |c| {
            c.block(0x0a0d_0d0a, |b| b.words([0x1a2b_3c4d, 2, 0, 0]));
        }),
    ];
    for (reason, damage) in cases {
        let mut capture = Capture::sections("damage", Order::Little);
        capture.interface(1, 0, None, None);
        capture.enhanced(0, 0, b"good", 4);
        let at = capture.bytes.len();
        damage(&mut capture);
        capture.enhanced(0, 0, b"never seen", 10);
        let sentence = damage_of(&capture, at);
        assert!(sentence.replace("bytes long ", "").contains(reason), "{reason}: {sentence}");
    }
}

#[test]
fn a_new_section_forgets_interfaces() {
    // Goal: interface numbers count anew in each section. Method: a packet of a section without interfaces.
    let mut capture = Capture::sections("damage", Order::Little);
    capture.interface(1, 0, None, None);
    capture.enhanced(0, 0, b"good", 4);
    capture.section(Order::Big);
    let at = capture.bytes.len();
    capture.simple(b"lost", 4);
    assert!(damage_of(&capture, at).contains("its section describes 0"));
}

#[test]
fn damaged_gzip_is_damage() {
    // Goal: a wrong checksum or rubbish behind gzip is damage, not an end. Method: change or add bytes.
    let capture = build::sections(Order::Little);
    let packed = build::gzip(&capture.bytes);
    let mut checksum = packed.clone();
    checksum[packed.len() - 8] ^= 1;
    for damaged in [checksum, [&packed, &b"rubbish behind it"[..]].concat()] {
        let heard = hear(&damaged);
        assert_eq!(heard.packets, capture.packets);
        let sentence = heard.error.expect("it is damaged").to_string();
        assert!(sentence.contains("its gzip stream cannot be unpacked"), "{sentence}");
    }
}

#[test]
fn foreign_files_are_refused() {
    // Goal: what is no capture is said with the file's name and a way out. Method: some foreign beginnings.
    let sentence = |bytes: &[u8]| reader(bytes).expect_err("it is no capture").to_string();
    assert_eq!(sentence(b""), "test.pcap is empty, not even a file header: is it a pcap or pcapng file?");
    let foreign = "test.pcap does not begin like a capture: is it a pcap or pcapng file?";
    for bytes in [&b"PK\x03\x04"[..], b"hello world, this is text", b"\xd4\xc3\xb2", b"snoop\0\0\0", b"\x1f"]
    {
        assert_eq!(sentence(bytes), foreign);
        assert_eq!(sentence(&build::gzip(bytes)), foreign);
    }
    assert!(sentence(&[0x1f, 0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 0]).contains("gzip"));
    let old = Capture::classic("version 1", Order::Big, 0xa1b2_c3d4, (1, 2), 1);
    assert!(sentence(&old.bytes).contains("version 1.2 of the pcap format"), "{}", sentence(&old.bytes));
}

#[test]
fn unreadable_files_are_said() {
    // Goal: a missing file and a folder give clear sentences. Method: open both.
    let sentence = |path: &str| Reader::open(Path::new(path)).expect_err("it cannot be read").to_string();
    assert_eq!(sentence("/no/such/file.pcap"), "there is no capture file /no/such/file.pcap");
    assert!(sentence("/").starts_with("cannot read the capture /: "), "{}", sentence("/"));
    let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    let denied = CaptureError::read("mine.pcap", denied).to_string();
    assert_eq!(denied, "the capture mine.pcap may not be read: permission denied");
}

#[test]
fn a_lying_length_costs_no_memory() {
    // Goal: a long length in a short file ends at once. Method: the longest allowed block, 12 bytes of it there.
    let mut capture = Capture::sections("long", Order::Little);
    capture.words([9, u32::try_from(MAX_RECORD).expect("it fits"), 0]);
    let truncated = hear(&capture.bytes).truncated.expect("the file ends early");
    assert_eq!(truncated.left, 12);
}

/// Bytes that look like a capture at first.
fn nearly_a_capture() -> impl Strategy<Value = Vec<u8>> {
    let all = build::all();
    let plain = (0..all.len(), prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8));
    let changed = plain.prop_map(move |(which, changes)| {
        let mut bytes = all[which].bytes.clone();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    });
    let small_words = prop::collection::vec(prop_oneof![0_u32..48, any::<u32>()], 0..64)
        .prop_map(|words| words.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    let behind_a_header = (0..build::all().len(), small_words).prop_map(|(which, bytes)| {
        let capture = build::all().swap_remove(which);
        [&capture.bytes[..capture.header], &bytes].concat()
    });
    prop_oneof![changed, behind_a_header, prop::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn any_bytes_are_survived(bytes in nearly_a_capture(), pack: bool, flip: prop::sample::Index, bit in 0..9) {
        // Goal: no bytes make the reader panic, loop or invent. Method: changed and random captures, packed or not.
        let mut input = if pack { build::gzip(&bytes) } else { bytes };
        if bit < 8 && !input.is_empty() {
            let at = flip.index(input.len());
            input[at] ^= 1_u8 << bit;
        }
        if let Ok(reader) = reader(&input) {
            let heard = drain(reader);
            prop_assert!(heard.packets.len() <= 2_000);
            prop_assert!(heard.error.is_none() || heard.truncated.is_none());
            for mut packet in heard.packets {
                let before = packet.frame.len();
                let carried = packet.link.to_ethernet(&mut packet.frame).is_ok();
                let grown = if carried && packet.link != LinkType::Ethernet { 14 } else { 0 };
                prop_assert_eq!(packet.frame.len(), before + grown);
            }
        }
    }
}
