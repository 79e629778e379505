//! Steering: which lane a packet takes through the ring. Chosen once, where it enters.

use std::sync::Arc;

use crate::nf::AnyNf;
use crate::packet::Packet;
use crate::wire::Flow;

/// Puts a packet whose direction and flow are set on its lane. The packets of a flow take one lane, in both directions:
/// where a network function gives the flow another face on one side, it says itself what both sides share
/// ([`Nf::steer`](crate::Nf::steer)).
/// `flow` is the packet's, where it has one.
pub fn steer(packet: &mut Packet, flow: Option<&Flow>, lanes: usize, nfs: &[Arc<dyn AnyNf>]) {
    if lanes > 1 {
        let direction = packet.meta.direction;
        let hint = flow.and_then(|flow| nfs.iter().find_map(|nf| nf.steer_by(flow, direction)));
        let hash = hint.unwrap_or(packet.meta.flow);
        packet.meta.lane = ((u64::from(hash) * lanes as u64) >> 32) as u8;
    }
}
