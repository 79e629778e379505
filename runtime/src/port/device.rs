//! Ports to the world outside: what they have in common, how they are named, and what can go wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::BorrowedFd;

use super::af_packet::AfPacket;
use super::af_xdp::AfXdp;
use super::pcap::PcapPort;
use super::tap::Tap;
use super::{Port, PortContext};
use crate::packet::Packet;
use crate::stats::Reasons;

/// A port to the world outside, of any kind.
pub type Device = Box<dyn DevicePort>;

/// What a port to the world outside does besides taking and giving bursts. An interface that is down gives nothing
/// and takes nothing (what is sent is dropped and counted) until it is up again: that is no error.
pub trait DevicePort: Port<Error = PortError> + Send {
    /// How the port is called: as in its [`PortSpec`].
    fn name(&self) -> &str;

    /// What it has counted so far.
    fn stats(&self) -> PortStats;

    /// Becomes readable when packets arrive, for those who sleep until then; `None` where the port must be polled.
    /// Sleep only after a burst that gave nothing: what has arrived already wakes nobody.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl fmt::Debug for dyn DevicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.name()).finish()
    }
}

impl Port for Device {
    type Error = PortError;

    fn rx_burst(
        &mut self,
        most: usize,
        context: &mut PortContext<'_>,
        burst: &mut Vec<Packet>,
    ) -> Result<usize, PortError> {
        (**self).rx_burst(most, context, burst)
    }

    fn tx_burst(&mut self, context: &mut PortContext<'_>, burst: &mut Vec<Packet>) -> Result<(), PortError> {
        (**self).tx_burst(context, burst)
    }
}

/// What a port has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets that arrived and were handed on.
    pub received: u64,
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that arrived and were not handed on, by reason.
    pub receive_drops: Reasons,
    /// Packets that could not be sent, by reason.
    pub send_drops: Reasons,
}

impl PortStats {
    /// Adds what another queue of the port has counted.
    pub fn add(&mut self, other: &PortStats) {
        self.received += other.received;
        self.sent += other.sent;
        self.receive_drops.add(&other.receive_drops);
        self.send_drops.add(&other.send_drops);
    }
}

/// What went wrong with a port, and the way out, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{port}: {problem}: {way_out}")]
pub struct PortError {
    /// The port, as it was named.
    pub port: String,
    /// What went wrong.
    pub problem: String,
    /// What a person can do about it.
    pub way_out: String,
}

/// The kinds of ports that can be opened.
const KINDS: &[&str] = &["af_packet", "af_xdp", "dpdk", "pcap", "tap"];

/// How a port is named: `kind:name,option=value,…`, as in `af_packet:veth0,frames=4096`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// The kind of port, in front of the colon.
    pub kind: String,
    /// The interface or file, behind the colon; empty where none is named.
    pub name: String,
    /// The options, by name.
    pub options: BTreeMap<String, String>,
    /// All of it.
    text: String,
}

impl PortSpec {
    /// Takes a port's name apart.
    ///
    /// # Errors
    /// An option that is no `name=value`, or comes twice.
    pub fn parse(text: &str) -> Result<Self, PortError> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut parts = rest.split(',');
        let name = parts.next().unwrap_or_default();
        let mut spec = PortSpec {
            kind: kind.to_owned(),
            name: name.to_owned(),
            options: BTreeMap::new(),
            text: text.to_owned(),
        };
        for part in parts {
            let Some((option, value)) = part.split_once('=') else {
                return Err(spec.error(format!("`{part}` is no option"), "options are written name=value"));
            };
            if spec.options.insert(option.to_owned(), value.to_owned()).is_some() {
                return Err(spec.error(format!("the option `{option}` comes twice"), "leave one out"));
            }
        }
        Ok(spec)
    }

    /// The port as it was named.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// An error about this port.
    pub fn error(&self, problem: impl Into<String>, way_out: impl Into<String>) -> PortError {
        PortError { port: self.text.clone(), problem: problem.into(), way_out: way_out.into() }
    }

    /// The option `name` as a number, or `default` where it is not given.
    ///
    /// # Errors
    /// A value that is no number.
    pub fn number(&self, name: &str, default: usize) -> Result<usize, PortError> {
        let Some(value) = self.options.get(name) else { return Ok(default) };
        value.parse().map_err(|_| self.error(format!("{name} is `{value}`"), "give a whole number"))
    }

    /// Refuses options that are not in `known`.
    ///
    /// # Errors
    /// The first option that is unknown.
    pub fn check_options(&self, known: &[&str]) -> Result<(), PortError> {
        match self.options.keys().find(|option| !known.contains(&option.as_str())) {
            None => Ok(()),
            Some(option) if known.is_empty() => {
                Err(self.error(format!("there is no option `{option}`"), "this kind of port has none"))
            }
            Some(option) => Err(self
                .error(format!("there is no option `{option}`"), format!("there are {}", known.join(", ")))),
        }
    }

    /// Opens the port with one queue.
    ///
    /// # Errors
    /// As [`PortSpec::open_queues`].
    pub fn open(&self) -> Result<Device, PortError> {
        Ok(self.open_queues(1)?.remove(0))
    }

    /// Opens the port with up to `most` queues, at least one: what arrives comes by one of them, all packets of a flow by the
    /// same, and each can send. Only `af_packet` and `af_xdp` have more than one.
    ///
    /// # Errors
    /// An unknown kind, and what the kind itself finds wrong: a missing right, interface, driver …
    pub fn open_queues(&self, most: usize) -> Result<Vec<Device>, PortError> {
        let one: Device = match self.kind.as_str() {
            "af_packet" => return Ok(boxed(AfPacket::open_queues(self, most)?)),
            "af_xdp" => return Ok(boxed(AfXdp::open_queues(self, most)?)),
            #[cfg(feature = "dpdk")]
            "dpdk" => super::dpdk::open(self)?,
            #[cfg(not(feature = "dpdk"))]
            "dpdk" => return Err(self.error("built without DPDK", "build with --features dpdk")),
            "pcap" => Box::new(PcapPort::open(self)?),
            "tap" => Box::new(Tap::open(self)?),
            kind => {
                return Err(self.error(
                    format!("there is no kind of port `{kind}`"),
                    format!("name one as kind:interface, with one of the kinds {}", KINDS.join(", ")),
                ));
            }
        };
        Ok(vec![one])
    }
}

fn boxed(queues: Vec<impl DevicePort + 'static>) -> Vec<Device> {
    queues.into_iter().map(|queue| Box::new(queue) as Device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_named_by_kind_name_and_options() {
        // Goal: what a person writes is what is meant. Method: names with and without parts, and broken ones.
        let spec = PortSpec::parse("af_packet:veth0,frames=4096,queue=1").expect("well formed");
        assert_eq!((spec.kind.as_str(), spec.name.as_str()), ("af_packet", "veth0"));
        assert_eq!((spec.number("frames", 1), spec.number("other", 7)), (Ok(4096), Ok(7)));
        assert!(spec.check_options(&["frames", "queue"]).is_ok());
        let sentence = spec.check_options(&["frames"]).expect_err("unknown").to_string();
        assert_eq!(
            sentence,
            "af_packet:veth0,frames=4096,queue=1: there is no option `queue`: there are frames"
        );
        for wrong in ["tap:t,x", "tap:t,x=1,x=2", "nothing:x"] {
            assert!(PortSpec::parse(wrong).and_then(|spec| spec.open()).is_err(), "{wrong}");
        }
        for kind in KINDS.iter().filter(|kind| !["dpdk", "pcap"].contains(kind)) {
            let error =
                PortSpec::parse(kind).and_then(|spec| spec.open()).expect_err("no interface is named");
            assert_eq!(error.problem, "no interface is named");
        }
        assert!(PortSpec::parse("tap:t,x=y").expect("well formed").number("x", 0).is_err());
    }

    #[cfg(not(feature = "dpdk"))]
    #[test]
    fn a_build_without_dpdk_says_how_to_get_it() {
        // Goal: nobody looks for a mistake in a name that is right. Method: the error of a port of DPDK.
        let error = PortSpec::parse("dpdk:net_null0").and_then(|spec| spec.open()).expect_err("not built in");
        assert_eq!(error.to_string(), "dpdk:net_null0: built without DPDK: build with --features dpdk");
    }
}
