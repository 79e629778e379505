//! The bytes of a packet: in memory of its own, or in a buffer that somebody lends to it, as a port does with those that
//! frames arrive in.
#![allow(
    unsafe_code,
    reason = "memory of two kinds behind one pointer; DPDK's buffers are not Rust's to allocate"
)]

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

/// Who lends buffers of one kind; it is known by its address.
pub(crate) struct Lender {
    take_back: unsafe fn(NonNull<()>),
}

impl Lender {
    /// A lender to whom `take_back` gives a buffer back, by its handle.
    ///
    /// # Safety
    /// `take_back` must take every handle that a [`Loan`] of this lender is made with, once, on any thread and at any
    /// time.
    pub(crate) const unsafe fn new(take_back: unsafe fn(NonNull<()>)) -> Self {
        Lender { take_back }
    }
}

/// That a buffer is lent. Dropped, it goes back.
pub(crate) struct Loan {
    lender: &'static Lender,
    /// What the lender knows it by.
    handle: NonNull<()>,
}

// SAFETY: a buffer goes back on any thread.
unsafe impl Send for Loan {}
// SAFETY: behind a shared reference nothing of it can be reached.
unsafe impl Sync for Loan {}

impl Loan {
    /// Its handle, for whoever lent it: it does not go back by itself any more.
    #[inline]
    pub(crate) fn into_handle(self) -> NonNull<()> {
        ManuallyDrop::new(self).handle
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // SAFETY: the handle of a loan of this lender, which ends here.
        unsafe { (self.lender.take_back)(self.handle) }
    }
}

/// A buffer that is lent, with its bytes.
pub(crate) struct Lent {
    loan: Loan,
    base: NonNull<u8>,
    capacity: usize,
}

impl Lent {
    /// A buffer of `capacity` bytes from `base` on.
    ///
    /// # Safety
    /// All of its bytes are initialized, and until it is back or [taken](Loan::into_handle) nobody else touches them or
    /// frees them. The handle is not in use for another loan.
    #[inline]
    pub(crate) unsafe fn new(
        lender: &'static Lender,
        handle: NonNull<()>,
        base: NonNull<u8>,
        capacity: usize,
    ) -> Self {
        Lent { loan: Loan { lender, handle }, base, capacity }
    }
}

/// A vector of bytes with memory of its own, whose bytes may lie in a loan instead. They move to the own memory when they
/// outgrow the loan.
pub(super) struct Buffer {
    /// Where the bytes are: in the loan where there is one, else in the own memory.
    base: NonNull<u8>,
    /// How many bytes there are; all of these are initialized.
    length: usize,
    capacity: usize,
    loan: Option<Loan>,
    /// The own memory: a vector's.
    own: NonNull<u8>,
    own_capacity: usize,
}

// SAFETY: all memory is the buffer's alone; of a loan see there.
unsafe impl Send for Buffer {}
// SAFETY: behind a shared reference bytes are only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        let mut own = ManuallyDrop::new(Vec::with_capacity(capacity));
        let base = NonNull::new(own.as_mut_ptr()).unwrap_or(NonNull::dangling());
        let capacity = own.capacity();
        Buffer { base, length: 0, capacity, loan: None, own: base, own_capacity: capacity }
    }

    /// Bytes that the own memory has room for.
    pub(super) fn own_capacity(&self) -> usize {
        self.own_capacity
    }

    /// Lets the bytes be the first `length` of a buffer that is lent.
    ///
    /// # Panics
    /// Where it is shorter.
    #[inline]
    pub(super) fn borrow(&mut self, lent: Lent, length: usize) {
        assert!(length <= lent.capacity, "a frame lies within its buffer");
        (self.base, self.length, self.capacity) = (lent.base, length, lent.capacity);
        self.loan = Some(lent.loan);
    }

    /// Ends the loan, if there is one; the bytes in it are gone. What the own memory has is left.
    #[inline]
    pub(super) fn end_loan(&mut self) -> Option<Loan> {
        let loan = self.loan.take()?;
        (self.base, self.length, self.capacity) = (self.own, 0, self.own_capacity);
        Some(loan)
    }

    /// Whether the bytes are in a loan of `lender`.
    #[inline]
    pub(super) fn is_lent_by(&self, lender: &'static Lender) -> bool {
        self.loan.as_ref().is_some_and(|loan| ptr::eq(loan.lender, lender))
    }

    /// Cuts the bytes to the first `length`, if there are more.
    #[inline]
    pub(super) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Appends `bytes`.
    #[inline]
    pub(super) fn extend_from_slice(&mut self, bytes: &[u8]) {
        if bytes.len() > self.capacity - self.length {
            self.grow(bytes.len());
        }
        // SAFETY: there is room behind the bytes, which is ours alone.
        unsafe {
            let end = self.base.as_ptr().add(self.length);
            ptr::copy_nonoverlapping(bytes.as_ptr(), end, bytes.len());
        }
        self.length += bytes.len();
    }

    /// Cuts the bytes to `length`, or appends zeros.
    #[inline]
    pub(super) fn resize(&mut self, length: usize) {
        let Some(more) = length.checked_sub(self.length) else { return self.length = length };
        if more > self.capacity - self.length {
            self.grow(more);
        }
        // SAFETY: there is room behind the bytes, which is ours alone.
        unsafe { self.base.as_ptr().add(self.length).write_bytes(0, more) }
        self.length = length;
    }

    /// Makes room for `more` bytes, in the own memory.
    #[cold]
    fn grow(&mut self, more: usize) {
        let (base, length, loan) = (self.base, self.length, self.loan.take());
        let mut own = self.take_own(if loan.is_some() { 0 } else { length });
        if loan.is_some() {
            // SAFETY: the bytes are in the loan, which ends behind this.
            own.extend_from_slice(unsafe { std::slice::from_raw_parts(base.as_ptr(), length) });
        }
        own.reserve(more);
        let mut own = ManuallyDrop::new(own);
        self.own = NonNull::new(own.as_mut_ptr()).unwrap_or(NonNull::dangling());
        self.own_capacity = own.capacity();
        (self.base, self.length, self.capacity) = (self.own, length, self.own_capacity);
    }

    /// Takes the own memory out, with so many bytes that are initialized, and leaves nothing behind.
    fn take_own(&mut self, length: usize) -> Vec<u8> {
        (self.base, self.length, self.capacity) = (NonNull::dangling(), 0, 0);
        let own = mem::replace(&mut self.own, NonNull::dangling());
        let capacity = mem::take(&mut self.own_capacity);
        // SAFETY: the parts of a vector, which is in nobody else's hands from here on; no longer than what is initialized.
        unsafe { Vec::from_raw_parts(own.as_ptr(), length, capacity) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        drop(self.take_own(0));
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer::with_capacity(0)
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut clone = Buffer::with_capacity(self.length);
        clone.extend_from_slice(self);
        clone
    }

    /// Into the own memory.
    fn clone_from(&mut self, source: &Self) {
        drop(self.end_loan());
        self.length = 0;
        self.extend_from_slice(source);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes that are initialized, ours alone, and stay where they are while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `self` is borrowed by nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::limits::HEADROOM;
    use crate::packet::{Packet, Pool};

    thread_local! {
        /// Buffers of this thread's tests that are lent.
        static OUT: Cell<usize> = const { Cell::new(0) };
    }

    fn out() -> usize {
        OUT.with(Cell::get)
    }

    /// Takes a buffer back that `lend` has made, of so many bytes.
    unsafe fn take_back<const BYTES: usize>(handle: NonNull<()>) {
        OUT.with(|out| out.set(out.get() - 1));
        // SAFETY: the handle of a box of that type, which is given back once.
        drop(unsafe { Box::from_raw(handle.cast::<[u8; BYTES]>().as_ptr()) });
    }

    const BYTES: usize = HEADROOM + 100;

    // SAFETY: it takes each box that `lend` has made.
    static LENDER: Lender = unsafe { Lender::new(take_back::<BYTES>) };
    // SAFETY: no loan of this lender is ever made.
    static OTHER: Lender = unsafe { Lender::new(take_back::<1>) };

    /// A packet whose frame lies in a buffer that is lent.
    fn lent(frame: &[u8]) -> Packet {
        let mut bytes = [0xee; BYTES];
        bytes[HEADROOM..HEADROOM + frame.len()].copy_from_slice(frame);
        let base = NonNull::from(Box::leak(Box::new(bytes))).cast();
        OUT.with(|out| out.set(out.get() + 1));
        // SAFETY: a box of its own, which only the loan knows.
        let lent = unsafe { Lent::new(&LENDER, base.cast(), base, BYTES) };
        let mut packet = Packet::default();
        packet.borrow(lent, frame.len(), 7);
        packet
    }

    #[test]
    fn a_lent_buffer_goes_back_once_whatever_becomes_of_its_packet() {
        // Goal: no buffer is lost and none goes back twice. Method: each way that a packet can end, and a count.
        let mut pool = Pool::default();
        drop(lent(b"frame"));
        pool.give(lent(b"frame"));
        pool.give_all(&mut vec![lent(b"one"), Packet::new(b"two"), lent(b"three")]);
        let mut packet = lent(b"frame");
        packet.clone_from(&lent(b"other"));
        assert_eq!((packet.frame(), packet.meta.time, out()), (&b"other"[..], 7, 0));
        let packet = lent(b"frame");
        let clone = (packet.clone(), pool.copy(&packet));
        drop(packet);
        assert_eq!((clone.0.frame(), clone.1.frame(), out()), (&b"frame"[..], &b"frame"[..], 0));
        let mut burst = Vec::new();
        pool.take_many(6, &mut burst);
        assert!(burst.iter().all(|packet| packet.frame().is_empty() && packet.unit().is_empty()));
    }

    #[test]
    fn a_lender_gets_its_own_buffers_out_of_packets_and_no_others() {
        // Goal: a port sends no buffer that is not its kind. Method: ask for a loan as another lender, of a packet without,
        // and rightly.
        let mut packet = lent(b"frame");
        assert!(packet.take_loan(&OTHER).is_none() && Packet::new(b"x").take_loan(&LENDER).is_none());
        assert_eq!((packet.frame(), out()), (&b"frame"[..], 1));
        let loan = packet.take_loan(&LENDER).expect("it is there");
        assert_eq!((packet.frame(), packet.unit(), out()), (&b""[..], &b""[..], 1));
        let handle = loan.into_handle();
        assert_eq!(out(), 1);
        // SAFETY: the handle of a loan that does not go back by itself any more.
        unsafe { take_back::<BYTES>(handle) }
        packet.set_frame(b"own");
        assert_eq!((packet.frame(), out()), (&b"own"[..], 0));
    }

    #[test]
    fn what_outgrows_a_lent_buffer_moves_to_own_memory() {
        // Goal: a loan's end is nobody's border. Method: units that just fit behind a frame, and that do not.
        for (length, is_lent) in [(95, 1), (96, 0), (5_000, 0)] {
            let mut packet = lent(b"frame");
            packet.set_unit(&vec![1; length]);
            assert_eq!((packet.frame(), packet.unit().len(), out()), (&b"frame"[..], length, is_lent));
        }
    }

    /// What is done to a packet.
    #[derive(Clone, Debug)]
    enum Act {
        SetFrame(Vec<u8>),
        Fill(Vec<u8>, Vec<u8>),
        Push(isize),
        Resize(usize),
        SetUnit(Vec<u8>),
        Fill0xAb,
        CloneFrom(Vec<u8>),
    }

    fn act() -> impl Strategy<Value = Act> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..120);
        prop_oneof![
            bytes().prop_map(Act::SetFrame),
            (bytes(), bytes()).prop_map(|(one, two)| Act::Fill(one, two)),
            (-70_isize..70).prop_map(Act::Push),
            (0_usize..200).prop_map(Act::Resize),
            bytes().prop_map(Act::SetUnit),
            Just(Act::Fill0xAb),
            bytes().prop_map(Act::CloneFrom),
        ]
    }

    fn perform(act: &Act, packet: &mut Packet) -> bool {
        match act {
            Act::SetFrame(bytes) => packet.set_frame(bytes),
            Act::Fill(one, two) => {
                packet.fill_frame(|frame| [one, two].into_iter().for_each(|bytes| frame.put(bytes)));
            }
            Act::Push(count) => return packet.push_front(*count),
            Act::Resize(length) => packet.resize(*length),
            Act::SetUnit(unit) => packet.set_unit(unit),
            Act::Fill0xAb => packet.frame_mut().fill(0xab),
            Act::CloneFrom(bytes) => packet.clone_from(&Packet::new(bytes)),
        }
        true
    }

    proptest! {
        #[test]
        fn packets_in_lent_buffers_are_as_others(
            frame in proptest::collection::vec(any::<u8>(), 0..100),
            acts in proptest::collection::vec(act(), 0..20),
        ) {
            // Goal: where the bytes are makes no difference to anybody. Method: random operations on both kinds.
            let (mut own, mut other) = (Packet::new(&frame), lent(&frame));
            for act in &acts {
                prop_assert_eq!(perform(act, &mut own), perform(act, &mut other));
                prop_assert_eq!((own.frame(), own.unit()), (other.frame(), other.unit()));
                let clone = other.clone();
                prop_assert_eq!((clone.frame(), clone.unit()), (own.frame(), own.unit()));
            }
            drop(other);
            prop_assert_eq!(out(), 0);
        }
    }
}
