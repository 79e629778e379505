//! The memory that a port shares with the kernel, and the four rings through which the two hand its chunks to and fro.
//!
//! ```text
//!          fill ─► kernel ─► received           half of the chunks, for frames that arrive
//!          ready ─► kernel ─► completed         the other half, for frames to send
//! ```
//!
//! A chunk is in one place at a time: in a ring on its way to the kernel, with the kernel, in a ring on its way back, or
//! here. It is read and written only while it is here. Every ring has an entry for each chunk that may come through
//! it, so none ever overflows. Layout and protocol of the rings: the kernel's `Documentation/networking/af_xdp.rst`.
#![allow(unsafe_code)] // memory that the kernel writes to and reads from

use std::io;
use std::marker::PhantomData;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use super::socket::{Mapping, Socket};

/// Bytes of a chunk: the largest that the kernel takes, a page.
pub(super) const CHUNK: usize = 4_096;

/// The chunks and the rings.
#[derive(Debug)]
pub(super) struct Queues {
    memory: Mapping,
    /// Chunks that wait for a frame to arrive, on their way to the kernel.
    fill: Ring<u64>,
    /// Frames that have arrived.
    received: Ring<libc::xdp_desc>,
    /// Frames to send, on their way to the kernel.
    ready: Ring<libc::xdp_desc>,
    /// Chunks whose frames were sent.
    completed: Ring<u64>,
    /// Chunks that are here, for frames to send.
    free: Vec<u64>,
}

impl Queues {
    /// Cuts new memory into `chunks` chunks, a power of two, and gives half of them to the kernel to receive into.
    ///
    /// # Errors
    /// Too little memory, or memory that the kernel may not lock.
    pub(super) fn new(socket: &Socket, chunks: u32) -> io::Result<Queues> {
        let memory = Mapping::anonymous(chunks as usize * CHUNK)?;
        socket.register(&memory, CHUNK as u32)?;
        let half = chunks / 2;
        for ring in
            [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING]
        {
            socket.make_ring(ring, half)?;
        }
        let at = socket.offsets()?;
        let mut queues = Queues {
            memory,
            fill: Ring::new(socket, libc::XDP_UMEM_PGOFF_FILL_RING, &at.fr, half)?,
            received: Ring::new(socket, libc::XDP_PGOFF_RX_RING as u64, &at.rx, half)?,
            ready: Ring::new(socket, libc::XDP_PGOFF_TX_RING as u64, &at.tx, half)?,
            completed: Ring::new(socket, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, half)?,
            free: (half..chunks).map(|chunk| u64::from(chunk) * CHUNK as u64).collect(),
        };
        for chunk in 0..half {
            queues.fill.push(u64::from(chunk) * CHUNK as u64);
        }
        queues.fill.publish_pushed();
        Ok(queues)
    }

    /// Whether frames have arrived.
    pub(super) fn has_received(&self) -> bool {
        self.received.waiting() > 0
    }

    /// Gives up to `most` frames that have arrived to `take`, and their chunks back to the kernel. Returns how many.
    pub(super) fn receive(&mut self, most: usize, mut take: impl FnMut(&[u8])) -> usize {
        let count = (self.received.waiting() as usize).min(most);
        for _ in 0..count {
            let frame = self.received.pop();
            let (start, length) = (frame.addr as usize, frame.len as usize);
            if start.checked_add(length).is_some_and(|end| end <= self.memory.length()) {
                // SAFETY: the bytes are in the mapping. The kernel has filled the chunk and given it back, and gets it
                // again below.
                take(unsafe { slice::from_raw_parts(self.memory.start().as_ptr().add(start), length) });
            }
            self.fill.push(frame.addr - frame.addr % CHUNK as u64);
        }
        self.received.publish_popped();
        self.fill.publish_pushed();
        count
    }

    /// Puts `frame`, of at most [`CHUNK`] bytes, into a chunk that [`Queues::publish`] hands to the kernel. Returns
    /// false where all chunks are under way.
    pub(super) fn send(&mut self, frame: &[u8]) -> bool {
        assert!(frame.len() <= CHUNK, "the caller has seen that the frame fits into a chunk");
        if self.free.is_empty() {
            self.reclaim();
        }
        let Some(chunk) = self.free.pop() else { return false };
        // SAFETY: what is in `free` are starts of chunks in the mapping that are here, and `frame` is not in the
        // mapping: no reference to its bytes leaves `receive`, which borrows all of this.
        unsafe {
            let place = self.memory.start().as_ptr().add(chunk as usize);
            place.copy_from_nonoverlapping(frame.as_ptr(), frame.len());
        }
        self.ready.push(libc::xdp_desc { addr: chunk, len: frame.len() as u32, options: 0 });
        true
    }

    /// Hands the kernel what was put into chunks to send.
    pub(super) fn publish(&mut self) {
        self.ready.publish_pushed();
    }

    /// Takes back the chunks whose frames were sent.
    fn reclaim(&mut self) {
        for _ in 0..self.completed.waiting() {
            let chunk = self.completed.pop();
            if (chunk as usize) < self.memory.length() {
                self.free.push(chunk - chunk % CHUNK as u64);
            }
        }
        self.completed.publish_popped();
    }

    /// How many frames to send the kernel has not taken yet.
    pub(super) fn unsent(&self) -> u32 {
        self.ready.untaken()
    }

    /// Whether the kernel wants a call before it looks at the frames to send.
    pub(super) fn sender_sleeps(&self) -> bool {
        self.ready.needs_wakeup()
    }

    /// Whether the kernel wants a call before it looks at the free chunks.
    pub(super) fn receiver_sleeps(&self) -> bool {
        self.fill.needs_wakeup()
    }
}

/// One side of a ring: the kernel has the other.
#[derive(Debug)]
struct Ring<T> {
    map: Mapping,
    /// Where in the mapping are the producer's index, the consumer's index, the flags, and the entries.
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    /// Index to entry.
    mask: u32,
    /// Our own index, as of now; the kernel sees it when it is published. Indices run on and wrap at 2³².
    ours: u32,
    of: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `count` entries, a power of two.
    fn new(socket: &Socket, offset: u64, at: &libc::xdp_ring_offset, count: u32) -> io::Result<Ring<T>> {
        assert!(count.is_power_of_two(), "rings have a power of two of entries");
        let entries = at.desc as usize;
        let map = socket.map(entries + count as usize * size_of::<T>(), offset)?;
        let (producer, consumer, flags) = (at.producer as usize, at.consumer as usize, at.flags as usize);
        for index in [producer, consumer, flags] {
            assert!(
                index + 4 <= entries && index.is_multiple_of(4),
                "the kernel puts indices before entries"
            );
        }
        assert!(entries.is_multiple_of(align_of::<T>()), "the kernel aligns entries");
        Ok(Ring { map, producer, consumer, flags, entries, mask: count - 1, ours: 0, of: PhantomData })
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `new` has checked that the word is aligned and in the mapping, which is alive as long as `self`. Both
        // sides touch it by atomic operations only.
        unsafe { AtomicU32::from_ptr(self.map.start().as_ptr().add(at).cast()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        let at = self.entries + (index & self.mask) as usize * size_of::<T>();
        self.map.start().as_ptr().wrapping_add(at).cast()
    }

    /// As producer: appends an entry.
    fn push(&mut self, entry: T) {
        // SAFETY: in the mapping, by the mask. The kernel does not look at it before it is published.
        unsafe { self.entry(self.ours).write(entry) };
        self.ours = self.ours.wrapping_add(1);
    }

    /// As producer: shows the kernel what was pushed.
    fn publish_pushed(&self) {
        self.word(self.producer).store(self.ours, Ordering::Release);
    }

    /// As producer: how many published entries the kernel has not taken.
    fn untaken(&self) -> u32 {
        self.ours.wrapping_sub(self.word(self.consumer).load(Ordering::Acquire))
    }

    /// As consumer: how many entries wait.
    fn waiting(&self) -> u32 {
        self.word(self.producer).load(Ordering::Acquire).wrapping_sub(self.ours)
    }

    /// As consumer: takes the oldest entry; the caller has seen that one waits.
    fn pop(&mut self) -> T {
        // SAFETY: in the mapping, by the mask. The kernel wrote it before it moved its index, and does not write it again
        // before ours is published. `T` is made of numbers: any bytes are one.
        let entry = unsafe { self.entry(self.ours).read() };
        self.ours = self.ours.wrapping_add(1);
        entry
    }

    /// As consumer: shows the kernel what was popped.
    fn publish_popped(&self) {
        self.word(self.consumer).store(self.ours, Ordering::Release);
    }

    fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}
