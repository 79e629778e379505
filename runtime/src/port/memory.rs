//! A port in memory: what is sent into it is what arrives from it, first in, first out.

use std::collections::VecDeque;
use std::convert::Infallible;

use super::{Port, PortContext};
use crate::packet::Packet;

/// A queue of packets: an ideal link.
#[derive(Debug, Default)]
pub struct Memory {
    queue: VecDeque<Packet>,
}

impl Memory {
    /// How many packets are under way.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The packets under way.
    pub fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.queue.iter()
    }
}

impl Port for Memory {
    type Error = Infallible;

    fn rx_burst(
        &mut self,
        most: usize,
        _context: &mut PortContext<'_>,
        burst: &mut Vec<Packet>,
    ) -> Result<usize, Infallible> {
        let count = most.min(self.queue.len());
        burst.extend(self.queue.drain(..count));
        Ok(count)
    }

    fn tx_burst(
        &mut self,
        _context: &mut PortContext<'_>,
        burst: &mut Vec<Packet>,
    ) -> Result<(), Infallible> {
        self.queue.extend(burst.drain(..));
        Ok(())
    }
}
