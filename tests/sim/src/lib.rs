//! The simulator: real nodes of the ring under one seed, and a checker for each promise.
//!
//! A run is described by [`Options`] alone: they and their seed decide every [`Event`]. [`run()`] plays it in a
//! [`World`], and [`check`] looks at the promises on the way. A failing run is made small by [`shrink()`], shown by
//! [`timeline`] and kept as a [`Schedule`]. [`campaign()`] runs many, [`explore`] every one of a small world.
//!
//! Everything is the product's own code but the network, the orchestrator's detection of failures, and the network
//! function: that is [`Provenance`], whose every value tells which transactions it came from, so that the promises are
//! questions about sets.

mod campaign;
pub mod check;
mod draw;
mod event;
pub mod explore;
pub mod journal;
mod options;
pub mod provenance;
mod run;
mod schedule;
mod shrink;
mod timeline;
mod world;

pub use campaign::{Sum, campaign};
pub use draw::Draw;
pub use event::Event;
pub use journal::Journal;
pub use options::{Options, OptionsError};
pub use provenance::Provenance;
pub use run::{Failure, Kept, Told, draw, play, run, timeline};
pub use schedule::{Schedule, ScheduleError};
pub use shrink::shrink;
pub use world::World;

#[cfg(test)]
mod quick {
    use super::*;
    #[test]
    fn e() {
        // Goal: quick run. Method: seeds from the environment.
        for w in explore::SMALL_WORLDS {
            let start = std::time::Instant::now();
            match w
                .explore(w.options(), |e| {
                    if e.states % (1 << 18) == 0 {
                        println!("{e:?}")
                    }
                })
                .unwrap()
            {
                Ok(e) => println!("{}: {e:?} {:?}", w.name, start.elapsed()),
                Err(f) => {
                    println!("{}: {} {}", w.name, f.broken, timeline(f.options, &f.events).unwrap().text)
                }
            }
        }
    }
    #[test]
    fn t() {
        // Goal: quick run. Method: seeds from the environment.
        let n = |k: &str, d| std::env::var(k).ok().and_then(|v| v.parse().ok()).unwrap_or(d);
        let (first, count) = (n("S", 0u64), n("N", 200u64));
        let mutant = std::env::var("M").ok().map(|m| m.parse().unwrap());
        let mut sum = Kept::default();
        let start = std::time::Instant::now();
        for seed in first..first + count {
            let mut options = Options { mutant, ..Options::random(seed, n("STEPS", 1000) as usize) };
            if std::env::var("F").is_ok() {
                options.f = n("F", 0) as usize;
            }
            if std::env::var("U").is_ok() {
                options.unit = n("U", 0) as usize;
            }
            if std::env::var("ST").is_ok() {
                options.stages = n("ST", 0) as usize;
            }
            if std::env::var("P").is_ok() {
                options.partitions = n("P", 0) as usize;
            }
            match run(options).unwrap() {
                Ok(kept) => {
                    sum.released += kept.released;
                    sum.recoveries += kept.recoveries;
                }
                Err(f) => {
                    let f = if std::env::var("SHRINK").is_ok() {
                        let s = shrink(&f, 20000).unwrap();
                        println!("{}", timeline(s.options, &s.events).unwrap().text);
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
