//! Rules: what a packet that opens a connection is held against, in order, first match.

use pannier_runtime::Direction;
use pannier_runtime::wire::{Flow, protocol};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected};

use crate::prefix::Prefix;
use crate::values::{OneOrMany, Ports};

/// What a rule does with a packet that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The packet passes and opens a connection.
    Allow,
    /// The packet is dropped under the reason `denied`.
    Deny,
}

/// Which way a packet passes the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// From the inside to the outside.
    Outbound,
    /// From the outside to the inside.
    Inbound,
}

/// An IP protocol by its number (0 to 255) or as `"tcp"`, `"udp"`, `"icmp"` or `"icmp6"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(pub u8);

impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a protocol is tcp, udp, icmp, icmp6 or a number from 0 to 255")]
        enum Written {
            Number(u8),
            Name(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(Protocol(number)),
            Written::Name(name) => {
                let known = [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::ICMPV6];
                let found = known.into_iter().find(|number| protocol::name(*number) == Some(&name));
                found.map(Protocol).ok_or_else(|| {
                    D::Error::invalid_value(Unexpected::Str(&name), &"tcp, udp, icmp, icmp6 or a number")
                })
            }
        }
    }
}

/// One rule. What is left out matches everything.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What happens to a packet that matches.
    pub action: Action,
    /// The way of the packet.
    pub direction: Option<Way>,
    /// Its protocol.
    pub protocol: Option<Protocol>,
    /// Prefixes of its source.
    #[serde(default)]
    pub from: OneOrMany<Prefix>,
    /// Prefixes of its destination.
    #[serde(default)]
    pub to: OneOrMany<Prefix>,
    /// Its source ports. With this or [`Rule::to_ports`], only TCP and UDP match.
    #[serde(default)]
    pub from_ports: OneOrMany<Ports>,
    /// Its destination ports.
    #[serde(default)]
    pub to_ports: OneOrMany<Ports>,
    /// The identifier of its outermost VLAN tag, 0 for none.
    pub vlan: Option<u16>,
}

impl Rule {
    /// A rule with this action for all packets of one way.
    pub fn all(action: Action, direction: Way) -> Self {
        let (from, to) = (OneOrMany::default(), OneOrMany::default());
        let (from_ports, to_ports) = (OneOrMany::default(), OneOrMany::default());
        Rule {
            action,
            direction: Some(direction),
            protocol: None,
            from,
            to,
            from_ports,
            to_ports,
            vlan: None,
        }
    }

    /// Whether a packet of `flow` on its way in `direction` matches.
    pub fn matches(&self, flow: &Flow, direction: Direction) -> bool {
        let way = match direction {
            Direction::Outbound => Way::Outbound,
            Direction::Inbound => Way::Inbound,
        };
        let within = |prefixes: &[Prefix], address| {
            prefixes.is_empty() || prefixes.iter().any(|prefix| prefix.contains(address))
        };
        let has_ports = matches!(flow.protocol(), protocol::TCP | protocol::UDP);
        let among = |ports: &[Ports], port| {
            ports.is_empty() || has_ports && ports.iter().any(|range| range.contains(port))
        };
        self.direction.is_none_or(|wanted| wanted == way)
            && self.protocol.is_none_or(|wanted| wanted.0 == flow.protocol())
            && self.vlan.is_none_or(|wanted| wanted == flow.vlan_ids()[0])
            && within(&self.from, flow.source())
            && within(&self.to, flow.destination())
            && among(&self.from_ports, flow.source_port())
            && among(&self.to_ports, flow.destination_port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pannier_runtime::wire::FrameBuilder;

    fn rule(text: &str) -> Rule {
        toml::from_str(&format!("action = 'allow'\n{text}")).expect("a rule")
    }

    #[test]
    fn every_field_narrows_the_rule() {
        // Goal: each field is looked at. Method: one packet, for each field a rule that matches and one that does not.
        let frame = FrameBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1]).vlan(7).udp(5000, 53, b"");
        let flow = Flow::parse(&frame).expect("well-formed");
        let cases = [
            ("direction = 'outbound'", "direction = 'inbound'"),
            ("protocol = 'udp'", "protocol = 6"),
            ("from = '10.0.0.0/8'", "from = ['11.0.0.0/8', '::/0']"),
            ("to = ['1.0.0.0/8', '192.0.2.1']", "to = '192.0.2.2'"),
            ("from_ports = '4999-5000'", "from_ports = 53"),
            ("to_ports = [53, 80]", "to_ports = [5000]"),
            ("vlan = 7", "vlan = 0"),
        ];
        for (good, bad) in cases {
            assert!(rule(good).matches(&flow, Direction::Outbound), "{good}");
            assert!(!rule(bad).matches(&flow, Direction::Outbound), "{bad}");
        }
        let echo = FrameBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1]).icmp_echo_request(53, 1, b"");
        let echo = Flow::parse(&echo).expect("well-formed");
        assert!(!rule("from_ports = 53").matches(&echo, Direction::Outbound), "an identifier is no port");
        assert!(rule("").matches(&echo, Direction::Inbound));
    }

    #[test]
    fn a_wrong_rule_is_refused_with_a_hint() {
        // Goal: messages help. Method: mistakes in each kind of field, words of the message.
        let message = |text: &str| {
            let rule = toml::from_str::<Rule>(&format!("action = 'allow'\n{text}"));
            rule.expect_err(text).message().to_owned()
        };
        assert!(message("protocol = 'gre'").contains("icmp6 or a number"));
        assert!(message("protocol = 256").contains("from 0 to 255"));
        assert!(message("from = '10.0.0.1/8'").contains("10.0.0.0/8"));
        assert!(message("ports = 80").contains("to_ports"));
        assert!(message("direction = 'up'").contains("inbound"));
    }
}
