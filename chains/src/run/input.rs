//! The input: captures, merged by time.

use pannier_runtime::Direction;
use pannier_runtime::clock::Nanos;
use pannier_runtime::packet::Packet;
use pannier_runtime::port::pcap::{CaptureError, Captured, Reader, Refused};

use crate::config::Source;

/// Why the input can't be read, in a sentence with the way out.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A capture that can't be read, or not to its end.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A capture of something else than Ethernet or IP.
    #[error("{name}: {refused}")]
    Link {
        /// The capture.
        name: String,
        /// Why its packets are not taken.
        refused: Refused,
    },
}

/// What came from the input.
pub(super) enum Arrival {
    /// A packet was filled in; its capture may say which way it goes.
    Packet(Option<Direction>),
    /// A packet that can't be taken, and why.
    Refused(&'static str),
    /// The end.
    End,
}

struct Lane {
    reader: Reader,
    side: Option<Direction>,
    next: Option<Captured>,
    frame: Vec<u8>,
    accepted: bool,
}

/// Captures, merged by time.
pub(super) struct Input {
    lanes: Vec<Lane>,
    /// Damage behind the last packet that was handed out.
    damage: Option<InputError>,
    /// Bytes of capture read so far, about.
    pub(super) bytes: u64,
    /// Packets of which the capture holds the beginning only.
    pub(super) cut: u64,
}

impl Input {
    pub(super) fn open(sources: &[Source]) -> Result<Self, InputError> {
        let mut input = Input { lanes: Vec::new(), damage: None, bytes: 0, cut: 0 };
        for source in sources {
            let (reader, side) =
                (Reader::open(&source.file)?, source.side.map(crate::config::Side::direction));
            input.lanes.push(Lane { reader, side, next: None, frame: Vec::new(), accepted: false });
        }
        for lane in &mut input.lanes {
            lane.next = lane.reader.next(&mut lane.frame)?;
        }
        Ok(input)
    }

    /// Puts the earliest packet into `packet`.
    ///
    /// # Errors
    /// A capture that is damaged, or of a link type that can't be taken. What came before is not affected.
    pub(super) fn next(&mut self, packet: &mut Packet) -> Result<Arrival, InputError> {
        if let Some(error) = self.damage.take() {
            return Err(error);
        }
        let pending = self.lanes.iter_mut().filter_map(|lane| Some((lane.next?, lane)));
        let Some((captured, lane)) = pending.min_by_key(|(captured, _)| captured.time) else {
            return Ok(Arrival::End);
        };
        lane.next = None;
        let arrival = take(&captured, lane, packet)?;
        self.bytes += lane.frame.len() as u64 + 16;
        self.cut += u64::from(packet.meta.missing > 0);
        match lane.reader.next(&mut lane.frame) {
            Ok(next) => lane.next = next,
            Err(error) => self.damage = Some(error.into()),
        }
        Ok(arrival)
    }

    /// When the next packet arrives; `None` where none is left, or where the next is damaged.
    pub(super) fn next_time(&self) -> Option<Nanos> {
        self.lanes.iter().filter_map(|lane| lane.next.map(|captured| captured.time)).min()
    }

    /// What a person should know about captures that end inside a record.
    pub(super) fn truncated(&self) -> Vec<String> {
        let sentence = |lane: &Lane| {
            lane.reader.truncated().map(|truncated| format!("{}: {truncated}", lane.reader.name()))
        };
        self.lanes.iter().filter_map(sentence).collect()
    }
}

fn take(captured: &Captured, lane: &mut Lane, packet: &mut Packet) -> Result<Arrival, InputError> {
    let missing = captured.original_len.saturating_sub(u32::try_from(lane.frame.len()).unwrap_or(u32::MAX));
    if let Err(refused) = captured.link.to_ethernet(&mut lane.frame) {
        if !lane.accepted && matches!(refused, Refused::Link { .. }) {
            return Err(InputError::Link { name: lane.reader.name().to_owned(), refused });
        }
        return Ok(Arrival::Refused("link_type_unsupported"));
    }
    lane.accepted = true;
    packet.set_frame(&lane.frame);
    packet.meta.time = captured.time;
    packet.meta.missing = missing;
    Ok(Arrival::Packet(lane.side))
}
