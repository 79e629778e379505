//! The example chain and its capture, as the suites use them.

use std::path::{Path, PathBuf};

use pannier_chains::config::{ChainSpec, Document};
use pannier_chains::{Chain, ChainStage, run};
use pannier_runtime::Packet;

/// The root of the repository.
///
/// # Panics
/// Outside of cargo.
pub fn root() -> PathBuf {
    // Asked at run time: a checkout that shares its target folder with another may run the other's build.
    let home = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells a test where its crate is");
    Path::new(&home).join("..")
}

/// The chain of `chains/configs/edge.toml` with these settings changed; it crashes nowhere and writes no capture.
///
/// # Panics
/// Where the chain file or a setting is wrong.
pub fn spec(sets: &[&str]) -> ChainSpec {
    let mut document =
        Document::load(root().join("chains/configs/edge.toml")).expect("the chain file is there");
    for set in ["crash=[]"].iter().chain(sets) {
        document.set(set).unwrap_or_else(|error| panic!("{set}: {error}"));
    }
    let mut spec = document.chain().unwrap_or_else(|error| panic!("{sets:?}: {error}"));
    spec.output = None;
    spec
}

/// The capture's packets with their directions and flows. No two have the same time, so that it names a packet.
///
/// # Panics
/// Where the capture can't be read.
pub fn packets(spec: &ChainSpec) -> Vec<Packet> {
    let mut packets = run::load(spec).expect("the capture is there");
    let mut last = 0;
    for packet in &mut packets {
        packet.meta.time = packet.meta.time.max(last + 1);
        last = packet.meta.time;
    }
    packets
}

/// The chain itself.
///
/// # Panics
/// Where the settings make a chain that can't work.
pub fn chain(spec: &ChainSpec) -> Chain {
    let stage = |stage: &pannier_chains::config::StageSpec| ChainStage {
        name: stage.name.clone(),
        nf: stage.nf.clone(),
    };
    let stages = spec.stages.iter().map(stage).collect();
    Chain::new(spec.plan, stages, spec.burst, spec.faults).expect("the settings are possible")
}
