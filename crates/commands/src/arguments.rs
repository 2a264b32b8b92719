//! The tree of a command's arguments, read from its usage line, in the terms of COMMAND DOCS.
//!
//! ```text
//! key                 a value; its type follows from its name
//! NX                  a token
//! EX seconds          a value behind a token
//! LIMIT offset count  a block behind a token: a token goes with all values that follow it
//! [ ... ]             optional
//! < a | b >           one of several
//! key [key ...]       multiple: the group repeats what stands before it
//! [part ...]          optional and multiple
//! ```

use crate::command::{Find, KeySpec};

/// What an argument is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// A word of the caller's, of this type: `key`, `string`, `integer`, ...
    Value(&'static str),
    /// A word by itself.
    Token,
    /// One of these.
    OneOf(Vec<Argument>),
    /// All of these, in order.
    Block(Vec<Argument>),
}

/// An argument of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Lower case.
    pub name: String,
    /// See [`Shape`].
    pub shape: Shape,
    /// The word before it, or that it is.
    pub token: Option<String>,
    /// May be left out.
    pub optional: bool,
    /// May come more than once.
    pub multiple: bool,
    /// May come more than once, each time with its token.
    pub multiple_token: bool,
    /// Which of the command's key specifications it belongs to.
    pub key_spec: Option<usize>,
}

/// The arguments of a command with this usage line and these keys.
pub fn parse(usage: &str, keys: &[KeySpec]) -> Vec<Argument> {
    let mut words = Vec::new();
    for part in usage.split_inclusive([' ', '[', ']', '<', '>', '|']) {
        let name = part.trim_end_matches([' ', '[', ']', '<', '>', '|']);
        let mark = &part[name.len()..];
        words.extend([name, mark.trim()].into_iter().filter(|word| !word.is_empty()));
    }
    let mut all = Parser { words, at: 0 }.sequence().0;
    let specs: Vec<usize> = (0..keys.len()).filter(|at| can_be_named(&keys[*at])).collect();
    number_keys(&mut all, &specs, &mut 0);
    // Patterns stand for the keys that the words do not name.
    let unknown = keys.iter().position(|spec| !can_be_named(spec));
    let is_pattern = |part: &&mut Argument| part.shape == Shape::Value("pattern");
    all.iter_mut().filter(is_pattern).for_each(|part| part.key_spec = unknown);
    all
}

fn can_be_named(spec: &KeySpec) -> bool {
    !matches!(spec.find, Find::Unknown)
}

/// Gives each key argument its specification: in order, the last one for all that follow.
fn number_keys(arguments: &mut [Argument], specs: &[usize], next: &mut usize) {
    for argument in arguments {
        match &mut argument.shape {
            Shape::Value(kind) if *kind == "key" => {
                argument.key_spec = specs.get(*next).or(specs.last()).copied();
                *next += 1;
                if specs.is_empty() {
                    *kind = "string";
                }
            }
            Shape::OneOf(parts) | Shape::Block(parts) => number_keys(parts, specs, next),
            _ => {}
        }
    }
}

impl Argument {
    fn new(name: impl Into<String>, shape: Shape) -> Argument {
        Argument {
            name: name.into(),
            shape,
            token: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            key_spec: None,
        }
    }

    /// A group of arguments as one.
    fn block(mut parts: Vec<Argument>) -> Argument {
        if parts.len() == 1 {
            return parts.remove(0);
        }
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        Argument::new(names.join("-"), Shape::Block(parts))
    }

    fn one_of(mut choices: Vec<Vec<Argument>>) -> Argument {
        if choices.len() == 1 {
            return Argument::block(choices.remove(0));
        }
        let choices: Vec<Argument> = choices.into_iter().map(Argument::block).collect();
        let names: Vec<&str> = choices.iter().map(|choice| choice.name.as_str()).collect();
        Argument::new(names.join("-or-"), Shape::OneOf(choices))
    }

    fn with_token(mut self, token: &str) -> Argument {
        self.token = Some(token.to_string());
        self
    }

    fn repeated(mut self) -> Argument {
        self.multiple = true;
        self.multiple_token = self.token.is_some();
        self
    }
}

fn is_token(word: &str) -> bool {
    !word.contains(|c: char| c.is_lowercase())
}

fn is_value(word: Option<&str>) -> bool {
    word.is_some_and(|word| word.contains(|c: char| c.is_lowercase()))
}

struct Parser<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn take(&mut self) -> Option<&'a str> {
        self.at += 1;
        self.words.get(self.at - 1).copied()
    }

    /// Arguments up to the end of the group or of the alternative; whether `...` ended them.
    fn sequence(&mut self) -> (Vec<Argument>, bool) {
        let (mut parts, mut repeats) = (Vec::new(), false);
        while let Some(word) = self.peek() {
            match word {
                "]" | ">" | "|" => break,
                "..." => {
                    self.at += 1;
                    repeats = true;
                }
                "[" => {
                    if !self.repetition(&mut parts) {
                        self.at += 1;
                        let mut part = self.group();
                        part.optional = true;
                        parts.push(part);
                    }
                }
                "<" => {
                    self.at += 1;
                    parts.push(self.group());
                }
                word if is_token(word) => {
                    self.at += 1;
                    parts.push(self.behind_token(word));
                }
                word => {
                    self.at += 1;
                    parts.push(Argument::new(word, Shape::Value(type_of(word))));
                }
            }
        }
        (parts, repeats)
    }

    /// What follows a bracket, up to the one that closes it.
    fn group(&mut self) -> Argument {
        let mut choices = Vec::new();
        let mut repeats = false;
        loop {
            let (choice, more) = self.sequence();
            choices.push(choice);
            repeats |= more;
            if self.take() != Some("|") {
                break;
            }
        }
        let part = Argument::one_of(choices);
        if repeats { part.repeated() } else { part }
    }

    /// At a bracket: takes the group if it repeats the end of `parts`.
    fn repetition(&mut self, parts: &mut Vec<Argument>) -> bool {
        let start = self.at;
        self.at += 1;
        let (mut group, repeats) = self.sequence();
        let len = group.len();
        // What repeats may itself be repeated inside: only the first time says so.
        let tail = parts.len().checked_sub(len).filter(|_| repeats && len > 0);
        if let Some(tail) = tail
            && self.take() == Some("]")
            && parts[tail..] == group[..]
        {
            group.clear();
            let repeated = Argument::block(parts.split_off(tail)).repeated();
            parts.push(repeated);
            return true;
        }
        self.at = start;
        false
    }

    /// The values that a token goes with.
    fn behind_token(&mut self, token: &str) -> Argument {
        if self.peek() == Some("<") {
            self.at += 1;
            return self.group().with_token(token);
        }
        let mut values = Vec::new();
        while is_value(self.peek()) {
            let name = self.take().unwrap_or_default();
            values.push(Argument::new(name, Shape::Value(type_of(name))));
            if self.peek() == Some("[") {
                self.repetition(&mut values);
            }
        }
        match values.len() {
            0 => Argument::new(token.to_lowercase(), Shape::Token).with_token(token),
            1 => values.remove(0).with_token(token),
            _ => Argument::new(token.to_lowercase(), Shape::Block(values)).with_token(token),
        }
    }
}

/// A value's type, by its name.
fn type_of(name: &str) -> &'static str {
    const INTEGERS: &[&str] = &[
        "bit",
        "count",
        "cursor",
        "db",
        "decrement",
        "destination-db",
        "end",
        "entries-read",
        "increment",
        "index",
        "index1",
        "index2",
        "iterations",
        "len",
        "limit",
        "maxlen",
        "milliseconds",
        "min-idle-time",
        "min-match-len",
        "ms",
        "num-matches",
        "numkeys",
        "numlocal",
        "numreplicas",
        "offset",
        "port",
        "protover",
        "rank",
        "seconds",
        "start",
        "stop",
        "threshold",
        "value-bit",
    ];
    const DOUBLES: &[&str] =
        &["height", "latitude", "longitude", "radius", "score", "timeout", "weight", "width"];
    const KEYS: &[&str] = &["key1", "key2", "source", "destination", "src", "dst"];
    match name {
        name if name.ends_with("key") || KEYS.contains(&name) => "key",
        name if INTEGERS.contains(&name) => "integer",
        name if DOUBLES.contains(&name) => "double",
        name if name.starts_with("unix-time") => "unix-time",
        name if name.ends_with("pattern") => "pattern",
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{RO, RW, first, range};

    /// The tree in one line: `name:type`, `=TOKEN`, `?` optional, `+` multiple, `++` with token.
    fn text(arguments: &[Argument]) -> String {
        let one = |argument: &Argument| {
            let shape = match &argument.shape {
                Shape::Value("key") => {
                    format!("{}:key{}", argument.name, argument.key_spec.expect("a key"))
                }
                Shape::Value(kind) => format!("{}:{kind}", argument.name),
                Shape::Token => String::new(),
                Shape::OneOf(parts) => format!("<{}>", text(parts)),
                Shape::Block(parts) => format!("({})", text(parts)),
            };
            let token = argument.token.as_ref().map_or_else(String::new, |t| format!("={t}"));
            let optional = if argument.optional { "?" } else { "" };
            let multiple = match (argument.multiple, argument.multiple_token) {
                (false, _) => "",
                (true, false) => "+",
                (true, true) => "++",
            };
            format!("{shape}{token}{optional}{multiple}")
        };
        arguments.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn usage_lines_become_trees() {
        let cases: [(&str, &[KeySpec], &str); 12] = [
            ("", &[], ""),
            ("key value [NX | XX] [GET]", &[first(RW)], "key:key0 value:string <=NX =XX>? =GET?"),
            ("key [EX seconds | PERSIST]", &[first(RW)], "key:key0 <seconds:integer=EX =PERSIST>?"),
            ("key value [key value ...]", &[range(1, -1, 2, RW)], "(key:key0 value:string)+"),
            (
                "destination key [key ...]",
                &[first(RW), range(2, -1, 1, RO)],
                "destination:key0 key:key1+",
            ),
            ("[section [section ...]]", &[], "section:string?+"),
            (
                "key [GET get-pattern [GET get-pattern ...]] [LIMIT offset count]",
                &[first(RO)],
                "key:key0 get-pattern:pattern=GET?++ (offset:integer count:integer)=LIMIT?",
            ),
            (
                "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN>]",
                &[first(RO)],
                "numkeys:integer key:key0+ weight:double=WEIGHTS?+ <=SUM =MIN>=AGGREGATE?",
            ),
            ("[COUNT count [ANY]]", &[], "(count:integer=COUNT =ANY?)?"),
            ("STREAMS key [key ...] id [id ...]", &[first(RO)], "(key:key0+ id:string+)=STREAMS"),
            (
                "<FROMMEMBER member | FROMLONLAT longitude latitude>",
                &[],
                "<member:string=FROMMEMBER (longitude:double latitude:double)=FROMLONLAT>",
            ),
            (
                "[<GET encoding | [OVERFLOW <WRAP | SAT>] <SET value | INCRBY increment>> ...]",
                &[],
                "<encoding:string=GET (<=WRAP =SAT>=OVERFLOW? \
              <value:string=SET increment:integer=INCRBY>)>?+",
            ),
        ];
        for (usage, keys, want) in cases {
            assert_eq!(text(&parse(usage, keys)), want, "{usage}");
        }
    }
}
