//! A link between two actors on one machine: a bounded ring of packets each way, without locks.

use std::collections::VecDeque;
use std::convert::Infallible;

use rtrb::{Consumer, Producer, RingBuffer};

use super::{Device, DevicePort, Port, PortContext, PortError, PortStats};
use crate::packet::{Kind, Packet};

/// One end of a link.
#[derive(Debug)]
pub struct Duplex {
    to: Producer<Packet>,
    from: Consumer<Packet>,
    /// What found no room in the ring, and goes before all that is sent later. A sender that waited instead could wait for
    /// itself, for nodes are a ring.
    backlog: VecDeque<Packet>,
    lost: u64,
}

/// How much longer than its ring a backlog may become.
const BACKLOG: usize = 16;

/// Makes a link on which `capacity` packets can be under way in each direction.
pub fn duplex(capacity: usize) -> (Duplex, Duplex) {
    let (to, from_other) = RingBuffer::new(capacity);
    let (to_other, from) = RingBuffer::new(capacity);
    let end = |to, from| Duplex { to, from, backlog: VecDeque::new(), lost: 0 };
    (end(to, from), end(to_other, from_other))
}

impl Duplex {
    /// Whether so much is under way, in either direction, that nothing more should enter the chain.
    pub fn is_crowded(&self) -> bool {
        let capacity = self.from.buffer().capacity();
        self.from.slots() > capacity / 2 || self.to.slots() < capacity / 2 || !self.backlog.is_empty()
    }

    /// Sends what fits of the backlog.
    fn flush(&mut self) {
        let count = self.to.slots().min(self.backlog.len());
        if let Ok(chunk) = self.to.write_chunk_uninit(count) {
            chunk.fill_from_iter(self.backlog.drain(..count));
        }
    }

    /// Whether nothing waits to be taken.
    pub fn is_empty(&self) -> bool {
        self.from.is_empty()
    }

    /// Frames that found no room. (What they carried is sent again.)
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Port for Duplex {
    type Error = Infallible;

    fn rx_burst(
        &mut self,
        most: usize,
        _context: &mut PortContext<'_>,
        burst: &mut Vec<Packet>,
    ) -> Result<usize, Infallible> {
        if !self.backlog.is_empty() {
            self.flush();
        }
        let count = self.from.slots().min(most);
        if let Ok(chunk) = self.from.read_chunk(count) {
            let mut packets = chunk.into_iter();
            // One at a time `extend` would ask for room.
            burst.resize_with(burst.len() + count, || packets.next().expect("the chunk has so many"));
        }
        Ok(count)
    }

    /// Packets that find no room follow when there is; where far too many wait already, they are dropped.
    fn tx_burst(&mut self, context: &mut PortContext<'_>, burst: &mut Vec<Packet>) -> Result<(), Infallible> {
        if !self.backlog.is_empty() {
            self.flush();
        }
        let count = if self.backlog.is_empty() { self.to.slots().min(burst.len()) } else { 0 };
        let mut packets = burst.drain(..);
        if let Ok(chunk) = self.to.write_chunk_uninit(count) {
            chunk.fill_from_iter(packets.by_ref());
        }
        for packet in packets {
            if self.backlog.len() < BACKLOG * self.to.buffer().capacity() {
                self.backlog.push_back(packet);
            } else {
                self.lost += u64::from(packet.meta.kind == Kind::Frame);
                context.pool.give(packet);
            }
        }
        Ok(())
    }
}

/// A port to the world outside whose world is whoever holds the other end of the link: for tests and benchmarks.
#[derive(Debug)]
pub struct MemoryDevice {
    link: Duplex,
    stats: PortStats,
}

/// Makes such a port, and the other end of its link.
pub fn memory_device(capacity: usize) -> (Device, Duplex) {
    let (link, other) = duplex(capacity);
    (Box::new(MemoryDevice { link, stats: PortStats::default() }), other)
}

impl Port for MemoryDevice {
    type Error = PortError;

    fn rx_burst(
        &mut self,
        most: usize,
        context: &mut PortContext<'_>,
        burst: &mut Vec<Packet>,
    ) -> Result<usize, PortError> {
        let Ok(count) = self.link.rx_burst(most, context, burst);
        self.stats.received += count as u64;
        Ok(count)
    }

    fn tx_burst(&mut self, context: &mut PortContext<'_>, burst: &mut Vec<Packet>) -> Result<(), PortError> {
        let (offered, lost) = (burst.len() as u64, self.link.lost());
        let Ok(()) = self.link.tx_burst(context, burst);
        let dropped = self.link.lost() - lost;
        self.stats.sent += offered - dropped;
        (0..dropped).for_each(|_| self.stats.send_drops.count("queue_full"));
        Ok(())
    }
}

impl DevicePort for MemoryDevice {
    fn name(&self) -> &str {
        "memory"
    }

    fn stats(&self) -> PortStats {
        self.stats.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Pool;

    #[test]
    fn what_is_sent_arrives_in_order_and_what_finds_no_room_is_counted() {
        // Goal: a link keeps order and never blocks. Method: far more than fits, then all of it a few at a time, with
        // later packets in between.
        const ALL: u8 = 4 + 4 * BACKLOG as u8;
        let (mut one, mut other) = duplex(4);
        let mut pool = Pool::default();
        let mut context = PortContext { now: 0, pool: &mut pool };
        let mut burst: Vec<Packet> = (0..ALL + 2).map(|n| Packet::new(&[n])).collect();
        let Ok(()) = one.tx_burst(&mut context, &mut burst);
        assert_eq!((one.lost(), burst.len()), (2, 0));
        assert!(one.is_crowded() && other.is_crowded());
        let mut taken = Vec::new();
        for later in ALL..ALL + 20 {
            other.rx_burst(3, &mut context, &mut taken).expect("a link does not fail");
            let Ok(()) = one.tx_burst(&mut context, &mut vec![Packet::new(&[later])]);
        }
        while taken.len() < usize::from(ALL) + 20 {
            one.rx_burst(0, &mut context, &mut Vec::new()).expect("a link does not fail");
            assert_ne!(other.rx_burst(3, &mut context, &mut taken), Ok(0));
        }
        assert!(taken.iter().map(|packet| packet.frame()[0]).eq(0..ALL + 20));
        assert!(other.is_empty() && !one.is_crowded() && one.lost() == 2);
    }
}
