//! The usage of commands, for hints, completion and `help`: from the server's `COMMAND DOCS`,
//! and where that does not know a command, from the table compiled in.

use std::collections::BTreeMap;

use resp::reply::Value;

use super::UsageOf;
use super::connection::{Connection, Error};

/// What is known of a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// Its arguments, one text each: `key`, `[EX seconds]`.
    pub arguments: Vec<String>,
    /// What it does.
    pub summary: String,
    /// Since which version, as the server tells it.
    pub since: String,
}

/// Usage by name in upper case; a subcommand stands as `CONFIG GET`.
pub struct Hints {
    descriptions: BTreeMap<String, Description>,
    usage_of: UsageOf,
}

impl Hints {
    /// Asks the server. One that has no `COMMAND DOCS` gives no hints of its own.
    pub fn load(connection: &mut Connection, usage_of: UsageOf) -> Result<Hints, Error> {
        let docs = connection.request(&["COMMAND", "DOCS"])?;
        Ok(Hints::from_docs(&docs, usage_of))
    }

    /// Reads a reply to `COMMAND DOCS`.
    pub fn from_docs(docs: &Value, usage_of: UsageOf) -> Hints {
        let mut descriptions = BTreeMap::new();
        for (name, doc) in pairs(docs) {
            add(&mut descriptions, &text(name), doc);
        }
        Hints { descriptions, usage_of }
    }

    /// What is known of the command that `words` begin with, and how many words its name has.
    pub fn find(&self, words: &[String]) -> Option<(Description, usize)> {
        for length in [2, 1] {
            let Some(name) = words.get(..length) else { continue };
            let name = name.join(" ").to_uppercase();
            if let Some(description) = self.descriptions.get(&name) {
                return Some((description.clone(), length));
            }
            if let Some(usage) = (self.usage_of)(&name) {
                let arguments = units(&usage);
                return Some((Description { arguments, ..Description::default() }, length));
            }
        }
        None
    }

    /// The arguments that have still to be typed after `words`.
    pub fn remaining(&self, words: &[String]) -> Option<String> {
        let (description, name_length) = self.find(words)?;
        let typed = words.len() - name_length;
        let arguments = &description.arguments;
        // What repeats is never used up.
        let last_repeats = arguments.last().is_some_and(|last| last.ends_with("...]"));
        let skipped = if last_repeats { typed.min(arguments.len() - 1) } else { typed };
        Some(arguments.get(skipped..)?.join(" ")).filter(|rest| !rest.is_empty())
    }

    /// Names that begin with `start`, in upper case.
    pub fn names(&self, start: &str) -> Vec<String> {
        let start = start.to_uppercase();
        let from_start = self.descriptions.range(start.clone()..);
        from_start
            .map(|(name, _)| name.clone())
            .take_while(|name| name.starts_with(&start))
            .collect()
    }
}

fn add(descriptions: &mut BTreeMap<String, Description>, name: &str, doc: &Value) {
    let mut description = Description::default();
    for (field, value) in pairs(doc) {
        match text(field).as_str() {
            "summary" => description.summary = text(value),
            "since" => description.since = text(value),
            "arguments" => description.arguments = elements(value).iter().map(argument).collect(),
            "subcommands" => {
                for (name, doc) in pairs(value) {
                    add(descriptions, &text(name), doc);
                }
            }
            _ => {}
        }
    }
    descriptions.insert(name.replace('|', " ").to_uppercase(), description);
}

/// The usage of one argument as `COMMAND DOCS` describes it.
fn argument(doc: &Value) -> String {
    let mut name = String::new();
    let (mut kind, mut token, mut shown) = (String::new(), String::new(), String::new());
    let (mut is_optional, mut repeats, mut token_repeats) = (false, false, false);
    let mut parts = Vec::new();
    for (field, value) in pairs(doc) {
        match text(field).as_str() {
            "name" => name = text(value),
            "type" => kind = text(value),
            "token" => token = text(value),
            "display_text" => shown = text(value),
            "arguments" => parts = elements(value).iter().map(argument).collect(),
            "flags" => {
                let has = |flag: &str| elements(value).iter().any(|f| text(f) == flag);
                is_optional = has("optional");
                repeats = has("multiple");
                token_repeats = has("multiple_token");
            }
            _ => {}
        }
    }
    let body = match kind.as_str() {
        "pure-token" => String::new(),
        "oneof" => parts.join(" | "),
        "block" => parts.join(" "),
        _ if shown.is_empty() => name,
        _ => shown,
    };
    let is_choice = kind == "oneof" && parts.len() > 1;
    let body = if is_choice && !is_optional { format!("<{body}>") } else { body };
    let once = match (token.is_empty(), body.is_empty()) {
        (true, _) => body.clone(),
        (false, true) => token.clone(),
        (false, false) => format!("{token} {body}"),
    };
    let text = match (repeats, token_repeats) {
        (true, true) => format!("{once} [{once} ...]"),
        (true, false) => format!("{once} [{body} ...]"),
        _ => once,
    };
    if is_optional { format!("[{text}]") } else { text }
}

/// The pairs of a map, or of an array that stands for one in RESP2.
fn pairs(value: &Value) -> Vec<(&Value, &Value)> {
    match value {
        Value::Map(pairs) => pairs.iter().map(|(key, value)| (key, value)).collect(),
        _ => elements(value).chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
    }
}

fn elements(value: &Value) -> &[Value] {
    value.as_elements().unwrap_or_default()
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
}

/// A usage such as `key value [EX seconds | PX milliseconds]` as one text for each argument.
fn units(usage: &str) -> Vec<String> {
    let mut units = Vec::new();
    let mut unit = String::new();
    let mut depth = 0_usize;
    for character in usage.chars() {
        match character {
            '[' | '<' => depth += 1,
            ']' | '>' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => {
                units.push(std::mem::take(&mut unit));
                continue;
            }
            _ => {}
        }
        unit.push(character);
    }
    units.push(unit);
    units.retain(|unit| !unit.is_empty());
    // `key [key ...]` is one argument that repeats.
    for index in (1..units.len()).rev() {
        let repeats = units[index].ends_with("...]");
        if repeats && units[index].starts_with(&format!("[{}", units[index - 1])) {
            let rest = units.remove(index);
            units[index - 1] = format!("{} {rest}", units[index - 1]);
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn map(pairs: &[(&str, Value)]) -> Value {
        Value::Map(pairs.iter().map(|(key, value)| (bulk(key), value.clone())).collect())
    }

    fn flags(names: &[&str]) -> Value {
        Value::Array(names.iter().map(|name| bulk(name)).collect())
    }

    fn leaf(name: &str, kind: &str, token: &str, names: &[&str]) -> Value {
        let mut fields = vec![("name", bulk(name)), ("type", bulk(kind)), ("flags", flags(names))];
        if !token.is_empty() {
            fields.push(("token", bulk(token)));
        }
        map(&fields)
    }

    fn docs() -> Value {
        let condition = map(&[
            ("name", bulk("condition")),
            ("type", bulk("oneof")),
            ("flags", flags(&["optional"])),
            (
                "arguments",
                Value::Array(vec![
                    leaf("nx", "pure-token", "NX", &[]),
                    leaf("seconds", "integer", "EX", &[]),
                ]),
            ),
        ]);
        let set = vec![leaf("key", "key", "", &[]), leaf("value", "string", "", &[]), condition];
        let del = vec![leaf("key", "key", "", &["multiple"])];
        let get = map(&[("arguments", Value::Array(vec![leaf("parameter", "string", "", &[])]))]);
        map(&[
            ("set", map(&[("summary", bulk("Sets.")), ("arguments", Value::Array(set))])),
            ("del", map(&[("arguments", Value::Array(del))])),
            ("config", map(&[("subcommands", map(&[("config|get", get)]))])),
        ])
    }

    fn remaining(line: &str) -> Option<String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let table = |name: &str| (name == "ODD").then(|| "a b [c | d] e [e ...]".to_owned());
        Hints::from_docs(&docs(), table).remaining(&words)
    }

    #[test]
    fn hints_shrink_as_words_are_typed() {
        assert_eq!(remaining("set").as_deref(), Some("key value [NX | EX seconds]"));
        assert_eq!(remaining("SET k").as_deref(), Some("value [NX | EX seconds]"));
        assert_eq!(remaining("SET k v NX"), None);
        assert_eq!(remaining("SET k v NX more"), None);
        assert_eq!(remaining("del a b c").as_deref(), Some("key [key ...]"));
        assert_eq!(remaining("config get").as_deref(), Some("parameter"));
        assert_eq!(remaining("nothing"), None);
        assert_eq!(remaining(""), None);
    }

    #[test]
    fn the_compiled_table_is_asked_last() {
        assert_eq!(remaining("odd").as_deref(), Some("a b [c | d] e [e ...]"));
        assert_eq!(remaining("odd 1 2").as_deref(), Some("[c | d] e [e ...]"));
        assert_eq!(remaining("odd 1 2 3 4 5 6").as_deref(), Some("e [e ...]"));
    }

    #[test]
    fn docs_of_resp2_and_odd_replies_do_no_harm() {
        let flat = Value::Array(vec![bulk("ping"), Value::Array(vec![bulk("summary"), bulk("P")])]);
        let hints = Hints::from_docs(&flat, |_| None);
        assert_eq!(hints.names("p"), ["PING"]);
        for odd in [Value::Null, Value::Integer(1), Value::Error("ERR".into())] {
            assert!(Hints::from_docs(&odd, |_| None).names("").is_empty());
        }
    }
}
