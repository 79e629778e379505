//! Writing a capture: pcapng, little endian, nanoseconds.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::MAX_RECORD;

const BUFFER: usize = 256 << 10;

/// The program that a capture says it was written by.
const APPLICATION: &str = "pannier";

/// The bytes of a packet block in front of the packet, and all of them without it.
const PACKET_HEAD: usize = 28;
const PACKET_FRAME: usize = PACKET_HEAD + 4;

const END_OF_OPTIONS: u16 = 0;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TIME_RESOLUTION: u16 = 9;
const SECTION_APPLICATION: u16 = 4;

/// An Ethernet interface that a capture will describe: one side of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceDescription<'a> {
    /// Its name, as capture tools show it.
    pub name: &'a str,
    /// What it is, in a sentence.
    pub description: Option<&'a str>,
}

/// Writes Ethernet frames of one or more interfaces into a pcapng capture.
///
/// Call [`Writer::finish`]: a writer that is dropped writes what it holds, too, but cannot say that it
/// failed.
pub struct Writer<W: Write = Box<dyn Write + Send>> {
    out: BufWriter<W>,
    name: String,
    interfaces: usize,
}

impl Writer {
    /// Creates the file `path`, or takes standard output for `-`. A file that is there is overwritten.
    ///
    /// # Errors
    ///
    /// The file cannot be created or written; the error names it.
    pub fn create(path: &Path, interfaces: &[InterfaceDescription<'_>]) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Self::start(Box::new(io::stdout()), "on standard output".to_owned(), interfaces);
        }
        let name = path.display().to_string();
        let file = File::create(path).map_err(|error| named(&name, &error))?;
        Self::start(Box::new(file), name, interfaces)
    }
}

impl<W: Write> Writer<W> {
    /// Writes a capture into `out`; no buffer is needed around it.
    ///
    /// # Errors
    ///
    /// `out` cannot be written, or a name is longer than the format allows.
    pub fn new(out: W, interfaces: &[InterfaceDescription<'_>]) -> io::Result<Self> {
        Self::start(out, "in memory".to_owned(), interfaces)
    }

    /// Adds a frame that was met on `interface` (counted from 0) at `time_ns`, in nanoseconds since the
    /// Unix epoch. An `original_len` below the frame's length is raised to it.
    ///
    /// # Errors
    ///
    /// The capture cannot be written, there is no such interface, or the frame is longer than a record may be.
    pub fn write(&mut self, interface: u32, time_ns: u64, frame: &[u8], original_len: u32) -> io::Result<()> {
        if interface as usize >= self.interfaces {
            let what = format!("interface {interface} is none of its {} interfaces", self.interfaces);
            return Err(named(&self.name, &io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        if frame.len() > MAX_RECORD - PACKET_FRAME - 3 {
            let what = format!("a frame of {} bytes is longer than a record may be", frame.len());
            return Err(named(&self.name, &io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        write_packet(&mut self.out, interface, time_ns, frame, original_len)
            .map_err(|error| named(&self.name, &error))
    }

    /// Writes what is still held and gives back what was written to.
    ///
    /// # Errors
    ///
    /// The rest cannot be written, for instance because the disk is full; the error names the file.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush().map_err(|error| named(&self.name, &error))?;
        let name = self.name;
        self.out.into_inner().map_err(|error| named(&name, error.error()))
    }

    fn start(out: W, name: String, interfaces: &[InterfaceDescription<'_>]) -> io::Result<Self> {
        let mut head = Vec::new();
        section_header(&mut head).map_err(|error| named(&name, &error))?;
        for interface in interfaces {
            describe(&mut head, interface).map_err(|error| named(&name, &error))?;
        }
        let mut out = BufWriter::with_capacity(BUFFER, out);
        out.write_all(&head).map_err(|error| named(&name, &error))?;
        Ok(Self { out, name, interfaces: interfaces.len() })
    }
}

impl<W: Write> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("name", &self.name).finish_non_exhaustive()
    }
}

fn write_packet(
    out: &mut impl Write,
    interface: u32,
    time_ns: u64,
    frame: &[u8],
    original_len: u32,
) -> io::Result<()> {
    let captured = length_of(frame.len())?;
    let padding = padding(frame.len());
    let total = length_of(PACKET_FRAME + frame.len() + padding)?;
    let [t0, t1, t2, t3, t4, t5, t6, t7] = time_ns.to_le_bytes();
    let words = [
        6_u32.to_le_bytes(),
        total.to_le_bytes(),
        interface.to_le_bytes(),
        [t4, t5, t6, t7],
        [t0, t1, t2, t3],
        captured.to_le_bytes(),
        original_len.max(captured).to_le_bytes(),
    ];
    out.write_all(words.as_flattened())?;
    out.write_all(frame)?;
    let mut tail = [0; 7];
    tail[padding..padding + 4].copy_from_slice(&total.to_le_bytes());
    out.write_all(&tail[..padding + 4])
}

fn section_header(out: &mut Vec<u8>) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend(0x1a2b_3c4d_u32.to_le_bytes());
    body.extend(1_u16.to_le_bytes());
    body.extend(0_u16.to_le_bytes());
    body.extend((-1_i64).to_le_bytes()); // a section of unknown length
    option(&mut body, SECTION_APPLICATION, APPLICATION.as_bytes())?;
    option(&mut body, END_OF_OPTIONS, &[])?;
    block(out, 0x0a0d_0d0a, &body)
}

fn describe(out: &mut Vec<u8>, interface: &InterfaceDescription<'_>) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend(1_u16.to_le_bytes()); // Ethernet
    body.extend(0_u16.to_le_bytes());
    body.extend(0_u32.to_le_bytes()); // frames are not cut
    option(&mut body, IF_NAME, interface.name.as_bytes())?;
    if let Some(description) = interface.description {
        option(&mut body, IF_DESCRIPTION, description.as_bytes())?;
    }
    option(&mut body, IF_TIME_RESOLUTION, &[9])?;
    option(&mut body, END_OF_OPTIONS, &[])?;
    block(out, 1, &body)
}

fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) -> io::Result<()> {
    let total = length_of(body.len() + 12)?.to_le_bytes();
    out.extend(kind.to_le_bytes());
    out.extend(total);
    out.extend(body);
    out.extend(total);
    Ok(())
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) -> io::Result<()> {
    let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "a name of more than 65535 bytes");
    let length = u16::try_from(value.len()).map_err(too_long)?;
    body.extend(code.to_le_bytes());
    body.extend(length.to_le_bytes());
    body.extend(value);
    body.resize(body.len() + padding(value.len()), 0);
    Ok(())
}

/// How many bytes are missing to a multiple of four.
const fn padding(length: usize) -> usize {
    length.wrapping_neg() & 3
}

fn length_of(length: usize) -> io::Result<u32> {
    u32::try_from(length).map_err(io::Error::other)
}

fn named(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write the capture {name}: {error}"))
}
