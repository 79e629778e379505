//! What a node tells a recorder. The default hears nothing and costs nothing.

use crate::clock::Nanos;
use crate::packet::Packet;
use crate::piggyback::Record;

/// Hears what a node does, in its order. Written to a log, it is what replay needs.
pub trait Recorder: Send {
    /// The head of `node` committed a record at `time` (the transactions' clock).
    fn committed(&mut self, _node: usize, _time: Nanos, _record: &Record) {}
    /// A frame left the chain at `node`.
    fn released(&mut self, _node: usize, _packet: &Packet) {}
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Recorder for Silent {}
