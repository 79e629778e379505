//! CRC-32C (RFC 3720, appendix B.4), the checksum of everything that Pannier writes: units, messages beside the ring, logs;
//! and of SCTP.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The checksum of what has the checksum `crc`, with `bytes` behind it.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32 // the upper half is zero
}

/// The same bit by bit, by the reflected polynomial: what tests compare with.
#[cfg(test)]
pub(crate) fn slow(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_check_value_is_that_of_the_catalogue() {
        // Goal: peers and files of other makes agree. Method: the check value that is published for CRC-32/ISCSI.
        assert_eq!((crc32c(b"123456789"), slow(b"123456789"), crc32c(b"")), (0xe306_9283, 0xe306_9283, 0));
    }

    proptest! {
        #[test]
        fn pieces_come_to_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..3_000), cut in any::<prop::sample::Index>()) {
            // Goal: lengths and cuts make no difference. Method: random bytes and cuts, beside a loop over bits.
            let (front, behind) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(crc32c(&bytes), slow(&bytes));
            prop_assert_eq!(crc32c_append(crc32c(front), behind), slow(&bytes));
        }
    }
}
