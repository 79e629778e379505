//! A chain as it was written: keys and values that know where they stand. A file, a chain on one line and `--set`
//! all end here, so that one reader understands them and every error can point to its place.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ChainError, Place};

/// A range of bytes in one of a document's texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct At {
    pub(super) text: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) at: At,
    pub(super) value: Value,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Integer(i128),
    Float(f64),
    Bool(bool),
    Date(toml::value::Datetime),
    List(Vec<Item>),
    Table(Table),
}

/// Keys and values in the order in which they were written.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Entry>,
}

/// One key with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_at: At,
    pub(super) item: Item,
}

/// A chain as it was written, not yet understood: see [`Document::chain`].
///
/// ```
/// use pannier_chains::config::Document;
/// let wrong = Document::from_toml("edge.toml", "f = 1\npartitons = 8\n", ".").and_then(|chain| chain.chain());
/// let error = wrong.expect_err("misspelt");
/// assert_eq!(error.line(), Some(2));
/// assert!(error.to_string().contains("did you mean `partitions`?"));
/// ```
#[derive(Clone, Debug)]
pub struct Document {
    /// The texts that it was put together from, each with its name.
    texts: Vec<(String, String)>,
    pub(super) root: Table,
    /// The folder that relative input paths start from.
    pub(super) base: PathBuf,
}

impl Document {
    /// A document with no key in it, made of one text.
    pub(super) fn empty(name: &str, text: &str, base: &Path) -> Self {
        let texts = vec![(name.to_owned(), text.to_owned())];
        Document { texts, root: Table::default(), base: base.to_owned() }
    }

    /// The document of a chain file's text. `name` is what errors call it; relative input paths start from `base`.
    ///
    /// # Errors
    /// The text is not TOML.
    pub fn from_toml(name: &str, text: &str, base: impl AsRef<Path>) -> Result<Self, ChainError> {
        let mut document = Document::empty(name, text, base.as_ref());
        match DeTable::parse(text) {
            Ok(table) => document.root = Table::from_toml(table.into_inner(), 0),
            Err(error) => return Err(document.syntax(&error)),
        }
        Ok(document)
    }

    /// Adds a text and gives its number.
    pub(super) fn add_text(&mut self, name: &str, text: &str) -> usize {
        self.texts.push((name.to_owned(), text.to_owned()));
        self.texts.len() - 1
    }

    /// What the first text is called.
    pub(super) fn name(&self) -> &str {
        self.texts.first().map_or("", |(name, _)| name)
    }

    /// An error at a place of the document.
    pub(super) fn error(&self, at: At, problem: impl Into<String>, help: impl Into<String>) -> ChainError {
        self.place_error(at, ChainError::new(problem, help))
    }

    /// Gives an error its place.
    pub(super) fn place_error(&self, at: At, error: ChainError) -> ChainError {
        match self.texts.get(at.text) {
            Some((name, body)) => error.or_at(Place::find(name, body, at)),
            None => error,
        }
    }

    fn syntax(&self, error: &toml::de::Error) -> ChainError {
        let body = self.texts.first().map_or("", |(_, body)| body);
        let span = error.span().unwrap_or(body.len()..body.len());
        let at = At { text: 0, start: span.start, end: span.end };
        let message = error.message().trim();
        if message.contains("must be quoted") {
            let rest = body.get(span.start..).unwrap_or_default();
            let word = rest.split(['\n', ',', ']', '#']).next().unwrap_or_default().trim();
            return match word {
                "" => self.error(at, "a value is missing here", "a line is `key = value`"),
                _ => self.error(at, "text stands in quotes", format!("write `\"{word}\"`")),
            };
        }
        let help = if message.contains("duplicate key") {
            "each key stands once: keep one of them; stages are written as `[[stage]]`, with two brackets"
        } else {
            "a line is `key = value`, a section `[input]`, a stage `[[stage]]`; a value is a number, `true`, `false`, \
             text in double quotes, or a list in […]"
        };
        self.error(at, format!("this is not TOML: {}", message.replace('\n', ", ")), help)
    }
}

impl Table {
    pub(super) fn from_toml(table: DeTable<'_>, text: usize) -> Self {
        let entry = |(key, item): (Spanned<std::borrow::Cow<'_, str>>, Spanned<DeValue<'_>>)| Entry {
            key_at: At { text, start: key.span().start, end: key.span().end },
            key: key.into_inner().into_owned(),
            item: Item::from_toml(item, text, 0),
        };
        let mut entries: Vec<Entry> = table.into_iter().map(entry).collect();
        entries.sort_by_key(|entry| entry.key_at.start);
        Table { entries }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Item> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.item)
    }

    /// Sets the value of a key, also where it has one.
    pub(super) fn put(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|old| old.key == entry.key) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
    }

    /// The text of a key, if it is one.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The deepest value on a path like `rules[2].ports`.
    pub(super) fn locate(&self, path: &str) -> Option<&Item> {
        let steps = path.split(['.', '[']).map(|step| step.trim_end_matches(']'));
        let mut found: Option<&Item> = None;
        for step in steps {
            let next = match found.map(|item| &item.value) {
                None => self.get(step),
                Some(Value::Table(table)) => table.get(step),
                Some(Value::List(items)) => step.parse().ok().and_then(|at: usize| items.get(at)),
                Some(_) => None,
            };
            match next {
                Some(item) => found = Some(item),
                None => break,
            }
        }
        found
    }
}

impl Item {
    /// The value of a TOML value; `shift` is where the parsed text starts.
    pub(super) fn from_toml(item: Spanned<DeValue<'_>>, text: usize, shift: usize) -> Self {
        let at = At { text, start: item.span().start + shift, end: item.span().end + shift };
        let value = match item.into_inner() {
            DeValue::String(value) => Value::Text(value.into_owned()),
            DeValue::Integer(value) => {
                let digits = value.as_str().replace('_', "");
                // More digits than a 128-bit number has are out of every range there is.
                Value::Integer(i128::from_str_radix(&digits, value.radix()).unwrap_or(i128::MAX))
            }
            DeValue::Float(value) => {
                Value::Float(value.as_str().replace('_', "").parse().unwrap_or(f64::NAN))
            }
            DeValue::Boolean(value) => Value::Bool(value),
            DeValue::Datetime(value) => Value::Date(value),
            DeValue::Array(items) => {
                Value::List(items.into_iter().map(|item| Item::from_toml(item, text, shift)).collect())
            }
            DeValue::Table(table) => Value::Table(Table::from_toml(table, text)),
        };
        Item { at, value }
    }

    /// What kind of value it is, with its article.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Text(_) => "text",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a number with a point",
            Value::Bool(_) => "true or false",
            Value::Date(_) => "a date",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// The value for a network function, or the place of an integer that is too large for one.
    pub(super) fn to_toml(&self) -> Result<toml::Value, At> {
        Ok(match &self.value {
            Value::Text(text) => toml::Value::String(text.clone()),
            Value::Integer(value) => toml::Value::Integer(i64::try_from(*value).map_err(|_| self.at)?),
            Value::Float(value) => toml::Value::Float(*value),
            Value::Bool(value) => toml::Value::Boolean(*value),
            Value::Date(date) => toml::Value::Datetime(*date),
            Value::List(items) => {
                toml::Value::Array(items.iter().map(Item::to_toml).collect::<Result<_, _>>()?)
            }
            Value::Table(table) => {
                let pair = |entry: &Entry| Ok((entry.key.clone(), entry.item.to_toml()?));
                toml::Value::Table(table.entries.iter().map(pair).collect::<Result<_, At>>()?)
            }
        })
    }
}
