//! What the suites share: the example chain, and the targets of the fuzzers.

pub mod edge;
pub mod fuzz;

use pannier_sim::Schedule;

/// The schedules that once broke a promise, or that a mutant needs to be caught, with their file names.
///
/// # Panics
/// Where one can't be read.
pub fn kept_schedules() -> Vec<(String, Schedule)> {
    let folder = edge::root().join("tests/sim/regressions");
    let files = std::fs::read_dir(&folder).expect("the folder is there");
    let mut kept: Vec<(String, Schedule)> = files
        .map(|file| {
            let path = file.expect("the folder can be read").path();
            let text = std::fs::read_to_string(&path).expect("a schedule is a text");
            let schedule = Schedule::parse(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            (path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(), schedule)
        })
        .collect();
    kept.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!kept.is_empty(), "no schedule in {}", folder.display());
    kept
}
