//! Fault plans stay within what they promise, and read as the command line's options.

use proptest::prelude::*;

use super::{minimal, values};
use crate::port::Faults;
use crate::testing::{CrashAt, FaultPlan, fault_plan};

proptest! {
    #[test]
    fn plans_stay_within_their_bounds(
        (nodes, f, packets, plan) in (0_usize..6, 0_usize..4, 0_u64..50).prop_flat_map(|(nodes, f, packets)| {
            (Just(nodes), Just(f), Just(packets), fault_plan(nodes, f, packets))
        }),
    ) {
        // Goal: probabilities, nodes, moments and their order hold. Method: plans for rings of all sizes.
        let Faults { loss, duplicate, reorder, delay } = plan.links;
        prop_assert!([loss, duplicate, reorder, delay].iter().all(|p| (0.0..=0.2).contains(p)));
        prop_assert!(plan.crashes.is_sorted_by_key(|crash| crash.packet));
        prop_assert!(plan.crashes.iter().all(|crash| crash.node < nodes && crash.packet <= packets));
        let most = if f == 0 || nodes == 0 { 0 } else { 2 * f + 1 };
        prop_assert!(plan.crashes.len() <= most);
    }
}

#[test]
fn plans_shrink_to_what_it_takes() {
    // Goal: a failing plan shows its cause. Method: two crashes at once, and one lossy link; no fault else is left.
    for seed in 0..5 {
        let plans = fault_plan(4, 2, 1_000);
        let twice = |plan: &FaultPlan| plan.crashes.windows(2).any(|two| two[0].packet == two[1].packet);
        let (plan, _) = minimal(&plans, seed, twice);
        let crash = CrashAt { node: 0, packet: 0 };
        assert_eq!(plan, FaultPlan { crashes: vec![crash; 2], ..FaultPlan::default() }, "seed {seed}");
        let (plan, _) = minimal(&plans, seed, |plan| plan.links.loss >= 0.05);
        let links = Faults { loss: 0.05, ..Faults::NONE };
        assert_eq!(plan, FaultPlan { links, ..FaultPlan::default() }, "seed {seed}");
    }
    let with_crashes = |plan: &&FaultPlan| !plan.crashes.is_empty();
    assert!(values(&fault_plan(4, 2, 1_000), 1, 100).iter().filter(with_crashes).count() > 50);
}

#[test]
fn a_plan_reads_as_options() {
    // Goal: a failing plan can be tried by hand. Method: the texts of a full plan and of an empty one.
    let links = Faults { loss: 0.01, duplicate: 0.02, ..Faults::NONE };
    let crashes = vec![CrashAt { node: 1, packet: 12 }, CrashAt { node: 2, packet: 12 }];
    let plan = FaultPlan { seed: 7, links, crashes };
    let text =
        "--seed 7 --faults loss=0.01,duplicate=0.02; crashes: node 1 at packet 12, node 2 at packet 12";
    assert_eq!(plan.to_string(), text);
    assert_eq!(FaultPlan::default().to_string(), "--seed 0");
}
