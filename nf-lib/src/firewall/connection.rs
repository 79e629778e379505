//! Connections: their states, what moves them from one to the next, and how long they last.

use pannier_runtime::clock::Nanos;
use pannier_runtime::wire::protocol;
use pannier_runtime::wire::tcp::flags;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::config::Timeouts;

/// [`Connection::state`]: only its opener has sent.
pub const NEW: u8 = 0;
/// [`Connection::state`]: a TCP handshake that the other side has answered.
pub const ANSWERED: u8 = 1;
/// [`Connection::state`]: both sides have sent.
pub const ESTABLISHED: u8 = 2;
/// [`Connection::state`]: TCP, one side has sent FIN or RST.
pub const CLOSING: u8 = 3;

/// A connection. Its row's key is the smaller of the flow's two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Connection {
    /// [`NEW`], [`ANSWERED`], [`ESTABLISHED`] or [`CLOSING`].
    pub state: u8,
    /// 1 where the key is the flow from its opener, 0 where it is the flow to it.
    pub opened_by_key: u8,
}

impl Connection {
    /// The state after a packet from the opener or from the other side.
    pub(super) fn next(self, protocol: u8, from_opener: bool, tcp: u8) -> u8 {
        if protocol == protocol::TCP && tcp & (flags::FIN | flags::RST) != 0 {
            return CLOSING;
        }
        match (self.state, from_opener) {
            (NEW, false) if protocol == protocol::TCP => ANSWERED,
            (NEW, false) => ESTABLISHED,
            (ANSWERED, true) if tcp & flags::SYN == 0 => ESTABLISHED,
            (state, _) => state,
        }
    }
}

impl Timeouts {
    /// The timeout in nanoseconds of a connection of this protocol in this state.
    pub(super) fn of(&self, protocol: u8, state: u8) -> Nanos {
        let seconds = match (protocol, state) {
            (protocol::TCP, ESTABLISHED) => self.tcp,
            (protocol::TCP, CLOSING) => self.tcp_closing,
            (protocol::TCP, _) => self.tcp_new,
            (protocol::UDP, NEW) => self.udp_new,
            (protocol::UDP, _) => self.udp,
            (protocol::ICMP | protocol::ICMPV6, _) => self.icmp,
            _ => self.other,
        };
        seconds.nanos()
    }
}
