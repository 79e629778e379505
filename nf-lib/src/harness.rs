//! A head for one network function: frames in, verdicts out, units committed as the ring's head commits them.

use std::fmt::Debug;
use std::sync::Arc;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use pannier_runtime::clock::{Nanos, SECOND};
use pannier_runtime::entropy::Entropy;
use pannier_runtime::packet::Pool;
use pannier_runtime::state::{AnyState, Layout, State};
use pannier_runtime::txn::{Workspace, delta};
use pannier_runtime::{Abort, AnyNf, Direction, Frame, Packet, Txn, Verdict};

/// What came of one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) verdict: Result<Verdict, Abort>,
    /// The frame as the function left it.
    pub(crate) frame: Vec<u8>,
    /// Frames that it made, with the way they go.
    pub(crate) emitted: Vec<(Direction, Vec<u8>)>,
    /// Whether state changed, or would at the commit.
    pub(crate) wrote: bool,
}

impl Outcome {
    /// Why the frame was dropped; `None` where it goes on.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match self.verdict {
            Ok(Verdict::Forward) => None,
            Ok(Verdict::Drop(reason)) | Err(Abort { reason }) => Some(reason),
        }
    }

    /// The frame that goes on.
    #[track_caller]
    pub(crate) fn forwarded(self) -> Vec<u8> {
        assert_eq!(self.reason(), None, "the frame goes on");
        self.frame
    }
}

pub(crate) struct Harness {
    nf: Arc<dyn AnyNf>,
    layout: Layout,
    state: Box<dyn AnyState>,
    work: Workspace,
    pool: Pool,
    /// The transactions' time, in nanoseconds.
    pub(crate) now: Nanos,
    /// Transactions that are committed together.
    pub(crate) unit_frames: usize,
    open: usize,
}

impl Harness {
    pub(crate) fn new(nf: impl AnyNf + 'static) -> Self {
        Harness::of(Arc::new(nf))
    }

    pub(crate) fn of(nf: Arc<dyn AnyNf>) -> Self {
        let layout = Layout::default();
        let state = nf.new_state(&layout);
        let entropy = Entropy::new(7);
        let work = Workspace::new(entropy, 1_400);
        let now = 1_000_000 * SECOND;
        Harness { nf, layout, state, work, pool: Pool::default(), now, unit_frames: 1, open: 0 }
    }

    /// Runs a frame as one transaction; commits where the unit is complete.
    pub(crate) fn run(&mut self, direction: Direction, frame: &[u8]) -> Outcome {
        let mut packet = Packet::new(frame);
        packet.meta.direction = direction;
        let before = self.work.writes.delta_bytes();
        let beginning = self.work.begin();
        let mut txn = Txn::new(&mut self.work, &mut self.pool, self.now);
        let verdict = self.nf.run(&mut Frame::new(&mut packet), &*self.state, &mut txn);
        if self.work.conflicted() {
            self.work.abort(&beginning, &mut self.pool);
            self.commit(); // the unit had no room left
            return self.run(direction, frame);
        }
        let wrote = self.work.writes.delta_bytes() != before && verdict.is_ok();
        match verdict {
            Ok(_) => self.work.keep(),
            Err(_) => self.work.abort(&beginning, &mut self.pool),
        }
        let emitted = self.work.emitted.drain(..);
        let emitted = emitted.map(|made| (made.meta.direction, made.frame().to_vec())).collect();
        self.open += 1;
        if self.open >= self.unit_frames {
            self.commit();
        }
        Outcome { verdict, frame: packet.frame().to_vec(), emitted, wrote }
    }

    pub(crate) fn outbound(&mut self, frame: &[u8]) -> Outcome {
        self.run(Direction::Outbound, frame)
    }

    pub(crate) fn inbound(&mut self, frame: &[u8]) -> Outcome {
        self.run(Direction::Inbound, frame)
    }

    /// Commits the open unit.
    pub(crate) fn commit(&mut self) {
        let mut bytes = Vec::new();
        self.work.writes.encode(&mut bytes);
        delta::check(&*self.state, &bytes, self.work.writes.written()).expect("a head's own delta is sound");
        delta::apply(&mut *self.state, &bytes);
        self.work.writes.clear();
        self.open = 0;
    }

    /// Sweeps each partition once.
    pub(crate) fn sweep(&mut self) {
        self.commit();
        for partition in 0..self.layout.partitions {
            let mut txn = Txn::new(&mut self.work, &mut self.pool, self.now);
            self.nf.run_sweep(&*self.state, &mut txn, partition).expect("a sweep fits into its unit");
            self.work.keep();
            self.commit();
        }
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, seconds: u64) {
        self.now += seconds * SECOND;
    }

    /// The committed state.
    pub(crate) fn state<S: State>(&self) -> &S {
        self.state.downcast().expect("the state is of this type")
    }

    /// A number that changes with the committed state.
    pub(crate) fn digest(&self) -> u64 {
        self.state.digest(&self.layout)
    }

    /// Runs any bytes both ways: no panic, and no trace where the parser refuses them.
    pub(crate) fn endure(&mut self, bytes: &[u8]) {
        use pannier_runtime::wire::Layers;
        let before = self.digest();
        for direction in [Direction::Outbound, Direction::Inbound] {
            let outcome = self.run(direction, bytes);
            if Layers::parse(bytes).is_err() {
                assert!(outcome.verdict.is_err() && !outcome.wrote && outcome.emitted.is_empty());
                assert_eq!(self.digest(), before);
            }
        }
    }
}

impl Debug for Harness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Harness").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Asks `etherparse` whether all checksums of an IPv4 frame are right. A UDP checksum of 0 is none.
#[track_caller]
pub(crate) fn assert_checksums(frame: &[u8]) {
    let packet = SlicedPacket::from_ethernet(frame).expect("the frame is well-formed");
    let Some(NetSlice::Ipv4(ip)) = &packet.net else { panic!("the frame is IPv4") };
    let header = ip.header().to_header();
    assert_eq!(header.calc_header_checksum(), header.header_checksum, "IPv4 header");
    let (expected, found) = match packet.transport.as_ref().expect("the frame has an L4 header") {
        TransportSlice::Udp(udp) if udp.checksum() == 0 => return,
        TransportSlice::Udp(udp) => {
            (udp.to_header().calc_checksum_ipv4(&header, udp.payload()), udp.checksum())
        }
        TransportSlice::Tcp(tcp) => {
            (tcp.to_header().calc_checksum_ipv4(&header, tcp.payload()), tcp.checksum())
        }
        TransportSlice::Icmpv4(icmp) => (Ok(icmp.icmp_type().calc_checksum(icmp.payload())), icmp.checksum()),
        other => panic!("not over IPv4: {other:?}"),
    };
    assert_eq!(expected.expect("short enough"), found, "L4");
}
