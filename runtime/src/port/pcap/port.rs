//! Captures as a port: `pcap:in.pcap,write=out.pcapng`. What a capture holds arrives as fast as it is taken.

use std::path::Path;

use super::{InterfaceDescription, Reader, Writer};
use crate::packet::Packet;
use crate::port::{DevicePort, Port, PortContext, PortError, PortSpec, PortStats};

/// See the [module](self).
pub(crate) struct PcapPort {
    spec: PortSpec,
    /// Until its end.
    reader: Option<Reader>,
    writer: Option<Writer>,
    frame: Vec<u8>,
    stats: PortStats,
}

impl PcapPort {
    /// Opens the captures. Either may be left out.
    pub(crate) fn open(spec: &PortSpec) -> Result<Self, PortError> {
        spec.check_options(&["write"])?;
        let write = spec.options.get("write");
        if spec.name.is_empty() && write.is_none() {
            return Err(
                spec.error("no capture is named", "name one to read, or one to write with write=FILE")
            );
        }
        let wrong = |error: &dyn std::fmt::Display| spec.error(error.to_string(), "name another file");
        let read = |name: &str| Reader::open(Path::new(name)).map_err(|error| wrong(&error));
        let interface = InterfaceDescription { name: "pannier", description: None };
        let create =
            |name: &str| Writer::create(Path::new(name), &[interface]).map_err(|error| wrong(&error));
        Ok(PcapPort {
            reader: (!spec.name.is_empty()).then(|| read(&spec.name)).transpose()?,
            writer: write.map(|name| create(name)).transpose()?,
            spec: spec.clone(),
            frame: Vec::new(),
            stats: PortStats::default(),
        })
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> PortError {
        self.spec.error(error.to_string(), "check the file and the disk")
    }
}

impl Port for PcapPort {
    type Error = PortError;

    fn rx_burst(
        &mut self,
        most: usize,
        context: &mut PortContext<'_>,
        burst: &mut Vec<Packet>,
    ) -> Result<usize, PortError> {
        let mut count = 0;
        while let Some(reader) = self.reader.as_mut().filter(|_| count < most) {
            let captured = match reader.next(&mut self.frame) {
                Ok(Some(captured)) => captured,
                Ok(None) => {
                    self.reader = None;
                    break;
                }
                Err(error) => {
                    self.reader = None;
                    return Err(self.failed(&error));
                }
            };
            let length = u32::try_from(self.frame.len()).unwrap_or(u32::MAX);
            if captured.link.to_ethernet(&mut self.frame).is_err() {
                self.stats.receive_drops.count("link_type_unsupported");
                continue;
            }
            let mut packet = context.pool.take();
            packet.set_frame(&self.frame);
            packet.meta.time = captured.time;
            packet.meta.missing = captured.original_len.saturating_sub(length);
            burst.push(packet);
            count += 1;
        }
        self.stats.received += count as u64;
        Ok(count)
    }

    fn tx_burst(&mut self, context: &mut PortContext<'_>, burst: &mut Vec<Packet>) -> Result<(), PortError> {
        let mut written = Ok(());
        for packet in burst.drain(..) {
            match &mut self.writer {
                Some(writer) if written.is_ok() => {
                    let length = u32::try_from(packet.frame().len()).unwrap_or(u32::MAX);
                    let original = length.saturating_add(packet.meta.missing);
                    written = writer.write(0, packet.meta.time, packet.frame(), original);
                    self.stats.sent += u64::from(written.is_ok());
                }
                Some(_) => self.stats.send_drops.count("capture_not_written"),
                None => self.stats.send_drops.count("no_capture_to_write"),
            }
            context.pool.give(packet);
        }
        written.map_err(|error| self.failed(&error))
    }
}

impl DevicePort for PcapPort {
    fn name(&self) -> &str {
        self.spec.text()
    }

    fn stats(&self) -> PortStats {
        self.stats.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Pool;

    #[test]
    fn what_is_written_can_be_read_again() {
        // Goal: captures are ports like others. Method: frames into one port, and out of another that reads its file.
        let folder = std::env::temp_dir().join(format!("pannier-pcap-port-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let file = folder.join("a.pcapng");
        let open = |text: &str| PortSpec::parse(text).and_then(|spec| PcapPort::open(&spec));
        let mut pool = Pool::default();
        let context = &mut PortContext { now: 0, pool: &mut pool };
        let mut burst: Vec<Packet> = (0..100u8).map(|n| Packet::new(&[n; 60])).collect();
        burst.iter_mut().enumerate().for_each(|(at, packet)| packet.meta.time = at as u64 * 1_000);
        let mut port = open(&format!("pcap:,write={}", file.display())).expect("it can be written");
        assert_eq!(port.rx_burst(9, context, &mut Vec::new()), Ok(0));
        port.tx_burst(context, &mut burst).expect("it can be written");
        drop(port);
        let mut port = open(&format!("pcap:{}", file.display())).expect("it can be read");
        for count in [64, 36, 0] {
            assert_eq!(port.rx_burst(64, context, &mut burst), Ok(count));
        }
        let sound = |(at, packet): (usize, &Packet)| {
            packet.frame() == [at as u8; 60] && packet.meta.time == at as u64 * 1_000
        };
        assert!(burst.iter().enumerate().all(sound) && port.stats().received == 100);
        port.tx_burst(context, &mut burst).expect("drops are counted");
        assert_eq!(port.stats().send_drops.total(), 100);
        for wrong in ["pcap:", "pcap:/no/such/file", "pcap:x,speed=1", "pcap:,write=/no/such/folder/x"] {
            assert!(open(wrong).err().is_some_and(|error| error.to_string().contains(": ")), "{wrong}");
        }
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
