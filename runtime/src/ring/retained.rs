//! Units that a node has passed on and keeps until they are known to be on all nodes of their groups.

use std::collections::VecDeque;

use crate::clock::Nanos;

#[derive(Clone, Debug)]
struct Entry {
    /// Where the unit's bytes are; those of its name are behind them.
    at: usize,
    len: usize,
    name: usize,
    sent: Nanos,
}

/// Retained units, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retained {
    units: VecDeque<Entry>,
    /// The units one behind the other, each with its name; in front may be what is left of units that have gone.
    bytes: Vec<u8>,
}

fn unit<'a>(bytes: &'a [u8], entry: &Entry) -> &'a [u8] {
    &bytes[entry.at..][..entry.len]
}

/// What says of a unit whether it is committed: its name, which is shorter, or the unit where it has none.
fn name<'a>(bytes: &'a [u8], entry: &Entry) -> &'a [u8] {
    match entry.name {
        0 => unit(bytes, entry),
        len => &bytes[entry.at + entry.len..][..len],
    }
}

impl Retained {
    /// How many units are retained.
    pub(crate) fn len(&self) -> usize {
        self.units.len()
    }

    /// Whether none is.
    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Bytes of all retained units and their names.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() - self.gone()
    }

    /// The units, oldest first.
    pub(crate) fn units(&self) -> impl Iterator<Item = &[u8]> {
        self.units.iter().map(|entry| unit(&self.bytes, entry))
    }

    /// When each was last sent, in the same order.
    #[cfg(feature = "simulation")]
    pub(crate) fn sent(&self) -> impl Iterator<Item = Nanos> {
        self.units.iter().map(|entry| entry.sent)
    }

    /// Retains a unit that was sent at `sent`; 0 where it was not.
    pub(crate) fn push(&mut self, unit: &[u8], sent: Nanos) {
        self.push_with(&[], unit.len(), sent, |bytes| bytes.extend_from_slice(unit));
    }

    /// As [`Retained::push`], for a unit that has a name and that `append` writes, of `most` bytes at most. It is
    /// [`Retained::newest`] then.
    pub(crate) fn push_with(
        &mut self,
        name: &[u8],
        most: usize,
        sent: Nanos,
        append: impl FnOnce(&mut Vec<u8>),
    ) {
        let gone = self.gone();
        let is_full = self.bytes.len() + most + name.len() > self.bytes.capacity();
        if is_full && gone > self.bytes.len() / 2 {
            self.bytes.drain(..gone);
            self.units.iter_mut().for_each(|entry| entry.at -= gone);
        }
        let at = self.bytes.len();
        append(&mut self.bytes);
        self.units.push_back(Entry { at, len: self.bytes.len() - at, name: name.len(), sent });
        self.bytes.extend_from_slice(name);
    }

    /// The unit that was retained last; empty where there is none.
    pub(crate) fn newest(&self) -> &[u8] {
        self.units.back().map_or(&[], |entry| unit(&self.bytes, entry))
    }

    /// Lets the oldest units go as long as `committed` holds for their names. Returns whether any went.
    pub(crate) fn prune(&mut self, committed: impl Fn(&[u8]) -> bool) -> bool {
        let before = self.units.len();
        while self.units.pop_front_if(|entry| committed(name(&self.bytes, entry))).is_some() {}
        if self.units.is_empty() {
            self.bytes.clear();
        }
        self.units.len() < before
    }

    /// Bytes in front of the oldest unit.
    fn gone(&self) -> usize {
        self.units.front().map_or(self.bytes.len(), |entry| entry.at)
    }

    /// Shows up to `most` units, oldest first, that were last sent at or before `before` and that the successor lacks,
    /// and notes that they are sent `now`.
    pub(crate) fn resend(
        &mut self,
        most: usize,
        before: Nanos,
        now: Nanos,
        lacks: impl Fn(&[u8]) -> bool,
        mut send: impl FnMut(&[u8]),
    ) {
        let due = self.units.iter_mut().take_while(|entry| entry.sent <= before);
        for entry in due.filter(|entry| lacks(unit(&self.bytes, entry))).take(most) {
            entry.sent = now;
            send(unit(&self.bytes, entry));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn units_stay_whole_while_others_come_and_go(
            steps in proptest::collection::vec((0usize..40, 0usize..4), 1..200),
        ) {
            // Goal: bytes never mix, and room is used again. Method: random pushes and prunes beside a plain list.
            let (mut retained, mut list) = (Retained::default(), VecDeque::<[Vec<u8>; 2]>::new());
            let mut most = 0;
            for (number, (len, gone)) in steps.into_iter().enumerate() {
                // Every other unit has a name, which is asked about in its place.
                let (unit, name) = (vec![number as u8; len], vec![!(number as u8); number % 2]);
                retained.push_with(&name, len, number as Nanos, |bytes| bytes.extend_from_slice(&unit));
                prop_assert_eq!(retained.newest(), &unit[..]);
                list.push_back([unit, name]);
                most = most.max(retained.bytes());
                let (left, asked) = (std::cell::Cell::new(gone), std::cell::RefCell::new(Vec::new()));
                retained.prune(|name| {
                    asked.borrow_mut().push(name.to_vec());
                    left.replace(left.get().saturating_sub(1)) > 0
                });
                for (at, asked) in asked.take().into_iter().enumerate() {
                    prop_assert_eq!(&asked, &list[at][if list[at][1].is_empty() { 0 } else { 1 }]);
                }
                list.drain(..gone.min(list.len()));
                prop_assert!(retained.units().eq(list.iter().map(|[unit, _]| &unit[..])));
                prop_assert_eq!(retained.bytes(), list.iter().flatten().map(Vec::len).sum::<usize>());
                prop_assert_eq!((retained.len(), retained.is_empty()), (list.len(), list.is_empty()));
            }
            prop_assert!(retained.bytes.capacity() <= 4 * most.max(16), "room for {} of {most}", retained.bytes.capacity());
            let mut sent = Vec::new();
            retained.resend(2, Nanos::MAX, 1, |unit| !unit.is_empty(), |unit| sent.push(unit.to_vec()));
            let list = list.iter().map(|[unit, _]| unit);
            prop_assert!(sent.iter().eq(list.filter(|unit| !unit.is_empty()).take(2)));
        }
    }
}
