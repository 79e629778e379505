//! Pannier's runtime: packets, transactional state and the ring protocol in which packets carry the state.
//!
//! The folders, bottom up; each uses lower ones only:
//! - [`limits`], [`clock`], [`entropy`], [`stats`], [`mutant`], `sync`: bounds, time and randomness as parameters,
//!   counters, atomics;
//! - [`wire`]: views of packet headers over bytes;
//! - [`packet`]: frames with a unit behind them; [`dependency`]: vectors and *the* ordering rule;
//! - [`mod@state`]: typed tables in partitions; [`port`]: where packets come from and go to;
//! - [`txn`]: transactions and the delta, the one format of changes;
//! - [`mod@nf`]: what a network function is; [`piggyback`]: records and units that ride on packets;
//! - [`ring`]: the protocol. Start at [`ring::Node::accept`];
//! - [`shard`]: the actors that run nodes on cores.

#[cfg(target_endian = "big")]
compile_error!("rows and units are little endian in memory: Pannier builds for little-endian machines only");

pub mod clock;
pub mod crc;
pub mod dependency;
pub mod entropy;
pub mod limits;
pub mod mutant;
pub mod nf;
pub mod packet;
pub mod piggyback;
pub mod port;
pub mod ring;
pub mod shard;
pub mod state;
pub mod stats;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
pub mod txn;
pub mod wire;

pub use nf::{Ahead, AnyNf, Frame, Nf, Verdict, nf};
pub use packet::{Direction, Packet};
pub use state::Merge;
pub use txn::{Abort, Peek, Txn, TxnResult};
