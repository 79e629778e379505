//! What can be wrong with a log, each as a sentence that names the file.

use std::io;

use crate::format::VERSION;

/// Why a log cannot be written or read on.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be made.
    #[error("cannot create the log {path}: {source}")]
    Create {
        /// The file.
        path: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// The header asks for what no log can say.
    #[error("cannot write the log {path}: {what}")]
    Unspeakable {
        /// The file.
        path: String,
        /// What the format has no room for.
        what: &'static str,
    },
    /// The file took no more, for instance because the disk is full.
    #[error("cannot write the log {path}: {source}; it ends before what happened then")]
    Write {
        /// The file.
        path: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// The file cannot be opened.
    #[error("cannot open the log {path}: {source}")]
    Open {
        /// The file.
        path: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// The file was opened and cannot be read on.
    #[error("cannot read the log {path} at byte {offset}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Where the entry or header begins that was to be read.
        offset: u64,
        /// What the operating system says.
        source: io::Error,
    },
    /// The file begins with bytes that no log begins with.
    #[error("{path} is no log: it does not begin with PNRLOG")]
    NoLog {
        /// The file.
        path: String,
    },
    /// A version of the format that this build does not know.
    #[error("the log {path} has format version {found}, and this build reads version {VERSION} only")]
    Version {
        /// The file.
        path: String,
        /// The version that it has.
        found: u16,
    },
    /// The file ends inside its header: the writer died before its first entry.
    #[error("the log {path} ends inside its header: nothing was logged")]
    CutHeader {
        /// The file.
        path: String,
    },
    /// An entry, or the header, is damaged. What was read before it is right.
    #[error("the log {path} is damaged at byte {offset}: {what}")]
    Damaged {
        /// The file.
        path: String,
        /// Where the damaged entry begins; 0 for the header.
        offset: u64,
        /// What is wrong there.
        what: Flaw,
    },
}

/// What is wrong with an entry or a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// A length that none has. Or one past the file's end although whole entries follow.
    #[error("its length cannot be")]
    Length,
    /// The checksum does not fit the bytes.
    #[error("its checksum does not fit")]
    Checksum,
    /// A kind of entry that this version does not know.
    #[error("entries of kind {0} are not known")]
    Kind(u8),
    /// The checksum fits, and the contents make no sense.
    #[error("its contents make no sense")]
    Contents,
}
