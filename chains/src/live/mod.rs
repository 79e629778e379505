//! Live chains: nodes on cores, between two ports.
//!
//! A [`Live`] chain starts its nodes' shards and its edges on workers, one worker a core, and looks after them: it
//! detects that a node died, declares views, and lets replacements begin. [`Live::watch`] does so for a while; whoever
//! runs the chain calls it again and again. What is done is in [`Supervisor`], which has no thread; a [`Live`] chain gives
//! it the threads.

mod columns;
mod edge;
mod supervise;
mod wire;

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use pannier_runtime::Direction;
use pannier_runtime::clock::Now;
use pannier_runtime::port::{Device, Faults, PortError, PortStats};
use pannier_runtime::ring::{Plan, PlanError};
use pannier_runtime::shard::{Actor, Clock, Idle, Worker, cores};

use crate::chain::{ChainStage, Recovery, Summary};
use columns::Columns;
pub use supervise::{Host, Supervisor};

/// How often nodes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

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
    /// How long a node may give no sign before it counts as dead. Whoever [watches](Live::watch) more seldom than
    /// that suspects none. The end of a chain waits as long for what is under way, but five seconds at least and a minute at
    /// most.
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
    /// A side of the chain without a port.
    #[error("the chain has no port on one side: give each side a port, of one queue at least")]
    NoPort,
    /// No thread.
    #[error("a worker's thread can't be started: {0}; end other programs or raise the limit of threads")]
    Thread(#[from] io::Error),
}

/// The two ports of a chain, each of one queue or several (see [`PortSpec::open_queues`](pannier_runtime::port::PortSpec)).
/// The packets of a flow must arrive by one queue, or they may overtake each other. What a lane lets out leaves by one queue.
#[derive(Debug)]
pub struct Sides {
    /// Towards the inside: what arrives here is outbound.
    pub inside: Vec<Device>,
    /// Towards the outside.
    pub outside: Vec<Device>,
}

/// A chain that runs.
pub struct Live {
    supervisor: Option<Supervisor>,
    crew: Crew,
}

/// The threads of a chain.
struct Crew {
    clock: Clock,
    columns: Columns,
    /// By node: the workers of its shards.
    homes: Vec<Vec<usize>>,
    workers: Vec<Worker>,
}

impl Host for Crew {
    fn now(&self) -> Now {
        self.clock.now()
    }

    fn add_shard(&mut self, node: usize, shard: usize, actor: Box<dyn Actor>) {
        self.homes[node].truncate(shard);
        let home = self.columns.further(node, shard, &self.homes[node]);
        self.homes[node].push(home);
        self.workers[home].add(actor);
    }

    fn add_edge(&mut self, direction: Direction, column: usize, actor: Box<dyn Actor>) {
        let home = match direction {
            Direction::Outbound => self.columns.home(0, column),
            Direction::Inbound => self.columns.outside(column),
        };
        self.workers[home].add(actor);
    }

    fn wait(&mut self) {
        thread::sleep(LOOK_EVERY / 10);
    }

    /// Waits for all actors, and with them for their last words.
    fn end(&mut self) {
        self.workers.clear();
    }
}

/// What a live chain came to.
#[derive(Debug)]
pub struct LiveOutcome {
    /// What the chain did.
    pub summary: Summary,
    /// Promises that were broken, each a sentence.
    pub broken: Vec<String>,
    /// What the ports counted, all queues together: inside, outside.
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
        options: &LiveOptions,
    ) -> Result<Self, LiveError> {
        let clock = Clock::default();
        let workers = start_workers(options, clock)?;
        let columns = Columns { nodes: plan.nodes(), shards: options.shards, workers: workers.len() };
        let mut crew = Crew { clock, columns, homes: vec![Vec::new(); plan.nodes()], workers };
        let supervisor = Supervisor::start(plan, stages, sides, options, &mut crew)?;
        Ok(Live { supervisor: Some(supervisor), crew })
    }

    fn parts(&mut self) -> (&mut Supervisor, &mut Crew) {
        (self.supervisor.as_mut().expect("it is there until the chain is dropped"), &mut self.crew)
    }

    fn supervisor(&self) -> &Supervisor {
        self.supervisor.as_ref().expect("it is there until the chain is dropped")
    }

    /// Looks after the chain for a while.
    pub fn watch(&mut self, how_long: Duration) {
        let end = Instant::now() + how_long;
        let (supervisor, crew) = self.parts();
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            supervisor.listen(rest.min(LOOK_EVERY), crew);
            supervisor.watch(crew);
            if rest.is_zero() {
                return;
            }
        }
    }

    /// See [`Supervisor::crash`].
    pub fn crash(&mut self, node: usize) -> bool {
        let (supervisor, crew) = self.parts();
        supervisor.crash(node, crew)
    }

    /// See [`Supervisor::set_shards`].
    pub fn set_shards(&mut self, node: usize, count: usize) {
        let (supervisor, crew) = self.parts();
        supervisor.set_shards(node, count, crew);
    }

    /// How many shards run a node.
    pub fn shards(&self, node: usize) -> usize {
        self.supervisor().shards(node)
    }

    /// Ends the chain: takes no more packets, lets those leave that are inside, and sums up.
    pub fn finish(mut self) -> LiveOutcome {
        let supervisor = self.supervisor.take().expect("it is there until the chain is dropped");
        supervisor.finish(&mut self.crew)
    }

    /// The geometry and the bounds.
    pub fn plan(&self) -> &Plan {
        self.supervisor().plan()
    }

    /// Packets that have entered the chain so far, on both sides.
    pub fn entered(&self) -> u64 {
        self.supervisor().entered()
    }

    /// Packets that have left the chain so far, on both sides.
    pub fn left(&self) -> u64 {
        self.supervisor().left()
    }

    /// Nodes that were replaced and have all their state again.
    pub fn recoveries(&self) -> &[Recovery] {
        self.supervisor().recoveries()
    }

    /// See [`Supervisor::unrecoverable`].
    pub fn unrecoverable(&self) -> Option<usize> {
        self.supervisor().unrecoverable()
    }

    /// Why a port can't go on, if one can't.
    pub fn port_error(&self) -> Option<PortError> {
        self.supervisor().port_error()
    }
}

impl Drop for Live {
    /// Lets all actors end; the workers wait for them.
    fn drop(&mut self) {
        self.supervisor = None;
        if thread::panicking() {
            std::mem::take(&mut self.crew.workers).into_iter().for_each(std::mem::forget);
        }
    }
}

fn start_workers(options: &LiveOptions, clock: Clock) -> io::Result<Vec<Worker>> {
    let numbers = if options.cores.is_empty() { cores() } else { options.cores.clone() };
    let start = |&core: &usize| Worker::start(Some(core), options.idle, clock);
    numbers.iter().map(start).collect()
}
