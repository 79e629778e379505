//! Any bytes as a frame: every view and edit of its headers, and what must hold before and after.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pannier_runtime::wire::verify::{self, L4Checksum};
use pannier_runtime::wire::{
    Flow, IcmpError, Layers, Quote, Side, arp::ArpPacket, checksum, icmp_error, rewrite, rewrite_quoted,
    set_destination_port, set_source_port, symmetric_hash,
};

/// Longest answer to a frame, in bytes, Ethernet and two VLAN tags included.
const LONGEST_ERROR: usize = 612;

/// Looks at `bytes` as a frame, and edits it.
///
/// # Panics
/// Where an offset leaves the frame, or an edit does not keep what it must.
pub fn check(bytes: &[u8]) {
    let _ = ArpPacket::view(bytes, 14);
    let Ok(layers) = Layers::parse(bytes) else {
        assert!(Flow::parse(bytes).is_err(), "a flow of a malformed frame");
        return;
    };
    // New addresses and ports that follow from the frame, so that an input is a frame and nothing else.
    let port = checksum::internet(bytes);
    let v4 = Ipv4Addr::from([10, 0, port.to_be_bytes()[0], port.to_be_bytes()[1]]);
    let addresses = [IpAddr::V4(v4), IpAddr::V6(Ipv6Addr::from(u128::from(port) * 0x1_0001_0001))];
    inside_the_frame(bytes, &layers);
    for side in [Side::Source, Side::Destination] {
        for address in addresses {
            edited(bytes, &layers, side, address, port);
            quote_edited(bytes, &layers, side, address, port);
        }
    }
    ports_edited(bytes, &layers, port);
    recomputed(bytes, &layers);
    answered(bytes, &layers);
    shortened(bytes, &layers, addresses, port);
}

fn inside_the_frame(frame: &[u8], layers: &Layers) {
    let offsets = [14, layers.l3_offset(), layers.ip_payload_offset(), layers.end(), frame.len()];
    assert!(offsets.is_sorted(), "{layers:?} in a frame of {} bytes", frame.len());
    assert_eq!(layers.l3_length(), layers.end() - layers.l3_offset());
    if let Some(at) = layers.l4_offset() {
        assert!(at == layers.ip_payload_offset() && at + 8 <= layers.end());
        let payload = layers.payload(frame).expect("a frame with L4 has a payload, if an empty one");
        assert!(at + 8 <= payload.start && payload.start <= payload.end && payload.end <= layers.end());
    }
    let flow = Flow::of(frame, layers);
    assert_eq!(flow.is_some(), layers.is_ip());
    assert_eq!(Flow::parse(frame).ok(), flow);
    if let Some(flow) = flow {
        assert_eq!(flow.reverse().reverse(), flow);
        assert_eq!(symmetric_hash(&flow), symmetric_hash(&flow.reverse()));
        assert!(!flow.to_string().is_empty() && flow.vlan_count() == layers.vlan_count());
    }
}

/// What a look at both checksums says.
fn verdict(frame: &[u8], layers: &Layers) -> (bool, L4Checksum) {
    (verify::ipv4_checksum_is_right(frame, layers), verify::l4_checksum(frame, layers))
}

/// An edit keeps the layout, the payload and the verdict on the checksums.
fn kept(before: &[u8], after: &[u8], layers: &Layers) {
    assert_eq!(Layers::parse(after), Ok(*layers));
    assert_eq!(after[layers.end()..], before[layers.end()..]);
    if let Some(payload) = layers.payload(before) {
        assert_eq!(after[payload.clone()], before[payload]);
    }
    if !is_zero(before, layers) {
        assert_eq!(verdict(after, layers), verdict(before, layers));
    }
}

/// Whether all of L4 is zero, its checksum too. That is wrong, since it sums up to 0 and not to 0xFFFF; but the two are
/// one number in the arithmetic of RFC 1624, and an edit makes a message of it that is right.
fn is_zero(frame: &[u8], layers: &Layers) -> bool {
    frame[layers.ip_payload_offset()..layers.end()].iter().all(|byte| *byte == 0)
}

fn edited(frame: &[u8], layers: &Layers, side: Side, address: IpAddr, port: u16) {
    let mut after = frame.to_vec();
    if rewrite(&mut after, layers, side, address, port).is_err() {
        assert_eq!(after, frame, "a refused edit changed the frame");
        return;
    }
    kept(frame, &after, layers);
    let flow = Flow::of(&after, layers).expect("the frame was editable");
    let found = if side == Side::Source { flow.source() } else { flow.destination() };
    assert_eq!(found, address);
}

fn ports_edited(frame: &[u8], layers: &Layers, port: u16) {
    for set in [set_source_port, set_destination_port] {
        let mut after = frame.to_vec();
        match set(&mut after, layers, port) {
            Ok(()) => kept(frame, &after, layers),
            Err(_) => assert_eq!(after, frame, "a refused edit changed the frame"),
        }
    }
}

fn quote_edited(frame: &[u8], layers: &Layers, side: Side, address: IpAddr, port: u16) {
    let Ok(quote) = Quote::parse(frame, layers) else { return };
    assert!(quote.l3_offset() + 20 <= layers.end());
    let mut after = frame.to_vec();
    if rewrite_quoted(&mut after, layers, &quote, side, address, port).is_err() {
        assert_eq!(after, frame, "a refused edit changed the frame");
        return;
    }
    assert_eq!(verdict(&after, layers), verdict(frame, layers));
    assert_eq!(quote.header_checksum_is_right(&after), quote.header_checksum_is_right(frame));
    let again = Quote::parse(&after, layers).expect("an edit keeps lengths").flow();
    assert_eq!(if side == Side::Source { again.source() } else { again.destination() }, address);
}

fn recomputed(frame: &[u8], layers: &Layers) {
    let mut after = frame.to_vec();
    let told = verify::recompute(&mut after, layers);
    let (ipv4, l4) = verdict(&after, layers);
    assert_eq!(l4, if told { L4Checksum::Right } else { L4Checksum::Unknown });
    assert!(ipv4 || layers.l3() != pannier_runtime::wire::L3::Ipv4);
    let once = after.clone();
    verify::recompute(&mut after, layers);
    assert_eq!(after, once, "recomputing twice is recomputing once");
}

fn answered(frame: &[u8], layers: &Layers) {
    let (router, mut out) = (Ipv4Addr::new(192, 0, 2, 1), [0; LONGEST_ERROR]);
    let Some(length) = icmp_error(frame, layers, IcmpError::TTL_EXCEEDED, router, &mut out) else { return };
    let answer = &out[..length];
    let parsed = Layers::parse(answer).expect("an answer is well-formed");
    assert_eq!(verdict(answer, &parsed), (true, L4Checksum::Right));
    assert_eq!(parsed.vlan_controls(), layers.vlan_controls());
    if layers.l4_offset().is_some() {
        let quote = Quote::parse(answer, &parsed).expect("an answer quotes enough");
        assert_eq!(Some(quote.flow()), Flow::of(frame, layers));
    }
    assert_eq!(icmp_error(answer, &parsed, IcmpError::TTL_EXCEEDED, router, &mut [0; LONGEST_ERROR]), None);
}

/// Layers of another frame, here of one that was longer, are no reason to panic either.
fn shortened(frame: &[u8], layers: &Layers, addresses: [IpAddr; 2], port: u16) {
    let mut short = frame[..frame.len() - frame.len() / 3].to_vec();
    let _ = (layers.payload(&short), verdict(&short, layers), Flow::of(&short, layers));
    let _ = (layers.icmp_role(&short), Quote::parse(&short, layers));
    let _ = icmp_error(&short, layers, IcmpError::PROHIBITED, Ipv4Addr::LOCALHOST, &mut [0; LONGEST_ERROR]);
    for address in addresses {
        let _ = rewrite(&mut short, layers, Side::Source, address, port);
        if let Ok(quote) = Quote::parse(frame, layers) {
            let _ = rewrite_quoted(&mut short, layers, &quote, Side::Destination, address, port);
            let _ = quote.header_checksum_is_right(&short);
        }
    }
    let _ = verify::recompute(&mut short, layers);
}
