//! COMMAND: what commands there are, from the registry. The table's rows in the shapes of Redis's
//! COMMAND INFO and COMMAND DOCS, and as docs/commands.md.

use std::fmt::Write;

use resp::{Args, Writer};

use crate::arguments::{self, Argument, Shape};
use crate::categories;
use crate::command::{
    Command, FLAG_NAMES, Family, Find, Flags, Group, KeySpec, LOADING, NO_MANDATORY_KEYS, STALE,
};
use crate::context::Context;
use crate::error::Error;
use crate::help::HELP;
use crate::pattern;
use crate::registry::{Entry, Registry, each_key};
use crate::words::is;

const FLAGS: Flags = LOADING.with(STALE);
const CATEGORIES: Option<&[&str]> = Some(&["connection"]);
const UNORDERED: &[&str] = &["nondeterministic_output_order"];

const ASKS: Command = Command {
    flags: FLAGS,
    categories: CATEGORIES,
    complexity: "O(N), N = commands",
    since: "2.8.13",
    ..Command::DEFAULT
};

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Server,
    commands: &[Command {
        name: "COMMAND",
        run: info_of_all,
        // A command by itself as well as a container.
        arity_override: -1,
        summary: "Tells about all commands.",
        tips: UNORDERED,
        sub: &[
            Command {
                name: "COUNT",
                run: count,
                summary: "Returns the number of commands.",
                complexity: "O(1)",
                ..ASKS
            },
            Command {
                name: "DOCS",
                run: docs,
                usage: "[command-name [command-name ...]]",
                summary: "Returns what commands are for and what they take.",
                since: "7.0.0",
                tips: UNORDERED,
                ..ASKS
            },
            Command {
                name: "GETKEYS",
                run: getkeys,
                usage: "command [arg [arg ...]]",
                summary: "Returns the keys among the words of a command.",
                complexity: "O(N), N = words",
                ..ASKS
            },
            Command {
                name: "GETKEYSANDFLAGS",
                run: getkeysandflags,
                usage: "command [arg [arg ...]]",
                summary: "Returns the keys among the words of a command, and what it does to them.",
                complexity: "O(N), N = words",
                since: "7.0.0",
                ..ASKS
            },
            Command {
                name: "INFO",
                run: info,
                usage: "[command-name [command-name ...]]",
                summary: "Returns the properties of commands.",
                tips: UNORDERED,
                ..ASKS
            },
            Command {
                name: "LIST",
                run: list,
                usage: "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
                summary: "Returns the names of commands.",
                since: "7.0.0",
                tips: UNORDERED,
                ..ASKS
            },
            Command { categories: CATEGORIES, ..HELP },
        ],
        ..ASKS
    }],
};

fn top_level(registry: &Registry) -> impl Iterator<Item = &Entry> {
    registry.entries().iter().filter(|entry| !entry.is_sub)
}

fn count(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    cx.out.count(top_level(&cx.core.registry).count());
    Ok(())
}

fn info_of_all(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let registry = &cx.core.registry;
    cx.out.array(top_level(registry).count());
    top_level(registry).for_each(|entry| write_info(cx.out, registry, entry));
    Ok(())
}

fn info(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if args.len() == 2 {
        return info_of_all(cx, args);
    }
    let registry = &cx.core.registry;
    cx.out.array(args.len() - 2);
    for name in args.from(2).iter() {
        match registry.by_full_name(name) {
            Some(entry) => write_info(cx.out, registry, entry),
            None => cx.out.null(),
        }
    }
    Ok(())
}

fn docs(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let registry = &cx.core.registry;
    let entries: Vec<&Entry> = match args.len() {
        2 => top_level(registry).collect(),
        _ => args.from(2).iter().filter_map(|name| registry.by_full_name(name)).collect(),
    };
    cx.out.map(entries.len());
    for entry in entries {
        cx.out.text(&entry.full_name);
        write_docs(cx.out, registry, entry);
    }
    Ok(())
}

fn list(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    type Filter<'a> = Box<dyn Fn(&Entry) -> bool + 'a>;
    let filter: Filter<'_> = match (args.get(2), args.get(3), args.get(4), args.len()) {
        (None, ..) => Box::new(|_| true),
        (Some(word), Some(kind), Some(wanted), 5) if is(word, "FILTERBY") => match kind {
            kind if is(kind, "MODULE") => Box::new(|_| false),
            kind if is(kind, "ACLCAT") => {
                Box::new(move |entry| categories::of(entry).any(|category| is(wanted, category)))
            }
            kind if is(kind, "PATTERN") => {
                Box::new(move |entry| pattern::matches_any_case(wanted, entry.full_name.as_bytes()))
            }
            _ => return Err(Error::SYNTAX),
        },
        _ => return Err(Error::SYNTAX),
    };
    let place = cx.out.later();
    let mut found = 0;
    for entry in cx.core.registry.entries().iter().filter(|entry| filter(entry)) {
        cx.out.text(&entry.full_name);
        found += 1;
    }
    cx.out.array_at(place, found);
    Ok(())
}

fn getkeys(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    write_keys(cx, args, |out, key, _| out.bulk(key))
}

fn getkeysandflags(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    write_keys(cx, args, |out, key, spec| {
        out.array(2);
        out.bulk(key);
        write_words(out, spec.flags);
    })
}

/// Writes the keys of the command that the words from the third on are.
fn write_keys(
    cx: &mut Context<'_>,
    args: Args<'_>,
    write: impl Fn(&mut Writer, &[u8], &KeySpec),
) -> Result<(), Error> {
    let (registry, words) = (&cx.core.registry, args.from(2));
    let entry = registry.lookup(words.word(0)).and_then(|entry| match words.get(1) {
        Some(sub) if !entry.subs.is_empty() => registry.lookup_sub(entry, sub),
        _ => Some(entry),
    });
    let entry = entry.ok_or(Error::text("ERR Invalid command specified"))?;
    if entry.command.keys.is_empty() {
        return Err(Error::text("ERR The command has no key arguments"));
    }
    if !entry.takes(words.len()) {
        return Err(Error::text("ERR Invalid number of arguments specified for command"));
    }
    let mut keys = Vec::new();
    let found = each_key(&entry.command, words, |index, spec| keys.push((index, *spec)));
    if found.is_err() || keys.is_empty() {
        if !entry.command.flags.has(NO_MANDATORY_KEYS) {
            return Err(Error::text("ERR Invalid arguments specified for command"));
        }
        keys.clear();
    }
    cx.out.array(keys.len());
    keys.iter().for_each(|(index, spec)| write(cx.out, words.word(*index), spec));
    Ok(())
}

/// A set of simple strings.
fn write_words(out: &mut Writer, words: &[&str]) {
    out.set(words.len());
    words.iter().for_each(|word| out.simple(word));
}

/// The ten parts of COMMAND INFO.
fn write_info(out: &mut Writer, registry: &Registry, entry: &Entry) {
    let row = &entry.command;
    out.array(10);
    out.text(&entry.full_name);
    out.int(entry.arity.into());
    let flags = entry.flags();
    let names = FLAG_NAMES.iter().filter(|(flag, name)| flags.has(*flag) && !name.is_empty());
    write_words(out, &names.map(|(_, name)| *name).collect::<Vec<_>>());
    let (first, last, step) = entry.key_range().0;
    out.count(first);
    out.int(last.into());
    out.count(step);
    let categories: Vec<String> = categories::of(entry).map(|name| format!("@{name}")).collect();
    write_words(out, &categories.iter().map(String::as_str).collect::<Vec<_>>());
    out.set(row.tips.len());
    row.tips.iter().for_each(|tip| out.text(tip));
    out.set(row.keys.len());
    row.keys.iter().for_each(|spec| write_key_spec(out, spec));
    out.array(entry.subs.len());
    for sub in &entry.subs {
        write_info(out, registry, &registry.entries()[*sub]);
    }
}

fn write_key_spec(out: &mut Writer, spec: &KeySpec) {
    out.map(3);
    out.text("flags");
    write_words(out, spec.flags);
    out.text("begin_search");
    match spec.find {
        Find::Range { first: index, .. }
        | Find::Count { at: index }
        | Find::Unless { at: index, .. } => {
            write_search(out, "index", &[("index", index as i64)]);
        }
        Find::After { keyword, from }
        | Find::HalfAfter { keyword, from }
        | Find::Rest { keyword, from, .. } => {
            out.map(2);
            out.text("type");
            out.text("keyword");
            out.text("spec");
            out.map(2);
            out.text("keyword");
            out.text(keyword);
            out.text("startfrom");
            out.count(from);
        }
        Find::Option { .. } | Find::Unknown => write_search(out, "unknown", &[]),
    }
    out.text("find_keys");
    let range = |out: &mut Writer, last: i64, step: usize, limit| {
        let parts = [("lastkey", last), ("keystep", step as i64), ("limit", limit)];
        write_search(out, "range", &parts);
    };
    match spec.find {
        Find::Range { first, last, step } => {
            // A last word from the front is told relative to the first one.
            let last = i64::from(last);
            range(out, if last < 0 { last } else { last - first as i64 }, step, 0);
        }
        Find::Count { .. } => {
            write_search(out, "keynum", &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)]);
        }
        Find::After { .. } | Find::Unless { .. } => range(out, 0, 1, 0),
        Find::Rest { .. } => range(out, -1, 1, 0),
        Find::HalfAfter { .. } => range(out, -1, 1, 2),
        Find::Option { .. } | Find::Unknown => write_search(out, "unknown", &[]),
    }
}

fn write_search(out: &mut Writer, kind: &str, parts: &[(&str, i64)]) {
    out.map(2);
    out.text("type");
    out.text(kind);
    out.text("spec");
    out.map(parts.len());
    for (name, number) in parts {
        out.text(name);
        out.int(*number);
    }
}

/// COMMAND DOCS' map.
fn write_docs(out: &mut Writer, registry: &Registry, entry: &Entry) {
    let row = &entry.command;
    let arguments = arguments::parse(row.usage, row.keys);
    let lines = [
        ("summary", row.summary),
        ("since", row.since),
        ("group", entry.group.name()),
        ("complexity", row.complexity),
    ];
    let more = usize::from(!arguments.is_empty()) + usize::from(!entry.subs.is_empty());
    out.map(lines.len() + more + if row.deprecated.is_some() { 3 } else { 0 });
    for (name, text) in lines {
        out.text(name);
        out.text(text);
    }
    if let Some((since, instead)) = row.deprecated {
        out.text("doc_flags");
        write_words(out, &["deprecated"]);
        out.text("deprecated_since");
        out.text(since);
        out.text("replaced_by");
        out.text(instead);
    }
    if !arguments.is_empty() {
        out.text("arguments");
        write_arguments(out, &arguments);
    }
    if !entry.subs.is_empty() {
        out.text("subcommands");
        out.map(entry.subs.len());
        for sub in &entry.subs {
            let sub = &registry.entries()[*sub];
            out.text(&sub.full_name);
            write_docs(out, registry, sub);
        }
    }
}

fn write_arguments(out: &mut Writer, arguments: &[Argument]) {
    out.array(arguments.len());
    for argument in arguments {
        let (kind, parts) = match &argument.shape {
            Shape::Value(kind) => (*kind, None),
            Shape::Token => ("pure-token", None),
            Shape::OneOf(parts) => ("oneof", Some(parts)),
            Shape::Block(parts) => ("block", Some(parts)),
        };
        let mut flags = Vec::new();
        let all = [
            (argument.optional, "optional"),
            (argument.multiple, "multiple"),
            (argument.multiple_token, "multiple_token"),
        ];
        flags.extend(all.iter().filter(|(is, _)| *is).map(|(_, name)| *name));
        let extras = [argument.key_spec.is_some(), argument.token.is_some(), !flags.is_empty()];
        // Name, type, and either the parts or the text to display.
        out.map(3 + extras.into_iter().filter(|is| *is).count());
        out.text("name");
        out.text(&argument.name);
        out.text("type");
        out.text(kind);
        if parts.is_none() {
            out.text("display_text");
            out.text(&argument.name);
        }
        if let Some(spec) = argument.key_spec {
            out.text("key_spec_index");
            out.count(spec);
        }
        if let Some(token) = &argument.token {
            out.text("token");
            out.text(token);
        }
        if !flags.is_empty() {
            out.text("flags");
            write_words(out, &flags);
        }
        if let Some(parts) = parts {
            out.text("arguments");
            write_arguments(out, parts);
        }
    }
}

/// docs/commands.md: every command by group.
pub fn markdown(registry: &Registry) -> String {
    const INTRODUCTION: &str = "# Commands\n\n\
        Every command of Forebay, by group. This page is written from the command table in \
        `crates/commands`: change a row there, not here.\n";
    let mut text = INTRODUCTION.to_string();
    let mut groups: Vec<Group> = Vec::new();
    for entry in registry.entries() {
        if !groups.contains(&entry.group) {
            groups.push(entry.group);
        }
    }
    groups.sort_by_key(|group| group.name());
    for group in groups {
        let own = registry.entries().iter().filter(|entry| entry.group == group);
        let mut own: Vec<&Entry> = own.filter(|entry| entry.subs.is_empty()).collect();
        own.sort_by_key(|entry| &entry.full_name);
        let title = group.name();
        let lines = "| Command | What it does | Cost | Since |\n| --- | --- | --- | --- |";
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## {title}\n\n{lines}\n");
        for entry in own {
            let row = &entry.command;
            let name = entry.full_name.replace('|', " ").to_uppercase();
            let words = format!("{name} {}", row.usage).trim_end().replace('|', "\\|");
            let old = row.deprecated.map(|(since, instead)| {
                format!(" Not advised since {since}: use {}.", instead.replace('|', "\\|"))
            });
            let (old, cost, since) = (old.unwrap_or_default(), row.complexity, row.since);
            let _ = writeln!(text, "| `{words}` | {}{old} | {cost} | {since} |", row.summary);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Client;

    #[test]
    fn info_has_ten_parts() {
        Client::new().check(&[
            (
                "COMMAND INFO get nope",
                "*2 *10 $3 get :2 *2 +readonly +fast :1 :1 :1 *3 +@read +@string +@fast *0 *1 *6 \
                 $5 flags *2 +RO +access $12 begin_search *4 $4 type $5 index $4 spec *2 $5 index \
                 :1 $9 find_keys *4 $4 type $5 range $4 spec *6 $7 lastkey :0 $7 keystep :1 $5 \
                 limit :0 *0 $-1",
            ),
            (
                "COMMAND INFO object|help",
                "*1 *10 $11 object|help :2 *2 +loading +stale :0 :0 :0 *2 +@keyspace +@slow *0 *0 \
                 *0",
            ),
        ]);
        let all = Client::new().run("COMMAND");
        let count = Client::new().run("COMMAND COUNT");
        assert!(all.starts_with(&format!("*{} *10 ", &count[1..])));
        assert!(Client::new().resp3().run("COMMAND INFO set").contains("~2 +write +denyoom"));
    }

    #[test]
    fn docs_have_arguments() {
        Client::new().resp3().check(&[
            ("COMMAND DOCS nope", "%0"),
            (
                "COMMAND DOCS unlink",
                "%1 $6 unlink %5 $7 summary $55 Deletes keys; large values are freed in the \
                 background. $5 since $5 4.0.0 $5 group $7 generic $10 complexity $14 O(N), N \
                 = keys $9 arguments *1 %5 $4 name $3 key $4 type $3 key $12 display_text $3 key \
                 $14 key_spec_index :0 $5 flags ~1 +multiple",
            ),
        ]);
    }

    #[test]
    fn lists_are_filtered() {
        Client::new().check(&[
            ("COMMAND LIST FILTERBY PATTERN EXPIRE*", "*3 $6 expire $8 expireat $10 expiretime"),
            ("COMMAND LIST FILTERBY MODULE none", "*0"),
            ("COMMAND LIST FILTERBY ACLCAT nope", "*0"),
            ("COMMAND LIST FILTERBY ACLCAT", "-ERR syntax error"),
            ("COMMAND LIST FILTERBY NOPE x", "-ERR syntax error"),
        ]);
        let transactions = Client::new().run("COMMAND LIST FILTERBY ACLCAT transaction");
        assert!(transactions.starts_with("*5 $5 multi"), "{transactions}");
    }

    #[test]
    fn keys_are_found() {
        Client::new().check(&[
            ("COMMAND GETKEYS GET a", "*1 $1 a"),
            ("COMMAND GETKEYS MSET a 1 b 2", "*2 $1 a $1 b"),
            ("COMMAND GETKEYS OBJECT ENCODING a", "*1 $1 a"),
            ("COMMAND GETKEYS SORT a BY STORE GET store STORE b", "*2 $1 a $1 b"),
            ("COMMAND GETKEYSANDFLAGS SETNX a 1", "*1 *2 $1 a *2 +OW +insert"),
            ("COMMAND GETKEYS NOPE a", "-ERR Invalid command specified"),
            ("COMMAND GETKEYS DBSIZE", "-ERR The command has no key arguments"),
            ("COMMAND GETKEYS GET", "-ERR Invalid number of arguments specified for command"),
            ("COMMAND NOPE", "-ERR unknown subcommand 'NOPE'. Try COMMAND HELP."),
        ]);
    }

    #[test]
    fn the_page_has_every_command() {
        let registry = Registry::new(crate::FAMILIES);
        let page = markdown(&registry);
        for entry in registry.entries().iter().filter(|entry| entry.subs.is_empty()) {
            let name = entry.full_name.replace('|', " ").to_uppercase();
            assert!(page.contains(&format!("| `{name}")), "{name}");
        }
    }
}
