//! A look at a world from outside, for those who explore what may happen in it.

use std::hash::{DefaultHasher, Hash, Hasher};

use pannier_runtime::Packet;
use pannier_runtime::ring::{Standing, hash_packet};

use super::World;

fn hash_message(to: usize, packet: &Packet) -> u64 {
    let mut hasher = DefaultHasher::new();
    to.hash(&mut hasher);
    hash_packet(packet, &mut hasher);
    hasher.finish()
}

impl World {
    /// The places of messages on the links, of equal ones the first.
    pub(crate) fn different_messages(&self) -> Vec<u8> {
        let mut seen = Vec::new();
        let mut places = Vec::new();
        for (at, (to, packet)) in self.network.iter().enumerate().take(self.reach) {
            let hash = hash_message(*to, packet);
            if !seen.contains(&hash) {
                seen.push(hash);
                places.push(at as u8);
            }
        }
        places
    }

    /// Messages beside the ring.
    pub(crate) fn control_messages(&self) -> u8 {
        self.control.len() as u8
    }

    /// Views that nodes have not heard of.
    pub(crate) fn pending_views(&self) -> u8 {
        self.views.len() as u8
    }

    /// The nodes' places.
    pub(crate) fn places(&self) -> impl Iterator<Item = u8> + use<> {
        0..self.nodes.len() as u8
    }

    /// Whether the orchestrator has something to do.
    pub(crate) fn has_dead(&self) -> bool {
        let view = self.orchestrator.view();
        let joining = view.members.iter().any(|member| member.standing == Standing::Joining);
        self.nodes
            .iter()
            .zip(&view.members)
            .any(|(node, member)| node.is_none() && (member.standing != Standing::Dead || !joining))
    }

    /// Whether nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.network.is_empty() && self.control.is_empty() && self.views.is_empty()
    }

    /// A number that worlds share from which the same can follow.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for node in &self.nodes {
            node.is_some().hash(&mut hasher);
            node.iter().for_each(|node| node.hash_into(&mut hasher));
        }
        // What is under way may arrive in any order: sums don't mind it.
        let sum = |messages: &[(usize, Packet)]| {
            messages.iter().fold(0u64, |sum, (to, packet)| sum.wrapping_add(hash_message(*to, packet)))
        };
        (sum(&self.network), sum(&self.control)).hash(&mut hasher);
        let view =
            |(to, view): &(usize, pannier_runtime::ring::View)| 1u64 << (view.number % 12 * 5 + *to as u64);
        self.views.iter().map(view).fold(0u64, u64::wrapping_add).hash(&mut hasher);
        for member in &self.orchestrator.view().members {
            (member.incarnation, member.standing as u8).hash(&mut hasher);
        }
        let left = self.released.iter().map(|path| {
            let mut hasher = DefaultHasher::new();
            path.hash(&mut hasher);
            hasher.finish()
        });
        left.fold(0u64, u64::wrapping_add).hash(&mut hasher);
        hasher.finish()
    }
}
