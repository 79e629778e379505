//! Shrinks a failing schedule: fewer events, and simpler ones, that break the same promise.

use pannier_runtime::Direction;

use crate::event::Event;
use crate::options::OptionsError;
use crate::run::{Failure, play_thoroughly};

/// Makes a failing schedule as short as it gets by leaving events out (delta debugging: Zeller and Hildebrandt, TSE
/// 2002), then each event as simple as it gets. `tries` bounds how many schedules are played.
///
/// # Errors
/// Options that make no ring: those of a failure do.
pub fn shrink(failure: &Failure, tries: usize) -> Result<Failure, OptionsError> {
    let mut best = Shrinking { failure: failure.clone(), left: tries };
    let events = best.failure.events.clone();
    best.attempt(&events)?; // with all checks at each step it may fail earlier
    loop {
        let before = best.failure.events.clone();
        best.leave_out()?;
        best.simplify()?;
        if best.failure.events == before || best.left == 0 {
            return Ok(best.failure);
        }
    }
}

struct Shrinking {
    failure: Failure,
    left: usize,
}

impl Shrinking {
    /// Takes `events` over if they break the same promise. Whether they do.
    fn attempt(&mut self, events: &[Event]) -> Result<bool, OptionsError> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        match play_thoroughly(self.failure.options, events)? {
            Err(failure) if failure.broken.promise == self.failure.broken.promise => {
                self.failure = *failure;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Leaves out parts: halves first, single events last.
    fn leave_out(&mut self) -> Result<(), OptionsError> {
        let mut part = (self.failure.events.len() / 2).max(1);
        loop {
            let mut end = self.failure.events.len();
            while end > 0 {
                end = end.min(self.failure.events.len());
                let start = end.saturating_sub(part);
                let mut events = self.failure.events.clone();
                events.drain(start..end);
                self.attempt(&events)?;
                end = start;
            }
            if part == 1 {
                return Ok(());
            }
            part /= 2;
        }
    }

    fn simplify(&mut self) -> Result<(), OptionsError> {
        let mut at = 0;
        while at < self.failure.events.len() {
            for simpler in simpler(self.failure.events[at]) {
                let mut events = self.failure.events.clone();
                events[at] = simpler;
                if events != self.failure.events && self.attempt(&events)? {
                    break;
                }
            }
            at += 1;
        }
        Ok(())
    }
}

/// Simpler forms of an event, the simplest first.
fn simpler(event: Event) -> Vec<Event> {
    match event {
        Event::Admit { packet, direction, count, size } => vec![
            Event::Admit { packet, direction: Direction::Outbound, count: 1, size: 0 },
            Event::Admit { packet, direction, count: 1, size: 0 },
            Event::Admit { packet, direction, count: 1, size },
            Event::Admit { packet, direction, count, size: 0 },
        ],
        Event::Deliver { at, most } => vec![
            Event::Deliver { at: 0, most: 1 },
            Event::Deliver { at, most: 1 },
            Event::Deliver { at: 0, most },
        ],
        Event::Tick { node, timer, wall } => vec![
            Event::Tick { node, timer: 0, wall: 0 },
            Event::Tick { node, timer, wall: 0 },
            Event::Tick { node, timer: 0, wall },
        ],
        Event::Suspect(node) | Event::Restart(node) => vec![Event::Crash(node)],
        Event::Double(_) => vec![Event::Double(0)],
        Event::Control(_) => vec![Event::Control(0)],
        Event::View(_) => vec![Event::View(0)],
        Event::Lose(_) => vec![Event::Lose(0)],
        _ => Vec::new(),
    }
}
