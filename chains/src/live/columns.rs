//! Which worker gives turns to what: the shards of a lane stand in one column, through all nodes.
//!
//! A packet that changes workers takes several cache lines from one core to another, which costs more than what is done to
//! it. So where there are as many shards as workers, a lane has one worker from edge to edge. Where there are fewer, a
//! column has several workers, and neighbouring nodes share one.

/// A chain's shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    pub(super) nodes: usize,
    /// Shards of each node at the start: as many columns; at least one.
    pub(super) shards: usize,
    /// At least one.
    pub(super) workers: usize,
}

impl Columns {
    /// The worker of a shard that a node has from the start, and of an edge beside it.
    pub(super) fn home(self, node: usize, shard: usize) -> usize {
        let column = shard % self.shards;
        if self.shards >= self.workers {
            return column % self.workers;
        }
        let [first, end] = [column, column + 1].map(|column| column * self.workers / self.shards);
        first + node * (end - first) / self.nodes
    }

    /// The worker of a further shard of a node that has shards on the workers `taken`: its column's, unless the node has one
    /// there and none on another.
    pub(super) fn further(self, node: usize, shard: usize, taken: &[usize]) -> usize {
        let home = self.home(node, shard);
        let mut from_there = (0..self.workers).map(|step| (home + step) % self.workers);
        from_there.find(|worker| !taken.contains(worker)).unwrap_or(home)
    }

    /// The worker of an edge to the outside: beside the last node, which has less to do than the first where it only
    /// replicates. The edges of a node that is alone share a worker only where it has shards on all.
    pub(super) fn outside(self, column: usize) -> usize {
        if self.nodes > 1 {
            return self.home(self.nodes - 1, column);
        }
        let taken: Vec<usize> = (0..self.shards).map(|shard| self.home(0, shard)).collect();
        self.further(0, column, &taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(nodes: usize, shards: usize, workers: usize) -> Columns {
        Columns { nodes, shards, workers }
    }

    /// By node: the workers of its shards.
    fn homes(of: Columns) -> Vec<Vec<usize>> {
        (0..of.nodes).map(|node| (0..of.shards).map(|shard| of.home(node, shard)).collect()).collect()
    }

    #[test]
    fn lanes_stay_on_their_workers_where_shards_are_enough() {
        // Goal: no packet changes workers on its way. Method: as many shards as workers and more, at all numbers of nodes.
        for (nodes, shards, workers) in [(1, 1, 1), (3, 2, 2), (5, 3, 2), (2, 8, 3), (4, 4, 4)] {
            let of = columns(nodes, shards, workers);
            let row: Vec<usize> = (0..shards).map(|shard| shard % workers).collect();
            assert_eq!(homes(of), vec![row.clone(); nodes]);
            assert_eq!((0..shards).map(|queue| of.outside(queue)).collect::<Vec<_>>(), row);
        }
    }

    #[test]
    fn neighbours_share_a_column_of_several_workers() {
        // Goal: all workers have work, and few links lead from one to another. Method: worked examples.
        assert_eq!(homes(columns(4, 1, 2)), [[0], [0], [1], [1]]);
        assert_eq!(homes(columns(3, 1, 2)), [[0], [0], [1]]);
        assert_eq!(homes(columns(2, 1, 4)), [[0], [2]]);
        assert_eq!(homes(columns(2, 2, 4)), [[0, 2], [1, 3]]);
        assert_eq!(homes(columns(3, 2, 3)), [[0, 1], [0, 1], [0, 2]]);
        assert_eq!((columns(4, 1, 2).outside(0), columns(2, 2, 4).outside(1)), (1, 3));
    }

    #[test]
    fn the_edges_of_a_lone_node_share_a_worker_only_without_another() {
        // Goal: a node that is alone leaves a worker to what it lets out. Method: worked examples.
        assert_eq!([1, 2, 4].map(|workers| columns(1, 1, workers).outside(0)), [0, 1, 1]);
        assert_eq!([0, 1].map(|queue| columns(1, 2, 4).outside(queue)), [1, 3]);
    }

    #[test]
    fn a_further_shard_goes_where_its_node_has_none() {
        // Goal: shards that are added while a chain runs bring cores, and stay in their columns where they can. Method:
        // worked examples: nodes of one shard that get a second and a third, and one that gets back what it had.
        let of = columns(2, 1, 2);
        assert_eq!((of.further(0, 1, &[0]), of.further(1, 1, &[1])), (1, 0));
        assert_eq!((of.further(0, 2, &[0, 1]), of.further(1, 2, &[1, 0])), (0, 1));
        assert_eq!(columns(2, 2, 2).further(1, 1, &[0]), 1);
        assert_eq!(columns(2, 3, 3).further(1, 3, &[0, 1]), 2);
    }
}
