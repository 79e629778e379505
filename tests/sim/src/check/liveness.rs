//! `liveness`: when faults stop, every held packet leaves, nothing waits or is retained, and replicas are equal.

use super::{Broken, Scene, broken};

/// Checks that replicas hold what heads hold, once nothing is under way.
///
/// # Errors
/// The stage whose replicas differ.
pub fn at_rest(scene: &impl Scene) -> Result<(), Broken> {
    let layout = scene.plan().layout;
    for stage in 0..scene.plan().stages() {
        let mut digests = scene.plan().group(stage).map(|node| {
            let store = scene.up(node).and_then(|node| node.store(stage))?;
            Some((store.versions(), store.state.digest(&layout)))
        });
        let head = digests.next().flatten();
        if head.is_none() || digests.any(|other| other != head) {
            return broken("liveness", format!("the replicas of stage {stage} differ at rest"));
        }
    }
    Ok(())
}

/// Checks that `packets`, which nothing keeps from leaving, have left behind the first `before` ones: each once, and
/// those of one direction in the order in which they came.
///
/// # Errors
/// What left in their place.
pub fn through(scene: &impl Scene, before: usize, packets: &[u64]) -> Result<(), Broken> {
    let entries = scene.journal().entries();
    let of = |path: &Vec<u64>| path.first().and_then(|id| entries.transactions.get(id)?.packet);
    let left: Vec<u64> = scene.released()[before..].iter().filter_map(of).collect();
    let (outbound, inbound) = packets.split_at(packets.len() / 2);
    for sent in [outbound, inbound] {
        let came: Vec<u64> = left.iter().filter(|packet| sent.contains(packet)).copied().collect();
        if came != sent {
            return broken("liveness", format!("without faults {sent:?} entered, and {came:?} left"));
        }
    }
    Ok(())
}

/// The promise is broken because nodes do not come to rest: what they still hold.
pub fn stuck(scene: &impl Scene) -> Broken {
    let index = 0..scene.plan().nodes();
    let nodes: Vec<String> = index
        .map(|index| match scene.up(index) {
            Some(node) if node.is_idle() => format!("node {index} is idle"),
            Some(node) => format!("{node:?}"),
            None => format!("node {index} is not up"),
        })
        .collect();
    Broken { promise: "liveness", what: format!("the ring does not come to rest: {}", nodes.join(", ")) }
}
