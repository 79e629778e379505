//! Live chains whose ports have several queues: what holds with one queue holds with all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pannier_chains::ChainStage;
use pannier_chains::live::{Live, LiveError, LiveOptions, Sides};
use pannier_nf::monitor::{Monitor, MonitorConfig, MonitorState, monitor};
use pannier_runtime::packet::{Packet, Pool};
use pannier_runtime::port::{
    Device, DevicePort, Duplex, Port, PortContext, PortError, PortStats, memory_device,
};
use pannier_runtime::ring::Plan;
use pannier_runtime::state::Layout;
use pannier_runtime::wire::{Flow, FrameBuilder};
use pannier_runtime::{AnyNf, Direction, Frame, Nf, Txn, TxnResult, Verdict};

/// Longest wait for anything, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A monitor on two lanes and two shards.
fn start(sides: Sides) -> Result<Live, LiveError> {
    start_of(sides, Arc::new(monitor(MonitorConfig::default())))
}

fn start_of(sides: Sides, nf: Arc<dyn AnyNf>) -> Result<Live, LiveError> {
    let mut plan = Plan::new(1, 1).expect("a sound geometry");
    plan.lanes = 2;
    let stage = ChainStage { name: "monitor".to_owned(), nf };
    Live::start(
        plan,
        vec![stage],
        sides,
        &LiveOptions { shards: 2, patience: PATIENCE, ..LiveOptions::default() },
    )
}

fn side(queues: usize) -> (Vec<Device>, Vec<Duplex>) {
    (0..queues).map(|_| memory_device(4_096)).unzip()
}

/// Sends a packet of each of a hundred flows, by their queues.
fn send(ends: &mut [Duplex]) {
    let queues = ends.len();
    for (queue, end) in ends.iter_mut().enumerate() {
        let flows = (1_000..1_100).filter(|flow| usize::from(flow % 100) % queues == queue);
        let frame = |flow| FrameBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1]).udp(flow, 53, &[7; 64]);
        let mut burst: Vec<Packet> = flows.map(|flow| Packet::new(&frame(flow))).collect();
        let Ok(()) = end.tx_burst(&mut PortContext { now: 0, pool: &mut Pool::default() }, &mut burst);
    }
}

/// Looks after a chain until something holds.
fn watch(live: &mut Live, holds: impl Fn(&Live) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds(live) {
        assert!(Instant::now() < end, "it never holds");
        live.watch(Duration::from_millis(1));
    }
}

#[test]
fn queues_are_one_port_in_what_is_counted() {
    // Goal: counts are of the port, and lanes leave by the queues with their numbers only. Method: a hundred packets by three
    // queues, and three queues for the two lanes to leave by.
    let ((inside, mut into), (outside, mut out_of)) = (side(3), side(3));
    let mut live = start(Sides { inside, outside }).expect("threads and a sound plan");
    send(&mut into);
    watch(&mut live, |live| live.left() == 100);
    assert_eq!(live.entered(), 100);
    let outcome = live.finish();
    assert_eq!((outcome.broken, outcome.port_error), (Vec::new(), None));
    assert_eq!((outcome.ports[0].received, outcome.ports[1].sent), (100, 100));
    let left: Vec<usize> = out_of
        .iter_mut()
        .map(|end| {
            let mut burst = Vec::new();
            let Ok(count) =
                end.rx_burst(usize::MAX, &mut PortContext { now: 0, pool: &mut Pool::default() }, &mut burst);
            count
        })
        .collect();
    assert!(left[0] > 0 && left[1] > 0 && left[2] == 0, "{left:?}");
}

#[test]
fn a_side_without_a_port_is_refused() {
    // Goal: a sentence, not a panic. Method: no queue on one side, then on the other.
    for queues in [[0, 1], [1, 0]] {
        let [inside, outside] = queues.map(|queues| side(queues).0);
        let refused = start(Sides { inside, outside }).err().expect("a side has no port");
        assert!(refused.to_string().contains("no port on one side"), "{refused}");
    }
}

/// A queue that fails, or panics, once it is told to.
struct Failing {
    now: Arc<AtomicBool>,
    panics: bool,
}

impl Port for Failing {
    type Error = PortError;

    fn rx_burst(
        &mut self,
        _most: usize,
        _context: &mut PortContext<'_>,
        _burst: &mut Vec<Packet>,
    ) -> Result<usize, PortError> {
        if !self.now.load(Ordering::Relaxed) {
            return Ok(0);
        }
        if self.panics {
            std::panic::resume_unwind(Box::new("on purpose")); // without a word on the terminal
        }
        let (port, problem, way_out) = ("queue 1".to_owned(), "it is gone".to_owned(), "none".to_owned());
        Err(PortError { port, problem, way_out })
    }

    fn tx_burst(&mut self, context: &mut PortContext<'_>, burst: &mut Vec<Packet>) -> Result<(), PortError> {
        context.pool.give_all(burst);
        Ok(())
    }
}

impl DevicePort for Failing {
    fn name(&self) -> &str {
        "queue 1"
    }

    fn stats(&self) -> PortStats {
        PortStats::default()
    }
}

#[test]
fn what_is_wrong_with_one_queue_is_wrong_with_the_port() {
    // Goal: an error or a panic of any queue is told, and the others go on meanwhile. Method: the second queue of a side fails
    // or panics between two rounds of packets by the first.
    for panics in [false, true] {
        let now = Arc::new(AtomicBool::new(false));
        let (mut inside, mut into) = side(1);
        inside.push(Box::new(Failing { now: Arc::clone(&now), panics }));
        let mut live = start(Sides { inside, outside: side(2).0 }).expect("threads and a sound plan");
        send(&mut into);
        watch(&mut live, |live| live.left() == 100);
        assert_eq!(live.port_error(), None);
        now.store(true, Ordering::Relaxed);
        watch(&mut live, |live| live.port_error().is_some());
        send(&mut into);
        watch(&mut live, |live| live.left() == 200);
        let outcome = live.finish();
        assert_eq!(outcome.broken, Vec::<String>::new());
        let error = outcome.port_error.expect("it was told");
        let problem = if panics { "it panicked: on purpose" } else { "it is gone" };
        assert_eq!((error.port.as_str(), error.problem.as_str()), ("queue 1", problem));
    }
}

/// A monitor that panics when it is asked for the lane of one flow.
struct Wary(Monitor);

impl Nf for Wary {
    type State = MonitorState;

    fn state(&self, layout: &Layout) -> MonitorState {
        self.0.state(layout)
    }

    fn process(&self, frame: &mut Frame<'_>, state: &MonitorState, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        self.0.process(frame, state, txn)
    }

    fn steer(&self, flow: &Flow, _: Direction) -> Option<u32> {
        if flow.source_port() == 1_050 {
            std::panic::resume_unwind(Box::new("on purpose")); // without a word on the terminal
        }
        None
    }
}

#[test]
fn what_an_edge_loses_by_a_panic_is_accounted_for() {
    // Goal: every packet that was counted in is counted out, also where the network function panics in an edge. Method: a
    // function that panics at the lane of one flow, whose packet comes in a burst by one of two queues.
    let ((inside, mut into), (outside, _out_of)) = (side(2), side(2));
    let nf = Arc::new(Wary(monitor(MonitorConfig::default())));
    let mut live = start_of(Sides { inside, outside }, nf).expect("threads and a sound plan");
    send(&mut into);
    watch(&mut live, |live| live.port_error().is_some() && live.entered() == 100);
    let outcome = live.finish();
    assert_eq!(outcome.broken, Vec::<String>::new());
    assert!(outcome.summary.packets.lost > 0 && outcome.port_error.is_some());
}
