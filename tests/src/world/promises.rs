//! The promises, as questions about sets of transactions.

use std::collections::{HashMap, HashSet};

use pannier_runtime::ring::{Node, Plan, Store};

use super::provenance::{Entries, KEYS};
use super::{Cell, Cells, Journal};

/// What the promises are asked of: nodes that run [`Provenance`](super::Provenance), and what they released.
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

/// The transactions that wrote one key, oldest first, and where each stands; from the cell's hash and the journal.
struct History {
    /// By the hash of a cell: its place in the list, counted from 1.
    places: HashMap<u64, u64>,
    writers: HashSet<u64>,
}

fn cell(store: &Store, key: u64) -> Cell {
    let cells = store.state.downcast::<Cells>().expect("worlds run provenance");
    cells.cells.inspect(&key).unwrap_or_default()
}

fn history(entries: &Entries, cell: Cell) -> Result<History, String> {
    let (mut hash, mut place) = (cell.hash, cell.count);
    let mut history = History { places: HashMap::from([(0, 0)]), writers: HashSet::new() };
    while hash != 0 {
        let &(writer, before) =
            entries.writers.get(&hash).ok_or(format!("abort: {hash:x} was never committed"))?;
        if !history.writers.insert(writer) || place == 0 {
            return Err(format!("once: transaction {writer:x} counts twice"));
        }
        history.places.insert(hash, place);
        (hash, place) = (before, place - 1);
    }
    if place == 0 { Ok(history) } else { Err(format!("once: a cell counts {place} writes too many")) }
}

/// Checks everything that must hold at every moment. Nodes that are down are left out.
///
/// # Errors
/// The promise by its name, and what broke it.
pub fn check(scene: &impl Scene) -> Result<(), String> {
    {
        let entries = scene.journal().entries();
        (0..scene.plan().stages()).try_for_each(|stage| check_prefix(scene, &entries, stage))?;
    }
    check_heads(scene)
}

/// Checks what must hold of the heads at every moment: all but `prefix`.
///
/// # Errors
/// As [`check`].
pub fn check_heads(scene: &impl Scene) -> Result<(), String> {
    let entries = scene.journal().entries();
    let mut heads: HashMap<usize, Vec<History>> = HashMap::new();
    for stage in 0..scene.plan().stages() {
        if let Some(store) = scene.up(stage).and_then(|node| node.store(stage)) {
            let histories: Result<_, String> =
                (0..KEYS).map(|key| history(&entries, cell(store, key))).collect();
            heads.insert(stage, histories?);
        }
    }
    check_closure(&entries, &heads)?;
    for path in scene.released() {
        for id in path {
            let transaction = &entries.transactions[id];
            let Some(histories) = heads.get(&transaction.stage) else { continue };
            let there = |(key, cell): &(u64, Cell)| {
                histories[*key as usize].places.get(&cell.hash) == Some(&cell.count)
            };
            if !transaction.written.iter().all(there) || !transaction.read.iter().all(there) {
                return Err(format!("released: stage {} forgot transaction {id:x}", transaction.stage));
            }
        }
    }
    Ok(())
}

/// `closure` and `causality`: what a surviving transaction wrote, read and came from survives with it.
fn check_closure(entries: &Entries, heads: &HashMap<usize, Vec<History>>) -> Result<(), String> {
    let survives = |id: &u64| {
        let transaction = &entries.transactions[id];
        let there = |(key, cell): &(u64, Cell)| {
            heads[&transaction.stage][*key as usize].places.contains_key(&cell.hash)
        };
        !heads.contains_key(&transaction.stage) || transaction.written.iter().all(there)
    };
    for histories in heads.values() {
        for id in histories.iter().flat_map(|history| &history.writers) {
            let transaction = &entries.transactions[id];
            let there = |(key, cell): &(u64, Cell)| {
                histories[*key as usize].places.get(&cell.hash) == Some(&cell.count)
            };
            if !transaction.written.iter().all(there) || !transaction.read.iter().all(there) {
                return Err(format!(
                    "closure: transaction {id:x} survives without all that it wrote and read"
                ));
            }
            if let Some(earlier) = transaction.path.iter().find(|earlier| !survives(earlier)) {
                return Err(format!("causality: {id:x} survives, {earlier:x} of its packet does not"));
            }
        }
    }
    Ok(())
}

/// `prefix`: what a replica holds, its predecessor in the group holds or held before.
fn check_prefix(scene: &impl Scene, entries: &Entries, stage: usize) -> Result<(), String> {
    let stores: Vec<(usize, &Store)> =
        scene.plan().group(stage).filter_map(|node| Some((node, scene.up(node)?.store(stage)?))).collect();
    for pair in stores.windows(2) {
        let ((before, ahead), (node, store)) = (pair[0], pair[1]);
        for key in 0..KEYS {
            if !history(entries, cell(ahead, key))?.places.contains_key(&cell(store, key).hash) {
                return Err(format!(
                    "prefix: node {node} holds of stage {stage} what node {before} does not"
                ));
            }
        }
    }
    Ok(())
}

/// Checks what must hold once nothing is under way: replicas hold what heads hold.
///
/// # Errors
/// The stage and the replica.
pub fn check_rest(scene: &impl Scene) -> Result<(), String> {
    let layout = scene.plan().layout;
    for stage in 0..scene.plan().stages() {
        let mut digests = scene.plan().group(stage).map(|node| {
            let store = scene.up(node).and_then(|node| node.store(stage))?;
            Some((store.versions, store.state.digest(&layout)))
        });
        let head = digests.next().flatten();
        if head.is_none() || digests.any(|other| other != head) {
            return Err(format!("liveness: the replicas of stage {stage} differ at rest"));
        }
    }
    Ok(())
}
