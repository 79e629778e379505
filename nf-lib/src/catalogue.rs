//! The catalogue of network functions: their names, what options they take, and how they are made from options.
//!
//! A network function describes itself with one [`NfKind`] constant beside its code. Chain files are read elsewhere:
//! what arrives here is a plain TOML table of [`Options`], and an [`OptionError`] names the option that is wrong, so
//! that whoever read the file can point to the line.

use std::fmt;
use std::sync::Arc;

use pannier_runtime::AnyNf;
use pannier_runtime::state::Layout;
use serde::de::DeserializeOwned;

use crate::words;

/// All network functions of this library, in the order in which they are listed.
static KINDS: &[NfKind] =
    &[crate::monitor::KIND, crate::firewall::KIND, crate::nat::KIND, crate::gen_nf::KIND];

/// One kind of network function.
///
/// ```
/// use std::sync::Arc;
/// use pannier_nf::catalogue::{NfKind, OptionDoc, OptionError, Options};
/// use pannier_runtime::{Verdict, nf};
///
/// #[derive(serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Config { longest: usize }
///
/// const KIND: NfKind = NfKind {
///     name: "short",
///     summary: "drops frames that are longer than a bound",
///     options: &[OptionDoc { name: "longest", takes: "number of bytes", default: None, help: "frames up to here pass" }],
///     build: |options: Options| {
///         let Config { longest } = options.parse()?;
///         if longest < 60 {
///             return Err(OptionError::at("longest", "every Ethernet frame has 60 bytes: use a larger number"));
///         }
///         Ok(Arc::new(nf(move |frame, _: &(), _txn| {
///             Ok(if frame.bytes().len() <= longest { Verdict::Forward } else { Verdict::Drop("too_long") })
///         })))
///     },
/// };
///
/// let wrong = KIND.build(&[("longest", 8.into())]).expect_err("too small");
/// assert_eq!(wrong.key.as_deref(), Some("longest"));
/// ```
#[derive(Clone, Copy)]
pub struct NfKind {
    /// The name that chain files use: lower case, no spaces.
    pub name: &'static str,
    /// What it does, in one line without a full stop.
    pub summary: &'static str,
    /// The options that it takes. Others are refused before `build` sees them.
    pub options: &'static [OptionDoc],
    /// Makes the network function.
    pub build: fn(Options) -> Result<Arc<dyn AnyNf>, OptionError>,
}

impl NfKind {
    /// Makes the network function from pairs of option and value, without a chain file.
    ///
    /// # Errors
    /// An option is unknown, missing or has a value that is not possible.
    pub fn build(&self, options: &[(&str, toml::Value)]) -> Result<Arc<dyn AnyNf>, OptionError> {
        let table = options.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        (self.build)(Options(table))
    }

    /// The description of one option.
    pub fn option(&self, name: &str) -> Option<&'static OptionDoc> {
        self.options.iter().find(|option| option.name == name)
    }

    /// The tables of its state with default options; `None` where an option has no default.
    pub fn tables(&self) -> Option<Vec<TableDoc>> {
        self.build(&[]).ok().map(|nf| tables_of(nf.as_ref()))
    }
}

impl fmt::Debug for NfKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NfKind").field(&self.name).finish()
    }
}

/// The description of one option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionDoc {
    /// Its name in the stage's table.
    pub name: &'static str,
    /// What kind of value it takes, as a noun: `IPv4 address`, `number of rows, 1 to 1000000`, `"keep" or "any"`.
    pub takes: &'static str,
    /// What holds where it is left out, as it would be written; `None` where it must be given.
    pub default: Option<&'static str>,
    /// What it does, in one line.
    pub help: &'static str,
}

/// The description of one state table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableDoc {
    /// The table's name.
    pub name: &'static str,
    /// How many rows it takes.
    pub capacity: usize,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
}

/// The options of one stage.
#[derive(Clone, Debug, Default)]
pub struct Options(pub toml::Table);

impl Options {
    /// The options as `T`. Let `T` deny unknown fields, and give fields with a default `#[serde(default)]`.
    ///
    /// # Errors
    /// The first field that is unknown, missing or of another type, by its name.
    pub fn parse<T: DeserializeOwned>(self) -> Result<T, OptionError> {
        serde_path_to_error::deserialize(toml::Value::Table(self.0)).map_err(|error| {
            let path = error.path().to_string();
            OptionError::from_toml(Some(path.as_str()).filter(|path| *path != "."), error.inner())
        })
    }

    /// For network functions that take no options.
    ///
    /// # Errors
    /// There is one.
    pub fn none(self) -> Result<(), OptionError> {
        match self.0.into_iter().next() {
            Some((key, _)) => Err(OptionError::at(key, "there are no options here: leave it out")),
            None => Ok(()),
        }
    }
}

/// Why options are not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", key.as_ref().map(|key| format!("option `{key}`: ")).unwrap_or_default())]
pub struct OptionError {
    /// The option that is wrong, or a place inside of it: `rules`, `rules[2]`, `rules[2].ports`. `None` where it is
    /// the options together.
    pub key: Option<String>,
    /// What is wrong and what would be right, as one sentence without a full stop.
    pub message: String,
}

impl OptionError {
    /// An error of one option, or of a place inside of it.
    pub fn at(key: impl Into<String>, message: impl Into<String>) -> Self {
        OptionError { key: Some(key.into()), message: message.into() }
    }

    /// An error of the options together.
    pub fn whole(message: impl Into<String>) -> Self {
        OptionError { key: None, message: message.into() }
    }

    /// Says in our words what the deserializer says in its own.
    fn from_toml(path: Option<&str>, error: &toml::de::Error) -> Self {
        let message = error.message().trim();
        let inside = |name: &str| match path {
            Some(path) if path.rsplit('.').next() == Some(name) => path.to_owned(),
            Some(path) => format!("{path}.{name}"),
            None => name.to_owned(),
        };
        if let Some((name, known)) =
            message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'))
        {
            let known = known.trim_start_matches([',', ' ']).trim_start_matches("expected ");
            return OptionError::at(inside(name), format!("there is no such field; it is {known}"));
        }
        if let Some(name) = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
            return OptionError::at(
                inside(name),
                format!("it is missing and has no default: add `{name} = …`"),
            );
        }
        OptionError { key: path.map(str::to_owned), message: words::translate(message) }
    }
}

/// All network functions of this library.
pub fn catalogue() -> &'static [NfKind] {
    KINDS
}

/// The network function with this name.
pub fn find(name: &str) -> Option<&'static NfKind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// The tables of a network function's state.
pub fn tables_of(nf: &dyn AnyNf) -> Vec<TableDoc> {
    let state = nf.new_state(&Layout::default());
    let describe = |table: &dyn pannier_runtime::state::AnyTable| {
        let row = table.row_bytes();
        TableDoc {
            name: table.name(),
            capacity: table.capacity(),
            key_bytes: row.key,
            value_bytes: row.value,
        }
    };
    state.iter().map(describe).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    use pannier_runtime::{Verdict, nf, state};
    use serde::Deserialize;

    use super::*;

    state! {
        /// A state to describe.
        struct Probe {
            /// First.
            seen: u16 => u64 [12],
            /// Second.
            last: u8 => u32 [1],
        }
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Rule {
        #[expect(dead_code, reason = "only parsed")]
        port: u16,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Config {
        address: Ipv4Addr,
        #[serde(default)]
        rules: Vec<Rule>,
    }

    fn parse(text: &str) -> Result<Config, OptionError> {
        Options(text.parse().expect("valid TOML")).parse()
    }

    #[test]
    fn options_become_a_struct() {
        // Goal: options arrive typed. Method: a complete table, and one with defaults.
        let config = parse("address = '10.0.0.1'\nrules = [{ port = 80 }]").expect("complete");
        assert_eq!((config.address, config.rules.len()), (Ipv4Addr::new(10, 0, 0, 1), 1));
        assert!(parse("address = '10.0.0.1'").expect("defaults").rules.is_empty());
    }

    #[test]
    fn errors_name_the_option_and_the_way_out() {
        // Goal: whoever reads the file can find the line. Method: each kind of mistake, key and words compared.
        let cases = [
            ("adress = '10.0.0.1'", Some("adress"), "it is `address` or `rules`"),
            ("rules = []", Some("address"), "add `address = …`"),
            ("address = '10.0.0.300'", Some("address"), "invalid IPv4 address"),
            ("address = '10.0.0.1'\nrules = 3", Some("rules"), "it takes a list, and this is 3"),
            (
                "address = '10.0.0.1'\nrules = [{ port = 70000 }]",
                Some("rules[0].port"),
                "from 0 to 65535, and this is 70000",
            ),
            ("address = '10.0.0.1'\nrules = [{ port = 1 }, { prot = 2 }]", Some("rules[1].prot"), "`port`"),
            ("address = '10.0.0.1'\nrules = [{ port = 1 }, {}]", Some("rules[1].port"), "add `port = …`"),
        ];
        for (text, key, words) in cases {
            let error = parse(text).expect_err(text);
            assert_eq!(error.key.as_deref(), key, "{text}: {error}");
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
        let one = Options("x = 1".parse().expect("valid TOML"));
        assert_eq!(one.none().expect_err("an option").key.as_deref(), Some("x"));
        assert!(Options::default().none().is_ok());
        assert_eq!(OptionError::whole("two rules clash").to_string(), "two rules clash");
    }

    #[test]
    fn state_tables_are_described_from_the_state_itself() {
        // Goal: the listing can't drift from the code. Method: a small state with known sizes.
        let probe = nf(|_frame, _state: &Probe, _txn| Ok(Verdict::Forward));
        let seen = TableDoc { name: "seen", capacity: 12, key_bytes: 2, value_bytes: 8 };
        let last = TableDoc { name: "last", capacity: 1, key_bytes: 1, value_bytes: 4 };
        assert_eq!(tables_of(&probe), [seen, last]);
    }

    #[test]
    fn every_kind_is_described_and_keeps_its_word() {
        // Goal: a complete catalogue. Method: over all kinds: names are unique and plain, each option has its words,
        // what has no default is missed, and where all have defaults it can be made from nothing.
        let names: BTreeSet<&str> = catalogue().iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), catalogue().len());
        for kind in catalogue() {
            assert!(
                kind.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{kind:?}"
            );
            assert!(!kind.summary.is_empty() && !kind.summary.ends_with('.'), "{kind:?}");
            assert!(std::ptr::eq(find(kind.name).expect("listed"), kind));
            for option in kind.options {
                assert!(!option.takes.is_empty() && !option.help.is_empty(), "{kind:?} {option:?}");
                assert!(!["name", "nf"].contains(&option.name), "{kind:?}: `{}` is taken", option.name);
            }
            let required = kind.options.iter().any(|option| option.default.is_none());
            assert_eq!(kind.build(&[]).is_err(), required, "{kind:?}");
            assert!(
                kind.build(&[("no_such_option", 1.into())]).is_err(),
                "{kind:?} must deny unknown fields"
            );
        }
        assert!(find("no_such_function").is_none());
    }
}
