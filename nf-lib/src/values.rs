//! Kinds of values that the options of several network functions have in common.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ops::{Deref, RangeInclusive};
use std::str::FromStr;

use pannier_runtime::Verdict;
use pannier_runtime::clock::{Nanos, SECOND};
use pannier_runtime::limits::MAX_LANES;
use serde::Deserialize;
use serde::de::value::{I64Deserializer, SeqAccessDeserializer, StrDeserializer};
use serde::de::{Deserializer, Error, SeqAccess, Unexpected, Visitor};

/// A duration in whole seconds, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(NonZeroU64);

impl Seconds {
    /// `seconds`, or one second instead of none.
    pub const fn new(seconds: u64) -> Self {
        match NonZeroU64::new(seconds) {
            Some(seconds) => Seconds(seconds),
            None => Seconds(NonZeroU64::MIN),
        }
    }

    /// The duration in nanoseconds.
    pub fn nanos(self) -> Nanos {
        self.0.get().saturating_mul(SECOND)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = whole(deserializer, "a number of seconds, 1 or more", 1..=i64::MAX.unsigned_abs())?;
        Ok(Seconds::new(seconds))
    }
}

/// Most rows that a table may be asked to take.
pub const MOST_ROWS: u64 = 1 << 32;

/// A number of rows, 1 to [`MOST_ROWS`]: for fields with `#[serde(deserialize_with = "rows")]`.
///
/// # Errors
/// It is no whole number in that range.
pub fn rows<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let rows = whole(deserializer, "a number of rows from 1 to 4294967296", 1..=MOST_ROWS)?;
    usize::try_from(rows).map_err(D::Error::custom)
}

/// A number of lanes, 1 to [`MAX_LANES`]: for fields with `#[serde(deserialize_with = "lanes")]`.
///
/// # Errors
/// It is no whole number in that range.
pub fn lanes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let lanes = whole(deserializer, "a number of lanes from 1 to 8", 1..=MAX_LANES as u64)?;
    usize::try_from(lanes).map_err(D::Error::custom)
}

/// A whole number in a range that `wanted` names.
fn whole<'de, D: Deserializer<'de>>(
    deserializer: D,
    wanted: &'static str,
    range: RangeInclusive<u64>,
) -> Result<u64, D::Error> {
    struct Whole(&'static str, RangeInclusive<u64>);

    impl Visitor<'_> for Whole {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
            let inside = u64::try_from(number).ok().filter(|number| self.1.contains(number));
            inside.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
            if self.1.contains(&number) {
                return Ok(number);
            }
            Err(E::invalid_value(Unexpected::Unsigned(number), &self))
        }
    }

    deserializer.deserialize_any(Whole(wanted, range))
}

/// What becomes of frames that a network function does not look into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// They go on.
    #[default]
    Forward,
    /// They are dropped.
    Drop,
}

impl Policy {
    /// The verdict, with the reason of a drop.
    pub fn verdict(self, reason: &'static str) -> Verdict {
        match self {
            Policy::Forward => Verdict::Forward,
            Policy::Drop => Verdict::Drop(reason),
        }
    }
}

/// Ports from the first to the last, both included, in host byte order: `443` or `"1024-65535"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// The ports of a range; `None` where it is empty.
    pub fn new(range: RangeInclusive<u16>) -> Option<Self> {
        let (first, last) = range.into_inner();
        (first <= last).then_some(Ports { first, last })
    }

    /// The ports between two, both included, whichever is lower.
    pub const fn between(a: u16, b: u16) -> Self {
        if a <= b { Ports { first: a, last: b } } else { Ports { first: b, last: a } }
    }

    /// The lowest port.
    pub fn first(&self) -> u16 {
        self.first
    }

    /// How many ports there are, 1 to 65,536.
    pub fn count(&self) -> u64 {
        u64::from(self.last - self.first) + 1
    }

    /// Whether `port` is one of them.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// The port at `offset` from the first; offsets beyond the last start again at the first.
    pub fn at(&self, offset: u64) -> u16 {
        self.first + (offset % self.count()) as u16
    }
}

/// A text or number that names no ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ports are one number, or two with a hyphen between them as in \"1024-65535\", from 0 to 65535")]
pub struct PortsError;

impl FromStr for Ports {
    type Err = PortsError;

    fn from_str(text: &str) -> Result<Self, PortsError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse().map_err(|_| PortsError);
        Ports::new(port(first)?..=port(last)?).ok_or(PortsError)
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PortsVisitor;

        impl Visitor<'_> for PortsVisitor {
            type Value = Ports;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port, or a range of ports as in \"1024-65535\"")
            }

            fn visit_i64<E: Error>(self, port: i64) -> Result<Ports, E> {
                let port = u16::try_from(port).map_err(|_| E::custom(PortsError))?;
                Ok(Ports { first: port, last: port })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Ports, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(PortsVisitor)
    }
}

/// Values that may be written alone or as a list: `"10.0.0.0/8"` or `["10.0.0.0/8", "fc00::/7"]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        OneOrMany(Vec::new())
    }
}

impl<T> Deref for OneOrMany<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrManyVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrManyVisitor<T> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one value or a list of values")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Vec<T>, E> {
                T::deserialize(I64Deserializer::new(number)).map(|value| vec![value])
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
                T::deserialize(StrDeserializer::new(text)).map(|value| vec![value])
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<T>, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list))
            }
        }

        deserializer.deserialize_any(OneOrManyVisitor(PhantomData)).map(OneOrMany)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Sample {
        #[serde(default)]
        ports: OneOrMany<Ports>,
        #[serde(default = "one")]
        wait: Seconds,
    }

    fn one() -> Seconds {
        Seconds::new(1)
    }

    fn ports(text: &str) -> Result<Vec<(u16, u64)>, String> {
        let sample: Sample = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        Ok(sample.ports.iter().map(|ports| (ports.first(), ports.count())).collect())
    }

    #[test]
    fn ports_are_written_in_four_ways() {
        // Goal: a number, a range and lists of both mean what they say. Method: parse each, look at the bounds.
        assert_eq!(ports("ports = 443"), Ok(vec![(443, 1)]));
        assert_eq!(ports("ports = '0-65535'"), Ok(vec![(0, 65_536)]));
        assert_eq!(ports("ports = [80, '1000 - 1001']"), Ok(vec![(80, 1), (1000, 2)]));
        assert_eq!(ports(""), Ok(vec![]));
        for wrong in ["ports = 65536", "ports = '5-4'", "ports = 'http'", "ports = [-1]"] {
            assert_eq!(ports(wrong), Err(PortsError.to_string()), "{wrong}");
        }
        assert!(ports("ports = true").is_err_and(|message| message.contains("one value or a list")));
    }

    #[test]
    fn offsets_stay_inside_of_the_range() {
        // Goal: no offset leaves the range. Method: around the ends of the widest and of a narrow one.
        let narrow = Ports::new(10..=12).unwrap();
        assert_eq!([0, 2, 3, u64::MAX].map(|offset| narrow.at(offset)), [10, 12, 10, 10]);
        let all = Ports::new(0..=u16::MAX).unwrap();
        assert_eq!((all.at(65_535), all.at(65_536)), (65_535, 0));
        assert!(narrow.contains(12) && !narrow.contains(13));
    }

    #[test]
    fn seconds_are_at_least_one() {
        // Goal: no timeout is over before it began. Method: parse zero, and build from zero.
        assert!(toml::from_str::<Sample>("wait = 0").is_err());
        let sample: Sample = toml::from_str("wait = 3").unwrap();
        assert_eq!((sample.wait.nanos(), Seconds::new(0).nanos()), (3 * SECOND, SECOND));
        assert_eq!(Seconds::new(u64::MAX).nanos(), Nanos::MAX);
    }

    #[test]
    fn capacities_have_bounds_that_errors_name() {
        // Goal: no table without room, none beyond measure. Method: both ends and beyond, for each network function.
        for (nf, option) in [("monitor", "flows"), ("firewall", "connections"), ("nat", "mappings")] {
            let kind = crate::find(nf).expect("listed");
            let build = |rows: i64| {
                let external = ("external", "203.0.113.1".into());
                let all = [(option, rows.into()), external];
                kind.build(&all[..if nf == "nat" { 2 } else { 1 }])
            };
            assert!(build(1).is_ok(), "{nf}");
            for wrong in [0, -1, MOST_ROWS.cast_signed() + 1, i64::MAX] {
                let error = build(wrong).expect_err("out of range");
                assert_eq!(error.key.as_deref(), Some(option));
                let words = format!("a number of rows from 1 to 4294967296, and this is {wrong}");
                assert!(error.message.contains(&words), "{error}");
            }
        }
    }
}
