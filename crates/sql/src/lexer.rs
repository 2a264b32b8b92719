//! The little that must be known of an SQL text before SQLite reads it: what a statement begins
//! with, and whether anything follows it.

/// What a statement does besides reading and writing rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// SELECT, VALUES, EXPLAIN, WITH: it may still write.
    Query,
    /// INSERT, UPDATE, REPLACE.
    Change,
    /// DELETE.
    Delete,
    /// BEGIN.
    Begin,
    /// COMMIT and END.
    Commit,
    /// ROLLBACK of a whole transaction.
    Rollback,
    /// SAVEPOINT, RELEASE, ROLLBACK TO.
    Savepoint,
    /// ATTACH and DETACH: other files.
    Attach,
    /// VACUUM: not inside a transaction.
    Vacuum,
    /// PRAGMA.
    Pragma,
    /// CREATE, DROP, ALTER, REINDEX, ANALYZE: changes the schema or walks whole tables.
    Schema,
}

impl Verb {
    /// Whether it reads or writes rows, and nothing else.
    pub fn is_row_work(self) -> bool {
        matches!(self, Verb::Query | Verb::Change | Verb::Delete)
    }
}

const VERBS: &[(&str, Verb)] = &[
    ("SELECT", Verb::Query),
    ("INSERT", Verb::Change),
    ("UPDATE", Verb::Change),
    ("DELETE", Verb::Delete),
    ("REPLACE", Verb::Change),
    ("WITH", Verb::Query),
    ("VALUES", Verb::Query),
    ("EXPLAIN", Verb::Query),
    ("BEGIN", Verb::Begin),
    ("COMMIT", Verb::Commit),
    ("END", Verb::Commit),
    ("ROLLBACK", Verb::Rollback),
    ("SAVEPOINT", Verb::Savepoint),
    ("RELEASE", Verb::Savepoint),
    ("ATTACH", Verb::Attach),
    ("DETACH", Verb::Attach),
    ("VACUUM", Verb::Vacuum),
    ("PRAGMA", Verb::Pragma),
];

/// The text without the space, comments and semicolons it begins with.
pub fn skip_blank(mut text: &[u8]) -> &[u8] {
    loop {
        match text {
            [b' ' | b'\t' | b'\n' | b'\r' | 0x0c | b';', rest @ ..] => text = rest,
            [b'-', b'-', rest @ ..] => {
                let end = rest.iter().position(|byte| *byte == b'\n');
                text = end.map_or(&[], |end| &rest[end..]);
            }
            [b'/', b'*', rest @ ..] => {
                let end = rest.windows(2).position(|pair| pair == b"*/");
                text = end.map_or(&[], |end| &rest[end + 2..]);
            }
            [0xef, 0xbb, 0xbf, rest @ ..] => text = rest,
            _ => return text,
        }
    }
}

fn first_word(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_alphabetic());
    &text[..end.unwrap_or(text.len())]
}

/// What the first statement of a text does.
pub fn verb(text: &[u8]) -> Verb {
    let text = skip_blank(text);
    let word = first_word(text);
    let known = VERBS.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(word));
    match known.map_or(Verb::Schema, |(_, verb)| *verb) {
        Verb::Rollback if has_word(&text[..text.len().min(200)], b"TO") => Verb::Savepoint,
        verb => verb,
    }
}

/// Whether a word stands somewhere in a text, in either case (in strings and comments, too).
pub fn has_word(text: &[u8], word: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    text.split(|byte| !is_name(byte)).any(|found| found.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_statement_begins_with() {
        let cases: &[(&str, Verb)] = &[
            ("select 1", Verb::Query),
            (" -- a\n/* b */ ;; InSeRt into t", Verb::Change),
            ("ROLLBACK TRANSACTION", Verb::Rollback),
            ("rollback to a", Verb::Savepoint),
            ("create table t(a)", Verb::Schema),
            ("/* open", Verb::Schema),
            ("", Verb::Schema),
        ];
        for (text, want) in cases {
            assert_eq!(verb(text.as_bytes()), *want, "{text}");
        }
    }

    #[test]
    fn blanks_are_skipped() {
        for text in ["", " ;\t\n", "-- only", "/* a */ -- b\n;", "/* open", "/*", "--"] {
            assert!(skip_blank(text.as_bytes()).is_empty(), "{text}");
        }
        assert_eq!(skip_blank(b" /**/x"), b"x");
    }
}

#[cfg(test)]
mod random {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_taken(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let rest = skip_blank(&text);
            prop_assert!(text.ends_with(rest));
            verb(&text);
        }

        #[test]
        fn any_image_is_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let image = [&b"FBSQL1\0\0\0\0\0\0\0\0\0\0\0\0"[..], &bytes].concat();
            // It must not panic; nothing random is a database.
            let taken = crate::serve::load(&image).is_ok();
            prop_assert_eq!(taken, bytes.is_empty());
        }
    }
}
