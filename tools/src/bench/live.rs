//! Live chains between ports that make their traffic themselves and throw away what leaves: workers on cores, and
//! nothing besides them at work.
//!
//! A port has as many queues as there are shards. Each brings the flows that the chain steers to its shard, as a network card
//! brings them that spreads flows over its queues as the chain spreads them over lanes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use pannier_chains::ChainStage;
use pannier_chains::config::ChainSpec;
use pannier_chains::live::{Live, LiveError, LiveOptions, Sides};
use pannier_runtime::clock::{Nanos, SECOND};
use pannier_runtime::port::{Device, DevicePort, Port, PortContext, PortError, PortStats};
use pannier_runtime::ring::steer;
use pannier_runtime::{AnyNf, Packet};

use super::traffic::Feed;

/// What packets' times are ahead of the timers'.
const EPOCH: Nanos = 1_000_000 * SECOND;
/// How long a chain may take to do what it is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a watch lasts between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Packets that have left by one queue, on a cache line that no other queue writes.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Left(AtomicU64);

/// What the ports and whoever measures tell each other.
#[derive(Debug)]
struct Meter {
    /// Nanoseconds between two packets of a queue; zero: as many as the chain takes.
    gap: AtomicU64,
    /// By queue.
    left: Vec<Left>,
    /// Nanoseconds that packets were in the chain.
    latencies: Mutex<Histogram<u64>>,
}

impl Meter {
    fn latencies(&self) -> MutexGuard<'_, Histogram<u64>> {
        // A histogram is whole between any two values.
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A port that makes packets: a queue of it.
#[derive(Debug)]
struct Source {
    feed: Feed,
    meter: Arc<Meter>,
    /// When the next packet is due, where they are counted out.
    due: Nanos,
}

/// A port that packets end in: a queue of it.
#[derive(Debug)]
struct Sink {
    meter: Arc<Meter>,
    queue: usize,
}

impl Port for Source {
    type Error = PortError;

    fn rx_burst(
        &mut self,
        most: usize,
        context: &mut PortContext<'_>,
        burst: &mut Vec<Packet>,
    ) -> Result<usize, PortError> {
        let gap = self.meter.gap.load(Ordering::Relaxed);
        let mut count = most;
        if gap > 0 {
            // What a chain that stood still did not take is not made up for.
            self.due = self.due.max(context.now.saturating_sub(gap.saturating_mul(most as Nanos)));
            count = most.min((context.now.saturating_sub(self.due) / gap) as usize);
            self.due += count as Nanos * gap;
        }
        burst.extend((0..count).map(|_| self.feed.next(EPOCH + context.now, context.pool)));
        Ok(count)
    }

    fn tx_burst(&mut self, context: &mut PortContext<'_>, burst: &mut Vec<Packet>) -> Result<(), PortError> {
        burst.drain(..).for_each(|packet| context.pool.give(packet));
        Ok(())
    }
}

impl DevicePort for Source {
    fn name(&self) -> &str {
        "source"
    }

    fn stats(&self) -> PortStats {
        PortStats::default()
    }
}

impl Port for Sink {
    type Error = PortError;

    fn rx_burst(
        &mut self,
        _most: usize,
        _context: &mut PortContext<'_>,
        _burst: &mut Vec<Packet>,
    ) -> Result<usize, PortError> {
        Ok(0)
    }

    fn tx_burst(&mut self, context: &mut PortContext<'_>, burst: &mut Vec<Packet>) -> Result<(), PortError> {
        let Sink { meter, queue } = self;
        meter.left[*queue].0.fetch_add(burst.len() as u64, Ordering::Relaxed);
        if meter.gap.load(Ordering::Relaxed) > 0 {
            let mut latencies = meter.latencies();
            let now = EPOCH + context.now;
            burst.iter().for_each(|packet| latencies.saturating_record(now.saturating_sub(packet.meta.time)));
        }
        burst.drain(..).for_each(|packet| context.pool.give(packet));
        Ok(())
    }
}

impl DevicePort for Sink {
    fn name(&self) -> &str {
        "sink"
    }

    fn stats(&self) -> PortStats {
        PortStats::default()
    }
}

/// How a chain is run.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) f: usize,
    pub(super) unit: usize,
    pub(super) shards: usize,
    /// Cores of the workers.
    pub(super) cores: Vec<usize>,
}

/// A chain that runs.
pub(super) struct Running {
    live: Live,
    meter: Arc<Meter>,
}

impl Running {
    /// Starts a chain, and waits until each of its `flows` has been through it.
    pub(super) fn start(spec: &ChainSpec, way: &Way, feed: &Feed, flows: u32) -> Result<Self, LiveError> {
        let mut plan = spec.plan.with_geometry(spec.stages.len(), way.f)?;
        (plan.unit_frames, plan.lanes) = (way.unit, way.shards);
        let stage = |stage: &pannier_chains::config::StageSpec| ChainStage {
            name: stage.name.clone(),
            nf: stage.nf.clone(),
        };
        let stages = spec.stages.iter().map(stage).collect();
        let histogram = Histogram::new_with_bounds(1, 10 * SECOND, 3).expect("these bounds are in order");
        let (gap, left) = (AtomicU64::new(0), (0..way.shards).map(|_| Left::default()).collect());
        let meter = Arc::new(Meter { gap, left, latencies: Mutex::new(histogram) });
        let nfs: Vec<Arc<dyn AnyNf>> = spec.stages.iter().map(|stage| stage.nf.clone()).collect();
        let source = |queue: usize| {
            let is_mine = |mut packet: Packet| {
                steer(&mut packet, &plan, &nfs);
                usize::from(packet.meta.lane) == queue
            };
            let feed = if way.shards > 1 { feed.part(is_mine) } else { feed.clone() };
            Box::new(Source { feed, meter: Arc::clone(&meter), due: 0 }) as Device
        };
        let sink = |queue| Box::new(Sink { meter: Arc::clone(&meter), queue }) as Device;
        let sides = Sides {
            inside: (0..way.shards).map(source).collect(),
            outside: (0..way.shards).map(sink).collect(),
        };
        let options = LiveOptions { cores: way.cores.clone(), shards: way.shards, ..LiveOptions::default() };
        let mut running = Running { live: Live::start(plan, stages, sides, &options)?, meter };
        running.wait(|running| running.left() >= u64::from(flows));
        Ok(running)
    }

    fn left(&self) -> u64 {
        self.meter.left.iter().map(|left| left.0.load(Ordering::Relaxed)).sum()
    }

    fn wait(&mut self, until: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !until(self) && Instant::now() < end {
            self.live.watch(LOOK_EVERY);
        }
    }

    /// Lets so many nanoseconds pass between two packets.
    fn set_gap(&self, gap: u64) {
        self.meter.gap.store(gap * self.meter.left.len() as u64, Ordering::Relaxed);
    }

    /// Million packets a second that leave the chain, under as much as it takes.
    pub(super) fn mpps(&mut self, length: Duration) -> f64 {
        self.meter.gap.store(0, Ordering::Relaxed);
        self.live.watch(length / 4);
        let (left, start) = (self.left(), Instant::now());
        self.live.watch(length);
        (self.left() - left) as f64 / start.elapsed().as_secs_f64() / 1e6
    }

    /// Microseconds that packets are in the chain while `mpps` million a second come: half of them stay at most for the
    /// first figure, 99 % for the second, 99.9 % for the third.
    pub(super) fn latency(&mut self, mpps: f64, length: Duration) -> [f64; 3] {
        let gap = (1e3 / mpps).clamp(1.0, 1e6); // a packet a millisecond at least
        self.set_gap(gap as u64);
        self.live.watch(length / 4);
        self.meter.latencies().reset();
        self.live.watch(length);
        let latencies = self.meter.latencies();
        [50.0, 99.0, 99.9].map(|percentile| latencies.value_at_percentile(percentile) as f64 / 1e3)
    }

    /// Kills a node under 100,000 packets a second. Returns the milliseconds until its replacement has all state, and
    /// the bytes that it was sent.
    pub(super) fn recover(&mut self, node: usize) -> (f64, u64) {
        self.set_gap(10_000);
        self.live.watch(10 * LOOK_EVERY);
        let before = self.live.recoveries().len();
        self.live.crash(node);
        self.wait(|running| running.live.recoveries().len() > before);
        match self.live.recoveries().get(before) {
            Some(recovery) => (recovery.micros as f64 / 1e3, recovery.state_bytes),
            None => (f64::INFINITY, 0),
        }
    }
}
