//! What a chain did, for people and for machines.

use std::collections::BTreeMap;
use std::fmt;

use pannier_runtime::ring::{Node, Plan, Store};
use pannier_runtime::stats::{NodeStats, Reasons};
use serde::Serialize;

use super::{Chain, Link, Recovery};

/// What a chain did: the JSON object of `pannier run --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Where the packets went.
    pub packets: Packets,
    /// Per stage, how many packets were dropped for which reason. Packets that never entered are under `ingress`.
    pub drops: BTreeMap<String, BTreeMap<String, u64>>,
    /// The stages in their order.
    pub stages: Vec<Stage>,
    /// The replication's traffic.
    pub units: Units,
    /// Nodes that died and were replaced, in the order in which they were back.
    pub recoveries: Vec<Recovery>,
    /// The capture ended inside a record.
    pub truncated_input: bool,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// `in + generated + duplicated = released + dropped + held + lost`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    /// Read from the input.
    #[serde(rename = "in")]
    pub entered: u64,
    /// Made by network functions.
    pub generated: u64,
    /// Doubled by links.
    pub duplicated: u64,
    /// Written to the output.
    pub released: u64,
    /// Dropped for a reason that is counted.
    pub dropped: u64,
    /// Still in the chain.
    pub held: u64,
    /// Died in a crashed node or on a link.
    pub lost: u64,
}

impl Packets {
    /// Whether every packet is accounted for.
    pub fn is_balanced(&self) -> bool {
        self.entered + self.generated + self.duplicated
            == self.released + self.dropped + self.held + self.lost
    }
}

/// One stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Frames that it worked on, in both directions.
    #[serde(rename = "in")]
    pub entered: u64,
    /// Frames that it let pass.
    pub forwarded: u64,
    /// Frames that it dropped.
    pub dropped: u64,
    /// Rows per table.
    pub state: BTreeMap<String, usize>,
    /// Digest of the head's rows.
    pub digest: String,
    /// The replicas, in the order of the group.
    pub replicas: Vec<Replica>,
}

/// One replica of a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replica {
    /// Its node.
    pub node: usize,
    /// Digest of its rows.
    pub digest: String,
}

/// The replication's traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Units {
    /// Units sent for the first time.
    pub sent: u64,
    /// Bytes of units and of their names, repairs included.
    pub bytes: u64,
    /// Units sent again.
    pub repaired: u64,
}

/// What is known of a chain: its nodes and its counts. Every kind of chain is summed up by it.
#[derive(Debug)]
pub(crate) struct Account<'a> {
    pub(crate) plan: &'a Plan,
    /// The stages' names.
    pub(crate) names: &'a [String],
    /// By place: what dead nodes had counted there, and the node that lives.
    pub(crate) nodes: Vec<(NodeStats, Option<&'a Node>)>,
    pub(crate) unrecoverable: Option<&'a str>,
    /// All but `generated` and `dropped`, which the nodes have counted.
    pub(crate) packets: Packets,
    pub(crate) recoveries: &'a [Recovery],
}

impl Account<'_> {
    /// The summary, without warnings.
    pub(crate) fn summary(&self) -> Summary {
        let mut total = NodeStats::default();
        let mut drops = BTreeMap::new();
        let mut stages = Vec::new();
        for (index, (past, node)) in self.nodes.iter().enumerate() {
            let mut stats = past.clone();
            node.iter().for_each(|node| stats.add(&node.stats()));
            total.add(&stats);
            if let Some(name) = self.names.get(index) {
                let reasons = stats.drops.sorted().into_iter();
                let reasons: BTreeMap<String, u64> =
                    reasons.map(|(reason, count)| (reason.to_owned(), count)).collect();
                if !reasons.is_empty() {
                    drops.insert(name.clone(), reasons);
                }
                stages.push(self.stage_summary(index, name, &stats));
            }
        }
        Summary {
            packets: Packets { generated: total.generated, dropped: total.drops.total(), ..self.packets },
            drops,
            stages,
            units: Units { sent: total.units_sent, bytes: total.unit_bytes, repaired: total.units_repaired },
            recoveries: self.recoveries.to_vec(),
            truncated_input: false,
            warnings: Vec::new(),
        }
    }

    fn store(&self, node: usize, stage: usize) -> Option<&Store> {
        self.nodes.get(node)?.1?.store(stage)
    }

    fn stage_summary(&self, index: usize, name: &str, stats: &NodeStats) -> Stage {
        let digest = |node| {
            let store = self.store(node, index);
            store.map_or_else(String::new, |s| format!("{:016x}", s.state.digest(&self.plan.layout)))
        };
        let tables = self.store(index, index).into_iter().flat_map(|s| s.state.iter());
        Stage {
            name: name.to_owned(),
            entered: stats.processed,
            forwarded: stats.forwarded,
            dropped: stats.drops.total(),
            state: tables.map(|table| (table.name().to_owned(), table.len())).collect(),
            digest: digest(index),
            replicas: self
                .plan
                .group(index)
                .skip(1)
                .map(|node| Replica { node, digest: digest(node) })
                .collect(),
        }
    }

    /// Promises that do not hold of a chain at rest, each as a sentence; none is what everybody expects.
    pub(crate) fn broken_promises(&self) -> Vec<String> {
        let mut broken = Vec::new();
        if let Some(stage) = self.unrecoverable {
            let f = self.plan.f();
            broken.push(format!(
                "no live node holds the state of {stage}: more than f = {f} nodes were down at once"
            ));
        }
        let packets = self.summary().packets;
        if !packets.is_balanced() {
            broken.push(format!("packets are not balanced: {packets:?}"));
        }
        if packets.held > 0 {
            broken.push(format!("{} packets are still held", packets.held));
        }
        for (stage, name) in self.names.iter().enumerate() {
            let Some(head) = self.store(stage, stage) else { continue };
            for replica in self.plan.group(stage).skip(1) {
                let same = self.store(replica, stage).is_some_and(|store| {
                    let layout = &self.plan.layout;
                    store.versions() == head.versions()
                        && store.state.digest(layout) == head.state.digest(layout)
                });
                if !same {
                    broken.push(format!("node {replica} does not hold what the head of {name} holds"));
                }
            }
        }
        broken
    }
}

impl Chain {
    fn account(&self) -> Account<'_> {
        let faults = self.forward.iter().chain(&self.backward).map(Link::counts);
        let (gone, doubled) = faults.fold((0, 0), |sum, c| (sum.0 + c.lost, sum.1 + c.duplicated));
        Account {
            plan: &self.plan,
            names: &self.names,
            nodes: self.slots.iter().map(|slot| (slot.past.clone(), slot.node.as_ref())).collect(),
            unrecoverable: self.unrecoverable(),
            packets: Packets {
                entered: self.admitted,
                duplicated: doubled,
                released: self.released + self.out.released.len() as u64,
                held: self.frames_inside(),
                lost: self.frames_lost() + gone,
                ..Packets::default()
            },
            recoveries: &self.recoveries,
        }
    }

    /// What the chain has done so far.
    pub fn summary(&self) -> Summary {
        self.account().summary()
    }

    /// Promises that do not hold now that the chain is at rest, each as a sentence; none is what everybody expects.
    pub fn broken_promises(&self) -> Vec<String> {
        self.account().broken_promises()
    }

    /// Messages that nodes refused, by reason: fenced ones, damaged ones, ones that came while a node was joining.
    pub fn refused(&self) -> Reasons {
        let mut all = Reasons::default();
        for slot in &self.slots {
            all.add(&slot.past.refused);
            slot.node.iter().for_each(|node| all.add(&node.stats().refused));
        }
        all
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.packets;
        writeln!(
            f,
            "packets   {} in, {} released, {} dropped, {} lost",
            p.entered, p.released, p.dropped, p.lost
        )?;
        if p.generated + p.duplicated + p.held > 0 {
            writeln!(f, "          {} generated, {} duplicated, {} held", p.generated, p.duplicated, p.held)?;
        }
        for (number, stage) in self.stages.iter().enumerate() {
            write!(
                f,
                "stage {number}   {}: {} in, {} forwarded",
                stage.name, stage.entered, stage.forwarded
            )?;
            write!(f, ", {} dropped", stage.dropped)?;
            let tables: Vec<String> =
                stage.state.iter().map(|(name, rows)| format!("{rows} {name}")).collect();
            writeln!(
                f,
                "; state: {}",
                if tables.is_empty() { "none".to_owned() } else { tables.join(", ") }
            )?;
            for (reason, count) in self.drops.get(&stage.name).into_iter().flatten() {
                writeln!(f, "            {count} x {reason}")?;
            }
            let same = stage.replicas.iter().all(|replica| replica.digest == stage.digest);
            for replica in &stage.replicas {
                let verdict = if replica.digest == stage.digest { "the same" } else { "DIFFERENT" };
                writeln!(f, "            replica at node {}: {} {verdict}", replica.node, replica.digest)?;
            }
            if !same {
                writeln!(f, "            head holds {}", stage.digest)?;
            }
        }
        for (reason, count) in self.drops.get("ingress").into_iter().flatten() {
            writeln!(f, "ingress   {count} x {reason}")?;
        }
        let u = &self.units;
        writeln!(f, "units     {} sent, {} bytes, {} repaired", u.sent, u.bytes, u.repaired)?;
        for r in &self.recoveries {
            let stage = r.stage.as_deref().unwrap_or("replica only");
            writeln!(
                f,
                "recovery  node {} ({stage}) died at packet {}: back after {} µs with {} bytes of state; {} frames lost",
                r.node, r.at_packet, r.micros, r.state_bytes, r.frames_lost
            )?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning   {warning}")?;
        }
        Ok(())
    }
}
