//! Reading a capture, whatever its format.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::classic::{Classic, FILE_HEADER};
use super::error::{CaptureError, Truncated};
use super::input::Input;
use super::link::LinkType;
use super::sections::{SECTION_MAGIC, Sections};
use super::time::TimeScale;

/// What a capture says about one of its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Captured {
    /// Nanoseconds since the Unix epoch; 0 for a simple packet block, which has no time. Times may run
    /// backwards, as they do in the file.
    pub time: u64,
    /// The length the packet had on the wire. Longer than the frame if the capture cut it; a damaged file
    /// may also say less.
    pub original_len: u32,
    /// Which of [`Reader::interfaces`] the packet was captured on.
    pub interface: u32,
    /// What the frame begins with.
    pub link: LinkType,
}

/// An interface that a capture describes; a classic capture has exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// What its frames begin with.
    pub link: LinkType,
    /// Its name, if the file says one.
    pub name: Option<String>,
    /// How many bytes of a packet were captured at most; 0 means all.
    pub snaplen: u32,
    pub(super) scale: TimeScale,
}

/// What stands at the beginning of the unread bytes.
pub(super) enum Step<'a> {
    /// A packet; the record is `used` bytes long.
    Packet { used: usize, frame: &'a [u8], captured: Captured },
    /// A record of so many bytes that is no packet.
    Skip(usize),
    /// The record goes on behind what is read; so many bytes in all are needed to say more.
    Need(usize),
    /// A record that cannot be.
    Corrupt(String),
}

enum Format {
    Classic(Classic),
    Sections(Sections),
}

impl Format {
    fn step<'a>(&mut self, data: &'a [u8]) -> Step<'a> {
        match self {
            Self::Classic(classic) => classic.step(data),
            Self::Sections(sections) => sections.step(data),
        }
    }
}

/// Reads the packets of a pcap or pcapng capture, one after the other, gunzipping on the way if needed.
pub struct Reader {
    name: String,
    input: Input,
    format: Format,
    truncated: Option<Truncated>,
    /// The end or an error was reported; nothing comes any more.
    done: bool,
}

impl Reader {
    /// Opens the capture file `path`, or standard input for `-`, and reads its header.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or does not begin like a capture.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        if path.as_os_str() == "-" {
            return Self::new(Box::new(io::stdin()), "standard input");
        }
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| CaptureError::read(&name, error))?;
        Self::new(Box::new(file), &name)
    }

    /// Reads a capture from any source; `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// The source cannot be read, or does not begin like a capture.
    pub fn new(source: Box<dyn Read + Send>, name: &str) -> Result<Self, CaptureError> {
        let mut input = Input::new(source).map_err(|error| CaptureError::read(name, error))?;
        let format = open_format(&mut input, name)?;
        Ok(Self { name: name.to_owned(), input, format, truncated: None, done: false })
    }

    /// Puts the next packet's captured bytes into `frame`, in place of what was in it, and says the rest.
    ///
    /// At the end it returns `None`, and again whenever it is asked after that or after an error. A frame
    /// that is used again and again is large enough after a few packets: nothing is allocated then.
    ///
    /// # Errors
    ///
    /// [`CaptureError::Corrupt`] for a record that cannot be, [`CaptureError::Read`] when the source fails;
    /// both after everything in front of it. A capture that just ends early is no error, see
    /// [`Reader::truncated`].
    pub fn next(&mut self, frame: &mut Vec<u8>) -> Result<Option<Captured>, CaptureError> {
        frame.clear();
        while !self.done {
            match self.format.step(self.input.data()) {
                Step::Packet { used, frame: bytes, captured } => {
                    frame.extend_from_slice(bytes);
                    self.input.consume(used);
                    return Ok(Some(captured));
                }
                Step::Skip(used) => self.input.consume(used),
                Step::Need(total) => match self.input.fill(total) {
                    Ok(true) => {}
                    Ok(false) => self.end(),
                    Err(error) => {
                        self.done = true;
                        return Err(reading_failed(&self.input, &self.name, error));
                    }
                },
                Step::Corrupt(what) => {
                    self.done = true;
                    return Err(corrupt(&self.input, &self.name, what));
                }
            }
        }
        Ok(None)
    }

    /// Where the capture broke off, once [`Reader::next`] has said `None`; `None` if it ended as it should.
    #[must_use]
    pub const fn truncated(&self) -> Option<Truncated> {
        self.truncated
    }

    /// The interfaces described so far. A pcapng file may describe more in front of any packet; the
    /// interfaces of a second section follow those of the first.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        match &self.format {
            Format::Classic(classic) => std::slice::from_ref(classic.interface()),
            Format::Sections(sections) => sections.interfaces(),
        }
    }

    /// What this capture is called in errors.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn end(&mut self) {
        let left = self.input.data().len() as u64;
        let gzip = self.input.gzip_cut();
        if left > 0 || gzip {
            self.truncated = Some(Truncated { offset: self.input.offset(), left, gzip });
        }
        self.done = true;
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Finds out the format by the first four bytes and reads the file header.
fn open_format(input: &mut Input, name: &str) -> Result<Format, CaptureError> {
    if !fill_header(input, name, SECTION_MAGIC.len())? {
        let name = name.to_owned();
        return Err(match (input.gzip_cut(), input.data().len()) {
            (true, _) => CaptureError::HeaderCut { name },
            (false, 0) => CaptureError::Empty { name },
            (false, _) => CaptureError::NotACapture { name },
        });
    }
    match input.data().first_chunk() {
        Some(&SECTION_MAGIC) => open_sections(input, name).map(Format::Sections),
        Some(&magic) if Classic::recognizes(magic) => open_classic(input, name).map(Format::Classic),
        _ => Err(CaptureError::NotACapture { name: name.to_owned() }),
    }
}

fn open_classic(input: &mut Input, name: &str) -> Result<Classic, CaptureError> {
    fill_header(input, name, FILE_HEADER)?;
    let Some(&header) = input.data().first_chunk() else {
        return Err(CaptureError::HeaderCut { name: name.to_owned() });
    };
    let classic =
        Classic::new(header).map_err(|what| CaptureError::Unsupported { name: name.to_owned(), what })?;
    input.consume(FILE_HEADER);
    Ok(classic)
}

fn open_sections(input: &mut Input, name: &str) -> Result<Sections, CaptureError> {
    let mut sections = Sections::new();
    loop {
        match sections.step(input.data()) {
            Step::Need(total) => {
                if !fill_header(input, name, total)? {
                    return Err(CaptureError::HeaderCut { name: name.to_owned() });
                }
            }
            Step::Corrupt(what) => return Err(corrupt(input, name, what)),
            // The magic number was seen: this first block is a section header, never a packet.
            Step::Skip(used) | Step::Packet { used, .. } => {
                input.consume(used);
                return Ok(sections);
            }
        }
    }
}

fn fill_header(input: &mut Input, name: &str, total: usize) -> Result<bool, CaptureError> {
    input.fill(total).map_err(|error| reading_failed(input, name, error))
}

/// An error of the decompressor is damage of the file, any other one of the source.
fn reading_failed(input: &Input, name: &str, error: io::Error) -> CaptureError {
    let damage = matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData);
    if input.is_gzip() && damage {
        return corrupt(input, name, format!("its gzip stream cannot be unpacked, {error}"));
    }
    CaptureError::read(name, error)
}

fn corrupt(input: &Input, name: &str, what: String) -> CaptureError {
    CaptureError::Corrupt { name: name.to_owned(), offset: input.offset(), what }
}
