//! Traces: frames with their directions and arrival times.

use crate::clock::Nanos;
use crate::packet::Direction;

/// One frame of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFrame {
    /// When it arrives, in nanoseconds since the Unix epoch; a trace is in the order of these.
    pub time: Nanos,
    /// Which way it passes the chain.
    pub direction: Direction,
    /// The frame from the Ethernet header on.
    pub bytes: Vec<u8>,
}

/// Frames in the order of their arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace(pub Vec<TraceFrame>);
