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
            Some((store.versions, store.state.digest(&layout)))
        });
        let head = digests.next().flatten();
        if head.is_none() || digests.any(|other| other != head) {
            return broken("liveness", format!("the replicas of stage {stage} differ at rest"));
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
