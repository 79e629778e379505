//! What can be wrong with a capture, each as a sentence that says what to do.

use std::fmt;
use std::io;

/// Why a capture cannot be opened or read on.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// No file has this name.
    #[error("there is no capture file {name}")]
    NotFound {
        /// The file's name.
        name: String,
    },
    /// The file is there, but not for us.
    #[error("the capture {name} may not be read: permission denied")]
    Denied {
        /// The file's name.
        name: String,
    },
    /// The operating system failed to open or read the file.
    #[error("cannot read the capture {name}: {source}")]
    Read {
        /// The file's name.
        name: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// The file holds nothing at all.
    #[error("{name} is empty, not even a file header: is it a pcap or pcapng file?")]
    Empty {
        /// The file's name.
        name: String,
    },
    /// The file begins with bytes that no capture begins with.
    #[error("{name} does not begin like a capture: is it a pcap or pcapng file?")]
    NotACapture {
        /// The file's name.
        name: String,
    },
    /// The file begins like a capture and ends before its header does.
    #[error("{name} ends inside its file header and holds no packet: was it copied in full?")]
    HeaderCut {
        /// The file's name.
        name: String,
    },
    /// A capture in a version that this reader does not know.
    #[error("the capture {name} cannot be read: {what}")]
    Unsupported {
        /// The file's name.
        name: String,
        /// What is unknown.
        what: String,
    },
    /// A record that cannot be, see the [module](super) for the difference to a truncated capture.
    #[error("the capture {name} is damaged at byte {offset}: {what}")]
    Corrupt {
        /// The file's name.
        name: String,
        /// Where the damaged record begins, in the uncompressed file.
        offset: u64,
        /// What cannot be.
        what: String,
    },
}

impl CaptureError {
    /// The sentence for an error of the operating system.
    pub(super) fn read(name: &str, source: io::Error) -> Self {
        let name = name.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { name },
            io::ErrorKind::PermissionDenied => Self::Denied { name },
            _ => Self::Read { name, source },
        }
    }
}

/// Where a capture broke off: it ends early, but nothing in it is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncated {
    /// Where the first record that is not whole begins (or would begin), in the uncompressed file.
    pub offset: u64,
    /// How many bytes of that record are there.
    pub left: u64,
    /// The gzip stream around the capture is cut off.
    pub gzip: bool,
}

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.gzip { "its gzip stream" } else { "the capture" };
        match self.left {
            0 => write!(f, "{whose} is cut off behind the record that ends at byte {}", self.offset),
            left => write!(
                f,
                "{whose} is cut off: only {left} bytes are there of the record at byte {}",
                self.offset
            ),
        }
    }
}
