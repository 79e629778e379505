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
/// Else a flow's lane follows from the partition of a row with the flow as its key ([`Flow::ordered`]): lanes take partitions in turn,
/// so that rows of a lane's flows lie in partitions that other lanes leave alone, beside its parts of tables in parts
/// ([`PerLane`](crate::state::PerLane)).
#[inline]
pub fn steer(packet: &mut Packet, plan: &Plan, nfs: &[Arc<dyn AnyNf>]) {
    if plan.lanes > 1 {
        packet.meta.lane = lane_of(packet, plan, nfs) as u8;
    }
}

/// The lane of a packet, of several.
fn lane_of(packet: &Packet, plan: &Plan, nfs: &[Arc<dyn AnyNf>]) -> usize {
    let direction = packet.meta.direction;
    let hash = Flow::parse(packet.frame()).map_or(0, |flow| {
        let hint = nfs.iter().find_map(|nf| nf.steer_by(&flow, direction));
        hint.unwrap_or_else(|| spread(hash_bytes(plan.layout.hash_seed, flow.ordered().0.as_bytes())))
    });
    lane(hash, plan.layout.partitions, plan.lanes)
}

/// The lane of what has `hash`, by its partition; where there are more lanes than partitions, by a part of one.
fn lane(hash: u32, partitions: usize, lanes: usize) -> usize {
    let cells = partitions * lanes.div_ceil(partitions);
    ((u64::from(hash) * cells as u64) >> 32) as usize % lanes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{MAX_LANES, MAX_PARTITIONS};
    use crate::state::{Layout, Placement};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_partition_is_of_one_lane_and_each_lane_has_its_share(
            partitions in 1..=MAX_PARTITIONS, lanes in 1..=MAX_LANES, keys in prop::collection::vec(any::<u64>(), 1..100),
        ) {
            // Goal: lanes rarely meet, and none is idle. Method: the lanes of random keys beside their partitions; all lanes
            // come up over the whole range of hashes, each as often as any other, give or take a partition.
            let layout = Layout { partitions, ..Layout::default() };
            for key in keys {
                let place = Placement::new(layout.hash_seed, partitions).place(key.as_bytes());
                if lanes <= partitions {
                    prop_assert_eq!(lane(spread(place.hash), partitions, lanes), place.partition % lanes);
                }
            }
            let mut counts = vec![0; lanes];
            let steps = 64 * 64u64;
            (0..steps).for_each(|i| counts[lane(((i << 32) / steps) as u32, partitions, lanes)] += 1);
            let cells = partitions * lanes.div_ceil(partitions);
            let share = cells / lanes * steps as usize / cells;
            prop_assert!(counts.iter().all(|&count| count + 64 >= share && count > 0), "{counts:?}");
        }
    }
}
