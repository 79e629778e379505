//! Time as a parameter: nothing below a driver reads a clock of the operating system.

/// Nanoseconds: since the Unix epoch for packet times, since any fixed moment for timers.
pub type Nanos = u64;

/// One second in [`Nanos`].
pub const SECOND: Nanos = 1_000_000_000;

/// The two times that a driver tells a node at each turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Drives repair and idle acknowledgements; never runs backwards.
    pub timer: Nanos,
    /// What network functions see when no packet is there (expiry); the arrival time of packets otherwise.
    pub wall: Nanos,
}
