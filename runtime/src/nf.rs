//! What a network function is: a transaction closure over one frame and one state.

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;

use crate::mutant::{self, Mutant};
use crate::packet::{Direction, Packet};
use crate::state::{AnyState, AnyTable, Held, Layout, Plain, State, Table};
use crate::txn::{Txn, TxnResult};
use crate::wire::Flow;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on to the next stage.
    Forward,
    /// It is dropped and counted under this reason (snake case). What its transaction wrote stays.
    Drop(&'static str),
}

/// The frame that a network function works on.
#[derive(Debug)]
pub struct Frame<'a> {
    packet: &'a mut Packet,
    original: Option<&'a mut Original>,
}

/// A frame as it was before a transaction edited it, so that the transaction can run again.
#[derive(Clone, Debug, Default)]
pub struct Original {
    frame: Packet,
    edited: bool,
}

impl Original {
    fn keep(&mut self, packet: &Packet) {
        if !self.edited {
            self.frame.clone_from(packet);
            self.edited = true;
        }
    }

    /// Gives `packet` the bytes that it had before it was edited.
    pub fn restore(&mut self, packet: &mut Packet) {
        if std::mem::take(&mut self.edited) && !mutant::is(Mutant::RetryUnrestored) {
            std::mem::swap(&mut self.frame, packet);
        }
    }
}

impl<'a> Frame<'a> {
    /// The frame of `packet`.
    pub fn new(packet: &'a mut Packet) -> Self {
        Frame { packet, original: None }
    }

    /// The frame of `packet`, which is kept in `original` before the first edit.
    pub fn restorable(packet: &'a mut Packet, original: &'a mut Original) -> Self {
        original.edited = false;
        Frame { packet, original: Some(original) }
    }

    #[inline]
    fn edit(&mut self) -> &mut Packet {
        if let Some(original) = &mut self.original {
            original.keep(self.packet);
        }
        self.packet
    }

    /// The bytes, from the Ethernet header on.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.packet.frame()
    }

    /// The bytes, to edit.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.edit().frame_mut()
    }

    /// Which way the frame passes the chain.
    pub fn direction(&self) -> Direction {
        self.packet.meta.direction
    }

    /// Makes the frame `count` bytes longer at its front (zeros), or shorter where `count` is negative. False and
    /// unchanged where there is no room.
    pub fn push_front(&mut self, count: isize) -> bool {
        self.edit().push_front(count)
    }

    /// Cuts the frame to `len` bytes, or fills it up with zeros.
    pub fn resize(&mut self, len: usize) {
        self.edit().resize(len);
    }
}

/// The right to look at committed rows before any transaction runs; see [`Nf::look_ahead`].
#[derive(Clone, Copy, Debug)]
pub struct Ahead<'a>(&'a Held);

impl<'a> Ahead<'a> {
    /// The right of whoever holds `held`.
    pub(crate) fn new(held: &'a Held) -> Self {
        Ahead(held)
    }

    /// Has the processor fetch the row of a key, if there is one.
    #[inline(always)]
    pub fn look<K: Plain + Eq, V: Plain>(&self, table: &Table<K, V>, key: &K) {
        table.fetch(table.place(key), self.0);
    }
}

/// A network function. It keeps no state of its own: everything that must survive is in its [`State`], and time and
/// random numbers come from the transaction.
///
/// # Errors
/// A transaction that returns an error leaves no trace; its frame is dropped under the error's reason.
pub trait Nf: Send + Sync + 'static {
    /// What it must not lose.
    type State: State;

    /// An empty state; override it to set capacities and timeouts from a configuration.
    fn state(&self, layout: &Layout) -> Self::State {
        Self::State::new(layout)
    }

    /// Works on one frame.
    ///
    /// # Errors
    /// As the trait says.
    fn process(&self, frame: &mut Frame<'_>, state: &Self::State, txn: &mut Txn<'_>) -> TxnResult<Verdict>;

    /// Looks up the rows that [`Nf::process`] is likely to look up for a frame. Asked for all frames of a burst before the
    /// first is worked on, where the state is large: so the rows are on their way into the cache at the same time, and not
    /// one after the other. It changes nothing, and need not be asked.
    fn look_ahead(&self, _frame: &[u8], _direction: Direction, _state: &Self::State, _ahead: &Ahead<'_>) {}

    /// Removes rows of `partition` that have expired. Override it where rows of several tables go together.
    ///
    /// # Errors
    /// As the trait says.
    fn sweep(&self, state: &Self::State, txn: &mut Txn<'_>, partition: usize) -> TxnResult<()> {
        txn.remove_idle(state, partition)
    }

    /// Bytes that one transaction may write, so that the ring's MTU can be checked before anything runs: here one new
    /// row in each table, with an old one making room.
    fn largest_delta(&self, state: &Self::State) -> usize {
        let state: &dyn AnyState = state;
        let rows = state.iter().map(AnyTable::row_bytes);
        rows.map(|row| 2 * row.key + row.value + 2 * crate::txn::delta::ENTRY_OVERHEAD).sum()
    }

    /// A hash that the packets of a flow share in both directions, where their addresses do not have one: because this
    /// function changes them. It is asked about flows as they enter the chain, on either side; `None` leaves it to the
    /// addresses.
    fn steer(&self, _flow: &Flow, _direction: Direction) -> Option<u32> {
        None
    }

    /// Addresses that belong to this function on the outside (a NAT's): packets to them are inbound.
    fn addresses(&self) -> Vec<IpAddr> {
        Vec::new()
    }
}

/// Makes a network function of a closure.
///
/// ```
/// use pannier_runtime::{Verdict, nf, state};
/// state! { /// Frames seen.
///     pub struct Seen { /// By VLAN-less count.
///         frames: u8 => u64 [1] } }
/// let counter = nf(|_frame, state: &Seen, txn| {
///     txn.update(&state.frames, 0, |n| n.unwrap_or(0) + 1)?;
///     Ok(Verdict::Forward)
/// });
/// # let _ = counter;
/// ```
pub fn nf<S, F>(process: F) -> Closure<S, F>
where
    S: State,
    F: Fn(&mut Frame<'_>, &S, &mut Txn<'_>) -> TxnResult<Verdict> + Send + Sync + 'static,
{
    Closure { process, state: PhantomData }
}

/// A network function that is a closure: see [`nf`].
pub struct Closure<S, F> {
    process: F,
    state: PhantomData<fn() -> S>,
}

impl<S, F> Nf for Closure<S, F>
where
    S: State,
    F: Fn(&mut Frame<'_>, &S, &mut Txn<'_>) -> TxnResult<Verdict> + Send + Sync + 'static,
{
    type State = S;

    fn process(&self, frame: &mut Frame<'_>, state: &S, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        (self.process)(frame, state, txn)
    }
}

impl<S, F> fmt::Debug for Closure<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closure")
    }
}

/// A network function whose state type is not known: what a node runs. Every [`Nf`] is one.
pub trait AnyNf: Send + Sync {
    /// An empty state.
    fn new_state(&self, layout: &Layout) -> Box<dyn AnyState>;
    /// [`Nf::process`]; `state` must have been made by [`AnyNf::new_state`], else nothing happens and the frame drops.
    ///
    /// # Errors
    /// As [`Nf`] says.
    fn run(&self, frame: &mut Frame<'_>, state: &dyn AnyState, txn: &mut Txn<'_>) -> TxnResult<Verdict>;
    /// [`Nf::look_ahead`], for each of `packets`.
    fn look_ahead_all(&self, packets: &[Packet], state: &dyn AnyState, ahead: &Ahead<'_>);
    /// [`Nf::sweep`].
    ///
    /// # Errors
    /// As [`Nf`] says.
    fn run_sweep(&self, state: &dyn AnyState, txn: &mut Txn<'_>, partition: usize) -> TxnResult<()>;
    /// [`Nf::steer`].
    fn steer_by(&self, flow: &Flow, direction: Direction) -> Option<u32>;
    /// [`Nf::addresses`].
    fn outside_addresses(&self) -> Vec<IpAddr>;
    /// [`Nf::largest_delta`].
    fn largest_delta_in(&self, layout: &Layout) -> usize;
}

impl<N: Nf> AnyNf for N {
    fn new_state(&self, layout: &Layout) -> Box<dyn AnyState> {
        Box::new(self.state(layout))
    }

    fn run(&self, frame: &mut Frame<'_>, state: &dyn AnyState, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        match state.downcast::<N::State>() {
            Some(state) => self.process(frame, state, txn),
            None => Ok(Verdict::Drop("foreign_state")),
        }
    }

    fn look_ahead_all(&self, packets: &[Packet], state: &dyn AnyState, ahead: &Ahead<'_>) {
        let Some(state) = state.downcast::<N::State>() else { return };
        for packet in packets {
            self.look_ahead(packet.frame(), packet.meta.direction, state, ahead);
        }
    }

    fn run_sweep(&self, state: &dyn AnyState, txn: &mut Txn<'_>, partition: usize) -> TxnResult<()> {
        state.downcast::<N::State>().map_or(Ok(()), |state| self.sweep(state, txn, partition))
    }

    fn steer_by(&self, flow: &Flow, direction: Direction) -> Option<u32> {
        self.steer(flow, direction)
    }

    fn outside_addresses(&self) -> Vec<IpAddr> {
        self.addresses()
    }

    fn largest_delta_in(&self, layout: &Layout) -> usize {
        self.largest_delta(&self.state(layout))
    }
}

impl fmt::Debug for dyn AnyNf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyNf")
    }
}
