//! The classic pcap format: one header, then records of one kind.

use pcap_parser::parse_pcap_header;

use super::reader::{Captured, Interface, Step};
use super::time::{Order, TimeScale};
use super::{COMMON_SNAPLEN, LinkType, MAX_RECORD};

/// The length of the file header.
pub(super) const FILE_HEADER: usize = 24;

/// The length of a record's header; the modified format has eight bytes more.
const RECORD_HEADER: usize = 16;
const MODIFIED_HEADER: usize = 24;

/// Which of a record's two lengths comes first. Files older than version 2.3 put the original length first,
/// files of version 2.3 do one or the other.
#[derive(Debug, Clone, Copy)]
enum Lengths {
    CapturedFirst,
    OriginalFirst,
    SmallerIsCaptured,
}

/// How the records of one classic capture are to be read.
pub(super) struct Classic {
    order: Order,
    header: usize,
    /// Nanoseconds in one unit of a time's fraction.
    unit: u64,
    lengths: Lengths,
    longest: usize,
    interface: Interface,
}

/// The byte order that a classic magic number means, `None` for any other four bytes.
fn order_of(magic: [u8; 4]) -> Option<Order> {
    match u32::from_le_bytes(magic) {
        0xa1b2_c3d4 | 0xa1b2_3c4d | 0xa1b2_cd34 => Some(Order::Little),
        0xd4c3_b2a1 | 0x4d3c_b2a1 | 0x34cd_b2a1 => Some(Order::Big),
        _ => None,
    }
}

impl Classic {
    /// Whether a file that begins with these bytes is a classic capture.
    pub(super) fn recognizes(magic: [u8; 4]) -> bool {
        order_of(magic).is_some()
    }

    /// Reads the file header; an error says what is unknown in it.
    pub(super) fn new(mut bytes: [u8; FILE_HEADER]) -> Result<Self, String> {
        let magic = [bytes[0], bytes[1], bytes[2], bytes[3]];
        let order = order_of(magic).ok_or("its magic number is unknown")?;
        let written = order.u32_at(&bytes, 0);
        // The parser knows the modified format in one byte order only; the rest of its header is the common one.
        if order == Order::Big {
            bytes[..4].copy_from_slice(&0xa1b2_c3d4_u32.to_be_bytes());
        }
        let (_, header) = parse_pcap_header(&bytes).map_err(|_| "its file header is not understood")?;
        let (major, minor) = (header.version_major, header.version_minor);
        if major != 2 {
            return Err(format!("it is written in version {major}.{minor} of the pcap format, not in 2.x"));
        }
        // The upper half of the word says whether frames end in a checksum; the type is the lower half.
        let number = header.network.0.to_le_bytes();
        let link = LinkType::from(u16::from_le_bytes([number[0], number[1]]));
        let longest = header.snaplen.max(COMMON_SNAPLEN) as usize;
        Ok(Self {
            order,
            header: if written == 0xa1b2_cd34 { MODIFIED_HEADER } else { RECORD_HEADER },
            unit: if written == 0xa1b2_3c4d { 1 } else { 1_000 },
            lengths: match minor {
                0..3 => Lengths::OriginalFirst,
                3 => Lengths::SmallerIsCaptured,
                _ => Lengths::CapturedFirst,
            },
            longest: longest.min(MAX_RECORD - MODIFIED_HEADER),
            interface: Interface { link, name: None, snaplen: header.snaplen, scale: TimeScale::default() },
        })
    }

    /// The only interface of a classic capture.
    pub(super) const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Reads one record at the beginning of `data`.
    pub(super) fn step<'a>(&self, data: &'a [u8]) -> Step<'a> {
        if data.len() < self.header {
            return Step::Need(self.header);
        }
        let word = |at| self.order.u32_at(data, at);
        let (first, second) = (word(8), word(12));
        let (captured, original) = match self.lengths {
            Lengths::CapturedFirst => (first, second),
            Lengths::OriginalFirst => (second, first),
            Lengths::SmallerIsCaptured => (first.min(second), first.max(second)),
        };
        let length = captured as usize;
        if length > self.longest {
            return Step::Corrupt(format!(
                "a packet of {length} bytes, but none is longer than {}",
                self.longest
            ));
        }
        let end = self.header + length;
        let Some(frame) = data.get(self.header..end) else {
            return Step::Need(end);
        };
        let time = u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)) * self.unit;
        let link = self.interface.link;
        Step::Packet {
            used: end,
            frame,
            captured: Captured { time, original_len: original, interface: 0, link },
        }
    }
}
