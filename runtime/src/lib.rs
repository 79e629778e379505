//! Pannier.

pub mod port;
