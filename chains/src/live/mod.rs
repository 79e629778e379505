//! Live chains: nodes on cores, between two ports.
//!
//! A [`Live`] chain starts its nodes' shards and its two edges on workers, one worker a core, and looks after them: it
//! detects that a node died, declares views, and lets replacements begin. [`Live::watch`] does so for a while; whoever
//! runs the chain calls it again and again.

mod edge;
mod supervise;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use pannier_runtime::entropy::Entropy;
use pannier_runtime::packet::Depot;
use pannier_runtime::port::{Device, Duplex, Fault, Faults, PortError, PortStats, duplex};
use pannier_runtime::ring::{Node, Orchestrator, Plan, PlanError};
use pannier_runtime::shard::{Clock, Hold, Idle, LaneLinks, Order, Place, Shard, Told, Worker, cores};
use pannier_runtime::{AnyNf, Direction};

use crate::chain::{ChainStage, Recovery, Summary};
use crate::config::{Inside, Undecided};
use crate::ingress::Ingress;
use edge::{Edge, EdgeState};
use supervise::Outage;

/// Packets that may be under way on one lane of a link, each way.
const LINK: usize = 1_024;

/// How a live chain runs.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Cores for the workers, by their numbers; none: as many workers as there are cores.
    pub cores: Vec<usize>,
    /// What a worker does when there is nothing to do.
    pub idle: Idle,
    /// Shards of each node at the start, at most as many as the plan has lanes.
    pub shards: usize,
    /// What the links of the ring do wrong.
    pub faults: Faults,
    /// How long a node may give no sign before it counts as dead.
    pub patience: Duration,
}

impl Default for LiveOptions {
    fn default() -> Self {
        LiveOptions {
            cores: Vec::new(),
            idle: Idle::SLEEP,
            shards: 1,
            faults: Faults::NONE,
            patience: Duration::from_secs(2),
        }
    }
}

/// Why a live chain can't start.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The chain can't work.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// More shards than lanes.
    #[error("a node can't have {shards} shards on {lanes} lanes: set lanes = {shards}")]
    Shards {
        /// Shards asked for.
        shards: usize,
        /// Lanes there are.
        lanes: usize,
    },
    /// No thread.
    #[error("a worker's thread can't be started: {0}; end other programs or raise the limit of threads")]
    Thread(#[from] io::Error),
}

/// The two ports of a chain.
#[derive(Debug)]
pub struct Sides {
    /// Towards the inside: what arrives here is outbound.
    pub inside: Device,
    /// Towards the outside.
    pub outside: Device,
}

/// A chain that runs.
pub struct Live {
    plan: Plan,
    names: Vec<String>,
    nfs: Arc<[Arc<dyn AnyNf>]>,
    options: LiveOptions,
    orchestrator: Orchestrator,
    places: Vec<Arc<Place>>,
    /// By node: the mailboxes of its shards; the first leads.
    shards: Vec<Vec<Sender<Order>>>,
    told: Receiver<(usize, Told)>,
    edges: [Arc<EdgeState>; 2],
    ended: Arc<AtomicBool>,
    depot: Arc<Depot>,
    clock: Clock,
    outages: Vec<Option<Outage>>,
    beats: Vec<(u64, Instant)>,
    recoveries: Vec<Recovery>,
    unrecoverable: Option<usize>,
    warnings: Vec<String>,
    /// Dropped last: the actors must have been told to end.
    workers: Vec<Worker>,
}

/// What a live chain came to.
#[derive(Debug)]
pub struct LiveOutcome {
    /// What the chain did.
    pub summary: Summary,
    /// Promises that were broken, each a sentence.
    pub broken: Vec<String>,
    /// What the ports counted: inside, outside.
    pub ports: [PortStats; 2],
    /// Why a port gave up before the end.
    pub port_error: Option<PortError>,
}

impl Live {
    /// Starts a chain between two ports.
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn start(
        plan: Plan,
        stages: Vec<ChainStage>,
        sides: Sides,
        options: LiveOptions,
    ) -> Result<Self, LiveError> {
        if stages.len() != plan.stages() {
            return Err(PlanError::StageCount { planned: plan.stages(), given: stages.len() }.into());
        }
        plan.check(stages.iter().map(|s| s.nf.largest_delta_in(&plan.layout)).max().unwrap_or(0))?;
        if !(1..=plan.lanes).contains(&options.shards) {
            return Err(LiveError::Shards { shards: options.shards, lanes: plan.lanes });
        }
        let names = stages.iter().map(|stage| stage.name.clone()).collect();
        let nfs: Arc<[Arc<dyn AnyNf>]> = stages.into_iter().map(|stage| stage.nf).collect();
        let (nodes, clock) = (plan.nodes(), Clock::default());
        let (report, told) = unbounded();
        let leaders: Vec<_> = (0..nodes).map(|_| unbounded()).collect();
        let mailboxes: Vec<Sender<Order>> = leaders.iter().map(|(to, _)| to.clone()).collect();
        let place = |index| Arc::new(Place::new(index, mailboxes.clone(), report.clone()));
        let mut live = Live {
            plan,
            names,
            nfs,
            orchestrator: Orchestrator::new(&plan),
            places: (0..nodes).map(place).collect(),
            shards: mailboxes.iter().map(|leader| vec![leader.clone()]).collect(),
            told,
            edges: [Arc::default(), Arc::default()],
            ended: Arc::default(),
            depot: Arc::default(),
            clock,
            outages: (0..nodes).map(|_| None).collect(),
            beats: vec![(0, Instant::now()); nodes],
            recoveries: Vec::new(),
            unrecoverable: None,
            warnings: Vec::new(),
            workers: start_workers(&options, clock)?,
            options,
        };
        let (lanes, edges) = live.wire();
        live.start_edges(sides, edges);
        for (index, (links, (to, mailbox))) in lanes.into_iter().zip(leaders).enumerate() {
            let shard = Shard::new(live.places[index].clone(), mailbox, live.depot.clone());
            let view = live.orchestrator.view().clone();
            let node = Node::new(index, plan, live.nfs.clone(), view);
            // The mailbox was made a few lines above, and its shard begins below.
            let _ = to.send(Order::Take(links, Hold::Alone(Box::new(node)), true));
            live.workers[live.home(index, 0)].add(Box::new(shard));
        }
        if live.options.shards > 1 {
            (0..nodes).for_each(|node| live.set_shards(node, live.options.shards));
        }
        Ok(live)
    }

    /// The worker of a node's shard: neighbours share one, the shards of a node do not.
    fn home(&self, node: usize, shard: usize) -> usize {
        (node * self.workers.len() / self.plan.nodes() + shard) % self.workers.len()
    }

    /// All links: for each node its lanes', and for each edge its own.
    fn wire(&self) -> (Vec<Vec<LaneLinks>>, [Vec<Duplex>; 2]) {
        let (nodes, lanes) = (self.plan.nodes(), self.plan.lanes);
        let empty = |number| LaneLinks { number, before: None, after: None, inside: None, outside: None };
        let mut all: Vec<Vec<LaneLinks>> = (0..nodes).map(|_| (0..lanes).map(empty).collect()).collect();
        let mut edges = [Vec::new(), Vec::new()];
        (0..lanes).for_each(|lane| self.wire_lane(lane, &mut all, &mut edges));
        (all, edges)
    }

    fn wire_lane(&self, lane: usize, all: &mut [Vec<LaneLinks>], edges: &mut [Vec<Duplex>; 2]) {
        let nodes = self.plan.nodes();
        for node in (0..nodes).filter(|_| nodes > 1) {
            let (here, there) = duplex(LINK);
            let faulty = |end, number: usize| {
                let stream = 1 << 62 | (lane as u64) << 32 | (2 * node + number) as u64;
                Fault::new(end, self.options.faults, Entropy::stream(self.plan.seed, stream))
            };
            all[node][lane].after = Some(faulty(here, 0));
            all[self.plan.successor(node)][lane].before = Some(faulty(there, 1));
        }
        let (edge, first) = duplex(LINK);
        edges[0].push(edge);
        all[0][lane].inside = Some(first);
        let (edge, last) = duplex(LINK);
        edges[1].push(edge);
        all[self.plan.last()][lane].outside = Some(last);
    }

    fn start_edges(&self, sides: Sides, lanes: [Vec<Duplex>; 2]) {
        let [inside, outside] = lanes;
        let ports = [
            (sides.inside, inside, Direction::Outbound, 0, &self.edges[0]),
            (sides.outside, outside, Direction::Inbound, self.plan.last(), &self.edges[1]),
        ];
        for (port, lanes, direction, node, state) in ports {
            let edge = Edge::new(
                port,
                direction,
                lanes,
                Ingress::new(Inside::nothing(), Vec::new(), Undecided::default()),
                self.nfs.clone(),
                self.places.clone(),
                state.clone(),
                self.depot.clone(),
                self.ended.clone(),
            );
            self.workers[self.home(node, 0)].add(Box::new(edge));
        }
    }

    /// The geometry and the bounds.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Packets that have entered the chain so far, on both sides.
    pub fn entered(&self) -> u64 {
        self.edges.iter().map(|edge| edge.entered.load(Ordering::Relaxed)).sum()
    }

    /// Packets that have left the chain so far, on both sides.
    pub fn left(&self) -> u64 {
        self.edges.iter().map(|edge| edge.left.load(Ordering::Relaxed)).sum()
    }

    /// Nodes that were replaced and have all their state again.
    pub fn recoveries(&self) -> &[Recovery] {
        &self.recoveries
    }

    /// Why a port can't go on, if one can't.
    pub fn port_error(&self) -> Option<PortError> {
        self.edges.iter().find_map(|edge| edge.failed())
    }
}

fn start_workers(options: &LiveOptions, clock: Clock) -> io::Result<Vec<Worker>> {
    let numbers = match options.cores.is_empty() {
        true => (0..cores()).collect(),
        false => options.cores.clone(),
    };
    let start = |&core: &usize| Worker::start(&format!("pannier-{core}"), Some(core), options.idle, clock);
    numbers.iter().map(start).collect()
}
