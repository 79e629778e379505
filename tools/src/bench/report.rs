//! What cases came to, as tables for people and as JSON.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::spread::Spread;

/// A figure that is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Goal(pub(super) f64);

/// What one case came to.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The table that it stands in.
    pub(super) section: &'static str,
    pub(super) case: String,
    pub(super) traffic: String,
    /// What is measured, and its reference where it has one, round by round.
    pub(super) rounds: Vec<(f64, Option<f64>)>,
    /// How the reference makes a ratio of what is measured, which should be small.
    pub(super) goal: Option<Goal>,
    /// Other figures, with their names.
    pub(super) notes: Vec<(&'static str, f64)>,
}

/// A table: what its figures are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// What is measured, what it is measured beside, and how both make the figure that is judged.
    pub(super) measured: &'static str,
    pub(super) reference: Option<&'static str>,
    /// More is better: the ratio is turned round, so that it is always a cost.
    pub(super) rate: bool,
}

impl Row {
    fn measured(&self) -> Spread {
        Spread::of(self.rounds.iter().map(|(measured, _)| *measured))
    }

    fn reference(&self) -> Option<Spread> {
        let values: Option<Vec<f64>> = self.rounds.iter().map(|(_, reference)| *reference).collect();
        values.map(Spread::of)
    }

    /// What the goal is about: the ratio of neighbours, or what is measured where there is no reference.
    fn judged(&self, section: &Section) -> Spread {
        Spread::of(self.rounds.iter().map(|&(measured, reference)| match reference {
            Some(reference) if section.rate => reference / measured,
            Some(reference) => measured / reference,
            None => measured,
        }))
    }

    fn verdict(&self, section: &Section) -> Option<(f64, bool)> {
        let Goal(most) = self.goal?;
        Some((most, self.judged(section).median <= most))
    }

    fn json(&self, section: &Section) -> Value {
        let mut row = Map::new();
        row.insert("case".to_owned(), json!(self.case));
        row.insert("traffic".to_owned(), json!(self.traffic));
        row.insert("measured".to_owned(), self.measured().json());
        if let Some(reference) = self.reference() {
            row.insert("reference".to_owned(), reference.json());
            row.insert("ratio".to_owned(), self.judged(section).json());
        }
        if let Some((most, met)) = self.verdict(section) {
            row.insert("goal".to_owned(), json!({ "most": most, "met": met }));
        }
        for (name, value) in &self.notes {
            row.insert((*name).to_owned(), json!(value));
        }
        Value::Object(row)
    }
}

/// A number with about three digits.
fn short(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The rows of each section as one JSON object.
pub(super) fn json(sections: &[Section], rows: &[Row], rounds: u32) -> String {
    let mut all = Map::new();
    all.insert("rounds".to_owned(), json!(rounds));
    for section in sections {
        let of_section = rows.iter().filter(|row| row.section == section.name);
        let list: Vec<Value> = of_section.map(|row| row.json(section)).collect();
        let table = json!({ "measured": section.measured, "reference": section.reference, "cases": list });
        all.insert(section.name.to_owned(), table);
    }
    format!("{}\n", Value::Object(all))
}

/// The rows of each section as a table.
pub(super) fn text(sections: &[Section], rows: &[Row], rounds: u32) -> String {
    let mut out = format!("{rounds} rounds; ratios of neighbours: minimum, median, maximum\n");
    for section in sections {
        let of_section: Vec<&Row> = rows.iter().filter(|row| row.section == section.name).collect();
        if !of_section.is_empty() {
            let _ = write!(out, "\n## {}\n\n", section.title); // a string takes everything
            out.push_str(&table(section, &of_section));
        }
    }
    out
}

fn table(section: &Section, rows: &[&Row]) -> String {
    let mut lines = vec![vec!["case".to_owned(), "traffic".to_owned(), section.measured.to_owned()]];
    if let Some(reference) = section.reference {
        lines[0].extend([reference.to_owned(), "ratio".to_owned()]);
    }
    lines[0].extend(["goal".to_owned(), "besides".to_owned()]);
    lines.push(lines[0].iter().map(|_| "---".to_owned()).collect());
    lines.extend(rows.iter().map(|row| cells(section, row)));
    let columns = lines[0].len();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(out, "| {cell:width$} ");
        }
        out.push_str("|\n");
    }
    out
}

fn cells(section: &Section, row: &Row) -> Vec<String> {
    let spread = |s: Spread| format!("{} {} {}", short(s.min), short(s.median), short(s.max));
    let mut cells = vec![row.case.clone(), row.traffic.clone()];
    match (section.reference, row.reference()) {
        (Some(_), Some(reference)) => {
            let measured = short(row.measured().median);
            cells.extend([measured, short(reference.median), spread(row.judged(section))]);
        }
        (Some(_), None) => cells.extend([short(row.measured().median), String::new(), String::new()]),
        (None, _) => cells.push(spread(row.measured())),
    }
    cells.push(match row.verdict(section) {
        Some((most, true)) => format!("≤ {most}: met"),
        Some((most, false)) => format!("≤ {most}: missed"),
        None => String::new(),
    });
    let notes: Vec<String> =
        row.notes.iter().map(|(name, value)| format!("{name} {}", short(*value))).collect();
    cells.push(notes.join(", "));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Section =
        Section { name: "rates", title: "Rates", measured: "Mpps", reference: Some("f = 0"), rate: true };

    #[test]
    fn a_goal_is_met_by_the_median_of_neighbours_ratios() {
        // Goal: the verdict is the figures'. Method: rates whose costs are 1, 2 and 4, against two goals.
        let row = |goal| Row {
            section: "rates",
            case: "monitor".to_owned(),
            traffic: "64 B".to_owned(),
            rounds: vec![(8.0, Some(8.0)), (2.0, Some(4.0)), (1.0, Some(4.0))],
            goal: Some(Goal(goal)),
            notes: vec![("unit bytes", 12.0)],
        };
        let shown = text(&[RATES], &[row(2.0), row(1.9)], 3);
        assert!(shown.contains("| 2.00 | 4.00  | 1.00 2.00 4.00 | ≤ 2: met "), "{shown}");
        assert!(shown.contains("≤ 1.9: missed | unit bytes 12.0 |"), "{shown}");
        let value: Value = serde_json::from_str(&json(&[RATES], &[row(1.9)], 3)).expect("one object");
        let case = &value["rates"]["cases"][0];
        assert_eq!((&case["goal"]["met"], &case["ratio"]["max"]), (&json!(false), &json!(4.0)));
        assert_eq!(case["unit bytes"], json!(12.0));
    }
}
