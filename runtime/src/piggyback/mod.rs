//! Piggybacking: how the effects of transactions ride on packets.
//!
//! A *unit* holds the records that one packet (or one burst) has gathered, at most one per stage, and is applied whole
//! or not at all. It rides behind a frame, or travels alone.
//!
//! ```text
//! unit := version(1) records(1) bytes(2, LE) crc32c(4, LE) { record [crc32c(4, LE)] }*
//! ```
//! `bytes` counts what stands behind the header. A record with a delta has a checksum of its own behind it: its head made
//! it, and whoever passes the record on as it came leaves it as it is. The unit's checksum begins with the four bytes in
//! front of it as its state, and is over all that stands behind it but the records that have their own. So every byte is
//! under a checksum, and passing a delta on takes no more than a copy.

mod record;

pub use record::{Record, RecordView, Seen, vector_bytes};

use crate::crc::crc32c_append;
use crate::dependency::Versions;

/// Version of the unit format, its first byte.
pub const UNIT_VERSION: u8 = 2;
/// Bytes in front of a unit's records.
pub const UNIT_HEADER: usize = 8;

/// Bytes of a record in a unit of a store of `partitions` partitions, without its delta: at most.
pub const fn record_bytes(partitions: usize) -> usize {
    vector_bytes(partitions) + record::SUM
}

/// Why a unit was refused. The node counts each by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{}", self.reason())]
pub enum Damage {
    /// Fewer bytes than the message says it has, or more.
    Length,
    /// A format version that this build does not know.
    Version,
    /// The checksum does not fit the bytes.
    Checksum,
    /// The records make no sense.
    Record,
    /// A record for a store that the receiver does not replicate.
    ForeignStage,
    /// A delta that does not fit its store.
    Delta,
}

impl Damage {
    /// The reason to count it under.
    pub fn reason(self) -> &'static str {
        match self {
            Damage::Length => "damaged_length",
            Damage::Version => "damaged_version",
            Damage::Checksum => "damaged_checksum",
            Damage::Record => "damaged_record",
            Damage::ForeignStage => "damaged_foreign_stage",
            Damage::Delta => "damaged_delta",
        }
    }
}

/// A checked unit.
#[derive(Clone, Copy, Debug)]
pub struct UnitView<'a> {
    records: &'a [u8],
}

impl<'a> UnitView<'a> {
    /// A unit without records: what a packet without a unit carries.
    pub const EMPTY: UnitView<'static> = UnitView { records: &[] };

    /// Checks `bytes`, which must be one whole unit or nothing at all.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Damage> {
        if bytes.is_empty() {
            return Ok(UnitView::EMPTY);
        }
        let (header, records) = bytes.split_at_checked(UNIT_HEADER).ok_or(Damage::Length)?;
        if header[0] != UNIT_VERSION {
            return Err(Damage::Version);
        }
        if usize::from(u16::from_le_bytes([header[2], header[3]])) != records.len() {
            return Err(Damage::Length);
        }
        let (mut count, mut stages) = (0u8, 0u64);
        let (mut is_whole, mut is_sound) = (true, true);
        let mut rest = records;
        while !rest.is_empty() {
            let record = take(&mut rest).ok_or(Damage::Record)?;
            count = count.checked_add(1).ok_or(Damage::Record)?;
            let stage = 1u64.checked_shl(record.stage.into()).ok_or(Damage::Record)?;
            is_whole &= record.is_whole();
            is_sound &= record.is_sound() && stages & stage == 0;
            stages |= stage;
        }
        if !is_whole
            || checksum([header[0], header[1], header[2], header[3]], records).to_le_bytes() != header[4..8]
        {
            return Err(Damage::Checksum);
        }
        if is_sound && count == header[1] { Ok(UnitView { records }) } else { Err(Damage::Record) }
    }

    /// A unit that this node sealed itself, or has checked before.
    pub(crate) fn trusted(bytes: &'a [u8]) -> Self {
        UnitView { records: bytes.get(UNIT_HEADER..).unwrap_or_default() }
    }

    /// The records; they are applied together, so that their order means nothing.
    pub fn records(&self) -> impl Iterator<Item = RecordView<'a>> + use<'a> {
        let mut rest = self.records;
        std::iter::from_fn(move || take(&mut rest))
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

/// Takes a record with its checksum off the bytes of a unit.
fn take<'a>(rest: &mut &'a [u8]) -> Option<RecordView<'a>> {
    let mut record = RecordView::take_trusted(rest)?;
    if !record.delta.is_empty() {
        (record.sum, *rest) = rest.split_at_checked(record::SUM)?;
    }
    Some(record)
}

/// The checksum of a unit, which begins with the four bytes in front of it and goes on over all that has no other.
fn checksum(header: [u8; 4], records: &[u8]) -> u32 {
    let mut crc = u32::from_le_bytes(header);
    let (mut piece, mut rest) = (records, records);
    while let Some(record) = take(&mut rest) {
        if !record.sum.is_empty() {
            let behind = record.sum.len() + rest.len();
            crc = crc32c_append(crc, &piece[..piece.len() - behind - record.bytes.len()]);
            piece = &piece[piece.len() - behind..];
        }
    }
    crc32c_append(crc, piece)
}

/// Fills in the header of a unit whose records stand in `unit` behind [`UNIT_HEADER`] free bytes.
fn seal(unit: &mut [u8], records: u8) {
    let bytes = ((unit.len() - UNIT_HEADER) as u16).to_le_bytes();
    let header = [UNIT_VERSION, records, bytes[0], bytes[1]];
    let crc = checksum(header, &unit[UNIT_HEADER..]);
    unit[..4].copy_from_slice(&header);
    unit[4..UNIT_HEADER].copy_from_slice(&crc.to_le_bytes());
}

/// Puts units together.
#[derive(Clone, Debug, Default)]
pub struct UnitBuilder {
    records: Vec<Record>,
    used: usize,
}

impl UnitBuilder {
    /// Empties the builder.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// The records so far.
    pub fn records(&self) -> &[Record] {
        &self.records[..self.used]
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether any record writes.
    pub fn writes(&self) -> bool {
        self.records().iter().any(Record::writes)
    }

    /// The record of `stage`: the one that is there, or an empty one behind the others.
    pub fn record(&mut self, stage: u8) -> &mut Record {
        if let Some(at) = self.records().iter().position(|record| record.stage == stage) {
            return &mut self.records[at];
        }
        if self.used == self.records.len() {
            self.records.push(Record::roomy());
        }
        let record = &mut self.records[self.used];
        self.used += 1;
        record.reset(stage);
        record
    }

    /// Takes in the records of `unit` that `near` knows a store's versions for. Returns false and changes nothing
    /// where they can't be in one unit with what is here; then the open unit must be closed first.
    #[must_use]
    pub fn absorb<'v, V: Versions + 'v>(
        &mut self,
        unit: &UnitView<'_>,
        near: impl Fn(u8) -> Option<&'v V>,
    ) -> bool {
        let at = |records: &[Record], stage| records.iter().position(|record| record.stage == stage);
        let fits = unit.records().all(|view| match (near(view.stage), at(self.records(), view.stage)) {
            (Some(near), Some(at)) => self.records[at].fits(&view, near),
            _ => true,
        });
        if fits {
            for view in unit.records() {
                let Some(near) = near(view.stage) else { continue };
                self.record(view.stage).merge(&view, near);
            }
        }
        fits
    }

    /// Drops what no receiver needs: what `commit` says is everywhere, and records with nothing left.
    pub fn forget_committed<'v, V: Versions + 'v>(&mut self, commit: impl Fn(u8) -> Option<&'v V>) {
        for record in &mut self.records[..self.used] {
            if let Some(commit) = commit(record.stage) {
                record.forget_committed(commit);
            }
        }
        let mut kept = 0;
        for at in 0..self.used {
            if !self.records[at].is_empty() {
                if at != kept {
                    self.records.swap(at, kept);
                }
                kept += 1;
            }
        }
        self.used = kept;
    }

    /// Bytes of the encoded unit, at most.
    pub fn bytes(&self) -> usize {
        UNIT_HEADER + self.records().iter().map(Record::bytes_in_unit).sum::<usize>()
    }

    /// Appends the unit to `out`; nothing where there are no records.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_by(out, Record::encode_in_unit);
    }

    /// Appends the unit's name: a unit that writes nothing and is ready where this one has been applied.
    pub fn encode_name(&self, out: &mut Vec<u8>) {
        self.encode_by(out, Record::encode_name);
    }

    fn encode_by(&self, out: &mut Vec<u8>, encode: impl Fn(&Record, &mut Vec<u8>)) {
        if self.is_empty() {
            return;
        }
        let at = out.len();
        out.resize(at + UNIT_HEADER, 0);
        self.records().iter().for_each(|record| encode(record, out));
        seal(&mut out[at..], self.used as u8);
    }
}

/// Writes into `out` the part of a checked unit that `wanted` picks; nothing where it picks nothing.
pub fn select(unit: &[u8], wanted: impl Fn(&RecordView<'_>) -> bool, out: &mut Vec<u8>) {
    out.clear();
    out.resize(UNIT_HEADER, 0);
    let mut records = 0;
    let mut rest = UnitView::trusted(unit).records;
    while let (before, Some(record)) = (rest, take(&mut rest)) {
        if wanted(&record) {
            out.extend_from_slice(&before[..before.len() - rest.len()]);
            records += 1;
        }
    }
    if records == 0 {
        out.clear();
    } else {
        seal(out, records);
    }
}

#[cfg(test)]
mod tests;
