//! Traffic from memory: frames of chosen lengths, of so many flows, some of which may be more popular than others.

use std::fmt;
use std::sync::Arc;

use pannier_runtime::entropy::Entropy;
use pannier_runtime::packet::Pool;
use pannier_runtime::wire::{Flow, FrameBuilder, checksum, symmetric_hash};
use pannier_runtime::{Direction, Packet};

/// Lengths of frames in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    /// All the same.
    Fixed(usize),
    /// The simple IMIX: 7 of 64, 4 of 576 and 1 of 1,500 bytes.
    Imix,
}

/// How often flows are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Popularity {
    /// Each as often as the others.
    Uniform,
    /// The k-th most popular one in proportion to k^-1.1.
    Zipf,
}

/// What traffic a case is measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) sizes: Sizes,
    pub(super) flows: u32,
    pub(super) popularity: Popularity,
}

impl Traffic {
    pub(super) fn uniform(bytes: usize, flows: u32) -> Self {
        Traffic { sizes: Sizes::Fixed(bytes), flows, popularity: Popularity::Uniform }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sizes {
            Sizes::Fixed(bytes) => write!(f, "{bytes} B")?,
            Sizes::Imix => write!(f, "IMIX")?,
        }
        match self.flows {
            1_000_000.. => write!(f, ", {}M", self.flows / 1_000_000)?,
            1_000.. => write!(f, ", {}k", self.flows / 1_000)?,
            few => write!(f, ", {few}")?,
        }
        f.write_str(if self.popularity == Popularity::Zipf { " Zipf" } else { "" })
    }
}

/// Flows that are drawn before the draws repeat.
const DRAWS: usize = 1 << 20;

/// Frames' lengths in the order in which they come.
const IMIX: [usize; 12] = [64, 576, 64, 64, 576, 64, 1_500, 64, 576, 64, 64, 576];

/// Where in a frame without VLAN tags things are.
const IP: usize = 14;
const IP_CHECKSUM: usize = 24;
const SOURCE: usize = 26;
const DESTINATION: usize = 30;
const SOURCE_PORT: usize = 34;
const UDP_CHECKSUM: usize = 40;

/// Packets without end: first one of each flow, then as the traffic says.
#[derive(Clone, Debug)]
pub(super) struct Feed {
    /// One frame of each length, and which comes when.
    frames: Vec<Vec<u8>>,
    lengths: Vec<usize>,
    /// Those that come once at first.
    flows: Arc<[u32]>,
    /// By flow: its hash.
    hashes: Arc<[u32]>,
    draws: Arc<[u32]>,
    at: usize,
}

impl Feed {
    pub(super) fn new(traffic: Traffic) -> Self {
        let lengths: Vec<usize> = match traffic.sizes {
            Sizes::Fixed(bytes) => vec![bytes],
            Sizes::Imix => IMIX.to_vec(),
        };
        let mut kinds = lengths.clone();
        kinds.sort_unstable();
        kinds.dedup();
        let frame = |&bytes: &usize| {
            let payload = vec![0x5A; bytes - UDP_CHECKSUM - 2];
            let mut frame = FrameBuilder::ipv4([10, 0, 0, 0], [198, 18, 0, 0]).udp(1_024, 9_000, &payload);
            frame[UDP_CHECKSUM..UDP_CHECKSUM + 2].fill(0); // none: IPv4 allows that (RFC 768)
            frame
        };
        let frames: Vec<Vec<u8>> = kinds.iter().map(frame).collect();
        let mut sample = frames[0].clone();
        let hash = |flow| {
            put_flow(&mut sample, flow);
            Flow::parse(&sample).map_or(0, |flow| symmetric_hash(&flow))
        };
        let hashes = (0..traffic.flows).map(hash).collect();
        let lengths = lengths.iter().filter_map(|bytes| kinds.binary_search(bytes).ok()).collect();
        let flows = (0..traffic.flows).collect();
        Feed { frames, lengths, flows, hashes, draws: draws(traffic).into(), at: 0 }
    }

    /// The packets of a part of the flows: those of whose packets `is_in` says so. There must be one.
    pub(super) fn part(&self, mut is_in: impl FnMut(Packet) -> bool) -> Self {
        let is_in: Vec<bool> = (0..self.hashes.len() as u32).map(|flow| is_in(self.packet(flow))).collect();
        let chosen = |flows: &[u32]| -> Vec<u32> {
            flows.iter().copied().filter(|&flow| is_in[flow as usize]).collect()
        };
        let (flows, draws) = (chosen(&self.flows), chosen(&self.draws));
        // Of many flows those of a part may never have been drawn.
        let draws = if draws.is_empty() { &flows } else { &draws };
        let draws = draws.iter().copied().cycle().take(DRAWS).collect();
        Feed { flows: flows.into(), draws, at: 0, ..self.clone() }
    }

    /// A packet of a flow, of the first length.
    fn packet(&self, flow: u32) -> Packet {
        let mut packet = Packet::new(&self.frames[self.lengths[0]]);
        put_flow(packet.frame_mut(), flow);
        packet.meta.flow = self.hashes[flow as usize];
        packet.meta.direction = Direction::Outbound;
        packet
    }

    /// The next packet; it is outbound, and arrived at `time`.
    pub(super) fn next(&mut self, time: u64, pool: &mut Pool) -> Packet {
        let first = self.flows.get(self.at).copied();
        let flow = first.unwrap_or_else(|| self.draws[self.at % DRAWS]);
        let frame = &self.frames[self.lengths[self.at % self.lengths.len()]];
        self.at += 1;
        let mut packet = pool.take();
        packet.set_frame(frame);
        put_flow(packet.frame_mut(), flow);
        packet.meta.flow = self.hashes[flow as usize];
        packet.meta.direction = Direction::Outbound;
        packet.meta.time = time;
        packet
    }
}

/// Makes a frame one of `flow`.
fn put_flow(frame: &mut [u8], flow: u32) {
    let [_, a, b, c] = flow.to_be_bytes();
    frame[SOURCE..SOURCE + 4].copy_from_slice(&[10, a, b, c]);
    // Servers differ, too: by them a NAT chooses lanes. 198.18.0.0/15 is for benchmarks (RFC 2544).
    frame[DESTINATION..DESTINATION + 4].copy_from_slice(&[198, 18, c, b]);
    frame[SOURCE_PORT..SOURCE_PORT + 2].copy_from_slice(&(1_024 + (flow % 50_000) as u16).to_be_bytes());
    frame[IP_CHECKSUM..IP_CHECKSUM + 2].fill(0);
    let sum = checksum::internet(&frame[IP..SOURCE_PORT]);
    frame[IP_CHECKSUM..IP_CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Which flows the packets are of.
fn draws(traffic: Traffic) -> Vec<u32> {
    let mut entropy = Entropy::new(7);
    if traffic.popularity == Popularity::Uniform {
        return (0..DRAWS).map(|_| entropy.below(u64::from(traffic.flows)) as u32).collect();
    }
    let mut sum = 0.0;
    let up_to: Vec<f64> = (1..=traffic.flows)
        .map(|rank| {
            sum += f64::from(rank).powf(-1.1);
            sum
        })
        .collect();
    // A random number between zero and the sum falls to the flow whose part of the sum it hits.
    let draw = |_| {
        let point = entropy.next_u64() as f64 / u64::MAX as f64 * sum;
        (up_to.partition_point(|&end| end < point) as u32).min(traffic.flows - 1)
    };
    (0..DRAWS).map(draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pannier_runtime::wire::Layers;

    #[test]
    fn frames_are_sound_and_of_the_lengths_and_flows_asked_for() {
        // Goal: what is measured is what a table says. Method: parse what comes, count lengths and flows.
        let traffic = Traffic { sizes: Sizes::Imix, flows: 500, popularity: Popularity::Zipf };
        let (mut feed, mut pool) = (Feed::new(traffic), Pool::default());
        let (mut bytes, mut flows) = (0, std::collections::BTreeMap::new());
        for number in 0..12_000 {
            let packet = feed.next(0, &mut pool);
            assert!(Layers::parse(packet.frame()).is_ok());
            let flow = Flow::parse(packet.frame()).expect("a flow");
            assert_eq!(packet.meta.flow, symmetric_hash(&flow));
            assert_eq!(checksum::internet(&packet.frame()[IP..SOURCE_PORT]), 0);
            bytes += packet.frame().len();
            *flows.entry(flow).or_insert(0) += 1;
            assert!(number != 499 || flows.len() == 500, "each flow once before any comes again");
            pool.give(packet);
        }
        assert_eq!((bytes, flows.len()), (1_000 * (7 * 64 + 4 * 576 + 1_500), 500));
        // Of the 11,500 that were drawn the first has a part of 1 / (sum of k^-1.1 up to 500) = 0.19.
        assert!((1_900..2_500).contains(flows.values().max().expect("some")), "{:?}", flows.values().max());
        assert_eq!(traffic.to_string(), "IMIX, 500 Zipf");
    }

    #[test]
    fn parts_of_the_traffic_are_all_of_it() {
        // Goal: queues together bring what one would bring. Method: two parts by the flows' hashes, each of whose packets come
        // once at first, and then as popular as they are.
        let whole = Feed::new(Traffic { popularity: Popularity::Zipf, ..Traffic::uniform(64, 500) });
        let (mut pool, mut flows) = (Pool::default(), std::collections::BTreeSet::new());
        for part in [0, 1] {
            let is_in = |packet: &Packet| packet.meta.flow % 2 == part;
            let mut feed = whole.part(|packet| is_in(&packet));
            let count = feed.flows.len();
            let first: Vec<Packet> = (0..count).map(|_| feed.next(0, &mut pool)).collect();
            assert!(first.iter().all(is_in));
            flows.extend(first.iter().filter_map(|packet| Flow::parse(packet.frame()).ok()));
            assert!((0..2_000).all(|_| is_in(&feed.next(0, &mut pool))));
            let draws = |feed: &Feed, flow: u32| feed.draws.iter().filter(|&&drawn| drawn == flow).count();
            let most = feed.flows[0]; // the most popular ones are the first
            assert!(draws(&feed, most) > draws(&whole, most));
        }
        assert_eq!(flows.len(), 500);
    }
}
