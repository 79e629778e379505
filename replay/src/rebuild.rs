//! Rebuilding: the stores of all stages from a log, by the very function with which replicas take changes in.
//!
//! The committed records of a head are its store's whole history, in order, so they rebuild it exactly as it was at
//! the log's end. That holds while no node dies. What a head had committed and nobody else knew dies with it, and its
//! replacement commits other records in their place; which ones survived is for a cut of the log to find, and there
//! is none yet. So a log in which a node lived twice is refused by name, and so is one that does not begin with its
//! chain.

use std::io::Read;
use std::sync::Arc;

use pannier_runtime::AnyNf;
use pannier_runtime::dependency::Vector;
use pannier_runtime::limits::MAX_NODES;
use pannier_runtime::ring::{Incarnation, Origin};
use pannier_runtime::state::{AnyState, Layout};
use pannier_runtime::txn::delta::{self, DeltaError};

use crate::error::LogError;
use crate::format::{Committed, Entry, Header};
use crate::reader::LogReader;

/// A stage's store, as its log tells it.
#[derive(Debug)]
pub struct Rebuilt {
    /// The stage's name.
    pub name: String,
    /// The tables.
    pub state: Box<dyn AnyState>,
    /// Per partition, how many transactions have written it.
    pub versions: Vector,
    /// How many records were applied.
    pub records: u64,
    layout: Layout,
}

impl Rebuilt {
    /// The digest of the rows: that of every store with the same ones.
    pub fn digest(&self) -> u64 {
        self.state.digest(&self.layout)
    }
}

/// Why a log does not rebuild its stores.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Other network functions than the log's chain had.
    #[error("the log is of {logged} stages, and {given} network functions were given")]
    StageCount {
        /// Stages of the log.
        logged: usize,
        /// Network functions given.
        given: usize,
    },
    /// A node died and was replaced.
    #[error(
        "node {node} lived more than once in this log: its first life may have committed what did not survive it, and state is rebuilt only from logs without a crash so far"
    )]
    Crashed {
        /// The node.
        node: usize,
    },
    /// A record of a stage that its node is not the head of, or of a partition that the stores do not have.
    #[error("node {node} committed to a store that is not its own")]
    Foreign {
        /// The node.
        node: usize,
    },
    /// A record that does not follow from those before it.
    #[error(
        "the log of stage {stage} has a gap: version {found} of partition {partition} follows on version {expected}; was the chain recorded from its start?"
    )]
    Gap {
        /// The stage's name.
        stage: String,
        /// The partition.
        partition: usize,
        /// The version that the records before have led to.
        expected: u64,
        /// The version that the record has seen.
        found: u64,
    },
    /// A record that does not fit the network function's tables.
    #[error("a record of stage {stage} does not fit its network function: {source}; is it another one?")]
    Delta {
        /// The stage's name.
        stage: String,
        /// What does not fit.
        source: DeltaError,
    },
}

/// Reads `log` to its end and rebuilds the store of each stage. `nfs` are the chain's network functions, in order.
///
/// A torn log is rebuilt up to its last whole entry: ask [`LogReader::torn`] afterwards.
///
/// # Errors
/// The first thing that does not fit; nothing is rebuilt then.
pub fn rebuild<R: Read>(
    log: &mut LogReader<R>,
    nfs: &[Arc<dyn AnyNf>],
) -> Result<Vec<Rebuilt>, RebuildError> {
    let mut stages = empty(log.header(), nfs)?;
    let mut lives = Lives::default();
    for entry in log {
        match entry? {
            Entry::Started { node } => lives.start(node)?,
            Entry::Released(released) => lives.act(released.by)?,
            Entry::Committed(committed) => {
                lives.act(committed.by)?;
                let stage = stages.get_mut(usize::from(committed.record().stage));
                let foreign = RebuildError::Foreign { node: committed.by.node };
                stage.ok_or(foreign)?.take(&committed)?;
            }
        }
    }
    Ok(stages)
}

fn empty(header: &Header, nfs: &[Arc<dyn AnyNf>]) -> Result<Vec<Rebuilt>, RebuildError> {
    if header.stages.len() != nfs.len() {
        return Err(RebuildError::StageCount { logged: header.stages.len(), given: nfs.len() });
    }
    let stage = |(name, nf): (&String, &Arc<dyn AnyNf>)| Rebuilt {
        name: name.clone(),
        state: nf.new_state(&header.layout),
        versions: Vector::default(),
        records: 0,
        layout: header.layout,
    };
    Ok(header.stages.iter().zip(nfs).map(stage).collect())
}

impl Rebuilt {
    /// Checks a record and applies it. The head saw what it had committed before and nothing else.
    fn take(&mut self, committed: &Committed) -> Result<(), RebuildError> {
        let record = committed.record();
        let own = usize::from(record.stage) == committed.by.node;
        if !own || record.seen().any(|seen| seen.partition >= self.layout.partitions) {
            return Err(RebuildError::Foreign { node: committed.by.node });
        }
        for seen in record.seen() {
            let expected = self.versions[seen.partition];
            let found = seen.version_near(expected);
            if found != expected {
                let (stage, partition) = (self.name.clone(), seen.partition);
                return Err(RebuildError::Gap { stage, partition, expected, found });
            }
        }
        delta::check(&*self.state, record.delta, record.written())
            .map_err(|source| RebuildError::Delta { stage: self.name.clone(), source })?;
        delta::apply(&mut *self.state, record.delta);
        for partition in record.written().iter() {
            self.versions.0[partition] += 1;
        }
        self.records += 1;
        Ok(())
    }
}

/// Which incarnation of each node the log has heard of.
struct Lives {
    started: [bool; MAX_NODES],
    acted: [Option<Incarnation>; MAX_NODES],
}

impl Default for Lives {
    fn default() -> Self {
        Lives { started: [false; MAX_NODES], acted: [None; MAX_NODES] }
    }
}

impl Lives {
    fn start(&mut self, node: usize) -> Result<(), RebuildError> {
        let again = std::mem::replace(&mut self.started[node], true);
        if again { Err(RebuildError::Crashed { node }) } else { Ok(()) }
    }

    fn act(&mut self, by: Origin) -> Result<(), RebuildError> {
        let life = *self.acted[by.node].get_or_insert(by.incarnation);
        if life == by.incarnation { Ok(()) } else { Err(RebuildError::Crashed { node: by.node }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Head, logged, nfs, origin, packet, small};
    use pannier_runtime::piggyback::Record;
    use pannier_runtime::{Verdict, nf, state};

    fn from(bytes: &[u8]) -> Result<Vec<Rebuilt>, RebuildError> {
        rebuild(&mut LogReader::new(bytes, "run.log")?, &nfs(2))
    }

    fn sentence(bytes: &[u8]) -> String {
        from(bytes).expect_err("refused").to_string()
    }

    #[test]
    fn stores_come_back_row_by_row_and_version_by_version() {
        // Goal: a log holds all of its chain's state. Method: two heads commit, their log is rebuilt and compared.
        let (bytes, heads) = small(50);
        let stages = from(&bytes).expect("whole");
        assert_eq!(stages.iter().map(|stage| stage.name.as_str()).collect::<Vec<_>>(), ["first", "second"]);
        for (stage, head) in stages.iter().zip(&heads) {
            assert_eq!(stage.digest(), head.state.digest(&crate::sample::LAYOUT));
            assert_eq!((stage.versions.0, stage.records), (head.versions, 50));
        }
    }

    #[test]
    fn a_torn_log_rebuilds_what_it_holds() {
        // Goal: a torn log is worth its prefix. Method: cut at each byte; the records applied only ever grow.
        let (bytes, _) = small(6);
        let mut before = 0;
        for end in 0..=bytes.len() {
            let Ok(mut reader) = LogReader::new(&bytes[..end], "run.log") else { continue };
            let stages = rebuild(&mut reader, &nfs(2)).expect("a prefix is sound");
            let records = stages.iter().map(|stage| stage.records).sum();
            assert!((before..=before + 1).contains(&records));
            assert_eq!(reader.torn().is_none(), reader.offset() == end as u64);
            before = records;
        }
        assert_eq!(before, 12);
    }

    #[test]
    fn a_node_that_lived_twice_is_refused_by_name() {
        // Goal: nothing is rebuilt that a crash may have undone. Method: a second start, and another incarnation.
        let again = Origin { node: 1, incarnation: 3 };
        let died = logged(|[_, second]| {
            second.released(origin(1), &packet(1));
            second.released(again, &packet(2));
        });
        let mut replaced = small(2).0;
        crate::format::put_started(1, &mut replaced);
        for bytes in [died, replaced] {
            assert!(matches!(from(&bytes), Err(RebuildError::Crashed { node: 1 })));
            assert!(sentence(&bytes).starts_with("node 1 lived more than once in this log"));
        }
    }

    #[test]
    fn records_that_do_not_follow_are_refused() {
        // Goal: a store is rebuilt from its first record on, in order. Method: leave one out, tell one twice.
        let mut head = Head::new(0);
        let records: Vec<Record> = (0..3).map(|value| head.put(5, value)).collect();
        for order in [&[1][..], &[0, 2], &[0, 0], &[0, 1, 1], &[1, 0]] {
            let tell = |at: &usize| records[*at].clone();
            let bytes = logged(|[first, _]| {
                order.iter().map(tell).for_each(|record| first.committed(origin(0), 1, &record));
            });
            assert!(matches!(from(&bytes), Err(RebuildError::Gap { .. })), "{order:?}");
        }
        let late = logged(|[first, _]| first.committed(origin(0), 1, &records[2]));
        assert!(sentence(&late).contains("was the chain recorded from its start?"));
    }

    #[test]
    fn stores_of_others_are_refused() {
        // Goal: only heads write, and only what there is. Method: a foreign stage, no such stage, no such partition.
        let mut beyond = Record::default();
        beyond.reset(0);
        beyond.note(crate::sample::LAYOUT.partitions, 0, true);
        for record in [Head::new(1).put(1, 1), Head::new(7).put(1, 1), beyond] {
            let bytes = logged(|[first, _]| first.committed(origin(0), 1, &record));
            assert!(matches!(from(&bytes), Err(RebuildError::Foreign { node: 0 })));
        }
    }

    #[test]
    fn other_network_functions_are_refused() {
        // Goal: a log is not poured into other tables. Method: one function too few, wider rows, a foreign partition.
        state! { struct Wide { rows: u64 => u64 [10] } }
        let (bytes, _) = small(3);
        let open = || LogReader::new(&bytes[..], "run.log").expect("a log");
        let few = rebuild(&mut open(), &nfs(1)).expect_err("too few").to_string();
        assert_eq!(few, "the log is of 2 stages, and 1 network functions were given");
        let wide = || Arc::new(nf(|_, _: &Wide, _| Ok(Verdict::Forward))) as Arc<dyn AnyNf>;
        let wrong = rebuild(&mut open(), &[wide(), wide()]).expect_err("wider").to_string();
        assert!(wrong.contains("does not fit its network function"), "{wrong}");
        let mut foreign = Record::default();
        foreign.reset(0);
        foreign.note(0, 0, true);
        foreign.delta_mut().extend(Head::new(0).put(3, 1).delta());
        foreign.delta_mut().extend(Head::new(0).put(4, 1).delta());
        foreign.delta_mut().extend((5..20).flat_map(|cell| Head::new(0).put(cell, 1).delta().to_vec()));
        let bytes = logged(|[first, _]| first.committed(origin(0), 1, &foreign));
        assert!(matches!(
            from(&bytes),
            Err(RebuildError::Delta { source: DeltaError::ForeignPartition, .. })
        ));
    }

    #[test]
    fn a_damaged_log_rebuilds_nothing() {
        // Goal: the reader's error comes through with its place. Method: one wrong byte in the middle.
        let (mut bytes, _) = small(5);
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        assert!(sentence(&bytes).starts_with("the log run.log is damaged at byte "));
    }
}
