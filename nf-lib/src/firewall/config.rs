//! Options of the firewall.

use serde::Deserialize;

use super::rules::{Action, Rule, Way};
use crate::values::{Policy, Seconds};

/// Options of the firewall.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FirewallConfig {
    /// The rules in order. By default one, which allows everything outbound.
    pub rules: Vec<Rule>,
    /// What happens where no rule matches.
    pub default: Action,
    /// What becomes of frames without IP and of neighbour discovery.
    pub non_ip: Policy,
    /// Whether a TCP segment other than a SYN may open a connection.
    pub midstream: Policy,
    /// Connections that may be open.
    pub connections: usize,
    /// How long connections stay open without packets.
    pub timeouts: Timeouts,
}

impl Default for FirewallConfig {
    fn default() -> Self {
        FirewallConfig {
            rules: vec![Rule::all(Action::Allow, Way::Outbound)],
            default: Action::Deny,
            non_ip: Policy::Forward,
            midstream: Policy::Forward,
            connections: 65_536,
            timeouts: Timeouts::default(),
        }
    }
}

/// How long a connection stays open without packets: by default as long as on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// TCP until the handshake is complete.
    pub tcp_new: Seconds,
    /// TCP afterwards.
    pub tcp: Seconds,
    /// TCP after a FIN or RST.
    pub tcp_closing: Seconds,
    /// UDP without answer.
    pub udp_new: Seconds,
    /// UDP with answer.
    pub udp: Seconds,
    /// ICMP queries.
    pub icmp: Seconds,
    /// Other protocols.
    pub other: Seconds,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            tcp_new: Seconds::new(120),
            tcp: Seconds::new(432_000),
            tcp_closing: Seconds::new(120),
            udp_new: Seconds::new(30),
            udp: Seconds::new(120),
            icmp: Seconds::new(30),
            other: Seconds::new(600),
        }
    }
}
