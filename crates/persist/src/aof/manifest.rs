//! The manifest: which files an append-only file consists of, in which order. The format is Redis's
//! (aof.c, `aofLoadManifestFromFile`):
//!
//! ```text
//! file appendonly.aof.2.base.rdb seq 2 type b      the data set when the last rewrite began
//! file appendonly.aof.1.incr.aof seq 1 type h      no longer needed, to be removed
//! file appendonly.aof.2.incr.aof seq 2 type i      what was written since, in this order
//! ```
//!
//! A line may have more keys with values; lines that begin with `#` are comments.
//!
//! **Invariant:** at most one base, and the numbers of the increments grow.

/// A line's bytes, at most.
const LINE_BYTES_MAX: usize = 1024;
const TOO_LONG: &str = "The AOF manifest file contains too long line";

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `b`: the data set at one instant.
    Base,
    /// `i`: commands after it.
    Increment,
    /// `h`: of the past.
    History,
}

impl Part {
    fn letter(self) -> char {
        match self {
            Part::Base => 'b',
            Part::Increment => 'i',
            Part::History => 'h',
        }
    }
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name in the folder.
    pub name: String,
    /// Its number.
    pub number: u64,
    /// What it is for.
    pub part: Part,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The base.
    pub base: Option<Member>,
    /// The increments, in order.
    pub increments: Vec<Member>,
    /// What is to be removed.
    pub history: Vec<Member>,
    base_number: u64,
    increment_number: u64,
}

/// What is wrong with a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestError {
    /// In Redis's words.
    pub text: &'static str,
    /// The line's number, from 1; 0 for the whole.
    pub line_number: usize,
    /// The line.
    pub line: String,
}

impl Manifest {
    /// Reads a manifest.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let mut manifest = Manifest::default();
        let mut rest = bytes;
        let mut line_number = 0;
        while !rest.is_empty() {
            line_number += 1;
            let end = rest.iter().position(|byte| *byte == b'\n');
            let (line, next) = match end {
                Some(end) => (&rest[..end], &rest[end + 1..]),
                None => (rest, &rest[rest.len()..]),
            };
            let wrong = |text| {
                let line = String::from_utf8_lossy(line.trim_ascii()).into_owned();
                ManifestError { text, line_number, line }
            };
            rest = next;
            if line.first() == Some(&b'#') {
                continue;
            }
            if end.is_none() || line.len() >= LINE_BYTES_MAX {
                return Err(wrong(TOO_LONG));
            }
            manifest.take_line(line).map_err(wrong)?;
        }
        if line_number == 0 {
            let text = "Found an empty AOF manifest";
            return Err(ManifestError { text, line_number: 0, line: String::new() });
        }
        Ok(manifest)
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), &'static str> {
        const INVALID: &str = "Invalid AOF manifest file format";
        let words = resp::request::split_line(line.trim_ascii()).ok_or(INVALID)?;
        if words.len() < 6 || words.len() % 2 != 0 {
            return Err(INVALID);
        }
        let (mut name, mut number, mut letter) = (None, 0u64, None);
        for pair in words.chunks_exact(2) {
            // No name of ours is anything but text, and a changed one would be another file.
            let value = String::from_utf8(pair[1].clone()).map_err(|_| INVALID)?;
            match pair[0].to_ascii_lowercase().as_slice() {
                b"file" => name = Some(value),
                b"seq" => number = value.parse().map_err(|_| INVALID)?,
                b"type" => letter = value.chars().next(),
                _ => {}
            }
        }
        let (Some(name), Some(letter)) = (name, letter) else { return Err(INVALID) };
        if name.contains(['/', '\\']) || name == ".." || name == "." {
            return Err("File can't be a path, just a filename");
        }
        if number == 0 || name.is_empty() {
            return Err(INVALID);
        }
        let mut written = Vec::new();
        write_line(&mut written, &name, number, letter);
        if written.len() > LINE_BYTES_MAX {
            // It could not be read again once it is written anew, with what is special in quotes.
            return Err(TOO_LONG);
        }
        self.take_member(name, number, letter)
    }

    fn take_member(&mut self, name: String, number: u64, letter: char) -> Result<(), &'static str> {
        match letter {
            'b' if self.base.is_some() => return Err("Found duplicate base file information"),
            'b' => {
                self.base = Some(Member { name, number, part: Part::Base });
                self.base_number = number;
            }
            'h' => self.history.push(Member { name, number, part: Part::History }),
            'i' => {
                if self.increments.last().is_some_and(|last| number <= last.number) {
                    return Err("Found a non-monotonic sequence number");
                }
                self.increments.push(Member { name, number, part: Part::Increment });
                self.increment_number = number;
            }
            _ => return Err("Unknown AOF file type"),
        }
        Ok(())
    }

    /// The manifest's text: base, history newest first, increments, as Redis writes it.
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for member in self.base.iter().chain(&self.history).chain(&self.increments) {
            write_line(&mut text, &member.name, member.number, member.part.letter());
        }
        text
    }

    /// Whether it names no data.
    pub fn is_empty(&self) -> bool {
        self.base.is_none() && self.increments.is_empty()
    }

    /// The files to load, in order.
    pub fn live(&self) -> impl Iterator<Item = &Member> {
        self.base.iter().chain(&self.increments)
    }

    /// Makes a base of this number's successor current; the old one becomes history. Returns it.
    pub fn new_base(&mut self, file_name: &str, suffix: &str) -> &Member {
        self.base_number += 1;
        if let Some(old) = self.base.take() {
            self.history.insert(0, Member { part: Part::History, ..old });
        }
        let number = self.base_number;
        let name = format!("{file_name}.{number}.base.{suffix}");
        self.base.insert(Member { name, number, part: Part::Base })
    }

    /// Names a file that is there already as the base, with the number 1 (an old single file).
    pub fn adopt_base(&mut self, name: &str) {
        self.base = Some(Member { name: name.into(), number: 1, part: Part::Base });
        self.base_number = 1;
    }

    /// Adds an increment with the next number. Returns it.
    pub fn new_increment(&mut self, file_name: &str) -> &Member {
        self.increment_number += 1;
        let number = self.increment_number;
        let name = format!("{file_name}.{number}.incr.aof");
        self.increments.push(Member { name, number, part: Part::Increment });
        self.increments.last().expect("just pushed")
    }

    /// Makes all increments but the last `keep` history.
    pub fn retire_increments(&mut self, keep: usize) {
        let count = self.increments.len().saturating_sub(keep);
        for old in self.increments.drain(..count) {
            self.history.insert(0, Member { part: Part::History, ..old });
        }
    }
}

/// One member's line.
fn write_line(text: &mut Vec<u8>, name: &str, number: u64, letter: char) {
    text.extend_from_slice(b"file ");
    write_name(text, name);
    text.extend_from_slice(format!(" seq {number} type {letter}\n").as_bytes());
}

/// A name as it is, or in quotes where it has bytes that would end it.
fn write_name(text: &mut Vec<u8>, name: &str) {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    if !name.is_empty() && name.bytes().all(is_plain) {
        return text.extend_from_slice(name.as_bytes());
    }
    text.push(b'"');
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', byte]),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\r' => text.extend_from_slice(b"\\r"),
            b'\t' => text.extend_from_slice(b"\\t"),
            7 => text.extend_from_slice(b"\\a"),
            8 => text.extend_from_slice(b"\\b"),
            byte if byte.is_ascii_graphic() || byte == b' ' => text.push(byte),
            byte => text.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    text.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let mut manifest = Manifest::default();
        manifest.new_base(" a\n\"b ", "rdb");
        manifest.new_increment(" a\n\"b ");
        manifest.new_increment("plain");
        manifest.new_base("plain", "aof");
        manifest.retire_increments(1);
        let text = manifest.text();
        let lines: Vec<&str> = std::str::from_utf8(&text).expect("text").lines().collect();
        assert_eq!(lines[0], "file plain.2.base.aof seq 2 type b");
        assert_eq!(lines[1], r#"file " a\n\"b .1.incr.aof" seq 1 type h"#);
        assert_eq!(lines[2], r#"file " a\n\"b .1.base.rdb" seq 1 type h"#);
        assert_eq!(lines[3], "file plain.2.incr.aof seq 2 type i");
        assert_eq!(Manifest::parse(&text), Ok(manifest));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let long = format!("file a seq 1 type b {}\n", "x y ".repeat(300));
        let special = format!("file {} seq 1 type h\n", "\u{1}".repeat(300));
        let cases: [(&str, &str); 13] = [
            ("", "Found an empty AOF manifest"),
            ("\n", "Invalid AOF manifest file format"),
            ("file a seq 1 type b\n\n", "Invalid AOF manifest file format"),
            ("filx a seq 1 type b\n", "Invalid AOF manifest file format"),
            ("file a seq 1\n", "Invalid AOF manifest file format"),
            ("file a seq 1 type i newkey\n", "Invalid AOF manifest file format"),
            ("file a seq x type i\n", "Invalid AOF manifest file format"),
            ("file a/b seq 1 type b\n", "File can't be a path, just a filename"),
            ("file a seq 1 type x\n", "Unknown AOF file type"),
            ("file a seq 1 type b\nfile b seq 2 type b\n", "Found duplicate base file information"),
            ("file a seq 2 type i\nfile b seq 1 type i\n", "Found a non-monotonic sequence number"),
            (&long, "The AOF manifest file contains too long line"),
            // Short enough, but not as it would be written: found by fuzzing.
            (&special, "The AOF manifest file contains too long line"),
        ];
        for (text, want) in cases {
            let error = Manifest::parse(text.as_bytes()).expect_err(want);
            assert_eq!(error.text, want, "{text}");
        }
        let not_text = Manifest::parse(b"file a\xff seq 1 type h\n").expect_err("not text");
        assert_eq!(not_text.text, "Invalid AOF manifest file format");
        let good = "# comment\nfile a seq 1 type b new value\nfile b seq 3 type i\n";
        assert_eq!(Manifest::parse(good.as_bytes()).map(|it| it.live().count()), Ok(2));
    }
}
