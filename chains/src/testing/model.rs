//! The model: what the tables must hold at the end, from what the heads committed, over ordered maps of bytes.

use std::collections::{BTreeMap, BTreeSet};

use pannier_runtime::dependency::{Vector, Version};
use pannier_runtime::piggyback::{Record, RecordView};
use pannier_runtime::ring::{Incarnation, Store};
use pannier_runtime::state::AnyState;

use super::failure::{Cause, Failure};
use super::outcome::{Cell, Difference, RowKey, cell, name_of, rows_of};

/// A partition that a transaction saw at a version, and whether it wrote it.
type Seen = (usize, Version, bool);

/// A committed transaction.
#[derive(Clone, Debug)]
pub(super) struct Committed {
    /// The packet's number; `None` for the removal of idle rows.
    pub(super) packet: Option<usize>,
    incarnation: Incarnation,
    seen: Vec<Seen>,
    delta: Vec<u8>,
}

impl Committed {
    /// A record as a recorder hears it.
    pub(super) fn new(packet: Option<usize>, incarnation: Incarnation, record: &Record) -> Self {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let seen = RecordView::take(&mut &bytes[..]).map(|view| {
            let versions = view.seen().map(|s| (s.partition, Version::from(s.version), s.written));
            versions.collect()
        });
        let seen = seen.unwrap_or_default(); // what was just encoded is whole
        Committed { packet, incarnation, seen, delta: record.delta().to_vec() }
    }
}

/// The first thing that did not survive: what, and the packet that it is about.
pub(super) type Broken = (Failure, Option<usize>);

fn broken(packet: Option<usize>, seen: String) -> Broken {
    (Failure::new(Cause::Forgotten, seen), packet)
}

/// Checks a stage's final store against all that its heads committed and the packets that were released.
///
/// # Errors
/// The first row, or the first transaction, that is not as it must be.
pub(super) fn check(
    history: &[Committed],
    released: &[usize],
    store: &Store,
    partitions: usize,
) -> Result<(), Broken> {
    let survives = survivors(history, &store.versions())?;
    let tables = Tables::new(history, &survives, &*store.state, partitions);
    let lost: BTreeSet<usize> = history
        .iter()
        .zip(&survives)
        .filter(|(_, survives)| !**survives)
        .filter_map(|(c, _)| c.packet)
        .collect();
    if let Some(packet) = released.iter().find(|packet| lost.contains(packet)) {
        let record = history.iter().zip(&survives).find(|(c, s)| c.packet == Some(*packet) && !**s);
        let difference = record.and_then(|(record, _)| {
            let (row, written) = rows_of(&*store.state, &record.delta).next()?;
            let found = cell(tables.found.get(&row));
            Some(Difference { at: name_of(&row, &*store.state), expected: cell(Some(&written)), found })
        });
        let (failure, packet) = broken(
            Some(*packet),
            "the packet was released, and what its transaction wrote was lost in a crash".to_owned(),
        );
        return Err((failure.differing(difference), packet));
    }
    tables.compare(&*store.state)
}

/// Which transactions survive. A replacement goes on where the state that it took over ends: what its predecessor
/// committed beyond that is lost, wholly.
fn survivors(history: &[Committed], versions: &Vector) -> Result<Vec<bool>, Broken> {
    let mut logs: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut leans_on: Vec<Vec<usize>> = Vec::new();
    for (number, record) in history.iter().enumerate() {
        let mut seen_writers = Vec::new();
        for &(partition, version, written) in &record.seen {
            let log = logs.entry(partition).or_default();
            let version = usize::try_from(version).unwrap_or(usize::MAX);
            let beyond = log.get(version).map(|later| &history[*later]);
            if beyond.is_some_and(|later| later.incarnation == record.incarnation) {
                return Err(broken(
                    record.packet,
                    format!("version {version} of partition {partition} came twice"),
                ));
            }
            if log.len() < version {
                let what =
                    format!("version {version} of partition {partition} was seen before it was committed");
                return Err(broken(record.packet, what));
            }
            log.truncate(version);
            seen_writers.extend(log.last());
            if written {
                log.push(number);
            }
        }
        leans_on.push(seen_writers);
    }
    for partition in 0..versions.0.len() {
        let (log, version) = (logs.entry(partition).or_default(), versions[partition]);
        if (log.len() as u64) < version {
            return Err(broken(
                None,
                format!("partition {partition} counts more writes than were committed"),
            ));
        }
        log.truncate(usize::try_from(version).unwrap_or(usize::MAX));
    }
    let mut survives = Vec::new();
    for (number, record) in history.iter().enumerate() {
        let mut written = record.seen.iter().filter(|(_, _, written)| *written);
        let is_in = |(partition, ..): &Seen| logs[partition].binary_search(&number).is_ok();
        let whole = written.clone().all(&is_in);
        if !whole && written.any(is_in) {
            return Err(broken(record.packet, "a transaction survived in part".to_owned()));
        }
        survives.push(whole);
        if whole && leans_on[number].iter().any(|earlier| !survives[*earlier]) {
            return Err(broken(record.packet, "a transaction survived without what it had seen".to_owned()));
        }
    }
    Ok(survives)
}

/// The tables as they must be, and as they are.
struct Tables {
    expected: BTreeMap<RowKey, Cell>,
    /// The packet that wrote a row last.
    writers: BTreeMap<RowKey, Option<usize>>,
    found: BTreeMap<RowKey, Cell>,
}

impl Tables {
    fn new(history: &[Committed], survives: &[bool], state: &dyn AnyState, partitions: usize) -> Self {
        let (mut expected, mut writers, mut found) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (record, _) in history.iter().zip(survives).filter(|(_, survives)| **survives) {
            for (row, written) in rows_of(state, &record.delta) {
                writers.insert(row.clone(), record.packet);
                match written.0 {
                    Some(_) => expected.insert(row, written),
                    None => expected.remove(&row),
                };
            }
        }
        for table in state.iter() {
            for partition in 0..partitions {
                table.visit(partition, &table.outside(), &mut |row| {
                    let value = row.value.map(<[u8]>::to_vec);
                    found.insert((row.table, row.key.to_vec()), (value, row.expires));
                });
            }
        }
        Tables { expected, writers, found }
    }

    fn compare(&self, state: &dyn AnyState) -> Result<(), Broken> {
        let differs = |row: &&RowKey| self.expected.get(*row) != self.found.get(*row);
        let Some(row) = self.expected.keys().chain(self.found.keys()).find(differs) else { return Ok(()) };
        let writer = self.writers.get(row).copied().flatten();
        let (failure, packet) =
            broken(writer, "a row is not what the surviving transactions made of it".to_owned());
        let difference = Difference {
            at: name_of(row, state),
            expected: cell(self.expected.get(row)),
            found: cell(self.found.get(row)),
        };
        Err((failure.differing(Some(difference)), packet))
    }
}
