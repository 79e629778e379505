//! Units that a node has passed on and keeps until they are known to be on all nodes of their groups.

use std::collections::VecDeque;

use crate::clock::Nanos;

#[derive(Debug)]
struct Entry {
    unit: Vec<u8>,
    sent: Nanos,
}

/// Retained units, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    units: VecDeque<Entry>,
    spare: Vec<Vec<u8>>,
    bytes: usize,
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

    /// Bytes of all retained units.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The units, oldest first.
    pub(crate) fn units(&self) -> impl Iterator<Item = &[u8]> {
        self.units.iter().map(|entry| &*entry.unit)
    }

    /// Retains a unit that was sent at `sent`; 0 where it was not.
    pub(crate) fn push(&mut self, unit: &[u8], sent: Nanos) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(unit);
        self.bytes += unit.len();
        self.units.push_back(Entry { unit: copy, sent });
    }

    /// Lets the oldest units go as long as `committed` holds.
    pub(crate) fn prune(&mut self, committed: impl Fn(&[u8]) -> bool) {
        while self.units.front().is_some_and(|entry| committed(&entry.unit)) {
            // The condition saw a front entry.
            let Some(entry) = self.units.pop_front() else { break };
            self.bytes -= entry.unit.len();
            self.spare.push(entry.unit);
        }
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
        for entry in due.filter(|entry| lacks(&entry.unit)).take(most) {
            entry.sent = now;
            send(&entry.unit);
        }
    }
}
