//! Options of the NAT.

use std::net::Ipv4Addr;
use std::sync::Arc;

use pannier_runtime::clock::Nanos;
use pannier_runtime::state::hash_bytes;
use pannier_runtime::wire::{Endpoint, protocol};
use serde::Deserialize;

use super::nat;
use crate::catalogue::{NfKind, OptionDoc, OptionError};
use crate::values::{OneOrMany, Policy, Ports, Seconds, rows};

/// What chain files call `nat`.
pub const KIND: NfKind = NfKind {
    name: "nat",
    summary: "translates the sources of outbound IPv4 packets, and back",
    options: &[
        OptionDoc {
            name: "external",
            takes: "IPv4 address, or list of them",
            default: None,
            help: "addresses that inside hosts show outside; each host always shows the same one",
        },
        OptionDoc {
            name: "ports",
            takes: "\"random\" or \"preserve\"",
            default: Some("\"random\""),
            help: "how an external port is chosen; preserve tries the inside port first",
        },
        OptionDoc {
            name: "port_range",
            takes: "range of ports from 1 to 65535",
            default: Some("\"1024-65535\""),
            help: "external ports for TCP and UDP, of each address; ICMP identifiers are 1 to 65535",
        },
        OptionDoc {
            name: "mappings",
            takes: "number of rows, 1 to 4294967296",
            default: Some("65536"),
            help: "mappings that may be open; further ones are refused as table_full",
        },
        OptionDoc {
            name: "timeouts",
            takes: "table of seconds: udp, tcp, tcp_transitory, icmp",
            default: Some("{ udp = 300, tcp = 7440, tcp_transitory = 240, icmp = 60 }"),
            help: "how long a mapping stays without outbound packets; the RFCs ask for 120, 7440, 240, 60 at least",
        },
        OptionDoc {
            name: "other",
            takes: "\"forward\" or \"drop\"",
            default: Some("\"forward\""),
            help: "what becomes of ARP and other frames without IP",
        },
    ],
    build: |options| Ok(Arc::new(nat(options.parse()?)?)),
};

/// Options of the NAT.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NatConfig {
    /// Addresses that inside hosts show outside; at least one.
    pub external: OneOrMany<Ipv4Addr>,
    /// How an external port is chosen.
    #[serde(default)]
    pub ports: PortChoice,
    /// External ports for TCP and UDP, of each address.
    #[serde(default = "unprivileged")]
    pub port_range: Ports,
    /// Mappings that may be open.
    #[serde(default = "many", deserialize_with = "rows")]
    pub mappings: usize,
    /// How long mappings stay without outbound packets.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// What becomes of frames without IP.
    #[serde(default)]
    pub other: Policy,
}

fn unprivileged() -> Ports {
    Ports::between(1_024, u16::MAX)
}

fn many() -> usize {
    65_536
}

impl NatConfig {
    /// The defaults with one external address.
    pub fn new(external: Ipv4Addr) -> Self {
        NatConfig {
            external: OneOrMany(vec![external]),
            ports: PortChoice::default(),
            port_range: unprivileged(),
            mappings: many(),
            timeouts: Timeouts::default(),
            other: Policy::default(),
        }
    }

    pub(super) fn check(&self) -> Result<(), OptionError> {
        if self.external.is_empty() {
            return Err(OptionError::at("external", "there is one address at least"));
        }
        if let Some(address) = self.external.iter().find(|address| !is_host(**address)) {
            return Err(OptionError::at("external", format!("{address} is not an address of one host")));
        }
        let twice = |at: &usize| self.external[..*at].contains(&self.external[*at]);
        if let Some(at) = (0..self.external.len()).find(twice) {
            let problem = format!("{} stands in the list twice: keep one of them", self.external[at]);
            return Err(OptionError::at(format!("external[{at}]"), problem));
        }
        if self.port_range.first() == 0 {
            return Err(OptionError::at("port_range", "port 0 cannot be used: begin at 1 or above"));
        }
        Ok(())
    }

    /// The external address of an inside host: always the same (RFC 4787 R2).
    pub(super) fn address_for(&self, inside: &Endpoint) -> Ipv4Addr {
        let place = hash_bytes(0, &inside.address) % self.external.len() as u64;
        self.external[place as usize]
    }

    /// The external ports, or ICMP identifiers, for a protocol. Never 0: a packet without port shows 0 as well.
    pub(super) fn ports_of(&self, protocol: u8) -> Ports {
        if protocol == protocol::ICMP { Ports::between(1, u16::MAX) } else { self.port_range }
    }
}

/// Whether an address can be one host's.
pub(super) fn is_host(address: Ipv4Addr) -> bool {
    let is_many = address.is_multicast() || address.is_broadcast();
    !(address.is_unspecified() || address.is_loopback() || is_many)
}

/// How an external port is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortChoice {
    /// At random.
    #[default]
    Random,
    /// The inside port where it is in the range and free, else at random.
    Preserve,
}

/// How long mappings stay without outbound packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// UDP (RFC 4787 R5).
    pub udp: Seconds,
    /// TCP after a segment that neither opens nor closes (RFC 5382 R5).
    pub tcp: Seconds,
    /// TCP after a SYN, FIN or RST, where that is longer than what the mapping has left (RFC 5382 R5).
    pub tcp_transitory: Seconds,
    /// ICMP queries (RFC 5508 R2).
    pub icmp: Seconds,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            udp: Seconds::new(300),
            tcp: Seconds::new(7_440),
            tcp_transitory: Seconds::new(240),
            icmp: Seconds::new(60),
        }
    }
}

impl Timeouts {
    /// The timeout in nanoseconds after an outbound packet.
    pub(super) fn of(&self, protocol: u8, opens_or_closes: bool) -> Nanos {
        let seconds = match protocol {
            protocol::TCP if opens_or_closes => self.tcp_transitory,
            protocol::TCP => self.tcp,
            protocol::ICMP => self.icmp,
            _ => self.udp,
        };
        seconds.nanos()
    }
}
