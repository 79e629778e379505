//! Steering: which lane a packet takes through the ring. Chosen once, where it enters.

use std::sync::Arc;

use super::plan::Plan;
use crate::nf::AnyNf;
use crate::packet::Packet;
use crate::state::{hash_bytes, spread};
use crate::wire::Flow;
use zerocopy::IntoBytes;

/// Puts a packet whose direction is set on its lane. The packets of a flow take one lane, in both directions: where a network
/// function gives the flow another face on one side, it says itself what both sides share ([`Nf::steer`](crate::Nf::steer)).
///
/// Else a flow's lane follows from the bits that choose the partition of a row with the flow as its key
/// ([`Flow::ordered`]): rows of a lane's flows lie in partitions that other lanes leave alone, where the number of lanes
/// divides that of partitions.
pub fn steer(packet: &mut Packet, plan: &Plan, nfs: &[Arc<dyn AnyNf>]) {
    let lanes = plan.lanes;
    if lanes > 1 {
        let direction = packet.meta.direction;
        let hash = Flow::parse(packet.frame()).map_or(0, |flow| {
            let hint = nfs.iter().find_map(|nf| nf.steer_by(&flow, direction));
            hint.unwrap_or_else(|| spread(hash_bytes(plan.layout.hash_seed, flow.ordered().0.as_bytes())))
        });
        packet.meta.lane = ((u64::from(hash) * lanes as u64) >> 32) as u8;
    }
}
