//! The network functions of Pannier: each one a transaction closure with its state, its options, its documentation
//! and its tests in one file or small folder.
//!
//! | read this | for |
//! |---|---|
//! | [`monitor`](mod@monitor) | packets and bytes, in all and per flow: the smallest complete example |
//! | [`firewall`](mod@firewall) | ordered rules, and connections whose packets pass by a read alone |
//! | [`nat`](mod@nat) | addresses and ports translated in both directions, ICMP errors included |
//! | [`gen`](mod@gen_nf) | a write of a chosen size per packet, for measuring |
//! | [`catalogue`] | names and options, as chain files use them |
//! | [`prefix`], [`values`] | the kinds of values that options have in common |
//!
//! A network function keeps nothing of its own: its tables are read and written through the transaction alone, and
//! time and random numbers come from there as well. A frame that cannot be parsed is dropped under the parser's
//! reason and changes nothing.

pub mod catalogue;
pub mod firewall;
pub mod gen_nf;
pub mod monitor;
pub mod nat;
pub mod prefix;
pub mod values;
mod words;

#[cfg(test)]
mod harness;

pub use catalogue::{NfKind, OptionDoc, OptionError, Options, TableDoc, find};
pub use firewall::{Firewall, FirewallConfig, FirewallState, firewall};
pub use gen_nf::{Gen, GenConfig, GenState, generator};
pub use monitor::{Monitor, MonitorConfig, MonitorState, monitor};
pub use nat::{Nat, NatConfig, NatState, nat};
