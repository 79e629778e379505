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
    match *tries {
        ..SPINS => std::hint::spin_loop(),
        SPINS..YIELDS => std::thread::yield_now(),
        _ => std::thread::sleep(NAP),
    }
}

/// How often a wait spins before it yields: about as long as a short unit takes.
#[cfg(not(loom))]
const SPINS: u32 = 128;

/// From here on it sleeps: a thread that only yields is taken for a busy one, and others on its core wait for it.
#[cfg(not(loom))]
const YIELDS: u32 = SPINS + 32;

#[cfg(not(loom))]
const NAP: std::time::Duration = std::time::Duration::from_micros(20);
