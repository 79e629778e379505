//! Forwards frames from one port to another with their MAC addresses swapped, for some seconds, and says how many.
//!
//! ```console
//! $ cargo run --release -p pannier-runtime --features dpdk --example dpdk_forward -- \
//!       dpdk:net_pcap0,rx_pcap=in.pcap,infinite_rx=1 dpdk:net_null0,no-rx=1 3
//! ```

use std::error::Error;
use std::time::{Duration, Instant};

use pannier_runtime::packet::Pool;
use pannier_runtime::port::{Device, Port, PortContext, PortSpec};

/// Packets that are taken at once.
const BURST: usize = 32;
/// Turns between two looks at the clock.
const TURNS: usize = 4_096;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, seconds] = &arguments[..] else {
        return Err("usage: dpdk_forward FROM TO SECONDS".into());
    };
    let seconds = Duration::from_secs_f64(seconds.parse()?);
    let mut from = PortSpec::parse(from)?.open()?;
    let mut to = PortSpec::parse(to)?.open()?;
    let start = Instant::now();
    forward(&mut from, &mut to, start + seconds)?;
    let took = start.elapsed().as_secs_f64();
    let (received, sent) = (from.stats().received, to.stats().sent);
    println!("{received} received, {sent} sent, {:.2} Mpps", sent as f64 / took / 1e6);
    Ok(())
}

fn forward(from: &mut Device, to: &mut Device, until: Instant) -> Result<(), Box<dyn Error>> {
    let mut pool = Pool::default();
    let mut burst = Vec::with_capacity(BURST);
    while Instant::now() < until {
        for _ in 0..TURNS {
            let mut context = PortContext { now: 0, pool: &mut pool };
            from.rx_burst(BURST, &mut context, &mut burst)?;
            for packet in &mut burst {
                if let Some((addresses, _)) = packet.frame_mut().split_first_chunk_mut::<12>() {
                    addresses.rotate_left(6);
                }
            }
            to.tx_burst(&mut context, &mut burst)?;
        }
    }
    Ok(())
}
