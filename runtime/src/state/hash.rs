//! The hash that places a key: the same in every process, on every machine and in every build.

/// Hashes the bytes of a key. `seed` comes from the chain file, so that nobody outside can aim at one partition.
///
/// Eight bytes a step, each folded in by a 64 × 64 → 128 bit multiplication (the step of wyhash).
#[inline(always)] // a key's length is known where it is placed
pub fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    const K0: u64 = 0xa076_1d64_78bd_642f;
    const K1: u64 = 0xe703_7ed1_a0b4_28db;
    let fold = |a: u64, b: u64| {
        let wide = u128::from(a) * u128::from(b);
        (wide as u64) ^ ((wide >> 64) as u64)
    };
    let mut state = fold(seed ^ K0, bytes.len() as u64 ^ K1);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        // `chunks_exact(8)` yields eight bytes.
        let word =
            u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]);
        state = fold(state ^ K0, word ^ K1);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        state = fold(state ^ K0, u64::from_le_bytes(word) ^ K1);
    }
    fold(state ^ K1, K0)
}

/// The bits of a key's hash that choose its partition: 16 … 47, for the tables index with the low ones and tag with the top
/// ones.
pub(crate) fn spread(hash: u64) -> u32 {
    (hash >> 16) as u32
}

/// Places keys in partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    seed: u64,
    partitions: u64,
    by_lane: bool,
}

/// Where a key lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Hash of the key.
    pub hash: u64,
    /// Partition of the key.
    pub partition: usize,
}

impl Placement {
    /// Places keys in `partitions` partitions (cut to 1 … 64) by `seed`.
    pub fn new(seed: u64, partitions: usize) -> Self {
        Placement {
            seed,
            partitions: partitions.clamp(1, crate::limits::MAX_PARTITIONS) as u64,
            by_lane: false,
        }
    }

    /// The same, but keys begin with the number of a lane, which chooses the partition.
    pub(super) fn by_lane(self) -> Self {
        Placement { by_lane: true, ..self }
    }

    /// How many partitions there are.
    pub fn partitions(self) -> usize {
        self.partitions as usize
    }

    /// The place of a key, given as bytes.
    #[inline(always)]
    pub fn place(self, key: &[u8]) -> Place {
        let hash = hash_bytes(self.seed, key);
        let partition = match key.first() {
            Some(&lane) if self.by_lane => u64::from(lane) % self.partitions,
            _ => (u64::from(spread(hash)) * self.partitions) >> 32,
        };
        Place { hash, partition: partition as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_never_changes() {
        // Goal: nodes of different builds agree on partitions. Method: pinned values; a change needs a new format.
        let pinned = [hash_bytes(0, b""), hash_bytes(1, b"pannier"), hash_bytes(1, &[7; 37])];
        assert_eq!(pinned, [0xd7eaecc51acbb88e, 0x35f71ca45dd592bf, 0xf220178f2c9b6f05]);
    }

    #[test]
    fn keys_spread_evenly_over_partitions() {
        // Goal: no partition is hot by construction. Method: 64,000 keys, 64 partitions, each within a quarter of 1,000.
        let placement = Placement::new(42, 64);
        let mut counts = [0u32; 64];
        for key in 0..64_000u32 {
            counts[placement.place(&key.to_le_bytes()).partition] += 1;
        }
        assert!(counts.iter().all(|c| (750..1_250).contains(c)), "{counts:?}");
    }
}
