//! The ring keeps its promises under random schedules of losses, duplicates, reorderings, crashes and recoveries.

use pannier_tests::world::{Options, World};

/// First seed and number of schedules; set `PANNIER_SEED` and `PANNIER_SCHEDULES` to look elsewhere or at one.
fn seeds() -> std::ops::Range<u64> {
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let first = number("PANNIER_SEED", 0);
    first..first + number("PANNIER_SCHEDULES", 400)
}

#[test]
fn every_promise_holds_in_every_schedule() {
    // Goal: released, closure, causality, once, prefix, abort, liveness. Method: seeded schedules over the real nodes.
    let (mut recoveries, mut released) = (0, 0);
    for seed in seeds() {
        let options = Options::random(seed, 1_500);
        let mut world = World::new(options);
        if let Err(broken) = world.run() {
            panic!(
                "{broken}\n{options:?}\nrerun: PANNIER_SEED={seed} PANNIER_SCHEDULES=1 cargo test schedules"
            );
        }
        recoveries += world.recoveries;
        released += world.released.len();
    }
    println!("seeds {:?}: {released} packets released, {recoveries} recoveries", seeds());
    assert!(released > 0, "a run in which nothing leaves shows nothing");
}
