//! The internet checksum (RFC 1071), its pseudo headers, and its incremental update (RFC 1624).
//!
//! An update never looks at the rest of the packet, so a checksum that was wrong stays wrong by
//! the same amount: the receiver still finds the fault that came in.

/// A running one's complement sum of 16-bit words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    #[must_use]
    pub const fn new() -> Sum {
        Sum(0)
    }

    /// Adds a run of bytes as big-endian words. An odd last byte counts as the high half of a word,
    /// so only the last run may be odd.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Sum {
        let mut sum = self.0;
        let (words, rest) = bytes.as_chunks::<4>();
        for word in words {
            // 2^32 terms of 32 bits fit: far more than a packet has.
            sum = sum.wrapping_add(u64::from(u32::from_be_bytes(*word)));
        }
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        Sum(fold32(sum.wrapping_add(u64::from(u32::from_be_bytes(last)))))
    }

    /// Adds one word.
    #[inline]
    #[must_use]
    pub const fn word(self, word: u16) -> Sum {
        Sum(self.0 + word as u64) // 2^47 of them fit
    }

    /// The pseudo header of IPv4 (RFC 9293 §3.1, RFC 768): addresses, protocol, L4 length in bytes.
    #[must_use]
    pub fn pseudo_ipv4(source: [u8; 4], destination: [u8; 4], protocol: u8, length: u16) -> Sum {
        Sum::new().bytes(&source).bytes(&destination).word(u16::from(protocol)).word(length)
    }

    /// The pseudo header of IPv6 (RFC 8200 §8.1): addresses, L4 length in bytes, protocol.
    #[must_use]
    pub fn pseudo_ipv6(source: [u8; 16], destination: [u8; 16], protocol: u8, length: u32) -> Sum {
        Sum::new().bytes(&source).bytes(&destination).bytes(&length.to_be_bytes()).word(u16::from(protocol))
    }

    /// The checksum to write, if the checksum field was summed as zero.
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !fold16(self.0)
    }

    /// The checksum to write into a UDP header: a computed 0 is sent as 0xFFFF (RFC 768).
    #[must_use]
    pub const fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xFFFF,
            checksum => checksum,
        }
    }

    /// Whether the bytes, summed with their checksum, verify.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        fold16(self.0) == 0xFFFF
    }
}

/// The difference that edits make to a sum, to be applied to any number of checksums: an address
/// counts in the IPv4 header's and, through the pseudo header, in the L4 checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta(Sum);

impl Delta {
    /// No change.
    #[must_use]
    pub const fn new() -> Delta {
        Delta(Sum::new())
    }

    /// Adds the change of one word.
    #[inline]
    #[must_use]
    pub const fn word(self, old: u16, new: u16) -> Delta {
        Delta(self.0.word(!old).word(new))
    }

    /// Adds the change of a run of an even number of bytes that starts at an even place.
    #[inline]
    #[must_use]
    pub fn bytes<const N: usize>(self, old: [u8; N], new: [u8; N]) -> Delta {
        const { assert!(N.is_multiple_of(2), "a checksum covers whole words") };
        Delta(self.0.bytes(&old.map(|byte| !byte)).bytes(&new))
    }

    /// Adds the changes of another delta.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Delta) -> Delta {
        Delta(Sum(fold32(self.0.0 + other.0.0)))
    }

    /// Whether the edits leave every sum as it was.
    #[inline]
    #[must_use]
    pub const fn is_nothing(self) -> bool {
        matches!(fold16(self.0.0), 0 | 0xFFFF)
    }

    /// The updated checksum, RFC 1624 equation 3: `HC' = ~(~HC + ~m + m')`.
    /// If nothing changed, neither does the checksum, in whichever way it writes zero.
    #[inline]
    #[must_use]
    pub const fn apply(self, checksum: u16) -> u16 {
        if self.is_nothing() { checksum } else { !fold16(!checksum as u64 + fold16(self.0.0) as u64) }
    }

    /// The updated checksum of a UDP header: 0 (not computed) stays, a computed 0 becomes 0xFFFF.
    #[inline]
    #[must_use]
    pub const fn apply_udp(self, checksum: u16) -> u16 {
        match (checksum, self.apply(checksum)) {
            (0, _) => 0,
            (_, 0) => 0xFFFF,
            (_, updated) => updated,
        }
    }
}

/// The checksum of `bytes`, whose checksum field must be zero.
#[must_use]
pub fn internet(bytes: &[u8]) -> u16 {
    Sum::new().bytes(bytes).checksum()
}

/// The checksum after one covered 16-bit field changed.
#[must_use]
pub const fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    Delta::new().word(old, new).apply(checksum)
}

/// The checksum after one covered 32-bit field (an IPv4 address) changed.
#[must_use]
pub fn update32(checksum: u16, old: [u8; 4], new: [u8; 4]) -> u16 {
    Delta::new().bytes(old, new).apply(checksum)
}

/// The checksum after one covered 128-bit field (an IPv6 address) changed.
#[must_use]
pub fn update128(checksum: u16, old: [u8; 16], new: [u8; 16]) -> u16 {
    Delta::new().bytes(old, new).apply(checksum)
}

/// Folds carries back in until 32 bits remain: the sum modulo 0xFFFF is kept, and zero only for zero. The upper half of
/// the sum is added to the lower one and the other way round, whose carry is the one to bring back.
const fn fold32(sum: u64) -> u64 {
    sum.wrapping_add(sum.rotate_left(32)) >> 32
}

/// Folds carries back in until 16 bits remain. Zero only for the sum of zeros.
const fn fold16(sum: u64) -> u16 {
    let sum = fold32(sum) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rfc_examples() {
        // Goal: the arithmetic is the RFCs'. Method: the worked examples of RFC 1071 §3 and RFC 1624 §4.
        assert_eq!(internet(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(update16(0xDD2F, 0x5555, 0x3285), 0x0000);
        assert_eq!(internet(&[]), 0xFFFF);
        assert_eq!(internet(&[0xAB]), !0xAB00);
    }

    #[test]
    fn no_change_keeps_either_zero() {
        // Goal: an edit without effect leaves the packet's bytes. Method: both zeros, changes that sum to none.
        for checksum in [0, 0xFFFF] {
            assert_eq!(update16(checksum, 5, 5), checksum);
            assert_eq!(update32(checksum, [1, 2, 3, 4], [3, 4, 1, 2]), checksum);
            assert_eq!(Delta::new().apply(checksum), checksum);
        }
    }

    #[test]
    fn udp_zero_means_not_computed() {
        // Goal: RFC 768's two zeros are kept apart. Method: the update that lands on zero, and from zero.
        let delta = Delta::new().word(0x5555, 0x3285);
        assert_eq!(delta.apply(0xDD2F), 0);
        assert_eq!(delta.apply_udp(0xDD2F), 0xFFFF);
        assert_eq!(delta.apply_udp(0), 0);
        assert_eq!(Sum::new().word(0xFFFF).udp_checksum(), 0xFFFF);
    }

    /// Overwrites N bytes at an even place before the last byte, and returns what was there.
    fn edit<const N: usize>(data: &mut [u8], at: usize, new: [u8; N]) -> [u8; N] {
        let at = (at % (data.len() - N)) & !1;
        let old = data[at..at + N].try_into().expect("the run has N bytes");
        data[at..at + N].copy_from_slice(&new);
        old
    }

    proptest! {
        #[test]
        fn incremental_equals_recomputed(
            mut data in prop::collection::vec(any::<u8>(), 40..80),
            at: [usize; 3], short: u16, mid: [u8; 4], long: [u8; 16],
        ) {
            // Goal: RFC 1624 loses nothing. Method: random edits of all three widths, then recompute.
            data.push(1); // only all zeros has two sums, and no header with a pseudo header is that
            let mut checksum = internet(&data);
            let old = edit(&mut data, at[0], long);
            checksum = update128(checksum, old, long);
            prop_assert_eq!(checksum, internet(&data));
            let old = edit(&mut data, at[1], mid);
            checksum = update32(checksum, old, mid);
            prop_assert_eq!(checksum, internet(&data));
            let old = edit(&mut data, at[2], short.to_be_bytes());
            checksum = update16(checksum, u16::from_be_bytes(old), short);
            prop_assert_eq!(checksum, internet(&data));
        }

        #[test]
        fn wrong_stays_wrong_by_the_same_amount(
            checksum: u16, error in 1..0xFFFF_u32, old: [u8; 16], new: [u8; 16],
        ) {
            // Goal: an update hides no damage. Method: update a right and a damaged checksum alike.
            let damaged = ((u32::from(checksum) + error) % 0xFFFF) as u16;
            let distance = |a: u16, b: u16| (u32::from(b) + 0xFFFF - u32::from(a)) % 0xFFFF;
            let (right, wrong) = (update128(checksum, old, new), update128(damaged, old, new));
            prop_assert_eq!(distance(checksum, damaged), error);
            prop_assert_eq!(distance(right, wrong), error);
        }

        #[test]
        fn an_edit_and_its_reverse_cancel(checksum in 0..0xFFFF_u16, old: [u8; 4], new: [u8; 4]) {
            // Goal: translating there and back restores the packet. Method: apply a change and its reverse.
            prop_assert_eq!(update32(update32(checksum, old, new), new, old), checksum);
            prop_assert_eq!(update32(checksum, old, old), checksum);
        }

        #[test]
        fn a_split_sum_is_the_whole_sum(
            data in prop::collection::vec(any::<u8>(), 0..64), at in 0_usize..64,
        ) {
            // Goal: runs may be summed apart. Method: split at an even place and compare.
            let at = at.min(data.len()) & !1;
            let parts = Sum::new().bytes(&data[..at]).bytes(&data[at..]);
            prop_assert_eq!(parts.checksum(), internet(&data));
        }
    }
}
