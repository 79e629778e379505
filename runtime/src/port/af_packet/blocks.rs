//! Blocks of many frames that the kernel hands over at once: TPACKET_V3.
//!
//! A block begins with a head that says how many frames are in it; the head of each says where the next one begins. The kernel
//! hands a block over when it is full, or when its timer runs out, which older kernels count in ticks of their clock. Until then
//! nobody may read what is in it.
//!
//! When the kernel drops a super-frame of a kind that the virtio header has no name for (of SCTP, say), its head stays in the
//! block, without `TP_STATUS_USER`.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::ring::{Arrived, Told};

/// Bytes of a block: some super-frames, or 1,700 frames of 60 bytes.
pub(super) const SIZE: usize = 1 << 18;
/// Where in a block the word is that says whose it is.
pub(super) const STATUS_AT: usize = 8;

/// The beginning of `struct tpacket_block_desc`, in the byte order of the machine.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct BlockHead {
    version: u32,
    private_at: u32,
    status: u32,
    frames: u32,
    first_at: u32,
}

/// `struct tpacket3_hdr`: the head of a frame.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    /// Bytes from here to the next head.
    next: u32,
    seconds: u32,
    nanoseconds: u32,
    captured: u32,
    length: u32,
    status: u32,
    at: u16,
    network_at: u16,
    hash: u32,
    tag_control: u32,
    tag_ethertype: u16,
    padding: [u8; 10],
}

const _: () = assert!(size_of::<Head>() == size_of::<libc::tpacket3_hdr>());

/// Where a reader is in the block that it reads.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Where the head of the next frame is, and bytes from there to the one behind it.
    at: usize,
    next: usize,
    /// Frames that are left. 0: the block has not been looked at.
    left: u32,
}

impl Place {
    /// The next frame in `block`, which is the reader's.
    pub(super) fn read<'a>(&mut self, block: &'a [u8]) -> Option<Arrived<'a>> {
        if self.left == 0 {
            let (head, _) = BlockHead::read_from_prefix(block).ok()?;
            (self.at, self.left) = (head.first_at as usize, head.frames);
        }
        let bytes = block.get(self.at..)?;
        let (head, _) = Head::read_from_prefix(bytes).ok()?;
        self.next = head.next as usize;
        let told = Told {
            status: head.status,
            length: head.length,
            captured: head.captured,
            at: head.at,
            seconds: head.seconds,
            nanoseconds: head.nanoseconds,
            tag: [head.tag_ethertype, head.tag_control as u16],
        };
        told.arrived(bytes, size_of::<Head>())
    }

    /// Goes on to the frame behind. `false` when the block has no more.
    pub(super) fn step(&mut self) -> bool {
        self.at += self.next;
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }
}
