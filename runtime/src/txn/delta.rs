//! The delta: changed rows as bytes. One format for units, snapshots and logs, and one function that takes it in.
//!
//! ```text
//! entry := tag(1) [expires(8, LE)] key [value]      tag = table << 2 | form
//! form  := 0 put, never expires | 1 put, expires | 2 delete
//! ```
//! Lengths of key and value are the table's. All numbers are little endian.

use crate::clock::Nanos;
use crate::dependency::PartitionSet;
use crate::limits::MAX_PARTITIONS;
use crate::state::{AnyState, AnyTable, Change, Held, NEVER, RowBytes, Site};

const PUT: u8 = 0;
const PUT_EXPIRING: u8 = 1;
const DELETE: u8 = 2;

/// Bytes that an entry needs besides its key and value, at most.
pub const ENTRY_OVERHEAD: usize = 9;

/// Why a delta was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeltaError {
    /// The bytes end inside an entry.
    #[error("the delta ends inside an entry")]
    Truncated,
    /// A table that the state does not have.
    #[error("the delta names a table that the state does not have")]
    UnknownTable,
    /// A form that this version does not know.
    #[error("the delta has an entry of an unknown form")]
    UnknownForm,
    /// A row of a partition that the record does not write.
    #[error("the delta changes a partition that its record does not write")]
    ForeignPartition,
}

/// Appends one change.
pub fn put_change(out: &mut Vec<u8>, change: &Change<'_>) {
    put_head(out, change.table, change.value.is_none(), change.expires);
    out.extend_from_slice(change.key);
    out.extend_from_slice(change.value.unwrap_or_default());
}

/// Appends what stands in front of a change's key.
#[inline]
pub(super) fn put_head(out: &mut Vec<u8>, table: u8, deleted: bool, expires: Nanos) {
    let form = match (deleted, expires) {
        (true, _) => DELETE,
        (false, NEVER) => PUT,
        (false, _) => PUT_EXPIRING,
    };
    out.push(table << 2 | form);
    if form == PUT_EXPIRING {
        out.extend_from_slice(&expires.to_le_bytes());
    }
}

/// The entries of a delta that are still to be read.
struct Entries<'a, 's, T> {
    rest: &'a [u8],
    /// The state's tables by number.
    tables: T,
    /// The last entry's table: mostly the next one's, too.
    last: Option<(u8, &'s dyn AnyTable, RowBytes)>,
}

impl<'a, 's, T: Fn(usize) -> Option<&'s dyn AnyTable>> Entries<'a, 's, T> {
    fn new(delta: &'a [u8], tables: T) -> Self {
        Entries { rest: delta, tables, last: None }
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], DeltaError> {
        let (taken, after) = self.rest.split_at_checked(len).ok_or(DeltaError::Truncated)?;
        self.rest = after;
        Ok(taken)
    }

    #[inline]
    fn table(&mut self, number: u8) -> Result<(&'s dyn AnyTable, RowBytes), DeltaError> {
        if let Some((last, table, sizes)) = self.last
            && last == number
        {
            return Ok((table, sizes));
        }
        let table = (self.tables)(usize::from(number)).ok_or(DeltaError::UnknownTable)?;
        let sizes = table.row_bytes();
        self.last = Some((number, table, sizes));
        Ok((table, sizes))
    }

    #[inline]
    fn next_change(&mut self) -> Result<(Change<'a>, &'s dyn AnyTable), DeltaError> {
        let tag = self.take(1)?[0];
        let number = tag >> 2;
        let (table, sizes) = self.table(number)?;
        let mut expires = NEVER;
        match tag & 3 {
            PUT | DELETE => {}
            PUT_EXPIRING => {
                let bytes = self.take(8)?;
                expires = Nanos::from_le_bytes(bytes.try_into().map_err(|_| DeltaError::Truncated)?);
            }
            _ => return Err(DeltaError::UnknownForm),
        }
        let key = self.take(sizes.key)?;
        let value = if tag & 3 == DELETE { None } else { Some(self.take(sizes.value)?) };
        Ok((Change { table: number, key, value, expires }, table))
    }
}

impl<'a, 's, T: Fn(usize) -> Option<&'s dyn AnyTable>> Iterator for Entries<'a, 's, T> {
    type Item = Result<(Change<'a>, &'s dyn AnyTable), DeltaError>;

    /// The next entry with its table; the first damage ends them with an error.
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let change = self.next_change();
        if change.is_err() {
            self.rest = &[];
        }
        Some(change)
    }
}

/// The changes of a delta for `state`, in order; the first damage ends them with an error.
pub fn changes<'a>(
    state: &dyn AnyState,
    delta: &'a [u8],
) -> impl Iterator<Item = Result<Change<'a>, DeltaError>> {
    Entries::new(delta, |number| state.table(number)).map(|entry| entry.map(|(change, _)| change))
}

/// Checks a whole delta before anything of it is applied.
///
/// # Errors
/// The first damage, or a row outside of the partitions `written`.
pub fn check(state: &dyn AnyState, delta: &[u8], written: PartitionSet) -> Result<(), DeltaError> {
    find(state, delta, written, &Held::nothing(), &mut Vec::new())
}

/// [`check`], which also appends where each row is to `sites`, and has the processor fetch the rows that `held` covers:
/// they are about to be written.
///
/// # Errors
/// As [`check`]; then `sites` goes as far as the damage.
pub(crate) fn find(
    state: &dyn AnyState,
    delta: &[u8],
    written: PartitionSet,
    held: &Held,
    sites: &mut Vec<Site>,
) -> Result<(), DeltaError> {
    for entry in Entries::new(delta, |number| state.table(number)) {
        let (change, table) = entry?;
        let site = table.locate(change.key, held);
        if !written.contains(site.place.partition) {
            return Err(DeltaError::ForeignPartition);
        }
        sites.push(site);
    }
    Ok(())
}

/// Takes a delta in, into a state that the caller has to himself: [`apply_held`] with everything held.
pub fn apply(state: &mut dyn AnyState, delta: &[u8]) {
    let mut sites = Vec::new();
    // From a damaged delta the changes in front of the damage are taken.
    let _ = find(state, delta, PartitionSet::first(MAX_PARTITIONS), &Held::nothing(), &mut sites);
    apply_held(state, delta, sites, &Held::whole());
}

/// Takes in rows that were copied, into a state that nobody uses before all are there: what does not make sense ends
/// it, and the state is of no use then.
///
/// # Errors
/// The first damage.
pub(crate) fn load(state: &mut dyn AnyState, delta: &[u8]) -> Result<(), DeltaError> {
    let (state, held) = (&*state, Held::whole());
    make_room(state, delta, &held)?;
    for entry in Entries::new(delta, |number| state.table(number)) {
        let (change, table) = entry?;
        table.apply(&change, table.place_of(change.key).into(), &held);
    }
    Ok(())
}

/// Rows are copied a partition at a time, in the order of a table's slots. A table that grew on the way would be filled in
/// that order again and again, each time from one end.
fn make_room(state: &dyn AnyState, delta: &[u8], held: &Held) -> Result<(), DeltaError> {
    let mut changes = changes(state, delta).peekable();
    while let Some(first) = changes.next() {
        let (first, mut rows) = (first?, 1);
        let mut last = first;
        while let Some(next) = changes.next_if(|next| next.is_ok_and(|next| next.table == first.table)) {
            (last, rows) = (next?, rows + 1);
        }
        let table = state.table(usize::from(first.table)).ok_or(DeltaError::UnknownTable)?;
        let partition = table.place_of(first.key).partition;
        if partition == table.place_of(last.key).partition {
            table.reserve(partition, rows, held);
        }
    }
    Ok(())
}

/// Takes a delta in: **the** way that state changes, at the head's commit, at a replica, in recovery and in replay.
///
/// `sites` says where its rows are, one by one: what [`find`] found of it, or what the head's own commit knows of what it
/// wrote. Changes that have no site are not taken.
///
/// # Panics
/// Where it changes a partition that `held` does not cover.
pub(crate) fn apply_held(
    state: &dyn AnyState,
    delta: &[u8],
    sites: impl IntoIterator<Item = Site>,
    held: &Held,
) {
    for (site, entry) in sites.into_iter().zip(Entries::new(delta, |number| state.own_table(number))) {
        let Ok((change, table)) = entry else { return };
        table.apply(&change, site, held);
    }
}
