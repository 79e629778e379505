//! Maps, programs and links by bpf(2).
#![allow(unsafe_code)] // a system call that the standard library does not have

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::socket::Socket;

/// The commands and numbers of bpf(2) that are used here (linux/bpf.h).
mod number {
    pub(super) const MAP_CREATE: i32 = 0;
    pub(super) const MAP_UPDATE_ELEM: i32 = 2;
    pub(super) const PROG_LOAD: i32 = 5;
    pub(super) const LINK_CREATE: i32 = 28;
    pub(super) const MAP_TYPE_XSKMAP: u32 = 17;
    pub(super) const PROG_TYPE_XDP: u32 = 6;
    pub(super) const ATTACH_XDP: u32 = 37;
}

/// A map from queues to AF_XDP sockets, for queues below `entries`.
pub(super) fn create_socket_map(entries: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    let map_type = number::MAP_TYPE_XSKMAP;
    // SAFETY: no pointers in the attributes.
    unsafe {
        bpf_fd(number::MAP_CREATE, &Attributes { map_type, key_size: 4, value_size: 4, max_entries: entries })
    }
}

/// Puts a socket into such a map.
pub(super) fn set_socket(map: &OwnedFd, queue: u32, socket: &Socket) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        map: u32,
        unused: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let value = socket.fd().as_raw_fd();
    let attributes = Attributes {
        map: map.as_raw_fd().cast_unsigned(),
        unused: 0,
        key: (&raw const queue) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    // SAFETY: key and value are alive, and have the four bytes that the map was made for.
    unsafe { bpf_call(number::MAP_UPDATE_ELEM, &attributes) }.map(drop)
}

/// Loads an XDP program. The kernel's verifier refuses any that could do harm.
pub(super) fn load_program(instructions: &[[u8; 8]]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        program_type: u32,
        count: u32,
        instructions: u64,
        license: u64,
    }
    let attributes = Attributes {
        program_type: number::PROG_TYPE_XDP,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"MIT OR Apache-2.0".as_ptr() as u64,
    };
    // SAFETY: the instructions are alive and as many as is said, the licence is alive and ends with a zero.
    unsafe { bpf_fd(number::PROG_LOAD, &attributes) }
}

/// Attaches a program to an interface, for as long as the returned link is open.
pub(super) fn attach(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let program = program.as_raw_fd().cast_unsigned();
    // SAFETY: no pointers in the attributes.
    unsafe {
        bpf_fd(
            number::LINK_CREATE,
            &Attributes { program, interface, attach_type: number::ATTACH_XDP, flags },
        )
    }
}

/// bpf(2) for commands that return a descriptor.
///
/// # Safety
/// As for [`bpf_call`].
unsafe fn bpf_fd<T>(command: c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise; and a descriptor that the kernel just gave, that nobody else has.
    unsafe { bpf_call(command, attributes).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// bpf(2).
///
/// # Safety
/// `T` is laid out as the command's part of `union bpf_attr` begins, and what it points to is alive and of the right
/// size. The kernel takes the rest as zeros.
unsafe fn bpf_call<T>(command: c_int, attributes: &T) -> io::Result<c_int> {
    let attributes: *const T = attributes;
    // SAFETY: the attributes are alive and as long as is said; the caller answers for what they point to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>() as u32) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as c_int) }
}
