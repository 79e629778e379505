//! The promises, each a file of its own with the name that ARCHITECTURE.md gives it.
//!
//! [`Watch`] looks at every step: numbers that may only rise, and what was let out just now. [`all`] looks at the whole
//! history: it is asked at every recovery, now and then, and at the end.

mod abort;
mod causality;
mod closure;
mod liveness;
mod model;
mod once;
mod prefix;
mod released;

use std::fmt;

use pannier_runtime::ring::{Node, Plan, Store};

use crate::journal::{Entries, Journal};
use crate::provenance::{Cell, Cells, SWEEPS};
pub use liveness::{at_rest, stuck, through};
use once::History;
pub use prefix::Watch;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Its name.
    pub promise: &'static str,
    /// How.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.what)
    }
}

fn broken<T>(promise: &'static str, what: String) -> Result<T, Broken> {
    Err(Broken { promise, what })
}

/// What the promises are asked of: nodes that run [`Provenance`](crate::Provenance), and what they let out.
pub trait Scene {
    /// The geometry.
    fn plan(&self) -> &Plan;
    /// The node at `index`, if it is there and has its state.
    fn up(&self, index: usize) -> Option<&Node>;
    /// What every transaction read and wrote.
    fn journal(&self) -> &Journal;
    /// The transactions of each released packet, in the order of its way.
    fn released(&self) -> &[Vec<u64>];
}

/// What is in the heads' stores, as histories.
struct Survey<'a> {
    entries: &'a Entries,
    /// By stage: the history of each key; `None` where the head is down.
    heads: Vec<Option<Vec<History>>>,
}

/// Checks everything that must hold at every moment. Nodes that are down are left out.
///
/// # Errors
/// The first promise that is broken.
pub fn all(scene: &impl Scene) -> Result<(), Broken> {
    let entries = scene.journal().entries();
    prefix::contents(scene, &entries)?;
    heads(scene, &entries)
}

/// Checks what must hold of the heads at every moment: all but `prefix`.
///
/// # Errors
/// The first promise that is broken.
pub fn of_heads(scene: &impl Scene) -> Result<(), Broken> {
    heads(scene, &scene.journal().entries())
}

fn heads(scene: &impl Scene, entries: &Entries) -> Result<(), Broken> {
    let mut survey = Survey { entries, heads: Vec::new() };
    for stage in 0..scene.plan().stages() {
        let store = scene.up(stage).and_then(|node| node.store(stage));
        survey.heads.push(store.map(|store| once::histories(entries, store)).transpose()?);
    }
    abort::check(&survey, scene.released())?;
    closure::check(&survey)?;
    causality::check(&survey)?;
    released::check(&survey, scene.released())
}

/// Compares the heads with the model: rows that expire after `now` count.
///
/// # Errors
/// The row that differs.
pub fn against_model(scene: &impl Scene, now: u64) -> Result<(), Broken> {
    model::check(scene, &scene.journal().entries(), now)
}

/// Checks what was let out just now.
///
/// # Errors
/// What a node does not hold of it.
pub fn let_out(scene: &impl Scene, paths: &[Vec<u64>]) -> Result<(), Broken> {
    released::at_once(scene, &scene.journal().entries(), paths)
}

fn cell(store: &Store, key: u64) -> Cell {
    let cells = store.state.downcast::<Cells>().expect("worlds run provenance");
    cells.cells.inspect(&key).unwrap_or_default()
}

/// All keys that the promises are about.
fn keys() -> impl Iterator<Item = u64> {
    0..=SWEEPS
}
