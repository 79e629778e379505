//! What the kernel's error numbers mean at each step of opening a port, and the way out.

use std::io;

use super::{CHUNK, Options};
use crate::port::{PortError, PortSpec, interface};

/// A step of opening a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Finding the interface.
    Interface,
    /// Making the socket.
    Socket,
    /// Sharing memory and rings with the kernel.
    Memory,
    /// Binding the socket to the queue.
    Bind,
    /// Loading the program.
    Program,
    /// Attaching it to the interface.
    Attach,
}

/// Says that frames would pass the port by.
pub(super) fn too_many_queues(spec: &PortSpec, all: u32, most: u32) -> PortError {
    let name = &spec.name;
    spec.error(
        format!("what arrives at `{name}` is spread over {all} queues, of which the chain would see {most}"),
        format!(
            "leave so many to it (`ethtool -L {name} combined {most}`, or `rx {most}`), set shards={all}, or name one with queue=0"
        ),
    )
}

/// Says what `error` means at `step`.
pub(super) fn explain(spec: &PortSpec, options: &Options, step: Step, error: &io::Error) -> PortError {
    let (name, queue) = (&spec.name, options.queue);
    let code = error.raw_os_error().unwrap_or_default();
    let (problem, way_out) = match (step, code) {
        (_, libc::EPERM | libc::EACCES) => (
            "one of the rights CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF is missing".to_owned(),
            "run as root, or once `setcap cap_net_raw,cap_net_admin,cap_bpf+ep` on the program".to_owned(),
        ),
        (Step::Socket, libc::EAFNOSUPPORT) | (Step::Program, libc::ENOSYS | libc::EINVAL) => (
            "this kernel has no AF_XDP".to_owned(),
            "take the port af_packet, or a kernel with CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL".to_owned(),
        ),
        (Step::Memory, libc::ENOBUFS | libc::ENOMEM) => (
            format!("it may not lock {} KiB of memory", options.frames as usize * CHUNK / 1024),
            "raise the limit with `ulimit -l`, give the right CAP_IPC_LOCK, or ask for fewer frames"
                .to_owned(),
        ),
        (Step::Bind, libc::EINVAL) => (
            format!("`{name}` has no queue {queue}"),
            format!("`ethtool -l {name}` shows how many it has, counted from 0"),
        ),
        (Step::Bind, libc::EBUSY) => (
            format!("another AF_XDP socket has queue {queue} of `{name}`"),
            "close that one, or take another queue".to_owned(),
        ),
        (Step::Bind, libc::EOPNOTSUPP) => {
            (format!("the driver of `{name}` can't do without copying"), "leave out mode=zerocopy".to_owned())
        }
        (Step::Attach, libc::EBUSY | libc::EEXIST) => (
            format!("another XDP program is attached to `{name}`"),
            format!("stop the process that attached it, or take it off with `ip link set {name} xdp off`"),
        ),
        (Step::Attach, libc::EINVAL) => {
            (format!("the XDP program can't be attached to `{name}`"), "take Linux 5.9 or newer".to_owned())
        }
        _ => return interface::refused(spec, "CAP_NET_RAW", error),
    };
    spec.error(problem, way_out)
}
