//! `forebay serve --help`, written from the option table.

use std::fmt::Write;

use server::option_table::TABLE;
use server::options::{Kind, Row, When};

/// Columns of a page.
const WIDTH: usize = 100;
/// Columns before an option's sentence.
const INDENT: usize = 42;

const HEAD: &str = "\
Starts the server.

Usage: forebay serve [CONFIG-FILE] [--option value ...]

  forebay serve                                  on 127.0.0.1:6379, HTTP on 127.0.0.1:8080
  forebay serve /etc/redis/redis.conf            with the options of a file; - = standard input
  forebay serve --port 7000 --maxmemory 1gb      with these options
  forebay serve --bind '*' --requirepass secret  for other machines as well

The command line wins over the environment (FOREBAY_MAXMEMORY_POLICY=allkeys-lru), that over the
file, that over the defaults, shown here in brackets. Sizes take kb, mb and gb. CONFIG GET and
CONFIG SET show and change options while the server runs; those marked * only at start.
SIGTERM and SIGINT end it cleanly; a second one at once.
";

/// The whole page.
pub fn text() -> String {
    let mut out = HEAD.to_string();
    let mut section = "";
    for row in TABLE.iter().filter(|row| row.when != When::NoEffect && !is_hollow(row)) {
        if row.section != section {
            section = row.section;
            let _ = write!(out, "\n{section}:\n");
        }
        option(&mut out, row);
    }
    out.push_str("\nOther:\n");
    for (name, doc) in [
        ("--ignore-unknown yes", "Go on with a warning when an option is not known."),
        ("--version, -v", "Show the version."),
        ("--help, -h", "Show this."),
    ] {
        let _ = writeln!(out, "  {name:<width$}{doc}", width = INDENT - 2);
    }
    out.push_str("\nKnown from redis.conf, accepted, without effect here:\n");
    let names = TABLE.iter().filter(|row| row.when == When::NoEffect).map(|row| row.name);
    out.push_str(&wrapped("  ", names));
    out
}

/// Options that only say that something is not there.
fn is_hollow(row: &Row) -> bool {
    row.section.ends_with("not there yet") || matches!(row.name, "user" | "aclfile")
}

fn option(out: &mut String, row: &Row) {
    let mark = if row.when == When::Start { "*" } else { " " };
    let left = format!(" {mark}--{} {}", row.name, values(row));
    let default =
        if row.default.is_empty() { String::new() } else { format!(" [{}]", row.default) };
    let words = format!("{}{default}", row.doc);
    let text = wrapped(&" ".repeat(INDENT), words.split(' '));
    if left.len() < INDENT {
        let _ = write!(out, "{left:INDENT$}{}", text.trim_start());
    } else {
        let _ = write!(out, "{left}\n{text}");
    }
}

fn values(row: &Row) -> String {
    match row.kind {
        Kind::Bool => "yes|no".into(),
        Kind::Int(..) => "number".into(),
        Kind::Octal(_) => "octal".into(),
        Kind::Bytes(..) | Kind::Percent(..) => "size".into(),
        Kind::Enum(names) => names.join("|"),
        Kind::Text | Kind::Secret => "text".into(),
        Kind::Words(_) => "words".into(),
    }
}

/// Words in lines of at most [`WIDTH`] columns.
fn wrapped<'w>(indent: &str, words: impl Iterator<Item = &'w str>) -> String {
    let mut out = String::new();
    let mut line = indent.to_string();
    for word in words {
        if line.len() + word.len() + 1 > WIDTH && line.len() > indent.len() {
            let _ = writeln!(out, "{}", line.trim_end());
            line = indent.to_string();
        }
        let _ = write!(line, "{word} ");
    }
    let _ = writeln!(out, "{}", line.trim_end());
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_option_is_in_the_help() {
        let text = super::text();
        for row in server::option_table::TABLE {
            let shown = text.contains(row.name) || super::is_hollow(row);
            assert!(shown, "{}", row.name);
        }
        assert!(text.lines().all(|line| line.len() <= 130), "a line is too long");
    }
}
