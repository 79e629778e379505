//! Pannier.
