//! Feature `testing`: traffic and faults for tests of network functions, as values and as proptest strategies.

mod plan;
mod trace;

pub use plan::{CrashAt, FaultPlan};
pub use trace::{Trace, TraceFrame};
