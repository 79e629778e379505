//! Any bytes as a capture file: reading ends, says the same however the bytes arrive, and what it read can be written.

use std::io::{Cursor, Read};

use pannier_runtime::port::pcap::{Captured, InterfaceDescription, Reader, Truncated, Writer};

/// Most bytes that one byte of a gzip stream unpacks to.
const MOST_UNPACKED: usize = 1_032;
/// The shortest record that holds a packet, in bytes.
const SHORTEST_RECORD: usize = 16;
/// Longest error that is still a sentence, in bytes.
const LONGEST_ERROR: usize = 500;

const SIDES: [InterfaceDescription<'_>; 2] = [
    InterfaceDescription { name: "even", description: None },
    InterfaceDescription { name: "odd", description: Some("interfaces with odd numbers") },
];

/// A source that gives a few bytes at a time.
struct Drops(Cursor<Vec<u8>>);

impl Read for Drops {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let few = buffer.len().min(7);
        self.0.read(&mut buffer[..few])
    }
}

/// What a reader made of a file.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    packets: Vec<(Captured, Vec<u8>)>,
    truncated: Option<Truncated>,
    error: Option<String>,
}

fn read(source: Box<dyn Read + Send>, most: usize) -> Contents {
    let mut contents = Contents { packets: Vec::new(), truncated: None, error: None };
    let mut reader = match Reader::new(source, "bytes") {
        Ok(reader) => reader,
        Err(error) => return Contents { error: Some(error.to_string()), ..contents },
    };
    let mut frame = Vec::new();
    loop {
        match reader.next(&mut frame) {
            Ok(Some(captured)) => contents.packets.push((captured, frame.clone())),
            Ok(None) => break,
            Err(error) => {
                contents.error = Some(error.to_string());
                break;
            }
        }
        assert!(contents.packets.len() <= most, "more than {most} packets: reading does not end");
    }
    assert!(matches!(reader.next(&mut frame), Ok(None)), "something comes after the end");
    let interfaces = reader.interfaces();
    for (captured, _) in &contents.packets {
        let interface =
            interfaces.get(captured.interface as usize).expect("a packet's interface is described");
        assert_eq!(interface.link, captured.link);
    }
    contents.truncated = reader.truncated();
    assert!(contents.truncated.is_none() || contents.error.is_none(), "cut and damaged at once");
    contents
}

/// Reads `bytes` as a capture.
///
/// # Panics
/// Where reading does not end, depends on how the bytes arrive, or loses something on the way through the writer.
pub fn check(bytes: &[u8]) {
    let most = bytes.len() * MOST_UNPACKED / SHORTEST_RECORD + 1;
    let contents = read(Box::new(Cursor::new(bytes.to_vec())), most);
    let in_drops = read(Box::new(Drops(Cursor::new(bytes.to_vec()))), most);
    let fewer = contents.packets.len().min(in_drops.packets.len());
    // Where a gzip stream is damaged, what it unpacks to in front of the damage depends on how it is read.
    let damaged_gzip =
        bytes.starts_with(&[0x1f, 0x8b]) && contents.error.is_some() && in_drops.error.is_some();
    let alike = damaged_gzip && contents.packets[..fewer] == in_drops.packets[..fewer];
    assert!(alike || contents == in_drops, "read at once: {contents:?}\nin drops: {in_drops:?}");
    assert!(contents.error.as_ref().is_none_or(|error| error.len() < LONGEST_ERROR), "{:?}", contents.error);

    let mut writer = Writer::new(Vec::new(), &SIDES).expect("memory does not fail");
    let mut written = Vec::new();
    for (captured, mut frame) in contents.packets {
        let before = frame.clone();
        if captured.link.to_ethernet(&mut frame).is_err() {
            assert_eq!(frame, before, "a refused frame was changed");
            continue;
        }
        assert!(frame.ends_with(&before), "a frame lost bytes");
        let interface = captured.interface % 2;
        writer.write(interface, captured.time, &frame, captured.original_len).expect("memory does not fail");
        let length = u32::try_from(frame.len()).expect("below the bound of a record");
        written.push((interface, captured.time, captured.original_len.max(length), frame));
    }
    let file = writer.finish().expect("memory does not fail");
    let again = read(Box::new(Cursor::new(file)), written.len() + 1);
    assert_eq!((again.truncated, again.error), (None, None));
    let again: Vec<_> =
        again.packets.into_iter().map(|(c, frame)| (c.interface, c.time, c.original_len, frame)).collect();
    assert!(again == written, "written: {written:?}\nread again: {again:?}");
}
