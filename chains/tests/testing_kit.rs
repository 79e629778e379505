//! The testing kit: each planted bug is caught with its cause named, and what is sound survives.

#[path = "../examples/planted_bugs/bugs.rs"]
mod bugs;

use std::fs;

use pannier_chains::testing::{Cause, Failure, Survival, read_trace, survives};
use pannier_nf::{FirewallConfig, MonitorConfig, NatConfig, firewall, monitor, nat};
use pannier_runtime::clock::SECOND;
use pannier_runtime::port::Faults;
use pannier_runtime::state::{Layout, State};
use pannier_runtime::testing::{CrashAt, FaultPlan, Trace, TraceFrame};
use pannier_runtime::wire::FrameBuilder;
use pannier_runtime::{Abort, Direction, Frame, Nf, Txn, TxnResult, Verdict, nf, state};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// Catches a planted bug by its cause; the message must say all that helps to find it, and the files bring it again.
#[track_caller]
fn caught<N: Nf>(
    cause: Cause,
    words: &[&str],
    factory: impl Fn() -> N + Clone + Send + Sync + 'static,
) -> Failure {
    let folder = tempfile::tempdir().expect("a folder");
    let survival = Survival::of(factory.clone()).trace(&bugs::trace()).faults(&bugs::faults());
    let failure = survival.dump_to(folder.path()).run().expect_err("the bug is caught");
    let message = failure.to_string();
    assert_eq!(failure.cause, cause, "{message}");
    assert_eq!(format!("{failure:?}"), message, "unwrap must print the message");
    let lines =
        ["  seen  ", "  way out  ", "  packet  ", "  flow  ", "  bytes  ", "  capture  ", "  schedule  "];
    for word in lines.iter().chain(words) {
        assert!(message.contains(word), "{word:?} is not in:\n{message}");
    }
    let trace = files_are_readable(&failure);
    let again = Survival::of(factory).trace(&trace).faults(&bugs::faults()).without_files().run();
    assert_eq!(again.expect_err("it comes again").cause, cause);
    failure
}

/// The capture is the trace up to the packet, and the schedule says how to run it again.
#[track_caller]
fn files_are_readable(failure: &Failure) -> Trace {
    let details = &failure.details;
    let capture = details.capture.as_ref().expect("files were written");
    let trace = read_trace(capture).expect("a capture");
    let number = details.packet.as_ref().expect("it is about a packet").number;
    assert_eq!(trace.0, bugs::trace().0[..=number]);
    let schedule = fs::read_to_string(details.schedule.as_ref().expect("files were written")).expect("text");
    let FaultPlan { seed, links, crashes } = bugs::faults();
    for words in [format!("seed: {seed}, links, crashes"), format!("let links = {links:?};")]
        .into_iter()
        .chain(crashes.iter().map(|crash| format!("{crash:?}")))
        .chain([format!("read_trace({capture:?})"), ".f(1).partitions(8)".to_owned()])
    {
        assert!(schedule.contains(&words), "{words:?} is not in:\n{schedule}");
    }
    trace
}

const ROW: [&str; 4] = ["table `by_host`, key ", "  expected  ", "  found  ", "(the first run)"];

#[test]
fn a_clock_of_the_operating_system_is_named() {
    // Goal: whoever asks the wrong clock hears so. Method: microseconds, a stopwatch, and whole seconds;
    // and clocks that no outcome shows.
    caught(Cause::Clock, &ROW, bugs::reads_the_system_clock);
    caught(Cause::Clock, &ROW, bugs::keeps_a_stopwatch);
    caught(Cause::Clock, &["drop: too_late"], bugs::gives_up_after_a_while);
    caught(Cause::Clock, &["drop: even"], bugs::drops_every_other_millisecond);
    let failure = caught(Cause::Clock, &["txn.now()"], bugs::reads_a_clock_in_seconds);
    assert!(failure.to_string().contains("reads a clock of the operating system"), "{failure}");
}

#[test]
fn hidden_state_is_named() {
    // Goal: a counter or a cache in the closure is told apart from all else. Method: one of each.
    caught(Cause::HiddenState, &ROW, bugs::counts_in_the_closure);
    let map = caught(Cause::HiddenState, &["hidden state"], bugs::counts_in_a_map_of_the_closure);
    assert!(map.to_string().contains("verdict") || map.to_string().contains("drop: too_many"), "{map}");
}

#[test]
fn iteration_order_is_named() {
    // Goal: RandomState is found wherever the map is made. Method: once per instance, and once per packet.
    caught(Cause::IterationOrder, &ROW, bugs::iterates_a_hash_set);
    caught(Cause::IterationOrder, &["HashMap"], bugs::iterates_a_new_hash_map);
}

#[test]
fn an_edit_whose_write_was_refused_is_named() {
    // Goal: a frame never leaves as if a refused row were kept. Method: a translation that ignores the refusal, at
    // the first packet that wants a row although there is room; and the same where the row is allowed to be missing.
    let words = ["frame, from byte", "table `by_inside`", "as if the row had been kept", "with `?`"];
    let failure = caught(Cause::EditOfRefusedWrite, &words, bugs::edits_before_a_refused_write);
    assert_eq!(failure.details.packet.as_ref().map(|packet| packet.number), Some(0));
    let allowed = Survival::of(bugs::edits_before_a_refused_write).trace(&bugs::trace()).quick();
    allowed.may_refuse("by_inside").run().expect("its table is named");
}

#[test]
fn state_outside_of_the_tables_is_named() {
    // Goal: what a crash would change is found before it does. Method: a map beside the tables that always gives one
    // instance the same answer.
    caught(Cause::StateOutsideTables, &ROW, bugs::remembers_beside_its_tables);
    caught(Cause::SharedState, &["`static`"], bugs::counts_in_a_static);
}

#[test]
fn a_panic_is_named_with_its_packet() {
    // Goal: a panic is a finding, not the end of the test. Method: one that only a full table brings.
    let failure = caught(Cause::Panic, &["when a new row was refused"], bugs::panics_when_a_table_is_full);
    assert!(failure.details.seen.contains("there is room for everybody"), "{failure}");
}

/// Packets of many flows in both directions over several seconds, some that no parser takes, some that come twice.
fn mixed_trace() -> Trace {
    let mut trace = Vec::new();
    for number in 0..240_u64 {
        let (flow, outside) = ((number * 7 % 60) as u8, [192, 0, 2, (number % 3) as u8]);
        let inside = [10, 0, 0, 1 + flow % 20];
        let port = 5_000 + u16::from(flow);
        let bytes = match number % 8 {
            0..=2 => FrameBuilder::ipv4(inside, outside).udp(port, 53, b"question"),
            3 | 4 => FrameBuilder::ipv4(inside, outside).tcp(port, 80, 2, b""),
            5 => FrameBuilder::ipv4(outside, inside).udp(53, port, b"answer"),
            6 => FrameBuilder::ipv4(inside, outside).icmp_echo_request(port, 1, b"echo"),
            _ => vec![number as u8; 20 + number as usize % 40],
        };
        let direction = if number % 8 == 5 { Direction::Inbound } else { Direction::Outbound };
        let time = 1_700_000_000 * SECOND + number / 10 * 300_000_000; // in bursts
        let frame = TraceFrame { time, direction, bytes };
        trace.extend((number % 11 == 0).then(|| frame.clone()));
        trace.push(frame);
    }
    Trace(trace)
}

fn crashes_and_faults() -> FaultPlan {
    let crashes = [(0, 20), (0, 60), (1, 61), (0, 120), (1, 180), (0, 250), (0, 9_999)];
    let links = Faults { loss: 0.2, duplicate: 0.1, reorder: 0.2, delay: 0.2 };
    FaultPlan { seed: 3, links, crashes: crashes.map(|(node, packet)| CrashAt { node, packet }).into() }
}

#[track_caller]
fn sound<N: Nf>(factory: impl Fn() -> N + Send + Sync + 'static) {
    let survived = survives(factory, &mixed_trace(), &crashes_and_faults()).expect("it is sound");
    assert_eq!(survived.crashes, 6, "{}", survived.summary);
    assert!(survived.transactions > 200 && survived.summary.packets.released > 20, "{}", survived.summary);
}

#[test]
fn the_librarys_network_functions_survive() {
    // Goal: no false alarm. Method: each under crashes and link faults, roomy, and with tables that are full at once.
    let external = [203, 0, 113, 1].into();
    sound(move || nat(NatConfig::new(external)).expect("an address"));
    sound(move || nat(NatConfig { mappings: 5, ..NatConfig::new(external) }).expect("an address"));
    sound(|| firewall(FirewallConfig::default()).expect("rules"));
    sound(|| firewall(FirewallConfig { connections: 5, ..FirewallConfig::default() }).expect("rules"));
    sound(|| monitor(MonitorConfig::default()));
    sound(|| monitor(MonitorConfig { flows: 5, ..MonitorConfig::default() }));
}

#[test]
fn real_traffic_raises_no_alarm() {
    // Goal: no false alarm on traffic that nobody made for this. Method: the example chain's capture, with crashes.
    let trace = read_trace(concat!(env!("CARGO_MANIFEST_DIR"), "/configs/edge.pcapng")).expect("a capture");
    let crashes = [500, 2_000, 3_500].map(|packet| CrashAt { node: packet as usize % 3, packet });
    let faults = FaultPlan { crashes: crashes.into(), ..crashes_and_faults() };
    let external = [203, 0, 113, 1].into();
    let told = survives(move || nat(NatConfig::new(external)).expect("an address"), &trace, &faults);
    assert_eq!(told.expect("it is sound").summary.packets.entered, 3_996);
    survives(|| firewall(FirewallConfig::default()).expect("rules"), &trace, &faults).expect("it is sound");
    survives(|| monitor(MonitorConfig::default()), &trace, &faults).expect("it is sound");
}

state! {
    /// What the sound examples remember.
    pub struct Notes {
        /// By a byte of the frame.
        rows: u8 => u64 [40],
        /// Refused rows.
        refused: u8 => u64 [1],
    }
}

#[test]
fn what_is_unusual_and_sound_survives() {
    // Goal: no false alarm where a network function does something uncommon that is right. Method: one of each kind:
    // counts refusals although it has edited, draws random numbers, makes frames, drops after writing, lets rows
    // expire, aborts after an edit, sums a hash map, reads a clock for nothing.
    let key = |frame: &[u8]| frame.last().copied().unwrap_or(0);
    sound(move || {
        nf(move |frame, state: &Notes, txn| {
            let key = key(frame.bytes());
            frame.bytes_mut()[0] ^= 2;
            match txn.put(&state.rows, key % 64, 1) {
                Err(Abort::TABLE_FULL) => {
                    txn.update(&state.refused, 0, |n| n.unwrap_or(0) + 1)?;
                }
                other => other?,
            }
            Ok(Verdict::Forward)
        })
    });
    sound(move || {
        nf(move |frame, state: &Notes, txn| {
            let port = txn.random_below(1 << 16);
            txn.put_for(&state.rows, key(frame.bytes()) % 40, port, SECOND)?;
            txn.emit(&port.to_le_bytes(), Direction::Inbound);
            frame.bytes_mut()[..2].copy_from_slice(&port.to_le_bytes()[..2]);
            Ok(if port % 5 == 0 { Verdict::Drop("unlucky") } else { Verdict::Forward })
        })
    });
    sound(move || {
        nf(move |frame, state: &Notes, txn| {
            frame.bytes_mut()[0] = 0xff;
            let key = key(frame.bytes());
            let words: std::collections::HashMap<u8, u64> = (0..9).map(|n| (n, u64::from(n))).collect();
            std::hint::black_box(std::time::Instant::now());
            txn.put(&state.rows, key % 40, words.values().sum())?;
            if key % 4 == 0 { Err(Abort { reason: "fourth" }) } else { Ok(Verdict::Forward) }
        })
    });
}

/// Deletes its own oldest row to make room, and tries again.
struct Evicts;

impl Nf for Evicts {
    type State = Notes;

    fn state(&self, layout: &Layout) -> Notes {
        let mut notes = Notes::new(layout);
        notes.rows.set_capacity(3);
        notes
    }

    fn process(&self, frame: &mut Frame<'_>, state: &Notes, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        let key = frame.bytes().last().copied().unwrap_or(0);
        frame.bytes_mut()[0] = key;
        let now = txn.now();
        if txn.put(&state.rows, key, now).is_err() {
            let rows = state.rows.rows();
            if let Some((oldest, _)) = rows.iter().min_by_key(|(_, time)| *time) {
                txn.delete(&state.rows, oldest)?;
            }
            txn.put(&state.rows, key, now)?;
        }
        Ok(Verdict::Forward)
    }
}

#[test]
fn a_refusal_that_is_made_good_is_no_mistake() {
    // Goal: an edited frame may go on if its row is there in the end. Method: an NF that evicts and tries again.
    sound(|| Evicts);
}

#[test]
fn other_rings_can_be_asked_for() {
    // Goal: the builder means what it says. Method: f = 2 with two nodes down at once, one partition, and rings that
    // can't be.
    let crashes = vec![CrashAt { node: 0, packet: 5 }, CrashAt { node: 4, packet: 5 }];
    let faults = FaultPlan { crashes, ..FaultPlan::default() };
    let survival = || Survival::of(bugs::sound).trace(&bugs::trace()).faults(&faults).quick().without_files();
    assert_eq!(survival().f(2).partitions(1).run().expect("sound").crashes, 2);
    assert_eq!(survival().f(0).run().expect("nothing crashes where nobody replicates").crashes, 0);
    let failure = survival().partitions(65).run().expect_err("too many");
    assert_eq!((failure.cause, &failure.details.capture), (Cause::Setup, &None));
    assert!(failure.to_string().contains("1 to 64 partitions, not 65"), "{failure}");
}

#[test]
fn files_go_below_the_target_folder_each_into_a_folder_of_its_own() {
    // Goal: nothing is overwritten, and nobody has to say where. Method: the same failure twice.
    let fail = || {
        let survival = Survival::of(bugs::counts_in_the_closure).trace(&bugs::trace()).quick();
        survival.run().expect_err("a bug").details.capture.expect("written")
    };
    let captures = [fail(), fail()];
    assert_ne!(captures[0], captures[1]);
    for capture in captures {
        assert!(capture.components().any(|part| part.as_os_str() == "pannier-failures"), "{capture:?}");
        fs::remove_dir_all(capture.parent().expect("it is in a folder")).expect("ours");
    }
}

/// Counts its sweeps, and removes rows at every second one.
#[derive(Default)]
struct SweepsInTurn(std::sync::atomic::AtomicU64);

impl Nf for SweepsInTurn {
    type State = Notes;

    fn process(&self, _: &mut Frame<'_>, state: &Notes, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        txn.put_for(&state.rows, (txn.now() >> 28) as u8, 1, SECOND / 10)?; // another row in each burst
        Ok(Verdict::Forward)
    }

    fn sweep(&self, state: &Notes, txn: &mut Txn<'_>, partition: usize) -> TxnResult<()> {
        match self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 2 {
            0 => txn.remove_idle(state, partition),
            _ => Ok(()),
        }
    }
}

#[test]
fn sweeps_are_audited_too() {
    // Goal: what removes idle rows keeps the rules as well. Method: a sweep that counts itself, over seconds.
    let survival =
        Survival::of(SweepsInTurn::default).trace(&mixed_trace()).partitions(1).quick().without_files();
    let failure = survival.run().expect_err("it counts");
    assert_eq!((failure.cause, &failure.details.packet), (Cause::HiddenState, &None), "{failure}");
    assert!(failure.to_string().contains("table `rows`, key "), "{failure}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..ProptestConfig::with_cases(128)
    })]
    #[test]
    fn a_sound_one_survives_whatever_happens(
        seed: u64, loss in 0.0..0.4, reorder in 0.0..0.4, pace in 0_u64..400_000, f in 1_usize..4,
        crashes in proptest::collection::vec((0_usize..5, 0_u64..120), 0..8),
    ) {
        // Goal: no false alarm, and the model takes what a crash may take. Method: random bursts, crashes in the middle
        // of them, link faults and rings, with a translation whose every packet writes.
        let frame = |number: u64| TraceFrame {
            time: SECOND + number * pace,
            direction: Direction::Outbound,
            bytes: FrameBuilder::ipv4([10, 0, 0, (number % 9) as u8], [192, 0, 2, 1]).udp(number as u16 % 40, 53, b"?"),
        };
        let trace = Trace((0..120).map(frame).collect());
        let mut crashes: Vec<_> = crashes.into_iter().map(|(node, packet)| CrashAt { node, packet }).collect();
        crashes.sort_by_key(|crash| crash.packet);
        let faults = FaultPlan { seed, links: Faults { loss, reorder, duplicate: loss, delay: reorder }, crashes };
        let external = [203, 0, 113, 1].into();
        let partitions = 1 + seed as usize % 16;
        let nats = Survival::of(move || nat(NatConfig { mappings: 20, ..NatConfig::new(external) }).expect("an address"));
        let sounds = Survival::of(bugs::sound);
        let told = nats.f(f).partitions(partitions).trace(&trace).faults(&faults).quick().without_files().run();
        prop_assert!(told.is_ok(), "{told:?}");
        let told = sounds.f(f).partitions(partitions).trace(&trace).faults(&faults).quick().without_files().run();
        prop_assert!(told.is_ok(), "{told:?}");
    }
}
