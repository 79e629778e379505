//! A first network function: limits the bytes that each host may send, and survives the loss of its node.
//!
//! `cargo run -p pannier-chains --example first_nf`

use std::net::IpAddr;

use pannier_chains::Run;
use pannier_runtime::wire::Flow;
use pannier_runtime::{Verdict, nf, state};

const QUOTA: u64 = 20_000;

state! {
    /// What the quota must not forget.
    pub struct Sent {
        /// Bytes per IPv4 host.
        bytes: [u8; 4] => u64 [10_000],
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let quota = nf(|frame, state: &Sent, txn| {
        let flow = Flow::parse(frame.bytes())?; // what is no IP packet is dropped, and counted
        let IpAddr::V4(host) = flow.source() else { return Ok(Verdict::Forward) };
        let len = frame.bytes().len() as u64;
        let sent = txn.update(&state.bytes, host.octets(), |sent| sent.unwrap_or(0) + len)?;
        Ok(if sent <= QUOTA { Verdict::Forward } else { Verdict::Drop("over_quota") })
    });
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/edge.pcapng");
    let outcome = Run::new().stage("quota", quota).read(capture).crash("quota", 2_000).start()?;
    print!("{}", outcome.summary);
    assert!(outcome.broken.is_empty(), "{:?}", outcome.broken);
    Ok(())
}
