//! A frame cut into the frames that it is handed on as: one, or the segments of a super-frame.

use std::ops::Range;

use super::{VnetHeader, complete};
use crate::packet::Packet;
use crate::wire::ipv4::Ipv4Header;
use crate::wire::ipv6::Ipv6Header;
use crate::wire::tcp::{TcpHeader, flags};
use crate::wire::udp::UdpHeader;
use crate::wire::{L3, Layers, Malformed, protocol, verify};

/// The place up to which a frame has been cut. The frame itself is kept by whoever cuts.
#[derive(Clone, Debug)]
pub(in super::super) struct Pieces {
    header: VnetHeader,
    /// The headers and the payload of a super-frame; `None` where the frame is handed on whole.
    cut: Option<(Layers, Range<usize>)>,
    /// Payload bytes in each piece but the last.
    size: usize,
    /// Pieces made so far.
    made: usize,
    count: usize,
}

impl Pieces {
    /// Looks at a frame, tags in it included, and what `header` says about it. No piece of TCP is longer than `mtu`
    /// bytes behind the Ethernet header and the tags. UDP datagrams keep the length that their sender chose.
    ///
    /// # Errors
    /// Why the frame cannot be handed on.
    pub(in super::super) fn new(
        frame: &[u8],
        header: &VnetHeader,
        mtu: usize,
    ) -> Result<Pieces, &'static str> {
        let whole = Pieces { header: *header, cut: None, size: frame.len(), made: 0, count: 1 };
        if !header.is_super_frame() {
            return Ok(whole);
        }
        let (l3, protocol) = match header.gso() {
            VnetHeader::GSO_TCPV4 => (Some(L3::Ipv4), protocol::TCP),
            VnetHeader::GSO_TCPV6 => (Some(L3::Ipv6), protocol::TCP),
            VnetHeader::GSO_UDP => (None, protocol::UDP),
            _ => return Err("super_frame_unknown"),
        };
        let layers = Layers::parse(frame).map_err(|_| "super_frame_broken")?;
        let is_told = layers.protocol() == Some(protocol) && l3.is_none_or(|l3| l3 == layers.l3());
        let payload = layers.payload(frame).filter(|_| is_told && !layers.has_stops_left());
        let payload = payload.filter(|_| !layers.is_fragment()).ok_or("super_frame_in_tunnel")?;
        let room = match protocol {
            protocol::TCP => (mtu + layers.l3_offset()).saturating_sub(payload.start),
            _ => usize::MAX,
        };
        let size = room.min(header.gso_size.get().into());
        if size == 0 {
            return Err("super_frame_impossible");
        }
        let count = payload.len().div_ceil(size).max(1);
        Ok(Pieces { cut: Some((layers, payload)), size, count, ..whole })
    }

    /// How many pieces are left.
    pub(in super::super) fn left(&self) -> usize {
        self.count - self.made
    }

    /// Makes the next piece of `frame`, the one that [`Pieces::new`] looked at, the frame of `packet`. `None` when
    /// none is left.
    ///
    /// # Errors
    /// Why a frame that is whole cannot be handed on.
    pub(in super::super) fn next(
        &mut self,
        frame: &[u8],
        packet: &mut Packet,
    ) -> Option<Result<(), &'static str>> {
        if self.left() == 0 {
            return None;
        }
        let number = self.made;
        self.made += 1;
        let Some((layers, payload)) = &self.cut else {
            packet.set_frame(frame);
            return Some(complete(packet.frame_mut(), &self.header));
        };
        let from = number * self.size;
        let chunk = payload.start + from..payload.end.min(payload.start + from + self.size);
        packet.fill_frame(|writer| {
            writer.put(&frame[..payload.start]);
            writer.put(&frame[chunk]);
        });
        let piece = Piece { number, from, is_last: self.made == self.count };
        Some(piece.finish(packet.frame_mut(), layers).map_err(|_| "super_frame_broken"))
    }
}

/// The place of one segment in its super-frame.
struct Piece {
    number: usize,
    /// Payload bytes before this one's.
    from: usize,
    is_last: bool,
}

impl Piece {
    /// Turns the headers of the super-frame, in front of this piece's payload, into those of this piece.
    fn finish(&self, frame: &mut [u8], whole: &Layers) -> Result<(), Malformed> {
        let l3 = whole.l3_offset();
        let l4 = whole.ip_payload_offset();
        // No piece is longer than the whole, whose lengths took 16 bits.
        let end = frame.len();
        let length_from = |at: usize| (end - at) as u16;
        let l4_length = length_from(l4);
        if whole.l3() == L3::Ipv4 {
            let l3_length = length_from(l3);
            let header = Ipv4Header::view_mut(frame, l3)?;
            header.total_length.set(l3_length);
            header.id.set(header.id.get().wrapping_add(self.number as u16));
        } else {
            let l3_payload = length_from(l3 + Ipv6Header::LENGTH);
            Ipv6Header::view_mut(frame, l3)?.payload_length.set(l3_payload);
        }
        if whole.protocol() == Some(protocol::TCP) {
            let header = TcpHeader::view_mut(frame, l4)?;
            header.sequence.set(header.sequence.get().wrapping_add(self.from as u32));
            if !self.is_last {
                header.flags &= !(flags::FIN | flags::PSH);
            }
            if self.number > 0 {
                header.flags &= !flags::CWR;
            }
        } else {
            UdpHeader::view_mut(frame, l4)?.length.set(l4_length);
        }
        let layers = Layers::parse(frame)?;
        verify::recompute(frame, &layers);
        Ok(())
    }
}
