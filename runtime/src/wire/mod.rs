//! Packet headers over bytes: views, edits, checksums, flow keys.
//!
//! Nothing here allocates (but the builder), panics on any bytes, or keeps state. All multi-byte
//! fields are in network byte order in memory and in host byte order in functions.
//!
//! | read this | for |
//! |---|---|
//! | [`layers`] | the one parse: where each header of a frame lies |
//! | [`malformed`] | why a frame was refused |
//! | [`flow`], [`endpoint`] | keys for tables, the hash for steering |
//! | [`edit`] | new addresses and ports, checksums kept |
//! | [`quote`] | the packet inside an ICMP error: read and translated |
//! | [`icmp_error`](mod@icmp_error) | an ICMP error in answer to a frame |
//! | [`verify`] | whole checksums: right, wrong, absent; recomputed |
//! | [`checksum`] | the arithmetic below all of these |
//! | [`build`] | whole frames for tests and generators |
//! | [`ethernet`] [`arp`] [`ip`] [`ipv4`] [`ipv6`] | L2 and L3: layout, checked view, edits |
//! | [`icmp`] [`tcp`] [`udp`] | L4, likewise |
//!
//! Each protocol file has the same shape: a `#[repr(C)]` struct that is the header's layout,
//! `view` (checked) and `view_mut` (present), accessors, edits, tests.

pub mod arp;
pub mod build;
pub mod checksum;
pub mod edit;
pub mod endpoint;
pub mod ethernet;
pub mod flow;
pub mod icmp;
pub mod icmp_error;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod layers;
pub mod malformed;
pub mod quote;
pub mod tcp;
pub mod udp;
pub mod verify;

#[cfg(test)]
pub(crate) mod oracle;
#[cfg(test)]
pub(crate) mod properties;

pub use build::FrameBuilder;
pub use edit::{
    Side, Uneditable, rewrite, rewrite_destination, rewrite_source, set_destination, set_destination_port,
    set_source, set_source_port,
};
pub use endpoint::Endpoint;
pub use ethernet::MacAddr;
pub use flow::{Flow, symmetric_hash};
pub use icmp_error::{IcmpError, icmp_error};
pub use ip::{Fragment, protocol};
pub use layers::{L3, Layers};
pub use malformed::Malformed;
pub use quote::{Quote, rewrite_quoted};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use icmp::IcmpVersion;

/// The bytes at `at` as a header, if there are enough of them.
#[inline]
fn view<T>(bytes: &[u8], at: usize) -> Option<&T>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    T::ref_from_prefix(bytes.get(at..)?).ok().map(|(header, _)| header)
}

/// The bytes at `at` as a header to edit, if there are enough of them.
#[inline]
fn view_mut<T>(bytes: &mut [u8], at: usize) -> Option<&mut T>
where
    T: FromBytes + IntoBytes + KnownLayout + Unaligned,
{
    T::mut_from_prefix(bytes.get_mut(at..)?).ok().map(|(header, _)| header)
}

/// Which ICMP a protocol number means behind this kind of header, if any.
const fn icmp_version(l3: L3, protocol: u8) -> Option<IcmpVersion> {
    match (l3, protocol) {
        (L3::Ipv4, protocol::ICMP) => Some(IcmpVersion::V4),
        (L3::Ipv6, protocol::ICMPV6) => Some(IcmpVersion::V6),
        _ => None,
    }
}
