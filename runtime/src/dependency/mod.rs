//! Dependency vectors: how replicas know the order of changes without sequence numbers.
//!
//! # The ordering rule
//! A store is cut into partitions, and each has a *version*: how many transactions have written it. A transaction
//! notes, for every partition that it read or wrote, the version that it saw; each partition that it wrote then goes
//! up by one. A replica may take a record over when every partition that it wrote stands *exactly at* the version
//! seen and every partition that it only read stands *at or past* it. So writes to a partition are applied in the
//! order of the head, and what a transaction read is there before what it wrote. Reads do not count up: a replica
//! never reads, so a later write may overtake an earlier reader.
//! (FTC, SIGCOMM 2020, section 4.3; there a read counts as a write does.)
//!
//! Versions are 64 bits wide at rest. On the wire they are cut to 32 bits and completed from a version that the
//! receiver knows. A message may therefore be late by less than 2³¹ writes of one partition: minutes at ten million
//! writes a second, far beyond what any link delays.

use crate::limits::MAX_PARTITIONS;
use crate::mutant::{self, Mutant};
use crate::sync::{AtomicU64, Ordering};

/// How many transactions have written a partition.
pub type Version = u64;

/// A set of partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionSet(pub u64);

impl PartitionSet {
    /// Every partition below `count`.
    pub fn first(count: usize) -> Self {
        PartitionSet(if count >= MAX_PARTITIONS { u64::MAX } else { (1 << count) - 1 })
    }

    /// One partition below [`MAX_PARTITIONS`] and no other.
    pub fn only(partition: usize) -> Self {
        PartitionSet(1 << partition)
    }

    /// Adds a partition below [`MAX_PARTITIONS`].
    pub fn insert(&mut self, partition: usize) {
        self.0 |= 1 << partition;
    }

    /// Whether `partition` is in the set.
    pub fn contains(self, partition: usize) -> bool {
        self.0 >> partition & 1 == 1
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all partitions of the set are in `other`, too.
    pub fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// How many partitions are in the set.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Takes the first `count` partitions out of the set.
    pub fn take_first(&mut self, count: usize) -> Self {
        if count >= self.len() {
            return std::mem::take(self);
        }
        let mut taken = PartitionSet::default();
        self.iter().take(count).for_each(|partition| taken.insert(partition));
        self.0 &= !taken.0;
        taken
    }

    /// Both sets together.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        PartitionSet(self.0 | other.0)
    }

    /// The partitions in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let next = rest.trailing_zeros() as usize;
            (rest != 0).then(|| {
                rest &= rest - 1;
                next
            })
        })
    }
}

/// One version per partition: what is applied, what is committed, or what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vector(pub [Version; MAX_PARTITIONS]);

impl Default for Vector {
    fn default() -> Self {
        Vector([0; MAX_PARTITIONS])
    }
}

impl Vector {
    /// Raises one entry to `version` if it is lower, and says whether it was.
    pub fn raise(&mut self, partition: usize, version: Version) -> bool {
        let raised = version > self.0[partition];
        if raised {
            self.0[partition] = version;
        }
        raised
    }
}

impl std::ops::Index<usize> for Vector {
    type Output = Version;
    fn index(&self, partition: usize) -> &Version {
        &self.0[partition]
    }
}

/// Versions that are known of the partitions of a store.
pub trait Versions {
    /// The version known of `partition`.
    fn version(&self, partition: usize) -> Version;
}

impl Versions for Vector {
    fn version(&self, partition: usize) -> Version {
        self.0[partition]
    }
}

/// A vector that several lanes look at while one of them raises it.
#[derive(Debug)]
#[repr(align(128))]
pub struct LiveVector([AtomicU64; MAX_PARTITIONS]);

impl From<Vector> for LiveVector {
    fn from(vector: Vector) -> Self {
        LiveVector(vector.0.map(AtomicU64::new))
    }
}

impl Versions for LiveVector {
    fn version(&self, partition: usize) -> Version {
        // Acquire: who sees a version sees the rows that it stands for, and what a commit vector was derived from.
        self.0[partition].load(Ordering::Acquire)
    }
}

impl LiveVector {
    /// The versions, each of some moment during the call.
    pub fn look(&self) -> Vector {
        Vector(std::array::from_fn(|partition| self.version(partition)))
    }

    /// Sets one entry. Whoever does so is the only one to do so at the time: he holds the partition, or the whole store.
    pub(crate) fn set(&self, partition: usize, version: Version) {
        self.0[partition].store(version, Ordering::Release);
    }

    /// Raises one entry to `version` if it is lower, and says whether it was. Where `shared` is false nobody else does
    /// so meanwhile.
    pub(crate) fn raise(&self, partition: usize, version: Version, shared: bool) -> bool {
        if version <= self.version(partition) {
            return false;
        }
        if shared {
            return version > self.0[partition].fetch_max(version, Ordering::AcqRel);
        }
        self.set(partition, version);
        true
    }
}

/// The low half of a version, as it travels.
pub fn shorten(version: Version) -> u32 {
    version as u32
}

/// The version with the low half `short` that is nearest to `near`.
pub fn lengthen(short: u32, near: Version) -> Version {
    if mutant::is(Mutant::WrappingVersion) {
        return Version::from(short);
    }
    let distance = short.wrapping_sub(near as u32).cast_signed();
    let version = near.wrapping_add_signed(distance.into());
    // None is below zero, whatever a message says.
    if distance < 0 && version > near { 0 } else { version }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_short_version_is_completed_across_every_wrap(near in 1u64 << 32.., off in -(1i64 << 31)..1i64 << 31) {
            // Goal: 32 bits on the wire are enough. Method: any version, any receiver less than 2^31 away.
            let near = near >> 1;
            let version = near.saturating_add_signed(off);
            prop_assert_eq!(lengthen(shorten(version), near), version);
        }

        #[test]
        fn a_partition_set_lists_what_was_put_in(bits: u64) {
            // Goal: iteration is ascending and complete. Method: rebuild the bits from the iterator.
            let set = PartitionSet(bits);
            let listed: Vec<usize> = set.iter().collect();
            prop_assert!(listed.windows(2).all(|w| w[0] < w[1]));
            prop_assert_eq!(listed.len(), set.len());
            prop_assert_eq!(listed.iter().fold(0u64, |b, p| b | 1 << p), bits);
        }
    }
}
