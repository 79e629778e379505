//! Firewall: ordered stateless rules for packets that open a connection, and a table of connections whose later
//! packets pass in both directions by a read alone.
//!
//! A packet goes through these, in order: sanity (its own drop reasons), its connection, the rules. A row is
//! written when a connection opens, when its state changes and when an eighth of its timeout has gone; a rule's hits
//! are counted when it is looked up, not per packet. Connections of different VLANs are different. Without rules of
//! your own everything outbound may open a connection and nothing inbound.
//!
//! | state | entered by | default timeout |
//! |---|---|---|
//! | new | a packet that a rule allows | TCP 120 s, UDP 30 s |
//! | answered | TCP: the other side's first segment | 120 s |
//! | established | TCP: the opener's next segment without SYN; others: the first answer | TCP 432000 s, UDP 120 s |
//! | closing | TCP: FIN or RST of either side; a new SYN goes through the rules again | 120 s |
//!
//! ICMP queries have 30 s and other protocols 600 s in any state. ICMP errors pass iff they quote a packet of a live
//! connection that their receiver sent; they refresh nothing. Frames without IP and neighbour discovery with hop
//! limit 255 follow the option `non_ip`.
//!
//! Not yet here, by design of this first version: sequence windows (a blind RST or FIN shortens a connection's life
//! to the closing timeout, which its next packets renew), fragments behind the first (dropped as
//! `fragment_unsupported`), and NEW / RELATED as matches in rules.

mod checks;
mod config;
mod connection;
mod rules;

use pannier_runtime::state::{Layout, State};
use pannier_runtime::txn::Entry;
use pannier_runtime::wire::icmp::IcmpRole;
use pannier_runtime::wire::tcp::flags;
use pannier_runtime::wire::{Flow, Layers, Quote, protocol};
use pannier_runtime::{Ahead, Direction, Frame, Nf, Txn, TxnResult, Verdict, state};

use crate::catalogue::OptionError;
use crate::values::Policy;
use checks::{hops_left, insane, is_neighbour_discovery, is_syn, tcp_flags};
pub use config::{FirewallConfig, KIND, Timeouts};
pub use connection::{ANSWERED, CLOSING, Connection, ESTABLISHED, NEW};
pub use rules::{Action, Protocol, Rule, Way};

/// The key under which [`FirewallState::hits`] counts what no rule matched.
pub const NO_RULE: u16 = u16::MAX;

state! {
    /// What the firewall must not lose.
    pub struct FirewallState {
        /// Open connections.
        connections: Flow => Connection [65_536],
        /// Packets that a rule decided, by its place in the list from 0, or [`NO_RULE`].
        hits: u16 => u64 [65_536],
    }
}

/// The firewall; see the [module](self).
#[derive(Clone, Debug)]
pub struct Firewall {
    config: FirewallConfig,
}

/// A firewall.
///
/// # Errors
/// More rules than can be numbered.
pub fn firewall(config: FirewallConfig) -> Result<Firewall, OptionError> {
    if config.rules.len() >= usize::from(NO_RULE) {
        return Err(OptionError::at("rules", "there are at most 65534 rules"));
    }
    Ok(Firewall { config })
}

impl Nf for Firewall {
    type State = FirewallState;

    fn state(&self, layout: &Layout) -> FirewallState {
        let mut state = FirewallState::new(layout);
        state.connections.set_capacity(self.config.connections);
        state.hits.set_capacity(self.config.rules.len() + 1);
        state
    }

    fn process(&self, frame: &mut Frame<'_>, state: &FirewallState, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        match Layers::plain(frame.bytes()) {
            Some(layers) => self.filter(frame, &layers, state, txn),
            None => self.filter_any(frame, state, txn),
        }
    }

    #[inline]
    fn look_ahead(&self, frame: &[u8], _: Direction, state: &FirewallState, ahead: &Ahead<'_>) {
        if let Some(flow) = Layers::plain(frame).and_then(|layers| Flow::of(frame, &layers)) {
            ahead.look(&state.connections, &flow.ordered().0);
        }
    }
}

impl Firewall {
    #[inline(never)]
    fn filter_any(&self, frame: &Frame<'_>, state: &FirewallState, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        let layers = Layers::parse_any(frame.bytes())?;
        self.filter(frame, &layers, state, txn)
    }

    #[inline(always)] // for plain packets, whose layers are known, and for all others
    fn filter(
        &self,
        frame: &Frame<'_>,
        layers: &Layers,
        state: &FirewallState,
        txn: &mut Txn<'_>,
    ) -> TxnResult<Verdict> {
        let (bytes, direction) = (frame.bytes(), frame.direction());
        let Some(flow) = Flow::of(bytes, layers) else {
            return Ok(self.config.non_ip.verdict("not_ip"));
        };
        let tcp = tcp_flags(bytes, layers);
        if let Some(reason) = insane(&flow, hops_left(bytes, layers)?, tcp) {
            return Ok(Verdict::Drop(reason));
        }
        if layers.is_later_fragment() {
            return Ok(Verdict::Drop("fragment_unsupported"));
        }
        let role = layers.icmp_role(bytes);
        match role {
            Some(IcmpRole::Error) => return related(bytes, *layers, flow, state, txn),
            Some(IcmpRole::Other) if is_neighbour_discovery(bytes, layers)? => {
                return Ok(self.config.non_ip.verdict("not_ip"));
            }
            _ => {}
        }
        let tcp = tcp.unwrap_or_default();
        let (key, is_by_key) = flow.ordered();
        let entry = txn.entry(&state.connections, &key)?;
        match entry.value() {
            Some(connection) if connection.state != CLOSING || !is_syn(tcp) => {
                self.follow(entry, connection, is_by_key, tcp)?;
                Ok(Verdict::Forward)
            }
            _ if role == Some(IcmpRole::Reply) => Ok(Verdict::Drop("unsolicited_reply")),
            _ => self.open(key, flow, direction, tcp, state, txn),
        }
    }

    /// A packet of a connection, from the source of its key or to it: writes only where the state changes or the row's
    /// time runs out.
    #[inline(always)]
    fn follow(
        &self,
        entry: Entry<'_, '_, '_, Flow, Connection>,
        connection: Connection,
        is_by_key: bool,
        tcp: u8,
    ) -> TxnResult<()> {
        let (protocol, from_opener) = (entry.key().protocol(), is_by_key == (connection.opened_by_key == 1));
        let next = connection.next(protocol, from_opener, tcp);
        let idle = self.config.timeouts.of(protocol, next);
        if next == connection.state {
            entry.refresh(idle).map(drop)
        } else {
            entry.put_for(Connection { state: next, ..connection }, idle)
        }
    }

    /// A packet without connection: the first rule that matches decides.
    #[inline(never)]
    fn open(
        &self,
        key: Flow,
        flow: Flow,
        direction: Direction,
        tcp: u8,
        state: &FirewallState,
        txn: &mut Txn<'_>,
    ) -> TxnResult<Verdict> {
        let is_midstream = flow.protocol() == protocol::TCP && !is_syn(tcp);
        if is_midstream && self.config.midstream == Policy::Drop {
            return Ok(Verdict::Drop("no_connection"));
        }
        let place = self.config.rules.iter().position(|rule| rule.matches(&flow, direction));
        let action = place.map_or(self.config.default, |place| self.config.rules[place].action);
        let number = place.map_or(NO_RULE, |place| place as u16);
        txn.update(&state.hits, number, |hits| hits.unwrap_or_default().wrapping_add(1))?;
        if action == Action::Deny {
            return Ok(Verdict::Drop("denied"));
        }
        if flow.protocol() == protocol::TCP && tcp & flags::RST != 0 {
            return Ok(Verdict::Forward); // there is nothing left to keep
        }
        let opened = Connection { state: NEW, opened_by_key: u8::from(key == flow) };
        let opened = Connection { state: opened.next(flow.protocol(), true, tcp), ..opened };
        let idle = self.config.timeouts.of(flow.protocol(), opened.state);
        txn.put_for(&state.connections, key, opened, idle)?;
        Ok(Verdict::Forward)
    }
}

/// An ICMP error: passes iff it goes to the sender of the packet that it quotes, and that packet's connection lives.
#[inline(never)]
fn related(
    bytes: &[u8],
    layers: Layers,
    flow: Flow,
    state: &FirewallState,
    txn: &mut Txn<'_>,
) -> TxnResult<Verdict> {
    let quoted = Quote::parse(bytes, &layers)?.flow();
    let (key, _) = quoted.ordered();
    let is_related = quoted.source() == flow.destination() && txn.peek(&state.connections, &key)?.is_some();
    Ok(if is_related { Verdict::Forward } else { Verdict::Drop("unrelated_icmp_error") })
}

#[cfg(test)]
mod tests;
