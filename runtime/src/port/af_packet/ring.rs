//! The ring of a packet socket, TPACKET_V2: memory that the kernel writes arriving frames into.
//!
//! The ring is an array of slots. The first word of a slot says whose it is: the kernel sets `TP_STATUS_USER` when it
//! has written a frame, and the reader clears the word when it is done with it
//! (Documentation/networking/packet_mmap.rst of the kernel).
#![allow(unsafe_code)] // the memory is shared with the kernel

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::super::offload::VnetHeader;
use super::super::sys;
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

/// `struct tpacket_req`: the shape of a ring.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
struct Shape {
    block_size: u32,
    blocks: u32,
    slot_size: u32,
    /// A power of two.
    slots: u32,
}

/// Bytes of a slot in front of the frame, tags and the like included: rather too many.
const BEFORE_FRAME: usize = 128;
/// Where in a slot `sll_pkttype` is: behind the head, rounded up to 16 bytes, is the `struct sockaddr_ll` of the frame.
const KIND: usize = size_of::<Head>().next_multiple_of(libc::TPACKET_ALIGNMENT) + 10;
/// The least size of a slot, and the largest: on an interface with a larger MTU long frames wait whole.
const LEAST_SLOT: usize = 2_048;
const LARGEST_SLOT: usize = 16_384;
/// The most bytes of a ring: the kernel counts them in 32 bits.
const MOST: usize = 1 << 31;
/// Bytes of a block, the unit in which the kernel finds memory: slots never cross its end.
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
    /// Whether the machine itself has sent it.
    pub(super) is_outgoing: bool,
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
        let (fd, length) = (socket.as_fd().as_raw_fd(), shape.slots as usize * shape.slot_size as usize);
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
    /// The slot that the next frame arrives in.
    front: usize,
}

impl Ring {
    /// A ring for at least `frames` frames of `longest` bytes, on a packet socket that isn't bound yet. Longer ones
    /// wait behind the socket.
    pub(super) fn new(socket: OwnedFd, frames: usize, longest: usize) -> io::Result<Ring> {
        let slot_size = (longest.min(LARGEST_SLOT) + BEFORE_FRAME).next_power_of_two();
        let slot_size = slot_size.clamp(LEAST_SLOT, LARGEST_SLOT);
        let slots = frames.max(BLOCK / slot_size).checked_next_power_of_two();
        let slots = slots.filter(|slots| slots.checked_mul(slot_size).is_some_and(|bytes| bytes <= MOST));
        let slots = slots.ok_or(io::ErrorKind::OutOfMemory)?;
        let shape = Shape {
            block_size: BLOCK as u32,
            blocks: (slots * slot_size / BLOCK) as u32,
            slot_size: slot_size as u32,
            slots: slots as u32,
        };
        let memory = Some(Mapping::new(&socket, &shape)?);
        Ok(Ring { socket: File::from(socket), shape, memory, front: 0 })
    }

    /// Begins anew with an empty ring on the same socket. What waits in the old one is lost.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        let none = Shape { block_size: 0, blocks: 0, slot_size: 0, slots: 0 };
        (self.memory, self.front) = (None, 0);
        sys::set_option(&self.socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &none)?;
        self.memory = Some(Mapping::new(&self.socket, &self.shape)?);
        Ok(())
    }

    /// Frames that it has room for.
    pub(super) fn slots(&self) -> u32 {
        self.shape.slots
    }

    /// Whether there is no memory to receive into.
    pub(super) fn is_missing(&self) -> bool {
        self.memory.is_none()
    }

    /// The socket.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The front slot.
    fn slot(&self) -> Option<NonNull<u8>> {
        let start = self.memory.as_ref()?.start;
        // SAFETY: `front` is below the number of slots, so that the slot lies in the mapping.
        Some(unsafe { start.add(self.front * self.shape.slot_size as usize) })
    }

    /// The word that says whose the front slot is.
    fn status(&self) -> Option<&AtomicU32> {
        // SAFETY: slots begin with that word and are aligned to far more than four bytes; the mapping lives as long as
        // `self` is borrowed; both sides use the word as an atomic only.
        self.slot().map(|slot| unsafe { AtomicU32::from_ptr(slot.as_ptr().cast()) })
    }

    /// The frame at the front, if one has arrived.
    pub(super) fn front(&self) -> Option<Arrived<'_>> {
        let status = self.status()?.load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let (slot, slot_size) = (self.slot()?.as_ptr(), self.shape.slot_size as usize);
        // SAFETY: the slot lies in the mapping, and is the reader's until `release`, which needs `self` for itself, so
        // that nothing writes it while this slice lives.
        let slot = unsafe { std::slice::from_raw_parts(slot, slot_size) };
        let (head, _) = Head::read_from_prefix(slot).ok()?;
        let at = usize::from(head.at);
        let header = slot.get(at.wrapping_sub(VnetHeader::LENGTH)..at);
        let frame = slot.get(at..at + head.captured as usize);
        let tag = (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
            let is_told = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            let ethertype = if is_told { head.tag_ethertype } else { libc::ETH_P_8021Q as u16 };
            let ([a, b], [c, d]) = (ethertype.to_be_bytes(), head.tag_control.to_be_bytes());
            [a, b, c, d]
        });
        Some(Arrived {
            time: Nanos::from(head.seconds) * SECOND + Nanos::from(head.nanoseconds),
            header: header.and_then(|bytes| VnetHeader::read_from_bytes(bytes).ok()).unwrap_or_default(),
            tag,
            frame: frame.unwrap_or_default(),
            length: head.length as usize,
            waits_whole: status & libc::TP_STATUS_COPY != 0,
            is_outgoing: slot[KIND] == libc::PACKET_OUTGOING,
        })
    }

    /// Gives the front slot back to the kernel.
    pub(super) fn release(&mut self) {
        if let Some(status) = self.status() {
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.front = (self.front + 1) & (self.shape.slots as usize - 1);
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
