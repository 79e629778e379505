//! Network namespaces of a test's own: made, joined with veth pairs, entered, and deleted again.
//!
//! ```ignore
//! let Some(line) = Line::new() else { return };           // has said why it skips
//! let port = line.chain.run(|| open("af_packet:inside")); // a port stays in the namespace it was opened in
//! ```
#![allow(unsafe_code)] // a thread is moved to another namespace, and calls that std has no name for

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use pannier_runtime::port::Device;

/// Namespaces made so far: their names differ.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A network namespace without interfaces but `lo`. It goes, with its interfaces, when this value does.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace; `None`, said aloud, without root or `ip`.
    pub(crate) fn new() -> Option<Namespace> {
        let is_root =
            fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
        if !is_root || Command::new("ip").arg("-V").output().is_err() {
            eprintln!("SKIPPED: network namespaces need root and the program `ip` (Debian: iproute2)");
            return None;
        }
        let namespace =
            Namespace { name: format!("pannier-{}-{}", id(), MADE.fetch_add(1, Ordering::Relaxed)) };
        ip(&format!("netns add {}", namespace.name));
        namespace.ip("link set dev lo up");
        Some(namespace)
    }

    /// Does `work` in the namespace, on a thread of its own.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                self.enter();
                work()
            });
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread into the namespace. It cannot go back.
    pub(crate) fn enter(&self) {
        let file = File::open(format!("/run/netns/{}", self.name)).expect("the namespace is there");
        // SAFETY: the call takes numbers only and concerns the calling thread alone.
        let result = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    /// Runs `ip` in the namespace.
    pub(crate) fn ip(&self, words: &str) {
        ip(&format!("-n {} {words}", self.name));
    }

    /// A program to be run in the namespace.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Keeps the kernel from sending frames of IPv6 by itself on interfaces that are made from now on.
    pub(crate) fn without_ipv6(self) -> Namespace {
        self.run(|| fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("IPv6 can be off"));
        self
    }

    /// Frames that the kernel has received on an interface, super-frames counted once.
    pub(crate) fn frames_received(&self, interface: &str) -> u64 {
        self.count(interface, 1)
    }

    /// Frames that the kernel has sent on an interface, super-frames counted once.
    pub(crate) fn frames_sent(&self, interface: &str) -> u64 {
        self.count(interface, 9)
    }

    /// A column of the kernel's table of interfaces (proc_net_dev(5)).
    fn count(&self, interface: &str, column: usize) -> u64 {
        let table = self.run(|| fs::read_to_string("/proc/thread-self/net/dev").expect("there is a table"));
        let line = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{interface}:")));
        let field =
            line.and_then(|line| line.split_whitespace().nth(column)).expect("the interface is listed");
        field.parse().expect("it is a number")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let deleted = Command::new("ip").args(["netns", "del", &self.name]).status();
        if !deleted.is_ok_and(|status| status.success()) {
            eprintln!("the namespace {} could not be deleted", self.name);
        }
    }
}

/// Runs `ip` and wants it to succeed.
fn ip(words: &str) {
    let output =
        Command::new("ip").args(words.split_whitespace()).output().expect("there is the program `ip`");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Joins two namespaces with a veth pair, both ends up.
pub(crate) fn join(one: (&Namespace, &str), other: (&Namespace, &str)) {
    join_with(one, other, "");
}

/// As [`join`], with further words for both ends.
fn join_with((one, a): (&Namespace, &str), (other, b): (&Namespace, &str), words: &str) {
    let end = |name: &str, of: &Namespace| format!("name {name} {words} netns {}", of.name);
    ip(&format!("link add {} type veth peer {}", end(a, one), end(b, other)));
    one.ip(&format!("link set dev {a} up"));
    other.ip(&format!("link set dev {b} up"));
}

/// A client and a server with a chain between them, all offloads as the kernel has them:
///
/// ```text
/// client wire ── inside chain outside ── wire server
/// ```
#[derive(Debug)]
pub(crate) struct Line {
    /// Has the addresses [`Line::CLIENT`].
    pub(crate) client: Namespace,
    /// Forwards nothing by itself.
    pub(crate) chain: Namespace,
    /// Has the addresses [`Line::SERVER`].
    pub(crate) server: Namespace,
}

impl Line {
    /// The client's addresses.
    pub(crate) const CLIENT: [&str; 2] = ["10.77.0.1", "fd77::1"];
    /// The server's.
    pub(crate) const SERVER: [&str; 2] = ["10.77.0.2", "fd77::2"];

    /// Makes all three; `None` as [`Namespace::new`].
    pub(crate) fn new() -> Option<Line> {
        Line::with("")
    }

    /// As [`Line::new`], with two queues each way at each interface.
    pub(crate) fn of_two_queues() -> Option<Line> {
        Line::with("numrxqueues 2 numtxqueues 2")
    }

    fn with(words: &str) -> Option<Line> {
        let chain = Namespace::new()?.without_ipv6();
        let line = Line { client: Namespace::new()?, chain, server: Namespace::new()? };
        join_with((&line.client, "wire"), (&line.chain, "inside"), words);
        join_with((&line.server, "wire"), (&line.chain, "outside"), words);
        address(&line.client, "wire", Line::CLIENT);
        address(&line.server, "wire", Line::SERVER);
        Some(line)
    }
}

/// Gives an interface addresses of both versions of IP.
pub(crate) fn address(namespace: &Namespace, interface: &str, [v4, v6]: [&str; 2]) {
    namespace.ip(&format!("address add {v4}/24 dev {interface}"));
    namespace.ip(&format!("address add {v6}/64 dev {interface} nodad"));
}

/// Sleeps until one of the ports has frames, `milliseconds` at most, and returns how many have.
pub(crate) fn sleep_on(ports: &[&Device], milliseconds: i32) -> i32 {
    let wake = |port: &&Device| {
        let fd = port.wake_fd()?.as_raw_fd();
        Some(libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
    };
    let mut fds: Vec<libc::pollfd> = ports.iter().filter_map(wake).collect();
    // A port that must be polled lets nobody sleep.
    let milliseconds = if fds.len() < ports.len() { 0 } else { milliseconds };
    loop {
        // SAFETY: the kernel writes into as many entries as there are.
        let count = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, milliseconds) };
        // Whoever stops this process and lets it go on ends the wait (signal(7)).
        if count >= 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return count;
        }
    }
}

/// Does `work` on a thread of its own without any rights.
pub(crate) fn without_rights<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            // SAFETY: the call takes numbers only; made directly, it concerns the calling thread alone.
            let result = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
            work()
        });
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Lets the kernel cut what is sent into datagrams of `size` bytes, as late as it can.
pub(crate) fn segment(socket: &UdpSocket, size: libc::c_int) {
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, size);
}

/// Lets half a megabyte at most be under way to a TCP socket, and to those that a listener gets: a port's ring has room for it,
/// however late whoever empties it is run.
pub(crate) fn limit_window(socket: &impl AsRawFd) {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 1 << 18); // of which the kernel makes twice as much
}

/// Sends a frame on an interface of this thread's namespace, a virtio network header in front of it.
pub(crate) fn send_with_header(interface: &str, header_and_frame: &[u8]) {
    let name = CString::new(interface).expect("the name has no zero");
    // SAFETY: the name ends with a zero, and is there until the call returns.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    // SAFETY: the call takes numbers only, and the kernel has just made the descriptor that it returns.
    let socket = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)) };
    set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1);
    // SAFETY: zeros are a value of this plain structure.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    (address.sll_family, address.sll_ifindex) = (libc::AF_PACKET as u16, index.cast_signed());
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes, which are those of `address`.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    File::from(socket).write_all(header_and_frame).expect("the interface takes the frame");
}

/// A TAP interface of this thread's namespace, for frames with a virtio network header in front of each.
pub(crate) fn raw_tap(interface: &str) -> File {
    let tap = File::options().read(true).write(true).open("/dev/net/tun").expect("there are TAP interfaces");
    // SAFETY: zeros are a value of this plain structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as i16;
    // SAFETY: the request reads and writes one `ifreq` and keeps no pointer to it.
    let result = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    tap
}

/// Sets an option of a socket.
fn set(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes, which are those of `value`.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
