//! What goes wrong in a run on purpose: crashing nodes.

use std::collections::BTreeSet;
use std::fmt;

use super::error::ChainError;
use super::near;

/// One crash of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Crash {
    /// It happens once so many packets were taken in.
    pub packet: u64,
    /// The node that crashes.
    pub node: usize,
}

impl Crash {
    /// Reads `nat@500`: the node of stage `nat` crashes once 500 packets were taken in. `node3@500` names a node by
    /// its number, which reaches those without a stage too.
    ///
    /// # Errors
    /// It is not of that form, or there is no such stage or node.
    pub fn parse(text: &str, names: &[&str], nodes: usize) -> Result<Self, ChainError> {
        let Some((who, when)) = text.split_once('@') else {
            let help = "write the stage, `@`, and the number of packets taken in before it: `nat@500`";
            return Err(ChainError::new(format!("`{text}` is no crash"), help));
        };
        let Ok(packet) = when.trim().replace('_', "").parse() else {
            let help = format!("write a number of packets: `{}@500`", who.trim());
            return Err(ChainError::new(format!("`{when}` is no number of packets"), help));
        };
        Ok(Crash { packet, node: Crash::node(who.trim(), names, nodes)? })
    }

    /// The number of the node that `who` names.
    pub(super) fn node(who: &str, names: &[&str], nodes: usize) -> Result<usize, ChainError> {
        if let Some(node) = names.iter().position(|name| *name == who) {
            return Ok(node);
        }
        if let Some(number) = numbered(who) {
            return number.filter(|node| *node < nodes).ok_or_else(|| {
                let help = format!("nodes are `node0` to `node{}`", nodes.saturating_sub(1));
                ChainError::new(format!("there is no `{who}`"), help)
            });
        }
        let mut help = near::suggest(who, names, "stages");
        if nodes > names.len() {
            help.push_str(&format!("; nodes without a stage are named `node{}` and so on", names.len()));
        }
        Err(ChainError::new(format!("there is no stage `{who}`"), help))
    }

    /// Whether the ring survives these crashes; else which of them is one too many, and why.
    pub(super) fn check(crashes: &[Crash], f: usize) -> Result<(), (usize, ChainError)> {
        for (at, crash) in crashes.iter().enumerate() {
            let together: BTreeSet<usize> = crashes[..=at]
                .iter()
                .filter(|other| other.packet == crash.packet)
                .map(|other| other.node)
                .collect();
            let (down, packet) = (together.len(), crash.packet);
            if down <= f {
                continue;
            }
            let problem = match f {
                0 => "with f = 0 there is no second copy of any state: after a crash it would be gone"
                    .to_owned(),
                _ => format!(
                    "{down} nodes crash at packet {packet}, and a ring with f = {f} survives {f} at once"
                ),
            };
            let other = match f {
                0 => "let no node crash: `crash = []`, or `--set 'crash=[]'` on the command line",
                _ => "let the crashes happen at different packets",
            };
            return Err((at, ChainError::new(problem, format!("set `f = {down}` or more, or {other}"))));
        }
        Ok(())
    }
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node{}@{}", self.node, self.packet)
    }
}

/// The number of a node's name `node7`: `Some(None)` where it is larger than any.
pub(super) fn numbered(word: &str) -> Option<Option<usize>> {
    let digits =
        word.strip_prefix("node").filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))?;
    Some(digits.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &["fw", "nat"];

    #[test]
    fn crashes_name_a_stage_or_a_node() {
        // Goal: every node can be named. Method: stages, nodes and what is neither.
        assert_eq!(Crash::parse("nat@500", NAMES, 3), Ok(Crash { node: 1, packet: 500 }));
        assert_eq!(Crash::parse(" node2 @ 1_000", NAMES, 3), Ok(Crash { node: 2, packet: 1000 }));
        for (text, words) in [
            ("nat", "`nat@500`"),
            ("nat@soon", "write a number of packets: `nat@500`"),
            ("nta@5", "did you mean `nat`?"),
            ("nta@5", "named `node2`"),
            ("node3@5", "nodes are `node0` to `node2`"),
            ("node99999999999999999999@5", "nodes are `node0` to `node2`"),
        ] {
            let error = Crash::parse(text, NAMES, 3).expect_err(text);
            assert!(error.help.contains(words), "{text}: {error}");
        }
        assert_eq!(Crash { node: 2, packet: 7 }.to_string(), "node2@7");
    }

    #[test]
    fn more_crashes_than_the_ring_survives_are_refused() {
        // Goal: no run that must fail. Method: crashes together and apart, for f = 0 to 2, which one is blamed.
        let at = |node, packet| Crash { node, packet };
        let apart = [at(0, 5), at(1, 6)];
        let together = [at(0, 5), at(1, 6), at(1, 5)];
        assert!(Crash::check(&[], 0).is_ok() && Crash::check(&apart, 1).is_ok());
        assert!(Crash::check(&[at(0, 5), at(0, 5)], 1).is_ok() && Crash::check(&together, 2).is_ok());
        let (index, error) = Crash::check(&together, 1).expect_err("two at once");
        assert_eq!(
            (index, error.help.as_str()),
            (2, "set `f = 2` or more, or let the crashes happen at different packets")
        );
        let (index, error) = Crash::check(&apart, 0).expect_err("no copy");
        assert!(
            index == 0
                && error.problem.contains("no second copy")
                && error.help.starts_with("set `f = 1` or more")
                && error.help.contains("`--set 'crash=[]'`")
        );
    }
}
