//! Randomness as a parameter: a small generator whose state is a value, so that it can be rolled back,
//! recorded and replayed.

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). Not for secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entropy(u64);

impl Entropy {
    /// A generator whose numbers are a function of `seed` alone.
    pub fn new(seed: u64) -> Self {
        Entropy(seed)
    }

    /// A generator for one purpose of a run: different for each `stream`, the same for each run.
    pub fn stream(seed: u64, stream: u64) -> Self {
        let mut mixed = Entropy(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Entropy(mixed.next_u64())
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 where `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True with probability `p`, which is cut to 0 … 1.
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && ((self.next_u64() >> 11) as f64) < p * (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_a_copy_rolls_back() {
        // Goal: randomness is a value. Method: draw, restore a copy, draw again.
        let mut a = Entropy::stream(7, 1);
        let saved = a;
        let first = [a.next_u64(), a.below(10), a.next_u64()];
        a = saved;
        assert_eq!(first, [a.next_u64(), a.below(10), a.next_u64()]);
        assert_ne!(Entropy::stream(7, 1), Entropy::stream(7, 2));
    }

    #[test]
    fn below_stays_below_and_chance_knows_its_ends() {
        // Goal: bounds hold. Method: many draws at small bounds, and probabilities 0 and 1.
        let mut e = Entropy::new(1);
        assert!((0..10_000).all(|i| e.below(i % 9 + 1) < i % 9 + 1));
        assert!((0..1_000).all(|_| e.chance(1.0) && !e.chance(0.0)));
    }
}
