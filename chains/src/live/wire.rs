//! The start of a live chain: its links, its nodes' first shards, and its edges.

use std::sync::Arc;

use crossbeam_channel::{Sender, unbounded};
use pannier_runtime::entropy::Entropy;
use pannier_runtime::packet::Depot;
use pannier_runtime::port::{Device, Duplex, Fault, Faults, duplex};
use pannier_runtime::ring::{Node, Orchestrator, Plan, PlanError};
use pannier_runtime::shard::{LaneLinks, NodeHandle, Order, Place, Shard};
use pannier_runtime::{AnyNf, Direction};

use super::edge::{Common, Edge};
use super::supervise::{Host, Supervisor};
use super::{LiveError, LiveOptions, Sides};
use crate::chain::ChainStage;

/// Packets that may be under way on one lane of a link, each way.
const LINK: usize = 1_024;

/// Rings in memory lose nothing; an answer is only late where a thread was not run. To send units again then would cost
/// time when there is too little of it. (A new successor gets at once what it lacks.) In nanoseconds.
const LEAST_REPAIR: u64 = 20_000_000;

impl Supervisor {
    /// Starts a chain between two ports. Of the options, those that concern threads are not looked at.
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn start(
        plan: Plan,
        stages: Vec<ChainStage>,
        sides: Sides,
        options: &LiveOptions,
        host: &mut dyn Host,
    ) -> Result<Self, LiveError> {
        if stages.len() != plan.stages() {
            return Err(PlanError::StageCount { planned: plan.stages(), given: stages.len() }.into());
        }
        plan.check(stages.iter().map(|s| s.nf.largest_delta_in(&plan.layout)).max().unwrap_or(0))?;
        if !(1..=plan.lanes).contains(&options.shards) {
            return Err(LiveError::Shards { shards: options.shards, lanes: plan.lanes });
        }
        if sides.inside.is_empty() || sides.outside.is_empty() {
            return Err(LiveError::NoPort);
        }
        let mut plan = plan;
        if options.faults == Faults::NONE {
            plan.limits.repair_after = plan.limits.repair_after.max(LEAST_REPAIR);
        }
        let names = stages.iter().map(|stage| stage.name.clone()).collect();
        let nfs: Arc<[Arc<dyn AnyNf>]> = stages.into_iter().map(|stage| stage.nf).collect();
        let nodes = plan.nodes();
        let (report, told) = unbounded();
        let leaders: Vec<_> = (0..nodes).map(|_| unbounded()).collect();
        let mailboxes: Vec<Sender<Order>> = leaders.iter().map(|(to, _)| to.clone()).collect();
        let place = |index| Arc::new(Place::new(index, mailboxes.clone(), report.clone()));
        let mut supervisor = Supervisor {
            plan,
            names,
            nfs,
            orchestrator: Orchestrator::new(&plan),
            places: (0..nodes).map(place).collect(),
            shards: mailboxes.iter().map(|leader| vec![leader.clone()]).collect(),
            told,
            edges: [&sides.inside, &sides.outside]
                .map(|queues| queues.iter().map(|_| Arc::default()).collect()),
            ended: Arc::default(),
            depots: depots(options.shards),
            outages: (0..nodes).map(|_| None).collect(),
            beats: vec![(0, host.now().timer); nodes],
            looked: host.now().timer,
            patience: u64::try_from(options.patience.as_nanos()).unwrap_or(u64::MAX),
            recoveries: Vec::new(),
            unrecoverable: None,
            warnings: Vec::new(),
        };
        let (lanes, edges) = wire(&plan, options.faults, [sides.inside.len(), sides.outside.len()]);
        // In the order in which outbound packets pass them: where one worker has all, they go through in one round, and few
        // are under way at once.
        let ([inside, outside], [inside_links, outside_links]) = ([sides.inside, sides.outside], edges);
        supervisor.start_edges(Direction::Outbound, inside, inside_links, host);
        for (index, (links, (to, mailbox))) in lanes.into_iter().zip(leaders).enumerate() {
            let shard = Shard::new(supervisor.places[index].clone(), mailbox, supervisor.depot(0));
            let view = supervisor.orchestrator.view().clone();
            let node = Node::new(index, plan, supervisor.nfs.clone(), view);
            // The mailbox was made a few lines above, and its shard begins below.
            let _ = to.send(Order::Take(links, NodeHandle::Alone(Box::new(node)), true));
            host.add_shard(index, 0, Box::new(shard));
        }
        if options.shards > 1 {
            (0..nodes).for_each(|node| supervisor.set_shards(node, options.shards, host));
        }
        supervisor.start_edges(Direction::Inbound, outside, outside_links, host);
        Ok(supervisor)
    }

    /// Starts the edges where packets of a `direction` enter, one for each queue of their side.
    fn start_edges(
        &self,
        direction: Direction,
        queues: Vec<Device>,
        links: Vec<Vec<Duplex>>,
        host: &mut dyn Host,
    ) {
        let common = Common {
            plan: self.plan,
            nfs: Arc::clone(&self.nfs),
            places: self.places.clone(),
            ended: Arc::clone(&self.ended),
        };
        // Where queues are few, the two sides should not share all their workers.
        let first = match direction {
            Direction::Outbound => 0,
            Direction::Inbound => self.depots.len().saturating_sub(queues.len()),
        };
        let states = &self.edges[direction as usize];
        for (column, ((port, lanes), state)) in (first..).zip(queues.into_iter().zip(links).zip(states)) {
            let edge =
                Edge::new(port, direction, lanes, Arc::clone(state), self.depot(column), common.clone());
            host.add_edge(direction, column, Box::new(edge));
        }
    }
}

/// A depot for each of so many columns, and behind several one for all.
fn depots(columns: usize) -> Vec<Arc<Depot>> {
    let common = Arc::default();
    match columns {
        1 => vec![common],
        _ => (0..columns).map(|_| Arc::new(Depot::in_front(Arc::clone(&common)))).collect(),
    }
}

/// The links of the edges: of each side, of each queue, those to the lanes.
type EdgeLinks = [Vec<Vec<Duplex>>; 2];

/// All links: for each node its lanes', and for each edge its own. The sides have so many `queues`.
fn wire(plan: &Plan, faults: Faults, queues: [usize; 2]) -> (Vec<Vec<LaneLinks>>, EdgeLinks) {
    let (nodes, lanes) = (plan.nodes(), plan.lanes);
    let empty =
        |number| LaneLinks { number, before: None, after: None, inside: Vec::new(), outside: Vec::new() };
    let mut all: Vec<Vec<LaneLinks>> = (0..nodes).map(|_| (0..lanes).map(empty).collect()).collect();
    let mut edges = queues.map(|queues| (0..queues).map(|_| Vec::new()).collect());
    (0..lanes).for_each(|lane| wire_lane(plan, faults, lane, &mut all, &mut edges));
    (all, edges)
}

fn wire_lane(
    plan: &Plan,
    faults: Faults,
    lane: usize,
    all: &mut [Vec<LaneLinks>],
    [inside, outside]: &mut EdgeLinks,
) {
    let nodes = plan.nodes();
    for node in (0..nodes).filter(|_| nodes > 1) {
        let (here, there) = duplex(LINK);
        let seed = |end: usize| 1 << 62 | (lane as u64) << 32 | (2 * node + end) as u64;
        let faulty = |end, number| Fault::new(end, faults, Entropy::stream(plan.seed, seed(number)));
        all[node][lane].after = Some(faulty(here, 0));
        all[plan.successor(node)][lane].before = Some(faulty(there, 1));
    }
    all[0][lane].inside = inside.iter_mut().map(link_to).collect();
    all[plan.last()][lane].outside = outside.iter_mut().map(link_to).collect();
}

/// A link to an edge, which gets the other end.
fn link_to(edge: &mut Vec<Duplex>) -> Duplex {
    let (there, here) = duplex(LINK);
    edge.push(there);
    here
}
