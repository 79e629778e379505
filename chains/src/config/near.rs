//! Guesses what a misspelt word was meant to be.

/// Longest word that is compared, in characters: longer ones are no misspelt names.
const LONGEST: usize = 40;

/// How many single characters have to be changed, added, removed or swapped with their neighbour.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let change = last[j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut best = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

/// The known word that `word` was probably meant to be.
pub(super) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_lowercase().replace('-', "_");
    let length = word.chars().count();
    if !(2..=LONGEST).contains(&length) {
        return None;
    }
    let allowed = (length / 3).clamp(1, 3);
    let started = |name: &str| length >= 3 && name.starts_with(word.as_str());
    known
        .into_iter()
        .map(|name| (if started(name) { 1 } else { distance(&word, name) }, name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// A help sentence: the guess if there is one, then all words that are allowed.
pub(super) fn suggest(word: &str, known: &[&str], what: &str) -> String {
    let all = list(known);
    if let [only] = known {
        return match nearest(word, [*only]) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("the only {} is {all}", singular(what)),
        };
    }
    match (nearest(word, known.iter().copied()), known) {
        (_, []) => format!("there are no {what}"),
        (Some(name), _) => format!("did you mean `{name}`? The {what} are {all}"),
        (None, _) => format!("the {what} are {all}"),
    }
}

/// `keys here` as one of them, `key here`.
fn singular(what: &str) -> String {
    let words: Vec<&str> = what.split(' ').collect();
    let noun = words.iter().position(|word| word.ends_with('s'));
    let one = |(at, word): (usize, &&str)| {
        if Some(at) == noun { word[..word.len() - 1].to_owned() } else { (*word).to_owned() }
    };
    words.iter().enumerate().map(one).collect::<Vec<_>>().join(" ")
}

/// `a`, `b` and `c`.
pub(super) fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_mistakes_are_recognised_and_other_words_are_not() {
        // Goal: good guesses only. Method: each kind of slip against a list of names, and words that are far away.
        let known = ["firewall", "monitor", "nat", "gen", "repair_after_us"];
        for (word, meant) in [
            ("firewal", "firewall"),
            ("fierwall", "firewall"),
            ("Monitor", "monitor"),
            ("monitr", "monitor"),
            ("nta", "nat"),
            ("mon", "monitor"),
            ("repair-after-us", "repair_after_us"),
        ] {
            assert_eq!(nearest(word, known), Some(meant), "{word}");
        }
        for word in ["", "x", "loadbalancer", "dpi"] {
            assert_eq!(nearest(word, known), None, "{word}");
        }
        assert_eq!(nearest(&"n".repeat(100_000), known), None);
    }

    #[test]
    fn suggestions_list_what_is_allowed() {
        // Goal: the sentence reads well. Method: with a guess, without one, and with nothing to choose from.
        assert_eq!(
            suggest("nta", &["nat", "gen"], "words"),
            "did you mean `nat`? The words are `nat` and `gen`"
        );
        assert_eq!(suggest("zzz", &["nat"], "network functions"), "the only network function is `nat`");
        assert_eq!(suggest("zzz", &["nat"], "keys here"), "the only key here is `nat`");
        assert_eq!(suggest("nta", &["nat"], "options of `x`"), "did you mean `nat`?");
        assert_eq!(suggest("zzz", &[], "options"), "there are no options");
    }
}
