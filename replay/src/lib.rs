//! Logs of runs: writing them, reading them, and rebuilding state from them.
//!
//! | read this | for |
//! |---|---|
//! | [`format`](mod@format) | what a log's bytes mean |
//! | [`writer`] | recorders for the nodes of a chain that share one log |
//! | [`reader`] | the entries of a log, one after the other, whatever its bytes are |
//! | [`rebuild`](mod@rebuild) | the stores of the stages, from their committed records |
//!
//! A log tells what a chain did: which records its heads committed, and which frames left it. It is written while the
//! chain runs and holds nothing back: no frame waits for it. So a log of a process that died may lack its end.

pub mod error;
pub mod format;
pub mod reader;
pub mod rebuild;
#[cfg(test)]
mod sample;
pub mod writer;

pub use error::LogError;
pub use format::{Committed, Entry, Header, Released};
pub use reader::LogReader;
pub use rebuild::{RebuildError, Rebuilt, rebuild};
pub use writer::{LogCounts, LogWriter};
