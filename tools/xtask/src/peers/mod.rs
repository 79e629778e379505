//! Pannier beside its peers, on the same input in the same minutes: ratios, since absolute figures move by half from hour
//! to hour. Root; what is missing is said, and its part left out.

mod dpdk;
mod wire;

use anyhow::{Context, ensure};
use std::process::{Command, Output};

/// Times that each program is measured, in turn with the others.
const ROUNDS: usize = 5;

/// Runs all comparisons, or the one that is named.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let which = arguments.first().map_or("all", String::as_str);
    ensure!(["all", "wire", "dpdk"].contains(&which), "there are the comparisons `wire` and `dpdk`");
    if which != "dpdk" {
        wire::compare()?;
    }
    if which != "wire" {
        dpdk::compare()?;
    }
    Ok(())
}

/// Runs a program to its end, which must be a good one.
fn output(program: &str, arguments: &[&str]) -> anyhow::Result<Output> {
    let line = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).output().with_context(line)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{}` failed: {}", line(), said.trim());
    Ok(output)
}

/// Minimum, median and maximum.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => [f64::NAN; 3],
        len => [sorted[0], sorted[len / 2], sorted[len - 1]],
    }
}

/// A table of measured programs; the first is the reference.
struct Table {
    title: &'static str,
    unit: &'static str,
    rows: Vec<(String, Vec<f64>)>,
}

impl Table {
    fn new(title: &'static str, unit: &'static str, names: &[&str]) -> Self {
        Table { title, unit, rows: names.iter().map(|name| ((*name).to_owned(), Vec::new())).collect() }
    }

    fn print(&self) {
        println!("\n{}\n\n| | {} | of the first: minimum | median | maximum |", self.title, self.unit);
        println!("|---|---|---|---|---|");
        for (name, values) in &self.rows {
            let [_, median, _] = spread(values.iter().copied());
            let ratios = values.iter().zip(&self.rows[0].1).map(|(value, reference)| value / reference);
            let [low, middle, high] = spread(ratios);
            println!("| {name} | {median:.3} | {low:.2} | {middle:.2} | {high:.2} |");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_minimum_median_and_maximum() {
        // Goal: tables say what they say they do. Method: an odd number of values, and none.
        assert_eq!(spread([3.0, 1.0, 2.0].into_iter()), [1.0, 2.0, 3.0]);
        assert!(spread(std::iter::empty()).iter().all(|value| value.is_nan()));
    }
}
