//! Every bound of the runtime in one place, with the relations between them checked at compile time.

/// Most partitions a store can have: one bit each in a [`PartitionSet`](crate::dependency::PartitionSet).
pub const MAX_PARTITIONS: usize = 64;
/// Most stages, and most nodes, of a chain: their numbers travel as one byte.
pub const MAX_NODES: usize = 64;
/// Most lanes of a chain, and so most shards of a node: each has words of its own in every store.
pub const MAX_LANES: usize = 8;
/// Most packets that one shard may commit together as one unit.
pub const MAX_UNIT_FRAMES: usize = 64;
/// Most tables of one network function: the table's number takes six bits of a delta entry's tag.
pub const MAX_TABLES: usize = 64;
/// Longest frame that is taken in, in bytes. Captures hold frames that a NIC merged (up to 256 KiB).
pub const MAX_FRAME: usize = 262_144;
/// Longest unit in bytes, header included: its length travels as 16 bits.
pub const MAX_UNIT: usize = 65_535;
/// Free bytes in front of a frame, for headers that a network function pushes.
pub const HEADROOM: usize = 64;
/// Bytes that a new packet buffer has room for, headroom included: most frames with their units, and acknowledgements.
/// It grows where it must, and the larger buffer is used again.
pub const BUFFER: usize = 4_096;
/// Most rows that one expiry transaction removes, so that its unit stays small.
pub const SWEEP_ROWS: usize = 32;
/// Most units that one repair sends at once.
pub const REPAIR_UNITS: usize = 64;
/// Messages that wait in a lane of several shards, for other lanes, from which on nothing more should enter the chain. All are
/// tried again whenever another lane has applied something: the more wait, the slower lanes that write one partition get on.
pub const SHARED_WAITING: usize = 128;

const _: () = assert!(HEADROOM < BUFFER);
const _: () = assert!(MAX_PARTITIONS == u64::BITS as usize);
const _: () = assert!(MAX_NODES <= 128 && MAX_TABLES <= 64);

/// The bounds and timers of one node that an operator may set. Durations are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest frame of a ring link in bytes, Ethernet header included: a unit never makes a frame longer.
    pub mtu: usize,
    /// Bytes of units retained for the successor, above which no packet is admitted.
    pub retained_bytes: usize,
    /// Messages that may wait for a unit that has not arrived.
    pub waiting: usize,
    /// Frames that may wait for their commit.
    pub held: usize,
    /// How long a retained unit may stay unacknowledged before it is sent again.
    pub repair_after: u64,
    /// How often an idle link repeats its whole acknowledgement.
    pub idle_acknowledge: u64,
    /// How often idle rows are looked for; each time in one partition.
    pub sweep_every: u64,
    /// Bytes of state that one message to a replacement carries, about: whole partitions, at least one.
    pub snapshot_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            mtu: 9_018,
            retained_bytes: 16 << 20,
            waiting: 4_096,
            held: 16_384,
            repair_after: 1_000_000,
            idle_acknowledge: 1_000_000,
            sweep_every: 1_000_000_000 / MAX_PARTITIONS as u64,
            snapshot_bytes: 1 << 20,
        }
    }
}
