//! Exhaustive search: every schedule of a small world, depth first, each state once. States are told apart by 64 bits
//! of hash: of a million, one goes unseen with a probability of about one in forty million.

use std::collections::HashSet;

use pannier_runtime::Direction;

use crate::check;
use crate::event::Event;
use crate::options::{Options, OptionsError};
use crate::run::{Failure, Mutation};
use crate::world::World;

/// What may happen in a small world, each so many times. Deliveries may happen in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Packets that enter; every third goes inbound.
    pub packets: u8,
    /// Nodes that die.
    pub crashes: u8,
    /// Messages that are lost.
    pub losses: u8,
    /// Messages that are doubled.
    pub doubles: u8,
    /// Times that enough time passes at a node for all its timers.
    pub ticks: u8,
}

/// A small world.
#[derive(Clone, Copy, Debug)]
pub struct SmallWorld {
    /// What to call it.
    pub name: &'static str,
    /// Stages and failures to survive.
    pub ring: (usize, usize),
    /// What may happen.
    pub budget: Budget,
}

const fn small(name: &'static str, ring: (usize, usize), budget: [u8; 5]) -> SmallWorld {
    let [packets, crashes, losses, doubles, ticks] = budget;
    SmallWorld { name, ring, budget: Budget { packets, crashes, losses, doubles, ticks } }
}

/// The small worlds, the quick ones first.
pub const SMALL_WORLDS: &[SmallWorld] = &[
    small("one stage, two packets, everything", (1, 1), [2, 1, 1, 1, 1]),
    small("two nodes, a packet, everything", (2, 1), [1, 1, 1, 1, 0]),
    small("one stage, three packets, everything", (1, 1), [3, 1, 1, 1, 1]),
    small("two nodes, two packets, everything", (2, 1), [2, 1, 1, 1, 0]),
    small("three nodes, a packet, everything", (3, 1), [1, 1, 1, 1, 0]),
    small("three nodes, two packets, a crash", (3, 1), [2, 1, 0, 0, 0]),
    small("two nodes, three packets, a crash", (2, 1), [3, 1, 0, 0, 0]),
    small("two nodes, three packets, a crash, a loss", (2, 1), [3, 1, 1, 0, 0]),
    small("three nodes, two packets, a crash, a loss", (3, 1), [2, 1, 1, 0, 0]),
];

/// What a search has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Different states.
    pub states: u64,
    /// Events that lead from one state to another.
    pub steps: u64,
    /// States in which nothing is under way; from each the world was let come to rest.
    pub ends: u64,
    /// Events on the longest way.
    pub deepest: usize,
}

/// A state to go on from.
struct Place {
    world: World,
    budget: Budget,
    events: Vec<Event>,
}

impl SmallWorld {
    /// The options of the world's runs.
    pub fn options(&self) -> Options {
        let (stages, f) = self.ring;
        let (partitions, unit, mtu, snapshot) = (2, 1, 9_000, 1 << 20);
        let (seed, age, conflicts, lanes, steps, exhaustive, mutant) = (1, 0, 0, 1, 0, true, None);
        Options {
            seed,
            stages,
            f,
            partitions,
            unit,
            mtu,
            snapshot,
            age,
            conflicts,
            lanes,
            steps,
            exhaustive,
            mutant,
        }
    }

    /// Visits every state that can be reached, and checks all promises in each.
    ///
    /// # Errors
    /// Options that make no ring; then, the schedule if one breaks a promise.
    pub fn explore(
        &self,
        options: Options,
        mut progress: impl FnMut(&Explored),
    ) -> Result<Result<Explored, Box<Failure>>, OptionsError> {
        let _mutation = Mutation::of(&options);
        let world = World::new(options)?;
        let (mut seen, mut sum) = (HashSet::new(), Explored::default());
        let mut stack = vec![Place { world, budget: self.budget, events: Vec::new() }];
        while let Some(place) = stack.pop() {
            for (event, budget) in place.world.possible(place.budget) {
                let mut world = place.world.clone();
                let mut events = place.events.clone();
                events.push(event);
                let failure = |broken| Box::new(Failure { options, broken, events: events.clone() });
                sum.steps += 1;
                if let Err(broken) = world.step(&event) {
                    return Ok(Err(failure(broken)));
                }
                if !seen.insert((world.fingerprint(), budget)) {
                    continue;
                }
                if let Err(broken) = check::all(&world) {
                    return Ok(Err(failure(broken)));
                }
                sum.states += 1;
                sum.deepest = sum.deepest.max(events.len());
                if world.is_quiet() {
                    sum.ends += 1;
                    if let Err(broken) = world.clone().settle() {
                        return Ok(Err(failure(broken)));
                    }
                }
                if sum.states.is_multiple_of(4_096) {
                    progress(&sum);
                }
                stack.push(Place { world, budget, events });
            }
        }
        Ok(Ok(sum))
    }
}

/// Enough microseconds for every timer.
const LONG: u32 = 100_000;

impl World {
    /// Everything that may happen next, with what is left of the budget then.
    fn possible(&self, left: Budget) -> Vec<(Event, Budget)> {
        let mut all = Vec::new();
        if left.packets > 0 {
            let direction = if left.packets == 3 { Direction::Inbound } else { Direction::Outbound };
            let admit = Event::Admit { packet: u64::from(left.packets), direction, count: 1, size: 0 };
            all.push((admit, Budget { packets: left.packets - 1, ..left }));
        }
        for at in self.different_messages() {
            all.push((Event::Deliver { at, most: 1 }, left));
            if left.losses > 0 {
                all.push((Event::Lose(at), Budget { losses: left.losses - 1, ..left }));
            }
            if left.doubles > 0 {
                all.push((Event::Double(at), Budget { doubles: left.doubles - 1, ..left }));
            }
        }
        for at in 0..self.control_messages() {
            all.push((Event::Control(at), left));
            if left.losses > 0 {
                all.push((Event::LoseControl(at), Budget { losses: left.losses - 1, ..left }));
            }
            if left.doubles > 0 {
                all.push((Event::DoubleControl(at), Budget { doubles: left.doubles - 1, ..left }));
            }
        }
        all.extend((0..self.pending_views()).map(|at| (Event::View(at), left)));
        for node in self.places().filter(|_| left.crashes > 0) {
            all.push((Event::Crash(node), Budget { crashes: left.crashes - 1, ..left }));
        }
        if self.has_dead() {
            all.push((Event::Orchestrate, left));
        }
        for node in self.places().filter(|_| left.ticks > 0) {
            all.push((Event::Tick { node, timer: LONG, wall: 0 }, Budget { ticks: left.ticks - 1, ..left }));
        }
        all
    }
}
