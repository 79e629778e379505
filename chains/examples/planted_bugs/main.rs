//! What the testing kit says: each mistake of `bugs.rs` with its message, and a sound network function that survives.
//!
//! `cargo run -p pannier-chains --features testing --example planted_bugs`

mod bugs;

use pannier_chains::testing::{Failure, Survived, survives};
use pannier_runtime::Nf;

fn main() {
    show("no mistake", bugs::sound);
    show("reads the system clock", bugs::reads_the_system_clock);
    show("reads a clock in seconds", bugs::reads_a_clock_in_seconds);
    show("keeps a stopwatch", bugs::keeps_a_stopwatch);
    show("gives up after a while", bugs::gives_up_after_a_while);
    show("drops every other millisecond", bugs::drops_every_other_millisecond);
    show("counts in the closure", bugs::counts_in_the_closure);
    show("counts in a map of the closure", bugs::counts_in_a_map_of_the_closure);
    show("iterates a hash set", bugs::iterates_a_hash_set);
    show("iterates a new hash map", bugs::iterates_a_new_hash_map);
    show("edits before a refused write", bugs::edits_before_a_refused_write);
    show("remembers beside its tables", bugs::remembers_beside_its_tables);
    show("counts in a static", bugs::counts_in_a_static);
    show("panics when a table is full", bugs::panics_when_a_table_is_full);
}

/// Tests what `factory` makes, and prints what came of it.
fn show<N: Nf>(name: &str, factory: impl Fn() -> N + Send + Sync + 'static) {
    println!("== {name}");
    let tested: Result<Survived, Failure> = survives(factory, &bugs::trace(), &bugs::faults());
    match tested {
        Ok(survived) => println!(
            "survived {} crashes: {} transactions rehearsed, {} refusals tried\n",
            survived.crashes, survived.transactions, survived.refusals
        ),
        Err(failure) => println!("{failure}\n"),
    }
}
