//! A worker: a thread on a core of its own that gives actors their turns.

use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};

use crate::clock::{Nanos, Now};

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Something was done.
    Busy,
    /// There was nothing to do.
    Idle,
    /// The actor has nothing to do any more, ever: it is dropped.
    Ended,
}

/// Something that does its work in bounded turns and never blocks.
pub trait Actor: Send {
    /// One turn.
    fn turn(&mut self, now: Now) -> Turn;

    /// A turn has panicked, with this message. The actor goes on, in whatever state it makes of it.
    fn panicked(&mut self, message: &str);
}

/// What a worker does while none of its actors has anything to do. Each step saves more of the core, and costs more time
/// when something comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Rounds that it spins.
    pub spins: u32,
    /// Rounds after that in which it lets other threads run.
    pub yields: u32,
    /// How long it sleeps then, each round. Zero: it goes on yielding.
    pub sleep: Duration,
}

impl Idle {
    /// Never gives the core away: for cores that do nothing else.
    pub const SPIN: Idle = Idle { spins: u32::MAX, yields: 0, sleep: Duration::ZERO };
    /// Gives the core away at once, but does not sleep: for several workers on a core.
    pub const YIELD: Idle = Idle { spins: 16, yields: u32::MAX, sleep: Duration::ZERO };
    /// Sleeps when nothing came for a while: some tenths of a millisecond, for a sleep lasts longer than a burst.
    pub const SLEEP: Idle = Idle { spins: 1_000, yields: 16, sleep: Duration::from_micros(50) };

    fn rest(self, rounds: u32) {
        if rounds < self.spins {
            std::hint::spin_loop();
        } else if rounds - self.spins < self.yields || self.sleep.is_zero() {
            thread::yield_now();
        } else {
            thread::sleep(self.sleep);
        }
    }
}

/// A worker's handle. Dropping it lets the worker end with its actors.
#[derive(Debug)]
pub struct Worker {
    actors: Option<Sender<Box<dyn Actor>>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a worker that lives by `clock`, on the core with number `core` where one is given and there is such a core. A core that can't be
    /// had is no error: the thread then runs where the system puts it.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(core: Option<usize>, idle: Idle, clock: Clock) -> io::Result<Self> {
        let (sender, receiver) = unbounded();
        let run = move || {
            let ids = core_affinity::get_core_ids().unwrap_or_default();
            if let Some(id) = ids.into_iter().find(|id| Some(id.id) == core) {
                core_affinity::set_for_current(id);
            }
            run(&receiver, idle, clock);
        };
        let name = core.map_or_else(|| NAME.to_owned(), |core| format!("{NAME}{core}"));
        let thread = thread::Builder::new().name(name).spawn(run)?;
        Ok(Worker { actors: Some(sender), thread: Some(thread) })
    }

    /// Gives the worker another actor.
    pub fn add(&self, actor: Box<dyn Actor>) {
        if let Some(actors) = &self.actors {
            // A worker ends only when this sender is gone.
            let _ = actors.send(actor);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.actors = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The numbers of the cores that this process may use; at least one.
pub fn cores() -> Vec<usize> {
    let ids = core_affinity::get_core_ids().unwrap_or_default();
    let numbers: Vec<usize> = ids.into_iter().map(|id| id.id).collect();
    if numbers.is_empty() { vec![0] } else { numbers }
}

/// The time: for timers since the clock was made, for packets since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    epoch: Nanos,
}

impl Default for Clock {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { start: Instant::now(), epoch: nanos(since) }
    }
}

impl Clock {
    /// The time now. It never runs backwards.
    pub fn now(&self) -> Now {
        let timer = nanos(self.start.elapsed());
        Now { timer, wall: self.epoch.saturating_add(timer) }
    }
}

fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// What the names of workers' threads begin with; their core's number follows.
const NAME: &str = "pannier-";

/// Rounds in which the actors of a worker that is dropped must end.
const LAST_ROUNDS: u32 = 10_000;

/// Rounds between two looks for new actors, where there is much to do.
const LOOK_EVERY: u32 = 64;

fn run(new: &Receiver<Box<dyn Actor>>, idle: Idle, clock: Clock) {
    let mut actors: Vec<Box<dyn Actor>> = Vec::new();
    let (mut round, mut idle_rounds) = (0u32, 0u32);
    let mut rounds_left = u32::MAX;
    while rounds_left > 0 {
        if round.is_multiple_of(LOOK_EVERY) || idle_rounds > 0 {
            match new.try_recv() {
                Ok(actor) => actors.push(actor),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) if actors.is_empty() => return,
                // Actors that were told to end do so in a turn of theirs.
                Err(TryRecvError::Disconnected) => rounds_left = rounds_left.min(LAST_ROUNDS),
            }
        }
        rounds_left -= u32::from(rounds_left <= LAST_ROUNDS);
        round = round.wrapping_add(1);
        let (mut busy, now) = (false, clock.now());
        actors.retain_mut(|actor| {
            let turn = take_turn(&mut **actor, now);
            busy |= turn != Turn::Idle;
            turn != Turn::Ended
        });
        idle_rounds = if busy { 0 } else { idle_rounds.saturating_add(1) };
        if !busy {
            idle.rest(idle_rounds);
        }
    }
}

/// Has panics of workers told on one line of standard error, without the stack: to look that up takes seconds, in which the
/// node would not be replaced. Other threads' panics are told as before. For programs, once at their start.
pub fn tell_panics_briefly() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let thread = thread::current();
        match thread.name().filter(|name| name.starts_with(NAME)) {
            // Nothing is left to do where even this can't be written.
            Some(name) => drop(writeln!(io::stderr(), "pannier: {name}: {info}")),
            None => before(info),
        }
    }));
}

/// Gives an actor a turn. Where it panics, the actor hears of it, and has been busy.
pub fn take_turn(actor: &mut dyn Actor, now: Now) -> Turn {
    catch_unwind(AssertUnwindSafe(|| actor.turn(now))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        actor.panicked(text.unwrap_or("without a message"));
        Turn::Busy
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has nothing to do for so many turns, and then tells which cores its thread may use.
    struct Onlooker(u32, Sender<Vec<usize>>);

    impl Actor for Onlooker {
        fn turn(&mut self, _: Now) -> Turn {
            let Some(left) = self.0.checked_sub(1) else {
                let _ = self.1.send(cores());
                return Turn::Ended;
            };
            self.0 = left;
            Turn::Idle
        }

        fn panicked(&mut self, _: &str) {}
    }

    #[test]
    fn workers_keep_to_their_cores_and_wake_however_they_rest() {
        // Goal: a shard is where its chain wants it, and gets its turns in each way to be idle. Method: on each core and in each
        // way, an actor that has nothing to do for longer than it takes until workers sleep, and then looks around.
        for core in cores() {
            for idle in [Idle::SPIN, Idle::YIELD, Idle::SLEEP] {
                let (sender, told) = unbounded();
                let worker = Worker::start(Some(core), idle, Clock::default()).expect("there is a thread");
                worker.add(Box::new(Onlooker(idle.spins.min(2_000) + 100, sender)));
                let seen = told.recv_timeout(Duration::from_secs(60));
                assert_eq!(seen, Ok(vec![core]), "{idle:?}");
            }
        }
    }
}
