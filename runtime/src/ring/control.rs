//! Control messages: acknowledgements, fetches and snapshots, as bytes.
//!
//! ```text
//! message := version(1) kind(1) reserved(2) crc32c(4, LE) bytes(8, LE) body
//! ```
//! All numbers are little endian. The checksum is over the body and the header without it. What does not check out is refused with its reason, whatever it holds.

use crate::crc::{crc32c, crc32c_append};
use crate::packet::{Kind, Packet};
use crate::piggyback::Damage;

const VERSION: u8 = 2;
pub(crate) const HEADER: usize = 16;

fn code(kind: Kind) -> u8 {
    match kind {
        Kind::Frame => 0,
        Kind::Unit => 1,
        Kind::Acknowledge => 2,
        Kind::Fetch => 3,
        Kind::Snapshot => 4,
    }
}

fn checksum(header: &[u8], body: &[u8]) -> u32 {
    [&header[8..], body].into_iter().fold(crc32c(&header[..4]), crc32c_append)
}

/// Makes `packet` a control message of `kind` with `body`.
pub(crate) fn seal(packet: &mut Packet, kind: Kind, body: &[u8]) {
    let mut header = [0; HEADER];
    header[0] = VERSION;
    header[1] = code(kind);
    header[8..].copy_from_slice(&(body.len() as u64).to_le_bytes());
    let crc = checksum(&header, body);
    header[4..8].copy_from_slice(&crc.to_le_bytes());
    packet.meta.kind = kind;
    packet.fill_frame(|frame| {
        frame.put(&header);
        frame.put(body);
    });
}

/// The body of a control message of `kind`.
pub(crate) fn open(packet: &Packet, kind: Kind) -> Result<Reader<'_>, Damage> {
    let (header, body) = packet.frame().split_at_checked(HEADER).ok_or(Damage::Length)?;
    if header[0] != VERSION || header[1] != code(kind) {
        return Err(Damage::Version);
    }
    let mut numbers = Reader(&header[4..]);
    let (crc, bytes) = (numbers.u32(), numbers.u64());
    if bytes != Some(body.len() as u64) {
        return Err(Damage::Length);
    }
    if crc != Some(checksum(header, body)) {
        return Err(Damage::Checksum);
    }
    Ok(Reader(body))
}

/// The body of a control message that was opened before.
pub(crate) fn opened(packet: &Packet) -> Reader<'_> {
    Reader(packet.frame().get(HEADER..).unwrap_or_default())
}

/// Takes little-endian numbers off a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
