//! A port on an existing interface, by packet sockets (packet(7)): `af_packet:veth0,frames=4096` or `af_packet:veth0,blocks=128`.
//!
//! Frames arrive in a ring that is shared with the kernel, each as soon as the kernel has it. Super-frames don't fit
//! into a slot: they wait whole behind the socket (`PACKET_COPY_THRESH`) and are read from there. Frames are
//! sent in batches through a second socket, past the queueing discipline. What the kernel left to a device to do is
//! done here, so that each frame that is handed on is complete and no longer than the MTU.
//!
//! With `blocks`, the ring has so many blocks of 256 KiB instead, each of which is handed over when it is full, or after a
//! millisecond with whatever is in it; older kernels count that in ticks of several. Small frames lie close together there: many
//! more have room, and to receive one takes half of the time. That is for mirrored traffic and for floods: a frame that comes
//! alone is late, and who pauses for more milliseconds than there are blocks may lose frames, however few they are.
//!
//! Frames come with the VLAN tags that the kernel took out of them. What the machine itself sends on the interface
//! does not arrive.
//!
//! Of several queues each has a ring of that size and sockets of its own. The kernel spreads what arrives over them by
//! a hash of addresses and transport ports that is the same both ways (`PACKET_FANOUT_HASH`): each frame comes by one queue,
//! and all frames of a flow by the same, with VLAN tags or without. Fragments are hashed without ports: all those of a datagram
//! come by one queue, which need not be that of the flow's whole datagrams.

mod blocks;
mod ring;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use self::ring::{Arrived, Kind, Ring};
use super::interface::{self, OVERRUN};
use super::offload::{self, Pending, VnetHeader};
use super::sys::{self, Request};
use super::{DevicePort, Port, PortContext, PortError, PortSpec, PortStats};
use crate::packet::{Packet, Pool};

/// Frames that the ring has room for, if nothing else is said.
const FRAMES: usize = 4_096;
/// Bytes of super-frames that may wait behind the socket, and of frames that wait to be sent.
const BUFFER: i32 = 8 << 20;
/// How many bursts in a row find nothing before the port looks whether all is well.
const QUIET: u32 = 16;
/// How a group of sockets shares what arrives: by flow. The first has the kernel find a number for the group.
const BY_FLOW: u32 = libc::PACKET_FANOUT_HASH << 16;
const NEW_GROUP: u32 = libc::PACKET_FANOUT_FLAG_UNIQUEID << 16;

/// A port on an interface of this machine.
#[derive(Debug)]
pub(super) struct AfPacket {
    spec: PortSpec,
    ring: Ring,
    sender: OwnedFd,
    pending: Pending,
    mtu: usize,
    stats: PortStats,
    /// Frames that the kernel found no room for, as far as it has been asked.
    overrun: Cell<u64>,
    /// Bursts in a row that found nothing, up to [`QUIET`].
    quiet: u32,
    /// `overrun` at the last look, where nothing has arrived since.
    overrun_then: Option<u64>,
    is_gone: bool,
}

/// `struct packet_mreq`.
#[derive(Debug, IntoBytes, Immutable)]
#[repr(C)]
struct Membership {
    index: i32,
    kind: u16,
    address_length: u16,
    address: [u8; 8],
}

/// `struct tpacket_stats`: what happened since it was last asked for.
#[derive(Debug, FromBytes, IntoBytes)]
#[repr(C)]
struct Counts {
    frames: u32,
    drops: u32,
}

impl AfPacket {
    /// Opens one queue on the interface that `spec` names.
    fn open(spec: &PortSpec) -> Result<AfPacket, PortError> {
        spec.check_options(&["frames", "blocks"])?;
        interface::check_name(spec)?;
        let kind = kind(spec)?;
        let refused = |error: io::Error| interface::refused(spec, "CAP_NET_RAW", &error);
        let sender = sender().map_err(refused)?;
        let index = sys::interface(&sender, &spec.name, Request::Index).map_err(refused)?;
        let hardware = sys::interface(&sender, &spec.name, Request::Kind).map_err(refused)?;
        if ![libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].map(i32::from).contains(&hardware) {
            return Err(spec.error("the interface is not Ethernet", "name one whose frames are"));
        }
        let mtu = interface::mtu(&sender, &spec.name).map_err(refused)?;
        sys::bind_packet(&sender, index, 0).map_err(refused)?;
        let ring = receiver(index, kind, mtu).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOPROTOOPT) => spec.error("the kernel is too old", "use Linux 4.20 or newer"),
            Some(libc::ENOMEM | libc::EINVAL) | None => {
                let (number, what) = match kind {
                    Kind::Slots(frames) => (frames, "frames"),
                    Kind::Blocks(blocks) => (blocks, "blocks"),
                };
                spec.error(
                    format!("there is no memory for a ring of {number} {what}"),
                    format!("set {what}= lower"),
                )
            }
            _ => refused(error),
        })?;
        Ok(AfPacket {
            spec: spec.clone(),
            ring,
            sender,
            pending: Pending::new(),
            mtu,
            stats: PortStats::default(),
            overrun: Cell::new(0),
            quiet: 0,
            overrun_then: None,
            is_gone: false,
        })
    }

    /// Opens the port with up to `most` queues, at least one; one where the kernel (before Linux 4.12) spreads no frames.
    pub(super) fn open_queues(spec: &PortSpec, most: usize) -> Result<Vec<AfPacket>, PortError> {
        let first = AfPacket::open(spec)?;
        let join = |queue: &AfPacket, group: u32| {
            sys::set_option(&queue.ring.socket(), libc::SOL_PACKET, libc::PACKET_FANOUT, &(group | BY_FLOW))
        };
        let has_group = most > 1 && join(&first, NEW_GROUP).is_ok();
        let mut queues = vec![first];
        if has_group {
            let refused = |error: io::Error| interface::refused(spec, "CAP_NET_RAW", &error);
            let group: u32 = sys::option(&queues[0].ring.socket(), libc::SOL_PACKET, libc::PACKET_FANOUT)
                .map_err(refused)?;
            for _ in 1..most {
                let queue = AfPacket::open(spec)?;
                join(&queue, group & 0xFFFF).map_err(refused)?;
                queues.push(queue);
            }
            // A socket gets all frames until it has joined: they have come to others too.
            queues.iter_mut().try_for_each(|queue| queue.ring.renew()).map_err(refused)?;
        }
        Ok(queues)
    }

    /// The frame at the front of the ring; nothing where it is now `pending`. `None` when no frame is there.
    fn arrive(&mut self, pool: &mut Pool) -> Option<Result<Option<Packet>, &'static str>> {
        let arrived = self.ring.front()?;
        if arrived.is_void {
            if arrived.waits_whole {
                let _ = self.ring.read_whole(self.pending.room()); // whatever comes of it, the frame goes
            }
            self.ring.release();
            return Some(Ok(None));
        }
        let result = if arrived.header.is_super_frame() || arrived.frame.len() < arrived.length {
            self.begin().map(|()| None)
        } else {
            plain(&arrived, pool).map(Some)
        };
        self.ring.release();
        Some(result)
    }

    /// Makes the frame at the front of the ring, which is no plain one, `pending`.
    fn begin(&mut self) -> Result<(), &'static str> {
        let Some(arrived) = self.ring.front() else { return Ok(()) };
        let (length, time, tag) = (VnetHeader::LENGTH + arrived.length, arrived.time, arrived.tag);
        if arrived.waits_whole {
            let read = self.ring.read_whole(self.pending.room()).map_err(|_| "not_readable")?;
            if read < length {
                return Err("frame_too_long");
            }
        } else {
            self.pending.put(&arrived.header, arrived.frame)?;
            if arrived.frame.len() < arrived.length {
                return Err(OVERRUN);
            }
        }
        let mtu = || interface::mtu(&self.sender, &self.spec.name).unwrap_or(self.mtu);
        self.pending.start(length, time, tag, mtu)
    }

    /// Looks from time to time, when nothing arrives, whether all is well. This also clears the error that the socket
    /// is told when the interface goes down, so that a sleeper does not wake for ever.
    ///
    /// A ring of slots may have stopped: when the kernel drops a super-frame of a kind that the header has no name for (of
    /// SCTP, say), it takes the slot and never gives it back. Then it counts drops while the ring is empty, and a new
    /// ring goes on.
    fn look(&mut self) -> Result<(), PortError> {
        self.quiet += 1;
        if self.quiet >= QUIET && !self.is_gone {
            self.quiet = 0;
            let _told = sys::option::<i32>(&self.ring.socket(), libc::SOL_SOCKET, libc::SO_ERROR);
            self.is_gone = sys::bound_index(&self.ring.socket()).is_ok_and(|index| index < 0);
            let overrun = self.overrun();
            let has_stopped = self.overrun_then.replace(overrun).is_some_and(|then| then < overrun);
            if has_stopped && self.ring.has_slots() || self.ring.is_missing() {
                // Without memory for it, the next look tries again.
                let _ = self.ring.renew();
            }
        }
        if self.is_gone { Err(interface::gone(&self.spec)) } else { Ok(()) }
    }

    /// Frames that the kernel found no room for so far.
    fn overrun(&self) -> u64 {
        let new = sys::option(&self.ring.socket(), libc::SOL_PACKET, libc::PACKET_STATISTICS);
        let new = new.map_or(0, |counts: Counts| counts.drops.into());
        self.overrun.set(self.overrun.get() + new);
        self.overrun.get()
    }
}

impl Port for AfPacket {
    type Error = PortError;

    fn rx_burst(
        &mut self,
        most: usize,
        context: &mut PortContext<'_>,
        burst: &mut Vec<Packet>,
    ) -> Result<usize, PortError> {
        let before = burst.len();
        while burst.len() - before < most {
            let next = match self.pending.next(context.pool) {
                Some(piece) => piece.map(Some),
                None => match self.arrive(context.pool) {
                    Some(frame) => frame,
                    None => break,
                },
            };
            match next {
                Ok(packet) => burst.extend(packet),
                Err(reason) => self.stats.receive_drops.count(reason),
            }
        }
        let count = burst.len() - before;
        self.stats.received += count as u64;
        if count == 0 {
            self.look()?;
        } else {
            (self.quiet, self.overrun_then) = (0, None);
        }
        Ok(count)
    }

    fn tx_burst(&mut self, context: &mut PortContext<'_>, burst: &mut Vec<Packet>) -> Result<(), PortError> {
        let mut done = 0;
        while done < burst.len() {
            match sys::send_frames(self.sender.as_fd(), &burst[done..]) {
                Ok(sent) => {
                    done += sent;
                    self.stats.sent += sent as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The error is the first frame's.
                Err(error) => {
                    done += 1;
                    self.stats.send_drops.count(interface::send_drop(&error));
                }
            }
        }
        burst.drain(..).for_each(|packet| context.pool.give(packet));
        Ok(())
    }
}

impl DevicePort for AfPacket {
    fn name(&self) -> &str {
        self.spec.text()
    }

    fn stats(&self) -> PortStats {
        let mut stats = self.stats.clone();
        stats.receive_drops.count_many(OVERRUN, self.overrun());
        stats
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.socket())
    }
}

/// What frames shall arrive in.
fn kind(spec: &PortSpec) -> Result<Kind, PortError> {
    if !spec.options.contains_key("blocks") {
        return Ok(Kind::Slots(spec.number("frames", FRAMES)?));
    }
    if spec.options.contains_key("frames") {
        return Err(spec.error("a ring has either frames or blocks", "leave one of them out"));
    }
    match spec.number("blocks", 0)? {
        0 => Err(spec.error("a ring of no blocks receives nothing", "set blocks= higher, or leave it out")),
        blocks => Ok(Kind::Blocks(blocks)),
    }
}

/// The packet of a frame that lies in the ring and is no super-frame.
fn plain(arrived: &Arrived<'_>, pool: &mut Pool) -> Result<Packet, &'static str> {
    let mut packet = pool.take();
    packet.set_frame(arrived.frame);
    packet.meta.time = arrived.time;
    let header =
        if arrived.tag.is_some() { arrived.header.without_tag(arrived.frame) } else { arrived.header };
    if let Err(reason) = offload::complete(packet.frame_mut(), &header) {
        pool.give(packet);
        return Err(reason);
    }
    if let Some(tag) = arrived.tag {
        offload::put_tag(&mut packet, tag);
    }
    Ok(packet)
}

/// A socket to send with, which receives nothing. It is bound when the interface is known.
fn sender() -> io::Result<OwnedFd> {
    let socket = sys::packet_socket()?;
    set(&socket, libc::PACKET_QDISC_BYPASS, 1)?;
    enlarge(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)?;
    Ok(socket)
}

/// A ring that all frames of an interface arrive in.
fn receiver(index: i32, kind: Kind, mtu: usize) -> io::Result<Ring> {
    let socket = sys::packet_socket()?;
    set(&socket, libc::PACKET_VNET_HDR, 1)?;
    set(&socket, libc::PACKET_COPY_THRESH, 1)?;
    set(&socket, libc::PACKET_IGNORE_OUTGOING, 1)?;
    enlarge(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)?;
    let ring = Ring::new(socket, kind, mtu)?;
    let promiscuous =
        Membership { index, kind: libc::PACKET_MR_PROMISC as u16, address_length: 0, address: [0; 8] };
    sys::set_option(&ring.socket(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
    sys::bind_packet(&ring.socket(), index, libc::ETH_P_ALL as u16)?;
    Ok(ring)
}

/// Sets an option of a packet socket.
fn set(socket: &OwnedFd, name: libc::c_int, value: i32) -> io::Result<()> {
    sys::set_option(socket, libc::SOL_PACKET, name, &value)
}

/// Gives a socket [`BUFFER`] bytes by the option `forced`, or without the right to do so as many of them as anybody
/// may have.
fn enlarge(socket: &OwnedFd, forced: libc::c_int, ordinary: libc::c_int) -> io::Result<()> {
    let set = |name| sys::set_option(socket, libc::SOL_SOCKET, name, &BUFFER);
    set(forced).or_else(|_| set(ordinary))
}
