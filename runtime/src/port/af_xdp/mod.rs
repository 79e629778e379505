//! Frames of a queue of an interface by AF_XDP, before the kernel's own network stack sees them.
//!
//! `af_xdp:interface[,queue=0][,mode=auto|copy|zerocopy][,frames=4096]`. All frames that arrive on the queue come here
//! and nowhere else; frames of other queues, and all of them once the port is closed, go the kernel's way. `frames` is
//! the number of chunks of 4 KiB that are shared with the kernel, a power of two, half of them for each direction. In
//! the mode `zerocopy` the driver reads and writes these chunks itself, in the mode `copy` the kernel copies; `auto`
//! takes what the driver has. Needs Linux 5.9, and the rights `CAP_NET_RAW`, `CAP_NET_ADMIN` and `CAP_BPF`.
//!
//! An XDP program sees frames as the sender's driver left them. What to set where the sender is this machine's own
//! kernel at the other end of a veth (`ethtool -K peer …`):
//!
//! - Super-frames of TCP (`tso off gso off`): the kernel switches them off by itself at the other end of a veth as long
//!   as the port is open, in other places it does not. A frame that does not fit into a chunk (3,840 bytes that arrive,
//!   4,096 that are sent) or the interface's MTU is dropped and counted.
//! - VLAN tags (`txvlan off`), which otherwise travel beside the frame where no program sees them.
//! - Checksums of TCP and UDP that were left to hardware are completed here. For SCTP they can't be told from wrong ones
//!   (`tx-checksum-sctp off`).
//!
//! A network card takes frames for other addresses than its own only when told: `ip link set NAME promisc on`. It
//! spreads frames over its queues. A live chain opens all queues, if it has as many shards or cores, unless one is named;
//! `ethtool -L NAME combined 2` leaves so many, and how the card spreads frames is said by `ethtool -X` and `-N`: all of a flow
//! must come by one queue.
//!
//! While the interface is down, nothing arrives, and what is sent is dropped and counted; only frames that were just
//! being handed over when it went down may leave late. When it is deleted, nothing arrives any more, which is an error.

mod bpf;
mod errors;
mod program;
mod queues;
mod socket;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::interface::{self, OVERRUN, TOO_LONG};
use super::sys::{self, Request, inquiry_socket};
use super::{DevicePort, Port, PortContext, PortError, PortSpec, PortStats};
use crate::clock::Nanos;
use crate::packet::Packet;
use crate::wire::ethernet::{EthernetHeader, VlanTag};
use crate::wire::{Layers, verify};
use errors::Step;
use program::Place;
use queues::{CHUNK, Queues};
use socket::Socket;

/// How often the kernel is asked again to take frames when it took none.
const PATIENCE: u32 = 64;
/// How many empty bursts in a row pass between looks whether the interface is still there.
const IDLE_BURSTS: u32 = 64;
/// Why frames are dropped when there is no interface any more.
const GONE: &str = "interface_deleted";

/// What a port's options say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Options {
    queue: u32,
    /// Flags for bind(2) that say who copies.
    mode: u16,
    frames: u32,
}

impl Options {
    fn parse(spec: &PortSpec) -> Result<Options, PortError> {
        spec.check_options(&["queue", "mode", "frames"])?;
        let queue = spec.number("queue", 0)?;
        let queue = u16::try_from(queue)
            .map_err(|_| spec.error(format!("there is no queue {queue}"), "queues count from 0 to 65535"))?;
        let frames = spec.number("frames", 4_096)?;
        if !frames.is_power_of_two() || !(64..=1 << 18).contains(&frames) {
            return Err(spec.error(format!("frames is {frames}"), "give a power of two from 64 to 262144"));
        }
        let mode = match spec.options.get("mode").map_or("auto", String::as_str) {
            "auto" => 0,
            "copy" => libc::XDP_COPY,
            "zerocopy" => libc::XDP_ZEROCOPY,
            other => return Err(spec.error(format!("mode is `{other}`"), "give auto, copy or zerocopy")),
        };
        Ok(Options { queue: queue.into(), mode, frames: frames as u32 })
    }
}

/// The port. Its fields are dropped in order: first the link, so that no more frames come.
#[derive(Debug)]
pub(super) struct AfXdp {
    /// All queues of a port have one.
    _link: Arc<OwnedFd>,
    socket: Socket,
    queues: Queues,
    /// For questions about the interface, in the network namespace that the port was opened in.
    control: OwnedFd,
    spec: PortSpec,
    /// Most bytes of a frame that the interface takes, Ethernet header and one tag included.
    longest: usize,
    stats: PortStats,
    idle: u32,
    is_gone: bool,
}

impl AfXdp {
    /// Opens the port on one queue of the interface, or from queue 0 on up to `most` where none is named and it has as many.
    ///
    /// # Errors
    /// A wrong option; no such interface or queue, or one that is taken; more queues than wanted, whose frames would pass by; a
    /// right, a limit or a kernel that does not do.
    pub(super) fn open_queues(spec: &PortSpec, most: usize) -> Result<Vec<AfXdp>, PortError> {
        interface::check_name(spec)?;
        let options = Options::parse(spec)?;
        let failed = |step| move |error: io::Error| errors::explain(spec, &options, step, &error);
        let inquire = || inquiry_socket().map_err(failed(Step::Interface));
        let index = sys::interface(&inquire()?, &spec.name, Request::Index)
            .map_err(failed(Step::Interface))?
            .cast_unsigned();
        let is_named = spec.options.contains_key("queue");
        let most = if is_named { 1 } else { most.max(1) as u32 };
        if !is_named
            && let Ok(all) = sys::receive_queues(&inquire()?, &spec.name)
            && all > most
        {
            return Err(errors::too_many_queues(spec, all, most));
        }
        let mut bound = Vec::new();
        for queue in options.queue..options.queue + most {
            let options = Options { queue, ..options };
            match bind(&options, index) {
                Ok(one) => bound.push(one),
                // The interface has no more.
                Err((Step::Bind, error))
                    if !bound.is_empty() && error.raw_os_error() == Some(libc::EINVAL) =>
                {
                    break;
                }
                Err((step, error)) => return Err(errors::explain(spec, &options, step, &error)),
            }
        }
        let sockets: Vec<&Socket> = bound.iter().map(|(socket, _)| socket).collect();
        let is_zero_copy = sockets[0].is_zero_copy().map_err(failed(Step::Socket))?;
        let (link, place) =
            program::redirect(&sockets, index, options.queue).map_err(|failure| match failure {
                program::Failure::Load(error) => failed(Step::Program)(error),
                program::Failure::Attach(error) => failed(Step::Attach)(error),
            })?;
        tracing::info!(
            port = spec.text(),
            mode = if is_zero_copy { "zerocopy" } else { "copy" },
            program = if place == Place::Driver { "in the driver" } else { "generic" },
            queues = bound.len(),
            "opened"
        );
        let link = Arc::new(link);
        let port = |(socket, queues)| {
            let mut port = AfXdp {
                _link: Arc::clone(&link),
                socket,
                queues,
                control: inquire()?,
                spec: spec.clone(),
                longest: 0,
                stats: PortStats::default(),
                idle: 0,
                is_gone: false,
            };
            port.measure();
            Ok(port)
        };
        bound.into_iter().map(port).collect()
    }

    /// Asks for the longest frame that the interface takes; one that is gone takes none.
    fn measure(&mut self) {
        let mtu = interface::mtu(&self.control, &self.spec.name);
        self.longest = mtu.map_or(0, |mtu| mtu + EthernetHeader::LENGTH + VlanTag::LENGTH).min(CHUNK);
    }

    /// Puts one frame into the queue of those to send.
    ///
    /// # Errors
    /// Why it must be dropped.
    fn send(&mut self, frame: &[u8]) -> Result<(), &'static str> {
        if self.is_gone {
            return Err(GONE);
        }
        if frame.len() < EthernetHeader::LENGTH {
            return Err("not_ethernet");
        }
        if frame.len() > self.longest {
            self.measure();
            if frame.len() > self.longest {
                return Err(TOO_LONG);
            }
        }
        if !self.queues.send(frame) {
            self.flush();
            if !self.queues.send(frame) {
                return Err("no_room_to_send");
            }
        }
        self.stats.sent += 1;
        Ok(())
    }

    /// Makes the kernel take the frames to send. In copy mode it takes and sends them in this call, 32 at a time.
    fn flush(&mut self) {
        self.queues.publish();
        let mut patience = PATIENCE;
        // Each call takes a frame, or costs patience.
        for _ in 0..self.queues.unsent() + PATIENCE {
            let before = self.queues.unsent();
            if self.is_gone || before == 0 || !self.queues.sender_sleeps() || patience == 0 {
                return;
            }
            match self.wake_sender() {
                Waking::Down => return,
                Waking::Done if self.queues.unsent() == before => patience -= 1,
                Waking::Done | Waking::Refused | Waking::Gone => {}
            }
        }
    }

    fn wake_sender(&mut self) -> Waking {
        let Err(error) = self.socket.wake_sender() else { return Waking::Done };
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => Waking::Done,
            Some(libc::EBUSY) => {
                self.stats.sent = self.stats.sent.saturating_sub(1);
                self.stats.send_drops.count("refused_by_kernel");
                Waking::Refused
            }
            // Drivers that copy nothing have more words than ENETDOWN for being down.
            _ if self.socket.pending_error().is_ok() => Waking::Down,
            _ => {
                self.is_gone = true;
                let lost = u64::from(self.queues.unsent()).min(self.stats.sent);
                self.stats.sent -= lost;
                self.stats.send_drops.count_many(GONE, lost);
                Waking::Gone
            }
        }
    }

    /// Whether the interface is down. Asked before each burst, where sending takes calls anyway: what is in the ring
    /// while it is down would leave when it is up again.
    fn is_down(&mut self) -> bool {
        !self.is_gone && self.queues.sender_sleeps() && matches!(self.wake_sender(), Waking::Down)
    }

    /// Sees to a burst that found nothing.
    fn look_around(&mut self) {
        self.idle += 1;
        if self.idle == IDLE_BURSTS {
            self.idle = 0;
            self.is_gone = self.socket.pending_error().is_err();
        }
    }
}

/// A socket with its memory, bound to a queue. The kernel frees the queue of a socket that was closed a moment ago only when it
/// gets round to it: a queue that is taken is tried again for half a second.
fn bind(options: &Options, interface: u32) -> Result<(Socket, Queues), (Step, io::Error)> {
    let failed = |step| move |error: io::Error| (step, error);
    let socket = Socket::open().map_err(failed(Step::Socket))?;
    let queues = Queues::new(&socket, options.frames).map_err(failed(Step::Memory))?;
    let bytes = i32::try_from(options.frames as usize * CHUNK).unwrap_or(i32::MAX);
    socket.set_send_buffer(bytes).map_err(failed(Step::Socket))?;
    let bind = || socket.bind(interface, options.queue, libc::XDP_USE_NEED_WAKEUP | options.mode);
    for _ in 0..50 {
        match bind() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                thread::sleep(Duration::from_millis(10));
            }
            result => return result.map(|()| (socket, queues)).map_err(failed(Step::Bind)),
        }
    }
    bind().map_err(failed(Step::Bind))?;
    Ok((socket, queues))
}

/// What came of asking the kernel to send.
enum Waking {
    Done,
    /// The interface is down: nothing was taken.
    Down,
    /// The interface was deleted.
    Gone,
    /// One frame was taken and dropped: the driver is full, or there is no carrier. The kernel may move its index later.
    Refused,
}

impl Port for AfXdp {
    type Error = PortError;

    fn rx_burst(
        &mut self,
        most: usize,
        context: &mut PortContext<'_>,
        burst: &mut Vec<Packet>,
    ) -> Result<usize, PortError> {
        if !self.is_gone {
            if self.queues.unsent() > 0 {
                self.flush();
            }
            if self.queues.receiver_sleeps() {
                // Where this fails the interface is down or deleted, which shows elsewhere.
                let _ = self.socket.wake_receiver();
            }
            if !self.queues.has_received() {
                self.look_around();
            }
        }
        if self.is_gone {
            return Err(interface::gone(&self.spec));
        }
        if !self.queues.has_received() {
            return Ok(0);
        }
        self.idle = 0;
        let time = wall_clock();
        let count = self.queues.receive(most, |frame| {
            let mut packet = context.pool.take();
            packet.set_frame(frame);
            packet.meta.time = time;
            if let Ok(layers) = Layers::parse(frame) {
                verify::complete_partial(packet.frame_mut(), &layers);
            }
            burst.push(packet);
        });
        self.stats.received += count as u64;
        Ok(count)
    }

    fn tx_burst(&mut self, context: &mut PortContext<'_>, burst: &mut Vec<Packet>) -> Result<(), PortError> {
        if burst.is_empty() {
            return Ok(());
        }
        let is_down = self.is_down();
        for packet in burst.drain(..) {
            let sent = if is_down { Err("interface_down") } else { self.send(packet.frame()) };
            if let Err(reason) = sent {
                self.stats.send_drops.count(reason);
            }
            context.pool.give(packet);
        }
        if !is_down {
            self.flush();
        }
        Ok(())
    }
}

impl DevicePort for AfXdp {
    fn name(&self) -> &str {
        self.spec.text()
    }

    /// Frames that the kernel dropped on the way here are those that do not fit into a chunk, and those that found no
    /// chunk or no room in the ring: whoever takes bursts is too slow, or `frames` too small.
    fn stats(&self) -> PortStats {
        let mut stats = self.stats.clone();
        // An interface that is gone leaves the counts of the port itself.
        if let Ok(kernel) = self.socket.statistics() {
            stats.receive_drops.count_many("too_long_or_no_chunk", kernel.rx_dropped);
            stats.receive_drops.count_many(OVERRUN, kernel.rx_ring_full);
        }
        stats
    }

    /// Tells of packets only: that the interface is gone shows in the bursts of a sleeper who looks now and then.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd())
    }
}

/// Nanoseconds since the Unix epoch.
fn wall_clock() -> Nanos {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as Nanos)
}
