//! Feature `simulation`: copies of a node and a look at all that it knows, for those who explore what it may do.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::Node;
use super::lane::{Core, Lane};
use super::recover::{Control, Life};
use crate::clock::Nanos;
use crate::dependency::Version;
use crate::entropy::Entropy;
use crate::packet::Packet;
use crate::ring::recorder::Silent;
use crate::state::Held;

impl Clone for Node {
    /// The same node once more; its recorders hear nothing.
    fn clone(&self) -> Self {
        let control = &self.control;
        let core = control.core.with_stores(control.core.stores.clone());
        core.applied.copy_from(&control.core.applied);
        core.committed.copy_from(&control.core.committed);
        let lanes: Box<[Lane]> = self.lanes.iter().map(|lane| clone_lane(lane, &core)).collect();
        Node {
            inboxes: lanes.iter().map(|_| Vec::new()).collect(),
            lanes,
            control: Control {
                core,
                view: control.view.clone(),
                life: control.life.clone(),
                copy: control.copy.clone(),
                answered: control.answered,
                stats: control.stats.clone(),
            },
        }
    }
}

fn clone_lane(lane: &Lane, core: &Arc<Core>) -> Lane {
    Lane {
        core: Arc::clone(core),
        number: lane.number,
        view: lane.view.clone(),
        phase: lane.phase,
        open: lane.open.clone(),
        held: core.stores.iter().map(|_| Held::whole()).collect(),
        sites: lane.sites.clone(),
        waiting: lane.waiting.clone(),
        hold: lane.hold.clone(),
        leaving: lane.leaving.clone(),
        retained: lane.retained.clone(),
        link: lane.link.clone(),
        now: lane.now,
        time: lane.time,
        next_sweep: lane.next_sweep,
        sweep_at: lane.sweep_at,
        stats: lane.stats.clone(),
        recorder: Box::new(Silent),
    }
}

/// Hashes what a packet holds and where it comes from.
pub fn hash_packet(packet: &Packet, hasher: &mut impl Hasher) {
    let meta = &packet.meta;
    (meta.kind as u8, meta.direction, meta.sender, meta.incarnation, meta.addressee, meta.flow, meta.time)
        .hash(hasher);
    (packet.frame(), packet.unit()).hash(hasher);
}

impl Node {
    /// Hashes all that decides what the node does next. Times count by how far they are ahead.
    pub fn hash_into(&self, hasher: &mut impl Hasher) {
        let (control, core) = (&self.control, &self.control.core);
        (core.index, core.incarnation, control.view.number).hash(hasher);
        for member in &control.view.members {
            (member.incarnation, member.standing as u8).hash(hasher);
        }
        core.stores.iter().flatten().for_each(|store| store.hash_into(&core.plan.layout, hasher));
        match &control.life {
            Life::Up => 0.hash(hasher),
            Life::Retired => 1.hash(hasher),
            Life::Joining(joining) => joining.hash_into(&core.plan.layout, hasher),
        }
        if let Some(copy) = &control.copy {
            format!("{copy:?}").hash(hasher);
        }
        control.answered.hash(hasher);
        self.lanes.iter().for_each(|lane| lane.hash_into(hasher));
    }

    /// Has the node's transactions meet conflicts, each access with probability `chance`.
    pub fn provoke_conflicts(&mut self, entropy: Entropy, chance: f64) {
        for lane in &mut self.lanes {
            let own = Entropy::stream(entropy.clone().next_u64(), lane.number as u64);
            lane.open.provoke_conflicts(own, chance);
        }
    }

    /// Makes the node as old as if each partition had been written `version` times. For nodes that have done nothing.
    pub fn age(&mut self, version: Version) {
        let core = &self.control.core;
        core.stores.iter().flatten().for_each(|store| store.age(&core.plan.layout, version));
        self.lanes.iter_mut().for_each(|lane| lane.link.age(version));
    }
}

impl Lane {
    fn hash_into(&self, hasher: &mut impl Hasher) {
        let ahead = |time: Nanos| time.saturating_sub(self.now.timer);
        let plan = &self.core.plan;
        self.waiting.iter().for_each(|packet| hash_packet(packet, hasher));
        self.waiting.len().hash(hasher);
        for (packet, name) in self.hold.packets() {
            hash_packet(packet, hasher);
            name.hash(hasher);
        }
        for (unit, sent) in self.retained.units().zip(self.retained.sent()) {
            (unit, self.now.timer.saturating_sub(sent).min(plan.limits.repair_after)).hash(hasher);
        }
        self.link.hash_into(plan.layout.partitions, ahead, hasher);
        self.core.applied.is_past(self.link.applied_seen).hash(hasher);
        self.core.committed.is_past(self.link.committed_seen).hash(hasher);
        (self.time, ahead(self.next_sweep), self.sweep_at).hash(hasher);
    }
}
