//! Says in the words of options what deserializers say in Rust's.

/// A deserializer's message as a sentence about the value: what is taken, and what this is. Messages of our own stay.
pub(crate) fn translate(message: &str) -> String {
    let wrong = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    if let Some((found, wanted)) = wrong.and_then(|rest| rest.split_once(", expected ")) {
        return format!("it takes {}, and this is {}", self::wanted(wanted), self::found(found));
    }
    let unknown = message.strip_prefix("unknown variant `").and_then(|rest| rest.split_once("`, expected "));
    if let Some((word, known)) = unknown {
        return format!("it takes {}, and this is `{word}`", known.trim_start_matches("one of "));
    }
    message.to_owned()
}

/// What is wanted, without the names of Rust's types.
fn wanted(text: &str) -> String {
    let most = match text {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        _ => 0,
    };
    match text {
        "u8" | "u16" | "u32" => format!("a whole number from 0 to {most}"),
        "u64" | "usize" => "a whole number from 0 on".to_owned(),
        "a nonzero u64" | "a nonzero usize" => "a whole number from 1 on".to_owned(),
        "i64" | "i32" => "a whole number".to_owned(),
        "f64" | "f32" => "a number".to_owned(),
        "a string" | "string" => "text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "IPv4 address" | "IPv6 address" | "IP address" => format!("an {text}"),
        _ if text.starts_with("struct ") || text == "a map" => "a table".to_owned(),
        _ if text.starts_with("enum ") || text == "string or table" => "one of its words".to_owned(),
        _ => text.to_owned(),
    }
}

/// What was found: a number or text as it was written, and other kinds by their names.
fn found(text: &str) -> String {
    let quoted = |kind: &str| text.strip_prefix(kind).map(|rest| rest.trim().to_owned());
    let plain = ["integer", "floating point", "boolean"].into_iter().find_map(quoted);
    match text {
        "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        _ => match (plain, quoted("string")) {
            (Some(value), _) => value.trim_matches('`').to_owned(),
            (None, Some(value)) => format!("the text {value}"),
            (None, None) => text.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_of_rust_is_left() {
        // Goal: messages use the words of the documentation. Method: what serde says, and what it becomes.
        for (theirs, ours) in [
            (
                "invalid type: string \"x\", expected usize",
                "it takes a whole number from 0 on, and this is the text \"x\"",
            ),
            (
                "invalid value: integer `-1`, expected u16",
                "it takes a whole number from 0 to 65535, and this is -1",
            ),
            ("invalid type: sequence, expected a string", "it takes text, and this is a list"),
            ("invalid type: map, expected a boolean", "it takes true or false, and this is a table"),
            ("invalid type: floating point `1.5`, expected struct Rule", "it takes a table, and this is 1.5"),
            (
                "unknown variant `all`, expected `allow` or `deny`",
                "it takes `allow` or `deny`, and this is `all`",
            ),
            ("unknown variant `x`, expected one of `a`, `b`, `c`", "it takes `a`, `b`, `c`, and this is `x`"),
            ("there is no such port", "there is no such port"),
        ] {
            assert_eq!(translate(theirs), ours, "{theirs}");
        }
    }
}
