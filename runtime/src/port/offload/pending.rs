//! A frame that is handed on piece by piece, over several bursts, and the room that such frames are read into.

use zerocopy::{FromBytes, IntoBytes};

use super::{Pieces, VnetHeader, put_tag};
use crate::clock::Nanos;
use crate::packet::{Packet, Pool};
use crate::wire::ethernet::VlanTag;

/// The largest frame that is read, its header included. IP packets end at 65,575 bytes (RFC 8200 §3).
const ROOM: usize = 1 << 17;

/// Why a frame is dropped that has no room there.
const TOO_LONG: &str = "frame_too_long";

/// At most one frame, of which pieces are left.
#[derive(Debug)]
pub(in super::super) struct Pending {
    /// A [`VnetHeader`] and the frame behind it.
    room: Vec<u8>,
    /// Where the frame ends.
    end: usize,
    pieces: Option<Pieces>,
    time: Nanos,
    tag: Option<[u8; VlanTag::LENGTH]>,
}

impl Pending {
    /// Nothing, and room for the largest frame.
    pub(in super::super) fn new() -> Pending {
        Pending { room: vec![0; ROOM], end: 0, pieces: None, time: 0, tag: None }
    }

    /// The room to read a header and a frame into; what was there is forgotten.
    pub(in super::super) fn room(&mut self) -> &mut [u8] {
        self.pieces = None;
        &mut self.room
    }

    /// Copies a header and a frame into the room.
    ///
    /// # Errors
    /// A frame that has no room in it.
    pub(in super::super) fn put(&mut self, header: &VnetHeader, frame: &[u8]) -> Result<(), &'static str> {
        let (front, behind) = self.room().split_at_mut(VnetHeader::LENGTH);
        front.copy_from_slice(header.as_bytes());
        behind.get_mut(..frame.len()).ok_or(TOO_LONG)?.copy_from_slice(frame);
        Ok(())
    }

    /// Takes the first `length` bytes of the room as a header and a frame, which arrived at `time` with `tag` beside
    /// it. Asks for the MTU where there is something to cut.
    ///
    /// # Errors
    /// Why the frame cannot be handed on.
    pub(in super::super) fn start(
        &mut self,
        length: usize,
        time: Nanos,
        tag: Option<[u8; VlanTag::LENGTH]>,
        mtu: impl FnOnce() -> usize,
    ) -> Result<(), &'static str> {
        let bytes = self.room.get(..length).ok_or(TOO_LONG)?;
        let (header, frame) = VnetHeader::read_from_prefix(bytes).map_err(|_| "shorter_than_header")?;
        let header = if tag.is_some() { header.without_tag(frame) } else { header };
        let mtu = if header.is_super_frame() { mtu() } else { 0 };
        self.pieces = Some(Pieces::new(frame, &header, mtu)?);
        (self.end, self.time, self.tag) = (length, time, tag);
        Ok(())
    }

    /// The next piece; `None` when none is left.
    ///
    /// # Errors
    /// Why the frame cannot be handed on.
    pub(in super::super) fn next(&mut self, pool: &mut Pool) -> Option<Result<Packet, &'static str>> {
        let pieces = self.pieces.as_mut()?;
        if pieces.left() == 0 {
            self.pieces = None;
            return None;
        }
        let mut packet = pool.take();
        if let Err(reason) = pieces.next(&self.room[VnetHeader::LENGTH..self.end], &mut packet)? {
            pool.give(packet);
            return Some(Err(reason));
        }
        packet.meta.time = self.time;
        if let Some(tag) = self.tag {
            put_tag(&mut packet, tag);
        }
        Some(Ok(packet))
    }
}
