//! Gen: writes a value of a chosen size per packet and forwards, to measure what state costs.
//!
//! A packet writes the row of its flow's bucket: its first 8 bytes count the bucket's packets (little endian), the
//! others repeat the count's low byte, so that two copies of the state differ wherever one missed a write. The name
//! in chain files is `gen`, which Rust keeps for itself.

use std::sync::Arc;

use pannier_runtime::state::{AnyState, AnyTable, Layout, State, Table};
use pannier_runtime::wire::{Flow, Layers, symmetric_hash};
use pannier_runtime::{AnyNf, Frame, Nf, Txn, TxnResult, Verdict};
use serde::Deserialize;

use crate::catalogue::{NfKind, OptionDoc, OptionError, Options};

/// What chain files call `gen`.
pub const KIND: NfKind = NfKind {
    name: "gen",
    summary: "writes a value of a chosen size per packet, for measuring",
    options: &[
        OptionDoc {
            name: "size",
            takes: "number of bytes, a multiple of 16 from 16 to 256",
            default: Some("64"),
            help: "size of the value that each packet writes",
        },
        OptionDoc {
            name: "buckets",
            takes: "number of rows, 1 to 4294967295",
            default: Some("4096"),
            help: "rows that the flows are spread over",
        },
    ],
    build,
};

/// Options of the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenConfig {
    /// Bytes of the value that each packet writes: a multiple of 16 from 16 to 256.
    pub size: usize,
    /// Rows that the flows are spread over.
    pub buckets: u32,
}

impl Default for GenConfig {
    fn default() -> Self {
        GenConfig { size: 64, buckets: 4_096 }
    }
}

/// The generator of values of `N` bytes; see the [module](self).
#[derive(Clone, Debug)]
pub struct Gen<const N: usize> {
    buckets: u32,
}

/// A generator of values of `N` bytes, 8 or more, spread over `buckets` rows (one at least).
pub fn generator<const N: usize>(buckets: u32) -> Gen<N> {
    const { assert!(N >= 8, "a value holds a count of 8 bytes") };
    Gen { buckets: buckets.max(1) }
}

/// The generator's state: written by hand, since [`state!`](pannier_runtime::state!) has no sizes as parameters.
#[derive(Clone, Debug)]
pub struct GenState<const N: usize> {
    /// Values by bucket.
    pub values: Table<u32, [u8; N]>,
}

impl<const N: usize> State for GenState<N> {
    fn new(layout: &Layout) -> Self {
        GenState { values: Table::new("values", 0, 4_096, layout) }
    }
}

impl<const N: usize> AnyState for GenState<N> {
    fn tables(&self) -> usize {
        1
    }

    fn table(&self, number: usize) -> Option<&dyn AnyTable> {
        (number == 0).then_some(&self.values as &dyn AnyTable)
    }

    fn boxed_clone(&self) -> Box<dyn AnyState> {
        Box::new(self.clone())
    }
}

impl<const N: usize> Nf for Gen<N> {
    type State = GenState<N>;

    fn state(&self, layout: &Layout) -> GenState<N> {
        let mut state = GenState::new(layout);
        state.values.set_capacity(self.buckets as usize);
        state
    }

    fn process(&self, frame: &mut Frame<'_>, state: &GenState<N>, txn: &mut Txn<'_>) -> TxnResult<Verdict> {
        let layers = Layers::parse(frame.bytes())?;
        let flow = Flow::of(frame.bytes(), &layers);
        let bucket = flow.map_or(0, |flow| symmetric_hash(&flow) % self.buckets);
        txn.update(&state.values, bucket, |value| next(value.as_ref()))?;
        Ok(Verdict::Forward)
    }
}

/// The value that follows `value`.
fn next<const N: usize>(value: Option<&[u8; N]>) -> [u8; N] {
    let count = value.and_then(|value| value.first_chunk()).map_or(0, |count| u64::from_le_bytes(*count));
    let count = count.wrapping_add(1).to_le_bytes();
    let mut value = [count[0]; N];
    if let Some(start) = value.first_chunk_mut() {
        *start = count;
    }
    value
}

fn build(options: Options) -> Result<Arc<dyn AnyNf>, OptionError> {
    let GenConfig { size, buckets } = options.parse()?;
    if buckets == 0 {
        return Err(OptionError::at("buckets", "there is one row at least"));
    }
    macro_rules! of_size {
        ($($bytes:literal)+) => {
            match size {
                $($bytes => Ok(Arc::new(generator::<$bytes>(buckets))),)+
                _ => Err(OptionError::at("size", "the size is a multiple of 16 from 16 to 256 bytes")),
            }
        };
    }
    of_size!(16 32 48 64 80 96 112 128 144 160 176 192 208 224 240 256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Harness;
    use pannier_runtime::state::{AnyTable, RowBytes};
    use pannier_runtime::wire::FrameBuilder;

    #[test]
    fn every_packet_writes_its_bucket() {
        // Goal: one write per packet, both directions in one row. Method: three packets of a flow, one without IP.
        let mut harness = Harness::new(generator::<48>(1_000));
        let there = FrameBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2, b"");
        let back = FrameBuilder::ipv4([10, 0, 0, 2], [10, 0, 0, 1]).udp(2, 1, b"");
        for frame in [&there, &back, &there] {
            assert_eq!(harness.outbound(frame).reason(), None);
        }
        harness.outbound(&FrameBuilder::new().ethernet_payload(0x88CC, b"x"));
        let rows = harness.state::<GenState<48>>().values.rows();
        let counts: Vec<u8> = rows.iter().map(|(_, value)| value[0]).collect();
        assert_eq!(counts.iter().sum::<u8>(), 4);
        assert!(rows.iter().all(|(_, value)| value[1..8] == [0; 7] && value[8..] == [value[0]; 40]));
    }

    #[test]
    fn sizes_are_multiples_of_sixteen() {
        // Goal: each size that the documentation names exists, no other. Method: build all, look at the row.
        let row = |size: i64| {
            let nf = KIND.build(&[("size", size.into())])?;
            let state = nf.new_state(&Layout::default());
            Ok::<_, OptionError>(state.table(0).map(AnyTable::row_bytes))
        };
        for size in (16..=256).step_by(16) {
            assert_eq!(row(size), Ok(Some(RowBytes { key: 4, value: size as usize })));
        }
        for size in [0, 8, 17, 272] {
            assert_eq!(row(size).unwrap_err().key.as_deref(), Some("size"));
        }
        assert!(KIND.build(&[("buckets", 0.into())]).is_err());
    }
}
