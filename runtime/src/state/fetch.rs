//! Fetching: tells the processor of memory that is about to be used, and waits for nothing.
#![allow(unsafe_code)] // the instruction takes any address

/// Bytes that are fetched at once.
const LINE: usize = 64;

/// Has the processor fetch a value into its nearest cache, where it can.
#[inline(always)]
pub(super) fn fetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        for at in (0..size_of::<T>()).step_by(LINE).chain(size_of::<T>().checked_sub(1)) {
            // SAFETY: a hint, which reads nothing that the program could see and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
