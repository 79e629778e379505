//! The entrance: which way a packet goes, and which flow it belongs to.

use std::net::IpAddr;

use pannier_runtime::limits::MAX_FRAME;
use pannier_runtime::wire::arp::ArpPacket;
use pannier_runtime::wire::ethernet::EthernetHeader;
use pannier_runtime::wire::{Flow, L3, Layers, symmetric_hash};
use pannier_runtime::{Direction, Packet};

use crate::config::{Inside, Undecided};

/// Decides directions.
#[derive(Clone, Debug)]
pub(crate) struct Ingress {
    inside: Inside,
    /// Addresses of network functions that the outside talks to: a NAT's.
    outside: Vec<IpAddr>,
    undecided: Undecided,
    /// Packets whose direction the addresses did not tell.
    pub(crate) undecided_count: u64,
}

impl Ingress {
    pub(crate) fn new(inside: Inside, outside: Vec<IpAddr>, undecided: Undecided) -> Self {
        Ingress { inside, outside, undecided, undecided_count: 0 }
    }

    /// Sets a packet's direction and flow, and returns the flow where it has one. `side` says which way it goes where its capture does.
    ///
    /// # Errors
    /// The reason for which the packet does not enter.
    pub(crate) fn admit(
        &mut self,
        packet: &mut Packet,
        side: Option<Direction>,
    ) -> Result<Option<Flow>, &'static str> {
        if packet.frame().len() > MAX_FRAME {
            return Err("frame_too_long");
        }
        let layers = Layers::parse(packet.frame()).ok();
        let flow = layers.and_then(|layers| Flow::of(packet.frame(), &layers));
        packet.meta.flow = flow.as_ref().map_or(0, symmetric_hash);
        let told = side.or_else(|| self.by_address(packet.frame(), layers.as_ref(), flow.as_ref()));
        packet.meta.direction = match told {
            Some(direction) => direction,
            None => {
                self.undecided_count += 1;
                self.undecided.direction().ok_or("direction_undecided")?
            }
        };
        Ok(flow)
    }

    fn by_address(&self, frame: &[u8], layers: Option<&Layers>, flow: Option<&Flow>) -> Option<Direction> {
        let ends = match (layers, flow) {
            (_, Some(flow)) => Some((flow.source(), flow.destination())),
            (Some(layers), None) if layers.l3() == L3::Arp => ArpPacket::view(frame, layers.l3_offset())
                .ok()
                .map(|arp| (IpAddr::from(arp.sender()), IpAddr::from(arp.target()))),
            _ => None,
        };
        let by_ip = ends.and_then(|(from, to)| {
            let to_inside = self.inside.contains_ip(to) || self.outside.contains(&to);
            decide(self.inside.contains_ip(from), to_inside)
        });
        by_ip.or_else(|| {
            let header = EthernetHeader::view(frame).ok()?;
            let inside = |mac: &[u8; 6]| self.inside.contains_mac(*mac);
            decide(inside(&header.source.0), inside(&header.destination.0))
        })
    }
}

/// From the inside to elsewhere, or from elsewhere to the inside; anything else tells nothing.
fn decide(from_inside: bool, to_inside: bool) -> Option<Direction> {
    match (from_inside, to_inside) {
        (true, false) => Some(Direction::Outbound),
        (false, true) => Some(Direction::Inbound),
        _ => None,
    }
}
