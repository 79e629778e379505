//! A world: real nodes, links, views, recoveries and an orchestrator, in which one event happens after the other.

mod look;
mod network;
mod turns;

use std::sync::Arc;

use pannier_runtime::clock::{Nanos, Now};
use pannier_runtime::entropy::Entropy;
use pannier_runtime::ring::{Node, Orchestrator, Output, Plan, Standing, View};
use pannier_runtime::{AnyNf, Direction, Packet};

use crate::check::{self, Broken, Scene, Watch};
use crate::event::Event;
use crate::journal::Journal;
use crate::options::{Options, OptionsError};
use crate::provenance::{FLOWS, Fate, Provenance, Script};

/// Numbers of the packets that enter after the faults, from here on.
const CALM: u64 = 1 << 62;
/// How many of them go each way.
const CALM_BURST: usize = 4;
/// How often the whole history is checked, in steps.
const CHECK_EVERY: u64 = 50;
/// Rounds in which a world without faults must come to rest: repair waits up to 32 of them.
const CALM_ROUNDS: usize = 2_000;
/// How many of the oldest messages may be picked in a random schedule.
const REACH: usize = 12;
/// Nodes that may live on although they were declared dead.
const MOST_GHOSTS: usize = 3;

/// Lists and buffers that turns use one after the other. A copy of a world gets its own.
#[derive(Default)]
struct Spare(Output);

impl Clone for Spare {
    fn clone(&self) -> Self {
        Spare::default()
    }
}

/// Real nodes under one seed.
#[derive(Clone)]
pub struct World {
    options: Options,
    plan: Plan,
    nfs: Arc<[Arc<dyn AnyNf>]>,
    journal: Journal,
    nodes: Vec<Option<Node>>,
    paused: Vec<bool>,
    /// By node: how many shards run it.
    shards: Vec<usize>,
    /// By node: the link to its successor is cut.
    cut: Vec<bool>,
    /// Nodes that were declared dead although they run.
    ghosts: Vec<Node>,
    /// Messages on the links with their receivers, oldest first.
    network: Vec<(usize, Packet)>,
    /// Messages that come when nobody expects them any more.
    aside: Vec<(usize, Packet)>,
    /// Messages beside the ring.
    control: Vec<(usize, Packet)>,
    /// Views that nodes have not heard of.
    views: Vec<(usize, View)>,
    orchestrator: Orchestrator,
    spare: Spare,
    now: Now,
    steps: u64,
    /// How many of the oldest messages may be picked: others are too young.
    reach: usize,
    /// Each step is followed by all checks, not only every fiftieth.
    pub thorough: bool,
    watch: Watch,
    released: Vec<Vec<u64>>,
    recoveries: u64,
    broken: Option<Broken>,
    /// What happened, for people.
    told: Option<String>,
    /// The faults have ended.
    calm: bool,
}

impl Scene for World {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn up(&self, index: usize) -> Option<&Node> {
        self.nodes.get(index)?.as_ref().filter(|node| node.is_up())
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn released(&self) -> &[Vec<u64>] {
        &self.released
    }
}

impl World {
    /// A world in which nothing has happened.
    ///
    /// # Errors
    /// Options of which no ring can be made.
    pub fn new(options: Options) -> Result<Self, OptionsError> {
        let plan = options.plan()?;
        let journal = Journal::default();
        journal.entries().lanes = options.lanes as u64;
        let make = if options.exhaustive { Provenance::without_draws } else { Provenance::new };
        let stage = |stage| Arc::new(make(stage, journal.clone())) as Arc<dyn AnyNf>;
        let nfs: Arc<[Arc<dyn AnyNf>]> = (0..options.stages).map(stage).collect();
        let orchestrator = Orchestrator::new(&plan);
        let mut world = World {
            options,
            nodes: Vec::new(),
            paused: vec![false; plan.nodes()],
            shards: vec![1; plan.nodes()],
            cut: vec![false; plan.nodes()],
            plan,
            nfs,
            journal,
            ghosts: Vec::new(),
            network: Vec::new(),
            aside: Vec::new(),
            control: Vec::new(),
            views: Vec::new(),
            orchestrator,
            spare: Spare::default(),
            now: Now { timer: 1, wall: 1 },
            steps: 0,
            reach: if options.exhaustive { usize::from(u8::MAX) } else { REACH },
            thorough: false,
            watch: Watch::default(),
            released: Vec::new(),
            recoveries: 0,
            broken: None,
            told: None,
            calm: false,
        };
        for index in 0..plan.nodes() {
            let view = world.orchestrator.view().clone();
            let mut node = Node::new(index, plan, Arc::clone(&world.nfs), view);
            node.age(options.age);
            world.nodes.push(Some(world.born(node)));
        }
        Ok(world)
    }

    /// The options that it was made of.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Nodes that were replaced and caught up.
    pub fn recoveries(&self) -> u64 {
        self.recoveries
    }

    /// From now on notes what happens, for people.
    pub fn tell(&mut self) {
        self.told.get_or_insert_default();
    }

    /// What was noted.
    pub fn told(&self) -> &str {
        self.told.as_deref().unwrap_or_default()
    }

    /// Notes something, where anybody wants to know.
    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(told) = &mut self.told {
            told.push_str(&what());
            told.push('\n');
        }
    }

    /// Lets one thing happen, and checks the promises.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn step(&mut self, event: &Event) -> Result<(), Broken> {
        self.steps += 1;
        let step = self.steps;
        self.note(|| format!("{step:4}  {event}"));
        self.apply(event);
        self.broken.take().map_or(Ok(()), Err)?;
        if self.thorough || self.steps.is_multiple_of(CHECK_EVERY) {
            check::all(self)?;
        }
        Ok(())
    }

    /// Ends all faults and lets the nodes come to rest, which they must; then checks everything.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn settle(&mut self) -> Result<(), Broken> {
        self.note(|| "      the faults end; acknowledgements are not told any more".to_owned());
        self.calm = true;
        self.ghosts.clear();
        self.paused.fill(false);
        self.cut.fill(false);
        self.network.append(&mut self.aside);
        self.come_to_rest()?;
        let (before, first) = (self.released.len(), self.calm_packets());
        self.come_to_rest()?;
        check::through(self, before, &first)?;
        check::all(self)?;
        check::against_model(self, self.now.wall)?;
        check::at_rest(self)
    }

    fn come_to_rest(&mut self) -> Result<(), Broken> {
        for _ in 0..CALM_ROUNDS {
            self.round();
            self.broken.take().map_or(Ok(()), Err)?;
            if self.is_at_rest() {
                return Ok(());
            }
        }
        Err(check::stuck(self))
    }

    /// Lets packets in that nothing keeps from leaving, each way and of one flow each, and says which.
    fn calm_packets(&mut self) -> Vec<u64> {
        let stages = self.plan.stages();
        let forwards = |number: &u64| {
            (0..stages).all(|stage| {
                let script = Script::of(*number, stage);
                script.fate == Fate::Forward && script.fleeting.is_none()
            })
        };
        let of_flow =
            |flow: u64| (CALM..).filter(forwards).filter(move |n| n % FLOWS == flow).take(CALM_BURST);
        let mut all = Vec::new();
        for direction in [Direction::Outbound, Direction::Inbound] {
            let numbers: Vec<u64> = of_flow(direction as u64).collect();
            numbers.iter().for_each(|&number| self.admit_one(number, direction));
            all.extend(numbers);
        }
        all
    }

    /// One round without faults: everything that is under way arrives, and time passes at each node.
    fn round(&mut self) {
        for (to, view) in std::mem::take(&mut self.views) {
            self.adopt(to, &view);
        }
        for (to, packet) in std::mem::take(&mut self.control) {
            self.accept(to, vec![packet]);
        }
        let under_way = std::mem::take(&mut self.network);
        let mut bursts: Vec<Vec<Packet>> = vec![Vec::new(); self.nodes.len()];
        under_way.into_iter().for_each(|(to, packet)| bursts[to].push(packet));
        for (to, burst) in bursts.into_iter().enumerate().filter(|(_, burst)| !burst.is_empty()) {
            self.accept(to, burst);
        }
        for index in 0..self.nodes.len() {
            self.now.timer += self.plan.limits.repair_after;
            self.tick(index);
        }
        self.orchestrate();
    }

    fn is_at_rest(&self) -> bool {
        self.network.iter().all(|(_, packet)| network::is_acknowledgement(packet))
            && self.control.is_empty()
            && self.views.is_empty()
            && self.nodes.iter().all(|node| node.as_ref().is_some_and(Node::is_idle))
    }

    /// Prepares a node that has just begun to live.
    fn born(&self, mut node: Node) -> Node {
        if self.options.conflicts > 0 {
            let entropy = Entropy::stream(self.options.seed, node.incarnation() << 8 | 5);
            node.provoke_conflicts(entropy, self.options.conflicts as f64 / 100.0);
        }
        node
    }

    fn pass_time(&mut self, timer: Nanos, wall: Nanos) {
        self.now.timer += timer;
        self.now.wall += wall;
    }

    /// Whether another node may die: a node counts as down until its replacement has caught up.
    fn may_lose(&self, index: usize) -> bool {
        let view = self.orchestrator.view();
        let down = |i: &usize| self.nodes[*i].is_none() || view.members[*i].standing != Standing::Up;
        (0..self.nodes.len()).filter(|i| *i != index && down(i)).count() < self.plan.f()
    }
}
