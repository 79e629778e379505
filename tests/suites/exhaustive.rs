//! Small worlds, in which every schedule is tried.

use pannier_runtime::mutant::Mutant;
use pannier_sim::explore::SMALL_WORLDS;
use pannier_sim::{Options, timeline};

/// Worlds of these many first ones are quick; `pannier sim --exhaustive` runs all.
const QUICK: usize = 3;

#[test]
fn no_schedule_of_a_small_world_breaks_a_promise() {
    // Goal: what random schedules may miss. Method: depth first through all states of worlds of a few packets.
    for world in &SMALL_WORLDS[..QUICK] {
        let explored = world.explore(world.options(), |_| {}).expect("a small world is possible");
        let explored = explored.unwrap_or_else(|failure| {
            let told = timeline(failure.options, &failure.events).expect("it was possible before");
            panic!("{}: {}\n{}", world.name, failure.broken, told.text)
        });
        println!("{}: {explored:?}", world.name);
        assert!(explored.ends > 0 && explored.states > 1_000, "{}: too little was seen", world.name);
    }
}

#[test]
fn the_search_finds_what_is_broken() {
    // Goal: the search can fail. Method: mutants that worlds of one or two packets show.
    for mutant in [Mutant::NoReleaseWait, Mutant::NoBackwardWait, Mutant::NoRepair, Mutant::NoFence] {
        let caught = SMALL_WORLDS[..QUICK].iter().any(|world| {
            let options = Options { mutant: Some(mutant), ..world.options() };
            world.explore(options, |_| {}).expect("a small world is possible").is_err()
        });
        assert!(caught, "nobody noticed {}", mutant.name());
    }
}
