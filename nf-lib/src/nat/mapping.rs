//! Mappings: opened and used, two rows at a time.
//!
//! Both rows are written and refreshed by the same transactions with the same timeout, so they expire together. An
//! expired row means nothing, with its partner or without: sweeps and full tables may take such rows one by one.

use pannier_runtime::clock::Nanos;
use pannier_runtime::wire::Endpoint;
use pannier_runtime::{Abort, Txn, TxnResult};

use super::NatState;
use super::config::{NatConfig, PortChoice};

/// Ports that are tried at random before they are tried in order.
const RANDOM_TRIES: u64 = 32;
/// Ports that are then tried in order. A pool of more ports may refuse a flow although it has a few left.
const ORDERED_TRIES: u64 = 1_024;

/// The external endpoint of a live mapping, which is refreshed by this use.
#[inline(always)]
pub(super) fn used(
    state: &NatState,
    txn: &mut Txn<'_>,
    inside: &Endpoint,
    idle: Nanos,
) -> TxnResult<Option<Endpoint>> {
    let Some((external, refreshed)) = txn.get_for(&state.by_inside, inside, idle)? else { return Ok(None) };
    if refreshed {
        txn.refresh(&state.by_outside, &external, idle)?;
    }
    Ok(Some(external))
}

/// Opens a mapping; the inner error is the reason where there is no room for it, and nothing is written then.
#[cold]
pub(super) fn open(
    config: &NatConfig,
    state: &NatState,
    txn: &mut Txn<'_>,
    inside: Endpoint,
    idle: Nanos,
) -> TxnResult<Result<Endpoint, &'static str>> {
    let Some(external) = free(config, state, txn, &inside)? else { return Ok(Err("no_free_port")) };
    match txn.put_for(&state.by_inside, inside, external, idle) {
        Err(Abort::TABLE_FULL) => return Ok(Err(Abort::TABLE_FULL.reason)),
        other => other?,
    }
    txn.put_for(&state.by_outside, external, inside, idle)?;
    Ok(Ok(external))
}

/// An external endpoint that no live mapping has. Expired mappings count as none.
fn free(
    config: &NatConfig,
    state: &NatState,
    txn: &mut Txn<'_>,
    inside: &Endpoint,
) -> TxnResult<Option<Endpoint>> {
    let (address, ports) = (config.address_for(inside), config.ports_of(inside.protocol));
    if config.ports == PortChoice::Preserve && ports.contains(inside.port()) {
        let external = Endpoint::new(inside.protocol, address, inside.port());
        if txn.peek(&state.by_outside, &external)?.is_none() {
            return Ok(Some(external));
        }
    }
    let start = txn.random_below(ports.count());
    for attempt in 0..RANDOM_TRIES + ORDERED_TRIES.min(ports.count()) {
        let offset = match attempt.checked_sub(RANDOM_TRIES) {
            None => txn.random_below(ports.count()),
            Some(step) => start + step,
        };
        let external = Endpoint::new(inside.protocol, address, ports.at(offset));
        if txn.peek(&state.by_outside, &external)?.is_none() {
            return Ok(Some(external));
        }
    }
    Ok(None)
}
