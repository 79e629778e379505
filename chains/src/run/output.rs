//! The output: a capture of what left the chain, one interface per side, with the packets' own times.

use std::io;
use std::path::Path;

use pannier_runtime::port::pcap::{InterfaceDescription, Writer};
use pannier_runtime::{Direction, Packet};

const SIDES: [InterfaceDescription<'static>; 2] = [
    InterfaceDescription { name: "inside", description: Some("packets that left the chain to the inside") },
    InterfaceDescription { name: "outside", description: Some("packets that left the chain to the outside") },
];

/// Where packets that left the chain are written, or nowhere.
pub(super) struct Output {
    writer: Option<Writer>,
}

impl Output {
    pub(super) fn create(path: Option<&Path>) -> io::Result<Self> {
        Ok(Output { writer: path.map(|path| Writer::create(path, &SIDES)).transpose()? })
    }

    pub(super) fn write(&mut self, packet: &Packet) -> io::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let interface = match packet.meta.direction {
            Direction::Inbound => 0,
            Direction::Outbound => 1,
        };
        let len = u32::try_from(packet.frame().len()).unwrap_or(u32::MAX);
        writer.write(interface, packet.meta.time, packet.frame(), len.saturating_add(packet.meta.missing))
    }

    pub(super) fn finish(self) -> io::Result<()> {
        self.writer.map_or(Ok(()), |writer| writer.finish().map(|_| ()))
    }
}
