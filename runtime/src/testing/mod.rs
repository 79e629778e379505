//! Feature `testing`: traffic and faults for tests of network functions, as values and as proptest strategies.

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
