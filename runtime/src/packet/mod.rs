//! Packets: a frame with room before and behind it, the unit that rides behind the frame, and where they come
//! from. Buffers come from a [`Pool`] and go back to it, so that no packet costs an allocation.

#[cfg_attr(not(any(test, feature = "dpdk")), expect(dead_code, reason = "only ports of DPDK lend buffers"))]
mod buffer;
mod pool;

use std::ops::{Deref, DerefMut};

pub use pool::{Depot, Pool};

use crate::clock::Nanos;
use crate::limits::{BUFFER, HEADROOM};
use buffer::Buffer;
#[cfg(any(test, feature = "dpdk"))]
pub(crate) use buffer::{Lender, Lent, Loan};

/// Which way a packet passes the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Direction {
    /// From the inside to the outside, stages 0 … n−1: *forward* on the ring.
    #[default]
    Outbound,
    /// From the outside to the inside, stages n−1 … 0: *backward* on the ring.
    Inbound,
}

impl Direction {
    /// The other direction.
    pub fn reverse(self) -> Self {
        match self {
            Direction::Outbound => Direction::Inbound,
            Direction::Inbound => Direction::Outbound,
        }
    }
}

/// What a packet's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Kind {
    /// A frame of the traffic, perhaps with a unit behind it.
    #[default]
    Frame,
    /// A unit that travels without a frame.
    Unit,
    /// An acknowledgement: the vectors that the successor has applied and knows to be committed.
    Acknowledge,
    /// A replacement asks a neighbour for stores.
    Fetch,
    /// The answer to a fetch: stores, and the units retained for them.
    Snapshot,
}

/// What travels beside the bytes of a packet. On a real link it follows from the port and the headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// What the bytes are.
    pub kind: Kind,
    /// Which way the frame goes.
    pub direction: Direction,
    /// The node that sent it.
    pub sender: u8,
    /// The sender's incarnation.
    pub incarnation: u64,
    /// The incarnation that it is for; 0 for what comes from outside.
    pub addressee: u64,
    /// The lane that it takes through the ring.
    pub lane: u8,
    /// Symmetric hash of the flow, drawn once at ingress: frames with one hash stay in order.
    pub flow: u32,
    /// When the frame arrived at the chain, in nanoseconds since the Unix epoch.
    pub time: Nanos,
    /// Bytes that the capture cut off behind the frame.
    pub missing: u32,
}

/// A frame (or a control message) and the unit behind it, in one buffer.
///
/// ```text
/// | headroom | frame ......... | unit ...... | tailroom |
/// ```
/// A packet passes through many hands, so it is a pointer: moving it moves nothing else. The bytes are in memory of the
/// packet's own, or in a buffer that a port has lent it; what outgrows that moves to the own memory.
#[derive(Debug, Default)]
pub struct Packet(Box<Body>);

/// What a [`Packet`] points to.
#[derive(Clone, Debug, Default)]
pub struct Body {
    bytes: Buffer,
    start: usize,
    /// Where the unit starts: the end of the frame.
    end: usize,
    /// What travels beside the bytes.
    pub meta: Meta,
}

impl Deref for Packet {
    type Target = Body;

    fn deref(&self) -> &Body {
        &self.0
    }
}

impl DerefMut for Packet {
    fn deref_mut(&mut self) -> &mut Body {
        &mut self.0
    }
}

impl Clone for Packet {
    fn clone(&self) -> Self {
        Packet(self.0.clone())
    }

    /// Into the buffer that is there.
    fn clone_from(&mut self, source: &Self) {
        self.0.bytes.clone_from(&source.0.bytes);
        (self.start, self.end, self.meta) = (source.start, source.end, source.meta);
    }
}

impl Packet {
    /// A packet of its own, outside any pool.
    pub fn new(frame: &[u8]) -> Self {
        let mut packet = Packet::default();
        packet.reset();
        packet.set_frame(frame);
        packet
    }

    /// A packet whose buffer most frames and units fit into: buffers that differ in size would grow for a long time,
    /// each when it first meets a large frame.
    fn roomy() -> Self {
        Packet(Box::new(Body { bytes: Buffer::with_capacity(BUFFER), ..Body::default() }))
    }

    /// Empties the packet.
    pub(crate) fn reset(&mut self) {
        // What an earlier frame left in the headroom stays there: `push_front` overwrites it with zeros.
        self.bytes.resize(HEADROOM);
        self.start = HEADROOM;
        self.end = HEADROOM;
        self.meta = Meta::default();
    }

    /// Lets the frame lie in a buffer that is lent, `length` bytes behind [`HEADROOM`], in place of all that the packet
    /// held.
    #[cfg(any(test, feature = "dpdk"))]
    #[inline]
    pub(crate) fn borrow(&mut self, lent: Lent, length: usize, time: Nanos) {
        let body = &mut *self.0;
        body.bytes.borrow(lent, HEADROOM + length);
        (body.start, body.end) = (HEADROOM, HEADROOM + length);
        body.meta = Meta { time, ..Meta::default() };
    }

    /// Takes the buffer out that the frame lies in, if `lender` has lent it. The packet is empty then.
    #[cfg(any(test, feature = "dpdk"))]
    #[inline]
    pub(crate) fn take_loan(&mut self, lender: &'static Lender) -> Option<Loan> {
        let body = &mut *self.0;
        let loan = body.bytes.is_lent_by(lender).then(|| body.bytes.end_loan())?;
        (body.start, body.end) = (0, 0);
        loan
    }

    /// The frame's bytes.
    pub fn frame(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The frame's bytes, to edit. Their number changes by [`Packet::push_front`] and [`Packet::resize`] only.
    pub fn frame_mut(&mut self) -> &mut [u8] {
        let body = &mut *self.0;
        &mut body.bytes[body.start..body.end]
    }

    /// Replaces the frame; a unit behind it is dropped.
    pub fn set_frame(&mut self, frame: &[u8]) {
        let body = &mut *self.0;
        body.bytes.truncate(body.start);
        body.bytes.extend_from_slice(frame);
        body.end = body.bytes.len();
    }

    /// Lets `fill` write the frame as a vector of its own choice of length; a unit behind it is dropped.
    pub fn fill_frame<T>(&mut self, fill: impl FnOnce(&mut FrameWriter<'_>) -> T) -> T {
        let start = self.start;
        self.bytes.truncate(start);
        let result = fill(&mut FrameWriter { bytes: &mut self.0.bytes });
        self.end = self.bytes.len();
        result
    }

    /// Makes the frame `count` bytes longer at its front (zeros) or, where `count` is negative, shorter. Returns
    /// false and changes nothing where the headroom or the frame is too short.
    pub fn push_front(&mut self, count: isize) -> bool {
        let Some(start) = self.start.checked_add_signed(-count) else { return false };
        if start > self.end {
            return false;
        }
        let body = &mut *self.0;
        if let Some(pushed) = body.bytes.get_mut(start..body.start) {
            pushed.fill(0);
        }
        body.start = start;
        true
    }

    /// Cuts the frame to `len` bytes, or fills it up with zeros. A unit behind it is dropped.
    pub fn resize(&mut self, len: usize) {
        let body = &mut *self.0;
        body.bytes.truncate(body.end);
        body.bytes.resize(body.start + len);
        body.end = body.bytes.len();
    }

    /// The unit behind the frame; empty where it carries none.
    pub fn unit(&self) -> &[u8] {
        &self.bytes[self.end..]
    }

    /// Puts `unit` behind the frame in place of what was there. An empty slice takes the unit off.
    pub fn set_unit(&mut self, unit: &[u8]) {
        let body = &mut *self.0;
        body.bytes.truncate(body.end);
        body.bytes.extend_from_slice(unit);
    }
}

/// Appends to the frame of a [`Packet`].
#[derive(Debug)]
pub struct FrameWriter<'a> {
    bytes: &'a mut Buffer,
}

impl FrameWriter<'_> {
    /// Appends `bytes` to the frame.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_rides_behind_the_frame_and_leaves_it_unchanged() {
        // Goal: frame and unit never mix. Method: attach, edit the frame's ends, take the unit off.
        let mut p = Packet::new(b"frame");
        p.set_unit(b"unit");
        assert_eq!((p.frame(), p.unit()), (&b"frame"[..], &b"unit"[..]));
        assert!(p.push_front(4));
        assert_eq!((p.frame(), p.unit()), (&b"\0\0\0\0frame"[..], &b"unit"[..]));
        assert!(p.push_front(-6));
        assert_eq!((p.frame(), p.unit()), (&b"ame"[..], &b"unit"[..]));
        assert!(!p.push_front(-4) && !p.push_front(1_000));
        p.set_unit(b"");
        p.resize(5);
        assert_eq!((p.frame(), p.unit()), (&b"ame\0\0"[..], &b""[..]));
    }
}
