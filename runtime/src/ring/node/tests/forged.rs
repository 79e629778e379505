//! Units whose checksums are good, whatever is in them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::dependency::PartitionSet;
use crate::piggyback::UnitBuilder;
use crate::state::{Change, NEVER, State};
use crate::txn::delta::put_change;

/// A record: its stage, its changes, what of their partitions it does not name, what else it names, and bytes behind.
type Forged = (u8, Vec<(u8, Option<u64>)>, Option<u8>, Option<usize>, Vec<u8>);

fn records() -> impl Strategy<Value = Vec<Forged>> {
    let changes = prop::collection::vec((any::<u8>(), prop::option::weighted(0.8, any::<u64>())), 0..12);
    let rarely = |most: usize| prop::option::weighted(0.1, 0..most);
    let behind = prop_oneof![8 => Just(Vec::new()), 1 => prop::collection::vec(any::<u8>(), 1..4)];
    let stage = prop_oneof![6 => 0u8..2, 1 => 2u8..5];
    let unnamed = prop::option::weighted(0.1, any::<u8>());
    prop::collection::vec((stage, changes, unnamed, rarely(10), behind), 1..4)
}

/// What a replica of two stages should hold.
#[derive(Clone)]
struct Model {
    places: Counts,
    rows: [BTreeMap<u8, u64>; 2],
    versions: [[u64; 8]; 2],
}

impl Model {
    fn new(plan: &Plan) -> Self {
        Model { places: Counts::new(&plan.layout), rows: Default::default(), versions: Default::default() }
    }

    /// Puts a record into a unit, and takes it in. Says whether it is sound.
    fn forge(&mut self, (stage, changes, unnamed, further, behind): &Forged, unit: &mut UnitBuilder) -> bool {
        let (mut written, partition_of) =
            (PartitionSet::default(), |key| self.places.counts.place(key).partition);
        let unnamed = unnamed.as_ref().map(partition_of);
        let named = changes.iter().map(|(key, _)| partition_of(key)).chain(further.iter().copied());
        named.filter(|partition| Some(*partition) != unnamed).for_each(|partition| written.insert(partition));
        if written.is_empty() {
            written.insert(unnamed.map_or(0, |partition| (partition + 1) % 8));
        }
        let record = unit.record(*stage);
        let near = self.versions.get(usize::from(*stage));
        for partition in written.iter() {
            let version = near.and_then(|near| near.get(partition)).copied().unwrap_or(0);
            record.note(partition, version, true);
        }
        for (key, value) in changes {
            let bytes = value.map(u64::to_le_bytes);
            let value = bytes.as_ref().map(|bytes| &bytes[..]);
            let change = Change { table: 0, key: std::slice::from_ref(key), value, expires: NEVER };
            put_change(record.delta_mut(), &change);
        }
        record.delta_mut().extend_from_slice(behind);
        // No entry is as short as what is behind, if it is a put; three bytes may be a deletion and a half.
        let deletes = behind.len() == 2 && behind[0] == 2 && written.contains(partition_of(&behind[1]));
        let is_sound = *stage < 2
            && (behind.is_empty() || deletes)
            && written.iter().all(|partition| partition < 8)
            && changes.iter().all(|(key, _)| written.contains(partition_of(key)));
        let (Some(rows), Some(versions)) =
            (self.rows.get_mut(usize::from(*stage)), self.versions.get_mut(usize::from(*stage)))
        else {
            return is_sound;
        };
        let last = deletes.then(|| (behind[1], None));
        for (key, value) in changes.iter().copied().chain(last) {
            match value {
                Some(value) => drop(rows.insert(key, value)),
                None => drop(rows.remove(&key)),
            }
        }
        written.iter().filter(|partition| *partition < 8).for_each(|partition| versions[partition] += 1);
        is_sound
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_unit_is_taken_as_it_stands_or_not_at_all(
        units in prop::collection::vec(records(), 1..8), shared: bool, lane in 0usize..2,
    ) {
        // Goal: whatever a unit says, all of it is applied or nothing, and nothing of one that was refused shows in the next.
        // Method: sealed units of random records to a replica of two stages, beside maps that take the sound ones.
        let mut plan = plan(3, 2);
        plan.lanes = 2;
        let nfs: Arc<[Arc<dyn AnyNf>]> = (0..3).map(|_| counter()).collect();
        let view = Orchestrator::new(&plan).view().clone();
        let mut node = Node::new(2, plan, nfs, view.clone());
        let (now, mut out) = (Now { timer: 1, wall: 1 }, Output::default());
        let (mut model, mut refusals) = (Model::new(&plan), 0);
        for records in &units {
            let (mut unit, mut bytes, mut then) = (UnitBuilder::default(), Vec::new(), model.clone());
            let mut stages = 0u64;
            let mut is_sound = true;
            for record in records {
                let is_first = stages >> record.0 & 1 == 0; // one record a stage
                stages |= 1 << record.0;
                is_sound &= !is_first || then.forge(record, &mut unit);
            }
            unit.encode(&mut bytes);
            match is_sound {
                true => model = then,
                false => refusals += 1,
            }
            let mut packet = Packet::new(&bytes);
            packet.meta.kind = Kind::Unit;
            (packet.meta.sender, packet.meta.lane) = (1, lane as u8);
            packet.meta.incarnation = view.members[1].incarnation;
            packet.meta.addressee = view.members[2].incarnation;
            if shared {
                let several = SharedNode::from(node);
                several.turn(lane, &mut vec![packet], now, false, &mut out);
                node = several.into();
            } else {
                node.accept(&mut vec![packet], now, &mut out);
            }
            prop_assert_eq!(node.stats().refused.total(), refusals);
            for (stage, rows) in model.rows.iter().enumerate() {
                let store = node.store(stage).expect("it is in the group");
                let found = store.state.downcast::<Counts>().expect("of the function").counts.rows();
                prop_assert_eq!(found, rows.iter().map(|(key, value)| (*key, *value)).collect::<Vec<_>>());
            }
        }
    }
}
