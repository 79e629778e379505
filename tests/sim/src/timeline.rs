//! Timelines: a schedule as a person can follow it.

use std::fmt::Write;

use pannier_runtime::packet::Kind;
use pannier_runtime::piggyback::{RecordView, UnitView};
use pannier_runtime::{Direction, Packet};

use crate::provenance::{number, path};

/// A message in a few words: what it is, from whom, and what its unit says.
pub(crate) fn describe(to: usize, packet: &Packet) -> String {
    let meta = &packet.meta;
    let from = format!("node {}.{} → node {to}", meta.sender, meta.incarnation);
    let what = match meta.kind {
        Kind::Frame => {
            let way = if meta.direction == Direction::Outbound { "" } else { " inbound" };
            let unit = if packet.unit().is_empty() { String::new() } else { unit(packet.unit()) };
            format!(
                "packet {}{way} after {} stages{unit}",
                short(number(packet.frame())),
                path(packet.frame()).len()
            )
        }
        Kind::Unit => format!("a unit alone{}", unit(packet.frame())),
        Kind::Acknowledge => "an acknowledgement".to_owned(),
        Kind::Fetch => "a question for state".to_owned(),
        Kind::Snapshot => format!("{} bytes of state", packet.frame().len()),
    };
    format!("{from}: {what}")
}

/// A packet's number without the seed in its upper half.
pub(crate) fn short(packet: u64) -> u64 {
    packet & 0xff_ffff
}

/// The records of a unit: of each the stage, what it read (`p3≥7`) and what it wrote (`p3:7→8`).
fn unit(bytes: &[u8]) -> String {
    let Ok(unit) = UnitView::parse(bytes) else { return " with a damaged unit".to_owned() };
    let mut text = String::from(" with {");
    for (at, record) in unit.records().enumerate() {
        let _ = write!(text, "{}stage {}:{}", if at > 0 { "; " } else { "" }, record.stage, seen(&record));
    }
    text + "}"
}

fn seen(record: &RecordView<'_>) -> String {
    let mut text = String::new();
    for s in record.seen() {
        let _ = match s.written {
            true => write!(text, " p{}:{}→{}", s.partition, s.version, s.version.wrapping_add(1)),
            false => write!(text, " p{}≥{}", s.partition, s.version),
        };
    }
    text
}
