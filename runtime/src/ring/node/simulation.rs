//! Feature `simulation`: copies of a node and a look at all that it knows, for those who explore what it may do.

use std::hash::{Hash, Hasher};

use super::recover::Life;
use super::{Node, Silent};
use crate::clock::Nanos;
use crate::dependency::{Vector, Version};
use crate::entropy::Entropy;
use crate::packet::Packet;

impl Clone for Node {
    /// The same node once more; its recorder hears nothing.
    fn clone(&self) -> Self {
        Node {
            index: self.index,
            incarnation: self.incarnation,
            plan: self.plan,
            nfs: self.nfs.clone(),
            view: self.view.clone(),
            stores: self.stores.clone(),
            open: self.open.clone(),
            waiting: self.waiting.clone(),
            hold: self.hold.clone(),
            leaving: self.leaving.clone(),
            retained: self.retained.clone(),
            link: self.link.clone(),
            life: self.life.clone(),
            copy: self.copy.clone(),
            answered: self.answered,
            now: self.now,
            time: self.time,
            next_sweep: self.next_sweep,
            sweep_at: self.sweep_at,
            stats: self.stats.clone(),
            recorder: Box::new(Silent),
        }
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
        let ahead = |time: Nanos| time.saturating_sub(self.now.timer);
        (self.index, self.incarnation, self.view.number).hash(hasher);
        for member in &self.view.members {
            (member.incarnation, member.standing as u8).hash(hasher);
        }
        for store in self.stores.iter().flatten() {
            let cut = |vector: &Vector| vector.0[..self.plan.layout.partitions].to_vec();
            (cut(&store.versions), cut(&store.commit), store.untold.0).hash(hasher);
            (store.state.digest(&self.plan.layout), &store.changes).hash(hasher);
        }
        self.waiting.iter().for_each(|packet| hash_packet(packet, hasher));
        self.waiting.len().hash(hasher);
        self.hold.packets().for_each(|packet| hash_packet(packet, hasher));
        for (unit, sent) in self.retained.units().zip(self.retained.sent()) {
            (unit, self.now.timer.saturating_sub(sent).min(self.plan.limits.repair_after)).hash(hasher);
        }
        self.link.hash_into(self.plan.layout.partitions, ahead, hasher);
        match &self.life {
            Life::Up => 0.hash(hasher),
            Life::Retired => 1.hash(hasher),
            Life::Joining(joining) => joining.hash_into(hasher),
        }
        if let Some(copy) = &self.copy {
            format!("{copy:?}").hash(hasher);
        }
        self.answered.hash(hasher);
        (self.time, ahead(self.next_sweep), self.sweep_at).hash(hasher);
    }

    /// Has the node's transactions meet conflicts, each access with probability `chance`.
    pub fn provoke_conflicts(&mut self, entropy: Entropy, chance: f64) {
        self.open.provoke_conflicts(entropy, chance);
    }

    /// Makes the node as old as if each partition had been written `version` times. For nodes that have done nothing.
    pub fn age(&mut self, version: Version) {
        for store in self.stores.iter_mut().flatten() {
            let vectors = [&mut store.versions, &mut store.commit];
            vectors.into_iter().for_each(|vector| vector.0[..self.plan.layout.partitions].fill(version));
        }
        self.link.age(version);
    }
}
