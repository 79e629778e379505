//! Address prefixes: `192.168.0.0/16`, `2001:db8::/32`, or one address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::Deserialize;

/// All addresses of one IP version that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Prefix {
    network: IpAddr,
    length: u8,
}

impl Prefix {
    /// The addresses whose first `length` bits are those of `network`, whose other bits must be zero.
    ///
    /// # Errors
    /// The length is beyond the address, or bits behind it are set.
    pub fn new(network: IpAddr, length: u8) -> Result<Self, PrefixError> {
        let longest = longest(network);
        if length > longest {
            return Err(PrefixError::Length { longest });
        }
        let first = masked(network, length);
        if first == network {
            Ok(Prefix { network, length })
        } else {
            Err(PrefixError::HostBits { first, length })
        }
    }

    /// The prefix that holds this address alone.
    pub fn host(address: IpAddr) -> Self {
        Prefix { network: address, length: longest(address) }
    }

    /// Whether `address` is one of the prefix: never, where it is of the other IP version.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.network.is_ipv4() == address.is_ipv4() && masked(address, self.length) == self.network
    }
}

/// The bits of an address.
fn longest(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with all bits behind the first `length` cleared.
fn masked(address: IpAddr, length: u8) -> IpAddr {
    let length = u32::from(length);
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from(v4.to_bits() & !u32::MAX.checked_shr(length).unwrap_or(0)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from(v6.to_bits() & !u128::MAX.checked_shr(length).unwrap_or(0)).into(),
    }
}

/// Why a text is no prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The part in front of the slash is no address.
    #[error("a prefix is an address, a slash and a number of bits, as in 192.168.0.0/16")]
    Syntax,
    /// More bits than the address has.
    #[error("the number of bits is 0 to {longest}")]
    Length {
        /// Bits of the address.
        longest: u8,
    },
    /// Bits behind the prefix are set.
    #[error("bits behind the first {length} are set: write {first}/{length}")]
    HostBits {
        /// The prefix's first address.
        first: IpAddr,
        /// The prefix's bits.
        length: u8,
    },
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Syntax)?;
        match length {
            None => Ok(Prefix::host(address)),
            Some(length) => Prefix::new(address, length.parse().map_err(|_| PrefixError::Syntax)?),
        }
    }
}

impl TryFrom<String> for Prefix {
    type Error = PrefixError;

    fn try_from(text: String) -> Result<Self, PrefixError> {
        text.parse()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_holds_its_addresses_and_no_others() {
        // Goal: membership is by leading bits and version. Method: both edges of prefixes of each length class.
        let holds = |prefix: &str, address: &str| {
            let prefix: Prefix = prefix.parse().unwrap();
            prefix.contains(address.parse().unwrap())
        };
        assert!(holds("192.168.0.0/16", "192.168.255.255") && !holds("192.168.0.0/16", "192.169.0.0"));
        assert!(holds("0.0.0.0/0", "255.255.255.255") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("10.0.0.1", "10.0.0.1") && !holds("10.0.0.1", "10.0.0.0"));
        assert!(holds("2001:db8::/33", "2001:db8:7fff::") && !holds("2001:db8::/33", "2001:db8:8000::"));
        assert!(holds("::/0", "ffff::") && !holds("::/0", "1.2.3.4"));
    }

    #[test]
    fn a_wrong_prefix_is_refused_with_the_right_one() {
        // Goal: messages help. Method: each kind of mistake, and the text that comes back.
        let error = |text: &str| text.parse::<Prefix>().unwrap_err().to_string();
        assert_eq!(error("10.0.0.1/8"), "bits behind the first 8 are set: write 10.0.0.0/8");
        assert_eq!(error("10.0.0.0/33"), "the number of bits is 0 to 32");
        assert!(error("ten/8").contains("192.168.0.0/16") && error("10.0.0.0/x").contains("slash"));
        assert_eq!("fe80::/10".parse::<Prefix>().unwrap().to_string(), "fe80::/10");
    }
}
