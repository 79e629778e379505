//! Where packets come from and go to, all behind one trait.

mod af_packet;
mod af_xdp;
mod device;
#[cfg(feature = "dpdk")]
mod dpdk;
mod duplex;
pub mod fault;
mod interface;
pub mod memory;
mod offload;
pub mod pcap;
mod sys;
mod tap;

pub use device::{Device, DevicePort, PortError, PortSpec, PortStats};
pub use duplex::{Duplex, MemoryDevice, duplex, memory_device};
pub use fault::{Fault, FaultCounts, Faults};
pub use memory::Memory;

use crate::clock::Nanos;
use crate::packet::{Packet, Pool};

/// What a port takes and gives bursts with.
#[derive(Debug)]
pub struct PortContext<'a> {
    /// The timers' clock.
    pub now: Nanos,
    /// Where packets come from and go to.
    pub pool: &'a mut Pool,
}

/// A source and sink of packets.
pub trait Port {
    /// What can go wrong.
    type Error;

    /// Appends up to `most` packets that have arrived to `burst`, and returns how many.
    ///
    /// # Errors
    /// The port's own; what was appended before stays.
    fn rx_burst(
        &mut self,
        most: usize,
        context: &mut PortContext<'_>,
        burst: &mut Vec<Packet>,
    ) -> Result<usize, Self::Error>;

    /// Sends all packets of `burst`, in order, and leaves it empty.
    ///
    /// # Errors
    /// The port's own.
    fn tx_burst(&mut self, context: &mut PortContext<'_>, burst: &mut Vec<Packet>)
    -> Result<(), Self::Error>;
}
