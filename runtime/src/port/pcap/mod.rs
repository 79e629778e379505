//! Capture files in and out.
//!
//! [`Reader`] takes a pcap or pcapng file, gzipped or not, and hands out one frame after the other.
//! [`Writer`] makes a pcapng file with nanosecond times. [`LinkType::to_ethernet`] turns what a foreign
//! capture holds into the Ethernet frames that a chain eats.
//!
//! ## A capture that ends early, and one that is damaged
//!
//! Both happen; they are told apart by one rule:
//!
//! * **Truncated**: everything read so far is possible, but the file (or the gzip stream around it) ends
//!   inside a record. A capture tool that was killed leaves such a file. Whole records are delivered, then
//!   the reader says that it is at the end, and [`Reader::truncated`] says where the file breaks off.
//! * **Corrupt**: a record says something that cannot be, whatever bytes would follow: a length that no
//!   record can have, two lengths of one block that differ, a packet longer than its block, an interface
//!   nobody described; or gzip finds its checksum wrong. Everything before it is delivered, then comes
//!   [`CaptureError::Corrupt`]. Nothing after it is: where the next record begins is unknown. Where a gzip
//!   stream itself cannot be unpacked, what the last 32 KiB in front of the damage held may be missing, too.
//!
//! A damaged length that is still a possible one and points behind the end of the file looks like a
//! truncated capture and is reported as one.
//!
//! ## Bounds
//!
//! A record is at most [`MAX_RECORD`] bytes long, a file has at most [`MAX_INTERFACES`] interfaces. The
//! reader holds a window of 256 KiB that doubles for a longer record, as far as the file really has bytes.

mod classic;
mod error;
mod input;
mod link;
mod port;
mod reader;
mod sections;
mod time;
mod writer;

#[cfg(test)]
mod tests;

pub use error::{CaptureError, Truncated};
pub use link::{ETHERNET_HEADER, LinkType, Refused};
pub(super) use port::PcapPort;
pub use reader::{Captured, Interface, Reader};
pub use writer::{InterfaceDescription, Writer};

/// The longest record (packet with its header, or pcapng block) that is read or written: 64 MiB.
pub const MAX_RECORD: usize = 64 << 20;

/// The most interfaces that one pcapng file may describe, all its sections together.
pub const MAX_INTERFACES: usize = 1 << 16;

/// The longest packet that a classic capture may hold whatever snapshot length its header names: 256 KiB,
/// what the common capture tools use as their own maximum.
const COMMON_SNAPLEN: u32 = 256 << 10;

const _: () = assert!(COMMON_SNAPLEN as usize + 64 < MAX_RECORD);
