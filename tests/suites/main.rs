//! All suites in one binary: one link, one list of tests, each file named for what it watches over.

mod captures;
mod crashes;
mod exhaustive;
mod fuzz;
mod layering;
mod live;
mod log;
mod mutants;
mod queues;
mod runs;
mod schedules;
mod shards;

mod source;
mod style;
