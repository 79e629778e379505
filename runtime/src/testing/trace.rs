//! Traces: frames with their directions and arrival times.

use std::fmt;
use std::io;
use std::path::Path;

use crate::clock::{Nanos, SECOND};
use crate::packet::{Direction, Packet};
use crate::port::pcap::{InterfaceDescription, Writer};
use crate::wire::{Flow, Layers, symmetric_hash};

/// The sides of a chain as a capture names them.
const SIDES: [InterfaceDescription<'static>; 2] = [
    InterfaceDescription { name: "inside", description: Some("outbound packets, as the hosts send them") },
    InterfaceDescription { name: "outside", description: Some("inbound packets, as they arrive") },
];

/// One frame of a trace.
#[derive(Clone, PartialEq, Eq)]
pub struct TraceFrame {
    /// When it arrives, in nanoseconds since the Unix epoch; a trace is in the order of these.
    pub time: Nanos,
    /// Which way it passes the chain.
    pub direction: Direction,
    /// The frame from the Ethernet header on.
    pub bytes: Vec<u8>,
}

impl TraceFrame {
    /// The frame's flow; `None` where it carries no IP or is malformed.
    #[must_use]
    pub fn flow(&self) -> Option<Flow> {
        Flow::parse(&self.bytes).ok()
    }

    /// The frame as the entrance of a chain hands it on: with direction, time, and the symmetric hash of its flow.
    #[must_use]
    pub fn packet(&self) -> Packet {
        let mut packet = Packet::new(&self.bytes);
        packet.meta.direction = self.direction;
        packet.meta.time = self.time;
        packet.meta.flow = self.flow().as_ref().map_or(0, symmetric_hash);
        packet
    }
}

/// Time in seconds, direction, flow (or why there is none), length, and all bytes in hexadecimal.
impl fmt::Display for TraceFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Outbound => "outbound",
            Direction::Inbound => "inbound",
        };
        write!(f, "{}.{:09} {direction}, ", self.time / SECOND, self.time % SECOND)?;
        match Layers::parse(&self.bytes) {
            Err(reason) => write!(f, "{reason}")?,
            Ok(layers) => match Flow::of(&self.bytes, &layers) {
                Some(flow) => write!(f, "{flow}")?,
                None => write!(f, "ethertype {:#06x}", layers.ethertype())?,
            },
        }
        write!(f, ", {} bytes ", self.bytes.len())?;
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// As [`Display`](fmt::Display): a failed test shows what a person can read and paste into a decoder.
impl fmt::Debug for TraceFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Frames in the order of their arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace(pub Vec<TraceFrame>);

impl Trace {
    /// Number of frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The frames as packets, see [`TraceFrame::packet`].
    #[must_use]
    pub fn packets(&self) -> Vec<Packet> {
        self.0.iter().map(TraceFrame::packet).collect()
    }

    /// Several traces as one, ordered by time. Frames of one time stay in the order of `traces` and are moved to the
    /// nanoseconds behind it: no two frames have one time, so that a time names a frame.
    #[must_use]
    pub fn merge(traces: impl IntoIterator<Item = Trace>) -> Trace {
        let mut frames: Vec<TraceFrame> = traces.into_iter().flat_map(|trace| trace.0).collect();
        frames.sort_by_key(|frame| frame.time);
        let mut earliest = 0;
        for frame in &mut frames {
            frame.time = frame.time.max(earliest);
            earliest = frame.time.saturating_add(1);
        }
        Trace(frames)
    }

    /// Writes the trace as a pcapng capture. A frame's direction is the interface that it was met on: outbound ones
    /// arrive on `inside`, inbound ones on `outside`. (The writer has no packet flags, the format's other place for
    /// directions.) `pannier run` does not look at that: it tells directions by addresses, so give it the inside
    /// prefixes of the trace's network. A file that is there is overwritten.
    ///
    /// # Errors
    /// The file cannot be written; the error names it.
    pub fn write_pcapng(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut writer = Writer::create(path.as_ref(), &SIDES)?;
        for frame in &self.0 {
            let interface = match frame.direction {
                Direction::Outbound => 0,
                Direction::Inbound => 1,
            };
            writer.write(interface, frame.time, &frame.bytes, 0)?;
        }
        writer.finish().map(drop)
    }
}
