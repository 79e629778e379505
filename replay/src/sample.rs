//! Small logs for the tests of this crate.

use std::sync::Arc;

use pannier_runtime::piggyback::Record;
use pannier_runtime::ring::{Origin, Plan, Recorder};
use pannier_runtime::state::{AnyState, Change, Layout, NEVER};
use pannier_runtime::txn::delta;
use pannier_runtime::{AnyNf, Direction, Packet, Verdict, nf, state};

use crate::format::Header;
use crate::writer::LogWriter;

state! {
    /// Something to rebuild.
    pub(crate) struct Cells {
        /// Numbered cells.
        cells: u16 => u64 [1_000],
    }
}

pub(crate) const LAYOUT: Layout = Layout { partitions: 4, hash_seed: 9 };

/// The network functions of the small logs.
pub(crate) fn nfs(stages: usize) -> Vec<Arc<dyn AnyNf>> {
    let make = |_| Arc::new(nf(|_, _: &Cells, _| Ok(Verdict::Forward))) as Arc<dyn AnyNf>;
    (0..stages).map(make).collect()
}

pub(crate) fn header() -> Header {
    let mut plan = Plan::new(2, 1).expect("two stages are possible");
    plan.layout = LAYOUT;
    Header::new(&plan, ["first", "second"])
}

/// Node `node` in its first life.
pub(crate) fn origin(node: usize) -> Origin {
    Origin { node, incarnation: node as u64 + 1 }
}

/// A store that commits what it is told to, as a head does.
pub(crate) struct Head {
    pub(crate) stage: u8,
    pub(crate) state: Box<dyn AnyState>,
    pub(crate) versions: [u64; 64],
}

impl Head {
    pub(crate) fn new(stage: u8) -> Self {
        Head { stage, state: nfs(1)[0].new_state(&LAYOUT), versions: [0; 64] }
    }

    /// Writes one cell, having read its partition's neighbour.
    pub(crate) fn put(&mut self, cell: u16, value: u64) -> Record {
        let key = cell.to_le_bytes();
        let partition = self.state.table(0).expect("the table of cells").place_of(&key).partition;
        let beside = (partition + 1) % LAYOUT.partitions;
        let mut record = Record::default();
        record.reset(self.stage);
        record.note(partition, self.versions[partition], true);
        record.note(beside, self.versions[beside], false);
        let value = value.to_le_bytes();
        let change = Change { table: 0, key: &key, value: Some(&value), expires: NEVER };
        delta::put_change(record.delta_mut(), &change);
        delta::apply(&mut *self.state, record.delta());
        self.versions[partition] += 1;
        record
    }
}

/// A frame that leaves.
pub(crate) fn packet(number: u64) -> Packet {
    let mut packet = Packet::new(&number.to_le_bytes());
    packet.meta.time = number;
    packet.meta.direction = if number.is_multiple_of(2) { Direction::Outbound } else { Direction::Inbound };
    packet
}

/// The bytes of a log that `tell` has told to the recorders of two nodes.
pub(crate) fn logged(tell: impl FnOnce([&mut dyn Recorder; 2])) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder for a log");
    let path = folder.path().join("log");
    let log = LogWriter::create(&path, &header()).expect("a log can be made");
    let [mut first, mut second] = [log.recorder(0), log.recorder(1)];
    tell([&mut *first, &mut *second]);
    log.finish().expect("a log can be written");
    std::fs::read(path).expect("a log can be read")
}

/// A log of two heads that commit `count` records each, and let as many frames go.
pub(crate) fn small(count: u64) -> (Vec<u8>, [Head; 2]) {
    let mut heads = [Head::new(0), Head::new(1)];
    let bytes = logged(|recorders| {
        for number in 0..count {
            for (node, head) in heads.iter_mut().enumerate() {
                let record = head.put((number % 7) as u16, number);
                recorders[node].committed(origin(node), number, &record);
            }
            recorders[1].released(origin(1), &packet(number));
        }
    });
    (bytes, heads)
}
