//! The one error of chain files: what is wrong, where, and the way out.

use std::fmt;

use super::document::At;

/// Longest piece of a source line that an error shows, in characters.
const SHOWN: usize = 100;

/// Why a chain file, a chain on one line or a setting is not possible.
///
/// It prints over several lines, ready for a terminal:
/// ```text
/// `f` takes an integer from 0 to 63, and this is a string
///   --> edge.toml:1:5
///    |
///  1 | f = "1"
///    |     ^^^
///    = help: leave the quotes out: `f = 1`
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainError {
    /// What is wrong, as a sentence without a full stop.
    pub problem: String,
    /// What to do about it.
    pub help: String,
    /// Where it stands; `None` where it stands nowhere (a missing file, say).
    pub place: Option<Box<Place>>,
}

/// A place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What the text is called: a file's path, `chain` for a chain on one line, or the option `--set`.
    pub source: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The line as it is written.
    pub text: String,
    /// How many characters of the line are meant, at least 1.
    pub width: usize,
}

impl ChainError {
    /// An error that stands nowhere yet.
    pub(crate) fn new(problem: impl Into<String>, help: impl Into<String>) -> Self {
        ChainError { problem: problem.into(), help: help.into(), place: None }
    }

    /// The same error at a place, where it has none yet.
    pub(crate) fn or_at(mut self, place: Place) -> Self {
        self.place.get_or_insert_with(|| Box::new(place));
        self
    }

    /// The line of the error, from 1.
    pub fn line(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.line)
    }
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sentence(&self.problem))?;
        let margin = self.place.as_ref().map_or(1, |place| place.line.to_string().len() + 1);
        if let Some(place) = &self.place {
            let (shown, before, width) = place.window();
            write!(f, "\n{:margin$} --> {}:{}:{}", "", place.source, place.line, place.column)?;
            write!(f, "\n{:margin$} |\n{:>margin$} | {shown}", "", place.line)?;
            write!(f, "\n{:margin$} | {:before$}{:^<width$}", "", "", "")?;
        }
        if !self.help.is_empty() {
            write!(f, "\n{:margin$} = help: {}", "", sentence(&self.help))?;
        }
        Ok(())
    }
}

impl std::error::Error for ChainError {}

impl Place {
    /// All of a text of one line.
    pub(super) fn whole(source: &str, body: &str) -> Self {
        Place::find(source, body, At { text: 0, start: 0, end: body.len() })
    }

    /// The place of a range of bytes in `body`. Any range will do.
    pub(super) fn find(source: &str, body: &str, at: At) -> Self {
        let start = floor(body, at.start);
        let line_start = body[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let rest = &body[line_start..];
        let text = rest.split('\n').next().unwrap_or_default().trim_end_matches('\r');
        let end = floor(body, at.end).clamp(start, start.max(line_start + text.len()));
        Place {
            source: source.to_owned(),
            line: body[..line_start].matches('\n').count() + 1,
            column: body[line_start..start].chars().count() + 1,
            text: text.to_owned(),
            width: body[start..end].chars().count().max(1),
        }
    }

    /// The part of the line that is shown, how many characters stand before the carets, and how many carets.
    fn window(&self) -> (String, usize, usize) {
        let skip = if self.column > SHOWN * 3 / 4 { self.column - SHOWN / 2 } else { 0 };
        let plain = |c: char| if c == '\t' || c.is_control() { ' ' } else { c };
        let shown: String = self.text.chars().skip(skip).take(SHOWN).map(plain).collect();
        let before = self.column - 1 - skip;
        (shown.trim_end().to_owned(), before, self.width.clamp(1, SHOWN.saturating_sub(before).max(1)))
    }
}

/// Longest sentence in characters. Sentences quote what was written, which may be a whole file.
const LONGEST: usize = 360;

/// What is said, on one line: the middle of what is too long is left out.
fn sentence(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let count = text.chars().count();
    if count <= LONGEST {
        return text.chars().map(plain).collect();
    }
    let (front, back) = (LONGEST / 2, LONGEST / 3);
    let end = text.chars().skip(count - back);
    text.chars().take(front).chain(" … ".chars()).chain(end).map(plain).collect()
}

/// The nearest boundary of a character at or before `at`.
fn floor(body: &str, at: usize) -> usize {
    let mut at = at.min(body.len());
    while !body.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(body: &str, start: usize, end: usize) -> Place {
        Place::find("x.toml", body, At { text: 0, start, end })
    }

    #[test]
    fn places_are_counted_in_lines_and_characters() {
        // Goal: editors jump to the right spot. Method: places before, inside and behind lines, with wide characters.
        let body = "a = 1\r\nµµ = \"2\"\n";
        let found = place(body, 7, 11);
        assert_eq!((found.line, found.column, found.width, found.text.as_str()), (2, 1, 2, "µµ = \"2\""));
        assert_eq!((place(body, 14, 17).column, place(body, 14, 17).width), (6, 3));
        assert_eq!((place(body, 8, 99).line, place(body, 8, 99).column), (2, 1));
        assert_eq!((place(body, 99, 99).line, place("", 0, 0).line), (3, 1));
    }

    #[test]
    fn the_caret_stands_under_the_mistake() {
        // Goal: the error can be read without opening the file. Method: the whole text compared, tab included.
        let error = ChainError::new("no", "yes").or_at(place("x\n\tf = 7", 7, 8));
        let text = "no\n   --> x.toml:2:6\n   |\n 2 |  f = 7\n   |      ^\n   = help: yes";
        assert_eq!(error.to_string(), text);
        assert_eq!(ChainError::new("no", "").to_string(), "no");
    }

    #[test]
    fn a_sentence_that_quotes_a_whole_file_stays_a_sentence() {
        // Goal: errors fit a terminal, whatever was written. Method: a problem that quotes long text of many lines.
        let error = ChainError::new(format!("`{}` is no crash", "crash | \n".repeat(200)), "write one");
        let shown = error.to_string();
        assert!(
            shown.lines().all(|line| line.chars().count() < 400) && shown.contains("is no crash"),
            "{shown}"
        );
        assert_eq!(shown.lines().count(), 2);
    }

    #[test]
    fn long_lines_are_cut_around_the_mistake() {
        // Goal: a line of a megabyte is no screen full. Method: a mistake far to the right in a long line.
        let body = format!("{}here{}", "x".repeat(5_000), "y".repeat(5_000));
        let text = ChainError::new("no", "").or_at(place(&body, 5_000, 5_004)).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.len() < 120), "{text}");
        let caret = lines[4].find("^^^^").expect("carets");
        assert_eq!(&lines[3][caret..caret + 4], "here");
    }
}
