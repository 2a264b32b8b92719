//! A source file as the rules see it: its lines as written, and, for Rust, the same lines with
//! comments and the insides of strings blanked out, so that a word in a text is not taken for code.

/// One file below the workspace's root.
pub struct Source {
    /// Relative to the root, with slashes.
    pub path: String,
    pub lines: Vec<String>,
    /// As `lines`, comments and strings blanked; of other languages, as written.
    pub code: Vec<String>,
    /// Which lines are test code.
    pub is_test: Vec<bool>,
}

/// What the text is at some place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text,
    RawText { hashes: usize },
}

impl Source {
    pub fn new(path: &str, text: &str) -> Source {
        let is_rust = path.ends_with(".rs");
        let blanked = if is_rust { blank(text) } else { text.to_owned() };
        let code: Vec<String> = blanked.lines().map(str::to_owned).collect();
        let is_test = mark_tests(path, &code);
        let lines = text.lines().map(str::to_owned).collect();
        Source { path: path.to_owned(), lines, code, is_test }
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The last line of the block that opens on or after `start`; `None` where a `;` comes first.
    pub fn block_end(&self, start: usize) -> Option<usize> {
        block_end(&self.code, start)
    }
}

/// Replaces comments and the insides of strings by spaces; lines stay where they are.
fn blank(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut blanked = String::with_capacity(text.len());
    let mut inside = Inside::Code;
    let mut index = 0;
    while index < characters.len() {
        let rest = &characters[index..];
        let (next, length) = advance(inside, rest, index.checked_sub(1).map(|i| characters[i]));
        // A bracket in quotes opens nothing.
        let is_literal = inside == Inside::Code && rest[0] == '\'' && length > 1;
        for &character in &rest[..length] {
            let is_code = inside == Inside::Code && next == Inside::Code && !is_literal;
            let is_kept = character == '\n' || is_code;
            blanked.push(if is_kept { character } else { ' ' });
        }
        inside = next;
        index += length;
    }
    blanked
}

/// What comes next, and how many characters belong to the step.
fn advance(inside: Inside, rest: &[char], before: Option<char>) -> (Inside, usize) {
    let starts = |with: &str| with.chars().enumerate().all(|(i, c)| rest.get(i) == Some(&c));
    match inside {
        Inside::Code if starts("//") => (Inside::LineComment, 2),
        Inside::Code if starts("/*") => (Inside::BlockComment { depth: 1 }, 2),
        Inside::Code if rest[0] == '"' => (Inside::Text, 1),
        Inside::Code if rest[0] == '\'' => (Inside::Code, character_length(rest)),
        Inside::Code if rest[0] == 'r' && !before.is_some_and(is_word) => raw_start(rest),
        Inside::LineComment if rest[0] == '\n' => (Inside::Code, 1),
        Inside::BlockComment { depth } if starts("/*") => {
            (Inside::BlockComment { depth: depth + 1 }, 2)
        }
        Inside::BlockComment { depth: 1 } if starts("*/") => (Inside::Code, 2),
        Inside::BlockComment { depth } if starts("*/") => {
            (Inside::BlockComment { depth: depth - 1 }, 2)
        }
        Inside::Text if rest[0] == '\\' => (Inside::Text, rest.len().min(2)),
        Inside::Text if rest[0] == '"' => (Inside::Code, 1),
        Inside::RawText { hashes } if starts(&format!("\"{}", "#".repeat(hashes))) => {
            (Inside::Code, 1 + hashes)
        }
        other => (other, 1),
    }
}

/// Whether a character can be the end of a name; `b` is left out, for `br"..."` is a raw string.
fn is_word(character: char) -> bool {
    (character.is_alphanumeric() && character != 'b') || character == '_'
}

fn raw_start(rest: &[char]) -> (Inside, usize) {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    match rest.get(1 + hashes) {
        Some('"') => (Inside::RawText { hashes }, 2 + hashes),
        _ => (Inside::Code, 1),
    }
}

/// The length of a character literal, or 1 where the quote opens a lifetime.
fn character_length(rest: &[char]) -> usize {
    match rest {
        [_, '\\', _, tail @ ..] => 3 + tail.iter().take_while(|c| **c != '\'').count() + 1,
        [_, _, '\'', ..] => 3,
        _ => 1,
    }
    .min(rest.len())
}

/// Marks files of tests and the blocks under `#[cfg(test)]`.
fn mark_tests(path: &str, code: &[String]) -> Vec<bool> {
    let is_test_file = path.starts_with("crates/")
        && (path.contains("/tests/") || path.contains("/benches/") || path.ends_with("/tests.rs"));
    let mut is_test = vec![is_test_file; code.len()];
    for start in 0..code.len() {
        let line = code[start].trim();
        if line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(any(test") {
            let end = block_end(code, start + 1).unwrap_or(start + 1);
            let end = end.min(code.len() - 1);
            is_test[start..=end].fill(true);
        }
    }
    is_test
}

fn block_end(code: &[String], start: usize) -> Option<usize> {
    let mut braces = 0_usize;
    let mut brackets = 0_usize;
    for (index, line) in code.iter().enumerate().skip(start) {
        for character in line.chars() {
            match character {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                '{' => braces += 1,
                '}' => {
                    braces = braces.saturating_sub(1);
                    if braces == 0 && brackets == 0 {
                        return Some(index);
                    }
                }
                ';' if braces == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked_and_lines_stay() {
        let text = "let a = \"x // y\"; // unsafe\nlet b = r#\"\"unsafe\"#; /* a\n/* b */ c */ d";
        let blanked = blank(text);
        assert!(!blanked.contains("unsafe"));
        assert_eq!(blanked.lines().count(), 3);
        assert!(blanked.lines().all(|line| line.starts_with("let") || line.ends_with(" d")));
    }

    #[test]
    fn quotes_are_told_from_lifetimes() {
        for text in ["f('\"'); unsafe", "f::<'a>(); unsafe", r"f('\''); unsafe", "x('{') unsafe"] {
            assert!(blank(text).contains("unsafe"), "{text}");
        }
        assert!(!blank(r#"f(b"\"unsafe")"#).contains("unsafe"));
        assert_eq!(blank("f::<'a>('(', b'\\'')").matches(['(', '\'']).count(), 2);
    }

    #[test]
    fn test_code_is_marked() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}";
        let source = Source::new("crates/x/src/lib.rs", text);
        assert_eq!(source.is_test, [false, true, true, true, true, false]);
    }
}
