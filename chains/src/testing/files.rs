//! Files: the trace and the fault plan of a failure, to look at and to run again.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pannier_runtime::Direction;
use pannier_runtime::port::pcap::{CaptureError, InterfaceDescription, Reader, Writer};
use pannier_runtime::testing::{CrashAt, FaultPlan, Trace, TraceFrame};

/// The interface of a frame is the side that it comes from.
const SIDES: [InterfaceDescription<'static>; 2] = [
    InterfaceDescription { name: "inside", description: Some("outbound packets, as they entered") },
    InterfaceDescription { name: "outside", description: Some("inbound packets, as they entered") },
];

/// Reads a trace from a capture. Packets of an interface named `outside` are inbound, all others outbound; so are
/// those of the capture that a failure has written.
///
/// # Errors
/// A file that can't be read, or is no capture. Packets of other link types than Ethernet and IP are left out.
pub fn read_trace(path: impl AsRef<Path>) -> Result<Trace, CaptureError> {
    let mut reader = Reader::open(path.as_ref())?;
    let (mut trace, mut frame) = (Trace::default(), Vec::new());
    while let Some(captured) = reader.next(&mut frame)? {
        let interface = reader.interfaces().get(captured.interface as usize);
        let is_outside = interface.is_some_and(|interface| interface.name.as_deref() == Some("outside"));
        let direction = if is_outside { Direction::Inbound } else { Direction::Outbound };
        if captured.link.to_ethernet(&mut frame).is_ok() {
            trace.0.push(TraceFrame { time: captured.time, direction, bytes: frame.clone() });
        }
    }
    Ok(trace)
}

/// How a run was set up, as far as a schedule must say it.
pub(super) struct Setup<'a> {
    pub(super) f: usize,
    pub(super) partitions: usize,
    pub(super) faults: &'a FaultPlan,
    pub(super) may_refuse: &'a BTreeSet<String>,
    pub(super) message: &'a str,
}

/// Writes `trace.pcapng` and `schedule.txt` into a fresh folder below `root`, and returns where.
pub(super) fn write(root: &Path, frames: &[TraceFrame], setup: &Setup<'_>) -> io::Result<(PathBuf, PathBuf)> {
    let folder = fresh_folder(root)?;
    let (capture, schedule) = (folder.join("trace.pcapng"), folder.join("schedule.txt"));
    let mut writer = Writer::create(&capture, &SIDES)?;
    for TraceFrame { time, direction, bytes } in frames {
        let interface = u32::from(*direction == Direction::Inbound);
        writer.write(interface, *time, bytes, 0)?;
    }
    writer.finish()?;
    fs::write(&schedule, schedule_text(setup, &capture))?;
    Ok((capture, schedule))
}

/// Where failures go if nobody says: below the `target` folder of the running test, else with temporary files.
pub(super) fn default_root() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    let target = exe.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    target.map_or_else(std::env::temp_dir, Path::to_path_buf).join("pannier-failures")
}

/// A folder that was not there, named after the running test and a number.
fn fresh_folder(root: &Path) -> io::Result<PathBuf> {
    fs::create_dir_all(root)?;
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("run").replace(|c: char| !c.is_alphanumeric(), "_");
    let mut number = 1;
    loop {
        let folder = root.join(format!("{name}-{number}"));
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|()| folder),
        }
    }
}

/// The schedule: what happened, and the lines of Rust that run it again.
fn schedule_text(setup: &Setup<'_>, capture: &Path) -> String {
    let FaultPlan { seed, links, crashes } = setup.faults;
    let mut text = String::new();
    for line in setup.message.lines() {
        let _ = writeln!(text, "// {}", line.trim_end()); // into memory
    }
    let crash = |CrashAt { node, packet }: &CrashAt| format!("CrashAt {{ node: {node}, packet: {packet} }}");
    let crashes: Vec<String> = crashes.iter().map(crash).collect();
    let _ = write!(
        text,
        "//\n\
         // To run it again, put this into a test and name your network function:\n\
         use pannier_chains::testing::{{Survival, read_trace}};\n\
         use pannier_runtime::port::Faults;\n\
         use pannier_runtime::testing::{{CrashAt, FaultPlan}};\n\n\
         let trace = read_trace({capture:?}).unwrap();\n\
         let links = {links:?};\n\
         let crashes = vec![{}];\n\
         let faults = FaultPlan {{ seed: {seed}, links, crashes }};\n\
         Survival::of(|| my_nf()).f({}).partitions({}){}.trace(&trace).faults(&faults).run().unwrap();\n",
        crashes.join(", "),
        setup.f,
        setup.partitions,
        setup.may_refuse.iter().map(|table| format!(".may_refuse({table:?})")).collect::<String>(),
    );
    text
}
