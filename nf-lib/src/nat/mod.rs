//! NAT44: translates the sources of outbound packets to external addresses and ports, and back.
//!
//! Two tables hold the mappings, one row each: from the inside endpoint (protocol, address, port) to the external
//! one, and from the external one back. Both rows are written and refreshed together, so they expire together. A
//! busy mapping is only read. ICMP queries are mapped by their identifier, which has a pool of its own.
//!
//! | frame | what becomes of it |
//! |---|---|
//! | outbound TCP, UDP, ICMP query | translated; opens a mapping where there is none, and refreshes it |
//! | inbound to a mapped endpoint | translated back, whoever sent it; refreshes nothing |
//! | other inbound | dropped: `no_mapping` |
//! | ICMP error, either way | translated with the packet it quotes, refreshes nothing; damaged ones are dropped |
//! | new flow without room | dropped: `no_free_port`, `table_full`; its sender gets ICMP 3/13 |
//! | IPv6 | dropped: `not_ipv4`. Without IP: as the option `other` says |
//! | other protocols, later fragments, packets to an own address from the inside | dropped by name; later issues |
//!
//! An untranslated inside address never leaves in an IP packet. VLAN tags are kept and tell no hosts apart: inside
//! addresses must be unique over all VLANs.
//!
//! | requirement | met | held by |
//! |---|---|---|
//! | RFC 4787 R1, RFC 5382 R1 endpoint-independent mapping | yes | `rfc4787_r1_…` |
//! | RFC 4787 R2 paired pooling | yes, strictly | `rfc4787_r2_…` |
//! | RFC 4787 R3 no overloading | yes; the class of ports below 1024 only as far as `port_range` has them | `rfc4787_r3_…` |
//! | RFC 4787 R5, RFC 5382 R5, RFC 5508 R2 timers | defaults 300 s, 7440 s / 240 s, 60 s; shorter ones are the operator's choice | `rfc4787_r5_…` |
//! | RFC 4787 R6 outbound refresh only | yes | `rfc4787_r6_…` |
//! | RFC 4787 R8 filtering | endpoint-independent | `rfc4787_r8_…` |
//! | RFC 4787 R9, RFC 5382 R8, RFC 5508 R7 hairpin | no: `hairpin_unsupported` | `hairpin_is_refused_by_name` |
//! | RFC 4787 R11 deterministic | yes: time and random numbers are the transaction's | `units_do_not_show` |
//! | RFC 4787 R12, RFC 5382 R10 ICMP ends no mapping | yes | `rfc5508_r4_…` |
//! | RFC 4787 R14 fragments | no: `fragment_unsupported` | `what_cannot_be_translated_has_a_name` |
//! | RFC 5382 R4 unsolicited SYN waits 6 s | not applicable: it is dropped in silence | `rfc4787_r8_…` |
//! | RFC 5508 R1 queries | yes | `rfc5508_r1_…` |
//! | RFC 5508 R3 bad checksums are dropped before any change | yes | `rfc5508_r3_…` |
//! | RFC 5508 R4, R5, R6 errors in both directions | yes | `rfc5508_r4_…`, `rfc5508_r5_…` |
//! | RFC 5508 R8 refusals | yes | `rfc5508_r8_…` |
//! | RFC 6888 R15 ports are not guessable | yes, but for `ports = "preserve"` | `rfc6888_r15_…` |
//! | RFC 7857 closing timers | no: a closed connection's mapping lives as long as an open one's | – |

mod config;
mod error;
mod mapping;

use std::net::IpAddr;

use pannier_runtime::state::{Layout, State, hash_bytes};
use pannier_runtime::wire::edit::Uneditable;
use pannier_runtime::wire::icmp::IcmpRole;
use pannier_runtime::wire::tcp::{TcpHeader, flags};
use pannier_runtime::wire::{
    Endpoint, Flow, IcmpError, L3, Layers, Malformed, Side, icmp_error, protocol, rewrite_destination,
    rewrite_source,
};
use pannier_runtime::{Abort, Ahead, Direction, Frame, Nf, Txn, TxnResult, Verdict, state};

use crate::catalogue::OptionError;
pub use config::{KIND, NatConfig, PortChoice, Timeouts};

/// Longest ICMP error in bytes, with Ethernet header and two VLAN tags.
const LONGEST_ERROR: usize = 612;

/// Seed of the hash that steers: lanes must not follow partitions.
const STEERING: u64 = 0x6c61_6e65;

state! {
    /// What the NAT must not lose: each mapping in two rows.
    pub struct NatState {
        /// The external endpoint of an inside one.
        by_inside: Endpoint => Endpoint [65_536],
        /// The inside endpoint of an external one.
        by_outside: Endpoint => Endpoint [65_536],
    }
}

/// The NAT; see the [module](self).
#[derive(Clone, Debug)]
pub struct Nat {
    config: NatConfig,
}

/// A NAT.
///
/// # Errors
/// No external address, one that is no host's, or a port range that begins at 0.
pub fn nat(config: NatConfig) -> Result<Nat, OptionError> {
    config.check()?;
    Ok(Nat { config })
}

impl Nf for Nat {
    type State = NatState;

    fn state(&self, layout: &Layout) -> NatState {
        let mut state = NatState::new(layout);
        state.by_inside.set_capacity(self.config.mappings);
        state.by_outside.set_capacity(self.config.mappings);
        state
    }

    fn process(&self, frame: &mut Frame<'_>, state: &NatState, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        match Layers::plain(frame.bytes()) {
            Some(layers) => self.translate(frame, &layers, state, txn),
            None => self.translate_any(frame, state, txn),
        }
    }

    #[inline]
    fn look_ahead(&self, frame: &[u8], direction: Direction, state: &NatState, ahead: &Ahead<'_>) {
        let (side, table) = match direction {
            Direction::Outbound => (Side::Source, &state.by_inside),
            Direction::Inbound => (Side::Destination, &state.by_outside),
        };
        let end = Layers::plain(frame).and_then(|layers| Endpoint::of(frame, &layers, side));
        if let Some(end) = end {
            ahead.look(table, &end);
        }
    }

    /// By the end that keeps its address: the one outside. Queries have no port there.
    fn steer(&self, flow: &Flow, direction: Direction) -> Option<u32> {
        let (remote, port) = match direction {
            Direction::Outbound => (flow.destination(), flow.destination_port()),
            Direction::Inbound => (flow.source(), flow.source_port()),
        };
        let port = if flow.protocol() == protocol::ICMP { 0 } else { port };
        let IpAddr::V4(remote) = remote else { return None };
        let [a, b, c, d] = remote.octets();
        let [high, low] = port.to_be_bytes();
        Some((hash_bytes(STEERING, &[a, b, c, d, high, low, flow.protocol()]) >> 32) as u32)
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.config.external.iter().copied().map(IpAddr::from).collect()
    }
}

impl Nat {
    #[inline(never)]
    fn translate_any(
        &self,
        frame: &mut Frame<'_>,
        state: &NatState,
        txn: &mut Txn<'_>,
    ) -> TxnResult<Verdict> {
        let layers = Layers::parse_any(frame.bytes())?;
        self.translate(frame, &layers, state, txn)
    }

    #[inline(always)] // for plain packets, whose layers are known, and for all others
    fn translate(
        &self,
        frame: &mut Frame<'_>,
        layers: &Layers,
        state: &NatState,
        txn: &mut Txn<'_>,
    ) -> TxnResult<Verdict> {
        match layers.l3() {
            L3::Ipv4 => {}
            L3::Ipv6 => return Ok(Verdict::Drop("not_ipv4")),
            L3::Arp | L3::Other(_) => return Ok(self.config.other.verdict("not_ipv4")),
        }
        let (bytes, direction) = (frame.bytes(), frame.direction());
        let end = |side| Endpoint::of(bytes, layers, side).ok_or(Malformed::NotIp);
        let (source, destination) = (end(Side::Source)?, end(Side::Destination)?);
        if let Some(reason) = self.untranslatable(&source, &destination, layers, direction) {
            return Ok(Verdict::Drop(reason));
        }
        match (layers.icmp_role(bytes), direction) {
            (Some(IcmpRole::Error), _) => error::translate(frame, *layers, destination.address(), state, txn),
            (Some(IcmpRole::Other), _) => Ok(Verdict::Drop("icmp_unsupported")),
            // Mappings are opened by requests from the inside: nobody outside may ask, nobody inside has to answer.
            (Some(IcmpRole::Request), Direction::Inbound) | (Some(IcmpRole::Reply), Direction::Outbound) => {
                Ok(Verdict::Drop("no_mapping"))
            }
            (_, Direction::Outbound) => self.outbound(frame, layers, source, state, txn),
            (_, Direction::Inbound) => inbound(frame, layers, destination, state, txn),
        }
    }

    /// Why a packet is not even looked up.
    #[inline(always)]
    fn untranslatable(
        &self,
        source: &Endpoint,
        destination: &Endpoint,
        layers: &Layers,
        direction: Direction,
    ) -> Option<&'static str> {
        let is_outbound = direction == Direction::Outbound;
        let is_known = matches!(source.protocol, protocol::TCP | protocol::UDP | protocol::ICMP);
        match () {
            () if layers.is_later_fragment() => Some("fragment_unsupported"),
            () if !is_known => Some("protocol_unsupported"),
            () if is_outbound && self.config.external.contains(&destination.address()) => {
                Some("hairpin_unsupported")
            }
            () if is_outbound && !config::is_host(source.address()) => Some("source_is_no_host"),
            () => None,
        }
    }

    #[inline(always)]
    fn outbound(
        &self,
        frame: &mut Frame<'_>,
        layers: &Layers,
        inside: Endpoint,
        state: &NatState,
        txn: &mut Txn<'_>,
    ) -> TxnResult<Verdict> {
        let idle = self.config.timeouts.of(inside.protocol, opens_or_closes(frame.bytes(), layers));
        let external = match mapping::used(state, txn, &inside, idle)? {
            Some(external) => external,
            None => match mapping::open(&self.config, state, txn, inside, idle)? {
                Ok(external) => external,
                Err(reason) => {
                    self.refuse(frame, *layers, inside, txn);
                    return Ok(Verdict::Drop(reason));
                }
            },
        };
        rewrite_source(frame.bytes_mut(), layers, external.address(), external.port()).map_err(uneditable)?;
        Ok(Verdict::Forward)
    }

    /// Tells the sender of a packet that it may not pass (RFC 5508 R8), unless errors must not be answered.
    #[cold]
    fn refuse(&self, frame: &Frame<'_>, layers: Layers, inside: Endpoint, txn: &mut Txn<'_>) {
        let mut error = [0; LONGEST_ERROR];
        let from = self.config.address_for(&inside);
        if let Some(len) = icmp_error(frame.bytes(), &layers, IcmpError::PROHIBITED, from, &mut error) {
            txn.emit(&error[..len], frame.direction().reverse());
        }
    }
}

#[inline(always)]
fn inbound(
    frame: &mut Frame<'_>,
    layers: &Layers,
    external: Endpoint,
    state: &NatState,
    txn: &mut Txn<'_>,
) -> TxnResult<Verdict> {
    let Some(inside) = txn.peek(&state.by_outside, &external)? else {
        return Ok(Verdict::Drop("no_mapping"));
    };
    rewrite_destination(frame.bytes_mut(), layers, inside.address(), inside.port()).map_err(uneditable)?;
    Ok(Verdict::Forward)
}

/// Whether a packet is a TCP segment with SYN, FIN or RST, after which the connection is in transition.
#[inline(always)]
fn opens_or_closes(bytes: &[u8], layers: &Layers) -> bool {
    let header = layers.l4_offset().filter(|_| layers.protocol() == Some(protocol::TCP));
    let header = header.and_then(|at| TcpHeader::view(bytes, at).ok());
    header.is_some_and(|header| header.flags & (flags::SYN | flags::FIN | flags::RST) != 0)
}

fn uneditable(why: Uneditable) -> Abort {
    Abort { reason: why.reason() }
}

#[cfg(test)]
mod tests;
