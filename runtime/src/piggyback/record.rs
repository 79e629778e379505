//! The record: what one transaction (or one burst of them, committed together) did to one store.
//!
//! ```text
//! record := stage(1) seen(1) delta_bytes(2, LE) { partition(1) version(4, LE) }*seen  delta
//! ```
//! The top bit of a partition says that it was written. The version is the one seen, cut to 32 bits.

use crate::dependency::{PartitionSet, Vector, Version, Versions, lengthen, shorten};
use crate::limits::MAX_PARTITIONS;
use crate::mutant::{self, Mutant};

const WRITTEN: u8 = 0x80;
const HEADER: usize = 4;
const SEEN: usize = 5;
/// Bytes of a delta's checksum.
pub(super) const SUM: usize = 4;

/// Bytes that a record's vector takes at most in a store of `partitions` partitions, header included.
pub const fn vector_bytes(partitions: usize) -> usize {
    HEADER + SEEN * partitions
}

/// A delta's checksum, as it travels.
pub(super) fn sum(delta: &[u8]) -> [u8; SUM] {
    crc32c::crc32c(delta).to_le_bytes()
}

/// One entry of a record's dependency vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The partition.
    pub partition: usize,
    /// The version that the transaction saw, cut to 32 bits.
    pub version: u32,
    /// Whether the transaction wrote the partition, which takes it to the next version.
    pub written: bool,
}

impl Seen {
    /// The version seen, completed from a version that is near.
    pub fn version_near(&self, near: Version) -> Version {
        lengthen(self.version, near)
    }

    /// The version that stands behind the transaction: seen, or one more where it wrote.
    pub fn version_after(&self, near: Version) -> Version {
        self.version_near(near).saturating_add(u64::from(self.written))
    }
}

/// A record in the bytes of a unit, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// The stage whose store it is about.
    pub stage: u8,
    /// All of it.
    bytes: &'a [u8],
    seen: &'a [u8],
    /// The changed rows; see [`crate::txn::delta`].
    pub delta: &'a [u8],
    /// In a unit, the checksum that stands behind the record; none where there is no delta.
    pub(super) sum: &'a [u8],
}

impl<'a> RecordView<'a> {
    /// Takes the first record off `rest`; `None` where the bytes are none.
    pub fn take(rest: &mut &'a [u8]) -> Option<Self> {
        RecordView::take_trusted(rest).filter(RecordView::is_sound)
    }

    /// As [`RecordView::take`], where it is known that the record makes sense.
    pub(super) fn take_trusted(rest: &mut &'a [u8]) -> Option<Self> {
        let header = rest.first_chunk::<HEADER>()?;
        let front = HEADER + SEEN * usize::from(header[1]);
        let delta_bytes = usize::from(u16::from_le_bytes([header[2], header[3]]));
        let (bytes, after) = rest.split_at_checked(front + delta_bytes)?;
        let (seen, delta) = (&bytes[HEADER..front], &bytes[front..]);
        *rest = after;
        Some(RecordView { stage: header[0], bytes, seen, delta, sum: &[] })
    }

    /// Whether the partitions ascend and exist, and none of the rows is of a partition that was not written.
    pub(super) fn is_sound(&self) -> bool {
        let (mut next, mut ascend, mut written) = (0, true, 0);
        for entry in self.seen.chunks_exact(SEEN) {
            let partition = entry[0] & !WRITTEN;
            ascend &= partition >= next;
            next = partition + 1;
            written |= entry[0];
        }
        ascend && usize::from(next) <= MAX_PARTITIONS && (self.delta.is_empty() || written & WRITTEN != 0)
    }

    /// What stands in front of the delta.
    pub(super) fn front(&self) -> &'a [u8] {
        &self.bytes[..HEADER + self.seen.len()]
    }

    /// The dependency vector, by ascending partition.
    pub fn seen(&self) -> impl Iterator<Item = Seen> + use<'a> {
        self.seen.chunks_exact(SEEN).map(|s| Seen {
            partition: usize::from(s[0] & !WRITTEN),
            version: u32::from_le_bytes([s[1], s[2], s[3], s[4]]),
            written: s[0] & WRITTEN != 0,
        })
    }

    /// Whether the transaction wrote anything.
    pub fn writes(&self) -> bool {
        self.seen().any(|s| s.written)
    }

    /// The partitions written.
    pub fn written(&self) -> PartitionSet {
        let mut set = PartitionSet::default();
        self.seen().filter(|s| s.written).for_each(|s| set.insert(s.partition));
        set
    }

    /// Whether a store that stands at `vector` has everything behind this record: what it wrote and what it read.
    pub fn covered_by(&self, known: &impl Versions) -> bool {
        self.seen().all(|s| {
            let here = known.version(s.partition);
            here >= s.version_after(here)
        })
    }
}

/// A record that is being put together: at most one per stage in a unit.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The stage whose store it is about.
    pub stage: u8,
    read: PartitionSet,
    written: PartitionSet,
    version: Vector,
    /// The delta, behind what stood in front of it where the record came from elsewhere.
    bytes: Vec<u8>,
    front: usize,
    /// The record is as it came: `bytes` are all of it.
    as_it_came: bool,
    /// The delta's checksum, where it came along.
    sum: Option<[u8; SUM]>,
}

impl Record {
    /// Empties the record for another use.
    pub fn reset(&mut self, stage: u8) {
        self.stage = stage;
        self.read = PartitionSet::default();
        self.written = PartitionSet::default();
        self.forget_delta();
    }

    fn forget_delta(&mut self) {
        self.bytes.clear();
        (self.front, self.as_it_came, self.sum) = (0, false, None);
    }

    /// Notes a partition that was seen at `version`, and perhaps written.
    pub fn note(&mut self, partition: usize, version: Version, written: bool) {
        self.as_it_came = false;
        let set = if written { &mut self.written } else { &mut self.read };
        set.insert(partition);
        self.version.0[partition] = version;
    }

    /// The delta, to append to.
    pub fn delta_mut(&mut self) -> &mut Vec<u8> {
        (self.as_it_came, self.sum) = (false, None);
        &mut self.bytes
    }

    /// The delta.
    pub fn delta(&self) -> &[u8] {
        &self.bytes[self.front..]
    }

    /// Whether anything was written.
    pub fn writes(&self) -> bool {
        !self.written.is_empty()
    }

    /// Whether nothing was read or written.
    pub fn is_empty(&self) -> bool {
        self.read.is_empty() && self.written.is_empty()
    }

    /// The partitions written.
    pub fn written(&self) -> PartitionSet {
        self.written
    }

    /// Whether another record of the same stage can be one with this one. Not so where both wrote, or where one read
    /// what only a later commit than the other's brings. `near` completes the other's short versions.
    pub fn fits(&self, other: &RecordView<'_>, near: &impl Versions) -> bool {
        other.seen().all(|s| {
            let (version, mine) = (s.version_near(near.version(s.partition)), self.version[s.partition]);
            if s.written {
                !self.writes() && (!self.read.contains(s.partition) || mine <= version + 1)
            } else {
                !self.written.contains(s.partition) || version <= mine + 1
            }
        })
    }

    /// Takes in another record of the same stage that [`Record::fits`].
    pub fn merge(&mut self, other: &RecordView<'_>, near: &impl Versions) {
        let is_first = self.is_empty();
        for s in other.seen() {
            let version = s.version_near(near.version(s.partition));
            if s.written {
                self.read.0 &= !(1 << s.partition);
                self.note(s.partition, version, true);
            } else if self.read.contains(s.partition) {
                self.as_it_came &= !self.version.raise(s.partition, version);
            } else if !self.written.contains(s.partition) {
                self.note(s.partition, version, false);
            }
        }
        if is_first {
            self.forget_delta();
            self.bytes.extend_from_slice(other.bytes);
            self.front = other.front().len();
            self.as_it_came = true;
            self.sum = other.sum.try_into().ok();
        } else if !other.delta.is_empty() {
            self.sum = other.sum.try_into().ok().filter(|_| self.delta().is_empty());
            self.as_it_came = false;
            self.bytes.extend_from_slice(other.delta);
        }
    }

    /// Forgets what `commit` covers, for that is known everywhere: reads one by one, writes all together.
    pub fn forget_committed(&mut self, commit: &impl Versions) {
        for partition in self.read.iter() {
            if commit.version(partition) >= self.version[partition] {
                self.read.0 &= !(1 << partition);
                self.as_it_came = false;
            }
        }
        if self.written.iter().all(|partition| commit.version(partition) > self.version[partition]) {
            self.written = PartitionSet::default();
            self.forget_delta();
        }
    }

    /// Bytes that [`Record::encode_in_unit`] appends, at most.
    pub(super) fn bytes_in_unit(&self) -> usize {
        HEADER + SEEN * (self.read.len() + self.written.len()) + self.delta().len() + SUM
    }

    /// Appends the whole record, and the checksum of its delta where it has one: both as they came, where they did.
    pub(super) fn encode_in_unit(&self, out: &mut Vec<u8>) {
        self.encode(out);
        if !self.delta().is_empty() {
            out.extend_from_slice(&self.sum.unwrap_or_else(|| sum(self.delta())));
        }
    }

    /// Appends the whole record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.as_it_came {
            return out.extend_from_slice(&self.bytes);
        }
        let seen = self.read.union(self.written);
        self.head(seen.len(), self.delta().len(), out);
        for partition in seen.iter() {
            self.put_seen(partition, self.written.contains(partition), self.version[partition], out);
        }
        out.extend_from_slice(self.delta());
    }

    /// Appends the record's *name*: a record that writes nothing and has read what stands behind this one. Whoever
    /// waits for the name waits for the record. One written partition says it for all, since a record is applied whole.
    pub fn encode_name(&self, out: &mut Vec<u8>) {
        let written = self.written.iter().next();
        let mut seen = if mutant::is(Mutant::HoldIgnoresReads) { PartitionSet::default() } else { self.read };
        written.into_iter().for_each(|partition| seen.insert(partition));
        self.head(seen.len(), 0, out);
        for partition in seen.iter() {
            let version = self.version[partition] + u64::from(written == Some(partition));
            self.put_seen(partition, false, version, out);
        }
    }

    fn head(&self, seen: usize, delta: usize, out: &mut Vec<u8>) {
        // At most 64 partitions, and a delta below the limit that its transaction was held to.
        out.extend_from_slice(&[self.stage, seen as u8]);
        out.extend_from_slice(&(delta as u16).to_le_bytes());
    }

    fn put_seen(&self, partition: usize, written: bool, version: Version, out: &mut Vec<u8>) {
        out.push(partition as u8 | if written { WRITTEN } else { 0 });
        out.extend_from_slice(&shorten(version).to_le_bytes());
    }
}
