//! Options of the firewall.

use std::sync::Arc;

use serde::Deserialize;

use super::firewall;
use super::rules::{Action, Rule, Way};
use crate::catalogue::{NfKind, OptionDoc};
use crate::values::{Policy, Seconds, rows};

/// What chain files call `firewall`.
pub const KIND: NfKind = NfKind {
    name: "firewall",
    summary: "ordered rules for new connections, and a table of connections",
    options: &[
        OptionDoc {
            name: "rules",
            takes: "list of tables: action, direction, protocol, from, to, from_ports, to_ports, vlan",
            default: Some("[{ action = \"allow\", direction = \"outbound\" }]"),
            help: "the first rule that matches decides; what a rule leaves out matches everything",
        },
        OptionDoc {
            name: "default",
            takes: "\"allow\" or \"deny\"",
            default: Some("\"deny\""),
            help: "what happens where no rule matches",
        },
        OptionDoc {
            name: "non_ip",
            takes: "\"forward\" or \"drop\"",
            default: Some("\"forward\""),
            help: "what becomes of ARP, other frames without IP, and IPv6 neighbour discovery",
        },
        OptionDoc {
            name: "midstream",
            takes: "\"forward\" or \"drop\"",
            default: Some("\"forward\""),
            help: "whether a TCP segment other than a SYN may open a connection, if the rules allow it",
        },
        OptionDoc {
            name: "connections",
            takes: "number of rows, 1 to 4294967296",
            default: Some("65536"),
            help: "connections that may be open; further ones are dropped as table_full",
        },
        OptionDoc {
            name: "timeouts",
            takes: "table of seconds: tcp_new, tcp, tcp_closing, udp_new, udp, icmp, other",
            default: Some("{ tcp_new = 120, tcp = 432000, tcp_closing = 120, udp_new = 30, udp = 120, … }"),
            help: "how long a connection stays open without packets",
        },
    ],
    build: |options| Ok(Arc::new(firewall(options.parse()?)?)),
};

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
    #[serde(deserialize_with = "rows")]
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
