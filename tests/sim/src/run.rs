//! Runs: one schedule, or many side by side.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pannier_runtime::ring::Plan;

use crate::check::Broken;
use crate::draw::Draw;
use crate::event::Event;
use crate::options::{Options, OptionsError};
use crate::world::World;

/// What a schedule came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Packets that left.
    pub released: u64,
    /// Nodes that were replaced and caught up.
    pub recoveries: u64,
}

/// A schedule that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What the run was made of.
    pub options: Options,
    /// The promise, and how it was broken.
    pub broken: Broken,
    /// What happened until then.
    pub events: Vec<Event>,
}

/// Lets the mutant of some options work in this thread, until it is dropped.
pub(crate) struct Mutation(#[cfg(feature = "mutants")] Option<pannier_runtime::mutant::Mutant>);

impl Mutation {
    pub(crate) fn of(_options: &Options) -> Self {
        #[cfg(feature = "mutants")]
        return Mutation(pannier_runtime::mutant::activate(_options.mutant));
        #[cfg(not(feature = "mutants"))]
        Mutation()
    }
}

impl Drop for Mutation {
    fn drop(&mut self) {
        #[cfg(feature = "mutants")]
        pannier_runtime::mutant::activate(self.0);
    }
}

/// Runs the schedule that `options` describe.
///
/// # Errors
/// Options that make no ring; then, the schedule if it broke a promise.
pub fn run(options: Options) -> Result<Result<Kept, Box<Failure>>, OptionsError> {
    let plan = options.plan()?;
    let events: Vec<Event> = draw(options, &plan).collect();
    play(options, &events)
}

/// The events of the schedule that `options` describe.
pub fn draw(options: Options, plan: &Plan) -> impl Iterator<Item = Event> {
    Draw::new(options, plan.nodes()).take(options.steps)
}

/// Plays a schedule with all checks after each step.
pub(crate) fn play_thoroughly(
    options: Options,
    events: &[Event],
) -> Result<Result<(), Box<Failure>>, OptionsError> {
    let _mutation = Mutation::of(&options);
    let mut world = World::new(options)?;
    world.thorough = true;
    Ok(finish(&mut world, events))
}

/// What happened in a schedule.
#[derive(Clone, Debug)]
pub struct Told {
    /// Event by event, for people.
    pub text: String,
    /// The promise that was broken.
    pub broken: Option<Broken>,
}

/// Plays a schedule with all checks after each step, and tells what happens.
///
/// # Errors
/// Options that make no ring.
pub fn timeline(options: Options, events: &[Event]) -> Result<Told, OptionsError> {
    let _mutation = Mutation::of(&options);
    let mut world = World::new(options)?;
    world.thorough = true;
    world.tell();
    let broken = finish(&mut world, events).err().map(|failure| failure.broken);
    let end =
        broken.as_ref().map_or("every promise was kept".to_owned(), |broken| format!("BROKEN {broken}"));
    Ok(Told { text: format!("{}{end}\n", world.told()), broken })
}

/// Plays a schedule: its events, then calm.
///
/// # Errors
/// As [`run`].
pub fn play(options: Options, events: &[Event]) -> Result<Result<Kept, Box<Failure>>, OptionsError> {
    let _mutation = Mutation::of(&options);
    let mut world = World::new(options)?;
    Ok(finish(&mut world, events).map(|()| Kept {
        released: crate::check::Scene::released(&world).len() as u64,
        recoveries: world.recoveries(),
    }))
}

fn finish(world: &mut World, events: &[Event]) -> Result<(), Box<Failure>> {
    let options = *world.options();
    for (at, event) in events.iter().enumerate() {
        let failure = |broken| Box::new(Failure { options, broken, events: events[..=at].to_vec() });
        without_panic(|| world.step(event)).map_err(failure)?;
    }
    let failure = |broken| Box::new(Failure { options, broken, events: events.to_vec() });
    without_panic(|| world.settle()).map_err(failure)
}

/// A panic of a node breaks a promise too; the world is not used any more then.
fn without_panic(does: impl FnOnce() -> Result<(), Broken>) -> Result<(), Broken> {
    catch_unwind(AssertUnwindSafe(does)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Broken { promise: "no panic", what: text.to_owned() })
    })
}
