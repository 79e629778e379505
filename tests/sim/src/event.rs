//! Events: what a schedule is a list of. Each makes sense in any state, so that others can be left out.

use std::fmt;
use std::str::FromStr;

use pannier_runtime::Direction;

/// One thing that happens. `at` counts messages from the oldest, and beyond the last from the first again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Packets from the number `packet` on enter in `direction`, `count` of them; those of a `size` (in bytes) that is
    /// not 0 have little room behind them.
    Admit {
        /// Number of the first.
        packet: u64,
        /// Which way they go.
        direction: Direction,
        /// How many.
        count: u8,
        /// Bytes of each frame; 0 for as few as it needs.
        size: u16,
    },
    /// A message is delivered, and up to `most` − 1 later ones to the same node in the same burst.
    Deliver {
        /// Which one.
        at: u8,
        /// Messages in the burst, at most.
        most: u8,
    },
    /// A message is lost.
    Lose(u8),
    /// A message is doubled.
    Double(u8),
    /// A message is put aside until nobody expects it any more.
    Delay(u8),
    /// The newest of the messages that were put aside is under way again.
    Late,
    /// Time passes at a node: `timer` microseconds of the timers, `wall` milliseconds of the packets.
    Tick {
        /// The node.
        node: u8,
        /// Microseconds.
        timer: u32,
        /// Milliseconds.
        wall: u32,
    },
    /// A message beside the ring is delivered.
    Control(u8),
    /// A message beside the ring is lost.
    LoseControl(u8),
    /// A message beside the ring is doubled.
    DoubleControl(u8),
    /// A node hears of a view.
    View(u8),
    /// A node dies.
    Crash(u8),
    /// A node is declared dead although it runs: it becomes a ghost.
    Suspect(u8),
    /// A node dies and is replaced at once.
    Restart(u8),
    /// A node stops for a while.
    Pause(u8),
    /// All nodes that stopped go on.
    Resume,
    /// The link from a node to its successor is cut: what is sent on it, either way, is lost.
    Cut(u8),
    /// All links that were cut work again.
    Mend,
    /// The orchestrator declares dead who is dead, and lets a replacement join.
    Orchestrate,
    /// From now on so many shards run a node; beyond its lanes from 1 again.
    Shards {
        /// The node.
        node: u8,
        /// Shards.
        count: u8,
    },
    /// A ghost takes what was meant for its place.
    GhostDeliver(u8),
    /// Time passes at a ghost.
    GhostTick(u8),
    /// A ghost hears of the newest view.
    GhostView(u8),
    /// A ghost stops at last.
    GhostStop(u8),
}

impl Event {
    fn parts(&self) -> (&'static str, Vec<u64>) {
        match *self {
            Event::Admit { packet, direction, count, size } => {
                let name = if direction == Direction::Outbound { "admit" } else { "admit-inbound" };
                (name, vec![packet, count.into(), size.into()])
            }
            Event::Deliver { at, most } => ("deliver", vec![at.into(), most.into()]),
            Event::Lose(at) => ("lose", vec![at.into()]),
            Event::Double(at) => ("double", vec![at.into()]),
            Event::Delay(at) => ("delay", vec![at.into()]),
            Event::Late => ("late", vec![]),
            Event::Tick { node, timer, wall } => ("tick", vec![node.into(), timer.into(), wall.into()]),
            Event::Control(at) => ("control", vec![at.into()]),
            Event::LoseControl(at) => ("lose-control", vec![at.into()]),
            Event::DoubleControl(at) => ("double-control", vec![at.into()]),
            Event::View(at) => ("view", vec![at.into()]),
            Event::Crash(node) => ("crash", vec![node.into()]),
            Event::Suspect(node) => ("suspect", vec![node.into()]),
            Event::Restart(node) => ("restart", vec![node.into()]),
            Event::Pause(node) => ("pause", vec![node.into()]),
            Event::Resume => ("resume", vec![]),
            Event::Cut(node) => ("cut", vec![node.into()]),
            Event::Mend => ("mend", vec![]),
            Event::Orchestrate => ("orchestrate", vec![]),
            Event::Shards { node, count } => ("shards", vec![node.into(), count.into()]),
            Event::GhostDeliver(at) => ("ghost-deliver", vec![at.into()]),
            Event::GhostTick(at) => ("ghost-tick", vec![at.into()]),
            Event::GhostView(at) => ("ghost-view", vec![at.into()]),
            Event::GhostStop(at) => ("ghost-stop", vec![at.into()]),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, numbers) = self.parts();
        f.write_str(name)?;
        numbers.iter().try_for_each(|number| write!(f, " {number}"))
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        let wrong = || format!("`{line}` is no event");
        let numbers = numbers.ok_or_else(wrong)?;
        let byte = |number: u64| u8::try_from(number).map_err(|_| wrong());
        let word = |number: u64| u32::try_from(number).map_err(|_| wrong());
        Ok(match (name, numbers[..].as_ref()) {
            ("admit" | "admit-inbound", &[packet, count, size]) => Event::Admit {
                packet,
                direction: if name == "admit" { Direction::Outbound } else { Direction::Inbound },
                count: byte(count)?,
                size: u16::try_from(size).map_err(|_| wrong())?,
            },
            ("deliver", &[at, most]) => Event::Deliver { at: byte(at)?, most: byte(most)? },
            ("lose", &[at]) => Event::Lose(byte(at)?),
            ("double", &[at]) => Event::Double(byte(at)?),
            ("delay", &[at]) => Event::Delay(byte(at)?),
            ("late", &[]) => Event::Late,
            ("tick", &[node, timer, wall]) => {
                Event::Tick { node: byte(node)?, timer: word(timer)?, wall: word(wall)? }
            }
            ("control", &[at]) => Event::Control(byte(at)?),
            ("lose-control", &[at]) => Event::LoseControl(byte(at)?),
            ("double-control", &[at]) => Event::DoubleControl(byte(at)?),
            ("view", &[at]) => Event::View(byte(at)?),
            ("crash", &[node]) => Event::Crash(byte(node)?),
            ("suspect", &[node]) => Event::Suspect(byte(node)?),
            ("restart", &[node]) => Event::Restart(byte(node)?),
            ("pause", &[node]) => Event::Pause(byte(node)?),
            ("resume", &[]) => Event::Resume,
            ("cut", &[node]) => Event::Cut(byte(node)?),
            ("mend", &[]) => Event::Mend,
            ("orchestrate", &[]) => Event::Orchestrate,
            ("shards", &[node, count]) => Event::Shards { node: byte(node)?, count: byte(count)? },
            ("ghost-deliver", &[at]) => Event::GhostDeliver(byte(at)?),
            ("ghost-tick", &[at]) => Event::GhostTick(byte(at)?),
            ("ghost-view", &[at]) => Event::GhostView(byte(at)?),
            ("ghost-stop", &[at]) => Event::GhostStop(byte(at)?),
            _ => return Err(wrong()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_are_written() {
        // Goal: a saved schedule is the one that ran. Method: one event of each kind, through its line.
        let direction = Direction::Inbound;
        let events = [
            Event::Admit { packet: 7, direction: Direction::Outbound, count: 3, size: 0 },
            Event::Admit { packet: 9, direction, count: 1, size: 1_990 },
            Event::Deliver { at: 3, most: 2 },
            Event::Tick { node: 1, timer: 400, wall: 2_000 },
            Event::Shards { node: 2, count: 3 },
            Event::Late,
            Event::Resume,
            Event::Mend,
            Event::Orchestrate,
        ];
        let one = [
            Event::Lose,
            Event::Double,
            Event::Delay,
            Event::Control,
            Event::LoseControl,
            Event::DoubleControl,
            Event::View,
            Event::Crash,
            Event::Suspect,
            Event::Restart,
            Event::Pause,
            Event::Cut,
            Event::GhostDeliver,
            Event::GhostTick,
            Event::GhostView,
            Event::GhostStop,
        ];
        for event in events.into_iter().chain(one.map(|make: fn(u8) -> Event| make(5))) {
            assert_eq!(event.to_string().parse(), Ok(event));
        }
        for wrong in ["", "deliver", "deliver 1 2 3", "lose 256", "lose x", "explode 1"] {
            assert!(wrong.parse::<Event>().is_err(), "{wrong}");
        }
    }
}
