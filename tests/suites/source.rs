//! Rust files as the suites about the code see them: with comments and string contents told apart from code.
//!
//! This is a scanner, not a parser. It knows strings, characters, comments and braces, and that is enough for
//! rules about lengths, words and paths.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One place where a rule is broken.
#[derive(Debug)]
pub(crate) struct Finding {
    /// The file, from the root of the repository.
    pub(crate) path: String,
    /// The line, counted from one.
    pub(crate) line: usize,
    /// What is wrong there and what to do.
    pub(crate) what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Fails with all findings, one a line.
pub(crate) fn expect_none(findings: &[Finding]) {
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
}

/// A word or a sign of the code.
#[derive(Clone, Copy)]
pub(crate) struct Token<'a> {
    /// Where it begins, in bytes.
    pub(crate) at: usize,
    /// A word, `::`, or a single other sign.
    pub(crate) text: &'a str,
}

/// A function with a body.
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    /// From the word `fn` to the closing brace, in bytes.
    pub(crate) span: Range<usize>,
    /// Where the opening brace stands, in bytes.
    pub(crate) body: usize,
}

/// A file and its two layers; all three texts have the same length and the same lines.
pub(crate) struct Source {
    /// From the root of the repository.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Without comments and without what stands inside quotes.
    pub(crate) code: String,
    /// The comments alone.
    pub(crate) comments: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (code, comments) = layers(text);
        Self { path: path.to_owned(), text: text.to_owned(), code, comments }
    }

    pub(crate) fn finding(&self, at: usize, what: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line: self.line(at), what: what.into() }
    }

    /// The line of a byte, counted from one.
    pub(crate) fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count()
    }

    /// Whether the whole file is test code: it lies in a folder `tests`, or is a `tests.rs` beside its module.
    pub(crate) fn is_test_file(&self) -> bool {
        Path::new(&self.path).with_extension("").components().any(|part| part.as_os_str() == "tests")
    }

    pub(crate) fn tokens(&self) -> Vec<Token<'_>> {
        let code = self.code.as_str();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let mut tokens = Vec::new();
        let mut rest = code.trim_start();
        while let Some(first) = rest.chars().next() {
            let end = if is_word(first) {
                rest.find(|c| !is_word(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            tokens.push(Token { at: code.len() - rest.len(), text: &rest[..end] });
            rest = rest[end..].trim_start();
        }
        tokens
    }

    /// All functions that have a body, nested ones too.
    pub(crate) fn functions(&self) -> Vec<Function<'_>> {
        let tokens = self.tokens();
        let mut functions = Vec::new();
        for (i, pair) in tokens.windows(2).enumerate() {
            let named = pair[1].text.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '$');
            if pair[0].text != "fn" || !named {
                continue;
            }
            if let Some((open, close)) = block_after(&tokens, i) {
                let span = pair[0].at..tokens[close].at + 1;
                functions.push(Function { name: pair[1].text, span, body: tokens[open].at });
            }
        }
        functions
    }

    /// The parts of the file that are compiled for tests only.
    pub(crate) fn test_code(&self) -> Vec<Range<usize>> {
        if self.is_test_file() {
            return std::iter::once(0..self.text.len()).collect();
        }
        let tokens = self.tokens();
        let follows = |i: usize, words: &[&str]| {
            words.len() <= tokens.len() - i && words.iter().zip(&tokens[i..]).all(|(w, t)| *w == t.text)
        };
        let mut ranges = Vec::new();
        for i in 0..tokens.len() {
            if follows(i, &["#", "!", "[", "cfg", "(", "test", ")"]) {
                ranges.push(0..self.text.len());
            }
            let only_tests = follows(i, &["#", "[", "cfg", "(", "test", ")"])
                || follows(i, &["#", "[", "cfg", "(", "all", "(", "test"])
                || follows(i, &["#", "[", "test", "]"]);
            if only_tests && let Some((_, close)) = block_after(&tokens, i) {
                ranges.push(tokens[i].at..tokens[close].at + 1);
            }
        }
        ranges
    }
}

/// The block of the item that begins at token `from`: its opening and closing brace.
fn block_after(tokens: &[Token<'_>], from: usize) -> Option<(usize, usize)> {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(from) {
        match token.text {
            "(" | "[" => depth += 1,
            ")" | "]" => depth -= 1,
            ";" if depth == 0 => return None,
            "{" if depth == 0 => return Some((i, closing_brace(tokens, i)?)),
            "}" if depth == 0 => return None,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

/// The brace that closes the one at token `open`.
pub(crate) fn closing_brace(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(i);
        }
    }
    None
}

/// Splits a text into code and comments; what belongs to neither layer becomes blanks, lines stay.
fn layers(text: &str) -> (String, String) {
    let blank =
        |part: &str| -> String { part.bytes().map(|b| if b == b'\n' { '\n' } else { ' ' }).collect() };
    let (mut code, mut comments) = (String::new(), String::new());
    let mut rest = text;
    while !rest.is_empty() {
        let word_before = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let (length, piece) = next_piece(rest, word_before);
        let part = &rest[..length];
        code.push_str(&if piece == Piece::Code { part.to_owned() } else { blank(part) });
        comments.push_str(&if piece == Piece::Comment { part.to_owned() } else { blank(part) });
        rest = &rest[length..];
    }
    (code, comments)
}

#[derive(PartialEq)]
enum Piece {
    Code,
    Comment,
    Quoted,
}

/// The length and the kind of the piece that a text begins with.
fn next_piece(rest: &str, word_before: bool) -> (usize, Piece) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), Piece::Comment);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), Piece::Comment);
    }
    if rest.starts_with('"') {
        return (quoted(rest, '"'), Piece::Quoted);
    }
    if let Some(length) = raw_string(rest).filter(|_| !word_before) {
        return (length, Piece::Quoted);
    }
    if let Some(inside) = rest.strip_prefix('\'') {
        let mut chars = inside.chars();
        let is_character = chars.next() == Some('\\') || chars.next() == Some('\'');
        return if is_character { (quoted(rest, '\''), Piece::Quoted) } else { (1, Piece::Code) };
    }
    (rest.chars().next().map_or(1, char::len_utf8), Piece::Code)
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn raw_string(rest: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
        rest.strip_prefix(prefix).is_some_and(|tail| tail.trim_start_matches('#').starts_with('"'))
    })?;
    let hashes = rest[prefix.len()..].find('"')?;
    let start = prefix.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len()))
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    // Asked at run time: a checkout that shares its target folder with another may run the other's build.
    let home = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells a test where its crate is");
    Path::new(&home).join("..")
}

/// All files of the repository that `wanted` says yes to, as path from the root and text, in order.
pub(crate) fn files(wanted: impl Fn(&Path) -> bool) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("folders of the repository can be listed") {
            let entry = entry.expect("folders of the repository can be listed");
            let path = entry.path();
            let kind = entry.file_type().expect("a listed file has a type");
            if kind.is_dir() && !is_foreign(&path) {
                folders.push(path);
            } else if kind.is_file() && wanted(&path) {
                let inside = path.strip_prefix(&root).expect("the walk began at the root");
                let text = std::fs::read_to_string(&path).expect("sources are UTF-8");
                found.push((inside.to_string_lossy().into_owned(), text));
            }
        }
    }
    found.sort();
    found
}

/// Hidden folders and what cargo built.
fn is_foreign(folder: &Path) -> bool {
    let hidden = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    hidden || folder.join("CACHEDIR.TAG").exists() || folder.ends_with("target")
}

/// All Rust files of the repository.
pub(crate) fn sources() -> Vec<Source> {
    let files = files(|path| path.extension().is_some_and(|end| end == "rs"));
    assert!(files.len() >= 8, "the walk lost its way: {} Rust files", files.len());
    files.iter().map(|(path, text)| Source::new(path, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_tell_code_from_comments_and_quotes() {
        // Goal: no rule reads a quote or a comment as code. Method: one line of each kind, lengths compared.
        let cases = [
            ("a // b \"c", "a", "// b \"c"),
            ("a /* b /* c */ d */ e", "a e", "/* b /* c */ d */"),
            ("a(\"b \\\" { // c\") d", "a( ) d", ""),
            ("a(r#\"b \" { \"#) c", "a( ) c", ""),
            ("br\"b\\\" c", "c", ""),
            ("'{' 'a: '\\'' '\\u{7b}' '\u{e9}' b", "'a: b", ""),
            ("for\"b\"", "for", ""),
            ("r#type b", "r#type b", ""),
        ];
        let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for (text, code, comments) in cases {
            let source = Source::new("a.rs", text);
            assert_eq!(squeeze(&source.code), code, "{text}");
            assert_eq!(squeeze(&source.comments), comments, "{text}");
            assert_eq!((source.code.len(), source.comments.len()), (text.len(), text.len()), "{text}");
        }
    }

    #[test]
    fn functions_are_found_with_their_bodies() {
        // Goal: bodies end where they end, and only real functions count. Method: the shapes that mislead a scanner.
        let text = "trait T { fn none(&self, a: [u8; 4]); fn some(&self) { \"}\"; } }\n\
                    type F = fn(u8) -> u8;\n\
                    fn outer<const N: usize>(f: impl Fn([u8; N])) where F: Copy { fn inner() {} '}'; }\n\
                    macro_rules! m { ($n:ident) => { fn $n() {} } }\n";
        let source = Source::new("a.rs", text);
        let found: Vec<_> = source.functions().iter().map(|f| (f.name, &text[f.span.clone()])).collect();
        assert_eq!(found.len(), 4);
        assert_eq!(found[0], ("some", "fn some(&self) { \"}\"; }"));
        assert!(found[1].0 == "outer" && found[1].1.ends_with("'}'; }"));
        assert_eq!(found[2], ("inner", "fn inner() {}"));
        assert_eq!(found[3].0, "$");
    }

    #[test]
    fn test_code_is_told_from_the_rest() {
        // Goal: exemptions reach test code and nothing behind it. Method: planted markers inside and outside.
        let text = "fn a() { out1 }\n#[cfg(test)]\nuse x::{in1};\n#[cfg(all(test, loom))]\nmod b { fn c() { in2 } }\n\
                    #[cfg(feature = \"testing\")]\nmod d { out2 }\n#[test]\nfn e() { in3 }\nfn f() { out3 }\n\
                    struct S { #[cfg(test)] g: u8 }\nfn h() { out4 }";
        let source = Source::new("src/a.rs", text);
        let ranges = source.test_code();
        for (marker, inside) in [
            ("in1", true),
            ("in2", true),
            ("in3", true),
            ("out1", false),
            ("out2", false),
            ("out3", false),
            ("out4", false),
        ] {
            let at = text.find(marker).expect("the marker was planted");
            assert_eq!(ranges.iter().any(|range| range.contains(&at)), inside, "{marker}");
        }
        for (path, expected) in
            [("a/tests/b.rs", true), ("a/src/b/tests.rs", true), ("a/src/testing/b.rs", false)]
        {
            assert_eq!(Source::new(path, "").is_test_file(), expected, "{path}");
        }
    }
}
