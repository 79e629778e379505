//! Counts the packets of a capture file, with nothing of the code that wrote it.

use anyhow::{Context, bail, ensure};

const PCAPNG_SECTION: u32 = 0x0a0d_0d0a;
const PCAPNG_BYTE_ORDER: u32 = 0x1a2b_3c4d;
const PCAPNG_PACKET: u32 = 2;
const PCAPNG_SIMPLE_PACKET: u32 = 3;
const PCAPNG_ENHANCED_PACKET: u32 = 6;
const PCAP_MICROSECONDS: u32 = 0xa1b2_c3d4;
const PCAP_NANOSECONDS: u32 = 0xa1b2_3c4d;
const PCAP_FILE_HEADER: usize = 24;
const PCAP_RECORD_HEADER: usize = 16;

/// How many packets a whole pcap or pcapng file holds; a torn or broken file is an error.
pub(crate) fn count_packets(file: &[u8]) -> anyhow::Result<u64> {
    let magic = Order::Little.read(file, 0)?;
    for order in [Order::Little, Order::Big] {
        let read = order.read(file, 0)?;
        if read == PCAP_MICROSECONDS || read == PCAP_NANOSECONDS {
            return count_pcap(file, order);
        }
    }
    ensure!(magic == PCAPNG_SECTION, "not a capture: it begins with {magic:#010x}");
    count_pcapng(file)
}

fn count_pcap(file: &[u8], order: Order) -> anyhow::Result<u64> {
    let mut packets = 0;
    let mut at = PCAP_FILE_HEADER;
    ensure!(at <= file.len(), "the file header is torn");
    while at < file.len() {
        let captured = usize::try_from(order.read(file, at + 8)?)?;
        at = end_of_piece(file, at, PCAP_RECORD_HEADER.saturating_add(captured))?;
        packets += 1;
    }
    Ok(packets)
}

fn count_pcapng(file: &[u8]) -> anyhow::Result<u64> {
    let mut packets = 0;
    let mut order = Order::Little;
    let mut at = 0;
    while at < file.len() {
        if order.read(file, at)? == PCAPNG_SECTION {
            order = section_order(file, at)?;
        }
        let kind = order.read(file, at)?;
        let length = usize::try_from(order.read(file, at + 4)?)?;
        ensure!(length >= 12 && length.is_multiple_of(4), "block at byte {at} says it is {length} long");
        let end = end_of_piece(file, at, length)?;
        let again = usize::try_from(order.read(file, end - 4)?)?;
        ensure!(again == length, "block at byte {at} begins with length {length} and ends with {again}");
        if [PCAPNG_PACKET, PCAPNG_SIMPLE_PACKET, PCAPNG_ENHANCED_PACKET].contains(&kind) {
            packets += 1;
        }
        at = end;
    }
    Ok(packets)
}

fn section_order(file: &[u8], at: usize) -> anyhow::Result<Order> {
    for order in [Order::Little, Order::Big] {
        if order.read(file, at + 8)? == PCAPNG_BYTE_ORDER {
            return Ok(order);
        }
    }
    bail!("section at byte {at} has no byte order")
}

fn end_of_piece(file: &[u8], at: usize, length: usize) -> anyhow::Result<usize> {
    let end = at.saturating_add(length);
    ensure!(end <= file.len(), "the piece at byte {at} is torn");
    Ok(end)
}

#[derive(Clone, Copy)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn read(self, file: &[u8], at: usize) -> anyhow::Result<u32> {
        let bytes = file.get(at..).and_then(|rest| rest.first_chunk::<4>());
        let bytes = *bytes.with_context(|| format!("the capture ends at byte {at}"))?;
        Ok(match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32], order: Order) -> Vec<u8> {
        let encode = |word: &u32| match order {
            Order::Little => word.to_le_bytes(),
            Order::Big => word.to_be_bytes(),
        };
        words.iter().flat_map(encode).collect()
    }

    fn pcap(order: Order) -> Vec<u8> {
        let header = [PCAP_MICROSECONDS, 0x0004_0002, 0, 0, 65_535, 1];
        let packet = [1, 2, 4, 60, 0xffff_ffff];
        words(&[&header[..], &packet, &packet, &packet].concat(), order)
    }

    fn pcapng(order: Order) -> Vec<u8> {
        let section = [PCAPNG_SECTION, 28, PCAPNG_BYTE_ORDER, 1, u32::MAX, u32::MAX, 28];
        let interface = [1, 20, 1, 65_535, 20];
        let enhanced = [6, 36, 0, 0, 0, 4, 60, 0xffff_ffff, 36];
        let simple = [3, 20, 4, 0xffff_ffff, 20];
        words(&[&section[..], &interface, &enhanced, &simple].concat(), order)
    }

    #[test]
    fn counts_both_formats_in_both_byte_orders() {
        // Goal: the count is right for every form that the writer may use. Method: files built word by word.
        for order in [Order::Little, Order::Big] {
            assert_eq!(count_packets(&pcap(order)).expect("a whole file"), 3);
            assert_eq!(count_packets(&pcapng(order)).expect("a whole file"), 2);
        }
    }

    #[test]
    fn sections_of_different_byte_order_follow_each_other() {
        // Goal: each section is read in its own order. Method: a little endian file with a big endian one behind.
        let both = [pcapng(Order::Little), pcapng(Order::Big), pcapng(Order::Little)].concat();
        assert_eq!(count_packets(&both).expect("whole sections"), 6);
    }

    #[test]
    fn a_torn_or_foreign_file_is_an_error() {
        // Goal: a half-written capture never passes. Method: cut the last byte off; feed text and nothing.
        for whole in [pcap(Order::Little), pcapng(Order::Big)] {
            assert!(count_packets(&whole[..whole.len() - 1]).is_err());
        }
        assert!(count_packets(b"hello, world").is_err());
        assert!(count_packets(b"").is_err());
    }

    #[test]
    fn a_block_of_impossible_length_is_an_error() {
        // Goal: the walk always ends. Method: a block that says it is zero bytes long, one that contradicts itself.
        let mut zero = pcapng(Order::Little);
        zero.extend(words(&[6, 0, 0], Order::Little));
        assert!(count_packets(&zero).is_err());
        let mut liar = pcapng(Order::Little);
        liar.extend(words(&[6, 12, 16], Order::Little));
        assert!(count_packets(&liar).is_err());
    }
}
