//! Makes small captures of every kind, and says what a reader must find in them.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{LinkType, Seen};

/// How numbers are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

pub(super) const ORDERS: [Order; 2] = [Order::Little, Order::Big];

/// A capture under construction.
#[derive(Debug, Clone)]
pub(super) struct Capture {
    pub(super) what: String,
    pub(super) bytes: Vec<u8>,
    /// The length of the file header, without which nothing can be read.
    pub(super) header: usize,
    /// Where records end (the header counts as one).
    pub(super) ends: Vec<usize>,
    pub(super) packets: Vec<Seen>,
    order: Order,
}

impl Capture {
    fn new(what: &str, order: Order) -> Self {
        let what = format!("{what}, {order:?}");
        Self { what, bytes: Vec::new(), header: 0, ends: Vec::new(), packets: Vec::new(), order }
    }

    pub(super) fn u16(&mut self, number: u16) {
        let bytes = if self.order == Order::Big { number.to_be_bytes() } else { number.to_le_bytes() };
        self.bytes.extend(bytes);
    }

    pub(super) fn u32(&mut self, number: u32) {
        let bytes = if self.order == Order::Big { number.to_be_bytes() } else { number.to_le_bytes() };
        self.bytes.extend(bytes);
    }

    pub(super) fn words<const N: usize>(&mut self, words: [u32; N]) {
        for word in words {
            self.u32(word);
        }
    }

    fn i64_bytes(&self, number: i64) -> [u8; 8] {
        if self.order == Order::Big { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    fn end(&mut self) {
        if self.header == 0 {
            self.header = self.bytes.len();
        }
        self.ends.push(self.bytes.len());
    }

    /// The header of a classic capture.
    pub(super) fn classic(what: &str, order: Order, magic: u32, version: (u16, u16), link: u32) -> Self {
        let mut capture = Self::new(what, order);
        capture.u32(magic);
        capture.u16(version.0);
        capture.u16(version.1);
        capture.u32(0);
        capture.u32(0);
        capture.u32(65_535);
        capture.u32(link);
        capture.end();
        capture
    }

    /// A classic record: four words, more bytes of header, the frame.
    pub(super) fn record(&mut self, words: [u32; 4], more: &[u8], frame: &[u8]) {
        self.words(words);
        self.bytes.extend(more);
        self.bytes.extend(frame);
        self.end();
    }

    /// A block of the pcapng format with what `body` puts into it.
    pub(super) fn block(&mut self, kind: u32, body: impl FnOnce(&mut Self)) {
        self.u32(kind);
        let at = self.bytes.len();
        self.u32(0);
        body(self);
        self.pad();
        let length = u32::try_from(self.bytes.len() - at + 8).expect("a small block");
        self.u32(length);
        let (front, back) = self.bytes.split_at_mut(at + 4);
        front[at..].copy_from_slice(&back[back.len() - 4..]);
        self.end();
    }

    fn pad(&mut self) {
        // Every block begins at a multiple of four.
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0xee);
        }
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(u16::try_from(value.len()).expect("a short option"));
        self.bytes.extend(value);
        self.pad();
    }

    /// The beginning of a pcapng capture.
    pub(super) fn sections(what: &str, order: Order) -> Self {
        let mut capture = Self::new(what, order);
        capture.section(order);
        capture
    }

    /// A further section, perhaps in another byte order.
    pub(super) fn section(&mut self, order: Order) {
        self.order = order;
        self.block(0x0a0d_0d0a, |block| {
            block.u32(0x1a2b_3c4d);
            block.u16(1);
            block.u16(0);
            block.bytes.extend([0xff; 8]);
            block.option(4, b"a test");
            block.option(0, b"");
        });
    }

    /// An interface description.
    pub(super) fn interface(&mut self, link: u16, snaplen: u32, resolution: Option<u8>, offset: Option<i64>) {
        self.block(1, |block| {
            block.u16(link);
            block.u16(0);
            block.u32(snaplen);
            block.option(2, b"eth0");
            if let Some(resolution) = resolution {
                block.option(9, &[resolution]);
            }
            if let Some(offset) = offset {
                let bytes = block.i64_bytes(offset);
                block.option(14, &bytes);
            }
            block.option(0, b"");
            block.option(9, &[1]); // behind the end of the options: means nothing
        });
    }

    pub(super) fn enhanced(&mut self, interface: u32, units: u64, frame: &[u8], original: u32) {
        self.block(6, |block| {
            block.u32(interface);
            block.packet(units, frame, original);
            block.option(2, &[0, 0, 0, 1]);
            block.option(0, b"");
        });
    }

    pub(super) fn obsolete(&mut self, interface: u16, units: u64, frame: &[u8], original: u32) {
        self.block(2, |block| {
            block.u16(interface);
            block.u16(77); // drops
            block.packet(units, frame, original);
        });
    }

    pub(super) fn simple(&mut self, frame: &[u8], original: u32) {
        self.block(3, |block| {
            block.u32(original);
            block.bytes.extend(frame);
        });
    }

    fn packet(&mut self, units: u64, frame: &[u8], original: u32) {
        self.u32(u32::try_from(units >> 32).expect("a half"));
        self.u32(u32::try_from(units & 0xffff_ffff).expect("a half"));
        self.u32(u32::try_from(frame.len()).expect("a short frame"));
        self.u32(original);
        self.bytes.extend(frame);
        self.pad();
    }

    /// What the reader must say next.
    pub(super) fn expect(&mut self, time: u64, interface: u32, link: LinkType, frame: &[u8], original: u32) {
        self.packets.push(Seen { time, original_len: original, interface, link, frame: frame.to_vec() });
    }
}

/// Frames of all lengths modulo four.
pub(super) fn frames() -> Vec<Vec<u8>> {
    [60_u8, 14, 15, 0, 33].into_iter().map(|length| (0..length).collect()).collect()
}

/// Classic captures: both byte orders, every magic, old versions with their lengths swapped.
pub(super) fn all_classic() -> Vec<Capture> {
    let mut all = Vec::new();
    for order in ORDERS {
        for (what, magic, version, unit, more) in [
            ("microseconds", 0xa1b2_c3d4, (2, 4), 1_000, 0),
            ("nanoseconds", 0xa1b2_3c4d, (2, 4), 1, 0),
            ("modified", 0xa1b2_cd34, (2, 4), 1_000, 8),
            ("version 2.1", 0xa1b2_c3d4, (2, 1), 1_000, 0),
            ("version 2.3", 0xa1b2_c3d4, (2, 3), 1_000, 0),
        ] {
            let mut capture = Capture::classic(what, order, magic, version, 0x3000_0001);
            for (index, frame) in (0_u32..).zip(frames()) {
                let captured = u32::try_from(frame.len()).expect("a short frame");
                let original = captured + 1_000;
                let swapped = version.1 < 3 || (version.1 == 3 && index % 2 == 0);
                let lengths = if swapped { [original, captured] } else { [captured, original] };
                let words = [1_700_000_000 - index, 999_999, lengths[0], lengths[1]];
                capture.record(words, &[9; 8][..more], &frame);
                let time = u64::from(words[0]) * 1_000_000_000 + 999_999 * unit;
                capture.expect(time, 0, LinkType::Ethernet, &frame, original);
            }
            all.push(capture);
        }
    }
    all
}

/// One pcapng capture with everything in it: interfaces with different clocks, all packet blocks, unknown
/// blocks, and a second section in the other byte order.
pub(super) fn sections(order: Order) -> Capture {
    let mut capture = Capture::sections("pcapng", order);
    capture.interface(1, 20, None, None);
    capture.interface(101, 0, Some(9), Some(100));
    capture.block(0x0000_0bad, |block| block.bytes.extend([0xab; 16])); // nobody's custom block
    capture.interface(228, 0, Some(0x80 | 1), None);
    for frame in frames() {
        let original = u32::try_from(frame.len()).expect("a short frame");
        capture.enhanced(0, (1 << 32) + 5, &frame, original + 7);
        capture.expect(4_294_967_301_000, 0, LinkType::Ethernet, &frame, original + 7);
        capture.enhanced(1, 7, &frame, original);
        capture.expect(100_000_000_007, 1, LinkType::RawIp, &frame, original);
        capture.obsolete(2, 3, &frame, original);
        capture.expect(1_500_000_000, 2, LinkType::RawIpv4, &frame, original);
        let cut = &frame[..frame.len().min(20)];
        capture.simple(cut, original);
        capture.expect(0, 0, LinkType::Ethernet, cut, original);
    }
    capture.section(if order == Order::Big { Order::Little } else { Order::Big });
    capture.block(5, |block| block.bytes.extend([0; 12])); // statistics
    capture.interface(113, 0, Some(6), Some(-1));
    capture.enhanced(0, 2_000_000, b"second section", 14);
    capture.expect(1_000_000_000, 3, LinkType::LinuxSll, b"second section", 14);
    capture
}

/// All kinds of captures, uncompressed.
pub(super) fn all() -> Vec<Capture> {
    let mut all = all_classic();
    all.extend(ORDERS.map(sections));
    all
}

/// One gzip member around `bytes`.
pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}
