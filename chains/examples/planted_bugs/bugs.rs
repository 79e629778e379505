//! Network functions with one mistake each, as people make them, and a sound one.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pannier_runtime::clock::SECOND;
use pannier_runtime::testing::{CrashAt, FaultPlan, Trace, TraceFrame};
use pannier_runtime::wire::{Endpoint, Flow, FrameBuilder, Layers, Malformed, protocol::UDP, rewrite_source};
use pannier_runtime::{Abort, Direction, Nf, Verdict, nf, state};

state! {
    /// What the examples remember of a host.
    pub struct Hosts {
        /// A number per IPv4 host.
        by_host: [u8; 4] => u64 [1_000],
        /// Packets in all.
        packets: u8 => u64 [1],
    }
}

state! {
    /// What the examples remember of translations.
    pub struct Translations {
        /// The outside endpoint of an inside one.
        by_inside: Endpoint => Endpoint [1_000],
    }
}

/// The IPv4 host that sent a frame.
fn host(frame: &[u8]) -> Result<[u8; 4], Abort> {
    match Flow::parse(frame)?.source() {
        IpAddr::V4(host) => Ok(host.octets()),
        IpAddr::V6(_) => Err(Abort { reason: "not_ipv4" }),
    }
}

/// No mistake: limits how many packets a host may send within ten seconds.
pub(crate) fn sound() -> impl Nf<State = Hosts> {
    nf(|frame, state: &Hosts, txn| {
        let host = host(frame.bytes())?;
        let sent = txn.peek(&state.by_host, &host)?.map_or(0, |sent| *sent) + 1;
        txn.put_for(&state.by_host, host, sent, 10 * SECOND)?;
        Ok(if sent <= 100 { Verdict::Forward } else { Verdict::Drop("too_many") })
    })
}

/// Asks the operating system when the host was seen last.
pub(crate) fn reads_the_system_clock() -> impl Nf<State = Hosts> {
    nf(|frame, state: &Hosts, txn| {
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| Abort { reason: "time_travel" })?;
        txn.put(&state.by_host, host(frame.bytes())?, now.as_micros() as u64)?;
        Ok(Verdict::Forward)
    })
}

/// The same in whole seconds: runs that follow on each other agree.
pub(crate) fn reads_a_clock_in_seconds() -> impl Nf<State = Hosts> {
    nf(|frame, state: &Hosts, txn| {
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| Abort { reason: "time_travel" })?;
        txn.put(&state.by_host, host(frame.bytes())?, now.as_secs())?;
        Ok(Verdict::Forward)
    })
}

/// Lets a burst pass for as long as a stopwatch of its own says.
pub(crate) fn keeps_a_stopwatch() -> impl Nf<State = Hosts> {
    let started = Instant::now();
    nf(move |frame, state: &Hosts, txn| {
        txn.put(&state.by_host, host(frame.bytes())?, started.elapsed().as_nanos() as u64)?;
        Ok(Verdict::Forward)
    })
}

/// Gives up what takes too long, by a stopwatch of its own: no outcome holds the time.
pub(crate) fn gives_up_after_a_while() -> impl Nf<State = Hosts> {
    let started = Instant::now();
    nf(move |frame, state: &Hosts, txn| {
        txn.put(&state.by_host, host(frame.bytes())?, 1)?;
        let late = started.elapsed() > Duration::from_millis(1);
        Ok(if late { Verdict::Drop("too_late") } else { Verdict::Forward })
    })
}

/// Drops packets in every other millisecond: what comes of a packet looks like chance.
pub(crate) fn drops_every_other_millisecond() -> impl Nf<State = Hosts> {
    nf(|frame, state: &Hosts, txn| {
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| Abort { reason: "time_travel" })?;
        txn.put(&state.by_host, host(frame.bytes())?, 1)?;
        Ok(if now.as_millis() % 2 == 0 { Verdict::Drop("even") } else { Verdict::Forward })
    })
}

/// Deals packets out to four servers in turn, by a counter in the closure.
pub(crate) fn counts_in_the_closure() -> impl Nf<State = Hosts> {
    let turn = AtomicU64::new(0);
    nf(move |frame, state: &Hosts, txn| {
        let server = turn.fetch_add(1, Ordering::Relaxed) % 4;
        txn.put(&state.by_host, host(frame.bytes())?, server)?;
        Ok(Verdict::Forward)
    })
}

/// Limits what a host sends, by a map in the closure.
pub(crate) fn counts_in_a_map_of_the_closure() -> impl Nf<State = Hosts> {
    let sent: Mutex<HashMap<[u8; 4], u64>> = Mutex::new(HashMap::new());
    nf(move |frame, state: &Hosts, txn| {
        let host = host(frame.bytes())?;
        let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
        let packets = sent.entry(host).or_default();
        *packets += 1;
        txn.update(&state.packets, 0, |packets| packets.unwrap_or(0) + 1)?;
        Ok(if *packets <= 10 { Verdict::Forward } else { Verdict::Drop("too_many") })
    })
}

/// Gives each host a server: the first of a set, whichever that is.
pub(crate) fn iterates_a_hash_set() -> impl Nf<State = Hosts> {
    let servers: HashSet<u64> = (1..=8).collect();
    nf(move |frame, state: &Hosts, txn| {
        let first = servers.iter().next().copied().unwrap_or(0);
        txn.update(&state.by_host, host(frame.bytes())?, |server| server.unwrap_or(first))?;
        Ok(Verdict::Forward)
    })
}

/// Picks a server anew for each packet from a map that it has just filled.
pub(crate) fn iterates_a_new_hash_map() -> impl Nf<State = Hosts> {
    nf(|frame, state: &Hosts, txn| {
        let load: HashMap<u64, u64> = (1..=8).map(|server| (server, 0)).collect();
        let least = load.iter().min_by_key(|(_, load)| **load).map_or(0, |(server, _)| *server);
        txn.put(&state.by_host, host(frame.bytes())?, least)?;
        Ok(Verdict::Forward)
    })
}

/// Translates the source, then notes the translation, and does not care whether there was room for it.
pub(crate) fn edits_before_a_refused_write() -> impl Nf<State = Translations> {
    nf(|frame, state: &Translations, txn| {
        if frame.direction() == Direction::Inbound {
            return Ok(Verdict::Forward);
        }
        let layers = Layers::parse(frame.bytes())?;
        let flow = Flow::of(frame.bytes(), &layers);
        let inside = flow.and_then(|flow| flow.source_endpoint()).ok_or(Malformed::NotIp)?;
        let outside = match txn.get(&state.by_inside, &inside)? {
            Some(outside) => outside,
            None => {
                let port = 1_024 + txn.random_below(60_000) as u16;
                Endpoint::new(UDP, [203, 0, 113, 1].into(), port)
            }
        };
        rewrite_source(frame.bytes_mut(), &layers, outside.address(), outside.port())
            .map_err(|why| Abort { reason: why.reason() })?;
        let _ = txn.put(&state.by_inside, inside, outside);
        Ok(Verdict::Forward)
    })
}

/// Numbers hosts in the order of their appearance, in a map beside the tables. Each is numbered once, so that the
/// same instance always gives the same answer.
pub(crate) fn remembers_beside_its_tables() -> impl Nf<State = Hosts> {
    let numbers: Arc<Mutex<HashMap<[u8; 4], u64>>> = Arc::default();
    nf(move |frame, state: &Hosts, txn| {
        let host = host(frame.bytes())?;
        let mut numbers = numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = numbers.len() as u64;
        let number = *numbers.entry(host).or_insert(next);
        txn.put(&state.by_host, host, number)?;
        Ok(Verdict::Forward)
    })
}

/// Counts packets in a `static`.
pub(crate) fn counts_in_a_static() -> impl Nf<State = Hosts> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    nf(|frame, state: &Hosts, txn| {
        txn.put(&state.by_host, host(frame.bytes())?, COUNT.fetch_add(1, Ordering::Relaxed))?;
        Ok(Verdict::Forward)
    })
}

/// Takes it for granted that there is room.
pub(crate) fn panics_when_a_table_is_full() -> impl Nf<State = Hosts> {
    nf(|frame, state: &Hosts, txn| {
        txn.put(&state.by_host, host(frame.bytes())?, 1).expect("there is room for everybody");
        Ok(Verdict::Forward)
    })
}

/// Packets of twelve hosts, three of them new before each crash of [`faults`], with answers.
pub(crate) fn trace() -> Trace {
    let frame = |number: u16| {
        let host = [10, 0, 0, (number / 4) as u8 + 1];
        let (inside, outside) = (5_000 + number, 53);
        let outbound = number % 4 != 3;
        TraceFrame {
            time: 1_700_000_000 * SECOND + u64::from(number) * 200_000,
            direction: if outbound { Direction::Outbound } else { Direction::Inbound },
            bytes: if outbound {
                FrameBuilder::ipv4(host, [192, 0, 2, 1]).udp(inside, outside, b"question")
            } else {
                FrameBuilder::ipv4([192, 0, 2, 1], host).udp(outside, inside - 1, b"answer")
            },
        }
    };
    Trace((0..48).map(frame).collect())
}

/// The head and the replica die, and links lose units.
pub(crate) fn faults() -> FaultPlan {
    let crashes = vec![
        CrashAt { node: 0, packet: 12 },
        CrashAt { node: 1, packet: 24 },
        CrashAt { node: 0, packet: 36 },
    ];
    let links = pannier_runtime::port::Faults { loss: 0.1, duplicate: 0.1, reorder: 0.1, delay: 0.1 };
    FaultPlan { seed: 7, links, crashes }
}
