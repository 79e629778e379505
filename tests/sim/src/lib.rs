//! The simulator: real nodes of the ring under one seed, and a checker for each promise.
//!
//! A run is described by [`Options`] alone: they and their seed decide every [`Event`]. [`run()`] plays it in a [`World`]
//! and checks the promises on the way ([`check`]).

pub mod check;
mod draw;
mod event;
pub mod journal;
mod options;
pub mod provenance;
mod run;
mod shrink;
mod timeline;
mod world;

pub use draw::Draw;
pub use event::Event;
pub use options::{Options, OptionsError};
pub use provenance::Provenance;
pub use run::{Failure, Kept, draw, play, run, timeline};
pub use shrink::shrink;
pub use world::World;

#[cfg(test)]
mod quick {
    use super::*;
    #[test]
    fn t() {
        // Goal: quick run. Method: seeds from the environment.
        let n = |k: &str, d| std::env::var(k).ok().and_then(|v| v.parse().ok()).unwrap_or(d);
        let (first, count) = (n("S", 0u64), n("N", 200u64));
        let mutant = std::env::var("M").ok().map(|m| m.parse().unwrap());
        let mut sum = Kept::default();
        let start = std::time::Instant::now();
        for seed in first..first + count {
            let options = Options { mutant, ..Options::random(seed, 1000) };
            match run(options).unwrap() {
                Ok(kept) => {
                    sum.released += kept.released;
                    sum.recoveries += kept.recoveries;
                }
                Err(f) => {
                    let f = if std::env::var("SHRINK").is_ok() {
                        let s = shrink(&f, 20000).unwrap();
                        println!("{}", timeline(s.options, &s.events).unwrap());
                        Box::new(s)
                    } else {
                        f
                    };
                    println!(
                        "CAUGHT seed {seed} after {} schedules: {}\n{}\n{} events",
                        seed - first + 1,
                        f.broken,
                        f.options,
                        f.events.len()
                    );
                    return;
                }
            }
        }
        println!("{sum:?} {:?}", start.elapsed());
    }
}
