//! The ring of a packet socket: memory that the kernel writes arriving frames into.
//!
//! The ring is an array of slots of a frame each (TPACKET_V2), or of blocks of many (TPACKET_V3, in [`blocks`](super::blocks)).
//! A word of each says whose it is: the kernel sets `TP_STATUS_USER` when it hands the slot or the block over, and the
//! reader clears the word when it is done with it (Documentation/networking/packet_mmap.rst of the kernel).
#![allow(unsafe_code)] // the memory is shared with the kernel

use std::fs::File;
use std::io::{self, Read};
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::super::offload::VnetHeader;
use super::super::sys;
use super::blocks::{self, Place};
use crate::clock::{Nanos, SECOND};

/// `struct tpacket2_hdr`: the head of a slot, in the byte order of the machine.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    status: u32,
    /// Bytes of the frame as it arrived.
    length: u32,
    /// Bytes of it in the slot.
    captured: u32,
    /// Where in the slot it begins.
    at: u16,
    network_at: u16,
    seconds: u32,
    nanoseconds: u32,
    tag_control: u16,
    tag_ethertype: u16,
    padding: [u8; 4],
}

const _: () = assert!(BLOCK.is_multiple_of(LARGEST_SLOT) && LARGEST_SLOT.is_power_of_two());
const _: () = assert!(size_of::<Head>() == size_of::<libc::tpacket2_hdr>());

/// `struct tpacket_req3`: the shape of a ring. Of a ring of slots, the kernel reads the first four.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
struct Shape {
    block_size: u32,
    blocks: u32,
    slot_size: u32,
    slots: u32,
    /// Milliseconds after which a block is handed over that isn't full.
    patience: u32,
    private_bytes: u32,
    features: u32,
}

impl Shape {
    /// Slots for at least `frames` frames of `longest` bytes, a power of two of them; `None` where they are too many.
    fn of_slots(frames: usize, longest: usize) -> Option<Shape> {
        let slot_size = (longest.min(LARGEST_SLOT) + BEFORE_FRAME).next_power_of_two();
        let slot_size = slot_size.clamp(LEAST_SLOT, LARGEST_SLOT);
        let slots = frames.max(BLOCK / slot_size).checked_next_power_of_two()?;
        let bytes = slots.checked_mul(slot_size).filter(|&bytes| bytes <= MOST)?;
        Some(Shape {
            block_size: BLOCK as u32,
            blocks: (bytes / BLOCK) as u32,
            slot_size: slot_size as u32,
            slots: slots as u32,
            ..Shape::default()
        })
    }

    /// So many blocks; `None` where they are too many. The kernel wants to be told of slots here too.
    fn of_blocks(count: usize) -> Option<Shape> {
        count.checked_mul(blocks::SIZE).filter(|&bytes| bytes <= MOST)?;
        Some(Shape {
            block_size: blocks::SIZE as u32,
            blocks: count as u32,
            slot_size: LEAST_SLOT as u32,
            slots: (count * blocks::SIZE / LEAST_SLOT) as u32,
            patience: 1,
            ..Shape::default()
        })
    }

    /// Bytes of all of it.
    fn bytes(&self) -> usize {
        self.blocks as usize * self.block_size as usize
    }
}

/// Bytes of a slot in front of the frame, tags and the like included: rather too many.
const BEFORE_FRAME: usize = 128;
/// The least size of a slot, and the largest: on an interface with a larger MTU long frames wait whole.
const LEAST_SLOT: usize = 2_048;
const LARGEST_SLOT: usize = 16_384;
/// The most bytes of a ring: the kernel counts them in 32 bits.
const MOST: usize = 1 << 31;
/// Bytes in which the kernel finds memory for slots: none crosses their end.
const BLOCK: usize = 1 << 17;

/// A frame at the front of the ring.
#[derive(Debug)]
pub(super) struct Arrived<'a> {
    /// When it arrived, since the Unix epoch.
    pub(super) time: Nanos,
    /// What is left to do on it.
    pub(super) header: VnetHeader,
    /// The VLAN tag that the kernel took out of it.
    pub(super) tag: Option<[u8; 4]>,
    /// The frame, or as much as the slot has room for.
    pub(super) frame: &'a [u8],
    /// Bytes of all of it.
    pub(super) length: usize,
    /// Whether all of it waits behind the socket, to be read with its [`VnetHeader`].
    pub(super) waits_whole: bool,
    /// Whether it is to be passed over: the machine itself has sent it (sockets of a group get these in spite of
    /// `PACKET_IGNORE_OUTGOING`), the kernel has dropped it after all, and counted that, or there is none.
    pub(super) is_void: bool,
}

impl Arrived<'_> {
    /// No frame.
    pub(super) fn void() -> Self {
        let (header, frame) = (VnetHeader::default(), &[]);
        Arrived { time: 0, header, tag: None, frame, length: 0, waits_whole: false, is_void: true }
    }
}

/// What the head in front of a frame tells, whichever the kind of ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// `TP_STATUS_…`
    pub(super) status: u32,
    /// Bytes of the frame as it arrived.
    pub(super) length: u32,
    /// Bytes of it in the ring.
    pub(super) captured: u32,
    /// Where behind the head's first byte it begins.
    pub(super) at: u16,
    /// When it arrived, since the Unix epoch.
    pub(super) seconds: u32,
    /// And nanoseconds.
    pub(super) nanoseconds: u32,
    /// Ethertype and control information of its tag.
    pub(super) tag: [u16; 2],
}

impl Told {
    /// The frame behind a head of `size` bytes, with which `bytes` begin. Behind the head, rounded up to 16 bytes, is the
    /// `struct sockaddr_ll` of the frame, and in front of the frame its [`VnetHeader`].
    pub(super) fn arrived(self, bytes: &[u8], size: usize) -> Option<Arrived<'_>> {
        const KIND_AT: usize = offset_of!(libc::sockaddr_ll, sll_pkttype);
        let at = usize::from(self.at);
        let header = bytes.get(at.wrapping_sub(VnetHeader::LENGTH)..at);
        let tag = (self.status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
            let is_told = self.status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            let ethertype = if is_told { self.tag[0] } else { libc::ETH_P_8021Q as u16 };
            let ([a, b], [c, d]) = (ethertype.to_be_bytes(), self.tag[1].to_be_bytes());
            [a, b, c, d]
        });
        let kind = *bytes.get(size.next_multiple_of(libc::TPACKET_ALIGNMENT) + KIND_AT)?;
        Some(Arrived {
            time: Nanos::from(self.seconds) * SECOND + Nanos::from(self.nanoseconds),
            header: header.and_then(|bytes| VnetHeader::read_from_bytes(bytes).ok()).unwrap_or_default(),
            tag,
            frame: bytes.get(at..at + self.captured as usize).unwrap_or_default(),
            length: self.length as usize,
            waits_whole: self.status & libc::TP_STATUS_COPY != 0,
            is_void: self.status & libc::TP_STATUS_USER == 0 || kind == libc::PACKET_OUTGOING,
        })
    }
}

/// What frames arrive in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Slots for so many frames, handed over one by one. Frames longer than the largest slot wait behind the socket.
    Slots(usize),
    /// So many blocks of [`blocks::SIZE`] bytes.
    Blocks(usize),
}

/// The memory of a ring.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to this value alone, whichever thread it is on, and the kernel doesn't care.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Gives a packet socket without ring one of this shape.
    fn new(socket: &impl AsFd, shape: &Shape) -> io::Result<Mapping> {
        sys::set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, shape)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let (fd, length) = (socket.as_fd().as_raw_fd(), shape.bytes());
        // SAFETY: a new mapping wherever the kernel likes, of the ring that the socket has just got.
        let start = unsafe { libc::mmap(null_mut(), length, protection, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping as it was made, and no reference to it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// The ring, and the socket that it belongs to.
#[derive(Debug)]
pub(super) struct Ring {
    socket: File,
    shape: Shape,
    /// `None` where the kernel had no memory for a new ring.
    memory: Option<Mapping>,
    /// The slot or block that the next frame arrives in.
    front: usize,
    /// Where the reader is in the front block; `None` in a ring of slots.
    place: Option<Place>,
}

impl Ring {
    /// A ring on a packet socket that isn't bound yet, for frames of up to `longest` bytes and super-frames.
    pub(super) fn new(socket: OwnedFd, kind: Kind, longest: usize) -> io::Result<Ring> {
        let (version, shape, place) = match kind {
            Kind::Slots(frames) => {
                (libc::tpacket_versions::TPACKET_V2, Shape::of_slots(frames, longest), None)
            }
            Kind::Blocks(count) => {
                (libc::tpacket_versions::TPACKET_V3, Shape::of_blocks(count), Some(Place::default()))
            }
        };
        let shape = shape.ok_or(io::ErrorKind::OutOfMemory)?;
        sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &(version as i32))?;
        let memory = Some(Mapping::new(&socket, &shape)?);
        Ok(Ring { socket: File::from(socket), shape, memory, front: 0, place })
    }

    /// Begins anew with an empty ring on the same socket. What waits in the old one is lost.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        (self.memory, self.front) = (None, 0);
        self.place = self.place.as_ref().map(|_| Place::default());
        sys::set_option(&self.socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &Shape::default())?;
        self.memory = Some(Mapping::new(&self.socket, &self.shape)?);
        Ok(())
    }

    /// Whether each frame has a slot of its own.
    pub(super) fn has_slots(&self) -> bool {
        self.place.is_none()
    }

    /// Whether there is no memory to receive into.
    pub(super) fn is_missing(&self) -> bool {
        self.memory.is_none()
    }

    /// The socket.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Bytes of a slot or block, how many there are, and where in it the word is that says whose it is.
    fn grid(&self) -> (usize, usize, usize) {
        let shape = &self.shape;
        match self.place {
            None => (shape.slot_size as usize, shape.slots as usize, 0),
            Some(_) => (shape.block_size as usize, shape.blocks as usize, blocks::STATUS_AT),
        }
    }

    /// The front slot or block.
    fn start(&self) -> Option<NonNull<u8>> {
        let start = self.memory.as_ref()?.start;
        // SAFETY: `front` is below the number of slots or blocks, so that it lies in the mapping.
        Some(unsafe { start.add(self.front * self.grid().0) })
    }

    /// The word that says whose the front slot or block is.
    fn status(&self) -> Option<&AtomicU32> {
        let start = self.start()?;
        // SAFETY: each slot or block has that word, and is aligned to far more than four bytes; the mapping lives as long
        // as `self` is borrowed; both sides use the word as an atomic only.
        Some(unsafe { AtomicU32::from_ptr(start.add(self.grid().2).as_ptr().cast()) })
    }

    /// The frame at the front, if one has arrived.
    pub(super) fn front(&mut self) -> Option<Arrived<'_>> {
        let status = self.status()?.load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let (start, (size, ..)) = (self.start()?.as_ptr(), self.grid());
        // SAFETY: the slot or block lies in the mapping, and is the reader's until `release`, which needs `self` for
        // itself, so that nothing writes it while this slice lives.
        let bytes = unsafe { std::slice::from_raw_parts(start, size) };
        match &mut self.place {
            None => read(bytes, status),
            Some(place) => Some(place.read(bytes)),
        }
    }

    /// Gives the frame at the front back to the kernel, a block with the last one in it.
    pub(super) fn release(&mut self) {
        if self.place.as_mut().is_some_and(Place::step) {
            return;
        }
        if let Some(status) = self.status() {
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.front += 1;
            if self.front == self.grid().1 {
                self.front = 0;
            }
        }
    }

    /// Reads the first of the frames that wait whole, and its header, and returns how many bytes they have.
    pub(super) fn read_whole(&self, room: &mut [u8]) -> io::Result<usize> {
        match (&self.socket).read(room) {
            // The error is that of the interface, told once; the frame still waits.
            Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => (&self.socket).read(room),
            result => result,
        }
    }
}

/// The frame in a slot.
fn read(slot: &[u8], status: u32) -> Option<Arrived<'_>> {
    let (head, _) = Head::read_from_prefix(slot).ok()?;
    let told = Told {
        status,
        length: head.length,
        captured: head.captured,
        at: head.at,
        seconds: head.seconds,
        nanoseconds: head.nanoseconds,
        tag: [head.tag_ethertype, head.tag_control],
    };
    told.arrived(slot, size_of::<Head>())
}
