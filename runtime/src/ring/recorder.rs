//! What a node tells a recorder. The default hears nothing and costs nothing.

use crate::clock::Nanos;
use crate::packet::Packet;
use crate::piggyback::Record;
use crate::ring::view::Incarnation;

/// Who did something: a node, and which of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The node's number.
    pub node: usize,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

/// Hears what a node does, in its order. Written to a log, it is what replay needs.
pub trait Recorder: Send {
    /// The head `by` committed a record at `time` (the transactions' clock).
    fn committed(&mut self, _by: Origin, _time: Nanos, _record: &Record) {}
    /// A frame left the chain at the node `by`.
    fn released(&mut self, _by: Origin, _packet: &Packet) {}
    /// Frames left the chain at the node `by`, in this order.
    fn released_all(&mut self, by: Origin, packets: &[Packet]) {
        packets.iter().for_each(|packet| self.released(by, packet));
    }
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Recorder for Silent {}
