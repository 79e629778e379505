//! Captures that others made: a folder beside the workspace, or where `PANNIER_CAPTURES` says.

use std::path::{Path, PathBuf};

use super::super::Reader;
use super::{Heard, drain};

/// One line of the folder's index.
struct Listed {
    file: String,
    format: String,
    packets: usize,
}

fn folder() -> PathBuf {
    std::env::var_os("PANNIER_CAPTURES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/pcaps"), PathBuf::from)
}

fn listed(index: &str) -> Vec<Listed> {
    let mut lines = index.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let titles = lines.next().expect("the index has titles");
    let column = |title| titles.iter().position(|it| *it == title).expect("the index has this column");
    let (file, format, packets) = (column("file"), column("format"), column("packets"));
    lines
        .map(|line| Listed {
            file: line[file].to_owned(),
            format: line[format].to_owned(),
            packets: line[packets].parse().expect("a number of packets"),
        })
        .collect()
}

#[test]
fn foreign_captures_are_read() {
    // Goal: real and broken captures give the packets that the index counts. Method: read all, compare, explain.
    let folder = folder();
    let Ok(index) = std::fs::read_to_string(folder.join("index.csv")) else {
        eprintln!("SKIPPED: no captures in {}, set PANNIER_CAPTURES to their folder", folder.display());
        return;
    };
    let listed = listed(&index);
    assert!(!listed.is_empty());
    let mut unexplained = Vec::new();
    for Listed { file, format, packets } in &listed {
        match Reader::open(&folder.join(file)) {
            Ok(reader) => {
                let Heard { packets: seen, error, truncated } = drain(reader);
                if seen.len() != *packets || error.is_some() {
                    unexplained.push(format!(
                        "{file} ({format}): {} of {packets}; {error:?} {truncated:?}",
                        seen.len()
                    ));
                }
            }
            Err(error) => unexplained.push(format!("{file} ({format}): {packets}; {error}")),
        }
    }
    assert!(unexplained.is_empty(), "{} differ:\n{}", unexplained.len(), unexplained.join("\n"));
}
