//! Traces of a network: conversations that run side by side, with odd and broken frames among them.

use core::ops::RangeInclusive;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::broken::{Damage, damage};
use super::conversations::conversation;
use super::flows::Network;
use super::frames::{Directed, valid};
use super::odd::odd;
use super::shrink::{Thin, plain_first};
use super::{Trace, TraceFrame};
use crate::clock::{Nanos, SECOND};

/// Frames that a conversation has on average.
const MEAN_FRAMES: f64 = 7.0;

/// What traffic a trace holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Who talks.
    pub network: Network,
    /// Number of conversations.
    pub conversations: RangeInclusive<usize>,
    /// Share of [odd frames](super::odd_frame) on average over many traces that have conversations; with
    /// `broken` at most 0.9.
    pub odd: f64,
    /// Share of [broken frames](super::broken_frame) on average over many traces; half of them are damaged copies of
    /// the trace's other frames, right behind those.
    pub broken: f64,
    /// Whether a conversation may lack frames, as where the network has lost them or the trace began later. If so, a
    /// failing trace shrinks to the single frames that it takes; if not, to the shortest whole conversations.
    pub gaps: bool,
    /// When the trace begins, in nanoseconds since the Unix epoch.
    pub begin: Nanos,
    /// Conversations begin within so many nanoseconds from there.
    pub span: Nanos,
}

impl Default for Traffic {
    /// Up to eight conversations of the default network that begin within ten seconds, with gaps; one frame in twenty
    /// is odd, and one is broken.
    fn default() -> Self {
        Traffic {
            network: Network::default(),
            conversations: 0..=8,
            odd: 0.05,
            broken: 0.05,
            gaps: true,
            begin: 1_000_000_000 * SECOND,
            span: 10 * SECOND,
        }
    }
}

/// Traces of this traffic, in strictly increasing times. Shrinks to no frames, else to few, small and plain ones, one
/// nanosecond apart.
pub fn trace(traffic: &Traffic) -> impl Strategy<Value = Trace> + use<> {
    let (begin, network) = (traffic.begin, &traffic.network);
    let after = || plain_first(0, prop_oneof![1 => Just(0), 3 => 0..=traffic.span]);
    let missing = if traffic.gaps {
        let some = any::<(u64, u64, u64)>().prop_map(|(a, b, c)| a & b & c);
        plain_first(0, prop_oneof![3 => Just(0), 1 => some]).boxed()
    } else {
        Just(0).boxed()
    };
    let conversation = (conversation(network), after(), missing).prop_map(Started::new);
    let oddity = (odd(network), after());
    let breakage = (valid(network), after(), damage(), prop::option::of(any::<Index>()));
    let parts = (
        vec(conversation, traffic.conversations.clone()),
        vec(oddity, 0..=traffic.strays(traffic.odd)),
        vec(breakage, 0..=traffic.strays(traffic.broken)),
    );
    let inner =
        parts.prop_map(move |(conversations, odd, broken)| assemble(begin, &conversations, odd, broken));
    Thin { inner, may_lose: traffic.gaps }
}

impl Traffic {
    /// The most frames of a kind that has this share: twice the mean.
    fn strays(&self, share: f64) -> usize {
        let conversations = (self.conversations.start() + self.conversations.end()) as f64 / 2.0;
        let others = (1.0 - self.odd - self.broken).max(0.1);
        (2.0 * conversations * MEAN_FRAMES * share.max(0.0) / others).round() as usize
    }
}

/// A conversation, and how long after the trace's begin it begins.
#[derive(Clone, Debug)]
struct Started {
    frames: Trace,
    after: Nanos,
}

impl Started {
    /// Leaves out the frames whose bits are set in `missing`.
    fn new((Trace(frames), after, missing): (Trace, Nanos, u64)) -> Self {
        let is_there = |at: usize| missing >> (at % 64) & 1 == 0;
        let frames = frames.into_iter().enumerate().filter(|(at, _)| is_there(*at)).map(|(_, frame)| frame);
        Started { frames: Trace(frames.collect()), after }
    }
}

/// A valid frame, when it comes, what happens to it, and perhaps the frame of the trace that is damaged in its place.
type Breakage = (Directed, Nanos, Damage, Option<Index>);

fn assemble(begin: Nanos, started: &[Started], odd: Vec<(Directed, Nanos)>, broken: Vec<Breakage>) -> Trace {
    let shifted = |started: &Started| {
        let base = begin + started.after;
        let frames = started.frames.0.iter();
        Trace(frames.map(|frame| TraceFrame { time: base + frame.time, ..frame.clone() }).collect())
    };
    let single = |(direction, bytes), time| TraceFrame { time, direction, bytes };
    let odd = odd.into_iter().map(|(frame, after)| single(frame, begin + after)).collect();
    let sound = Trace::merge(started.iter().map(shifted).chain([Trace(odd)]));
    let broken = broken.into_iter().map(|((direction, bytes), after, damage, copied)| {
        let original = copied.filter(|_| !sound.is_empty()).map(|at| &sound.0[at.index(sound.len())]);
        match original {
            Some(frame) => single((frame.direction, damage.apply(&frame.bytes)), frame.time),
            None => single((direction, damage.apply(&bytes)), begin + after),
        }
    });
    let broken = Trace(broken.collect());
    Trace::merge([sound, broken])
}
