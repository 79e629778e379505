//! Faults as middleware over any port: loss, duplication, reordering and delay, all from one seed.

use super::{Port, PortContext};
use crate::clock::Nanos;
use crate::entropy::Entropy;
use crate::packet::{Kind, Packet};

/// Probabilities, each 0 … 1 and per packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The packet does not arrive.
    pub loss: f64,
    /// The packet arrives twice.
    pub duplicate: f64,
    /// One to eight later packets overtake it.
    pub reorder: f64,
    /// It arrives late, by up to [`Faults::LATE`].
    pub delay: f64,
}

impl Faults {
    /// The longest delay, in nanoseconds.
    pub const LATE: Nanos = 2_000_000;

    /// No faults.
    pub const NONE: Faults = Faults { loss: 0.0, duplicate: 0.0, reorder: 0.0, delay: 0.0 };
}

/// What the faults did to frames of the traffic. Control messages and units alone are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Frames that did not arrive.
    pub lost: u64,
    /// Frames that arrived once more.
    pub duplicated: u64,
}

/// A packet that others may overtake.
#[derive(Debug)]
struct Aside {
    packet: Packet,
    /// Arrives at this time at the latest.
    due: Nanos,
    /// Arrives when so many later packets have gone, if that is earlier.
    after: u64,
}

/// A port whose outgoing packets meet faults.
#[derive(Debug)]
pub struct Fault<P> {
    inner: P,
    faults: Faults,
    entropy: Entropy,
    aside: Vec<Aside>,
    /// Packets sent on so far.
    sent: u64,
    passing: Vec<Packet>,
    counts: FaultCounts,
}

impl<P> Fault<P> {
    /// Puts `faults` over a port; the same `entropy` brings the same faults.
    pub fn new(inner: P, faults: Faults, entropy: Entropy) -> Self {
        Fault {
            inner,
            faults,
            entropy,
            aside: Vec::new(),
            sent: 0,
            passing: Vec::new(),
            counts: FaultCounts::default(),
        }
    }

    /// Ends the faults; what is under way still arrives.
    pub fn calm(&mut self) {
        self.faults = Faults::NONE;
    }

    /// What the faults did.
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// The port below.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// Packets that wait for others to overtake them.
    pub fn set_aside(&self) -> impl Iterator<Item = &Packet> {
        self.aside.iter().map(|a| &a.packet)
    }

    fn meet(&mut self, packet: Packet, context: &mut PortContext<'_>) {
        let is_frame = u64::from(packet.meta.kind == Kind::Frame);
        if self.entropy.chance(self.faults.loss) {
            self.counts.lost += is_frame;
            return context.pool.give(packet);
        }
        if self.entropy.chance(self.faults.duplicate) {
            self.counts.duplicated += is_frame;
            let twin = context.pool.copy(&packet);
            self.deliver(twin, context.now);
        }
        self.deliver(packet, context.now);
    }

    fn deliver(&mut self, packet: Packet, now: Nanos) {
        if self.entropy.chance(self.faults.reorder) {
            let after = self.sent + 1 + self.entropy.below(8);
            self.aside.push(Aside { packet, due: now + Faults::LATE / 4, after });
        } else if self.entropy.chance(self.faults.delay) {
            let due = now + 1 + self.entropy.below(Faults::LATE);
            self.aside.push(Aside { packet, due, after: u64::MAX });
        } else {
            self.sent += 1;
            self.passing.push(packet);
        }
    }

    fn take_due(&mut self, now: Nanos) {
        let mut at = 0;
        while at < self.aside.len() {
            if self.aside[at].due <= now || self.aside[at].after <= self.sent {
                self.sent += 1;
                self.passing.push(self.aside.remove(at).packet);
            } else {
                at += 1;
            }
        }
    }
}

impl<P: Port> Port for Fault<P> {
    type Error = P::Error;

    fn rx_burst(
        &mut self,
        most: usize,
        context: &mut PortContext<'_>,
        burst: &mut Vec<Packet>,
    ) -> Result<usize, P::Error> {
        if !self.aside.is_empty() {
            self.take_due(context.now);
            self.inner.tx_burst(context, &mut self.passing)?;
        }
        self.inner.rx_burst(most, context, burst)
    }

    fn tx_burst(&mut self, context: &mut PortContext<'_>, burst: &mut Vec<Packet>) -> Result<(), P::Error> {
        if self.faults == Faults::NONE && self.aside.is_empty() {
            return self.inner.tx_burst(context, burst);
        }
        for packet in burst.drain(..) {
            self.meet(packet, context);
            self.take_due(context.now);
        }
        self.inner.tx_burst(context, &mut self.passing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Pool;
    use crate::port::Memory;
    use proptest::prelude::*;

    fn run(faults: Faults, seed: u64, count: u8) -> (Vec<u8>, FaultCounts) {
        let (mut port, mut pool) =
            (Fault::new(Memory::default(), faults, Entropy::new(seed)), Pool::default());
        let mut arrived = Vec::new();
        for number in 0..count {
            let mut context = PortContext { now: u64::from(number) * 1_000, pool: &mut pool };
            let mut burst = vec![Packet::new(&[number])];
            port.tx_burst(&mut context, &mut burst).expect("memory");
            port.rx_burst(64, &mut context, &mut arrived).expect("memory");
        }
        let mut late = PortContext { now: u64::MAX, pool: &mut pool };
        port.rx_burst(1_000, &mut late, &mut arrived).expect("memory");
        (arrived.iter().map(|p| p.frame()[0]).collect(), port.counts())
    }

    proptest! {
        #[test]
        fn every_frame_arrives_or_is_counted(loss in 0.0..0.5, duplicate in 0.0..0.5, reorder in 0.0..0.5,
                                             delay in 0.0..0.5, seed: u64) {
            // Goal: sent + duplicated = arrived + lost, whatever happens. Method: random faults, count the arrivals.
            let faults = Faults { loss, duplicate, reorder, delay };
            let (arrived, counts) = run(faults, seed, 200);
            prop_assert_eq!(200 + counts.duplicated, arrived.len() as u64 + counts.lost);
            prop_assert_eq!(run(faults, seed, 200), (arrived, counts));
        }
    }

    #[test]
    fn each_fault_does_what_its_name_says() {
        // Goal: no fault hides in another. Method: each alone, with certainty or near it.
        let none = run(Faults::NONE, 1, 100);
        assert_eq!(none, ((0..100).collect(), FaultCounts::default()));
        assert_eq!(run(Faults { loss: 1.0, ..Faults::NONE }, 1, 100).1.lost, 100);
        assert_eq!(run(Faults { duplicate: 1.0, ..Faults::NONE }, 1, 100).0.len(), 200);
        let (mut order, _) = run(Faults { reorder: 0.2, ..Faults::NONE }, 1, 100);
        assert!(!order.is_sorted());
        order.sort_unstable();
        assert_eq!(order, none.0);
    }
}
