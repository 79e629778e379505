//! Any text as a chain file and as a chain on one line, with settings behind it: an error is a sentence with its place,
//! and a chain that is possible can be written out and read again.

use pannier_chains::config::{ChainError, ChainSpec, Document, Source};

/// What separates the chain from its settings, and these from each other.
pub const SETTING: &str = "\n--set ";
/// Longest line of an error, in characters, names of files aside.
const LONGEST_LINE: usize = 400;

/// Reads `bytes` as a chain.
///
/// # Panics
/// Where an error points nowhere, or a chain is another one after it was written out and read again.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut pieces = text.split(SETTING);
    let chain = pieces.next().unwrap_or_default();
    let settings: Vec<&str> = pieces.collect();
    for document in [Document::from_toml("fuzz.toml", chain, "configs"), Document::from_line(chain)] {
        match understand(document, &settings) {
            Ok(spec) => written(&spec),
            Err(error) => is_a_sentence(&error),
        }
    }
    if let Err(error) = Source::parse(chain) {
        is_a_sentence(&error);
    }
}

fn understand(document: Result<Document, ChainError>, settings: &[&str]) -> Result<ChainSpec, ChainError> {
    let mut document = document?;
    for setting in settings {
        document.set(setting)?;
    }
    document.chain()
}

fn is_a_sentence(error: &ChainError) {
    assert!(!error.problem.is_empty());
    let shown = error.to_string();
    if let Some(place) = &error.place {
        assert!(place.line >= 1 && place.column >= 1 && place.width >= 1, "{error:?}");
        assert!(!place.text.contains('\n'), "{error:?}");
        // The source line and its carets are cut to the width of a terminal, however long they are.
        let drawn = shown.lines().filter(|line| line.contains(" | "));
        assert!(drawn.map(|line| line.chars().count()).all(|length| length < LONGEST_LINE), "{shown}");
    }
}

fn written(spec: &ChainSpec) {
    let text = spec.to_toml();
    let again = Document::from_toml(&spec.origin, &text, "").and_then(|document| document.chain());
    let again = again.unwrap_or_else(|error| panic!("{error}\nin what was written:\n{text}"));
    assert_eq!(again.to_toml(), text);
    assert_eq!((again.plan, again.burst, &again.input), (spec.plan, spec.burst, &spec.input));
    assert_eq!((&again.output, again.faults, &again.crashes), (&spec.output, spec.faults, &spec.crashes));
    let stages = |spec: &ChainSpec| -> Vec<_> {
        spec.stages
            .iter()
            .map(|stage| (stage.name.clone(), stage.kind.name, stage.options.to_string()))
            .collect()
    };
    assert_eq!(stages(&again), stages(spec));
}
