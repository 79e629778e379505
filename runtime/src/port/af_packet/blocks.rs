//! Blocks of many frames that the kernel hands over at once: TPACKET_V3.
//!
//! A block begins with a head that says how many frames are in it; the head of each says where the next one begins. The kernel
//! hands a block over when it is full, or when its timer runs out, which older kernels count in ticks of their clock. Until then
//! nobody may read what is in it.
//!
//! When the kernel drops a super-frame of a kind that the virtio header has no name for (of SCTP, say), its head stays in the
//! block, without `TP_STATUS_USER`. And when a frame comes that is longer than a block, the block before it may be handed over
//! empty, with the heads of an earlier round in it.

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
    /// The next frame in `block`, which is the reader's. A void one, behind which nothing more is, where the block is empty, or its
    /// heads say what can't be.
    pub(super) fn read<'a>(&mut self, block: &'a [u8]) -> Arrived<'a> {
        if self.left == 0 {
            let head = BlockHead::read_from_prefix(block).ok();
            (self.at, self.left) = head.map_or((0, 0), |(head, _)| (head.first_at as usize, head.frames));
        }
        let arrived = if self.left > 0 { self.frame(block) } else { None };
        arrived.unwrap_or_else(|| {
            self.left = 1;
            Arrived::void()
        })
    }

    /// The frame whose head is here.
    fn frame<'a>(&mut self, block: &'a [u8]) -> Option<Arrived<'a>> {
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

    /// Goes on to the frame behind. `false` when the block has no more: the last head leads nowhere.
    pub(super) fn step(&mut self) -> bool {
        self.at += self.next;
        self.left = if self.next < size_of::<Head>() { 0 } else { self.left.saturating_sub(1) };
        self.left > 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;

    const USER: u32 = libc::TP_STATUS_USER;
    /// Where the kernel has the first frame's head.
    const FIRST: u32 = 48;

    /// A block of so many frames, with heads of these places, distances to the next one, lengths and states.
    fn block(frames: u32, heads: &[(u32, u32, u32, u32)]) -> Vec<u8> {
        let mut block = vec![0; 4_096];
        block[..20].copy_from_slice([1, 0, USER, frames, FIRST].as_bytes());
        for &(at, next, length, status) in heads {
            let (at, offset) = (at as usize, 96u32);
            block[at..at + 28].copy_from_slice([next, 1, 2, length, length, status, offset].as_bytes());
        }
        block
    }

    /// Reads a block to its end, and returns the lengths of its frames.
    fn lengths(place: &mut Place, block: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        for _ in 0..=block.len() / size_of::<Head>() {
            let arrived = place.read(block);
            if !arrived.is_void {
                lengths.push(arrived.frame.len());
            }
            if !place.step() {
                return lengths;
            }
        }
        panic!("the block has no end");
    }

    #[test]
    fn a_block_gives_each_of_its_frames_once() {
        // Goal: what is in a block, and nothing that an earlier one left there. Method: blocks one after the other, with frames,
        // with one that the kernel dropped after all, empty ones, and ones whose heads lead out of them or nowhere.
        let (full, last) = ((FIRST, 200, 60, USER), (248, 0, 70, USER));
        let place = &mut Place::default();
        assert_eq!(lengths(place, &block(2, &[full, last])), [60, 70]);
        assert_eq!(lengths(place, &block(2, &[(FIRST, 200, 60, 0), last])), [70]);
        assert_eq!(lengths(place, &block(0, &[full, last])), [0; 0]);
        assert_eq!(lengths(place, &block(1, &[full, last])), [60]);
        assert_eq!(lengths(place, &block(3, &[full, last])), [60, 70]);
        assert_eq!(lengths(place, &block(2, &[(FIRST, 9_999, 60, USER), last])), [60]);
        assert_eq!(lengths(place, &block(u32::MAX, &[(FIRST, 0, 60, USER)])), [60]);
        assert_eq!(lengths(place, &block(1, &[(FIRST, 0, 9_999, USER)])), [0], "the rest is not there");
        assert_eq!(lengths(place, &[]), [0; 0]);
        assert_eq!(lengths(place, &block(2, &[full, last])), [60, 70]);
    }

    proptest! {
        #[test]
        fn no_block_is_read_for_ever(words in prop::collection::vec(prop_oneof![0..400u32, any::<u32>()], 0..1_024)) {
            // Goal: a damaged block stops nobody. Method: any words, more of those that lead to places within than by chance.
            lengths(&mut Place::default(), words.as_bytes());
        }
    }
}
