//! The pcapng format: sections of blocks.
//!
//! A block's length is checked here before the parser sees the block, against both what the format allows
//! and our bound; so the parser never waits for bytes that cannot come. Packet blocks are read without the
//! parser: it would allocate a list of options for each.

use pcap_parser::pcapng::{
    InterfaceDescriptionBlock, OptionCode, parse_interfacedescriptionblock_be,
    parse_interfacedescriptionblock_le, parse_sectionheaderblock,
};

use super::reader::{Captured, Interface, Step};
use super::time::{Order, TimeScale};
use super::{LinkType, MAX_INTERFACES, MAX_RECORD};

/// The first four bytes of a section header, the same in both byte orders.
pub(super) const SECTION_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Type and length in front of a block's body, and the length again behind it.
const FRONT: usize = 8;
const BACK: usize = 4;

/// The shortest bodies that these blocks can have.
const SECTION_BODY: usize = 16;
const INTERFACE_BODY: usize = 8;
const PACKET_BODY: usize = 20;
const SIMPLE_BODY: usize = 4;

/// How many bytes of an interface's name are kept, so that names alone cannot fill the memory.
const LONGEST_NAME: usize = 256;

/// What is known at one place of a pcapng file.
pub(super) struct Sections {
    order: Order,
    /// Where the current section's interfaces begin in `interfaces`.
    first: usize,
    interfaces: Vec<Interface>,
}

/// The numbers in front of a packet, of either packet block that has an interface.
struct PacketHead {
    interface: u32,
    units: u64,
    captured: u32,
    original: u32,
}

impl Sections {
    /// Before the first section.
    pub(super) const fn new() -> Self {
        Self { order: Order::Little, first: 0, interfaces: Vec::new() }
    }

    /// All interfaces described up to here, of all sections in their order.
    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Reads one block at the beginning of `data`.
    pub(super) fn step<'a>(&mut self, data: &'a [u8]) -> Step<'a> {
        if data.len() < FRONT + BACK {
            return Step::Need(FRONT + BACK);
        }
        let section = data.starts_with(&SECTION_MAGIC);
        if section {
            match [Order::Little, Order::Big].into_iter().find(|o| o.u32_at(data, 8) == BYTE_ORDER_MAGIC) {
                Some(order) => self.order = order,
                None => return corrupt("a section that does not say its byte order"),
            }
        }
        let kind = self.order.u32_at(data, 0);
        let length = self.order.u32_at(data, 4) as usize;
        let shortest = FRONT
            + BACK
            + match kind {
                _ if section => SECTION_BODY,
                INTERFACE => INTERFACE_BODY,
                OBSOLETE_PACKET | ENHANCED_PACKET => PACKET_BODY,
                SIMPLE_PACKET => SIMPLE_BODY,
                _ => 0,
            };
        if length < shortest || length > MAX_RECORD || !length.is_multiple_of(4) {
            return Step::Corrupt(format!(
                "a block of type {kind} and {length} bytes, but it has {shortest} to {MAX_RECORD}, in fours"
            ));
        }
        let Some(block) = data.get(..length) else {
            return Step::Need(length);
        };
        let again = self.order.u32_at(block, length - BACK) as usize;
        if again != length {
            return Step::Corrupt(format!("a block that is {length} bytes long in front and {again} behind"));
        }
        let body = &block[FRONT..length - BACK];
        match kind {
            _ if section => self.section(block),
            INTERFACE => self.interface(block),
            ENHANCED_PACKET => self.packet(&self.enhanced(body), &body[PACKET_BODY..], length),
            OBSOLETE_PACKET => self.packet(&self.obsolete(body), &body[PACKET_BODY..], length),
            SIMPLE_PACKET => self.simple(body, length),
            _ => Step::Skip(length),
        }
    }

    fn section<'a>(&mut self, block: &[u8]) -> Step<'a> {
        let Ok((_, header)) = parse_sectionheaderblock(block) else {
            return corrupt("a section header that is not understood");
        };
        let (major, minor) = (header.major_version, header.minor_version);
        if major != 1 {
            return Step::Corrupt(format!("a section of pcapng version {major}.{minor}, not 1.x"));
        }
        self.first = self.interfaces.len();
        Step::Skip(block.len())
    }

    fn interface<'a>(&mut self, block: &[u8]) -> Step<'a> {
        let parse = match self.order {
            Order::Little => parse_interfacedescriptionblock_le,
            Order::Big => parse_interfacedescriptionblock_be,
        };
        let Ok((_, described)) = parse(block) else {
            return corrupt("an interface description that is not understood");
        };
        if self.interfaces.len() == MAX_INTERFACES {
            return Step::Corrupt(format!("more than {MAX_INTERFACES} interfaces"));
        }
        self.interfaces.push(interface_of(&described, self.order));
        Step::Skip(block.len())
    }

    fn enhanced(&self, body: &[u8]) -> PacketHead {
        let word = |at| self.order.u32_at(body, at);
        PacketHead {
            interface: word(0),
            units: u64::from(word(4)) << 32 | u64::from(word(8)),
            captured: word(12),
            original: word(16),
        }
    }

    /// The older block differs in the first word: a short interface number, then a count of drops.
    fn obsolete(&self, body: &[u8]) -> PacketHead {
        PacketHead { interface: u32::from(self.order.u16_at(body, 0)), ..self.enhanced(body) }
    }

    fn packet<'a>(&self, head: &PacketHead, rest: &'a [u8], used: usize) -> Step<'a> {
        let Some((index, interface)) = self.look_up(head.interface) else {
            return self.unknown_interface(head.interface);
        };
        let Some(frame) = rest.get(..head.captured as usize) else {
            return Step::Corrupt(format!("a packet of {} bytes in a block of {used}", head.captured));
        };
        let captured = Captured {
            time: interface.scale.nanoseconds(head.units),
            original_len: head.original,
            interface: index,
            link: interface.link,
        };
        Step::Packet { used, frame, captured }
    }

    /// A simple packet is one of the section's first interface; that one's snapshot length cut it.
    fn simple<'a>(&self, body: &'a [u8], used: usize) -> Step<'a> {
        let Some((index, interface)) = self.look_up(0) else {
            return self.unknown_interface(0);
        };
        let original = self.order.u32_at(body, 0);
        let snaplen = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
        let length = original.min(snaplen) as usize;
        let Some(frame) = body[SIMPLE_BODY..].get(..length) else {
            return Step::Corrupt(format!("a simple packet of {length} bytes in a block of {used}"));
        };
        let captured = Captured { time: 0, original_len: original, interface: index, link: interface.link };
        Step::Packet { used, frame, captured }
    }

    fn look_up(&self, in_section: u32) -> Option<(u32, &Interface)> {
        let index = self.first.checked_add(in_section as usize)?;
        Some((u32::try_from(index).ok()?, self.interfaces.get(index)?))
    }

    fn unknown_interface<'a>(&self, number: u32) -> Step<'a> {
        let known = self.interfaces.len() - self.first;
        Step::Corrupt(format!("a packet of interface {number}, but its section describes {known}"))
    }
}

/// Reads the options by hand: the parser takes the time offset for little endian always.
fn interface_of(block: &InterfaceDescriptionBlock<'_>, order: Order) -> Interface {
    let mut scale = TimeScale::default();
    let mut name = None;
    for option in block.options.iter().take_while(|option| option.code != OptionCode::EndOfOpt) {
        let Ok(value) = option.as_bytes() else { continue };
        match option.code {
            OptionCode::IfName => {
                let kept = value.get(..LONGEST_NAME).unwrap_or(value);
                name = Some(String::from_utf8_lossy(kept).into_owned());
            }
            OptionCode::IfTsresol => scale.resolution = value.first().copied().unwrap_or(scale.resolution),
            OptionCode::IfTsoffset => {
                scale.offset = value.first_chunk().map_or(scale.offset, |bytes| order.i64_of(*bytes));
            }
            _ => {}
        }
    }
    let link = LinkType::from(u16::try_from(block.linktype.0).unwrap_or(u16::MAX));
    Interface { link, name, snaplen: block.snaplen, scale }
}

fn corrupt<'a>(what: &str) -> Step<'a> {
    Step::Corrupt(what.to_owned())
}
