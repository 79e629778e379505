//! Reads the keys of one table: unknown keys, wrong types and values out of range become errors with the way out.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::document::{At, Document, Item, Table, Value};
use super::error::ChainError;
use super::near;
use super::read::TOP;

static EMPTY: Table = Table { entries: Vec::new() };

/// One table of a document, of which all keys are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section<'d> {
    pub(super) doc: &'d Document,
    table: &'d Table,
}

impl<'d> Section<'d> {
    /// The table, after a look for keys that do not belong there. `title` is what errors call it.
    pub(super) fn open(
        doc: &'d Document,
        table: &'d Table,
        title: &str,
        known: &[&str],
    ) -> Result<Self, ChainError> {
        let Some(entry) = table.entries.iter().find(|entry| !known.contains(&entry.key.as_str())) else {
            return Ok(Section { doc, table });
        };
        let key = entry.key.as_str();
        let help = if TOP.contains(&key) && near::nearest(key, known.iter().copied()).is_none() {
            format!("`{key}` is a key of the chain: put it above the first section or stage")
        } else {
            near::suggest(key, known, "keys here")
        };
        Err(doc.error(entry.key_at, format!("unknown key `{key}` {title}"), help))
    }

    /// The table under a key; an empty one where there is none.
    pub(super) fn child(&self, key: &str, known: &[&str]) -> Result<Self, ChainError> {
        let table = match self.get(key) {
            None => &EMPTY,
            Some(Item { value: Value::Table(table), .. }) => table,
            Some(item) => {
                let help =
                    format!("write `[{key}]` on a line of its own and its keys below: {}", near::list(known));
                return Err(self.wrong_type(key, "a section", item, help));
            }
        };
        Section::open(self.doc, table, &format!("in [{key}]"), known)
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&'d Item> {
        self.table.get(key)
    }

    /// Where the value of a key stands.
    pub(super) fn at(&self, key: &str) -> Option<At> {
        self.get(key).map(|item| item.at)
    }

    /// An integer in a range.
    pub(super) fn integer(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> Result<u64, ChainError> {
        let Some(item) = self.get(key) else { return Ok(default) };
        let (least, most) = (*range.start(), *range.end());
        let bounds = if most == u64::MAX {
            format!("an integer from {least} on")
        } else {
            format!("an integer from {least} to {most}")
        };
        let Value::Integer(value) = item.value else {
            let text = if let Value::Text(text) = &item.value { text.trim() } else { "" };
            let help = match text.parse::<u64>() {
                Ok(number) => format!("leave the quotes out: `{key} = {number}`"),
                Err(_) => format!("for example `{key} = {default}`, which is the default"),
            };
            return Err(self.wrong_type(key, &bounds, item, help));
        };
        match u64::try_from(value) {
            Ok(value) if range.contains(&value) => Ok(value),
            _ => {
                let near = value.clamp(i128::from(least), i128::from(most));
                let problem = format!("`{key}` takes {bounds}, and this is {}", number(value));
                Err(self.doc.error(
                    item.at,
                    problem,
                    format!("the nearest that is possible is {near}; the default is {default}"),
                ))
            }
        }
    }

    /// A probability; 0 where the key is missing.
    pub(super) fn probability(&self, key: &str) -> Result<f64, ChainError> {
        let Some(item) = self.get(key) else { return Ok(0.0) };
        let value = match item.value {
            Value::Float(value) => value,
            Value::Integer(0) => 0.0,
            Value::Integer(1) => 1.0,
            #[expect(clippy::cast_precision_loss, reason = "only shown, and out of range in any case")]
            Value::Integer(value) => value as f64,
            _ => {
                let help = format!("for example `{key} = 0.01` for one in a hundred");
                return Err(self.wrong_type(key, "a probability from 0 to 1", item, help));
            }
        };
        if (0.0..=1.0).contains(&value) {
            return Ok(value);
        }
        let help = if value > 1.0 && value <= 100.0 {
            format!("for {value} percent write `{key} = {}`", percent(value))
        } else {
            "0 is never, 1 always, 0.01 one in a hundred".to_owned()
        };
        Err(self.doc.error(
            item.at,
            format!("`{key}` takes a probability from 0 to 1, and this is {value}"),
            help,
        ))
    }

    /// A text.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'d str>, ChainError> {
        self.get(key).map(|item| self.as_text(key, item)).transpose()
    }

    /// A value that has to be a text.
    pub(super) fn as_text(&self, key: &str, item: &'d Item) -> Result<&'d str, ChainError> {
        match &item.value {
            Value::Text(text) => Ok(text),
            _ => {
                Err(self.wrong_type(key, "text", item, format!("put it into double quotes: `{key} = \"…\"`")))
            }
        }
    }

    /// The elements of a list; a single value counts as a list of one. `None` where the key is missing.
    pub(super) fn list(&self, key: &str) -> Option<&'d [Item]> {
        self.get(key).map(|item| match &item.value {
            Value::List(items) => items.as_slice(),
            _ => std::slice::from_ref(item),
        })
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &self,
        key: &str,
        words: &[(&str, T)],
        default: T,
    ) -> Result<T, ChainError> {
        let Some(item) = self.get(key) else { return Ok(default) };
        let word = self.as_text(key, item)?;
        if let Some((_, value)) = words.iter().find(|(name, _)| *name == word) {
            return Ok(*value);
        }
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        Err(self.doc.error(
            item.at,
            format!("`{key}` does not take `{word}`"),
            near::suggest(word, &names, "values that it takes"),
        ))
    }

    /// The error of a value of the wrong type.
    pub(super) fn wrong_type(
        &self,
        key: &str,
        wanted: &str,
        item: &Item,
        help: impl Into<String>,
    ) -> ChainError {
        self.doc.error(item.at, format!("`{key}` takes {wanted}, and this is {}", item.kind()), help)
    }
}

/// So many percent as a probability, in at most six decimals.
fn percent(value: f64) -> f64 {
    (value * 1e4).round() / 1e6
}

/// An integer as it is shown: larger ones than anyone writes are not spelt out.
fn number(value: i128) -> impl Display {
    if value.unsigned_abs() > u128::from(u64::MAX) {
        "a number of more than 64 bits".to_owned()
    } else {
        value.to_string()
    }
}
