//! Atomics of the standard library, or loom's in its place, so that loom can try every interleaving.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Waits a little for another core; the more often it was in vain, the more of the core is given to others.
pub(crate) fn pause(tries: &mut u32) {
    *tries = tries.saturating_add(1);
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    if *tries < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
}

/// How often a wait spins before it yields: about as long as a short unit takes.
#[cfg(not(loom))]
const SPINS: u32 = 128;
