//! A chain on one line, `edge:firewall -> monitor -> nat(external=203.0.113.1)`, and single settings, `nat.ports=preserve`.

use std::path::Path;

use toml::de::DeValue;

use super::document::{At, Document, Entry, Item, Table, Value};
use super::error::ChainError;
use super::near;
use super::read::{SECTIONS, TOP};

/// Deepest list within lists that is read.
const DEEPEST: usize = 32;

impl Document {
    /// The document of a chain on one line: stages with `->` between them, each `nf`, `name:nf` or
    /// `nf(option=value, …)`. A value is a number, `true`, `false`, text in quotes, a list in `[…]`, a table in `{…}`,
    /// or plain words, which are text. Relative paths start from the current directory.
    ///
    /// # Errors
    /// The line is not of that form.
    pub fn from_line(line: &str) -> Result<Self, ChainError> {
        let mut document = Document::empty("chain", line, Path::new(""));
        let stages = Scanner { doc: &document, text: 0, body: line, at: 0 }.stages()?;
        let at = At { text: 0, start: 0, end: line.len() };
        document.root.put(Entry {
            key: "stage".to_owned(),
            key_at: at,
            item: Item { at, value: Value::List(stages) },
        });
        Ok(document)
    }

    /// Changes one setting, as `--set` does: `f=2`, `limits.mtu=1500`, `input.undecided=drop`, or an option of a
    /// stage by the stage's name, `nat.ports=preserve`. Values are those of [`Document::from_line`]; plain words may hold
    /// any character. A capture that is named here is looked for from the current directory.
    ///
    /// # Errors
    /// It is not `key=value`, or there is no such stage, section or key. Whether the value is possible is seen in
    /// [`Document::chain`].
    pub fn set(&mut self, setting: &str) -> Result<(), ChainError> {
        let text = self.add_text("--set", setting);
        let help = "for example `f=2`, `limits.mtu=1500` or `nat.ports=preserve`";
        self.set_text(text, setting, None, help)
    }

    /// Changes one fault of the ring's links, as `--faults` does: `loss=0.01`.
    ///
    /// # Errors
    /// As [`Document::set`].
    pub fn set_fault(&mut self, fault: &str) -> Result<(), ChainError> {
        let text = self.add_text("--faults", fault);
        self.set_text(text, fault, Some("faults"), "for example `loss=0.01` or `loss=0.01,delay=0.01`")
    }

    /// Changes the setting that stands in the text with number `text`, below `section` where one is given.
    fn set_text(
        &mut self,
        text: usize,
        setting: &str,
        section: Option<&str>,
        help: &str,
    ) -> Result<(), ChainError> {
        let equals = setting.find('=').ok_or_else(|| {
            let at = At { text, start: 0, end: setting.len() };
            let what =
                if section.is_some() { "a fault is `name=probability`" } else { "a setting is `key=value`" };
            self.error(at, what, help)
        })?;
        let item = {
            let mut scanner = Scanner { doc: self, text, body: setting, at: equals + 1 };
            let item = scanner.value("", 0)?;
            scanner.expect_end()?;
            item
        };
        let mut start = 0;
        let beginning = At { text, start: 0, end: equals };
        let mut keys: Vec<(String, At)> =
            section.map(|key| (key.to_owned(), beginning)).into_iter().collect();
        for piece in setting[..equals].split('.') {
            let left = start + (piece.len() - piece.trim_start().len());
            keys.push((piece.trim().to_owned(), At { text, start: left, end: left + piece.trim().len() }));
            start += piece.len() + 1;
        }
        if keys.len() > DEEPEST {
            let help = "a setting is `key=value`, `section.key=value` or `stage.option=value`";
            return Err(self.error(keys[DEEPEST].1, "this key stands too deep", help));
        }
        let (mut keys, known) = (keys.into_iter(), self.stage_names());
        let Some(first) = keys.next() else { return Ok(()) };
        let rest: Vec<(String, At)> = keys.collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        self.check_first(&first, rest.is_empty(), &known)?;
        match known.iter().position(|name| *name == first.0).filter(|_| !rest.is_empty()) {
            Some(stage) => put_deep(self.stage_table(stage), rest.into_iter(), item),
            None => put_deep(Some(&mut self.root), std::iter::once(first).chain(rest), item),
        }
        Ok(())
    }

    /// Whether the first word of a setting is one: a key when it stands alone, else a section or a stage.
    fn check_first(&self, (word, at): &(String, At), alone: bool, stages: &[&str]) -> Result<(), ChainError> {
        let word = word.as_str();
        if alone && TOP.contains(&word) || !alone && (SECTIONS.contains(&word) || stages.contains(&word)) {
            return Ok(());
        }
        if alone && stages.contains(&word) {
            let help = format!("name one of its options, as in `{word}.option=value`");
            return Err(self.error(*at, format!("`{word}` is a stage and no key"), help));
        }
        if !alone && TOP.contains(&word) {
            let help = format!("set it as a whole: `{word}=value`");
            return Err(self.error(*at, format!("`{word}` has no keys below it"), help));
        }
        if alone {
            return Err(self.error(*at, format!("unknown key `{word}`"), near::suggest(word, TOP, "keys")));
        }
        let known: Vec<&str> = stages.iter().chain(SECTIONS).copied().collect();
        let help = near::suggest(word, &known, "stages and sections");
        Err(self.error(*at, format!("there is no stage or section `{word}`"), help))
    }

    /// The names of the stages as they are written, with their network function's name where they have none.
    fn stage_names(&self) -> Vec<String> {
        let Some(Value::List(stages)) = self.root.get("stage").map(|item| &item.value) else {
            return Vec::new();
        };
        let name = |item: &Item| match &item.value {
            Value::Table(stage) => {
                stage.text("name").or_else(|| stage.text("nf")).unwrap_or_default().to_owned()
            }
            _ => String::new(),
        };
        stages.iter().map(name).collect()
    }

    fn stage_table(&mut self, stage: usize) -> Option<&mut Table> {
        let entry = self.root.entries.iter_mut().find(|entry| entry.key == "stage")?;
        let Value::List(stages) = &mut entry.item.value else { return None };
        match &mut stages.get_mut(stage)?.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }
}

/// Puts a value under a path of keys and makes the tables on the way.
fn put_deep(table: Option<&mut Table>, mut keys: impl Iterator<Item = (String, At)>, item: Item) {
    let (Some(mut table), Some(mut step)) = (table, keys.next()) else { return };
    for next in keys {
        let (key, key_at) = step;
        if !matches!(table.get(&key), Some(Item { value: Value::Table(_), .. })) {
            let empty = Item { at: key_at, value: Value::Table(Table::default()) };
            table.put(Entry { key: key.clone(), key_at, item: empty });
        }
        let inner =
            table.entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.item.value);
        let Some(Value::Table(inner)) = inner else { return };
        (table, step) = (inner, next);
    }
    table.put(Entry { key: step.0, key_at: step.1, item });
}

/// Whether text that may stand for a chain is a chain on one line rather than the name of a file. The bare name of a
/// network function is a chain, also where a file is called the same: that one can be written as `./monitor`.
pub fn looks_like_line(text: &str) -> bool {
    let is_path = text.ends_with(".toml") || text.contains(std::path::is_separator);
    if Path::new(text).exists() && (is_path || pannier_nf::find(text).is_none()) {
        return false;
    }
    let nf = text.rsplit(':').next().unwrap_or(text).trim();
    text.contains("->") || text.contains('→') || text.contains('(') || pannier_nf::find(nf).is_some()
}

/// Reads a text from left to right.
struct Scanner<'d> {
    doc: &'d Document,
    text: usize,
    body: &'d str,
    at: usize,
}

impl<'d> Scanner<'d> {
    fn rest(&self) -> &'d str {
        &self.body[self.at..]
    }

    fn skip_spaces(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn takes(&mut self, token: &str) -> bool {
        self.skip_spaces();
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn span(&self, start: usize) -> At {
        At { text: self.text, start, end: self.at }
    }

    /// An error at the next character.
    fn here(&self, problem: impl Into<String>, help: &str) -> ChainError {
        let width = self.rest().chars().next().map_or(0, char::len_utf8);
        self.doc.error(At { text: self.text, start: self.at, end: self.at + width }, problem, help)
    }

    fn expect_end(&mut self) -> Result<(), ChainError> {
        self.skip_spaces();
        if self.rest().is_empty() {
            return Ok(());
        }
        Err(self.here("the value ends before this", "put the whole value into quotes, or a list into […]"))
    }

    /// A name: letters, digits, `_` and `-`, where a `-` does not begin an arrow.
    fn name(&mut self, what: &str) -> Result<(String, At), ChainError> {
        self.skip_spaces();
        let rest = self.rest();
        let ends = |(at, c): &(usize, char)| {
            !(c.is_alphanumeric() || *c == '_' || *c == '-' && !rest[*at..].starts_with("->"))
        };
        let len = rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at);
        if len == 0 {
            let found = match rest.chars().next() {
                Some(c) => format!("here stands `{}`", c.escape_debug()),
                None => "the line ends".to_owned(),
            };
            let help = "a chain is `firewall -> monitor -> nat(external=203.0.113.1)`";
            return Err(self.here(format!("{what} is missing: {found}"), help));
        }
        let start = self.at;
        self.at += len;
        Ok((rest[..len].to_owned(), self.span(start)))
    }

    fn stages(&mut self) -> Result<Vec<Item>, ChainError> {
        let mut stages = vec![self.stage()?];
        while self.takes("->") || self.takes("→") {
            stages.push(self.stage()?);
        }
        if self.rest().is_empty() {
            return Ok(stages);
        }
        if self.rest().starts_with('=') {
            let help =
                "settings stand behind the chain: `--set f=2`; options of a stage in (…) behind its name";
            return Err(self.here("a chain on one line holds no settings", help));
        }
        Err(self.here(
            "stages have `->` between them",
            "write `firewall -> nat`, and options in (…) behind the name",
        ))
    }

    fn stage(&mut self) -> Result<Item, ChainError> {
        let (mut word, mut at) = self.name("the name of a network function")?;
        let start = at.start;
        let mut table = Table::default();
        if self.takes(":") {
            let item = Item { at, value: Value::Text(word) };
            table.put(Entry { key: "name".to_owned(), key_at: at, item });
            (word, at) = self.name("the name of a network function")?;
        }
        table.put(Entry { key: "nf".to_owned(), key_at: at, item: Item { at, value: Value::Text(word) } });
        let end = self.at;
        if self.takes("(") {
            self.pairs(")", &mut table, 0)?;
        } else {
            self.at = end;
        }
        let at = self.span(start);
        self.skip_spaces();
        Ok(Item { at, value: Value::Table(table) })
    }

    /// `key=value, …` up to and with the closing bracket.
    fn pairs(&mut self, close: &str, table: &mut Table, depth: usize) -> Result<(), ChainError> {
        let open = self.at - 1;
        let stops = if close == ")" { ",)" } else { ",}" };
        while !self.takes(close) {
            self.check_open(open, close)?;
            let (key, key_at) = self.name("the name of an option")?;
            if table.get(&key).is_some() {
                return Err(self.doc.error(key_at, format!("`{key}` is given twice"), "keep one of them"));
            }
            if !self.takes("=") {
                return Err(self.here(format!("`{key}` has no value"), "an option is `name=value`"));
            }
            let item = self.value(stops, depth)?;
            table.put(Entry { key, key_at, item });
            self.separator(open, close)?;
        }
        Ok(())
    }

    fn items(&mut self, depth: usize) -> Result<Vec<Item>, ChainError> {
        let open = self.at - 1;
        let mut items = Vec::new();
        while !self.takes("]") {
            self.check_open(open, "]")?;
            items.push(self.value(",]", depth)?);
            self.separator(open, "]")?;
        }
        Ok(items)
    }

    /// A comma, or the closing bracket, which stays for the caller.
    fn separator(&mut self, open: usize, close: &str) -> Result<(), ChainError> {
        self.skip_spaces();
        self.check_open(open, close)?;
        if self.rest().starts_with(close) || self.takes(",") {
            return Ok(());
        }
        Err(self.here(format!("a `,` or `{close}` is missing here"), "values have commas between them"))
    }

    fn check_open(&mut self, open: usize, close: &str) -> Result<(), ChainError> {
        self.skip_spaces();
        if !self.rest().is_empty() {
            return Ok(());
        }
        let at = At { text: self.text, start: open, end: open + 1 };
        let bracket = self.body[open..].chars().next().unwrap_or('(');
        Err(self.doc.error(at, format!("`{bracket}` is never closed"), format!("add a `{close}`")))
    }

    /// One value, which ends before any of the characters `stops`.
    fn value(&mut self, stops: &str, depth: usize) -> Result<Item, ChainError> {
        self.skip_spaces();
        let start = self.at;
        if depth > DEEPEST {
            return Err(
                self.here("lists stand too deep within each other", "no option takes that many levels")
            );
        }
        let value = match self.rest().chars().next() {
            Some('[') => {
                self.at += 1;
                Value::List(self.items(depth + 1)?)
            }
            Some('{') => {
                self.at += 1;
                let mut table = Table::default();
                self.pairs("}", &mut table, depth + 1)?;
                Value::Table(table)
            }
            Some(quote @ ('"' | '\'')) => return self.quoted(quote),
            _ => return self.words(stops),
        };
        Ok(Item { at: self.span(start), value })
    }

    /// Text in quotes, as TOML has it.
    fn quoted(&mut self, quote: char) -> Result<Item, ChainError> {
        let (start, mut escaped) = (self.at, false);
        let mut closes = |&(at, c): &(usize, char)| {
            let closes = at > 0 && c == quote && !escaped;
            escaped = quote == '"' && c == '\\' && !escaped;
            closes
        };
        let Some((len, _)) = self.rest().char_indices().find(&mut closes) else {
            return Err(self.here("the text has no closing quote", "add the quote at the end of the text"));
        };
        self.at += len + 1;
        match DeValue::parse(&self.body[start..self.at]) {
            Ok(value) => Ok(Item::from_toml(value, self.text, start)),
            Err(error) => {
                let help =
                    "in double quotes a backslash is written twice; in single quotes text stands as it is";
                Err(self.doc.error(
                    self.span(start),
                    format!("this is no text: {}", error.message().trim()),
                    help,
                ))
            }
        }
    }

    /// Plain words: a number, `true`, `false`, and everything else is text.
    fn words(&mut self, stops: &str) -> Result<Item, ChainError> {
        let start = self.at;
        let rest = self.rest();
        let len = rest.find(|c| stops.contains(c)).unwrap_or(rest.len());
        let word = rest[..len].trim_end();
        if word.is_empty() {
            return Err(self.here("a value is missing here", "write `key=value`; an empty text is `\"\"`"));
        }
        self.at += word.len();
        let signed = word.starts_with(|c: char| c.is_ascii_digit() || c == '+' || c == '-');
        if signed || word == "true" || word == "false" {
            let value = DeValue::parse(word).ok();
            let plain = |v: &toml::Spanned<DeValue<'_>>| {
                matches!(v.get_ref(), DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_))
            };
            if let Some(value) = value.filter(plain) {
                return Ok(Item::from_toml(value, self.text, start));
            }
        }
        Ok(Item { at: self.span(start), value: Value::Text(word.to_owned()) })
    }
}
