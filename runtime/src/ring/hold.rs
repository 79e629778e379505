//! Frames that wait: until what they did and saw is committed, in order per flow.

use std::collections::VecDeque;

use crate::packet::Packet;

const BUCKETS: usize = 256;

/// How many frames behind the first that can't leave are looked at in one go.
const LOOK_AHEAD: usize = 64;

/// A queue in which frames of one flow keep their order, and flows don't wait for each other.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    queue: VecDeque<Option<Packet>>,
    held: usize,
    /// Frames held, per bucket of flow hashes.
    buckets: Box<[u32; BUCKETS]>,
}

impl Default for Hold {
    fn default() -> Self {
        Hold { queue: VecDeque::new(), held: 0, buckets: Box::new([0; BUCKETS]) }
    }
}

fn bucket(flow: u32) -> usize {
    flow as usize % BUCKETS
}

/// A set of flows; some that share a bucket are in it together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flows([u64; BUCKETS / 64]);

impl Flows {
    pub(crate) fn add(&mut self, flow: u32) {
        self.0[bucket(flow) / 64] |= 1 << (bucket(flow) % 64);
    }

    pub(crate) fn contain(&self, flow: u32) -> bool {
        self.0[bucket(flow) / 64] >> (bucket(flow) % 64) & 1 == 1
    }
}

impl Hold {
    /// Frames held.
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// Whether none is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Whether a frame must wait behind another of its flow.
    pub(crate) fn blocks(&self, packet: &Packet) -> bool {
        self.buckets[bucket(packet.meta.flow)] > 0
    }

    /// Holds a frame.
    pub(crate) fn push(&mut self, packet: Packet) {
        self.buckets[bucket(packet.meta.flow)] += 1;
        self.held += 1;
        self.queue.push_back(Some(packet));
    }

    /// Moves the frames that `may_leave` lets go to `leaving`, each behind the earlier ones of its flow.
    pub(crate) fn release(&mut self, mut may_leave: impl FnMut(&Packet) -> bool, leaving: &mut Vec<Packet>) {
        let mut stuck = Flows::default();
        let mut misses = 0;
        for slot in &mut self.queue {
            let Some(packet) = slot else { continue };
            let flow = packet.meta.flow;
            if !stuck.contain(flow) && may_leave(packet) {
                self.buckets[bucket(flow)] -= 1;
                self.held -= 1;
                leaving.extend(slot.take());
            } else {
                stuck.add(flow);
                misses += 1;
                if misses == LOOK_AHEAD {
                    break;
                }
            }
        }
        while self.queue.front().is_some_and(Option::is_none) {
            self.queue.pop_front();
        }
    }

    /// Everything that is held, in order.
    #[cfg(feature = "simulation")]
    pub(crate) fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.queue.iter().flatten()
    }

    /// Takes out everything that is held, in order.
    pub(crate) fn into_packets(self) -> impl Iterator<Item = Packet> {
        self.queue.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn flows_keep_their_order_and_do_not_wait_for_each_other(
            flows in proptest::collection::vec(0u32..5, 1..60),
            ready in proptest::collection::vec(any::<bool>(), 60),
        ) {
            // Goal: order within a flow, none across. Method: random readiness, against the definition.
            let mut hold = Hold::default();
            for (i, flow) in flows.iter().enumerate() {
                let mut packet = Packet::new(&[i as u8]);
                packet.meta.flow = *flow;
                hold.push(packet);
            }
            let mut left = Vec::new();
            let number = |packet: &Packet| usize::from(packet.frame()[0]);
            hold.release(|packet| ready[number(packet)], &mut left);
            let first: Vec<usize> = left.iter().map(number).collect();
            let expected: Vec<usize> = (0..flows.len())
                .filter(|&i| (0..=i).filter(|&j| flows[j] == flows[i]).all(|j| ready[j]))
                .collect();
            prop_assert_eq!(&first, &expected);
            prop_assert_eq!(hold.len(), flows.len() - left.len());
            hold.release(|_| true, &mut left);
            prop_assert!(hold.is_empty() && left.len() == flows.len());
        }
    }
}
