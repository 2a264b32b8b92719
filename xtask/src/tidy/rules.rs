//! The rules: each a function from a file to what breaks it. The numbers are those of the house
//! style where it gives some.

use super::Finding;
use super::allowed::{LONG_FILES, LONG_FUNCTIONS, UNSAFE_PLACES};
use super::source::Source;

const COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 60;
const FILE_LINES_MAX: usize = 800;

/// Words that say something is not finished, or that a machine's own place slipped in. Written in
/// two halves, so that this file does not find itself.
const LEFTOVERS: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "a leftover marker: finish it or open an issue"),
    (concat!("FIX", "ME"), "a leftover marker: finish it or open an issue"),
    (concat!("XX", "X:"), "a leftover marker: finish it or open an issue"),
    (concat!("HA", "CK"), "a leftover marker: say why it is right, or change it"),
    (concat!("/wo", "rk/"), "a path of one machine"),
];

/// Code that is banned, and what to write in its place.
const BANNED: &[(&str, &str)] = &[
    ("todo!(", "unfinished code"),
    ("unimplemented!(", "unfinished code"),
    ("dbg!(", "a debugging aid"),
    ("#[ignore", "a test that does not run: delete it or make it run"),
    ("to_ne_bytes", "bytes in the machine's order: write to_le_bytes"),
    ("from_ne_bytes", "bytes in the machine's order: write from_le_bytes"),
];

type Rule = fn(&Source, &mut Vec<Finding>);

const EVERY_FILE: &[Rule] = &[line_lengths, leftovers, file_length];
const RUST_FILES: &[Rule] =
    &[opening_words, function_lengths, bare_unwraps, unsafe_places, safety_words, banned_code];

pub fn of_one_file(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in EVERY_FILE {
        rule(source, &mut findings);
    }
    for rule in RUST_FILES.iter().filter(|_| source.is_rust()) {
        rule(source, &mut findings);
    }
    findings
}

/// Rules that need to see all files: files no module names, exceptions for nothing.
pub fn of_all_files(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        if let Some(parents) = parents_of(&source.path)
            && !is_named(sources, &parents, module_name(&source.path))
        {
            findings.push(finding(source, 0, "a dead file: no module names it"));
        }
    }
    let stale = |path: &str, what: &str| Finding {
        path: path.to_owned(),
        line: 0,
        what: format!("xtask/src/tidy/allowed.rs excepts {what}, which needs no exception"),
    };
    for (path, name, _) in LONG_FUNCTIONS {
        let source = sources.iter().find(|source| source.path == *path);
        if !source.is_some_and(|s| long_functions(s).iter().any(|(_, n, _)| n == name)) {
            findings.push(stale(path, name));
        }
    }
    for (path, _) in LONG_FILES {
        let is_long = |s: &Source| s.path == *path && s.lines.len() > FILE_LINES_MAX;
        if !sources.iter().any(is_long) {
            findings.push(stale(path, "the file"));
        }
    }
    findings
}

fn finding(source: &Source, line: usize, what: &str) -> Finding {
    Finding { path: source.path.clone(), line, what: what.to_owned() }
}

fn opening_words(source: &Source, findings: &mut Vec<Finding>) {
    if !source.lines.first().is_some_and(|line| line.starts_with("//!")) {
        findings.push(finding(source, 1, "does not open with //! saying what the file is for"));
    }
}

fn line_lengths(source: &Source, findings: &mut Vec<Finding>) {
    for (index, line) in source.lines.iter().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            let what = format!("{columns} columns, at most {COLUMNS_MAX}");
            findings.push(finding(source, index + 1, &what));
        }
        if line.ends_with([' ', '\t']) {
            findings.push(finding(source, index + 1, "white space at the end of the line"));
        }
    }
}

fn file_length(source: &Source, findings: &mut Vec<Finding>) {
    let length = source.lines.len();
    if length > FILE_LINES_MAX && !LONG_FILES.iter().any(|(path, _)| *path == source.path) {
        let what = format!("{length} lines, at most {FILE_LINES_MAX}: one noun per file");
        findings.push(finding(source, 0, &what));
    }
}

fn leftovers(source: &Source, findings: &mut Vec<Finding>) {
    for (index, line) in source.lines.iter().enumerate() {
        for (word, what) in LEFTOVERS {
            if line.contains(word) {
                findings.push(finding(source, index + 1, &format!("{word}: {what}")));
            }
        }
    }
}

fn banned_code(source: &Source, findings: &mut Vec<Finding>) {
    for (index, line) in source.code.iter().enumerate() {
        for (code, what) in BANNED {
            if line.contains(code) {
                findings.push(finding(source, index + 1, &format!("{code}: {what}")));
            }
        }
    }
}

fn function_lengths(source: &Source, findings: &mut Vec<Finding>) {
    for (line, name, length) in long_functions(source) {
        if !LONG_FUNCTIONS.iter().any(|(p, n, _)| *p == source.path && *n == name) {
            let what = format!("fn {name} has {length} lines, at most {FUNCTION_LINES_MAX}");
            findings.push(finding(source, line, &what));
        }
    }
}

/// Line, name and length of each function that is too long.
fn long_functions(source: &Source) -> Vec<(usize, String, usize)> {
    let mut found = Vec::new();
    for (start, line) in source.code.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let Some(end) = source.block_end(start) else { continue };
        let length = end - start + 1;
        if length > FUNCTION_LINES_MAX {
            found.push((start + 1, name, length));
        }
    }
    found
}

/// The name of the function whose signature begins on this line.
fn function_name(line: &str) -> Option<String> {
    let before_name = line.split_once("fn ")?;
    let qualifiers = ["pub", "const", "unsafe", "extern", "async", "default"];
    let is_signature = before_name
        .0
        .split_whitespace()
        .all(|word| qualifiers.contains(&word.split('(').next().unwrap_or("")) || word == "\"C\"");
    let name: String =
        before_name.1.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (is_signature && !name.is_empty()).then_some(name)
}

fn bare_unwraps(source: &Source, findings: &mut Vec<Finding>) {
    for (index, line) in source.code.iter().enumerate() {
        if line.contains(".unwrap()") && !source.is_test[index] {
            let what = "unwrap() outside tests: expect(\"why it cannot fail\"), or an error";
            findings.push(finding(source, index + 1, what));
        }
    }
}

/// Whether the line uses `unsafe`, other than in an attribute or a lint's name.
fn is_unsafe(line: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.split(|c| !is_word(c)).any(|word| word == "unsafe") && !line.trim().starts_with("#")
}

fn unsafe_places(source: &Source, findings: &mut Vec<Finding>) {
    let is_allowed = UNSAFE_PLACES.iter().any(|place| match place.strip_suffix('/') {
        Some(_) => source.path.starts_with(place),
        None => source.path == *place,
    });
    for (index, line) in source.code.iter().enumerate() {
        if is_unsafe(line) && !is_allowed {
            let what = "unsafe outside the places of xtask/src/tidy/allowed.rs";
            findings.push(finding(source, index + 1, what));
        }
    }
}

/// Each unsafe block and implementation stands under a `// SAFETY:` comment. What an unsafe
/// function asks of its callers stands in its documentation, which is clippy's to see to.
fn safety_words(source: &Source, findings: &mut Vec<Finding>) {
    for (index, line) in source.code.iter().enumerate() {
        let is_function = line.contains("unsafe fn") || line.contains("unsafe extern");
        if is_unsafe(line) && !is_function && !is_explained(source, index) {
            findings.push(finding(source, index + 1, "unsafe without a // SAFETY: line above it"));
        }
    }
}

/// Looks upwards through the rest of the statement, attributes and comments.
fn is_explained(source: &Source, index: usize) -> bool {
    let speaks = |line: &str| line.contains("SAFETY:");
    if speaks(&source.lines[index]) {
        return true;
    }
    for above in (0..index).rev() {
        let line = source.lines[above].trim();
        if line.starts_with("//") || line.starts_with("#[") {
            if speaks(line) {
                return true;
            }
        } else if line.is_empty() || line.ends_with([';', '}', '{', ',']) {
            return false;
        }
    }
    false
}

/// The files that may name this one as their module; `None` for roots of crates and for programs.
fn parents_of(path: &str) -> Option<Vec<String>> {
    let (before, inner) = path.split_once("/src/")?;
    if !path.ends_with(".rs") || ["lib.rs", "main.rs"].contains(&inner) || inner.starts_with("bin/")
    {
        return None;
    }
    let inner = inner.strip_suffix("/mod.rs").unwrap_or(inner);
    Some(match inner.rsplit_once('/') {
        None => vec![format!("{before}/src/lib.rs"), format!("{before}/src/main.rs")],
        Some((folder, _)) => {
            vec![format!("{before}/src/{folder}.rs"), format!("{before}/src/{folder}/mod.rs")]
        }
    })
}

fn module_name(path: &str) -> &str {
    let path = path.strip_suffix("/mod.rs").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs")
}

fn is_named(sources: &[Source], parents: &[String], module: &str) -> bool {
    let mut parents = sources.iter().filter(|source| parents.contains(&source.path));
    parents.any(|parent| {
        let names = |line: &String| {
            let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            words.any(|word| word == "mod") && words.next() == Some(module)
        };
        parent.code.iter().any(names)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<(usize, String)> {
        let source = Source::new(path, text);
        of_one_file(&source).into_iter().map(|f| (f.line, f.what)).collect()
    }

    fn check(path: &str, text: &str, expected: &[(usize, &str)]) {
        let found = findings(path, text);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((line, what), (expected_line, expected_word)) in found.iter().zip(expected) {
            assert_eq!(line, expected_line, "{found:?}");
            assert!(what.contains(expected_word), "{what} has no '{expected_word}'");
        }
    }

    #[test]
    fn tidy_files_pass() {
        check("crates/x/src/a.rs", "//! A.\nfn f() -> u8 {\n    \"unsafe.unwrap()\".len()\n}", &[]);
        check("tests/x.py", "\"\"\"A.\"\"\"\nx = 1", &[]);
    }

    #[test]
    fn each_rule_finds_its_breach() {
        let long_line = format!("//! {}", "x".repeat(97));
        check("crates/x/src/a.rs", &long_line, &[(1, "101 columns")]);
        check("crates/x/src/a.rs", "use std::io;", &[(1, "//!")]);
        let unwrap =
            "//! A.\nfn f() { x.unwrap(); }\n#[cfg(test)]\nmod t { fn g() { x.unwrap() } }";
        check("crates/x/src/a.rs", unwrap, &[(2, "unwrap")]);
        let body = "    work();\n".repeat(59);
        check("crates/x/src/a.rs", &format!("//! A.\npub fn f() {{\n{body}}}"), &[(2, "61 lines")]);
        check("crates/x/src/a.rs", &"//! A.\n".repeat(801), &[(0, "801 lines")]);
        check("crates/x/src/a.rs", concat!("//! A.\n// TO", "DO: b"), &[(2, "leftover")]);
        check("crates/x/src/a.rs", "//! A.\nlet b = a.to_ne_bytes();", &[(2, "to_le_bytes")]);
        check("tests/x.py", "x = 1 ", &[(1, "white space")]);
    }

    #[test]
    fn unsafe_needs_its_place_and_its_words() {
        let bare = "//! A.\nfn f() {\n    let x = unsafe { g() };\n}";
        let explained = "//! A.\nfn f() {\n    // SAFETY: g has no rules.\n    #[allow(x)]\n    \
                         let x =\n        unsafe { g() };\n}";
        check("crates/keyspace/src/raw/table.rs", bare, &[(3, "SAFETY")]);
        check("crates/keyspace/src/raw/table.rs", explained, &[]);
        check("crates/server/src/sys.rs", explained, &[]);
        check("crates/server/src/other.rs", explained, &[(6, "outside the places")]);
        check("crates/x/src/a.rs", "//! A.\n#![deny(unsafe_code)]\n// unsafe is a word", &[]);
    }

    #[test]
    fn dead_files_are_found() {
        let sources = [
            Source::new("crates/x/src/lib.rs", "//! X.\nmod a;\npub(crate) mod b;"),
            Source::new("crates/x/src/a.rs", "//! A."),
            Source::new("crates/x/src/b/mod.rs", "//! B.\nmod c;"),
            Source::new("crates/x/src/b/c.rs", "//! C."),
            Source::new("crates/x/src/dead.rs", "//! D."),
            Source::new("crates/x/src/bin/tool.rs", "//! T."),
        ];
        let dead: Vec<String> = of_all_files(&sources).into_iter().map(|f| f.path).collect();
        assert_eq!(dead, ["crates/x/src/dead.rs"]);
    }
}
