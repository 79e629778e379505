//! The program that hands an interface's frames to the sockets: five instructions, attached while the link is open.

use std::io;
use std::os::fd::OwnedFd;

use super::bpf;
use super::socket::Socket;

/// In the driver, before the kernel makes a packet of its own of the frame (linux/if_link.h).
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// In the kernel's own path, with any driver.
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
/// What becomes of frames of queues that have no socket: the kernel keeps them.
const XDP_PASS: i32 = 2;
/// The helper that sends a frame to an entry of a map (linux/bpf.h).
const BPF_REDIRECT_MAP: i32 = 51;
/// Where `struct xdp_md` has the number of the queue.
const RX_QUEUE_INDEX: i16 = 16;
/// Marks the number in an instruction as a map's descriptor.
const PSEUDO_MAP_FD: u8 = 1;

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the driver.
    Driver,
    /// In the kernel's path for all drivers.
    Generic,
}

/// Attaches the program to an interface so that frames of the queues from `first` on go to `sockets`: in the driver where it can.
/// It is taken off again when the returned link is closed.
pub(super) fn redirect(sockets: &[&Socket], interface: u32, first: u32) -> Result<(OwnedFd, Place), Failure> {
    let load = || {
        let map = bpf::create_socket_map(first + sockets.len() as u32)?;
        for (queue, socket) in (first..).zip(sockets) {
            bpf::set_socket(&map, queue, socket)?;
        }
        bpf::load_program(&instructions(&map))
    };
    let program = load().map_err(Failure::Load)?;
    match bpf::attach(&program, interface, XDP_FLAGS_DRV_MODE) {
        Ok(link) => Ok((link, Place::Driver)),
        // A driver that knows no XDP says EOPNOTSUPP, one that dislikes the MTU or an offload EINVAL or ERANGE.
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE)) =>
        {
            let link = bpf::attach(&program, interface, XDP_FLAGS_SKB_MODE).map_err(Failure::Attach)?;
            Ok((link, Place::Generic))
        }
        Err(error) => Err(Failure::Attach(error)),
    }
}

/// What the kernel refused.
#[derive(Debug)]
pub(super) enum Failure {
    /// The map or the program.
    Load(io::Error),
    /// To attach it.
    Attach(io::Error),
}

/// `return bpf_redirect_map(map, context->rx_queue_index, XDP_PASS)`.
fn instructions(map: &OwnedFd) -> [[u8; 8]; 6] {
    use std::os::fd::AsRawFd;
    [
        instruction(0x61, 2, 1, RX_QUEUE_INDEX, 0), // r2 = *(u32 *)(r1 + 16)
        instruction(0x18, 1, PSEUDO_MAP_FD, 0, map.as_raw_fd()), // r1 = map, in two halves
        instruction(0, 0, 0, 0, 0),
        instruction(0xb7, 3, 0, 0, XDP_PASS),         // r3 = XDP_PASS
        instruction(0x85, 0, 0, 0, BPF_REDIRECT_MAP), // r0 = bpf_redirect_map(r1, r2, r3)
        instruction(0x95, 0, 0, 0, 0),                // return r0
    ]
}

/// One instruction as the machine has it in memory (RFC 9669 §3).
fn instruction(opcode: u8, destination: u8, source: u8, offset: i16, number: i32) -> [u8; 8] {
    let registers =
        if cfg!(target_endian = "little") { source << 4 | destination } else { destination << 4 | source };
    let ([o0, o1], [n0, n1, n2, n3]) = (offset.to_ne_bytes(), number.to_ne_bytes());
    [opcode, registers, o0, o1, n0, n1, n2, n3]
}
