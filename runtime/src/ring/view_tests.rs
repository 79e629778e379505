//! Sources of state against brute force, and the order in which replacements are let in.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn the_source_is_the_nearest_live_predecessor_else_the_first_live_successor(
        stages in 1usize..7, f in 0usize..5, standings in prop::collection::vec(0u8..3, 8),
    ) {
        // Goal: only legal sources. Method: walk away from the node, backward then forward, inside the group.
        let plan = Plan::new(stages, f).expect("small");
        let mut view = Orchestrator::new(&plan).view().clone();
        for (member, standing) in view.members.iter_mut().zip(&standings) {
            member.standing = [Standing::Up, Standing::Joining, Standing::Dead][usize::from(*standing)];
        }
        let up = |node: &usize| view.members[*node].standing == Standing::Up;
        for (node, stage) in (0..plan.nodes()).flat_map(|n| (0..stages).map(move |s| (n, s))) {
            let place = (node + plan.nodes() - stage) % plan.nodes();
            let at = |place: usize| (stage + place) % plan.nodes();
            let before = (0..place).rev().map(at).find(up);
            let expected = before.or_else(|| (place + 1..=f).map(at).find(up));
            let expected = if place <= f { expected } else { None };
            prop_assert_eq!(view.source(&plan, node, stage), expected);
        }
    }

    #[test]
    fn replacements_join_one_at_a_time(events in prop::collection::vec((0u8..3, 0usize..4), 1..60)) {
        // Goal: never two joining, no incarnation twice, numbers rise. Method: random events, checked after each.
        let plan = Plan::new(4, 2).expect("small");
        let mut orchestrator = Orchestrator::new(&plan);
        let mut used: Vec<Incarnation> = (1..=4).collect();
        for (event, node) in events {
            let before = orchestrator.view().clone();
            match event {
                0 => orchestrator.declare_dead(node),
                1 => {
                    if let Some(node) = orchestrator.admit() {
                        let incarnation = orchestrator.view().members[node].incarnation;
                        prop_assert!(!used.contains(&incarnation));
                        used.push(incarnation);
                        prop_assert_eq!(before.members[node].standing, Standing::Dead);
                        prop_assert!(!orchestrator.view().accepts(node, before.members[node].incarnation));
                    }
                }
                _ => {
                    // An incarnation that is not the one joining changes nothing.
                    orchestrator.caught_up(node, u64::MAX);
                    prop_assert_eq!(orchestrator.view(), &before);
                    orchestrator.caught_up(node, before.members[node].incarnation);
                }
            }
            let view = orchestrator.view();
            let joining = view.members.iter().filter(|m| m.standing == Standing::Joining).count();
            prop_assert!(joining <= 1);
            prop_assert_eq!(view.number > before.number, view.members != before.members);
        }
    }
}
