//! `prefix`: at every moment each replica is a prefix, per partition, of its predecessor in the group.

use pannier_runtime::dependency::Vector;
use pannier_runtime::ring::Store;

use super::{Broken, Scene, broken, causality, cell, keys, once};
use crate::journal::Entries;

/// What a replica holds, its predecessor in the group holds or held.
pub(super) fn contents(scene: &impl Scene, entries: &Entries) -> Result<(), Broken> {
    for stage in 0..scene.plan().stages() {
        let here = |node| Some((node, scene.up(node)?.store(stage)?));
        let stores: Vec<(usize, &Store)> = scene.plan().group(stage).filter_map(here).collect();
        for pair in stores.windows(2) {
            let ((before, ahead), (node, store)) = (pair[0], pair[1]);
            for key in keys().filter(|key| cell(ahead, *key) != cell(store, *key)) {
                if !once::history(entries, cell(ahead, key))?.holds(&cell(store, key)) {
                    return broken(
                        "prefix",
                        format!("node {node} holds of stage {stage} what node {before} does not"),
                    );
                }
            }
        }
    }
    Ok(())
}

/// What each node's numbers were when they were last looked at: they only rise.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// By node: its incarnation and, by stage, its vectors.
    seen: Vec<(u64, Vec<Option<[Vector; 2]>>)>,
}

impl Watch {
    /// Looks at the node that had the last turn.
    ///
    /// # Errors
    /// A version or a commit that went back, or one that runs ahead of what it rests on.
    pub fn look(&mut self, scene: &impl Scene, index: usize) -> Result<(), Broken> {
        let Some(node) = scene.up(index) else { return Ok(()) };
        let plan = scene.plan();
        self.seen.resize(plan.nodes(), (0, Vec::new()));
        if self.seen[index].0 != node.incarnation() {
            self.seen[index] = (node.incarnation(), vec![None; plan.stages()]);
        }
        for stage in plan.held_by(index) {
            let Some(store) = node.store(stage) else { continue };
            let seen = &mut self.seen[index].1;
            let now = [store.versions(), store.commit()];
            if let Some([versions, commit]) = &seen[stage]
                && (0..plan.layout.partitions).any(|p| now[0][p] < versions[p] || now[1][p] < commit[p])
            {
                return broken(
                    "prefix",
                    format!("a version or commit of stage {stage} went back at node {index}"),
                );
            }
            seen[stage] = Some(now);
            self.numbers(scene, index, stage, &now)?;
        }
        causality::locally(node, plan.held_by(index), &scene.journal().entries())
    }

    /// No replica is ahead of the one before it, and what is known as committed is at all nodes of the group. The others'
    /// numbers are those of their last turns.
    fn numbers(
        &self,
        scene: &impl Scene,
        index: usize,
        stage: usize,
        [versions, commit]: &[Vector; 2],
    ) -> Result<(), Broken> {
        let plan = scene.plan();
        let mut is_before = true;
        for member in plan.group(stage) {
            is_before &= member != index;
            let Some(node) = scene.up(member) else { continue };
            let (incarnation, seen) = &self.seen[member];
            let Some([theirs, _]) = seen.get(stage).and_then(Option::as_ref) else { continue };
            if *incarnation != node.incarnation() {
                continue; // it has had no turn
            }
            for partition in 0..plan.layout.partitions {
                let (mine, its) = (versions[partition], theirs[partition]);
                if is_before && mine > its {
                    return broken(
                        "prefix",
                        format!("node {index} is ahead of node {member} in stage {stage}"),
                    );
                }
                if commit[partition] > its {
                    return broken(
                        "prefix",
                        format!("node {index} takes for committed what node {member} lacks of stage {stage}"),
                    );
                }
            }
        }
        Ok(())
    }
}
