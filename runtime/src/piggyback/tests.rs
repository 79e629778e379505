//! Records and units through bytes: nothing is lost, and no damage gets in.

use proptest::prelude::*;

use super::*;
use crate::dependency::Vector;

/// A record's stage, its partitions with version and whether written, and its delta.
type Parts = (u8, std::collections::BTreeMap<usize, (u32, bool)>, Vec<u8>);

fn parts() -> impl Strategy<Value = Vec<Parts>> {
    let seen = prop::collection::btree_map(0usize..64, (any::<u32>(), any::<bool>()), 1..6);
    let one = (seen, prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(seen, delta)| {
        let writes = seen.values().any(|s| s.1);
        (seen, if writes { delta } else { Vec::new() })
    });
    // A unit has one record of a stage.
    let by_stage = prop::collection::btree_map(0u8..64, one, 1..4);
    by_stage.prop_map(|parts| parts.into_iter().map(|(stage, (seen, delta))| (stage, seen, delta)).collect())
}

fn unit_of(parts: &[Parts]) -> Vec<u8> {
    let (mut unit, mut bytes) = (UnitBuilder::default(), Vec::new());
    for (stage, seen, delta) in parts {
        let record = unit.record(*stage);
        seen.iter().for_each(|(&p, &(version, written))| record.note(p, u64::from(version), written));
        record.delta_mut().extend_from_slice(delta);
    }
    unit.encode(&mut bytes);
    bytes
}

fn parts_of(unit: &UnitView<'_>) -> Vec<Parts> {
    let seen = |r: &RecordView<'_>| r.seen().map(|s| (s.partition, (s.version, s.written))).collect();
    unit.records().map(|r| (r.stage, seen(&r), r.delta.to_vec())).collect()
}

proptest! {
    #[test]
    fn a_unit_survives_the_way_through_bytes(parts in parts()) {
        // Goal: the format loses nothing. Method: encode random records, parse, compare all fields.
        let bytes = unit_of(&parts);
        prop_assert_eq!(parts_of(&UnitView::parse(&bytes).expect("own bytes")), parts);
    }

    #[test]
    fn what_nothing_joins_is_passed_on_as_it_came(parts in parts()) {
        // Goal: nobody between head and tail changes a record. Method: random units through a builder, which then also
        // takes in their names; the bytes that come out, against those that went in. A name is the same after the way.
        let versions: std::collections::BTreeMap<u8, Vector> = parts.iter().map(|(stage, seen, _)| {
            let mut vector = Vector::default();
            seen.iter().for_each(|(&partition, seen)| vector.0[partition] = u64::from(seen.0));
            (*stage, vector)
        }).collect();
        let bytes = unit_of(&parts);
        let (mut open, mut name, mut after) = (UnitBuilder::default(), Vec::new(), Vec::new());
        for _ in 0..2 {
            prop_assert!(open.absorb(&UnitView::parse(&bytes).expect("own bytes"), |stage| versions.get(&stage)));
            name.clear();
            open.encode_name(&mut name);
            prop_assert!(open.absorb(&UnitView::parse(&name).expect("a unit"), |stage| versions.get(&stage)));
            after.clear();
            open.encode(&mut after);
            prop_assert_eq!(&after, &bytes);
            prop_assert!(open.bytes() >= bytes.len());
            open.clear();
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused(parts in parts()) {
        // Goal: damage on the way never gets in. Method: all bits and all lengths of random units.
        let bytes = unit_of(&parts);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(UnitView::parse(&damaged).is_err(), "bit {}", bit);
        }
        for len in 1..bytes.len() {
            prop_assert!(UnitView::parse(&bytes[..len]).is_err(), "cut to {}", len);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_make_sense(mut bytes in prop::collection::vec(any::<u8>(), 0..80), records in 0u8..4) {
        // Goal: no bytes panic, also not those with a good checksum. Method: noise as it is, and sealed.
        let _ = UnitView::parse(&bytes);
        if bytes.len() >= UNIT_HEADER {
            seal(&mut bytes, records);
            if let Ok(unit) = UnitView::parse(&bytes) {
                prop_assert_eq!(unit.records().count(), usize::from(records));
                prop_assert!(unit.records().all(|r| r.delta.is_empty() || !r.written().is_empty()));
                let stages: std::collections::BTreeSet<u8> = unit.records().map(|r| r.stage).collect();
                prop_assert_eq!(stages.len(), usize::from(records));
            }
        }
    }

    #[test]
    fn select_keeps_what_is_wanted_and_nothing_else(parts in parts(), wanted: u64) {
        // Goal: a part of a unit is a unit. Method: random picks by stage, against filtered input.
        let mut part = b"old".to_vec();
        select(&unit_of(&parts), |record| wanted >> record.stage & 1 == 1, &mut part);
        let kept: Vec<Parts> = parts.into_iter().filter(|(stage, ..)| wanted >> stage & 1 == 1).collect();
        prop_assert_eq!(part.is_empty(), kept.is_empty());
        prop_assert_eq!(parts_of(&UnitView::parse(&part).expect("a unit")), kept);
    }
}
