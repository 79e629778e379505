//! What is inside: address prefixes and MAC addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::error::ChainError;

/// A range of addresses with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// The addresses that share their first `bits` bits with `address`; `None` where it has fewer bits.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) => {
                let free = 32u32.checked_sub(u32::from(bits))?;
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & u32::MAX.checked_shl(free).unwrap_or(0)))
            }
            IpAddr::V6(v6) => {
                let free = 128u32.checked_sub(u32::from(bits))?;
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & u128::MAX.checked_shl(free).unwrap_or(0)))
            }
        };
        Some(Prefix { address, bits })
    }

    /// The first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many bits its addresses share.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether an address is in the range. IPv4 and IPv6 never contain each other.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && Prefix::new(address, self.bits) == Some(*self)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Prefix {
    type Err = ChainError;

    /// `10.0.0.0/8`, `2001:db8::/32`, or a single address.
    fn from_str(text: &str) -> Result<Self, ChainError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let Ok(address) = address.trim().parse::<IpAddr>() else {
            let help =
                "write `192.168.0.0/16`, `2001:db8::/32`, one address, or a MAC address `02:00:00:00:00:01`";
            return Err(ChainError::new(format!("`{text}` is no address prefix"), help));
        };
        let most = if address.is_ipv4() { 32 } else { 128 };
        let wide = || {
            let help =
                format!("write a number from 0 to {most} behind the `/`; without it one address is meant");
            ChainError::new(format!("the prefix `{text}` has no possible length"), help)
        };
        let bits = match bits {
            Some(bits) => bits.trim().parse::<u8>().map_err(|_| wide())?,
            None => most,
        };
        let prefix = Prefix::new(address, bits).ok_or_else(wide)?;
        if prefix.address == address {
            return Ok(prefix);
        }
        let help = format!("write `{prefix}` for the whole range, or `{address}` for the one address");
        Err(ChainError::new(format!("the prefix `{text}` has bits set behind its length"), help))
    }
}

/// A MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl Mac {
    /// `02:00:00:00:00:01`, also with `-`.
    fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 6];
        let mut pieces = text.trim().split([':', '-']);
        for byte in &mut bytes {
            let piece = pieces.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))?;
            *byte = u8::from_str_radix(piece, 16).ok()?;
        }
        pieces.next().is_none().then_some(Mac(bytes))
    }
}

/// Who is inside: a packet from there is outbound, a packet to there inbound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// Address prefixes.
    pub prefixes: Vec<Prefix>,
    /// MAC addresses.
    pub macs: Vec<Mac>,
}

impl Default for Inside {
    /// The private ranges: RFC 1918 and the unique local addresses of RFC 4193.
    fn default() -> Self {
        let v4 = [([10, 0, 0, 0], 8), ([172, 16, 0, 0], 12), ([192, 168, 0, 0], 16)];
        let mut prefixes: Vec<Prefix> =
            v4.into_iter().filter_map(|(address, bits)| Prefix::new(IpAddr::from(address), bits)).collect();
        prefixes.extend(Prefix::new(IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7));
        Inside { prefixes, macs: Vec::new() }
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
        match Mac::parse(text) {
            Some(mac) => self.macs.push(mac),
            None => self.prefixes.push(text.trim().parse()?),
        }
        Ok(())
    }

    /// Whether an address is inside.
    pub fn contains_ip(&self, address: IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(address))
    }

    /// Whether a MAC address is inside.
    pub fn contains_mac(&self, mac: [u8; 6]) -> bool {
        self.macs.contains(&Mac(mac))
    }
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

    fn prefix(text: &str) -> Prefix {
        text.parse().expect(text)
    }

    #[test]
    fn prefixes_contain_exactly_their_range() {
        // Goal: directions are right at the edges. Method: first and last address of ranges, and their neighbours.
        for (range, inside, outside) in [
            ("10.0.0.0/8", ["10.0.0.0", "10.255.255.255"], ["9.255.255.255", "11.0.0.0"]),
            ("192.0.2.7", ["192.0.2.7", "192.0.2.7"], ["192.0.2.6", "192.0.2.8"]),
            ("2001:db8::/33", ["2001:db8::", "2001:db8:7fff::1"], ["2001:db8:8000::", "::ffff:10.0.0.1"]),
            ("0.0.0.0/0", ["0.0.0.0", "255.255.255.255"], ["::", "::1"]),
            ("::/0", ["::", "ffff::"], ["0.0.0.0", "1.2.3.4"]),
        ] {
            let all = |ips: [&str; 2], wanted: bool| {
                ips.iter().all(|ip| prefix(range).contains(ip.parse().expect("address")) == wanted)
            };
            assert!(all(inside, true) && all(outside, false), "{range}");
            assert_eq!(prefix(&prefix(range).to_string()), prefix(range));
        }
    }

    #[test]
    fn wrong_prefixes_are_refused_with_the_right_one() {
        // Goal: the fix can be copied. Method: each kind of mistake.
        for (text, words) in [
            ("192.168.1.0/16", "write `192.168.0.0/16` for the whole range"),
            ("2001:db8::1/64", "write `2001:db8::/64`"),
            ("10.0.0.0/33", "from 0 to 32"),
            ("::/200", "from 0 to 128"),
            ("10.0.0.0/x", "from 0 to 32"),
            ("10.0.0/8", "write `192.168.0.0/16`"),
            ("", "write `192.168.0.0/16`"),
        ] {
            let error = text.parse::<Prefix>().expect_err(text);
            assert!(error.help.contains(words), "{text}: {error}");
        }
        assert_eq!(Prefix::new(IpAddr::from([1, 2, 3, 4]), 33), None);
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
