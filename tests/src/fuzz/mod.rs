//! Fuzz targets: what must hold for every string of bytes, each target one `check` that panics where it does not.
//!
//! The binaries in `tests/fuzz/` let libFuzzer search; the suite `fuzz` runs the kept corpora and mutations of them.

pub mod capture;
pub mod chain_file;
pub mod headers;
pub mod seeds;
pub mod unit;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: that of its binary, and of its folder below `tests/fuzz/corpus/`.
    pub name: &'static str,
    /// Panics where the bytes break something.
    pub check: fn(&[u8]),
    /// Inputs of our own making that a corpus begins with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 4] = [
    Target { name: "unit", check: unit::check, seeds: seeds::units },
    Target { name: "capture", check: capture::check, seeds: seeds::captures },
    Target { name: "headers", check: headers::check, seeds: seeds::frames },
    Target { name: "chain_file", check: chain_file::check, seeds: seeds::chains },
];
