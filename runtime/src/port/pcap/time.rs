//! Time stamps of captures, and the byte orders they come in.

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// The 32-bit number at `at`, which must lie in `bytes`.
    pub(super) fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[at..at + 4]);
        match self {
            Self::Little => u32::from_le_bytes(word),
            Self::Big => u32::from_be_bytes(word),
        }
    }

    /// The 16-bit number at `at`, which must lie in `bytes`.
    pub(super) fn u16_at(self, bytes: &[u8], at: usize) -> u16 {
        let pair = [bytes[at], bytes[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(pair),
            Self::Big => u16::from_be_bytes(pair),
        }
    }

    /// The signed 64-bit number that `bytes` are.
    pub(super) fn i64_of(self, bytes: [u8; 8]) -> i64 {
        match self {
            Self::Little => i64::from_le_bytes(bytes),
            Self::Big => i64::from_be_bytes(bytes),
        }
    }
}

/// How the time stamps of a pcapng interface count (options `if_tsresol` and `if_tsoffset`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeScale {
    /// One unit is 10^-n seconds, or 2^-n seconds where the highest bit is set.
    pub(super) resolution: u8,
    /// Seconds to add to every time.
    pub(super) offset: i64,
}

impl Default for TimeScale {
    /// Microseconds since the Unix epoch, what the format means when it says nothing.
    fn default() -> Self {
        Self { resolution: 6, offset: 0 }
    }
}

impl TimeScale {
    /// The time `units` in nanoseconds since the Unix epoch. What is finer is cut off; a time before 1970 or
    /// after 2554 becomes the nearest one that can be said.
    pub(super) fn nanoseconds(self, units: u64) -> u64 {
        const SECOND: u128 = 1_000_000_000;
        let units = u128::from(units);
        let exponent = u32::from(self.resolution & 0x7f);
        let since = if self.resolution & 0x80 != 0 {
            (units * SECOND) >> exponent
        } else if exponent <= 9 {
            units * 10_u128.pow(9 - exponent)
        } else {
            10_u128.checked_pow(exponent - 9).map_or(0, |divisor| units / divisor)
        };
        // Below 2^64 * 10^9, and the offset below 2^63 * 10^9: the sum stays far inside 127 bits.
        let since = i128::try_from(since).unwrap_or(i128::MAX);
        let total = since.saturating_add(i128::from(self.offset) * 1_000_000_000);
        u64::try_from(total.max(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::TimeScale;

    #[test]
    fn units_become_nanoseconds() {
        // Goal: every kind of resolution and offset gives the right time. Method: values computed by hand.
        let time = |resolution, offset, units| TimeScale { resolution, offset }.nanoseconds(units);
        assert_eq!(time(6, 0, 1_500_000), 1_500_000_000);
        assert_eq!(time(0, 0, 7), 7_000_000_000);
        assert_eq!(time(9, 0, 123), 123);
        assert_eq!(time(12, 0, 123_999), 123);
        assert_eq!(time(0x80, 0, 3), 3_000_000_000);
        assert_eq!(time(0x80 | 10, 0, 512), 500_000_000);
        assert_eq!(time(0x80 | 63, 0, 1 << 63), 1_000_000_000);
        assert_eq!(time(6, 10, 1), 10_000_001_000);
        assert_eq!(time(6, -10, 10_000_001), 1_000);
        assert_eq!(time(6, -10, 1), 0, "before 1970");
        assert_eq!(time(0, 0, u64::MAX), u64::MAX, "after 2554");
        assert_eq!(time(0, i64::MAX, u64::MAX), u64::MAX);
        assert_eq!(time(127, i64::MIN, u64::MAX), 0);
        assert_eq!(time(0xff, 0, u64::MAX), 0);
    }
}
