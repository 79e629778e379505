//! One port of DPDK with a queue each way and a pool of buffers, behind functions that are safe to call.
#![allow(unsafe_code, reason = "calls C, and reads buffers that it hands out")]

use std::ffi::CString;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use pannier_dpdk_sys as sys;

use super::{Trouble, eal};
use crate::limits::MAX_FRAME;

/// Most frames of one burst. Drivers work best with 32; what waits in their rings is taken in turns.
pub(super) const BURST: usize = 32;
/// Places in the rings of a driver that has such.
const DESCRIPTORS: u16 = 1_024;
/// Buffers of a port where nothing else is said: full rings each way, what three threads have in their caches, and a
/// chain of the longest frame. One less than a power of two is what a pool's ring likes best.
pub(super) const BUFFERS: usize = 4_095;
/// How many there may be: at least what one thread keeps in its cache, and some.
pub(super) const BUFFERS_ALLOWED: RangeInclusive<usize> = 1_023..=(1 << 20) - 1;
/// Buffers in a thread's cache; it may grow by half.
const CACHE: u32 = 256;
/// Bytes of a buffer: 128 in front of the frame, and 2,048 for it (`RTE_MBUF_DEFAULT_BUF_SIZE`).
const BUFFER_BYTES: u16 = 128 + FRAME_BYTES;
/// Bytes of a frame that one buffer holds; a longer one is a chain.
const FRAME_BYTES: u16 = 2_048;
/// How often frames are offered to a full driver before they are dropped.
const ATTEMPTS: usize = 16;
/// Any memory node (`SOCKET_ID_ANY`).
const ANY_NODE: i32 = -1;

/// What became of frames that were to be sent. Each number holds for the first frames only, so they never grow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    /// Frames that were given.
    pub(super) given: usize,
    /// Of these, found a buffer.
    pub(super) filled: usize,
    /// Of these, were taken by the driver.
    pub(super) taken: usize,
}

/// A started port.
#[derive(Debug)]
pub(super) struct Ethdev {
    /// Is closed before its buffers go.
    port: Plugged,
    pool: Pool,
    /// Whether the driver sends frames that are chains of buffers.
    chains: bool,
    mbufs: [*mut sys::rte_mbuf; BURST],
    pieces: [sys::pannier_bytes; BURST],
}

// SAFETY: DPDK's ports and pools belong to the process, not to a thread. The queues are used by one thread at a time,
// since every call that uses them takes `&mut self`. The arrays hold pointers during such a call only.
unsafe impl Send for Ethdev {}

impl Ethdev {
    /// Plugs `device` in and starts its port, with so many `buffers` of its own.
    pub(super) fn open(device: CString, options: &CString, buffers: usize) -> Result<Self, Trouble> {
        eal::start()?;
        let pool = Pool::new(u32::try_from(buffers).unwrap_or(u32::MAX))?;
        let number = eal::plug(&device, options)?;
        let port = Plugged { device, number };
        // SAFETY: the port is dropped before the pool, here and in `Ethdev`.
        let chains = unsafe { eal::start_port(number, pool.pool, DESCRIPTORS)? };
        let none = sys::pannier_bytes { bytes: ptr::null(), length: 0, more: 0 };
        Ok(Ethdev { port, pool, chains, mbufs: [ptr::null_mut(); BURST], pieces: [none; BURST] })
    }

    /// The longest frame that can be sent, in bytes.
    pub(super) fn longest(&self) -> usize {
        if self.chains { MAX_FRAME } else { usize::from(FRAME_BYTES) }
    }

    /// Takes a burst of up to `most` frames.
    pub(super) fn receive(&mut self, most: usize) -> Received<'_> {
        let count = self.receive_mbufs(most);
        Received { ethdev: self, count }
    }

    fn receive_mbufs(&mut self, most: usize) -> usize {
        eal::enter();
        let most = u16::try_from(most.min(BURST)).expect("a burst is small");
        // SAFETY: the port is started and this is its only user; both arrays have room for `most`.
        let count = unsafe {
            sys::pannier_rx_burst(self.port.number, self.mbufs.as_mut_ptr(), self.pieces.as_mut_ptr(), most)
        };
        usize::from(count)
    }

    /// Sends up to [`BURST`] frames: copies them into buffers, and offers these to the driver until it has taken them
    /// or stays full.
    pub(super) fn send<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]>) -> Sent {
        eal::enter();
        let mut sent = Sent::default();
        for (frame, piece) in frames.zip(&mut self.pieces) {
            let length = u32::try_from(frame.len()).expect("frames are shorter than 4 GiB");
            *piece = sys::pannier_bytes { bytes: frame.as_ptr(), length, more: 0 };
            sent.given += 1;
        }
        let given = u16::try_from(sent.given).expect("a burst is small");
        // SAFETY: `given` frames, all borrowed for `'a`; as many buffers are written to `mbufs`.
        let filled = unsafe {
            let pool = self.pool.pool.as_ptr();
            sys::pannier_fill(pool, self.pieces.as_ptr(), self.mbufs.as_mut_ptr(), given)
        };
        sent.filled = usize::from(filled);
        for _ in 0..ATTEMPTS {
            let rest = &mut self.mbufs[sent.taken..sent.filled];
            let count = u16::try_from(rest.len()).expect("a burst is small");
            // SAFETY: the port is started and this is its only user; `rest` is buffers of ours.
            sent.taken +=
                usize::from(unsafe { sys::pannier_tx_burst(self.port.number, rest.as_mut_ptr(), count) });
            if sent.taken == sent.filled {
                return sent;
            }
            std::hint::spin_loop();
        }
        self.free(sent.taken, sent.filled);
        sent
    }

    /// Gives the buffers from number `from` to `to` back to their pool.
    fn free(&mut self, from: usize, to: usize) {
        let mbufs = &mut self.mbufs[from..to];
        let count = u32::try_from(mbufs.len()).expect("a burst is small");
        // SAFETY: buffers that nobody else has; they are not used after this.
        unsafe { sys::rte_pktmbuf_free_bulk(mbufs.as_mut_ptr(), count) }
    }

    /// What the driver has counted.
    pub(super) fn counts(&self) -> sys::rte_eth_stats {
        // SAFETY: numbers only, for which zero is a value.
        let mut counts: sys::rte_eth_stats = unsafe { std::mem::zeroed() };
        // SAFETY: the port exists; the struct is written to. A driver that counts nothing leaves zeros.
        let _ = unsafe { sys::rte_eth_stats_get(self.port.number, &raw mut counts) };
        counts
    }
}

impl Drop for Ethdev {
    /// What waits in the port holds buffers of the pool. A device that brings ever more must not keep us here.
    fn drop(&mut self) {
        let mut most = self.pool.buffers as usize;
        while most > 0 {
            let count = self.receive_mbufs(BURST);
            self.free(0, count);
            most = if count == 0 { 0 } else { most.saturating_sub(count) };
        }
    }
}

/// A device that is plugged in.
#[derive(Debug)]
struct Plugged {
    device: CString,
    /// DPDK's number of the port.
    number: u16,
}

impl Drop for Plugged {
    fn drop(&mut self) {
        // SAFETY: the port exists, and nobody uses it any more. What fails here leaves a port that nobody uses.
        unsafe {
            let _ = sys::rte_eth_promiscuous_disable(self.number);
            let _ = sys::rte_eth_dev_stop(self.number);
            let _ = sys::rte_eth_dev_close(self.number);
        }
        eal::unplug(&self.device);
    }
}

/// A burst of frames in the buffers that they arrived in, which go back to their pool at the end.
#[derive(Debug)]
pub(super) struct Received<'a> {
    ethdev: &'a mut Ethdev,
    count: usize,
}

impl Received<'_> {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The frames, in order.
    pub(super) fn frames(&self) -> impl Iterator<Item = Pieces<'_>> {
        let buffers = self.ethdev.mbufs.iter().zip(&self.ethdev.pieces).take(self.count);
        buffers.map(|(mbuf, piece)| Pieces { next: Some(*piece), mbuf: *mbuf, frame: PhantomData })
    }
}

impl Drop for Received<'_> {
    fn drop(&mut self) {
        self.ethdev.free(0, self.count);
    }
}

/// The bytes of a frame, piece by piece.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    next: Option<sys::pannier_bytes>,
    /// The buffer of that piece.
    mbuf: *const sys::rte_mbuf,
    /// The buffers stay while the frame is borrowed.
    frame: PhantomData<&'a [u8]>,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let piece = self.next.take()?;
        if piece.more > 0 {
            let mut behind = piece;
            // SAFETY: the buffer has not been given back: that is done when `Received` ends, which is borrowed.
            let mbuf = unsafe { sys::pannier_next(self.mbuf, &raw mut behind) };
            if !mbuf.is_null() {
                behind.more = piece.more - 1;
                (self.mbuf, self.next) = (mbuf, Some(behind));
            }
        }
        // SAFETY: `length` bytes that the driver has written; they stay as long as the buffer, see above.
        Some(unsafe { std::slice::from_raw_parts(piece.bytes, piece.length as usize) })
    }
}

/// A port's own buffers.
#[derive(Debug)]
struct Pool {
    pool: NonNull<sys::rte_mempool>,
    /// How many buffers it has.
    buffers: u32,
}

impl Pool {
    fn new(buffers: u32) -> Result<Self, Trouble> {
        static POOLS: AtomicU64 = AtomicU64::new(0);
        let name = format!("pannier-{}", POOLS.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).expect("a number has no zero byte");
        // SAFETY: a name that ends by zero, which is copied.
        let pool =
            unsafe { sys::rte_pktmbuf_pool_create(name.as_ptr(), buffers, CACHE, 0, BUFFER_BYTES, ANY_NODE) };
        NonNull::new(pool).map(|pool| Pool { pool, buffers }).ok_or_else(|| {
            let problem = format!("there is no memory for its buffers: {}", eal::last_error());
            Trouble::new(
                problem,
                "open fewer ports, or reserve huge pages with `sysctl -w vm.nr_hugepages=256`",
            )
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the pool is ours. It is freed when all its buffers are back; a ring that is shared with another
        // port may still hold some, and then the pool stays.
        unsafe {
            if sys::rte_mempool_avail_count(self.pool.as_ptr()) == self.buffers {
                sys::rte_mempool_free(self.pool.as_ptr());
            }
        }
    }
}
