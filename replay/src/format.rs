//! The format of a log: a header, then entries, in the order in which they were told. All numbers are little endian.
//!
//! ```text
//! log       := header entry*
//! header    := "PNRLOG" version(2) length(4) crc32c(4) chain
//! chain     := partitions(1) hash_seed(8) f(1) stages(1) { name_bytes(2) name }*stages
//! entry     := length(4) crc32c(4) kind(1) body
//! started   := node(1)                                                                   kind 1
//! committed := node(1) incarnation(8) time(8) record                                     kind 2
//! released  := node(1) incarnation(8) time(8) direction(1) frame_bytes(4) frame_crc32c(4) kind 3
//! ```
//! `length` counts what stands behind the checksum, which is over everything else of its header or entry, the length
//! included. `record` is the encoding of [`pannier_runtime::piggyback`], the same as on the wire.
//!
//! A released frame is logged by length and checksum and not by its bytes. That is enough to tell whether a replay
//! lets the same frames leave; the bytes are in the capture of the output, if somebody wants them; and entries stay
//! short, so that a log of state does not grow with the traffic's payload and gives none of it away.

use pannier_runtime::clock::Nanos;
use pannier_runtime::crc::{crc32c, crc32c_append};
use pannier_runtime::limits::{MAX_NODES, MAX_PARTITIONS};
use pannier_runtime::piggyback::{Record, RecordView, vector_bytes};
use pannier_runtime::ring::{Origin, Plan};
use pannier_runtime::state::Layout;
use pannier_runtime::{Direction, Packet};

use crate::error::Flaw;

/// What every log begins with.
pub const MAGIC: [u8; 6] = *b"PNRLOG";
/// The version of the format that this build writes and reads.
pub const VERSION: u16 = 1;

/// Bytes of a header in front of what it says of the chain.
pub(crate) const HEADER_HEAD: usize = MAGIC.len() + 2 + HEAD;
/// Bytes of an entry in front of its kind.
pub(crate) const HEAD: usize = 8;
/// Bytes of a chain's description at most.
pub(crate) const MAX_CHAIN: usize = 11 + MAX_NODES * (2 + u16::MAX as usize);
/// Bytes of an entry at most, from its kind on.
pub(crate) const MAX_ENTRY: usize = 1 + ORIGIN + vector_bytes(MAX_PARTITIONS) + u16::MAX as usize;

/// Node, incarnation and time.
const ORIGIN: usize = 17;

const STARTED: u8 = 1;
const COMMITTED: u8 = 2;
const RELEASED: u8 = 3;

/// What a log says of its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// How the stores are cut.
    pub layout: Layout,
    /// Failures that the chain survives.
    pub f: usize,
    /// The names of the stages, in their order.
    pub stages: Vec<String>,
}

impl Header {
    /// The header of a chain on the ring of `plan`, whose stages have these names.
    pub fn new(plan: &Plan, stages: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Header { layout: plan.layout, f: plan.f(), stages: stages.into_iter().map(Into::into).collect() }
    }

    /// What of this header the format cannot say.
    pub(crate) fn flaw(&self) -> Option<&'static str> {
        match () {
            () if !(1..=MAX_NODES).contains(&self.stages.len()) => Some("a log is of 1 to 64 stages"),
            () if !(1..=MAX_PARTITIONS).contains(&self.layout.partitions) => {
                Some("a store has 1 to 64 partitions")
            }
            () if self.f >= MAX_NODES => Some("a chain survives at most 63 failures"),
            () if self.stages.iter().any(|name| name.len() > usize::from(u16::MAX)) => {
                Some("the name of a stage has at most 65535 bytes")
            }
            () => None,
        }
    }

    /// Appends the header; [`Header::flaw`] has found none.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; HEAD]);
        out.push(self.layout.partitions as u8);
        out.extend_from_slice(&self.layout.hash_seed.to_le_bytes());
        out.extend_from_slice(&[self.f as u8, self.stages.len() as u8]);
        for name in &self.stages {
            out.extend_from_slice(&(name.len() as u16).to_le_bytes());
            out.extend_from_slice(name.as_bytes());
        }
        seal(&mut out[start..], HEADER_HEAD);
    }

    /// What the checked description of a chain says; `None` where it says nothing sensible.
    pub(crate) fn decode(chain: &[u8]) -> Option<Self> {
        let mut rest = chain;
        let [partitions] = take(&mut rest)?;
        let hash_seed = u64::from_le_bytes(take(&mut rest)?);
        let [f, count] = take(&mut rest)?;
        let mut stages = Vec::with_capacity(usize::from(count).min(MAX_NODES));
        for _ in 0..count {
            let length = usize::from(u16::from_le_bytes(take(&mut rest)?));
            let (name, after) = rest.split_at_checked(length)?;
            stages.push(std::str::from_utf8(name).ok()?.to_owned());
            rest = after;
        }
        let layout = Layout { partitions: usize::from(partitions), hash_seed };
        let header = Header { layout, f: usize::from(f), stages };
        (rest.is_empty() && header.flaw().is_none()).then_some(header)
    }
}

/// Something that a chain did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A node began to be recorded: at the chain's start, or because it replaces one that died.
    Started {
        /// The node's number.
        node: usize,
    },
    /// A head committed a record.
    Committed(Committed),
    /// A frame left the chain.
    Released(Released),
}

/// A head committed a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The head.
    pub by: Origin,
    /// The transactions' clock.
    pub time: Nanos,
    record: Vec<u8>,
}

impl Committed {
    /// What was committed.
    pub fn record(&self) -> RecordView<'_> {
        RecordView::take(&mut &self.record[..]).expect("an entry's record is checked when it is read")
    }
}

/// A frame left the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// The node where it left.
    pub by: Origin,
    /// When the frame arrived at the chain.
    pub time: Nanos,
    /// Which way it passed the chain.
    pub direction: Direction,
    /// The frame's length.
    pub frame_bytes: u32,
    /// The frame's checksum.
    pub frame_crc: u32,
}

impl Entry {
    /// What an entry says, from its kind on; its checksum fits.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let (&kind, body) = bytes.split_first().ok_or(Flaw::Length)?;
        let entry = match kind {
            STARTED => started(body),
            COMMITTED => committed(body),
            RELEASED => released(body),
            _ => return Err(Flaw::Kind(kind)),
        };
        entry.ok_or(Flaw::Contents)
    }
}

fn started(mut body: &[u8]) -> Option<Entry> {
    let node = take_node(&mut body)?;
    body.is_empty().then_some(Entry::Started { node })
}

fn committed(mut body: &[u8]) -> Option<Entry> {
    let (by, time) = take_origin(&mut body)?;
    let mut rest = body;
    RecordView::take(&mut rest)?;
    rest.is_empty().then(|| Entry::Committed(Committed { by, time, record: body.to_vec() }))
}

fn released(mut body: &[u8]) -> Option<Entry> {
    let (by, time) = take_origin(&mut body)?;
    let direction = match take(&mut body)? {
        [0] => Direction::Outbound,
        [1] => Direction::Inbound,
        _ => return None,
    };
    let frame_bytes = u32::from_le_bytes(take(&mut body)?);
    let frame_crc = u32::from_le_bytes(take(&mut body)?);
    body.is_empty().then_some(Entry::Released(Released { by, time, direction, frame_bytes, frame_crc }))
}

/// Appends the entry of a node that is recorded from now on.
pub(crate) fn put_started(node: usize, out: &mut Vec<u8>) {
    put_entry(STARTED, out, |out| out.push(node as u8)); // at most 64 nodes
}

/// Appends the entry of a committed record.
pub(crate) fn put_committed(by: Origin, time: Nanos, record: &Record, out: &mut Vec<u8>) {
    put_entry(COMMITTED, out, |out| {
        put_origin(by, time, out);
        record.encode(out);
    });
}

/// Appends the entry of a released frame.
pub(crate) fn put_released(by: Origin, packet: &Packet, out: &mut Vec<u8>) {
    put_entry(RELEASED, out, |out| {
        put_origin(by, packet.meta.time, out);
        out.push(match packet.meta.direction {
            Direction::Outbound => 0,
            Direction::Inbound => 1,
        });
        out.extend_from_slice(&(packet.frame().len() as u32).to_le_bytes());
        out.extend_from_slice(&crc32c(packet.frame()).to_le_bytes());
    });
}

fn put_entry(kind: u8, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD]);
    out.push(kind);
    body(out);
    seal(&mut out[start..], HEAD);
}

fn put_origin(by: Origin, time: Nanos, out: &mut Vec<u8>) {
    out.push(by.node as u8);
    out.extend_from_slice(&by.incarnation.to_le_bytes());
    out.extend_from_slice(&time.to_le_bytes());
}

fn take_origin(rest: &mut &[u8]) -> Option<(Origin, Nanos)> {
    let node = take_node(rest)?;
    let incarnation = u64::from_le_bytes(take(rest)?);
    let time = u64::from_le_bytes(take(rest)?);
    Some((Origin { node, incarnation }, time))
}

fn take_node(rest: &mut &[u8]) -> Option<usize> {
    let [node] = take(rest)?;
    Some(usize::from(node)).filter(|&node| node < MAX_NODES)
}

/// Takes `N` bytes off the front.
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

/// Fills in length and checksum, which stand in the last eight bytes of the first `head`.
fn seal(bytes: &mut [u8], head: usize) {
    let length = (bytes.len() - head) as u32;
    bytes[head - 8..head - 4].copy_from_slice(&length.to_le_bytes());
    let crc = checksum(bytes, head);
    bytes[head - 4..head].copy_from_slice(&crc.to_le_bytes());
}

/// The checksum of a header or entry whose own checksum stands in the last four bytes of the first `head`.
fn checksum(bytes: &[u8], head: usize) -> u32 {
    crc32c_append(crc32c(&bytes[..head - 4]), &bytes[head..])
}

/// The length that the first `head` bytes tell.
pub(crate) fn length_in(bytes: &[u8], head: usize) -> usize {
    bytes[head - 8..head - 4].iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte))
}

/// Whether the checksum of a whole header or entry fits.
pub(crate) fn fits(bytes: &[u8], head: usize) -> bool {
    bytes[head - 4..head] == checksum(bytes, head).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn a_record() -> impl Strategy<Value = Record> {
        let seen = prop::collection::btree_map(0..MAX_PARTITIONS, (any::<u64>(), any::<bool>()), 1..=64);
        (any::<u8>(), seen, prop::collection::vec(any::<u8>(), 0..400)).prop_map(|(stage, seen, delta)| {
            let mut record = Record::default();
            record.reset(stage);
            seen.iter()
                .for_each(|(&partition, &(version, written))| record.note(partition, version, written));
            if record.writes() {
                record.delta_mut().extend(delta);
            }
            record
        })
    }

    proptest! {
        #[test]
        fn what_is_put_is_what_is_read(record in a_record(), node in 0..MAX_NODES, incarnation: u64, time: u64,
                                       inbound: bool, frame in prop::collection::vec(any::<u8>(), 0..300)) {
            // Goal: entries say what they were told, records in the one encoding. Method: random ones, there and back.
            let by = Origin { node, incarnation };
            let mut out = Vec::new();
            put_committed(by, time, &record, &mut out);
            prop_assert!(fits(&out, HEAD) && length_in(&out, HEAD) == out.len() - HEAD);
            let Ok(Entry::Committed(committed)) = Entry::decode(&out[HEAD..]) else { panic!("committed") };
            let mut encoded = Vec::new();
            record.encode(&mut encoded);
            prop_assert_eq!((committed.by, committed.time), (by, time));
            prop_assert_eq!(committed.record(), RecordView::take(&mut &encoded[..]).expect("sound"));

            let mut packet = Packet::new(&frame);
            packet.meta.time = time;
            packet.meta.direction = if inbound { Direction::Inbound } else { Direction::Outbound };
            out.clear();
            put_released(by, &packet, &mut out);
            let Ok(Entry::Released(released)) = Entry::decode(&out[HEAD..]) else { panic!("released") };
            prop_assert_eq!((released.by, released.time), (by, time));
            prop_assert_eq!(released.direction, packet.meta.direction);
            prop_assert_eq!(released.frame_bytes as usize, frame.len());
            prop_assert_eq!(released.frame_crc, crc32c(&frame));
        }

        #[test]
        fn any_bytes_are_an_entry_or_a_flaw(mut bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0..5u8) {
            // Goal: decoding never panics, and a record is sound once it is there. Method: random bytes, likely kinds.
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Ok(Entry::Committed(committed)) = Entry::decode(&bytes) {
                prop_assert!(committed.record().seen().all(|seen| seen.partition < MAX_PARTITIONS));
            }
            let _ = Header::decode(&bytes);
        }

        #[test]
        fn headers_come_back(partitions in 1..=MAX_PARTITIONS, hash_seed: u64, f in 0..MAX_NODES,
                             stages in prop::collection::vec(".{0,20}", 1..=MAX_NODES)) {
            // Goal: a log describes its chain. Method: random chains, names of any signs, there and back.
            let header = Header { layout: Layout { partitions, hash_seed }, f, stages };
            let mut out = Vec::new();
            header.encode(&mut out);
            prop_assert!(fits(&out, HEADER_HEAD) && header.flaw().is_none());
            prop_assert_eq!(Header::decode(&out[HEADER_HEAD..]), Some(header));
        }
    }

    #[test]
    fn the_longest_entry_and_header_are_within_their_bounds() {
        // Goal: the reader's bounds refuse nothing that was written. Method: the longest ones that can be.
        let mut record = Record::default();
        (0..MAX_PARTITIONS).for_each(|partition| record.note(partition, 1, true));
        record.delta_mut().resize(usize::from(u16::MAX), 7);
        let mut out = Vec::new();
        put_committed(Origin { node: 63, incarnation: 1 }, 1, &record, &mut out);
        assert_eq!(out.len() - HEAD, MAX_ENTRY);
        let name = "n".repeat(usize::from(u16::MAX));
        let header = Header { layout: Layout::default(), f: 63, stages: vec![name; MAX_NODES] };
        out.clear();
        header.encode(&mut out);
        assert_eq!(out.len() - HEADER_HEAD, MAX_CHAIN);
        assert_eq!(Header::decode(&out[HEADER_HEAD..]), Some(header));
    }

    #[test]
    fn the_bytes_are_those_that_the_format_names() {
        // Goal: old logs stay readable. Method: a header and an entry against bytes written down by hand.
        let header =
            Header { layout: Layout { partitions: 4, hash_seed: 9 }, f: 1, stages: vec!["ab".into()] };
        let mut out = Vec::new();
        header.encode(&mut out);
        assert_eq!(out[..12], *b"PNRLOG\x01\0\x0f\0\0\0");
        assert_eq!(out[16..], *b"\x04\x09\0\0\0\0\0\0\0\x01\x01\x02\0ab");
        out.clear();
        put_started(5, &mut out);
        let crc = crc32c(&[2, 0, 0, 0, 1, 5]).to_le_bytes();
        assert_eq!(out, [&[2, 0, 0, 0][..], &crc, &[1, 5]].concat());
    }
}
