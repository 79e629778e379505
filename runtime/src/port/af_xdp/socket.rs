//! Sockets of AF_XDP, and memory that is mapped for them.
#![allow(unsafe_code)] // system calls that the standard library does not have

use std::ffi::c_int;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

/// Memory from mmap(2), readable and writable. It is unmapped when it is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and only its owner uses it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// `length` bytes of fresh zeros.
    pub(super) fn anonymous(length: usize) -> io::Result<Mapping> {
        Mapping::new(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    fn new(length: usize, flags: c_int, fd: c_int, offset: u64) -> io::Result<Mapping> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let start = unsafe { libc::mmap64(ptr::null_mut(), length, access, flags, fd, offset.cast_signed()) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at address 0 unasked");
        Ok(Mapping { start, length })
    }

    /// Its first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length in bytes.
    pub(super) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever borrowed from it is gone.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// The value of a socket option.
///
/// # Safety
/// Any bytes are a value, zeros too: a number, or a struct of numbers.
unsafe trait Numbers: Copy {}

// SAFETY: a number.
unsafe impl Numbers for c_int {}
// SAFETY: a number.
unsafe impl Numbers for u32 {}
// SAFETY: a struct of numbers.
unsafe impl Numbers for libc::xdp_umem_reg {}
// SAFETY: a struct of structs of numbers.
unsafe impl Numbers for libc::xdp_mmap_offsets {}
// SAFETY: a struct of a number.
unsafe impl Numbers for libc::xdp_options {}
// SAFETY: a struct of numbers.
unsafe impl Numbers for libc::xdp_statistics {}

/// An AF_XDP socket.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// A socket that is not bound yet.
    pub(super) fn open() -> io::Result<Socket> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        // SAFETY: a descriptor that the kernel just gave, and that nobody else has.
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(Socket(unsafe { OwnedFd::from_raw_fd(fd) })) }
    }

    /// Lets the kernel write to and read from `memory`, cut into chunks of `chunk` bytes.
    pub(super) fn register(&self, memory: &Mapping, chunk: u32) -> io::Result<()> {
        let region = libc::xdp_umem_reg {
            addr: memory.start().as_ptr() as u64,
            len: memory.length() as u64,
            chunk_size: chunk,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &region)
    }

    /// Lets bursts wait in the kernel whatever the system's default for sockets is.
    pub(super) fn set_send_buffer(&self, bytes: c_int) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
    }

    /// Makes the ring that the option `ring` names, with `entries` entries.
    pub(super) fn make_ring(&self, ring: c_int, entries: u32) -> io::Result<()> {
        self.set(libc::SOL_XDP, ring, &entries)
    }

    /// Where the parts of the rings are in their mappings.
    pub(super) fn offsets(&self) -> io::Result<libc::xdp_mmap_offsets> {
        self.get(libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
    }

    /// Maps the first `length` bytes of the ring at `offset`.
    pub(super) fn map(&self, length: usize, offset: u64) -> io::Result<Mapping> {
        Mapping::new(length, libc::MAP_SHARED | libc::MAP_POPULATE, self.0.as_raw_fd(), offset)
    }

    /// Binds it to a queue of an interface.
    pub(super) fn bind(&self, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let length = size_of::<libc::sockaddr_xdp>() as u32;
        // SAFETY: the address is alive and as long as is said.
        check(unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), length) })
    }

    /// Whether the driver reads and writes the chunks itself.
    pub(super) fn is_zero_copy(&self) -> io::Result<bool> {
        let options: libc::xdp_options = self.get(libc::SOL_XDP, libc::XDP_OPTIONS)?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// What the kernel has counted.
    pub(super) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        self.get(libc::SOL_XDP, libc::XDP_STATISTICS)
    }

    /// The error that waits on the socket: there is one when its interface is gone.
    pub(super) fn pending_error(&self) -> io::Result<()> {
        match self.get::<c_int>(libc::SOL_SOCKET, libc::SO_ERROR)? {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Makes the kernel look at the ring of frames to send.
    pub(super) fn wake_sender(&self) -> io::Result<()> {
        // SAFETY: an empty message: no pointer is followed.
        let sent =
            unsafe { libc::sendto(self.0.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        check(sent as c_int)
    }

    /// Makes the kernel look at the ring of free chunks.
    pub(super) fn wake_receiver(&self) -> io::Result<()> {
        let (fd, flags) = (self.0.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: room for no byte: no pointer is followed.
        let got = unsafe { libc::recvfrom(fd, ptr::null_mut(), 0, flags, ptr::null_mut(), ptr::null_mut()) };
        check(got as c_int)
    }

    /// The descriptor.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.0.as_fd()
    }

    fn set<T: Numbers>(&self, level: c_int, name: c_int, value: &T) -> io::Result<()> {
        let value: *const T = value;
        let length = size_of::<T>() as u32;
        // SAFETY: the value is alive and as long as is said.
        check(unsafe { libc::setsockopt(self.0.as_raw_fd(), level, name, value.cast(), length) })
    }

    fn get<T: Numbers>(&self, level: c_int, name: c_int) -> io::Result<T> {
        // SAFETY: all zeros is a value of any `Numbers`.
        let mut value: T = unsafe { zeroed() };
        let mut length = size_of::<T>() as u32;
        let place = (&raw mut value).cast();
        // SAFETY: the kernel writes at most `length` bytes, `value` has them, and may hold any.
        check(unsafe { libc::getsockopt(self.0.as_raw_fd(), level, name, place, &raw mut length) })?;
        Ok(value)
    }
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
