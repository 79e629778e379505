//! A log of a chain holds what the chain holds: its stores come back from it, and so does what left it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pannier_chains::{Chain, ChainStage};
use pannier_nf::monitor::MonitorConfig;
use pannier_nf::{find, monitor};
use pannier_replay::{Entry, Header, LogCounts, LogReader, LogWriter, RebuildError, rebuild};
use pannier_runtime::clock::SECOND;
use pannier_runtime::entropy::Entropy;
use pannier_runtime::port::Faults;
use pannier_runtime::ring::Plan;
use pannier_runtime::wire::{Flow, FrameBuilder, symmetric_hash};
use pannier_runtime::{AnyNf, Direction, Packet};

const FAULTY: Faults = Faults { loss: 0.05, duplicate: 0.03, reorder: 0.05, delay: 0.05 };

/// A chain that is recorded, and the traffic on it.
struct Run {
    chain: Chain,
    nfs: Vec<Arc<dyn AnyNf>>,
    log: LogWriter,
    path: PathBuf,
    random: Entropy,
    admitted: u64,
    /// Everything that has left the chain, in order.
    released: Vec<Packet>,
    _folder: tempfile::TempDir,
}

impl Run {
    fn new(kinds: &[&str], mut plan: Plan, faults: Faults, seed: u64) -> Self {
        plan.seed = seed;
        let nfs: Vec<Arc<dyn AnyNf>> = kinds.iter().map(|kind| make(kind)).collect();
        let stage = |(number, nf): (usize, &Arc<dyn AnyNf>)| ChainStage {
            name: format!("{}-{number}", kinds[number]),
            nf: Arc::clone(nf),
        };
        let stages: Vec<ChainStage> = nfs.iter().enumerate().map(stage).collect();
        let folder = tempfile::tempdir().expect("a folder for the log");
        let path = folder.path().join("run.log");
        let header = Header::new(&plan, stages.iter().map(|stage| stage.name.as_str()));
        let log = LogWriter::create(&path, &header).expect("a log can be made");
        let mut chain = Chain::new(plan, stages, 4, faults).expect("the plan is possible");
        chain.record(Box::new(log.recorders()));
        Run {
            chain,
            nfs,
            log,
            path,
            random: Entropy::stream(seed, 5),
            admitted: 0,
            released: Vec::new(),
            _folder: folder,
        }
    }

    /// Lets `count` frames in: questions from inside, and answers to what has come out.
    fn traffic(&mut self, count: usize) {
        for _ in 0..count {
            let (frame, direction) = self.answer().unwrap_or_else(|| (self.question(), Direction::Outbound));
            self.admitted += 1;
            let mut packet = self.chain.pool().take();
            packet.set_frame(&frame);
            packet.meta.direction = direction;
            packet.meta.flow = symmetric_hash(&Flow::parse(&frame).expect("frames are built whole"));
            packet.meta.time = self.admitted * SECOND / 4; // mappings expire on the way
            self.chain.admit(packet);
            self.chain.turn();
            self.chain.take_released(&mut self.released);
        }
    }

    fn question(&mut self) -> Vec<u8> {
        let host = self.random.below(6) as u8;
        let port = 5_000 + self.random.below(8) as u16;
        let frame = FrameBuilder::ipv4([10, 0, 0, host + 1], [198, 51, 100, 7]);
        match self.random.below(3) {
            0 => frame.icmp_echo_request(port, 1, b"anybody there?"),
            _ => frame.udp(port, 53, &b"a question of some length"[..self.random.below(20) as usize]),
        }
    }

    fn answer(&mut self) -> Option<(Vec<u8>, Direction)> {
        let back = if self.random.chance(0.5) { self.random.below(8) as usize } else { return None };
        let outside = |packet: &&Packet| packet.meta.direction == Direction::Outbound;
        let asked = self.released.iter().rev().filter(outside).nth(back)?;
        let flow = Flow::parse(asked.frame()).expect("what leaves is whole");
        let (from, to) = (flow.destination_endpoint()?, flow.source_endpoint()?);
        let frame = FrameBuilder::ipv4(from.address(), to.address());
        Some((frame.udp(from.port(), to.port(), b"an answer"), Direction::Inbound))
    }

    /// Comes to rest and ends the log.
    fn finish(mut self) -> Finished {
        assert!(self.chain.drain(), "the chain comes to rest");
        self.chain.take_released(&mut self.released);
        assert_eq!(self.chain.broken_promises(), Vec::<String>::new());
        let counts = self.log.finish().expect("the log is written");
        let bytes = std::fs::read(&self.path).expect("the log can be read");
        assert_eq!(counts.bytes, bytes.len() as u64);
        Finished { chain: self.chain, nfs: self.nfs, released: self.released, counts, bytes }
    }
}

/// A chain at rest, and the log of what it did.
struct Finished {
    chain: Chain,
    nfs: Vec<Arc<dyn AnyNf>>,
    released: Vec<Packet>,
    counts: LogCounts,
    bytes: Vec<u8>,
}

impl Finished {
    fn read(&self) -> LogReader<&[u8]> {
        LogReader::new(&self.bytes[..], "run.log").expect("the log has a header")
    }

    fn entries(&self) -> Vec<Entry> {
        self.read().collect::<Result<_, _>>().expect("the log is whole")
    }

    /// The log must rebuild what the live heads hold.
    fn expect_rebuilt(&self, case: &str) {
        let stages = rebuild(&mut self.read(), &self.nfs).expect("the log is whole");
        let live = self.chain.summary().stages;
        assert_eq!((stages.len(), live.len()), (self.nfs.len(), self.nfs.len()), "{case}");
        for (stage, (rebuilt, live)) in stages.iter().zip(&live).enumerate() {
            let head = self.chain.node(stage).and_then(|node| node.store(stage)).expect("heads are up");
            assert_eq!(rebuilt.versions, head.versions(), "{case}: {}", live.name);
            assert_eq!(format!("{:016x}", rebuilt.digest()), live.digest, "{case}: {}", live.name);
            assert_eq!(rebuilt.name, live.name);
        }
        let records: u64 = stages.iter().map(|stage| stage.records).sum();
        assert!(records > 0 && records == self.counts.committed, "{case}: {records} records");
    }

    /// The log must tell each frame that left, in the order of its side.
    fn expect_released(&self, case: &str) {
        let entries = self.entries();
        for side in [Direction::Outbound, Direction::Inbound] {
            let logged = entries.iter().filter_map(|entry| match entry {
                Entry::Released(r) if r.direction == side => Some((r.time, r.frame_bytes, r.frame_crc)),
                _ => None,
            });
            let left = self.released.iter().filter(|packet| packet.meta.direction == side);
            let left = left.map(|p| (p.meta.time, p.frame().len() as u32, crc32c_of(p.frame())));
            assert!(logged.eq(left), "{case}: {side:?}");
        }
        assert_eq!(self.counts.released, self.released.len() as u64, "{case}");
    }
}

/// The checksum as its definition has it (RFC 3720, appendix B.4), bit by bit.
fn crc32c_of(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

fn make(kind: &str) -> Arc<dyn AnyNf> {
    match kind {
        "monitor" => Arc::new(monitor(MonitorConfig { flows: 20, ..MonitorConfig::default() })),
        _ => {
            let udp = toml::Table::from_iter([("udp".to_owned(), toml::Value::Integer(20))]);
            let options =
                [("external", toml::Value::from("192.0.2.1")), ("timeouts", toml::Value::Table(udp))];
            find("nat").expect("there is a NAT").build(&options).expect("its options are right")
        }
    }
}

fn plan(stages: usize, f: usize, unit_frames: usize, partitions: usize) -> Plan {
    let mut plan = Plan::new(stages, f).expect("small rings are possible");
    plan.unit_frames = unit_frames;
    plan.layout.partitions = partitions;
    plan
}

#[test]
fn a_log_rebuilds_what_the_heads_hold() {
    // Goal: a log is a chain's whole state and output. Method: chains of each shape under faults, rebuilt and compared.
    let nat = ["monitor", "nat", "monitor"];
    let cases: [(&[&str], usize, usize, usize, Faults); 6] = [
        (&["monitor"], 0, 1, 64, Faults::NONE),
        (&["nat"], 1, 1, 8, FAULTY),
        (&nat, 1, 1, 64, FAULTY),
        (&nat, 2, 4, 1, FAULTY),
        (&["nat", "monitor"], 3, 2, 16, FAULTY),
        (&["monitor", "nat"], 0, 8, 64, FAULTY),
    ];
    for (seed, (kinds, f, unit_frames, partitions, faults)) in cases.into_iter().enumerate() {
        let plan = plan(kinds.len(), f, unit_frames, partitions);
        let mut run = Run::new(kinds, plan, faults, seed as u64);
        run.traffic(500);
        let finished = run.finish();
        let case = format!("{kinds:?} {plan:?}");
        assert_eq!(finished.counts.started, plan.nodes() as u64, "{case}");
        let inbound = finished.released.iter().filter(|p| p.meta.direction == Direction::Inbound).count();
        assert!(inbound > 20 && finished.released.len() > 200, "{case}: {inbound} inbound");
        finished.expect_rebuilt(&case);
        finished.expect_released(&case);
    }
}

#[test]
fn every_truncation_of_a_log_reads_a_prefix() {
    // Goal: a torn log loses its last entry and nothing else. Method: each length of a real log, read and rebuilt.
    let mut run = Run::new(&["monitor", "nat"], plan(2, 1, 1, 4), Faults::NONE, 3);
    run.traffic(12);
    let finished = run.finish();
    let whole = finished.entries();
    let mut before = 0;
    for end in 0..finished.bytes.len() {
        let Ok(mut reader) = LogReader::new(&finished.bytes[..end], "run.log") else {
            assert_eq!(before, 0, "the header is read once it is there");
            continue;
        };
        let entries: Vec<Entry> = reader.by_ref().map(|entry| entry.expect("a cut is no damage")).collect();
        assert!(whole.starts_with(&entries) && (before..=before + 1).contains(&entries.len()), "{end}");
        assert_eq!(reader.torn(), (reader.offset() < end as u64).then_some(reader.offset()), "{end}");
        if entries.len() > before {
            let mut reader = LogReader::new(&finished.bytes[..end], "run.log").expect("it was read");
            rebuild(&mut reader, &finished.nfs).expect("a prefix rebuilds what there was then");
        }
        before = entries.len();
    }
    assert_eq!(before + 1, whole.len());
}

#[test]
fn a_crash_is_refused_by_name() {
    // Goal: nothing is rebuilt that a crash may have undone. Method: kill each node of a chain, even at its last frame.
    for (node, after) in [(0, 50), (1, 50), (2, 0)] {
        let mut run = Run::new(&["monitor", "nat", "monitor"], plan(3, 1, 1, 16), FAULTY, node as u64);
        run.traffic(60);
        run.chain.crash(node);
        run.traffic(after);
        let finished = run.finish();
        assert_eq!(finished.chain.summary().recoveries.len(), 1);
        let error = rebuild(&mut finished.read(), &finished.nfs).expect_err("a node died");
        assert!(matches!(error, RebuildError::Crashed { node: named } if named == node), "{node}: {error}");
        finished.expect_released(&format!("node {node} died"));
    }
}

#[test]
fn a_log_that_begins_late_is_refused() {
    // Goal: no store is rebuilt from half its history. Method: traffic first, then a recorder.
    let mut run = Run::new(&["monitor"], plan(1, 1, 1, 4), Faults::NONE, 1);
    run.traffic(5);
    let path = run.path.with_extension("late");
    let header = Header::new(run.chain.plan(), ["monitor"]);
    let late = LogWriter::create(&path, &header).expect("a log can be made");
    run.chain.record(Box::new(late.recorders()));
    run.traffic(5);
    late.finish().expect("the log is written");
    let gap = rebuild(&mut open(&path), &run.nfs).expect_err("its beginning is missing");
    assert!(gap.to_string().ends_with("was the chain recorded from its start?"), "{gap}");
}

fn open(path: &Path) -> LogReader {
    LogReader::open(path).expect("the log has a header")
}
