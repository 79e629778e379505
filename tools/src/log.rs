//! `pannier log`: what a recorded run did, entry by entry.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use pannier_replay::{Committed, Entry, Header, LogReader};

use crate::{Ended, Failure, fail};

/// Prints what a run recorded with `pannier run --record`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The log
    file: PathBuf,
    /// Prints the counts only
    #[arg(long)]
    counts: bool,
}

pub(crate) fn log(args: &Args) -> Ended {
    let mut log = match LogReader::open(&args.file) {
        Ok(log) => log,
        Err(error) => return fail(Failure::Files, error),
    };
    let header = log.header().clone();
    let mut out = BufWriter::new(io::stdout().lock());
    let (mut committed, mut released) = (0u64, 0u64);
    let mut written = writeln!(out, "stages {}, f = {}", header.stages.join(" -> "), header.f);
    for entry in &mut log {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                let _ = out.flush();
                return fail(Failure::Files, error);
            }
        };
        committed += u64::from(matches!(entry, Entry::Committed(_)));
        released += u64::from(matches!(entry, Entry::Released(_)));
        if !args.counts && written.is_ok() {
            written = writeln!(out, "{}", line(&entry, &header));
        }
    }
    written =
        written.and_then(|()| writeln!(out, "{committed} records committed, {released} frames released"));
    if let Some(offset) = log.torn() {
        written = written.and_then(|()| writeln!(out, "the log ends inside the entry at byte {offset}"));
    }
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(Failure::Files, format_args!("standard output can't be written: {error}"))
        }
        _ => Ok(()),
    }
}

fn line(entry: &Entry, header: &Header) -> String {
    match entry {
        Entry::Started { node } => format!("node {node} started"),
        Entry::Committed(committed) => commit_line(committed, header),
        Entry::Released(r) => format!(
            "{} released at node {}: {:?}, {} bytes, checksum {:08x}",
            seconds(r.time),
            r.by.node,
            r.direction,
            r.frame_bytes,
            r.frame_crc
        ),
    }
}

fn commit_line(committed: &Committed, header: &Header) -> String {
    let record = committed.record();
    let stage = header.stages.get(usize::from(record.stage)).map_or("?", String::as_str);
    let seen = record.seen().map(|seen| {
        let mark = if seen.written { "write" } else { "read" };
        format!("{mark} {}@{}", seen.partition, seen.version)
    });
    let seen = seen.collect::<Vec<_>>().join(", ");
    format!("{} {stage} committed: {seen}; {} bytes of delta", seconds(committed.time), record.delta.len())
}

fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}
