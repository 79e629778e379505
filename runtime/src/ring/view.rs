//! Views: which incarnation of each node counts, and the orchestrator that numbers them.
//!
//! Nodes stop, they do not lie. A node that is declared dead may well be alive: nobody takes what it sends any more,
//! so it does no harm. Replacements join one at a time: a later one may then take a store from an earlier one, and no
//! replica can run ahead of its predecessor in a group.

use crate::mutant::{self, Mutant};
use crate::ring::plan::Plan;

/// A number that a node gets when it starts, never used twice.
pub type Incarnation = u64;

/// What a view says of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It runs and may be a source of state.
    Up,
    /// A replacement that fetches its stores.
    Joining,
    /// Nothing is taken from it.
    Dead,
}

/// One node in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The incarnation that counts.
    pub incarnation: Incarnation,
    /// How it stands.
    pub standing: Standing,
}

/// A numbered list of the ring's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Views are adopted in the order of their numbers; gaps are allowed.
    pub number: u64,
    /// The nodes.
    pub members: Vec<Member>,
}

impl View {
    /// Whether messages of `incarnation` of `node` are taken.
    pub fn accepts(&self, node: usize, incarnation: Incarnation) -> bool {
        self.members.get(node).is_some_and(|m| m.incarnation == incarnation && m.standing != Standing::Dead)
    }

    /// The node that a replacement of `node` takes the store of `stage` from: the nearest live predecessor in the
    /// group, else the first live successor. For a head that is the only legal source (the tail may lack what others
    /// have). `None` where all of the group are dead.
    pub fn source(&self, plan: &Plan, node: usize, stage: usize) -> Option<usize> {
        let group: Vec<usize> = plan.group(stage).collect();
        let at = group.iter().position(|&member| member == node)?;
        let live = |member: &&usize| self.members[**member].standing == Standing::Up;
        if at == 0 && mutant::is(Mutant::TailIsSource) {
            return group.iter().rev().find(live).copied();
        }
        group[..at].iter().rev().find(live).or_else(|| group[at + 1..].iter().find(live)).copied()
    }
}

/// Declares views. Whoever detects failures tells it; it decides nothing about time.
#[derive(Clone, Debug)]
pub struct Orchestrator {
    view: View,
    next: Incarnation,
}

impl Orchestrator {
    /// The first view: all nodes up, with incarnations 1 … N.
    pub fn new(plan: &Plan) -> Self {
        let member = |incarnation| Member { incarnation, standing: Standing::Up };
        let nodes = plan.nodes() as Incarnation;
        let view = View { number: 1, members: (1..=nodes).map(member).collect() };
        Orchestrator { view, next: nodes + 1 }
    }

    /// The newest view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Declares a node dead: a new view, unless it was dead already.
    pub fn declare_dead(&mut self, node: usize) {
        if self.view.members[node].standing != Standing::Dead {
            self.view.members[node].standing = Standing::Dead;
            self.view.number += 1;
        }
    }

    /// Lets a replacement join, if a node is dead and none is joining: a new view, and the node to start.
    pub fn admit(&mut self) -> Option<usize> {
        if self.view.members.iter().any(|m| m.standing == Standing::Joining) {
            return None;
        }
        let node = self.view.members.iter().position(|m| m.standing == Standing::Dead)?;
        self.view.members[node] = Member { incarnation: self.next, standing: Standing::Joining };
        self.next += 1;
        self.view.number += 1;
        Some(node)
    }

    /// A replacement has caught up: a new view, if it is the one that was to join.
    pub fn caught_up(&mut self, node: usize, incarnation: Incarnation) {
        let member = &mut self.view.members[node];
        if *member == (Member { incarnation, standing: Standing::Joining }) {
            member.standing = Standing::Up;
            self.view.number += 1;
        }
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
