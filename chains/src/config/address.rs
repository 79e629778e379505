//! What is inside: address prefixes and MAC addresses.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use pannier_nf::prefix::{Prefix, PrefixError};
use pannier_runtime::wire::MacAddr;

use super::error::ChainError;

/// Who is inside: a packet from there is outbound, a packet to there inbound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// Address prefixes.
    pub prefixes: Vec<Prefix>,
    /// MAC addresses.
    pub macs: Vec<MacAddr>,
}

impl Default for Inside {
    /// The private ranges: RFC 1918 and the unique local addresses of RFC 4193.
    fn default() -> Self {
        let v4 = [([10, 0, 0, 0], 8), ([172, 16, 0, 0], 12), ([192, 168, 0, 0], 16)];
        let v6 = (IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7);
        let all = v4.into_iter().map(|(address, length)| (IpAddr::from(address), length)).chain([v6]);
        Inside { prefixes: all.filter_map(|(a, l)| Prefix::new(a, l).ok()).collect(), macs: Vec::new() }
    }
}

impl Inside {
    /// Nothing is inside.
    pub fn nothing() -> Self {
        Inside { prefixes: Vec::new(), macs: Vec::new() }
    }

    /// Adds a prefix or a MAC address.
    ///
    /// # Errors
    /// It is neither.
    pub fn add(&mut self, text: &str) -> Result<(), ChainError> {
        let text = text.trim();
        match text.replace('-', ":").parse::<MacAddr>() {
            Ok(mac) => self.macs.push(mac),
            Err(_) => self.prefixes.push(text.parse().map_err(|error| no_prefix(text, error))?),
        }
        Ok(())
    }

    /// Whether an address is inside.
    pub fn contains_ip(&self, address: IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(address))
    }

    /// Whether a MAC address is inside.
    pub fn contains_mac(&self, mac: [u8; 6]) -> bool {
        self.macs.contains(&MacAddr(mac))
    }
}

fn no_prefix(text: &str, error: PrefixError) -> ChainError {
    let help = match error {
        PrefixError::Syntax => {
            "write `192.168.0.0/16`, `2001:db8::/32`, one address, or a MAC address `02:00:00:00:00:01`"
                .to_owned()
        }
        PrefixError::Length { longest } => {
            format!("write a number from 0 to {longest} behind the `/`; without it one address is meant")
        }
        PrefixError::HostBits { first, length } => {
            let address = text.split('/').next().unwrap_or_default();
            format!("write `{first}/{length}` for the whole range, or `{address}` for the one address")
        }
    };
    ChainError::new(format!("`{text}` is no address prefix: {error}"), help)
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes = self.prefixes.iter().map(ToString::to_string);
        let all: Vec<String> = prefixes.chain(self.macs.iter().map(ToString::to_string)).collect();
        f.write_str(if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_prefixes_are_refused_with_the_right_one() {
        // Goal: the fix can be copied. Method: each kind of mistake.
        for (text, words) in [
            ("192.168.1.0/16", "write `192.168.0.0/16` for the whole range"),
            ("2001:db8::1/64", "write `2001:db8::/64`"),
            ("10.0.0.0/33", "from 0 to 32"),
            ("::/200", "from 0 to 128"),
            ("10.0.0.0/x", "write `192.168.0.0/16`"),
            ("10.0.0/8", "write `192.168.0.0/16`"),
            ("", "write `192.168.0.0/16`"),
        ] {
            let error = Inside::nothing().add(text).expect_err(text);
            assert!(error.help.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn insides_take_prefixes_and_macs() {
        // Goal: both kinds in one list. Method: a list of both, and the default.
        let mut inside = Inside::nothing();
        for text in ["02:00:00:00:00:0A", "02-00-00-00-00-0b", "10.0.0.0/8"] {
            inside.add(text).expect(text);
        }
        assert!(inside.contains_mac([2, 0, 0, 0, 0, 10]) && inside.contains_mac([2, 0, 0, 0, 0, 11]));
        assert!(
            !inside.contains_mac([2, 0, 0, 0, 0, 12]) && !inside.contains_ip(IpAddr::from([11, 0, 0, 1]))
        );
        assert_eq!(inside.to_string(), "10.0.0.0/8, 02:00:00:00:00:0a, 02:00:00:00:00:0b");
        assert!(inside.add("02:00:00:00:00:0g").is_err() && inside.add("02:00:00:00:00").is_err());
        let private = Inside::default();
        assert_eq!(private.to_string(), "10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, fc00::/7");
        assert!(
            private.contains_ip("fd00::1".parse().expect("address"))
                && Inside::nothing().to_string() == "nothing"
        );
    }
}
