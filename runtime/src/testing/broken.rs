//! Broken frames: what damage, bugs and attackers make of good ones.

use proptest::prelude::*;
use proptest::sample::select;

use super::flows::{Network, filled};
use super::frames::{Directed, valid};
use super::shrink::plain_first;
use crate::wire::checksum::internet;
use crate::wire::icmp::IcmpHeader;
use crate::wire::ipv4::Ipv4Header;
use crate::wire::tcp::TcpHeader;
use crate::wire::udp::UdpHeader;
use crate::wire::{L3, Layers, protocol};

/// Where the length field of a UDP header lies, and that of an IPv6 header.
const LENGTH_AT: usize = 4;
/// Where an IPv4 header has its total length.
const TOTAL_LENGTH_AT: usize = 2;
/// Where a TCP header has its data offset.
const DATA_OFFSET_AT: usize = 12;

/// Frames that are not what they should be: cut anywhere (also to nothing), with lengths that lie under a right header
/// checksum, with wrong checksums, with flipped bits, or noise behind a known ethertype. Some flipped bits hurt nobody;
/// whether a frame is refused is for the parser to say. Shrinks to the empty frame.
pub fn broken_frame() -> impl Strategy<Value = Vec<u8>> {
    broken(&Network::default()).prop_map(|(_, frame)| frame)
}

/// Broken frames of a network's hosts.
pub(super) fn broken(network: &Network) -> impl Strategy<Value = Directed> + use<> {
    (valid(network), damage()).prop_map(|((direction, frame), damage)| (direction, damage.apply(&frame)))
}

/// What happens to a frame.
#[derive(Clone, Debug)]
pub(super) enum Damage {
    /// Nothing is left.
    Empty,
    /// The rest is missing from this byte on. A place behind the frame's end counts on from its beginning.
    Cut(usize),
    /// The length in the IP header is another one; bits that change.
    TotalLength(u16),
    /// The length of the IPv4 header is another one; bits that change, of 4.
    HeaderLength(u8),
    /// The length of the TCP header is another one; bits that change, of 4.
    DataOffset(u8),
    /// The length in the UDP header is another one; bits that change.
    UdpLength(u16),
    /// The IPv4 header checksum is wrong; bits that change, not all.
    HeaderChecksum(u16),
    /// The L4 checksum is wrong; bits that change, not all.
    L4Checksum(u16),
    /// Bits that flipped: bytes, counted likewise, and the bit in each.
    Flip(Vec<(usize, u8)>),
    /// Nothing but an Ethernet header with this ethertype is left of it; so many bytes of noise follow.
    Noise { ethertype: u16, length: usize, seed: u32 },
}

pub(super) fn damage() -> impl Strategy<Value = Damage> {
    // Small lies, which are the dangerous ones, and any.
    let lie = || prop_oneof![1..64_u16, 1..u16::MAX];
    // Headers more often than data.
    let place = || prop_oneof![3 => 0..80_usize, 1 => 0..1_514_usize];
    let flips = prop::collection::vec((place(), 0..8_u8), 1..=8);
    let noise = (
        select(&[0x0800_u16, 0x86DD, 0x0806, 0x8100, 0x88A8][..]),
        0..100_usize,
        plain_first(0, any::<u32>()),
    );
    let damage = prop_oneof![
        1 => Just(Damage::Empty),
        4 => place().prop_map(Damage::Cut),
        2 => lie().prop_map(Damage::TotalLength),
        1 => (1..16_u8).prop_map(Damage::HeaderLength),
        1 => (1..16_u8).prop_map(Damage::DataOffset),
        1 => lie().prop_map(Damage::UdpLength),
        1 => lie().prop_map(Damage::HeaderChecksum),
        2 => lie().prop_map(Damage::L4Checksum),
        4 => flips.prop_map(Damage::Flip),
        2 => noise.prop_map(|(ethertype, length, seed)| Damage::Noise { ethertype, length, seed }),
    ];
    plain_first(Damage::Empty, damage)
}

impl Damage {
    /// The damaged frame. One that has not what would be damaged (ARP has no checksum) loses its last byte instead.
    pub(super) fn apply(&self, frame: &[u8]) -> Vec<u8> {
        let mut bytes = frame.to_vec();
        match self {
            Damage::Empty => bytes.clear(),
            Damage::Cut(_) if bytes.is_empty() => {}
            Damage::Cut(at) => bytes.truncate(at % frame.len()),
            Damage::Flip(flips) if !bytes.is_empty() => {
                for (at, bit) in flips {
                    bytes[at % frame.len()] ^= 1 << bit;
                }
            }
            Damage::Noise { ethertype, length, seed } => {
                bytes.resize(12, 0);
                bytes.extend(ethertype.to_be_bytes());
                bytes.extend(filled(*length, *seed));
            }
            _ => {
                if Layers::parse(frame)
                    .ok()
                    .and_then(|layers| self.change_field(&mut bytes, &layers))
                    .is_none()
                {
                    bytes.pop();
                }
            }
        }
        bytes
    }

    /// Changes a field of a header; `None` where the frame has no such field.
    fn change_field(&self, bytes: &mut [u8], layers: &Layers) -> Option<()> {
        let l3 = layers.l3_offset();
        let is_ipv4 = layers.l3() == L3::Ipv4;
        let l4 = |number| layers.l4_offset().filter(|_| layers.protocol() == Some(number));
        match *self {
            Damage::TotalLength(bits) if layers.is_ip() => {
                flip(bytes, l3 + if is_ipv4 { TOTAL_LENGTH_AT } else { LENGTH_AT }, bits);
            }
            Damage::HeaderLength(bits) if is_ipv4 => bytes[l3] ^= bits & 0x0F,
            Damage::DataOffset(bits) => bytes[l4(protocol::TCP)? + DATA_OFFSET_AT] ^= bits << 4,
            Damage::UdpLength(bits) => flip(bytes, l4(protocol::UDP)? + LENGTH_AT, bits),
            Damage::HeaderChecksum(bits) if is_ipv4 => {
                flip(bytes, l3 + Ipv4Header::CHECKSUM_AT, bits);
                return Some(());
            }
            Damage::L4Checksum(bits) => {
                let at = layers.l4_offset()?;
                match layers.protocol()? {
                    protocol::TCP => flip(bytes, at + TcpHeader::CHECKSUM_AT, bits),
                    protocol::UDP => falsify_udp(bytes, at + UdpHeader::CHECKSUM_AT, bits),
                    _ => flip(bytes, at + IcmpHeader::CHECKSUM_AT, bits),
                }
            }
            _ => return None,
        }
        if is_ipv4 {
            settle(bytes, l3);
        }
        Some(())
    }
}

fn flip(bytes: &mut [u8], at: usize, bits: u16) {
    let [high, low] = bits.to_be_bytes();
    bytes[at] ^= high;
    bytes[at + 1] ^= low;
}

/// Another checksum, but not zero, which would be none.
fn falsify_udp(bytes: &mut [u8], at: usize, bits: u16) {
    let right = [bytes[at], bytes[at + 1]];
    flip(bytes, at, bits);
    if bytes[at..at + 2] == [0, 0] {
        let wrong = u16::from_be_bytes(right) ^ 1;
        bytes[at..at + 2].copy_from_slice(&wrong.max(2).to_be_bytes());
    }
}

/// Makes the IPv4 header checksum right for the header that the frame now claims to have, so that the lie is met by
/// those who verify it.
fn settle(bytes: &mut [u8], at: usize) {
    let length = usize::from(bytes[at] & 0x0F) * 4;
    if let Some(header) = bytes.get_mut(at..at + length)
        && length >= Ipv4Header::LENGTH
    {
        header[Ipv4Header::CHECKSUM_AT..][..2].fill(0);
        let checksum = internet(header);
        header[Ipv4Header::CHECKSUM_AT..][..2].copy_from_slice(&checksum.to_be_bytes());
    }
}
