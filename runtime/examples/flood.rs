//! Sends UDP frames of so many flows into a port, as fast as it takes them, for some seconds.
//!
//! ```console
//! # cargo run --release -p pannier-runtime --example flood -- af_xdp:veth0 02:00:00:00:00:09 1000 3
//! ```
//! The frames have 60 bytes, come from 192.168.x.y, and go to 198.51.100.2 and that Ethernet address.

use std::error::Error;
use std::time::{Duration, Instant};

use pannier_runtime::packet::Pool;
use pannier_runtime::port::{Port, PortContext, PortSpec};
use pannier_runtime::wire::FrameBuilder;
use pannier_runtime::wire::ethernet::MacAddr;

/// Packets that are sent at once.
const BURST: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, to, flows, seconds] = &arguments[..] else {
        return Err("usage: flood PORT MAC FLOWS SECONDS".into());
    };
    let mut port = PortSpec::parse(port)?.open()?;
    let bytes: Vec<u8> = to.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>()?;
    let to = MacAddr(bytes.try_into().map_err(|_| "a MAC address has six bytes")?);
    let frame = |flow: u32| {
        let [_, high, low, _] = (flow << 2).to_be_bytes();
        FrameBuilder::ipv4([192, 168, high, low.max(1)], [198, 51, 100, 2])
            .ethernet(MacAddr([2, 0, 0, 0, 0, 1]), to)
            .udp(1_024 + (flow % 64) as u16, 53, &[0; 18])
    };
    let frames: Vec<Vec<u8>> = (0..flows.parse()?).map(frame).collect();
    let end = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
    let (mut pool, mut burst) = (Pool::default(), Vec::with_capacity(BURST));
    let mut next = frames.iter().cycle();
    while Instant::now() < end {
        for frame in next.by_ref().take(BURST) {
            let mut packet = pool.take();
            packet.set_frame(frame);
            burst.push(packet);
        }
        port.tx_burst(&mut PortContext { now: 0, pool: &mut pool }, &mut burst)?;
    }
    println!("{} sent, {} dropped", port.stats().sent, port.stats().send_drops.total());
    Ok(())
}
