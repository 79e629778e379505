//! Ports of DPDK, named `dpdk:` and what its option `--vdev` takes: `dpdk:net_af_packet0,iface=veth0`, `dpdk:net_null0`,
//! `dpdk:net_ring0`, `dpdk:net_pcap0,rx_pcap=in.pcap,tx_pcap=out.pcap`. One option is the port's own: `buffers=8191`, more
//! buffers than the usual 4,095, for `net_pcap` with `infinite_rx=1`, which keeps the whole capture in them.
//!
//! DPDK is started with the first port, and stays. Ports are plugged in one by one, each with one queue each way
//! and buffers of its own. Memory comes from huge pages where 64 MiB of them are free, else from 512 MiB of plain
//! memory. Network cards on the PCI bus are not looked for: DPDK would take them from the kernel.
//!
//! Frames are not copied: a packet has the buffer that its frame arrived in, which is sent as it is by whatever port of
//! DPDK the packet leaves, and else goes back to its pool. Copied are frames that come in chains of buffers, frames of other
//! ports, what outgrows its buffer, and all that arrives while a port has few buffers left, since packets may wait for
//! their commit: so neither the driver nor what is to be sent ever waits for packets that wait for others.
//!
//! A frame of more than 2,048 bytes is a chain of buffers. It arrives whole, but is sent only by drivers that say they
//! can: `net_ring` does, `net_pcap` does not.
//!
//! Offloads are off: a driver puts VLAN tags that the kernel took off back into the frame. One thing stays: what a
//! process on the same machine sends over a veth comes without transport checksums and in super-frames, which
//! `net_af_packet` neither completes nor tells from others. `ethtool -K veth0 tx off` on the sender's side makes the
//! kernel finish its frames; the port `af_packet` needs no such help.

mod eal;
mod ethdev;
mod mempool;
#[cfg(test)]
mod tests;

use std::ffi::CString;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Device, DevicePort, Port, PortContext, PortError, PortSpec, PortStats};
use crate::clock::Nanos;
use crate::limits::MAX_FRAME;
use crate::packet::Packet;
use ethdev::{BUFFERS, BUFFERS_ALLOWED, BURST, Ethdev, Received, Sent};

/// Addresses and type: what every Ethernet frame begins with (IEEE 802.3, 3.1.1).
const SHORTEST: usize = 14;

/// What went wrong with a device, and the way out.
#[derive(Clone, Debug)]
struct Trouble {
    problem: String,
    way_out: &'static str,
}

impl Trouble {
    fn new(problem: impl Into<String>, way_out: &'static str) -> Self {
        Trouble { problem: problem.into(), way_out }
    }
}

/// Opens a port of DPDK.
///
/// # Errors
/// DPDK does not start, has no memory or no such driver, or the driver refuses its options.
pub(super) fn open(spec: &PortSpec) -> Result<Device, PortError> {
    Ok(Box::new(Dpdk::open(spec)?))
}

/// A port of DPDK.
#[derive(Debug)]
struct Dpdk {
    name: String,
    ethdev: Ethdev,
    stats: PortStats,
}

impl Port for Dpdk {
    type Error = PortError;

    fn rx_burst(
        &mut self,
        most: usize,
        context: &mut PortContext<'_>,
        burst: &mut Vec<Packet>,
    ) -> Result<usize, PortError> {
        let before = burst.len();
        let mut left = most;
        while left > 0 {
            let asked = left.min(BURST);
            let count = self.receive(asked, context, burst);
            left -= count;
            if count < asked {
                break;
            }
        }
        self.stats.received += (burst.len() - before) as u64;
        Ok(burst.len() - before)
    }

    fn tx_burst(&mut self, context: &mut PortContext<'_>, burst: &mut Vec<Packet>) -> Result<(), PortError> {
        let drops = &mut self.stats.send_drops;
        for packets in burst.chunks_mut(BURST) {
            let Sent { given, filled, taken } =
                self.ethdev.send(packets, |length| drops.count(refusal(length)));
            self.stats.sent += taken as u64;
            drops.count_many("no_buffer", (given - filled) as u64);
            drops.count_many("ring_full", (filled - taken) as u64);
        }
        context.pool.give_all(burst);
        Ok(())
    }
}

impl Dpdk {
    fn open(spec: &PortSpec) -> Result<Self, PortError> {
        if spec.name.is_empty() {
            return Err(spec.error("no device is named", "name one, as in dpdk:net_null0"));
        }
        let buffers = spec.number("buffers", BUFFERS)?;
        if !BUFFERS_ALLOWED.contains(&buffers) {
            let (least, most) = BUFFERS_ALLOWED.into_inner();
            return Err(
                spec.error(format!("buffers is {buffers}"), format!("give a number from {least} to {most}"))
            );
        }
        let options = spec.options.iter().filter(|(name, _)| *name != "buffers");
        let options: Vec<String> = options.map(|(name, value)| format!("{name}={value}")).collect();
        let c_string = |text: String| {
            CString::new(text).map_err(|_| spec.error("its name has a zero byte", "leave it out"))
        };
        let (device, options) = (c_string(spec.name.clone())?, c_string(options.join(","))?);
        let ethdev = Ethdev::open(device, &options, buffers)
            .map_err(|trouble| spec.error(trouble.problem, trouble.way_out))?;
        Ok(Dpdk { name: spec.text().to_owned(), ethdev, stats: PortStats::default() })
    }

    /// Takes one burst of the driver's, and returns how many frames it had.
    fn receive(&mut self, most: usize, context: &mut PortContext<'_>, burst: &mut Vec<Packet>) -> usize {
        let first = burst.len();
        let Received { count, is_odd } = self.ethdev.receive(most, context.pool, burst, now);
        if is_odd {
            let is_wrong = |packet: &mut Packet| !(SHORTEST..=MAX_FRAME).contains(&packet.frame().len());
            for packet in burst.extract_if(first.., is_wrong) {
                self.stats.receive_drops.count(refusal(packet.frame().len()));
                context.pool.give(packet);
            }
        }
        count
    }
}

impl DevicePort for Dpdk {
    fn name(&self) -> &str {
        &self.name
    }

    /// What the driver took and could not send after all is counted as `refused by the device`.
    fn stats(&self) -> PortStats {
        let mut stats = self.stats.clone();
        let driver = self.ethdev.counts();
        let lost = stats.sent.saturating_sub(driver.opackets);
        stats.sent -= lost;
        stats.send_drops.count_many("refused_by_device", lost);
        stats.receive_drops.count_many("ring_full", driver.imissed);
        stats.receive_drops.count_many("damaged", driver.ierrors);
        stats.receive_drops.count_many("no_buffer", driver.rx_nombuf);
        stats
    }
}

/// Why a frame of this length is not passed on.
#[cold]
fn refusal(length: usize) -> &'static str {
    if length < SHORTEST { "not_ethernet" } else { "longer_than_port_takes" }
}

/// Nanoseconds since the Unix epoch.
fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos::try_from(since.as_nanos()).unwrap_or(Nanos::MAX)
}
