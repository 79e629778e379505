//! The ring protocol: how a chain of network functions survives the loss of up to f nodes.
//!
//! Packets carry the effects of their transactions to the next f nodes, which are the replicas (FTC, SIGCOMM 2020).
//! The whole protocol with its reasons is told in ARCHITECTURE.md; start reading at [`Node::accept`].

mod control;
mod hold;
pub mod node;
mod plan;
mod recorder;
mod retained;
mod steer;
mod store;
mod view;

pub(crate) use node::frames_in;
#[cfg(feature = "simulation")]
pub use node::hash_packet;
pub use node::{LaneState, Node, Output, SharedNode};
pub use plan::{Plan, PlanError};
pub use recorder::{Origin, Recorder, Silent};
pub use steer::steer;
pub use store::Store;
pub use view::{Incarnation, Member, Orchestrator, Standing, View};
