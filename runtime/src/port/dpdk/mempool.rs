//! DPDK's buffers and the pools that they come from and go back to.
#![allow(unsafe_code, reason = "calls C")]

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pannier_dpdk_sys as sys;

use super::{Trouble, eal};
use crate::packet::Lender;

/// Buffers in a thread's cache; it may grow by half.
const CACHE: u32 = 256;
/// Bytes of a buffer: 128 in front of the frame, and 2,048 for it (`RTE_MBUF_DEFAULT_BUF_SIZE`).
const BUFFER_BYTES: u16 = 128 + FRAME_BYTES;
/// Bytes of a frame that one buffer holds; a longer one is a chain.
pub(super) const FRAME_BYTES: u16 = 2_048;
/// Any memory node (`SOCKET_ID_ANY`).
const ANY_NODE: i32 = -1;
/// Buffers that are not lent, so that the driver and what is to be sent can have them: as many as a driver's ring takes.
/// Of a small pool it is a quarter.
const RESERVE: u32 = 1_024;

// SAFETY: `give_back` takes every mbuf on any thread; pools are there for ever.
pub(super) static MBUFS: Lender = unsafe { Lender::new(give_back) };

/// Gives an mbuf back to its pool.
///
/// # Safety
/// It is one, and is not used after this.
unsafe fn give_back(mbuf: NonNull<()>) {
    eal::enter(); // into the cache of this thread
    // SAFETY: as the caller says.
    unsafe { sys::pannier_free(mbuf.as_ptr().cast()) }
}

/// Pools that no port has any more. They and those of open ports are as many as ports ever were open at once, or closed with
/// packets still under way.
static IDLE: Mutex<Vec<Memory>> = Mutex::new(Vec::new());

/// The memory of a pool. It is never freed: packets have its buffers for as long as they like, and rings that ports share.
#[derive(Debug)]
struct Memory {
    pool: NonNull<sys::rte_mempool>,
    /// How many buffers it has.
    buffers: u32,
}

impl Memory {
    /// Buffers that nobody has; about, while threads give some back.
    fn available(&self) -> u32 {
        // SAFETY: the pool is there for ever.
        unsafe { sys::rte_mempool_avail_count(self.pool.as_ptr()) }
    }
}

// SAFETY: pools belong to the process; each thread may take and give buffers.
unsafe impl Send for Memory {}

/// A port's own buffers.
#[derive(Debug)]
pub(super) struct Mempool(Memory);

impl Mempool {
    /// At least so many buffers: those of a port that was closed, if all are back, else new ones.
    pub(super) fn new(buffers: u32) -> Result<Self, Trouble> {
        let mut idle = idle();
        let fits = |memory: &Memory| memory.buffers >= buffers && memory.available() == memory.buffers;
        let found = idle.iter().enumerate().filter(|(_, memory)| fits(memory));
        if let Some((at, _)) = found.min_by_key(|(_, memory)| memory.buffers) {
            return Ok(Mempool(idle.swap_remove(at)));
        }
        static POOLS: AtomicU64 = AtomicU64::new(0);
        let name = format!("pannier-{}", POOLS.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).expect("a number has no zero byte");
        // SAFETY: a name that ends by zero, which is copied.
        let pool =
            unsafe { sys::rte_pktmbuf_pool_create(name.as_ptr(), buffers, CACHE, 0, BUFFER_BYTES, ANY_NODE) };
        NonNull::new(pool).map(|pool| Mempool(Memory { pool, buffers })).ok_or_else(|| {
            let problem = format!("there is no memory for its buffers: {}", eal::last_error());
            Trouble::new(
                problem,
                "open fewer ports, or reserve huge pages with `sysctl -w vm.nr_hugepages=256`",
            )
        })
    }

    pub(super) fn as_ptr(&self) -> NonNull<sys::rte_mempool> {
        self.0.pool
    }

    /// How many buffers there are.
    pub(super) fn buffers(&self) -> u32 {
        self.0.buffers
    }

    #[cfg(test)]
    pub(super) fn available(&self) -> u32 {
        self.0.available()
    }

    /// Buffers that are not lent.
    pub(super) fn reserve(&self) -> u32 {
        RESERVE.min(self.0.buffers / 4)
    }
}

impl Drop for Mempool {
    fn drop(&mut self) {
        let Memory { pool, buffers } = self.0;
        idle().push(Memory { pool, buffers });
    }
}

/// The list is whole between any two of its operations.
fn idle() -> MutexGuard<'static, Vec<Memory>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}
