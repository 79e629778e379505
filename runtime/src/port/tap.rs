//! A TAP interface (Documentation/networking/tuntap.rst of the kernel): `tap:name,mtu=1500`. What the kernel sends on
//! the interface arrives here, and what is sent here arrives in the kernel. An interface of that name that is there
//! already is used; another one is made, and goes with the port. It is brought up. It has one queue: of several the kernel
//! would bring a flow by the one that last sent a frame of it, and its frames could overtake each other at a change.
//!
//! One call of the kernel moves one frame. The kernel is therefore asked for super-frames, of which one call moves 64
//! KiB, and they are cut here.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::SystemTime;

use super::interface::{self, TOO_LONG};
use super::offload::{Pending, VnetHeader};
use super::sys::{self, Request};
use super::{DevicePort, Port, PortContext, PortError, PortSpec, PortStats};
use crate::clock::Nanos;
use crate::packet::Packet;
use crate::wire::ethernet::{EthernetHeader, VlanTag, ethertype};

/// What is left to be done here: checksums, and the cutting of TCP.
const CUT_TCP: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
/// The cutting of UDP, since Linux 6.2.
const CUT_UDP: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// A port on a TAP interface.
#[derive(Debug)]
pub(super) struct Tap {
    spec: PortSpec,
    tap: File,
    /// To ask about the interface with.
    inquiry: OwnedFd,
    pending: Pending,
    mtu: usize,
    stats: PortStats,
}

impl Tap {
    /// Opens the port on the interface that `spec` names.
    pub(super) fn open(spec: &PortSpec) -> Result<Tap, PortError> {
        spec.check_options(&["mtu"])?;
        interface::check_name(spec)?;
        let mtu = spec.number("mtu", 0)?;
        let refused = |error: io::Error| interface::refused(spec, "CAP_NET_ADMIN", &error);
        let mut options = OpenOptions::new();
        let tap = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
        let tap = tap.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
                spec.error("/dev/net/tun is missing", "load the kernel's module by `modprobe tun`")
            }
            _ => refused(error),
        })?;
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        sys::interface(&tap, &spec.name, Request::Attach(flags as i16)).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EBUSY) => {
                    spec.error("the interface is in use", "end the program that uses it, or name another one")
                }
                Some(libc::EINVAL) => {
                    spec.error("no TAP interface can have this name", "name a TAP interface, or a new one")
                }
                _ => refused(error),
            }
        })?;
        // An interface that is kept also keeps what its last user set.
        sys::set_header_length(&tap, VnetHeader::LENGTH as u8).map_err(refused)?;
        sys::leave_offloads(&tap, CUT_TCP | CUT_UDP)
            .or_else(|_| sys::leave_offloads(&tap, CUT_TCP))
            .map_err(refused)?;
        let inquiry = sys::inquiry_socket().map_err(refused)?;
        if spec.options.contains_key("mtu") {
            let request = Request::SetMtu(i32::try_from(mtu).unwrap_or(i32::MAX));
            sys::interface(&inquiry, &spec.name, request).map_err(|_| {
                spec.error(format!("the interface takes no MTU of {mtu}"), "set mtu= from 68 to 65521")
            })?;
        }
        bring_up(&inquiry, &spec.name).map_err(refused)?;
        let mtu = interface::mtu(&inquiry, &spec.name).map_err(refused)?;
        let stats = PortStats::default();
        Ok(Tap { spec: spec.clone(), tap, inquiry, pending: Pending::new(), mtu, stats })
    }

    /// Reads one frame, to be handed on as `pending`; false where none has arrived.
    fn read(&mut self, time: Nanos) -> Result<bool, PortError> {
        let length = match self.tap.read(self.pending.room()) {
            Ok(length) => length,
            Err(error) if error.raw_os_error() == Some(libc::EBADFD) => {
                return Err(interface::gone(&self.spec));
            }
            // Nothing is there, or the interface is down.
            Err(_) => return Ok(false),
        };
        let mtu = || interface::mtu(&self.inquiry, &self.spec.name).unwrap_or(self.mtu);
        if let Err(reason) = self.pending.start(length, time, None, mtu) {
            self.stats.receive_drops.count(reason);
        }
        Ok(true)
    }

    /// Sends one frame, or says why not.
    fn send(&self, frame: &[u8]) -> Result<(), &'static str> {
        if is_longer(frame, self.mtu) {
            return Err(TOO_LONG);
        }
        let header = [0; VnetHeader::LENGTH];
        let pieces = [IoSlice::new(&header), IoSlice::new(frame)];
        match (&self.tap).write_vectored(&pieces) {
            Ok(written) if written == header.len() + frame.len() => Ok(()),
            Ok(_) => Err("cut_off_by_kernel"),
            Err(error) => Err(interface::send_drop(&error)),
        }
    }
}

impl Port for Tap {
    type Error = PortError;

    fn rx_burst(
        &mut self,
        most: usize,
        context: &mut PortContext<'_>,
        burst: &mut Vec<Packet>,
    ) -> Result<usize, PortError> {
        let before = burst.len();
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_nanos() as Nanos);
        while burst.len() - before < most {
            match self.pending.next(context.pool) {
                Some(Ok(packet)) => {
                    self.stats.received += 1;
                    burst.push(packet);
                }
                Some(Err(reason)) => self.stats.receive_drops.count(reason),
                None if self.read(now)? => {}
                None => break,
            }
        }
        Ok(burst.len() - before)
    }

    fn tx_burst(&mut self, context: &mut PortContext<'_>, burst: &mut Vec<Packet>) -> Result<(), PortError> {
        // The kernel takes longer frames too, but the other side of the interface would not.
        self.mtu = interface::mtu(&self.inquiry, &self.spec.name).unwrap_or(self.mtu);
        for packet in burst.drain(..) {
            match self.send(packet.frame()) {
                Ok(()) => self.stats.sent += 1,
                Err(reason) => self.stats.send_drops.count(reason),
            }
            context.pool.give(packet);
        }
        Ok(())
    }
}

impl DevicePort for Tap {
    fn name(&self) -> &str {
        self.spec.text()
    }

    fn stats(&self) -> PortStats {
        self.stats.clone()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tap.as_fd())
    }
}

/// Whether a frame is longer than an MTU allows. A tag of 802.1Q in front does not count, as in the
/// kernel's packet sockets.
fn is_longer(frame: &[u8], mtu: usize) -> bool {
    let is_tagged = EthernetHeader::view(frame).is_ok_and(|header| header.ethertype.get() == ethertype::VLAN);
    frame.len() > EthernetHeader::LENGTH + mtu + if is_tagged { VlanTag::LENGTH } else { 0 }
}

/// Lets an interface carry frames, unless it does already: then no right is needed.
fn bring_up(inquiry: &OwnedFd, name: &str) -> io::Result<()> {
    let flags = sys::interface(inquiry, name, Request::Flags)?;
    if flags & libc::IFF_UP == 0 {
        sys::interface(inquiry, name, Request::SetFlags((flags | libc::IFF_UP) as i16))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FrameBuilder;

    #[test]
    fn a_frame_may_be_as_long_as_the_mtu_and_its_headers() {
        // Goal: the bound is the kernel's. Method: frames at the bound and beyond it, with tags and without.
        let builder = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
        let payload = |mtu: usize| vec![0; mtu - 28];
        for mtu in [576, 1_500, 9_000] {
            assert!(!is_longer(&builder.clone().udp(1, 2, &payload(mtu)), mtu));
            assert!(is_longer(&builder.clone().udp(1, 2, &payload(mtu + 1)), mtu));
            assert!(!is_longer(&builder.clone().vlan(5).udp(1, 2, &payload(mtu)), mtu));
            assert!(is_longer(&builder.clone().vlan(5).vlan(6).udp(1, 2, &payload(mtu)), mtu));
            assert!(is_longer(&builder.clone().tag(0x88A8, 5).udp(1, 2, &payload(mtu)), mtu));
        }
        assert!(!is_longer(&[], 1_500));
    }
}
