//! Views: replacements, nodes that were suspected in error, and units that must stay whole on the way.

use super::*;
use crate::ring::view::Orchestrator;

impl Ring {
    fn adopt_all(&mut self, orchestrator: &Orchestrator) {
        for index in 0..self.nodes.len() {
            self.nodes[index].adopt(orchestrator.view(), &mut self.out);
            self.route(index);
        }
    }

    /// Replaces a node; what is under way is lost. Returns how many snapshots that took.
    fn replace(&mut self, orchestrator: &mut Orchestrator, index: usize) -> usize {
        self.network.clear();
        orchestrator.declare_dead(index);
        self.adopt_all(orchestrator);
        assert_eq!(orchestrator.admit(), Some(index));
        self.adopt_all(orchestrator);
        let nfs: Arc<[Arc<dyn AnyNf>]> = (0..self.plan.stages()).map(|_| counter()).collect();
        let view = orchestrator.view().clone();
        self.nodes[index] = Node::replacement(index, self.plan, nfs, view, self.now, &mut self.out);
        let mut snapshots = 0;
        while let Some((to, packet)) = self.out.control.pop() {
            snapshots += usize::from(packet.meta.kind == Kind::Snapshot);
            self.accept(to, vec![packet]);
            self.now.timer += 1_000_000;
            self.nodes[index].tick(self.now, &mut self.out);
        }
        assert!(std::mem::take(&mut self.out.caught_up));
        orchestrator.caught_up(index, self.nodes[index].incarnation());
        self.adopt_all(orchestrator);
        self.network.clear();
        snapshots
    }
}

fn versions(node: &Node, stage: usize) -> u64 {
    node.store(stage).map_or(0, |store| store.versions().0.iter().sum())
}

#[test]
fn a_unit_stays_whole_through_two_recoveries() {
    // Goal: causality after failures one behind the other. Method: stages 1 and 2 write for one packet, whose unit is
    // lost in front of node 0; nodes 2 and 3 are replaced; no message of node 3's repair holds one without the other.
    let mut ring = Ring::new(plan(4, 3));
    let mut orchestrator = Orchestrator::new(&ring.plan);
    let ask = [LOOK, WRITE, WRITE, LOOK];
    let mut burst = vec![frame(1, ask[0], 0, 60)];
    for (index, ask) in ask.into_iter().enumerate() {
        burst.iter_mut().for_each(|packet| packet.frame_mut()[1] = ask);
        ring.accept(index, burst);
        burst = ring.network.drain(..).filter(|(to, _)| *to == index + 1).map(|(_, packet)| packet).collect();
    }
    ring.replace(&mut orchestrator, 2);
    ring.replace(&mut orchestrator, 3);
    ring.nodes[0].tick(ring.now, &mut ring.out);
    let told: Vec<Packet> = ring.out.backward.drain(..).collect();
    ring.accept(3, told);
    ring.now.timer += 50_000_000;
    ring.nodes[3].tick(ring.now, &mut ring.out);
    ring.route(3);
    let repairs: Vec<Packet> = ring
        .network
        .drain(..)
        .filter(|(to, p)| *to == 0 && p.meta.kind == Kind::Unit)
        .map(|(_, p)| p)
        .collect();
    assert!(!repairs.is_empty(), "node 3 repairs");
    for repair in &repairs {
        let unit = crate::piggyback::UnitView::parse(repair.frame()).expect("sealed");
        let stages: Vec<u8> = unit.records().map(|record| record.stage).collect();
        assert!(!stages.contains(&2) || stages.contains(&1), "stage 2 without stage 1: {stages:?}");
    }
    for repair in repairs {
        ring.accept(0, vec![repair]);
    }
    assert_eq!((versions(&ring.nodes[0], 1), versions(&ring.nodes[0], 2)), (1, 1));
    ring.settle();
    ring.assert_equal_replicas();
}

#[test]
fn a_replacement_asks_each_source_once() {
    // Goal: state is copied once. Method: count the snapshots that reach a replacement with two sources.
    let mut ring = Ring::new(plan(4, 2));
    ring.now.timer = 1_000_000_000;
    let mut orchestrator = Orchestrator::new(&ring.plan);
    assert_eq!(ring.replace(&mut orchestrator, 2), 2);
}

#[test]
fn a_node_that_hears_of_its_death_lets_nothing_out() {
    // Goal: a node suspected in error is harmless. Method: frames are held there when it hears the view.
    let mut ring = Ring::new(plan(1, 1));
    ring.accept(0, vec![frame(1, WRITE, 0, 60)]);
    assert_eq!(ring.nodes[0].frames_inside(), 1);
    let mut orchestrator = Orchestrator::new(&ring.plan);
    orchestrator.declare_dead(0);
    ring.nodes[0].adopt(orchestrator.view(), &mut ring.out);
    ring.accept(0, vec![frame(1, WRITE, 1, 60), frame(2, LOOK, 2, 60)]);
    ring.nodes[0].tick(ring.now, &mut ring.out);
    assert!(ring.released.is_empty() && ring.out.forward.is_empty() && ring.out.control.is_empty());
    assert!(!ring.nodes[0].is_up() && ring.nodes[0].store(0).is_none());
    assert_eq!(ring.nodes[0].stats().lost, 3);
}

#[test]
fn an_acknowledgement_for_another_incarnation_is_refused() {
    // Goal: a dead node never takes its replacement's commits for its own. Method: the successor answers in a newer
    // view, in which another has the head's place; the old head hears it.
    let mut ring = Ring::new(plan(1, 1));
    ring.accept(0, vec![frame(1, WRITE, 0, 60)]);
    let unit = ring.network.pop_front().expect("a unit for node 1").1;
    let mut orchestrator = Orchestrator::new(&ring.plan);
    ring.accept(1, vec![unit]);
    ring.network.clear();
    orchestrator.declare_dead(0);
    assert_eq!(orchestrator.admit(), Some(0));
    ring.nodes[1].adopt(orchestrator.view(), &mut ring.out);
    ring.accept(1, Vec::new());
    let told: Vec<Packet> = ring.network.drain(..).map(|(_, packet)| packet).collect();
    assert!(!told.is_empty());
    let before = refused(&ring.nodes[0], "fenced");
    ring.accept(0, told);
    assert!(ring.released.is_empty() && refused(&ring.nodes[0], "fenced") > before);
}
