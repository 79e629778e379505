//! The rules of the house about the form of the code, on every Rust file of the workspace.

use crate::source::{Finding, Function, Source, expect_none, sources};
use std::ops::Range;

const MAX_FILE_LINES: usize = 500;
const MAX_FUNCTION_LINES: usize = 70;
/// Fewer words cannot say what a test is for and how it goes about it.
const MIN_TEST_COMMENT_WORDS: usize = 5;
/// The files that may hold `unsafe`, each with the reason why safe code would not do.
const UNSAFE_FILES: &[&str] = &[
    "runtime/dpdk-sys/src/bindings.rs",   // declarations of C functions
    "runtime/src/packet/buffer.rs",       // bytes in memory that others lend
    "runtime/src/port/af_packet/ring.rs", // memory that the kernel writes frames into
    "runtime/src/port/af_xdp/bpf.rs",     // a call of the kernel that std has no name for
    "runtime/src/port/af_xdp/queues.rs",  // memory that is shared with the kernel
    "runtime/src/port/af_xdp/socket.rs",  // calls of the kernel that std has no name for
    "runtime/src/port/dpdk/eal.rs",       // calls DPDK
    "runtime/src/port/dpdk/ethdev.rs",    // calls DPDK, and lends its buffers
    "runtime/src/port/dpdk/mempool.rs",   // calls DPDK
    "runtime/src/port/sys.rs",            // calls of the kernel that std has no name for
    "runtime/src/state/cells.rs",         // rows that several cores touch, each under its claim
    "runtime/src/state/fetch.rs",         // a hint to the processor, which takes any address
    "tests/allocations/main.rs",          // an allocator that counts
    "tests/ports/netns.rs",               // threads in another network namespace
];

#[test]
fn every_file_keeps_the_style() {
    // Goal: the rules hold everywhere, always. Method: scan each Rust file and list what breaks a rule.
    let findings: Vec<Finding> = sources().iter().flat_map(|source| check(source, UNSAFE_FILES)).collect();
    expect_none(&findings);
}

#[test]
fn every_file_that_may_be_unsafe_is_unsafe() {
    // Goal: the list of unsafe files never outlives its reasons. Method: look for the word in each listed file.
    let sources = sources();
    for path in UNSAFE_FILES {
        let found = sources.iter().any(|source| source.path == *path && has_word(source, "unsafe"));
        assert!(found, "{path} holds no `unsafe` any more: take it off the list");
    }
}

/// All broken rules of one file.
fn check(source: &Source, unsafe_files: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    check_file(source, &mut findings);
    check_words(source, unsafe_files, &mut findings);
    for function in source.functions() {
        check_length(source, &function, &mut findings);
    }
    check_tests(source, &mut findings);
    findings
}

fn check_file(source: &Source, findings: &mut Vec<Finding>) {
    let lines = source.text.lines().count();
    if lines > MAX_FILE_LINES {
        let what = format!("the file has {lines} lines, {MAX_FILE_LINES} are the bound: split it");
        findings.push(source.finding(0, what));
    }
    let first = source.text.lines().next().unwrap_or_default();
    if first.strip_prefix("//!").is_none_or(|words| words.trim().is_empty()) {
        findings.push(source.finding(0, "the file does not begin with a `//!` line that says what it holds"));
    }
}

fn check_words(source: &Source, unsafe_files: &[&str], findings: &mut Vec<Finding>) {
    let tests = source.test_code();
    let tokens = source.tokens();
    for (i, token) in tokens.iter().enumerate() {
        let next = |n: usize| tokens.get(i + n).map_or("", |token| token.text);
        let what = match token.text {
            "unsafe" if !unsafe_files.contains(&source.path.as_str()) => {
                "`unsafe` outside the files that are listed for it"
            }
            "todo" | "unimplemented" if next(1) == "!" => "unfinished work: finish it or leave it out",
            "." if [next(1), next(2), next(3)] == ["unwrap", "(", ")"] && !contains(&tests, token.at) => {
                "`unwrap` outside of tests: return an error, or `expect` with the reason why it holds"
            }
            _ => continue,
        };
        findings.push(source.finding(token.at, what));
    }
    for mark in ["FIXME", "XXX"] {
        for (at, _) in source.comments.match_indices(mark) {
            let around = (
                source.comments[..at].chars().next_back(),
                source.comments[at + mark.len()..].chars().next(),
            );
            if !around.0.is_some_and(char::is_alphanumeric) && !around.1.is_some_and(char::is_alphanumeric) {
                findings.push(source.finding(at, "an open point in a comment: settle it"));
            }
        }
    }
}

fn check_length(source: &Source, function: &Function<'_>, findings: &mut Vec<Finding>) {
    let lines = source.text[function.span.clone()].lines().count();
    if lines > MAX_FUNCTION_LINES {
        let name = function.name;
        let what = format!("`{name}` has {lines} lines, {MAX_FUNCTION_LINES} are the bound: split it");
        findings.push(source.finding(function.span.start, what));
    }
}

fn check_tests(source: &Source, findings: &mut Vec<Finding>) {
    let tokens = source.tokens();
    let functions = source.functions();
    for attribute in
        tokens.windows(4).filter(|w| [w[0].text, w[1].text, w[2].text, w[3].text] == ["#", "[", "test", "]"])
    {
        let at = attribute[0].at;
        let Some(function) = functions.iter().find(|function| function.span.start > at) else { continue };
        let words = comment_above(source, at) + comment_inside(source, function.body);
        if words < MIN_TEST_COMMENT_WORDS {
            let name = function.name;
            let what =
                format!("test `{name}` does not begin with a comment that states its goal and its method");
            findings.push(source.finding(function.span.start, what));
        }
    }
}

/// How many words the doc comment above a byte has; attributes may stand between.
fn comment_above(source: &Source, at: usize) -> usize {
    let lines = source.text[..at].lines().rev().map(str::trim);
    let above = lines
        .skip_while(|line| line.is_empty())
        .take_while(|line| line.starts_with("///") || line.starts_with("#["));
    above.filter_map(|line| line.strip_prefix("///")).map(count_words).sum()
}

/// How many words the comment has that a body begins with.
fn comment_inside(source: &Source, body: usize) -> usize {
    let lines = source.text[body + 1..].trim_start().lines().map(str::trim);
    lines.map_while(|line| line.strip_prefix("//")).map(count_words).sum()
}

fn count_words(line: &str) -> usize {
    line.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

fn has_word(source: &Source, word: &str) -> bool {
    source.tokens().iter().any(|token| token.text == word)
}

fn contains(ranges: &[Range<usize>], at: usize) -> bool {
    ranges.iter().any(|range| range.contains(&at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMENT: &str = "// Goal: this is found. Method: it was planted here.";

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, text), &["a/src/raw.rs"])
            .iter()
            .map(|finding| finding.what.clone())
            .collect()
    }

    fn assert_found(text: &str, words: &str) {
        let found = findings("a/src/b.rs", text);
        assert!(found.len() == 1 && found[0].contains(words), "`{words}` is not what was found: {found:?}");
    }

    fn assert_clean(path: &str, text: &str) {
        let found = findings(path, text);
        assert!(found.is_empty(), "{found:?} in\n{text}");
    }

    #[test]
    fn long_files_and_functions_are_found() {
        // Goal: the bounds are exact. Method: files and functions at the bound and one line beyond it.
        assert_clean("a/src/b.rs", &format!("//! B.\n{}", "\n".repeat(MAX_FILE_LINES - 1)));
        assert_found(&format!("//! B.\n{}", "\n".repeat(MAX_FILE_LINES)), "the file has 501 lines");
        let function =
            |lines: usize| format!("//! B.\nfn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2));
        assert_clean("a/src/b.rs", &function(MAX_FUNCTION_LINES));
        assert_found(&function(MAX_FUNCTION_LINES + 1), "`long` has 71 lines");
    }

    #[test]
    fn files_without_a_first_line_are_found() {
        // Goal: every file says what it holds. Method: files that begin with code, with nothing, with an empty line.
        for text in ["fn b() {}\n", "", "//!\n", "\n//! B.\n", "/// B.\nfn b() {}\n"] {
            assert_found(text, "`//!` line");
        }
    }

    #[test]
    fn forbidden_words_are_found_in_code_only() {
        // Goal: the word counts, not its mention. Method: each word as code, then in a string, a comment, a name.
        assert_found("//! B.\nfn b() { unsafe { c() } }\n", "listed");
        assert_found("//! B.\nfn b() { todo!() }\n", "unfinished");
        assert_found("//! B.\nfn b() { unimplemented!(\"c\") }\n", "unfinished");
        assert_found("//! B.\nfn b() { c().unwrap(); }\n", "`unwrap`");
        assert_found("//! B.\n// FIXME: c\n", "open point");
        assert_found("//! B.\n/* c XXX */\n", "open point");
        assert_clean(
            "a/src/b.rs",
            "//! B, never unsafe, no todo!() and no c.unwrap().\n#![deny(unsafe_code)]\n",
        );
        assert_clean("a/src/b.rs", "//! B.\nfn b() { c(\"unsafe todo!() FIXME\").unwrap_or(0); }\n// XXXL\n");
        assert_clean("a/src/raw.rs", "//! B.\nfn b() { unsafe { c() } }\n");
    }

    #[test]
    fn unwrap_is_free_in_tests_only() {
        // Goal: tests may unwrap, what stands beside them may not. Method: the same call in both places.
        let inside = "#[cfg(test)]\nmod tests { fn c() { d().unwrap(); } }\n";
        assert_clean("a/src/b.rs", &format!("//! B.\n{inside}"));
        assert_clean("a/tests/b.rs", "//! B.\nfn c() { d().unwrap(); }\n");
        assert_found(&format!("//! B.\n{inside}fn e() {{ d().unwrap(); }}\n"), "`unwrap`");
    }

    #[test]
    fn tests_without_a_comment_are_found() {
        // Goal: each test says why it is there. Method: tests and properties with and without a comment.
        assert_found("//! B.\n#[test]\nfn c() {\n    d();\n}\n", "test `c`");
        assert_found("//! B.\n#[test]\nfn c() {\n    // Too short.\n    d();\n}\n", "test `c`");
        assert_found("//! B.\nproptest! {\n#[test]\nfn c(d in 0..9) {\n    e(d);\n}\n}\n", "test `c`");
        let second = format!("//! B.\n#[test]\nfn a() {{\n{COMMENT}\n}}\n#[test]\nfn c() {{}}\n");
        assert_found(&second, "test `c`");
        let late = format!("//! B.\n#[test]\nfn c() {{\n    d();\n    {COMMENT}\n}}\n");
        assert_found(&late, "test `c`");
        for text in [
            format!("//! B.\n#[test]\nfn c() {{\n    {COMMENT}\n    d();\n}}\n"),
            format!("//! B.\n/{COMMENT}\n#[should_panic]\n#[test]\nfn c() {{ d(); }}\n"),
            format!("//! B.\nproptest! {{\n#[test]\nfn c(d in 0..9) {{\n    {COMMENT}\n    e(d);\n}}\n}}\n"),
        ] {
            assert_clean("a/src/b.rs", &text);
        }
    }
}
