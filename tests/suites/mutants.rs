//! Each rule of the protocol is needed: whoever switches it off is caught.

use std::sync::atomic::AtomicBool;

use pannier_runtime::mutant::Mutant;
use pannier_sim::{Options, Schedule, campaign, play, shrink};
use pannier_tests::kept_schedules;

use crate::shards::MUTANTS;

/// Schedules within which a mutant must be caught.
const BUDGET: u64 = 20_000;

#[test]
fn every_mutant_is_caught() {
    // Goal: the checkers can see each kind of fault. Method: one broken rule at a time, random schedules until a promise
    // breaks; the table in ARCHITECTURE.md is this test's output.
    println!("| mutant | schedules until caught | promise | shrunk to |\n|---|---|---|---|");
    let kept: Vec<Schedule> = kept_schedules().into_iter().map(|(_, schedule)| schedule).collect();
    let mut survivors = Vec::new();
    for &mutant in Mutant::ALL.iter().filter(|mutant| !MUTANTS.contains(mutant)) {
        if let Some(schedule) = kept.iter().find(|schedule| schedule.options.mutant == Some(mutant)) {
            let ended = play(schedule.options, &schedule.events).expect("its options are possible");
            match ended {
                Ok(_) => survivors.push(mutant.name()),
                Err(failure) => {
                    let (name, events) = (mutant.name(), schedule.events.len());
                    println!("| {name} | a kept one | {} | {events} events |", failure.broken.promise);
                }
            }
            continue;
        }
        let options = |seed| Options { mutant: Some(mutant), ..Options::random(seed, 1_000) };
        let sum = campaign(0, BUDGET, 2, options, &AtomicBool::new(false), |_| {});
        let Some(failure) = sum.expect("random options are possible").failure else {
            survivors.push(mutant.name());
            continue;
        };
        let small = shrink(&failure, 3_000).expect("its options made a ring before");
        let (name, seeds) = (mutant.name(), failure.options.seed + 1);
        println!("| {name} | {seeds} | {} | {} events |", failure.broken.promise, small.events.len());
        let sound = Options { mutant: None, ..small.options };
        let ended = play(sound, &small.events).expect("its options made a ring before");
        assert!(ended.is_ok(), "{name}: the schedule breaks a promise without the mutant");
    }
    assert!(survivors.is_empty(), "nobody noticed {survivors:?}");
}
