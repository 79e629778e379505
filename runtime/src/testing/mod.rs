//! Feature `testing`: traffic and faults for tests of network functions, as values and as proptest strategies.
//!
//! | strategy | makes |
//! |---|---|
//! | [`trace()`] | a [`Trace`]: conversations side by side, odd and broken frames among them; [`Traffic`] says of what |
//! | [`conversation`], [`tcp_conversation`], [`udp_conversation`], [`icmp_conversation`] | both sides of one conversation |
//! | [`flow`](fn@flow), [`packets_of`] | a flow from the inside to the outside, packets of a flow both ways |
//! | [`valid_frame`], [`odd_frame`], [`broken_frame`], [`any_frame`] | single frames: sound ones, rare ones, damaged ones |
//! | [`fault_plan`] | a [`FaultPlan`]: faults of the links and crashes of nodes |
//!
//! A property is said over all traces of some traffic. Here is one of a small firewall: whoever asks gets the answer.
//!
//! ```
//! use pannier_runtime::Direction;
//! use pannier_runtime::testing::{Network, Traffic, trace};
//! use proptest::prelude::*;
//! use std::collections::HashSet;
//!
//! /// Only the inside opens flows, and no frame is odd, broken or missing.
//! fn polite() -> Traffic {
//!     let network = Network { from_outside: 0.0, ..Network::default() };
//!     Traffic { network, odd: 0.0, broken: 0.0, gaps: false, ..Traffic::default() }
//! }
//!
//! proptest! {
//!     # /*
//!     #[test]
//!     # */
//!     fn no_answer_is_refused(trace in trace(&polite())) {
//!         let mut opened = HashSet::new();
//!         for frame in &trace.0 {
//!             let flow = frame.flow().unwrap();
//!             match frame.direction {
//!                 Direction::Outbound => drop(opened.insert(flow)),
//!                 Direction::Inbound => prop_assert!(opened.contains(&flow.reverse())),
//!             }
//!         }
//!     }
//! }
//! # no_answer_is_refused();
//! ```
//!
//! ## What to rely on
//! - **The same random numbers, the same values.** proptest prints and keeps the seed of a failure.
//! - **Failures shrink**, mostly within a hundred tries: to fewer frames, shorter payloads of zeros, the first hosts, small
//!   ports, IPv4 without options and tags, times one nanosecond apart, no faults. Shrinking never leaves what the
//!   settings allow: with [`Traffic::gaps`] frames of a conversation may be missing, so a failing trace shrinks to the
//!   single frames that it takes; without, conversations stay whole.
//! - **A time names a frame.** The times of a trace strictly increase.
//! - **Directions are told by addresses**, as a chain file's `inside` would tell them, for all frames that parse and
//!   are not addressed to groups. Inside hosts start at [`Network::inside`].
//!
//! A counterexample prints each frame on one line with time, direction, flow and bytes. [`Trace::write_pcapng`] keeps
//! it for other tools, and a [`FaultPlan`] prints as the options of `pannier run` that repeat its faults.

mod broken;
mod conversations;
mod faults;
mod flows;
mod frames;
mod odd;
mod plan;
mod shrink;
mod trace;
mod traces;

#[cfg(test)]
mod tests;

pub use broken::broken_frame;
pub use conversations::{conversation, icmp_conversation, tcp_conversation, udp_conversation};
pub use faults::fault_plan;
pub use flows::{Network, flow, frame_builder, packet_of, packets_of};
pub use frames::{any_frame, valid_frame};
pub use odd::odd_frame;
pub use plan::{CrashAt, FaultPlan};
pub use trace::{Trace, TraceFrame};
pub use traces::{Traffic, trace};
