//! The record: what one transaction (or one burst of them, committed together) did to one store.
//!
//! ```text
//! record := stage(1) seen(1) delta_bytes(2, LE) { partition(1) version(4, LE) }*seen  delta
//! ```
//! The top bit of a partition says that it was written. The version is the one seen, cut to 32 bits.

use crate::crc::crc32c;
use crate::dependency::{PartitionSet, Vector, Version, Versions, lengthen, shorten};
use crate::limits::{BUFFER, MAX_PARTITIONS};
use crate::mutant::{self, Mutant};

const WRITTEN: u8 = 0x80;
const HEADER: usize = 4;
const SEEN: usize = 5;
/// Bytes of a record's checksum.
pub(super) const SUM: usize = 4;

/// Bytes that a record's vector takes at most in a store of `partitions` partitions, header included.
pub const fn vector_bytes(partitions: usize) -> usize {
    HEADER + SEEN * partitions
}

/// A record's checksum, as it travels.
fn sum(record: &[u8]) -> [u8; SUM] {
    crc32c(record).to_le_bytes()
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
    /// All of it but the checksum.
    pub(super) bytes: &'a [u8],
    seen: &'a [u8],
    /// The changed rows; see [`crate::txn::delta`].
    pub delta: &'a [u8],
    /// In a unit, its checksum; none where there is no delta.
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

    /// Whether the partitions ascend and exist, and one of them was written where there are rows.
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

    /// Whether its checksum fits, where it has one.
    pub(super) fn is_whole(&self) -> bool {
        self.sum.is_empty() || sum(self.bytes) == self.sum
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

    /// Whether a store that stands at `known` has everything behind this record: what it wrote and what it read.
    pub fn covered_by(&self, known: &impl Versions) -> bool {
        self.seen().all(|s| {
            let here = known.version(s.partition);
            here >= s.version_after(here)
        })
    }
}

/// A record that is being put together: at most one per stage in a unit. As long as nothing is added to one that came
/// from elsewhere with a delta, it stays the bytes that it came as.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The stage whose store it is about.
    pub stage: u8,
    read: PartitionSet,
    written: PartitionSet,
    /// The record as it came, its checksum included; empty where it is of this node, or was changed.
    whole: Vec<u8>,
    /// Where it is not whole: the versions seen, and the delta.
    version: Vector,
    delta: Vec<u8>,
}

impl Record {
    /// A record with room for most deltas: where stages take turns at it, it would grow for a long time.
    pub(super) fn roomy() -> Self {
        let room = || Vec::with_capacity(BUFFER);
        Record { whole: room(), delta: room(), ..Record::default() }
    }

    /// Empties the record for another use.
    pub fn reset(&mut self, stage: u8) {
        self.stage = stage;
        self.read = PartitionSet::default();
        self.written = PartitionSet::default();
        self.whole.clear();
        self.delta.clear();
    }

    /// Notes a partition that was seen at `version`, and perhaps written.
    pub fn note(&mut self, partition: usize, version: Version, written: bool) {
        debug_assert!(self.whole.is_empty(), "no head gets a delta of its own stage from elsewhere");
        let set = if written { &mut self.written } else { &mut self.read };
        set.insert(partition);
        self.version.0[partition] = version;
    }

    /// The delta, to append to.
    pub fn delta_mut(&mut self) -> &mut Vec<u8> {
        debug_assert!(self.whole.is_empty(), "no head gets a delta of its own stage from elsewhere");
        &mut self.delta
    }

    /// The delta.
    pub fn delta(&self) -> &[u8] {
        self.came().map_or(&self.delta, |came| came.delta)
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

    /// The record as it came, where it is so.
    fn came(&self) -> Option<RecordView<'_>> {
        RecordView::take_trusted(&mut &self.whole[..])
    }

    /// The version of a partition that was seen, as it travels.
    fn short(&self, partition: usize) -> u32 {
        match self.came() {
            None => shorten(self.version[partition]),
            Some(came) => {
                let before = PartitionSet(self.read.union(self.written).0 & ((1 << partition) - 1));
                came.seen().nth(before.len()).map_or(0, |seen| seen.version)
            }
        }
    }

    /// The version of a partition that was seen, completed from one that is near where it came short.
    fn version(&self, partition: usize, near: &impl Versions) -> Version {
        match self.whole.is_empty() {
            true => self.version[partition],
            false => lengthen(self.short(partition), near.version(partition)),
        }
    }

    /// Is not the bytes that it came as any more: something changes.
    fn take_apart(&mut self, near: &impl Versions) {
        if let Some(came) = RecordView::take_trusted(&mut &self.whole[..]) {
            for seen in came.seen() {
                self.version.0[seen.partition] = seen.version_near(near.version(seen.partition));
            }
            self.delta.extend_from_slice(came.delta);
        }
        self.whole.clear();
    }

    /// Whether another record of the same stage can be one with this one. Not so where both wrote, or where one read
    /// what only a later commit than the other's brings. `near` completes short versions.
    pub fn fits(&self, other: &RecordView<'_>, near: &impl Versions) -> bool {
        other.seen().all(|s| {
            let version = s.version_near(near.version(s.partition));
            let mine = || self.version(s.partition, near);
            if s.written {
                !self.writes() && (!self.read.contains(s.partition) || mine() <= version + 1)
            } else {
                !self.written.contains(s.partition) || version <= mine() + 1
            }
        })
    }

    /// Takes in another record of the same stage that [`Record::fits`].
    pub fn merge(&mut self, other: &RecordView<'_>, near: &impl Versions) {
        if self.is_empty() && !other.delta.is_empty() {
            return self.take_over(other);
        }
        for s in other.seen() {
            let version = s.version_near(near.version(s.partition));
            let is_known = self.written.contains(s.partition)
                || (self.read.contains(s.partition) && version <= self.version(s.partition, near));
            if s.written || !is_known {
                self.take_apart(near);
                self.read.0 &= !(1 << s.partition);
                self.note(s.partition, version, s.written);
            }
        }
        if !other.delta.is_empty() {
            self.take_apart(near);
            self.delta.extend_from_slice(other.delta);
        }
    }

    /// Is another record as it came.
    fn take_over(&mut self, other: &RecordView<'_>) {
        for entry in other.seen.chunks_exact(SEEN) {
            let set = if entry[0] & WRITTEN == 0 { &mut self.read } else { &mut self.written };
            set.insert(usize::from(entry[0] & !WRITTEN));
        }
        self.whole.clear();
        self.whole.extend_from_slice(other.bytes);
        self.whole.extend_from_slice(other.sum);
    }

    /// Forgets what `commit` covers, for that is known everywhere: reads one by one, writes all together.
    pub fn forget_committed(&mut self, commit: &impl Versions) {
        let covers = |partition: usize, version: Version| commit.version(partition) >= version;
        let mut reads = PartitionSet::default();
        let covered =
            self.read.iter().filter(|&partition| covers(partition, self.version(partition, commit)));
        covered.for_each(|partition| reads.insert(partition));
        if !reads.is_empty() {
            self.take_apart(commit);
            self.read.0 &= !reads.0;
        }
        if self.writes() && self.written.iter().all(|at| covers(at, self.version(at, commit) + 1)) {
            self.take_apart(commit);
            self.written = PartitionSet::default();
            self.delta.clear();
        }
    }

    /// Bytes that [`Record::encode_in_unit`] appends, at most.
    pub(super) fn bytes_in_unit(&self) -> usize {
        match self.whole.len() {
            0 => HEADER + SEEN * (self.read.len() + self.written.len()) + self.delta.len() + SUM,
            whole => whole,
        }
    }

    /// Appends the whole record, with its checksum where it has a delta: as it came, where it did.
    pub(super) fn encode_in_unit(&self, out: &mut Vec<u8>) {
        if !self.whole.is_empty() {
            return out.extend_from_slice(&self.whole);
        }
        let at = out.len();
        self.encode(out);
        if !self.delta.is_empty() {
            out.extend_from_slice(&sum(&out[at..]));
        }
    }

    /// Appends the whole record, without a checksum.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Some(came) = self.came() {
            return out.extend_from_slice(came.bytes);
        }
        let seen = self.read.union(self.written);
        self.head(seen.len(), self.delta.len(), out);
        for partition in seen.iter() {
            self.put_seen(partition, self.written.contains(partition), shorten(self.version[partition]), out);
        }
        out.extend_from_slice(&self.delta);
    }

    /// Appends the record's *name*: a record that writes nothing and has read what stands behind this one. Whoever
    /// waits for the name waits for the record. One written partition says it for all, since a record is applied whole.
    pub fn encode_name(&self, out: &mut Vec<u8>) {
        let written = self.written.iter().next();
        let mut seen = if mutant::is(Mutant::HoldIgnoresReads) { PartitionSet::default() } else { self.read };
        written.into_iter().for_each(|partition| seen.insert(partition));
        self.head(seen.len(), 0, out);
        for partition in seen.iter() {
            let version = self.short(partition).wrapping_add(u32::from(written == Some(partition)));
            self.put_seen(partition, false, version, out);
        }
    }

    fn head(&self, seen: usize, delta: usize, out: &mut Vec<u8>) {
        // At most 64 partitions, and a delta below the limit that its transaction was held to.
        out.extend_from_slice(&[self.stage, seen as u8]);
        out.extend_from_slice(&(delta as u16).to_le_bytes());
    }

    fn put_seen(&self, partition: usize, written: bool, version: u32, out: &mut Vec<u8>) {
        let [a, b, c, d] = version.to_le_bytes();
        out.extend_from_slice(&[partition as u8 | if written { WRITTEN } else { 0 }, a, b, c, d]);
    }
}
