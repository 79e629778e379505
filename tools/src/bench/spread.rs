//! Minimum, median and maximum of what several rounds measured.

use serde_json::{Value, json};

/// Minimum, median and maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) min: f64,
    pub(super) median: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Of at least one value.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Spread { min: sorted[0], median: sorted[sorted.len() / 2], max: sorted[sorted.len() - 1] }
    }

    pub(super) fn json(self) -> Value {
        json!({ "min": self.min, "median": self.median, "max": self.max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_minimum_median_and_maximum() {
        // Goal: the figures of a table are what they are called. Method: a few values in no order.
        let spread = Spread::of([3.0, 9.0, 1.0, 2.0, 4.0]);
        assert_eq!(spread, Spread { min: 1.0, median: 3.0, max: 9.0 });
    }
}
