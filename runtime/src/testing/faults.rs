//! Fault plans as a strategy.

use proptest::collection::vec;
use proptest::prelude::*;

use super::shrink::plain_first;
use super::{CrashAt, FaultPlan};
use crate::port::Faults;

/// Plans for a ring of `nodes` nodes that holds `f` failures, while `packets` packets enter it: each fault of the links
/// with a probability up to 0.2, and up to 2f+1 crashes, a third of them together with another. They may ask for more
/// than f nodes down at once; a chain puts off what it would not survive. Without failures to hold (`f` is 0) or nodes,
/// nobody crashes. Shrinks to no faults at all and seed 0.
pub fn fault_plan(nodes: usize, f: usize, packets: u64) -> impl Strategy<Value = FaultPlan> {
    let links = (probability(), probability(), probability(), probability());
    let links =
        links.prop_map(|(loss, duplicate, reorder, delay)| Faults { loss, duplicate, reorder, delay });
    let most = if f == 0 || nodes == 0 { 0 } else { 2 * f + 1 };
    let crash = (0..nodes.max(1), plain_first(0, 0..=packets), prop::bool::weighted(0.33));
    (plain_first(0, any::<u64>()), links, vec(crash, 0..=most)).prop_map(|(seed, links, drawn)| {
        let mut crashes: Vec<CrashAt> = Vec::with_capacity(drawn.len());
        for (node, packet, is_together) in drawn {
            let other = crashes.last().filter(|_| is_together);
            crashes.push(CrashAt { node, packet: other.map_or(packet, |other| other.packet) });
        }
        crashes.sort_by_key(|crash| crash.packet);
        FaultPlan { seed, links, crashes }
    })
}

/// Often none, else thousandths, which read well.
fn probability() -> impl Strategy<Value = f64> {
    let thousandths = plain_first(0, prop_oneof![2 => Just(0_u32), 1 => 0..=200_u32]);
    thousandths.prop_map(|thousandths| f64::from(thousandths) / 1_000.0)
}
