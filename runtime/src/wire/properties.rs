//! Any bytes at all: nothing panics, nothing outside the packet changes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::{
    Endpoint, Flow, FrameBuilder, IcmpError, L3, Layers, Quote, Side, arp::ArpPacket, edit, icmp_error,
    oracle::frames, protocol, rewrite, rewrite_quoted, set_destination, set_destination_port, set_source,
    set_source_port, symmetric_hash, verify,
};

/// Bytes that get past the first checks more often than noise does: a good frame with random bytes
/// written over it, then cut. Good frames are whole packets, ICMP errors about them, and fragments.
pub(super) fn mangled() -> impl Strategy<Value = Vec<u8>> {
    let noise = prop::collection::vec(any::<u8>(), 0..128);
    let error_type = prop_oneof![Just(3_u8), Just(11), any::<u8>()];
    let error = (frames(), any::<[u8; 4]>(), error_type).prop_map(|(frame, rest, icmp_type)| {
        let layers = Layers::parse(&frame).expect("the builder's frames are well-formed");
        let quoted = &frame[layers.l3_offset()..];
        match layers.l3() {
            L3::Ipv6 => FrameBuilder::ipv6([1; 16], [2; 16]).icmp(icmp_type & 0x7F, 0, rest, quoted),
            _ => FrameBuilder::ipv4([1; 4], [2; 4]).icmp(icmp_type, 0, rest, quoted),
        }
    });
    let protocols = prop_oneof![Just(1_u8), Just(6), Just(17), Just(58), any::<u8>()];
    let place = (any::<bool>(), any::<u32>(), prop_oneof![Just(0_u16), any::<u16>()], any::<bool>());
    let payload = prop::collection::vec(any::<u8>(), 0..60);
    let fragment =
        (place, protocols, payload).prop_map(|((is_ipv6, id, offset, more), protocol, payload)| {
            let builder = match is_ipv6 {
                true => FrameBuilder::ipv6([1; 16], [2; 16]),
                false => FrameBuilder::ipv4([1; 4], [2; 4]),
            };
            builder.fragment(id, offset, more).raw(protocol, &payload)
        });
    let good = prop_oneof![frames(), error, fragment];
    let damage = prop::collection::vec((12_usize..90, any::<u8>()), 0..4);
    let damaged = (good, damage, prop_oneof![Just(usize::MAX), 0_usize..120]).prop_map(
        |(mut frame, damage, length)| {
            for (at, value) in damage {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            frame.truncate(length);
            frame
        },
    );
    prop_oneof![1 => noise, 6 => damaged]
}

/// Calls every edit, some with layers that are not this frame's.
pub(crate) fn edit_all(frame: &mut [u8], layers: &Layers, port: u16) {
    let addresses = [IpAddr::V4(Ipv4Addr::from_bits(port.into())), IpAddr::V6(Ipv6Addr::from([7; 16]))];
    for address in addresses {
        for side in [Side::Source, Side::Destination] {
            let _ = rewrite(frame, layers, side, address, port);
            if let Ok(quote) = Quote::parse(frame, layers) {
                let _ = quote.header_checksum_is_right(frame);
                let _ = rewrite_quoted(frame, layers, &quote, side, address, port);
            }
        }
        let _ = set_source(frame, layers, address);
        let _ = set_destination(frame, layers, address);
    }
    let _ = set_source_port(frame, layers, port);
    let _ = set_destination_port(frame, layers, port);
    let _ = verify::l4_checksum(frame, layers);
    let _ = icmp_error(frame, layers, IcmpError::PROHIBITED, Ipv4Addr::LOCALHOST, &mut [0; 700]);
    let _ = layers.payload(frame);
    let _ = verify::recompute(frame, layers);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_never_panic(frame in mangled(), other in mangled(), port: u16) {
        // Goal: malformed input is a reason, never a panic. Method: mangled frames through everything.
        let _ = ArpPacket::view(&frame, 14);
        if let Ok(layers) = Layers::parse(&frame) {
            prop_assert!(layers.end() <= frame.len());
            prop_assert!(layers.l4_offset().is_none_or(|at| at + 8 <= layers.end()));
            let flow = Flow::of(&frame, &layers);
            prop_assert_eq!(flow.is_some(), layers.is_ip());
            if let Some(flow) = flow {
                prop_assert_eq!(flow.reverse().reverse(), flow);
                prop_assert_eq!(symmetric_hash(&flow), symmetric_hash(&flow.reverse()));
                prop_assert_eq!(flow.ordered(), (flow.min(flow.reverse()), flow <= flow.reverse()));
                let _ = flow.to_string();
            }
            let end = |side| Endpoint::of(&frame, &layers, side);
            prop_assert_eq!(end(Side::Source), flow.and_then(|flow| flow.source_endpoint()));
            prop_assert_eq!(end(Side::Destination), flow.and_then(|flow| flow.destination_endpoint()));
            edit_all(&mut frame.clone(), &layers, port);
            edit_all(&mut other.clone(), &layers, port);
        }
    }

    #[test]
    fn edits_stay_inside_the_packet(frame in mangled(), port: u16) {
        // Goal: an edit leaves lengths, padding and payload alone. Method: edit, parse again, compare.
        if let Ok(layers) = Layers::parse(&frame) {
            let mut edited = frame.clone();
            let address: IpAddr = Ipv4Addr::from_bits(port.into()).into();
            let done = rewrite(&mut edited, &layers, Side::Source, address, port);
            prop_assert_eq!(Layers::parse(&edited), Ok(layers));
            if done.is_err() {
                prop_assert_eq!(&edited, &frame);
            }
            prop_assert_eq!(&edited[layers.end()..], &frame[layers.end()..]);
            if let Some(payload) = layers.payload(&frame) {
                prop_assert_eq!(&edited[payload.clone()], &frame[payload]);
            }
        }
    }

    #[test]
    fn a_quote_and_its_error_change_alike(frame in mangled(), address: [u8; 4], port: u16) {
        // Goal: the outer checksum follows the quote by the same amount. Method: verdict before and after.
        if let Ok(layers) = Layers::parse(&frame)
            && let Ok(quote) = Quote::parse(&frame, &layers)
        {
            let mut edited = frame.clone();
            let address: IpAddr = match quote.flow().is_ipv4() {
                true => address.into(),
                false => Ipv4Addr::from(address).to_ipv6_mapped().into(),
            };
            let done = rewrite_quoted(&mut edited, &layers, &quote, Side::Source, address, port);
            prop_assert_eq!(done, Ok(()));
            prop_assert_eq!(verify::l4_checksum(&edited, &layers), verify::l4_checksum(&frame, &layers));
            let right = quote.header_checksum_is_right(&frame);
            prop_assert_eq!(quote.header_checksum_is_right(&edited), right);
            let after = Quote::parse(&edited, &layers).expect("an edit keeps lengths");
            prop_assert_eq!(after.flow().source(), address);
        }
    }

    #[test]
    fn an_answer_is_valid_and_final(frame in mangled(), icmp_type in 11_u8..13) {
        // Goal: errors are matched by hosts and cause none. Method: answer, verify, answer the answer.
        let mut out = [0; 700];
        let error = IcmpError::new(icmp_type, 1);
        if let Ok(layers) = Layers::parse(&frame)
            && let Some(length) = icmp_error(&frame, &layers, error, Ipv4Addr::new(192, 0, 2, 1), &mut out)
        {
            let answer = &out[..length];
            let parsed = Layers::parse(answer).expect("an answer is well-formed");
            prop_assert!(verify::ipv4_checksum_is_right(answer, &parsed));
            prop_assert_eq!(verify::l4_checksum(answer, &parsed), verify::L4Checksum::Right);
            prop_assert_eq!(parsed.vlan_controls(), layers.vlan_controls());
            if layers.l4_offset().is_some() {
                let quote = Quote::parse(answer, &parsed).expect("an answer quotes enough");
                prop_assert_eq!(Some(quote.flow()), Flow::of(&frame, &layers));
            }
            let again = icmp_error(answer, &parsed, error, Ipv4Addr::new(10, 0, 0, 1), &mut [0; 700]);
            prop_assert_eq!(again, None);
        }
    }
}

/// Any value, and often one at which sums change their ways.
fn edges<T: Copy + std::fmt::Debug + From<bool> + std::ops::Not<Output = T> + 'static>(
    any: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = T> {
    let [zero, one] = [false, true].map(T::from);
    prop_oneof![any, prop::sample::select(vec![zero, one, !zero, !one])]
}

/// What the L4 checksum of a frame is before an edit.
#[derive(Clone, Copy, Debug)]
enum Before {
    AsItIs,
    This(u16),
    /// One that the edit makes 0 of, by RFC 1624.
    BecomesZero,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn the_short_way_writes_what_the_long_way_writes(
        mut frame in prop_oneof![frames(), mangled()],
        address in edges(any::<u32>()),
        port in edges(any::<u16>()),
        before in prop_oneof![
            Just(Before::AsItIs), edges(any::<u16>()).prop_map(Before::This), Just(Before::BecomesZero)
        ],
        is_source: bool, keeps_address: bool, keeps_port: bool,
    ) {
        // Goal: what most packets take is no other rewrite. Method: both on odd frames and values; compare all bytes.
        let Ok(layers) = Layers::parse(&frame) else { return Ok(()) };
        let side = if is_source { Side::Source } else { Side::Destination };
        let old = Endpoint::of(&frame, &layers, side);
        let address = old.filter(|_| keeps_address).map_or(address.into(), |old| old.address());
        let port = old.filter(|_| keeps_port).map_or(port, |old| old.port());
        let by_any = |frame: &mut [u8]| edit::rewrite_any(frame, layers, side, address.into(), port);
        let at = if layers.protocol() == Some(protocol::UDP) { 6 } else { 16 };
        let at = layers.l4_offset().map_or(0, |l4| l4 + at);
        match before {
            Before::This(checksum) => drop(edit::replace(&mut frame, at, checksum.to_be_bytes())),
            Before::BecomesZero if at + 2 <= layers.end() => {
                edit::replace(&mut frame, at, [0xFF; 2]);
                let mut edited = frame.clone();
                let _ = by_any(&mut edited);
                edit::replace(&mut frame, at, [!edited[at], !edited[at + 1]]);
            }
            Before::BecomesZero | Before::AsItIs => {}
        }
        let mut long = frame.clone();
        let expected = by_any(&mut long);
        let plain = edit::rewrite_plain(&mut frame.clone(), &layers, side, address.into(), port).is_some();
        prop_assert!(plain || Layers::plain(&frame).is_none(), "a plain packet takes the short way");
        prop_assert_eq!(rewrite(&mut frame, &layers, side, address.into(), port), expected);
        prop_assert_eq!(frame, long);
    }
}
