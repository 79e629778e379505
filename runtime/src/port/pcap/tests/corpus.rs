//! Captures that others made: a folder beside the workspace, or where `PANNIER_CAPTURES` says.

use std::path::{Path, PathBuf};

use super::super::{CaptureError, InterfaceDescription, Reader, Writer};
use super::{Heard, Seen, drain, hear};

/// One line of the folder's index.
struct Listed {
    file: String,
    packets: usize,
    /// The longest packet, by its original length.
    longest: u32,
    /// Empty for a pcapng file without an interface.
    link: Option<u32>,
}

fn folder() -> PathBuf {
    std::env::var_os("PANNIER_CAPTURES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/pcaps"), PathBuf::from)
}

fn listed(index: &str) -> Vec<Listed> {
    let mut lines = index.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let titles = lines.next().expect("the index has titles");
    let column = |title| titles.iter().position(|it| *it == title).expect("the index has this column");
    let (file, packets, longest, link) =
        (column("file"), column("packets"), column("longest"), column("linktype"));

    lines
        .map(|line| Listed {
            file: line[file].to_owned(),
            packets: line[packets].parse().expect("a number"),
            longest: line[longest].parse().expect("a number"),
            link: line[link].parse().ok(),
        })
        .collect()
}

/// Reads one capture; a file that cannot even be opened gave no packet and an error.
fn read(path: &Path) -> Heard {
    match Reader::open(path) {
        Ok(reader) => drain(reader),
        Err(error) => Heard { packets: Vec::new(), error: Some(error), truncated: None },
    }
}

/// What differs from the index without a reason.
///
/// One difference has a reason: where the last record is not whole, the index counts what is left of it as a
/// packet; here it is none, but a damaged or truncated end. (Met in three classic files with a length that
/// cannot be, and in a pcapng file of one packet whose first block has two lengths.) All other files read to
/// their end and count the same, also those of version 2.1 with their lengths swapped, with flags in the
/// upper half of the link type, and with packets longer than the snapshot length.
fn unexplained(listed: &Listed, heard: &Heard) -> Option<String> {
    let Heard { packets, error, truncated } = heard;
    let broken = match error {
        None => truncated.is_some(),
        Some(CaptureError::Corrupt { .. }) => true,
        Some(other) => return Some(other.to_string()),
    };
    let explained = broken && packets.len() + 1 == listed.packets;
    if packets.len() != listed.packets && !explained {
        return Some(format!("{} packets of {}, {error:?}, {truncated:?}", packets.len(), listed.packets));
    }
    let longest = packets.iter().map(|packet| packet.original_len).max().unwrap_or(0);
    if !broken && longest != listed.longest {
        return Some(format!("the longest packet has {longest} bytes, not {}", listed.longest));
    }
    let link = packets.first().map(|packet| u32::from(packet.link.number()));
    if link.is_some() && link != listed.link {
        return Some(format!("its link type is {link:?}, not {:?}", listed.link));
    }
    None
}

/// The same packets, as a capture of our own has them.
fn rewritten(packets: &[Seen]) -> Vec<Seen> {
    let sides = [InterfaceDescription { name: "all", description: None }];
    let mut writer = Writer::new(Vec::new(), &sides).expect("memory takes everything");
    for packet in packets {
        writer.write(0, packet.time, &packet.frame, packet.original_len).expect("memory takes everything");
    }
    hear(&writer.finish().expect("memory takes everything")).packets
}

#[test]
fn foreign_captures_are_read() {
    // Goal: real and broken captures give what the index says, and can be written. Method: compare all of them.
    let folder = folder();
    let Ok(index) = std::fs::read_to_string(folder.join("index.csv")) else {
        eprintln!("SKIPPED: no captures in {}, set PANNIER_CAPTURES to their folder", folder.display());
        return;
    };
    let listed = listed(&index);
    assert!(!listed.is_empty());
    let mut differences = Vec::new();
    for listed in &listed {
        let heard = read(&folder.join(&listed.file));
        differences.extend(unexplained(listed, &heard).map(|what| format!("{}: {what}", listed.file)));
        let again = rewritten(&heard.packets);
        assert_eq!(heard.packets.len(), again.len(), "{}", listed.file);
        for (first, second) in heard.packets.iter().zip(&again) {
            let captured = u32::try_from(first.frame.len()).expect("a record is short");
            assert_eq!((first.time, &first.frame), (second.time, &second.frame), "{}", listed.file);
            assert_eq!(first.original_len.max(captured), second.original_len, "{}", listed.file);
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}
