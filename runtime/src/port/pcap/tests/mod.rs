//! Tests of the captures; the captures are made here, byte by byte, by [`build`].

mod build;
mod corpus;
mod cut;
mod damage;
mod formats;
mod round_trip;

use std::io::{Cursor, Read};

use super::{CaptureError, Captured, LinkType, Reader, Truncated};

/// A packet as a test wants to see it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    time: u64,
    original_len: u32,
    interface: u32,
    link: LinkType,
    frame: Vec<u8>,
}

/// Everything that a capture gave, and how it ended.
#[derive(Debug)]
struct Heard {
    packets: Vec<Seen>,
    error: Option<CaptureError>,
    truncated: Option<Truncated>,
}

/// A reader of bytes in memory.
fn reader(bytes: &[u8]) -> Result<Reader, CaptureError> {
    Reader::new(Box::new(Cursor::new(bytes.to_vec())), "test.pcap")
}

/// Reads to the end, and checks that the end stays the end.
fn drain(mut reader: Reader) -> Heard {
    let mut heard = Heard { packets: Vec::new(), error: None, truncated: None };
    let mut frame = Vec::new();
    loop {
        match reader.next(&mut frame) {
            Ok(Some(Captured { time, original_len, interface, link })) => {
                heard.packets.push(Seen { time, original_len, interface, link, frame: frame.clone() });
            }
            Ok(None) => break,
            Err(error) => {
                heard.error = Some(error);
                break;
            }
        }
    }
    assert!(matches!(reader.next(&mut frame), Ok(None)), "nothing comes behind the end");
    assert!(frame.is_empty(), "and no frame either");
    heard.truncated = reader.truncated();
    heard
}

/// Reads a capture that must open.
fn hear(bytes: &[u8]) -> Heard {
    drain(reader(bytes).expect("the capture opens"))
}

/// A source that gives one byte a call, and an interruption before each.
struct Dribble {
    bytes: Cursor<Vec<u8>>,
    interrupted: bool,
}

impl Read for Dribble {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.interrupted = !self.interrupted;
        if self.interrupted {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let end = into.len().min(1);
        self.bytes.read(&mut into[..end])
    }
}
