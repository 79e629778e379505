//! Captures that others made pass the edge chain: real, odd and broken packets, and files that end in damage.
//!
//! They lie in a folder beside the workspace, or where `PANNIER_CAPTURES` says.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use pannier_chains::config::{ChainSpec, Crash, Source};
use pannier_chains::run::InputError;
use pannier_chains::{Outcome, Run};
use pannier_runtime::port::pcap::{CaptureError, Reader};
use pannier_tests::edge;

/// What is done to the chain while it works on a capture.
struct Variant {
    sets: &'static [&'static str],
    /// Nodes that die together in the middle of the capture.
    crash: &'static [usize],
}

const FAULTS: &str = "faults={loss=0.01, duplicate=0.01, reorder=0.01, delay=0.01}";

/// Half of all addresses inside: captures of other people's networks have packets both ways then.
const HALF: &str = "input.inside=[0.0.0.0/1, ::/3]";

const VARIANTS: [Variant; 5] = [
    Variant { sets: &["unit=1", "f=1"], crash: &[2] },
    Variant { sets: &["unit=8", "f=1", FAULTS, "input.undecided=inbound"], crash: &[] },
    Variant { sets: &["unit=8", "f=2", HALF], crash: &[0, 1] },
    Variant { sets: &["unit=1", "f=2", HALF, FAULTS, "limits.mtu=1600"], crash: &[1] },
    Variant { sets: &["unit=32", "burst=32", "f=1", HALF, FAULTS], crash: &[0] },
];

#[test]
fn foreign_captures_pass_the_edge_chain() {
    // Goal: no input breaks a promise. Method: all captures through the example chain, with units of one and eight
    // packets, crashes in the middle and links at fault; each account against what the reader finds in the file.
    let folder = std::env::var_os("PANNIER_CAPTURES")
        .map_or_else(|| edge::root().join("../shared/pcaps"), PathBuf::from);
    let Ok(index) = std::fs::read_to_string(folder.join("index.csv")) else {
        eprintln!("SKIPPED: no captures in {}, set PANNIER_CAPTURES to their folder", folder.display());
        return;
    };
    let specs: Vec<ChainSpec> = VARIANTS.iter().map(|variant| edge::spec(variant.sets)).collect();
    let files = index.lines().skip(1).filter_map(|line| Some(folder.join(line.split(',').next()?)));
    let files = Mutex::new(files);
    let broken = Mutex::new(Vec::new());
    let released = Mutex::new(0);
    let work = || {
        loop {
            let Some(file) = files.lock().expect("taking a name does not panic").next() else { return };
            for (variant, spec) in VARIANTS.iter().zip(&specs) {
                let outcome = catch_unwind(AssertUnwindSafe(|| run(&file, variant, spec)));
                let outcome = outcome.unwrap_or_else(|_| Err("it panics".to_owned()));
                match outcome {
                    Ok(packets) => *released.lock().expect("adding does not panic") += packets,
                    Err(what) => {
                        let what = format!("{} with {:?}: {what}", file.display(), variant.sets);
                        broken.lock().expect("pushing does not panic").push(what);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    let broken = broken.into_inner().expect("nobody panicked");
    assert!(broken.is_empty(), "{} runs break promises:\n{}", broken.len(), broken.join("\n"));
    let released = released.into_inner().expect("nobody panicked");
    assert!(released > 100_000, "only {released} packets were released, which shows little");
}

/// What a reader finds in a file.
struct Contents {
    packets: u64,
    error: Option<CaptureError>,
    truncated: bool,
}

/// Reads a capture to its end or its damage; an error where not even its beginning is one.
fn contents(file: &Path) -> Result<Contents, CaptureError> {
    let mut reader = Reader::open(file)?;
    let (mut packets, mut frame) = (0, Vec::new());
    let error = loop {
        match reader.next(&mut frame) {
            Ok(Some(_)) => packets += 1,
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    Ok(Contents { packets, error, truncated: reader.truncated().is_some() })
}

/// Runs a capture, checks the account, and returns how many packets were released.
fn run(file: &Path, variant: &Variant, spec: &ChainSpec) -> Result<u64, String> {
    let contents = contents(file);
    let middle = contents.as_ref().map_or(0, |contents| contents.packets / 2);
    let mut spec = spec.clone();
    spec.input.sources = vec![Source { side: None, file: file.to_owned() }];
    spec.crashes = variant.crash.iter().map(|&node| Crash { packet: middle, node }).collect();
    let (contents, outcome) = match (contents, Run::from(spec).start()) {
        (Ok(contents), Ok(outcome)) => (contents, outcome),
        (Err(found), Err(said)) if found.to_string() == said.to_string() => return Ok(0),
        // Damage in front of the first packet: there is nothing to run.
        (Ok(Contents { packets: 0, error: Some(found), .. }), Err(said))
            if found.to_string() == said.to_string() =>
        {
            return Ok(0);
        }
        (Ok(_), Err(said)) => return Err(format!("it does not run: {said}")),
        (Err(found), _) => return Err(format!("it runs, although {found}")),
    };
    check(&contents, &outcome, variant)?;
    Ok(outcome.summary.packets.released)
}

fn check(contents: &Contents, outcome: &Outcome, variant: &Variant) -> Result<(), String> {
    let summary = &outcome.summary;
    let packets = summary.packets;
    if !outcome.broken.is_empty() || !packets.is_balanced() || packets.held > 0 {
        return Err(format!("{:?} {packets:?}", outcome.broken));
    }
    // No packet of a link type that can't be carried enters, and the run says so at the first.
    if matches!(outcome.input_error, Some(InputError::Link { .. })) && packets.entered == 0 {
        return Ok(());
    }
    if summary.recoveries.len() != variant.crash.len() {
        return Err(format!("{} nodes crashed: {:?}", variant.crash.len(), summary.recoveries));
    }
    if summary.warnings.iter().any(|warning| warning.contains("damaged")) {
        return Err(format!("the chain damages its own messages: {:?}", summary.warnings));
    }
    let found = (contents.packets, contents.error.as_ref().map(ToString::to_string), contents.truncated);
    let took =
        (packets.entered, outcome.input_error.as_ref().map(ToString::to_string), summary.truncated_input);
    if found == took { Ok(()) } else { Err(format!("the file holds {found:?}, the run took {took:?}")) }
}

#[test]
fn the_last_packet_in_front_of_damage_enters() {
    // Goal: a run takes what a reader delivers. Method: the example capture with an impossible block behind it.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("damaged.pcapng");
    let mut bytes =
        std::fs::read(edge::root().join("chains/configs/edge.pcapng")).expect("the capture is there");
    bytes.extend([6, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]); // a packet block of 7 bytes
    std::fs::write(&file, bytes).expect("the folder takes it");
    let whole = edge::packets(&edge::spec(&[])).len() as u64;
    let outcome =
        Run::from(edge::spec(&[&format!("input.read={}", file.display())])).start().expect("it runs");
    assert!(matches!(outcome.input_error, Some(InputError::Capture(CaptureError::Corrupt { .. }))));
    assert_eq!((outcome.summary.packets.entered, outcome.broken), (whole, Vec::new()));
}
