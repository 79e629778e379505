//! A NAT loses its node in the middle of a capture, and every mapping that a released packet used is still there.
//!
//! `cargo run -p pannier-chains --example crash_and_recover`

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use pannier_chains::Run;
use pannier_nf::{NatConfig, NatState, nat};
use pannier_runtime::port::pcap::Reader;
use pannier_runtime::wire::Flow;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/edge.pcapng");
    let released = std::env::temp_dir().join(format!("pannier-example-{}.pcapng", std::process::id()));
    let external = Ipv4Addr::new(203, 0, 113, 1);
    let translate = nat(NatConfig::new(external))?;
    let run = Run::new().stage("nat", translate).survive(1).crash("nat", 1_000).crash("nat", 2_500);
    let outcome = run.read(capture).write(&released).start()?;
    print!("{}", outcome.summary);
    assert!(outcome.broken.is_empty(), "{:?}", outcome.broken);

    // Whoever saw a packet with an external port may answer to it: the mapping must be known.
    let node = outcome.chain.node(0).ok_or("the NAT's node is back")?;
    let state: &NatState = node.store(0).and_then(|store| store.state.downcast()).ok_or("it runs the NAT")?;
    let mappings: BTreeMap<_, _> = state.by_outside.rows().into_iter().collect();
    let (mut reader, mut frame, mut seen) = (Reader::open(&released)?, Vec::new(), 0);
    while reader.next(&mut frame)?.is_some() {
        let Ok(flow) = Flow::parse(&frame) else { continue };
        if flow.source() == external && flow.source_port() != 0 {
            let endpoint = flow.source_endpoint().ok_or("an IPv4 packet has an endpoint")?;
            assert!(mappings.contains_key(&endpoint), "{endpoint} left the chain and was forgotten");
            seen += 1;
        }
    }
    println!("{seen} packets left under the external address; every mapping of theirs survived two crashes");
    std::fs::remove_file(&released)?;
    Ok(())
}
