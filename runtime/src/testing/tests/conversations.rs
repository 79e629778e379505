//! Conversations are what two healthy hosts would say.

use proptest::prelude::*;

use super::{tcp, values};
use crate::Direction;
use crate::testing::{Network, Trace, conversation, icmp_conversation, tcp_conversation, udp_conversation};
use crate::wire::icmp::IcmpRole;
use crate::wire::tcp::flags;
use crate::wire::verify::{L4Checksum, l4_checksum};
use crate::wire::{Flow, Layers, protocol};

/// One direction of a connection as its receiver sees it.
#[derive(Debug, Default)]
struct Received {
    /// The sequence number of the SYN, once it has come.
    first: Option<u32>,
    /// All data so far.
    data: Vec<u8>,
    is_finished: bool,
}

impl Received {
    /// The next sequence number that is expected; with it, the acknowledgement that is due.
    fn next(&self) -> u32 {
        let Some(first) = self.first else { return 0 };
        first.wrapping_add(1 + self.data.len() as u32 + u32::from(self.is_finished))
    }

    /// Takes a segment in, or says what is wrong about it.
    fn take(&mut self, sequence: u32, flags: u8, data: &[u8]) -> Result<(), TestCaseError> {
        if flags & flags::SYN != 0 {
            prop_assert!(self.first.is_none() && data.is_empty());
            self.first = Some(sequence);
            return Ok(());
        }
        let next = self.next();
        if sequence == next {
            prop_assert!(!self.is_finished || data.is_empty(), "data behind a FIN");
            self.data.extend_from_slice(data);
        } else {
            // Only a repeated segment begins before what is expected: it must bring what is there already.
            let back = next.wrapping_sub(sequence) as usize;
            prop_assert!(back <= self.data.len(), "a hole: {} comes where {} is expected", sequence, next);
            let start = self.data.len() - back;
            prop_assert!(!data.is_empty() && self.data[start..].starts_with(data));
        }
        self.is_finished |= flags & flags::FIN != 0;
        Ok(())
    }
}

/// Runs both receivers over a connection.
fn receive(trace: &Trace) -> Result<[Received; 2], TestCaseError> {
    let opener = trace.0[0].direction;
    let mut received = [Received::default(), Received::default()];
    let mut is_over = false;
    for frame in &trace.0 {
        let (header, data) = tcp(&frame.bytes).expect("every frame is TCP");
        prop_assert!(!is_over, "a segment behind a RST");
        let own = usize::from(frame.direction != opener);
        if header.has(flags::ACK) {
            let due = received[1 - own].next();
            prop_assert_eq!(header.acknowledgement.get(), due, "in {:?}", frame);
        } else {
            prop_assert_eq!(header.acknowledgement.get(), 0);
        }
        is_over = header.has(flags::RST);
        if received[own].first.is_some() || header.has(flags::SYN) {
            received[own].take(header.sequence.get(), header.flags, &data)?;
        } else {
            prop_assert!(is_over, "a segment before the SYN");
        }
    }
    Ok(received)
}

/// One flow in two directions, in strictly increasing times from 0, with right checksums.
fn check_common(trace: &Trace) -> Result<Flow, TestCaseError> {
    let flow = trace.0[0].flow().expect("conversations are IP");
    prop_assert_eq!(trace.0[0].time, 0);
    prop_assert!(trace.0.is_sorted_by(|a, b| a.time < b.time));
    for frame in &trace.0 {
        let is_forward = frame.direction == trace.0[0].direction;
        prop_assert_eq!(frame.flow(), Some(if is_forward { flow } else { flow.reverse() }));
        let layers = Layers::parse(&frame.bytes).expect("conversations are well-formed");
        prop_assert_eq!(l4_checksum(&frame.bytes, &layers), L4Checksum::Right);
        prop_assert!(layers.l3_length() <= 1_500);
    }
    Ok(flow)
}

fn roles(trace: &Trace) -> Vec<(Option<IcmpRole>, u16)> {
    let frames = trace.0.iter().map(|frame| &frame.bytes);
    let role = |bytes: &Vec<u8>| {
        let layers = Layers::parse(bytes).expect("conversations are well-formed");
        let at = layers.l4_offset().expect("echoes have a header");
        (layers.icmp_role(bytes), u16::from_be_bytes([bytes[at + 6], bytes[at + 7]]))
    };
    frames.map(role).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn receivers_understand_every_connection(trace in tcp_conversation(&Network::default())) {
        // Goal: numbers are right. Method: a model of both receivers, which refuses holes and false acknowledgements.
        check_common(&trace)?;
        let [client, server] = receive(&trace)?;
        prop_assert!(client.first.is_some());
        prop_assert_eq!(client.is_finished, server.is_finished);
    }

    #[test]
    fn answers_follow_questions(
        udp in udp_conversation(&Network::default()),
        icmp in icmp_conversation(&Network::default()),
        any in conversation(&Network::default()),
    ) {
        // Goal: no answer without its question. Method: directions of UDP, roles and numbers of ICMP.
        check_common(&any)?;
        prop_assert_eq!(check_common(&udp)?.protocol(), protocol::UDP);
        let is_answer = |trace: &Trace| -> Vec<bool> {
            trace.0.iter().map(|frame| frame.direction != trace.0[0].direction).collect()
        };
        prop_assert!(is_answer(&udp).windows(2).all(|two| two != [true, true]));
        prop_assert!(check_common(&icmp)?.is_icmp_query());
        let roles = roles(&icmp);
        for (at, (is_answer, (role, number))) in is_answer(&icmp).into_iter().zip(&roles).enumerate() {
            prop_assert_eq!(*role, Some(if is_answer { IcmpRole::Reply } else { IcmpRole::Request }));
            prop_assert!(!is_answer || roles[at - 1] == (Some(IcmpRole::Request), *number));
        }
    }
}

#[test]
fn connections_take_every_course() {
    // Goal: refusal, reset, close, repeats, wraps, both openers and data both ways occur. Method: look for each.
    let traces = values(&tcp_conversation(&Network::default()), 3, 1_000);
    let has = |is_it: &dyn Fn(&Trace) -> bool| traces.iter().filter(|trace| is_it(trace)).count();
    let with = |trace: &Trace, mask: u8| {
        trace.0.iter().filter_map(|frame| tcp(&frame.bytes)).filter(|(header, _)| header.has(mask)).count()
    };
    let finished = has(&|trace| with(trace, flags::FIN) == 2);
    let reset = has(&|trace| with(trace, flags::RST) == 1 && trace.len() > 2);
    let refused = has(&|trace| with(trace, flags::RST) == 1 && trace.len() == 2);
    let inbound = has(&|trace| trace.0[0].direction == Direction::Inbound);
    let repeated = has(&|trace| trace.0.windows(2).any(|two| two[0].bytes == two[1].bytes));
    let both = has(&|trace| receive(trace).is_ok_and(|sides| sides.iter().all(|side| !side.data.is_empty())));
    let wrapped = has(&|trace| {
        receive(trace).is_ok_and(|sides| sides.iter().any(|side| side.next() < side.first.unwrap_or(0)))
    });
    let counts = [finished, reset, refused, inbound, repeated, both, wrapped];
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
    assert_eq!(has(&|trace| with(trace, flags::FIN) == 1), 0);
}
