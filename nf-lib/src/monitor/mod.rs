//! Monitor: counts packets and bytes, in all and per flow, and forwards everything that parses.
//!
//! Bytes are those of the IP packet by its own length field: headers included, Ethernet header, VLAN tags and
//! padding not. A frame without IP counts as a packet of 0 bytes, in the totals alone. Every packet writes: that is
//! this function's nature. It never drops for lack of room: flows that find the table full are counted together, as
//! *untracked*.
//!
//! Both directions of a flow share one row. Later fragments have no ports and count to the row of their addresses
//! and protocol with ports 0; ICMP errors likewise.

use std::sync::Arc;

use pannier_runtime::limits::MAX_LANES;
use pannier_runtime::state::{Layout, State};
use pannier_runtime::wire::{Flow, Layers};
use pannier_runtime::{Abort, Ahead, Direction, Frame, Merge, Nf, Txn, TxnResult, Verdict, state};
use serde::Deserialize;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::catalogue::{NfKind, OptionDoc};
use crate::values::{Seconds, lanes, rows};

/// What chain files call `monitor`.
pub const KIND: NfKind = NfKind {
    name: "monitor",
    summary: "counts packets and bytes, in all and per flow",
    options: &[
        OptionDoc {
            name: "flows",
            takes: "number of rows, 1 to 4294967296",
            default: Some("65536"),
            help: "flows that are counted on their own; further ones count as untracked",
        },
        OptionDoc {
            name: "sharing",
            takes: "number of lanes, 1 to 8",
            default: Some("1"),
            help: "neighbouring lanes that share a part of the totals, and wait for each other; at 1 none does",
        },
        OptionDoc {
            name: "idle",
            takes: "number of seconds",
            default: Some("none"),
            help: "a flow without packets for so long makes room, and starts again from zero; none keeps all",
        },
    ],
    build: |options| Ok(Arc::new(monitor(options.parse()?))),
};

/// Options of the monitor.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MonitorConfig {
    /// Flows that are counted on their own.
    #[serde(deserialize_with = "rows")]
    pub flows: usize,
    /// Neighbouring lanes that share a part of the totals.
    #[serde(deserialize_with = "lanes")]
    pub sharing: usize,
    /// Seconds without packets after which a flow's row may go; `None` keeps rows.
    pub idle: Option<Seconds>,
}

impl Default for MonitorConfig {
    fn default() -> Self {
        MonitorConfig { flows: 65_536, sharing: 1, idle: None }
    }
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Bytes of IP packets.
    pub bytes: u64,
}

impl Counter {
    /// One packet.
    fn one(bytes: u64) -> Self {
        Counter { packets: 1, bytes }
    }
}

impl Merge for Counter {
    fn merge(&mut self, more: &Self) {
        self.packets = self.packets.wrapping_add(more.packets);
        self.bytes = self.bytes.wrapping_add(more.bytes);
    }
}

/// Counters of one flow. Its row's key is the smaller of the flow's two directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct FlowCounters {
    /// What the key's source sent.
    pub sent: Counter,
    /// What the key's source received.
    pub received: Counter,
}

/// Counters of all frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Totals {
    /// Every frame that parses.
    pub all: Counter,
    /// Of these, packets of flows that found the table full.
    pub untracked: Counter,
    /// Of these, frames without IP.
    pub non_ip: u64,
}

impl Merge for Totals {
    fn merge(&mut self, more: &Self) {
        self.all.merge(&more.all);
        self.untracked.merge(&more.untracked);
        self.non_ip = self.non_ip.wrapping_add(more.non_ip);
    }
}

/// The key of the totals: there is one row, in parts.
const ALL: u8 = 0;

state! {
    /// What the monitor must not lose.
    pub struct MonitorState {
        /// Counters per flow.
        flows: Flow => FlowCounters [65_536],
        /// Counters of everything.
        totals: u8 => Totals [MAX_LANES] per_lane,
    }
}

/// The monitor; see the [module](self).
#[derive(Clone, Debug)]
pub struct Monitor {
    config: MonitorConfig,
}

/// A monitor.
pub fn monitor(config: MonitorConfig) -> Monitor {
    Monitor { config }
}

impl Nf for Monitor {
    type State = MonitorState;

    fn state(&self, layout: &Layout) -> MonitorState {
        let mut state = MonitorState::new(layout);
        state.flows.set_capacity(self.config.flows);
        state.totals.set_sharing(self.config.sharing);
        state.flows.set_idle(self.config.idle.map(Seconds::nanos));
        state
    }

    fn process(&self, frame: &mut Frame<'_>, state: &MonitorState, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        match Layers::plain(frame.bytes()) {
            Some(layers) => count(frame.bytes(), &layers, state, txn),
            None => count_any(frame.bytes(), state, txn),
        }
    }

    #[inline]
    fn look_ahead(&self, frame: &[u8], _: Direction, state: &MonitorState, ahead: &Ahead<'_>) {
        if let Some(flow) = Layers::plain(frame).and_then(|layers| Flow::of(frame, &layers)) {
            ahead.look(&state.flows, &flow.ordered().0);
        }
    }
}

#[inline(never)]
fn count_any(frame: &[u8], state: &MonitorState, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
    count(frame, &Layers::parse_any(frame)?, state, txn)
}

#[inline(always)] // for plain packets, whose layers are known, and for all others
fn count(frame: &[u8], layers: &Layers, state: &MonitorState, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
    let bytes = layers.l3_length() as u64;
    let flow = Flow::of(frame, layers);
    let tracked = match flow {
        Some(flow) => count_flow(state, txn, flow, bytes)?,
        None => true,
    };
    let all = Counter::one(bytes);
    let untracked = if tracked { Counter::default() } else { all };
    txn.merge(&state.totals, ALL, Totals { all, untracked, non_ip: u64::from(flow.is_none()) })?;
    Ok(Verdict::Forward)
}

/// Counts a packet to its flow's row, and says whether there is one.
#[inline(always)]
fn count_flow(state: &MonitorState, txn: &mut Txn<'_>, flow: Flow, bytes: u64) -> TxnResult<bool> {
    let (key, is_sent) = flow.ordered();
    let count = |counters: Option<FlowCounters>| {
        let mut counters = counters.unwrap_or_default();
        let counter = if is_sent { &mut counters.sent } else { &mut counters.received };
        counter.merge(&Counter::one(bytes));
        counters
    };
    match txn.update(&state.flows, key, count) {
        Ok(_) => Ok(true),
        Err(Abort::TABLE_FULL) => Ok(false), // refused before anything was written
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests;
