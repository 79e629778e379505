//! The simulator: real nodes of the ring under one seed, and a checker for each promise.
//!
//! A run is described by [`Options`] alone: they and their seed decide every [`Event`]. [`run()`] plays it in a
//! [`World`], and [`check`] looks at the promises on the way. A failing run is made small by [`shrink()`], shown by
//! [`timeline`] and kept as a [`Schedule`]. [`campaign()`] runs many, [`explore`] every one of a small world.
//!
//! Everything is the product's own code but the network, the orchestrator's detection of failures, and the network
//! function: that is [`Provenance`], whose every value tells which transactions it came from, so that the promises are
//! questions about sets.

mod campaign;
pub mod check;
mod draw;
mod event;
pub mod explore;
pub mod journal;
mod options;
pub mod provenance;
mod run;
mod schedule;
mod shrink;
mod timeline;
mod world;

pub use campaign::{Sum, campaign};
pub use draw::Draw;
pub use event::Event;
pub use journal::Journal;
pub use options::{Options, OptionsError};
pub use provenance::Provenance;
pub use run::{Failure, Kept, Told, draw, play, run, timeline};
pub use schedule::{Schedule, ScheduleError};
pub use shrink::shrink;
pub use world::World;
