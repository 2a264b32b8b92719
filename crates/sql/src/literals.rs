//! Texts that differ in their literals only: the literals become parameters, so that one prepared
//! statement serves all.
//!
//! ```text
//! INSERT INTO t VALUES(17, 'a')           INSERT INTO t VALUES(?,?)          17, 'a'
//! UPDATE t SET n = 5 WHERE id = 17        UPDATE t SET n = ? WHERE id = ?    5, 17
//! SELECT n = 1 FROM t WHERE id = 17       SELECT n = 1 FROM t WHERE id = ?   17
//! ```
//!
//! Taken are whole numbers and strings where a parameter means the same in every respect: in the
//! rows of VALUES, and after `name =`. Not in what a SELECT gives (it names columns), nor where
//! SQLite wants a constant or compares expressions with those of an index. Any other literal stays
//! in the text; a text with comments, parameters, several statements or RETURNING stays whole.
//!
//! **Invariant:** the statement with these values does what the text does. If it cannot be
//! prepared, the text is run as it is, and says what is wrong with it.

use crate::lexer;
use crate::raw::statement::Cell;

/// Literals of one text, at most.
const CELLS_MAX: usize = 24;
/// The longest text that is looked at, in bytes.
const TEXT_MAX: usize = 4096;

/// The literals taken out of a text.
pub struct Literals<'t> {
    cells: [Cell<'t>; CELLS_MAX],
    count: usize,
}

impl<'t> Literals<'t> {
    /// In order.
    pub fn cells(&self) -> &[Cell<'t>] {
        &self.cells[..self.count]
    }
}

/// Where literals are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// Nowhere yet: this word changes it.
    After(&'static [u8]),
    /// In rows of values, until a word that is not one of theirs.
    Rows,
    /// After a name and an equals sign.
    Equals,
    /// Nowhere any more.
    Nowhere,
}

/// What came last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Name,
    NameEquals,
    Other,
}

/// Words with which a text stays whole.
const WHOLE: [&[u8]; 7] =
    [b"RETURNING", b"WITH", b"UNION", b"EXCEPT", b"INTERSECT", b"LIKELIHOOD", b"EXPLAIN"];

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Writes a text without its literals to `out`; `None` if it has none that could be taken.
pub fn take<'t>(text: &'t [u8], out: &mut Vec<u8>) -> Option<Literals<'t>> {
    let text = lexer::skip_blank(text);
    if text.len() > TEXT_MAX {
        return None;
    }
    let place = match text.first()?.to_ascii_uppercase() {
        b'I' | b'R' => Where::After(b"VALUES"),
        b'U' | b'D' => Where::Equals,
        b'S' => Where::After(b"WHERE"),
        _ => return None,
    };
    out.clear();
    let mut scan = Scan {
        text,
        at: 0,
        place,
        last: Last::Other,
        selects: 0,
        found: Literals { cells: [Cell::Null; CELLS_MAX], count: 0 },
    };
    while scan.at < text.len() {
        scan.token(out)?;
    }
    (scan.found.count > 0).then_some(scan.found)
}

struct Scan<'t> {
    text: &'t [u8],
    at: usize,
    place: Where,
    last: Last,
    selects: usize,
    found: Literals<'t>,
}

impl<'t> Scan<'t> {
    fn takes(&self) -> bool {
        match self.place {
            Where::Rows => true,
            Where::Equals => self.last == Last::NameEquals,
            Where::After(_) | Where::Nowhere => false,
        }
    }

    /// The end of what begins at `at` and goes on as long as `goes_on`.
    fn end(&self, goes_on: impl Fn(u8) -> bool) -> usize {
        let rest = &self.text[self.at..];
        self.at + rest.iter().position(|byte| !goes_on(*byte)).unwrap_or(rest.len())
    }

    /// Copies up to `end`, or puts a parameter in its place.
    fn pass(&mut self, end: usize, cell: Option<Cell<'t>>, out: &mut Vec<u8>) -> Option<()> {
        match cell.filter(|_| self.takes()) {
            Some(cell) => {
                *self.found.cells.get_mut(self.found.count)? = cell;
                self.found.count += 1;
                out.push(b'?');
            }
            None => out.extend_from_slice(&self.text[self.at..end]),
        }
        (self.at, self.last) = (end, Last::Other);
        Some(())
    }

    /// Passes one token; `None` if the text has to stay whole.
    fn token(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let next = self.text.get(self.at + 1).copied();
        match self.text[self.at] {
            byte @ (b' ' | b'\t' | b'\r' | b'\n') => {
                out.push(byte);
                self.at += 1;
            }
            b'0'..=b'9' => {
                let end = self.end(|byte| is_name(byte) || byte == b'.');
                let digits = &self.text[self.at..end];
                self.pass(end, whole_number(digits).map(Cell::Int), out)?;
            }
            b'\'' => {
                let start = self.at + 1;
                let len = self.text[start..].iter().position(|byte| *byte == b'\'')?;
                let end = start + len + 1;
                if self.text.get(end) == Some(&b'\'') {
                    return None;
                }
                let string = &self.text[start..end - 1];
                if string.contains(&0) {
                    return None;
                }
                self.pass(end, Some(Cell::Text(string)), out)?;
            }
            quote @ (b'"' | b'`' | b'[') => {
                let close = if quote == b'[' { b']' } else { quote };
                let start = self.at + 1;
                let end = start + self.text[start..].iter().position(|byte| *byte == close)? + 1;
                self.pass(end, None, out)?;
                self.last = Last::Name;
            }
            // A number that begins with its point; comments, parameters, other statements.
            b'.' if next.is_some_and(|byte| byte.is_ascii_digit()) => return None,
            b'-' if next == Some(b'-') => return None,
            b'/' if next == Some(b'*') => return None,
            b'?' | b':' | b'@' | b'$' | b'#' | 0 => return None,
            b';' if lexer::skip_blank(&self.text[self.at..]).is_empty() => {
                self.at = self.text.len();
            }
            b';' => return None,
            b'=' if self.last == Last::Name && next != Some(b'=') => {
                self.pass(self.at + 1, None, out)?;
                self.last = Last::NameEquals;
            }
            byte if is_name(byte) => self.word(out)?,
            _ => self.pass(self.at + 1, None, out)?,
        }
        Some(())
    }

    fn word(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let end = self.end(is_name);
        let word = &self.text[self.at..end];
        // The prefix of a string of bytes.
        if self.text.get(end) == Some(&b'\'') {
            return None;
        }
        if WHOLE.iter().any(|known| known.eq_ignore_ascii_case(word)) {
            return None;
        }
        self.selects += usize::from(word.eq_ignore_ascii_case(b"SELECT"));
        // A subquery's ORDER BY and LIMIT want constants.
        let selects_max = match self.place {
            Where::After(b"VALUES") | Where::Rows => 0,
            _ => 1,
        };
        if self.selects > selects_max {
            return None;
        }
        match self.place {
            Where::After(wanted) if wanted.eq_ignore_ascii_case(word) => {
                self.place = if wanted == b"VALUES" { Where::Rows } else { Where::Equals };
            }
            // What follows is not of the rows.
            Where::Rows if word.eq_ignore_ascii_case(b"ON") => self.place = Where::Nowhere,
            _ => {}
        }
        self.pass(end, None, out)?;
        self.last = Last::Name;
        Some(())
    }
}

/// A number as SQLite's parser reads it, if it is a whole one that fits.
fn whole_number(digits: &[u8]) -> Option<i64> {
    const DIGITS_MAX: usize = 18;
    if digits.len() > DIGITS_MAX {
        return None;
    }
    digits.iter().try_fold(0_i64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + i64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> Option<(String, usize)> {
        let mut out = Vec::new();
        let found = take(text.as_bytes(), &mut out)?;
        Some((String::from_utf8(out).unwrap(), found.cells().len()))
    }

    #[test]
    fn literals_become_parameters_where_they_may() {
        for (text, want, count) in [
            ("insert into t values(1, 'a',-3)", "insert into t values(?, ?,-?)", 3),
            ("INSERT INTO t(a) VALUES (000012), (3);", "INSERT INTO t(a) VALUES (?), (?)", 2),
            (
                "insert into t values(1) on conflict(a) do update set n = 5",
                "insert into t values(?) on conflict(a) do update set n = 5",
                1,
            ),
            ("insert into t values(1.5, 2)", "insert into t values(1.5, ?)", 1),
            ("update t set n = 5 where id=7", "update t set n = ? where id=?", 2),
            (
                "update t set n = n + 5 where id == 7 or a=1",
                "update t set n = n + 5 where id == 7 or a=?",
                1,
            ),
            ("delete from t where a = 'x' and b > 3", "delete from t where a = ? and b > 3", 1),
            (
                "select a = 1, 2 from t where a = 3 limit 4",
                "select a = 1, 2 from t where a = ? limit 4",
                1,
            ),
            (
                "select * from t where f(a, '$.x') = 3 and [b] = 4",
                "select * from t where f(a, '$.x') = 3 and [b] = ?",
                1,
            ),
        ] {
            assert_eq!(taken(text), Some((want.to_string(), count)), "{text}");
        }
    }

    #[test]
    fn other_texts_stay_whole() {
        for text in [
            "select 1",
            "insert into t select 1 from s where a = 1",
            "insert into t values(1) returning a",
            "insert into t values('it''s')",
            "insert into t values(x'00')",
            "insert into t values(?1, 2)",
            "insert into t values(1) -- 2",
            "insert into t values(1); delete from t",
            "select a from t where b = (select c = 3 from u)",
            "insert into t values((select a from s order by 1))",
            "insert into t values('a\0b')",
            "create table t(a default 5)",
            "explain update t set a = 1",
            "insert into t values(99999999999999999999)",
            "update t set a = '",
            "",
        ] {
            assert_eq!(taken(text), None, "{text}");
        }
    }
}

#[cfg(test)]
mod random {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_taken_or_left(text in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut out = Vec::new();
            for verb in ["", "insert into t values(", "update t set a = ", "select where a="] {
                let text = [verb.as_bytes(), &text].concat();
                if let Some(found) = take(&text, &mut out) {
                    let marks = out.iter().filter(|byte| **byte == b'?').count();
                    // Marks stand in names and strings that were not taken, too.
                    prop_assert!(marks >= found.cells().len());
                }
            }
        }

        #[test]
        fn sqlite_reads_the_same_values(
            values in proptest::collection::vec(
                prop_oneof!["[0-9]{1,20}", "'[^'\0]{0,5}'", "-[0-9]{1,19}", "0x[0-9a-f]{1,4}",
                    "[0-9]{1,5}\\.[0-9]{1,3}", "[0-9]e[0-9]", "[0-9]_[0-9]"], 3)
        ) {
            let text = format!("insert into t values({})", values.join(","));
            let connection = rusqlite::Connection::open_in_memory().unwrap();
            connection.execute_batch("create table t(a, b, c)").unwrap();
            let mut out = Vec::new();
            let Some(found) = take(text.as_bytes(), &mut out) else { return Ok(()) };
            let plain = connection.execute(&text, []);
            let cells: Vec<rusqlite::types::Value> = found.cells().iter().map(|cell| match cell {
                Cell::Int(number) => (*number).into(),
                Cell::Text(text) => String::from_utf8(text.to_vec()).unwrap().into(),
                other => panic!("{other:?}"),
            }).collect();
            let text = String::from_utf8(out).unwrap();
            let bound = connection.execute(&text, rusqlite::params_from_iter(cells));
            prop_assert_eq!(plain.is_ok(), bound.is_ok());
            if plain.is_ok() {
                let alike = "select count(*) from t x, t y where x.rowid = 1 and y.rowid = 2 \
                    and x.a is y.a and x.b is y.b and x.c is y.c \
                    and typeof(x.a) = typeof(y.a) and typeof(x.b) = typeof(y.b) \
                    and typeof(x.c) = typeof(y.c)";
                let count: i64 = connection.query_row(alike, [], |row| row.get(0)).unwrap();
                prop_assert_eq!(count, 1, "{}", text);
            }
        }
    }
}
