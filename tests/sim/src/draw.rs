//! Draws schedules: what happens next, from a seed.

use pannier_runtime::Direction;
use pannier_runtime::entropy::Entropy;

use crate::event::Event;
use crate::options::Options;

/// Draws one event after the other.
#[derive(Clone, Debug)]
pub struct Draw {
    random: Entropy,
    options: Options,
    nodes: u64,
    next_packet: u64,
    weights: [u64; WEIGHTS.len()],
}

/// How often each kind of event happens, in the order of [`Draw::next`].
const WEIGHTS: [u64; 19] = [490, 110, 90, 30, 15, 10, 80, 30, 50, 50, 25, 5, 10, 5, 10, 4, 4, 30, 10];
/// What a run makes of a weight, in quarters. Runs that differ in what happens at all find more than runs that are all
/// alike (swarm testing: Groce et al., ISSTA 2012).
const SWARM: [u64; 6] = [0, 1, 4, 4, 8, 16];
/// Kinds that a run can't do without.
const NEEDED: [usize; 4] = [0, 1, 6, 17];

impl Draw {
    /// The events of a run with these options; the ring has `nodes` nodes.
    pub fn new(options: Options, nodes: usize) -> Self {
        let mut random = Entropy::stream(options.seed, 1);
        let mut weights = WEIGHTS.map(|weight| weight * 4);
        for kind in (0..weights.len()).filter(|kind| !NEEDED.contains(kind)) {
            weights[kind] = WEIGHTS[kind] * SWARM[random.below(SWARM.len() as u64) as usize];
        }
        weights[6] = WEIGHTS[6] * [1, 2, 4, 8][random.below(4) as usize];
        for kind in [8, 9] {
            weights[kind] = WEIGHTS[kind] * [4, 8, 16, 32][random.below(4) as usize];
        }
        Draw { random, options, nodes: nodes as u64, next_packet: 1, weights }
    }

    fn below(&mut self, bound: u64) -> u8 {
        self.random.below(bound.min(256)) as u8
    }

    fn admit(&mut self) -> Event {
        let inbound = self.random.chance(0.3);
        let direction = if inbound { Direction::Inbound } else { Direction::Outbound };
        let most = 1 + self.random.below(self.options.unit as u64 + 1);
        let count = 1 + self.random.below(most) as u8;
        let little_room = (self.options.mtu as u64).saturating_sub(40 + self.random.below(60));
        let size = if self.random.chance(0.1) { little_room.min(60_000) as u16 } else { 0 };
        let packet = self.next_packet;
        self.next_packet += u64::from(count);
        // Packets of one number do the same; those of another seed do something else.
        Event::Admit { packet: packet | self.options.seed << 24, direction, count, size }
    }

    fn deliver(&mut self) -> Event {
        let at = self.below(12);
        let mut most = 1;
        while most < 64 && self.random.chance(0.7) {
            most += 1;
        }
        Event::Deliver { at, most }
    }

    fn ghost(&mut self) -> Event {
        let at = self.below(8);
        match self.random.below(20) {
            0 => Event::GhostStop(at),
            1 => Event::GhostView(at),
            2..6 => Event::GhostTick(at),
            _ => Event::GhostDeliver(at),
        }
    }

    fn failure(&mut self) -> Event {
        let node = self.below(self.nodes);
        match self.random.below(10) {
            0..4 => Event::Suspect(node),
            4 => Event::Restart(node),
            _ => Event::Crash(node),
        }
    }
}

impl Iterator for Draw {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let mut dice = self.random.below(self.weights.iter().sum());
        let kind = self.weights.iter().position(|&weight| {
            let hit = dice < weight;
            dice = dice.saturating_sub(weight);
            hit
        });
        Some(match kind.unwrap_or_default() {
            0 => self.deliver(),
            1 => self.admit(),
            2 => Event::Lose(self.below(12)),
            3 => Event::Double(self.below(12)),
            4 => Event::Delay(self.below(12)),
            5 => Event::Late,
            6 => Event::Tick {
                node: self.below(self.nodes),
                timer: self.random.below(600) as u32,
                wall: self.random.below(1_000) as u32,
            },
            7 => self.ghost(),
            8 => Event::Control(self.below(256)),
            9 => Event::View(self.below(256)),
            10 => self.failure(),
            11 => Event::Pause(self.below(self.nodes)),
            12 => Event::Resume,
            13 => Event::Cut(self.below(self.nodes)),
            14 => Event::Mend,
            15 => Event::LoseControl(self.below(256)),
            16 => Event::DoubleControl(self.below(256)),
            17 => Event::Orchestrate,
            _ => Event::Shards { node: self.below(self.nodes), count: self.below(4) + 1 },
        })
    }
}
