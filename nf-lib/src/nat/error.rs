//! ICMP errors: translated together with the packet they quote (RFC 5508 §4). They open and refresh nothing.

use std::net::Ipv4Addr;

use pannier_runtime::wire::verify::{L4Checksum, l4_checksum};
use pannier_runtime::wire::{Endpoint, Layers, Quote, Side, rewrite_quoted, set_destination, set_source};
use pannier_runtime::{Direction, Frame, Txn, TxnResult, Verdict};

use super::{NatState, uneditable};

/// Translates an ICMP error to `receiver`, or drops it by name. Nothing is changed before all checks have passed.
#[inline(never)]
pub(super) fn translate(
    frame: &mut Frame<'_>,
    layers: Layers,
    receiver: Ipv4Addr,
    state: &NatState,
    txn: &mut Txn<'_>,
) -> TxnResult<Verdict> {
    if l4_checksum(frame.bytes(), &layers) != L4Checksum::Right {
        return Ok(Verdict::Drop("bad_icmp_checksum"));
    }
    let quote = Quote::parse(frame.bytes(), &layers)?;
    if !quote.header_checksum_is_right(frame.bytes()) {
        return Ok(Verdict::Drop("bad_quoted_checksum"));
    }
    if quote.is_later_fragment() {
        return Ok(Verdict::Drop("fragment_unsupported"));
    }
    let quoted = quote.flow();
    if quoted.source() != receiver {
        return Ok(Verdict::Drop("unrelated_icmp_error"));
    }
    let known = match frame.direction() {
        Direction::Inbound => quoted.source_endpoint().map(|sent| txn.peek(&state.by_outside, &sent)),
        Direction::Outbound => quoted.destination_endpoint().map(|got| txn.peek(&state.by_inside, &got)),
    };
    let Some(mapped) = known.transpose()?.flatten().map(|mapped| *mapped) else {
        return Ok(Verdict::Drop("no_mapping"));
    };
    rewrite(frame, &layers, &quote, mapped)?;
    Ok(Verdict::Forward)
}

/// Puts the other side of the mapping into the error and into its quote.
fn rewrite(frame: &mut Frame<'_>, layers: &Layers, quote: &Quote, mapped: Endpoint) -> TxnResult<()> {
    let (address, port) = (mapped.address(), mapped.port());
    let (quoted, set): (_, fn(&mut [u8], &Layers, Ipv4Addr) -> _) = match frame.direction() {
        // The quoted packet went out from the mapped endpoint, and the error goes where it came from.
        Direction::Inbound => (Side::Source, set_destination),
        // It came in to the mapped endpoint. Whoever inside sends the error is not shown (RFC 5508 R5).
        Direction::Outbound => (Side::Destination, set_source),
    };
    rewrite_quoted(frame.bytes_mut(), layers, quote, quoted, address, port).map_err(uneditable)?;
    set(frame.bytes_mut(), layers, address).map_err(uneditable)
}
