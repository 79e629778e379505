//! One port of DPDK with a queue each way and a pool of buffers, behind functions that are safe to call.
#![allow(unsafe_code, reason = "calls C, and lends buffers that it hands out")]

use std::ffi::CString;
use std::ops::RangeInclusive;
use std::ptr::{self, NonNull};

use pannier_dpdk_sys as sys;

use super::mempool::{FRAME_BYTES, MBUFS, Mempool};
use super::{SHORTEST, Trouble, eal};
use crate::clock::Nanos;
use crate::limits::{HEADROOM, MAX_FRAME};
use crate::packet::{Lent, Packet, Pool};

/// Most frames of one burst. Drivers work best with 32; what waits in their rings is taken in turns.
pub(super) const BURST: usize = 32;
/// Places in the rings of a driver that has such.
const DESCRIPTORS: u16 = 1_024;
/// Buffers of a port where nothing else is said: full rings each way, what three threads have in their caches, and a
/// chain of the longest frame. One less than a power of two is what a pool's ring likes best.
pub(super) const BUFFERS: usize = 4_095;
/// How many there may be: at least what one thread keeps in its cache, and some.
pub(super) const BUFFERS_ALLOWED: RangeInclusive<usize> = 1_023..=(1 << 20) - 1;
/// How often frames are offered to a full driver before they are dropped.
const ATTEMPTS: usize = 16;

/// What became of frames that were to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    /// Frames that can be sent.
    pub(super) given: usize,
    /// Of these, had a buffer or found one.
    pub(super) filled: usize,
    /// Of these, were taken by the driver.
    pub(super) taken: usize,
}

/// What has arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    /// How many frames.
    pub(super) count: usize,
    /// Some may be of lengths that are not passed on.
    pub(super) is_odd: bool,
}

/// A started port.
#[derive(Debug)]
pub(super) struct Ethdev {
    /// Is closed before its buffers are for another.
    port: Plugged,
    pool: Mempool,
    /// Whether the driver sends frames that are chains of buffers.
    chains: bool,
    mbufs: [*mut sys::rte_mbuf; BURST],
    pieces: [sys::pannier_piece; BURST],
    frames: [sys::pannier_frame; BURST],
}

// SAFETY: DPDK's ports and pools belong to the process, not to a thread. The queues are used by one thread at a time,
// since every call that uses them takes `&mut self`. The arrays hold pointers during such a call only.
unsafe impl Send for Ethdev {}

impl Ethdev {
    /// Plugs `device` in and starts its port, with so many `buffers` of its own.
    pub(super) fn open(device: CString, options: &CString, buffers: usize) -> Result<Self, Trouble> {
        eal::start()?;
        let pool = Mempool::new(u32::try_from(buffers).unwrap_or(u32::MAX))?;
        let number = eal::plug(&device, options)?;
        let port = Plugged { device, number };
        // SAFETY: the pool is there for ever.
        let chains = unsafe { eal::start_port(number, pool.as_ptr(), DESCRIPTORS)? };
        let (mbuf, bytes) = (ptr::null_mut(), ptr::null_mut());
        let piece = sys::pannier_piece { mbuf, bytes, length: 0, before: 0, behind: 0, more: 0 };
        let frame = sys::pannier_frame { mbuf, bytes, length: 0 };
        let (mbufs, pieces, frames) = ([mbuf; BURST], [piece; BURST], [frame; BURST]);
        Ok(Ethdev { port, pool, chains, mbufs, pieces, frames })
    }

    #[cfg(test)]
    pub(super) fn pool(&self) -> &Mempool {
        &self.pool
    }

    /// The longest frame that can be sent, in bytes.
    pub(super) fn longest(&self) -> usize {
        if self.chains { MAX_FRAME } else { usize::from(FRAME_BYTES) }
    }

    /// Appends a burst of up to `most` frames to `burst`, each in the buffer that it arrived in where that can be kept.
    pub(super) fn receive(
        &mut self,
        most: usize,
        pool: &mut Pool,
        burst: &mut Vec<Packet>,
        now: impl FnOnce() -> Nanos,
    ) -> Received {
        let count = self.receive_pieces(most);
        if count == 0 {
            return Received::default();
        }
        let mut is_odd = false;
        let (first, time) = (burst.len(), now());
        pool.take_used(count, burst);
        for (packet, piece) in burst[first..].iter_mut().zip(&self.pieces) {
            if usize::from(piece.before) >= HEADROOM {
                // SAFETY: a buffer that we just got.
                let (lent, length) = unsafe { lend(piece) };
                is_odd |= length < SHORTEST;
                packet.borrow(lent, length, time);
            } else {
                packet.reset();
                packet.meta.time = time;
                // SAFETY: a buffer that we just got, and give back here.
                unsafe { copy(*piece, packet) }
                is_odd = true;
            }
        }
        Received { count, is_odd }
    }

    fn receive_pieces(&mut self, most: usize) -> usize {
        eal::enter();
        let most = u16::try_from(most.min(BURST)).expect("a burst is small");
        let (port, pool, reserve) = (self.port.number, self.pool.as_ptr().as_ptr(), self.pool.reserve());
        // SAFETY: the port is started and this is its only user; the array has room for `most`.
        usize::from(unsafe { sys::pannier_rx_burst(port, pool, reserve, self.pieces.as_mut_ptr(), most) })
    }

    /// Sends up to [`BURST`] frames, in the buffers that they lie in where these are DPDK's: offers them to the driver until
    /// it has taken them or stays full. Frames of lengths that can't be sent are left where they are and told to `refuse`.
    pub(super) fn send(&mut self, packets: &mut [Packet], mut refuse: impl FnMut(usize)) -> Sent {
        eal::enter();
        let (lengths, mut given) = (SHORTEST..=self.longest(), 0);
        for packet in packets {
            let bytes = packet.frame();
            let (bytes, length) = (bytes.as_ptr(), bytes.len());
            if !lengths.contains(&length) {
                refuse(length);
                continue;
            }
            let mbuf = packet.take_loan(&MBUFS).map_or(ptr::null_mut(), |loan| loan.into_handle().as_ptr());
            self.frames[given] = sys::pannier_frame { mbuf: mbuf.cast(), bytes, length: length as u32 };
            given += 1;
        }
        // SAFETY: `given` frames, in buffers of ours or in packets; no more are written to `mbufs`.
        let filled = unsafe {
            let pool = self.pool.as_ptr().as_ptr();
            sys::pannier_fill(pool, self.frames.as_ptr(), self.mbufs.as_mut_ptr(), given as u16)
        };
        let mut sent = Sent { given, filled: filled.into(), taken: 0 };
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
        for &mbuf in &self.mbufs[sent.taken..sent.filled] {
            // SAFETY: a buffer of ours, which is not used after this.
            unsafe { sys::pannier_free(mbuf) }
        }
        sent
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
        let mut most = self.pool.buffers() as usize;
        while most > 0 {
            let count = self.receive_pieces(BURST);
            for piece in &self.pieces[..count] {
                // SAFETY: a buffer that we just got, and do not use.
                unsafe { sys::pannier_free(piece.mbuf) }
            }
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

/// Lends a buffer that may be kept, and tells how long the frame in it is. What is in front of the headroom is not lent.
///
/// # Safety
/// The buffer was received, is whole, and is not used by this piece again.
#[inline]
unsafe fn lend(piece: &sys::pannier_piece) -> (Lent, usize) {
    let length = usize::from(piece.length);
    // SAFETY: DPDK's buffers are never null; there are `before` and `behind` bytes around the frame, which the pool's
    // creation has set, and nobody else has the buffer.
    let lent = unsafe {
        let base = NonNull::new_unchecked(piece.bytes.sub(HEADROOM));
        let handle = NonNull::new_unchecked(piece.mbuf).cast();
        Lent::new(&MBUFS, handle, base, HEADROOM + length + usize::from(piece.behind))
    };
    (lent, length)
}

/// Copies a frame, perhaps in several pieces, and gives its buffers back.
///
/// # Safety
/// The buffers were received and are not used by this piece again.
#[cold]
unsafe fn copy(mut piece: sys::pannier_piece, packet: &mut Packet) {
    let first = piece.mbuf;
    packet.fill_frame(|frame| {
        loop {
            // SAFETY: `length` bytes that the driver has written; the buffers are given back below.
            frame.put(unsafe { std::slice::from_raw_parts(piece.bytes, piece.length.into()) });
            if piece.more == 0 {
                break;
            }
            // SAFETY: it is not the last.
            unsafe { sys::pannier_next(&raw mut piece) }
        }
    });
    // SAFETY: the first buffer of the frame, and with it all others.
    unsafe { sys::pannier_free(first) }
}
