//! DPDK's environment (the EAL), started once per process, and the devices that are plugged into it one by one.
#![allow(unsafe_code, reason = "calls C; each call stands alone in its block")]

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pannier_dpdk_sys as sys;

use super::Trouble;

/// Free huge pages, in bytes, from which on the EAL takes its memory from them: about six ports.
const HUGE_ENOUGH: u64 = 64 << 20;
/// Memory for all ports where there are no huge pages, in mebibytes: about thirty ports, since each buffer then has a
/// page of its own. What is not used is not touched.
const PLAIN_MEBIBYTES: u32 = 512;

/// The bus of devices that are drivers alone.
const BUS: &CStr = c"vdev";

/// Plugging is one at a time, and so is listening to what drivers say about it.
static PLUGGING: Mutex<()> = Mutex::new(());

/// Starts the EAL if nothing has started it yet.
///
/// It starts in a thread of its own, which then ends: the EAL pins its main thread to one processor, and none of ours
/// shall be that one. The EAL itself is there until the process ends. It leaves nothing on disk but, where there are no
/// huge pages, an empty folder below `/var/run/dpdk`.
pub(super) fn start() -> Result<(), Trouble> {
    static STARTED: OnceLock<Result<(), Trouble>> = OnceLock::new();
    let start = || {
        let booted = std::thread::Builder::new().name("dpdk".to_owned()).spawn(boot);
        let booted = booted
            .map_err(|error| error.to_string())
            .and_then(|thread| thread.join().map_err(|_| "the thread that starts it panicked".to_owned()));
        booted.unwrap_or_else(|error| Err(Trouble::new(format!("DPDK does not start: {error}"), "try again")))
    };
    STARTED.get_or_init(start).clone()
}

fn boot() -> Result<(), Trouble> {
    let _guard = plugging();
    // SAFETY: no argument, no memory.
    let processor = unsafe { sys::pannier_processor() };
    let words = arguments(free_huge_pages(), processor.max(0));
    let words = words.into_iter().map(|word| CString::new(word).expect("the words have no zero byte"));
    // The EAL keeps them as long as the process lives.
    let words: &mut [*mut c_char] =
        words.map(CString::into_raw).chain([ptr::null_mut()]).collect::<Vec<_>>().leak();
    let count = i32::try_from(words.len() - 1).expect("a dozen words");
    // SAFETY: `count` words that end by zero, and a null pointer behind them; all live for ever.
    let (result, said) = overhear(|| unsafe { sys::rte_eal_init(count, words.as_mut_ptr()) });
    if result >= 0 {
        return Ok(());
    }
    let why = if said.is_empty() { last_error() } else { said };
    let way_out = "leave it 512 MiB of memory, or reserve huge pages with `sysctl -w vm.nr_hugepages=128`";
    Err(Trouble::new(format!("DPDK does not start: {why}"), way_out))
}

/// The EAL's command line. Devices come later, one by one; one processor is enough, since it starts no thread of ours.
fn arguments(free_huge_pages: u64, processor: i32) -> Vec<String> {
    let words = ["pannier", "--no-pci", "--no-telemetry", "--iova-mode=va", "--log-level=error"];
    let mut words: Vec<String> = words.map(str::to_owned).into();
    words.push(format!("--lcores=0@{processor}"));
    if free_huge_pages >= HUGE_ENOUGH {
        words.push("--in-memory".to_owned());
    } else {
        words.extend(["--no-huge", "--no-shconf", "-m"].map(str::to_owned));
        words.push(PLAIN_MEBIBYTES.to_string());
    }
    words
}

/// Bytes in huge pages that nobody uses.
fn free_huge_pages() -> u64 {
    let Ok(sizes) = std::fs::read_dir("/sys/kernel/mm/hugepages") else { return 0 };
    let free = |size: std::fs::DirEntry| {
        let name = size.file_name().into_string().ok()?;
        let kibibytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let free = std::fs::read_to_string(size.path().join("free_hugepages")).ok()?;
        Some(kibibytes * 1_024 * free.trim().parse::<u64>().ok()?)
    };
    sizes.flatten().filter_map(free).sum()
}

/// Plugs a device in and returns the number of its port.
pub(super) fn plug(name: &CStr, options: &CStr) -> Result<u16, Trouble> {
    let _guard = plugging();
    if port_of(name).is_some() {
        let way_out = "close it first, or give the device another number, as in net_null1";
        return Err(Trouble::new("a port with this device is open", way_out));
    }
    // SAFETY: three strings that end by zero; they are copied.
    let plug = || unsafe { sys::rte_eal_hotplug_add(BUS.as_ptr(), name.as_ptr(), options.as_ptr()) };
    let (result, said) = overhear(plug);
    if result >= 0 {
        return port_of(name).ok_or_else(|| {
            remove(name);
            Trouble::new("this device has no port", "name a network device, as in net_null0")
        });
    }
    if said.contains("failed to parse device") {
        let way_out =
            "name one with its number, as in net_pcap0, and install its package (Debian: librte-net-…)";
        return Err(Trouble::new("DPDK has no driver of this name", way_out));
    }
    let why = if said.is_empty() || said.starts_with("EAL: ") { "its options".to_owned() } else { said };
    let way_out = "check its options, that the interface or file exists, and the right to open it (root for interfaces)";
    Err(Trouble::new(format!("the driver refuses: {why}"), way_out))
}

/// Starts a port that is plugged in, with buffers from `pool`. Returns whether it sends frames in chains of buffers.
///
/// # Safety
/// The pool must outlive the port.
pub(super) unsafe fn start_port(
    port: u16,
    pool: NonNull<sys::rte_mempool>,
    descriptors: u16,
) -> Result<bool, Trouble> {
    let _guard = plugging();
    let mut chains = false;
    // SAFETY: the port exists and is not started; the pool is one, and lives long enough, as the caller says.
    let start = || unsafe { sys::pannier_start(port, pool.as_ptr(), descriptors, &raw mut chains) };
    let (error, said) = overhear(start);
    if error == 0 {
        return Ok(chains);
    }
    let why = if said.is_empty() { describe(-error) } else { said };
    let way_out = "use a device with a queue each way, bring its interface up, or give it more `buffers`";
    Err(Trouble::new(format!("the port does not start: {why}"), way_out))
}

/// Takes a device out again.
pub(super) fn unplug(name: &CStr) {
    let _guard = plugging();
    remove(name);
}

fn remove(name: &CStr) {
    // SAFETY: two strings that end by zero. An error leaves the device where it is, which harms nobody.
    let _ = unsafe { sys::rte_eal_hotplug_remove(BUS.as_ptr(), name.as_ptr()) };
}

fn port_of(name: &CStr) -> Option<u16> {
    let mut port = 0;
    // SAFETY: a string that ends by zero, and a number to write to.
    let result = unsafe { sys::rte_eth_dev_get_port_by_name(name.as_ptr(), &raw mut port) };
    (result == 0).then_some(port)
}

/// A panic in another thread while it was plugging leaves nothing that a later one could trip over.
fn plugging() -> MutexGuard<'static, ()> {
    PLUGGING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `call`, and returns the first line that DPDK logged meanwhile, without the name of the C function that wrote it.
/// Nothing of it is printed.
fn overhear<T>(call: impl FnOnce() -> T) -> (T, String) {
    // SAFETY: no argument; the shim has its own lock.
    unsafe { sys::pannier_log_keep() }
    let result = call();
    let mut line = [0_u8; 256];
    // SAFETY: as many bytes to write to as are named.
    unsafe { sys::pannier_log_first(line.as_mut_ptr().cast(), line.len()) }
    let line = CStr::from_bytes_until_nul(&line).map(CStr::to_string_lossy).unwrap_or_default();
    let said = line.split_once("(): ").map_or(&*line, |(_, said)| said).trim().to_owned();
    (result, said)
}

/// What DPDK calls an error number.
fn describe(error: i32) -> String {
    // SAFETY: returns a string of DPDK's or of this thread's, which is copied before the thread asks again.
    let words = unsafe { CStr::from_ptr(sys::rte_strerror(error)) };
    words.to_string_lossy().into_owned()
}

/// What this thread's last call to DPDK has failed for.
pub(super) fn last_error() -> String {
    // SAFETY: reads a number of this thread's.
    describe(unsafe { sys::pannier_errno() })
}

/// A thread's place among DPDK's threads: pools keep a cache of buffers for each of these.
struct Registered(Cell<bool>);

impl Drop for Registered {
    fn drop(&mut self) {
        if self.0.get() {
            // SAFETY: this thread is registered. There are 128 places; the next thread gets this one.
            unsafe { sys::rte_thread_unregister() }
        }
    }
}

thread_local! {
    static REGISTERED: Registered = {
        // SAFETY: the EAL is started, since there are ports. Where no place is free, pools work without a cache.
        let registered = unsafe { sys::rte_thread_register() } == 0;
        Registered(Cell::new(registered))
    };
}

/// Tells DPDK about this thread, the first time. (A thread that is ending has been told about.)
pub(super) fn enter() {
    let _ = REGISTERED.try_with(|_| ());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_from_huge_pages_or_not_but_never_from_both() {
        // Goal: the EAL refuses `--in-memory` with `--no-huge`. Method: look for both words, around the bound.
        for (free, huge) in [(0, false), (HUGE_ENOUGH - 1, false), (HUGE_ENOUGH, true), (u64::MAX, true)] {
            let words = arguments(free, 1);
            assert_eq!(words.iter().any(|word| word == "--in-memory"), huge, "{free}");
            assert_eq!(words.iter().any(|word| word == "--no-huge"), !huge, "{free}");
        }
    }
}
