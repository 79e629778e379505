//! The ring keeps its promises in random schedules, in those that once broke one, and plays each again exactly.

use std::sync::atomic::AtomicBool;

use pannier_sim::{Options, Schedule, Sum, campaign, draw, play, shrink, timeline};
use pannier_tests::kept_schedules;

/// First seed and number of schedules; set `PANNIER_SEED` and `PANNIER_SCHEDULES` to look elsewhere or at one.
fn seeds() -> (u64, u64) {
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    (number("PANNIER_SEED", 0), number("PANNIER_SCHEDULES", 500))
}

/// A failing campaign as a person needs it.
fn told(sum: &Sum) -> String {
    let Some(failure) = &sum.failure else { return "nothing is broken".to_owned() };
    let small = shrink(failure, 20_000).expect("the options made a ring before");
    let told = timeline(small.options, &small.events).expect("the options made a ring before");
    let seed = small.options.seed;
    format!("{}\n{}\nrerun: pannier sim --seed {seed} --runs 1", told.text, Schedule::of(&small))
}

#[test]
fn every_promise_holds_in_every_schedule() {
    // Goal: released, closure, causality, once, prefix, abort, liveness. Method: seeded schedules over the real nodes.
    let ((first, runs), stop) = (seeds(), AtomicBool::new(false));
    let sum = campaign(first, runs, 2, |seed| Options::random(seed, 1_000), &stop, |_| {});
    let sum = sum.expect("random options are possible");
    println!(
        "{runs} schedules from seed {first}: {} packets released, {} recoveries",
        sum.released, sum.recoveries
    );
    assert!(sum.failure.is_none(), "{}", told(&sum));
    assert!(sum.released > 0, "a run in which nothing leaves shows nothing");
}

#[test]
fn schedules_that_once_broke_a_promise_keep_it_now() {
    // Goal: no fault comes back. Method: the shrunk schedule of each one that was found.
    for (name, schedule) in kept_schedules() {
        let sound = Options { mutant: None, ..schedule.options };
        let ended = play(sound, &schedule.events).expect("its options are possible");
        assert!(ended.is_ok(), "{name}: {}", ended.expect_err("looked at before").broken);
    }
}

#[test]
fn the_same_options_are_the_same_run() {
    // Goal: a run is a function of its options. Method: whole timelines of several runs, twice each.
    for seed in 0..20 {
        let options = Options::random(seed, 400);
        let plan = options.plan().expect("random options are possible");
        let events: Vec<_> = draw(options, &plan).collect();
        let tell = || timeline(options, &events).expect("random options are possible").text;
        assert_eq!(tell(), tell(), "{options}");
    }
}
