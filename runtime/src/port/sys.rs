//! The calls of the Linux kernel that ports need and `std` has no name for, as safe functions.
#![allow(unsafe_code)] // system calls are made by pointer

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::packet::Packet;

/// Most frames that one call sends.
const BATCH: usize = 64;

/// The result of a call that says −1 where it failed.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The length of a value that a call is told beside a pointer.
fn length_of<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

/// A packet socket (packet(7)) that gives no frames before it is bound.
pub(super) fn packet_socket() -> io::Result<OwnedFd> {
    datagram_socket(libc::AF_PACKET, libc::SOCK_RAW)
}

/// A socket to ask about interfaces with (netdevice(7)).
pub(super) fn inquiry_socket() -> io::Result<OwnedFd> {
    datagram_socket(libc::AF_INET, libc::SOCK_DGRAM)
}

fn datagram_socket(family: libc::c_int, kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers only.
    let fd = check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) })?;
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of a socket (setsockopt(2)).
pub(super) fn set_option(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &(impl IntoBytes + Immutable),
) -> io::Result<()> {
    let (fd, bytes) = (socket.as_fd().as_raw_fd(), value.as_bytes());
    let length = bytes.len() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes, which are those of `bytes`. The options of the levels used here hold no
    // pointers.
    check(unsafe { libc::setsockopt(fd, level, name, bytes.as_ptr().cast(), length) }).map(drop)
}

/// An option of a socket (getsockopt(2)).
pub(super) fn option<T: FromBytes + IntoBytes>(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<T> {
    let (fd, mut value, mut length) = (socket.as_fd().as_raw_fd(), T::new_zeroed(), length_of::<T>());
    let bytes = value.as_mut_bytes().as_mut_ptr();
    // SAFETY: the kernel writes at most `length` bytes, which are those of `value`, and any bytes make a `T`.
    check(unsafe { libc::getsockopt(fd, level, name, bytes.cast(), &raw mut length) })?;
    Ok(value)
}

/// Binds a packet socket to an interface by its index; with a `protocol` (an Ethertype) that is not 0, its frames
/// arrive from now on.
pub(super) fn bind_packet(socket: &impl AsFd, index: i32, protocol: u16) -> io::Result<()> {
    // SAFETY: zeros are a value of this plain structure.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index;
    let (fd, length) = (socket.as_fd().as_raw_fd(), length_of::<libc::sockaddr_ll>());
    // SAFETY: the kernel reads `length` bytes, which are those of `address`.
    check(unsafe { libc::bind(fd, (&raw const address).cast(), length) }).map(drop)
}

/// The index of the interface that a packet socket is bound to; −1 when it has been deleted.
pub(super) fn bound_index(socket: &impl AsFd) -> io::Result<i32> {
    // SAFETY: zeros are a value of this plain structure.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    let (fd, mut length) = (socket.as_fd().as_raw_fd(), length_of::<libc::sockaddr_ll>());
    // SAFETY: the kernel writes at most `length` bytes, which are those of `address`, plain numbers.
    check(unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut length) })?;
    Ok(address.sll_ifindex)
}

/// What can be asked of an interface, or set (netdevice(7)).
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    /// Its index.
    Index,
    /// What its frames are: `ARPHRD_…`.
    Kind,
    /// The longest packet behind the Ethernet header.
    Mtu,
    /// Sets the longest packet.
    SetMtu(i32),
    /// Its `IFF_…` flags.
    Flags,
    /// Sets its flags.
    SetFlags(i16),
    /// On `/dev/net/tun`: makes the interface, or attaches to it, with these flags.
    Attach(i16),
}

/// A request about the interface `name`, without what is asked.
fn about(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: zeros are a value of this plain structure.
    let mut asked: libc::ifreq = unsafe { zeroed() };
    if name.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in asked.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(asked)
}

/// How many queues an interface spreads over what arrives (ETHTOOL_GCHANNELS of `linux/ethtool.h`).
///
/// # Errors
/// There is no such interface, or its driver does not say.
pub(super) fn receive_queues(fd: &impl AsFd, name: &str) -> io::Result<u32> {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    /// `struct ethtool_channels`: the command, four maxima, and the numbers of queues to receive, to send, for other things, and
    /// for both.
    const GET_CHANNELS: [u32; 9] = [0x3c, 0, 0, 0, 0, 0, 0, 0, 0];
    let (mut asked, mut channels) = (about(name)?, GET_CHANNELS);
    asked.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: this command reads and writes the nine numbers that the request points to, and keeps no pointer.
    check(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), SIOCETHTOOL, &raw mut asked) })?;
    Ok(channels[5].saturating_add(channels[8]))
}

/// Asks for something about the interface `name`, or sets it. What is set is returned.
pub(super) fn interface(fd: &impl AsFd, name: &str, request: Request) -> io::Result<i32> {
    let mut asked = about(name)?;
    let number = match request {
        Request::Index => libc::SIOCGIFINDEX,
        Request::Kind => libc::SIOCGIFHWADDR,
        Request::Mtu => libc::SIOCGIFMTU,
        Request::SetMtu(mtu) => {
            asked.ifr_ifru.ifru_mtu = mtu;
            libc::SIOCSIFMTU
        }
        Request::Flags => libc::SIOCGIFFLAGS,
        Request::SetFlags(flags) => {
            asked.ifr_ifru.ifru_flags = flags;
            libc::SIOCSIFFLAGS
        }
        Request::Attach(flags) => {
            asked.ifr_ifru.ifru_flags = flags;
            libc::TUNSETIFF
        }
    };
    // SAFETY: all of these requests read and write one `ifreq` and keep no pointer to it.
    check(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), number, &raw mut asked) })?;
    // SAFETY: the whole union was zeroed, so that its bytes are set, and any bytes make these plain numbers.
    Ok(unsafe {
        match request {
            Request::Index => asked.ifr_ifru.ifru_ifindex,
            Request::Kind => asked.ifr_ifru.ifru_hwaddr.sa_family.into(),
            Request::Mtu | Request::SetMtu(_) => asked.ifr_ifru.ifru_mtu,
            _ => asked.ifr_ifru.ifru_flags.into(),
        }
    })
}

/// Sets how many bytes of header a TAP interface has in front of each frame.
pub(super) fn set_header_length(tap: &impl AsFd, length: u8) -> io::Result<()> {
    let length = libc::c_int::from(length);
    // SAFETY: the request reads one number and keeps no pointer to it.
    check(unsafe { libc::ioctl(tap.as_fd().as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const length) }).map(drop)
}

/// Tells a TAP interface which `TUN_F_…` work on frames is left to whoever reads them.
pub(super) fn leave_offloads(tap: &impl AsFd, offloads: u32) -> io::Result<()> {
    // SAFETY: the argument is a number, not a pointer.
    check(unsafe { libc::ioctl(tap.as_fd().as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) })
        .map(drop)
}

/// Sends the frames of the first few packets (sendmmsg(2)) and returns how many went; never waits.
pub(super) fn send_frames(socket: BorrowedFd<'_>, packets: &[Packet]) -> io::Result<usize> {
    // SAFETY: zeros are a value of these plain structures: null pointers and lengths of 0.
    let (mut pieces, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) = unsafe { zeroed() };
    let count = packets.len().min(BATCH);
    for (packet, (piece, message)) in packets.iter().zip(pieces.iter_mut().zip(&mut messages)) {
        piece.iov_base = packet.frame().as_ptr().cast_mut().cast();
        piece.iov_len = packet.frame().len();
        message.msg_hdr.msg_iov = piece;
        message.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: the first `count` messages point to one piece each, and these to frames that are borrowed until the call
    // returns. The kernel reads frames only.
    let sent = check(unsafe {
        libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT)
    })?;
    Ok(sent.unsigned_abs() as usize)
}
