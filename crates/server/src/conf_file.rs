//! Where the options come from: redis.conf, the environment, the command line; and the way back,
//! CONFIG REWRITE.
//!
//! Later ones win: defaults, then the file (and standard input, given as `-`), then the
//! environment (`FOREBAY_MAXMEMORY_POLICY`), then the command line (`--maxmemory-policy`).

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use resp::request::split_line;

use crate::option_table::TABLE;
use crate::options::{Kind, Options, Row, When};

/// Files that include files that include files: so deep at most.
const DEPTH_MAX: usize = 16;
/// Options whose every directive adds to those before it; the first one replaces the default.
const ADDING: [&str; 1] = ["save"];
/// Directives of older versions that said something once.
const FORGOTTEN: [&str; 3] =
    ["list-max-ziplist-entries", "list-max-ziplist-value", "lua-replicate-commands"];
const BAD_DIRECTIVE: &str = "Bad directive or wrong number of arguments";

/// What is wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The line, if it is one of a file.
    pub line: Option<(usize, String)>,
    /// What is wrong, for a person.
    pub text: String,
}

impl Error {
    fn new(text: impl Into<String>) -> Error {
        Error { line: None, text: text.into() }
    }

    /// As Redis prints it: some lines, of which test suites know the first.
    pub fn as_redis(&self) -> String {
        let mut out = "\n*** FATAL CONFIG FILE ERROR (Redis 7.2.4) ***\n".to_string();
        if let Some((number, line)) = &self.line {
            out += &format!("Reading the configuration file, at line {number}\n>>> '{line}'\n");
        }
        out + &self.text + "\n"
    }

    /// In one line.
    pub fn as_line(&self) -> String {
        match &self.line {
            Some((number, line)) => format!("line {number}, '{line}': {}", self.text),
            None => self.text.clone(),
        }
    }
}

/// A whole configuration.
#[derive(Default)]
pub struct Configuration {
    /// The options.
    pub options: Options,
    /// `rename-command`: from, to; an empty name removes the command.
    pub renames: Vec<(String, String)>,
    /// The file, as an absolute path; empty without one.
    pub file: String,
    /// What is known and has no effect here, for the log.
    pub warnings: Vec<String>,
    /// Accept what is not known, with a warning.
    pub ignores_unknown: bool,
    set: HashSet<usize>,
}

impl Configuration {
    /// Reads everything: the words of the command line, the files that they name, `environment`.
    pub fn read(
        args: &[String],
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Configuration, Error> {
        let line = CommandLine::split(args)?;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let mut configuration =
            Configuration { ignores_unknown: line.ignores_unknown, ..Configuration::default() };
        let threads = cores.min(256).to_string();
        configuration.options.set("threads", &[&threads]).map_err(Error::new)?;
        if let Some(file) = &line.file {
            configuration.read_file(Path::new(file), 0)?;
            let path = std::path::absolute(file).unwrap_or_else(|_| PathBuf::from(file));
            configuration.file = path.to_string_lossy().into_owned();
        }
        if line.reads_stdin {
            let mut text = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut text);
            read.map_err(|error| Error::new(format!("standard input: {error}")))?;
            configuration.read_text(&text, 0)?;
        }
        configuration.read_environment(environment)?;
        // What a file said about an option does not add to what the command line says.
        configuration.set.clear();
        for (name, words) in &line.options {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            configuration
                .directive(name, &words, 0)
                .map_err(|text| Error::new(format!("--{name}: {text}")))?;
        }
        Ok(configuration)
    }

    /// Whether an option was set by anything but its default.
    pub fn has_set(&self, index: usize) -> bool {
        self.options.value(index) != Options::default_value(index)
    }

    fn read_file(&mut self, path: &Path, depth: usize) -> Result<(), Error> {
        let text = std::fs::read(path).map_err(|error| {
            let (path, why) = (path.display(), crate::sys::error_text(&error));
            Error::new(format!("Fatal error, can't open config file '{path}': {why}"))
        })?;
        self.read_text(&text, depth)
    }

    fn read_text(&mut self, text: &[u8], depth: usize) -> Result<(), Error> {
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let shown = || Some((index + 1, String::from_utf8_lossy(line).into_owned()));
            let words = split_line(line).ok_or_else(|| Error {
                line: shown(),
                text: "Unbalanced quotes in configuration line".into(),
            })?;
            let words: Option<Vec<String>> =
                words.into_iter().map(|word| String::from_utf8(word).ok()).collect();
            let words = words
                .ok_or_else(|| Error { line: shown(), text: "This line is not UTF-8".into() })?;
            let Some((name, words)) = words.split_first() else { continue };
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            self.directive(&name.to_ascii_lowercase(), &words, depth)
                .map_err(|text| Error { line: shown(), text })?;
        }
        Ok(())
    }

    fn read_environment(
        &mut self,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), Error> {
        for (variable, value) in environment {
            let Some(name) = variable.strip_prefix("FOREBAY_") else { continue };
            let name = name.to_ascii_lowercase().replace('_', "-");
            // Other programs' variables may begin so: those that are no option mean nothing.
            let Some((_, row)) = Options::row(&name) else { continue };
            let words: Vec<&str> = if row.is_words() {
                value.split_ascii_whitespace().collect()
            } else {
                vec![&value]
            };
            self.options
                .set(&name, &words)
                .map_err(|text| Error::new(format!("${variable}: {text}")))?;
        }
        Ok(())
    }

    /// One directive of a file, or one option of the command line.
    fn directive(&mut self, name: &str, words: &[&str], depth: usize) -> Result<(), String> {
        match (name, words) {
            ("include", [pattern]) => return self.include(pattern, depth),
            ("rename-command", [from, to]) => {
                self.renames.push((from.to_string(), to.to_string()));
                return Ok(());
            }
            ("loadmodule", [_, ..]) => {
                return Err("modules are not there and will not be".into());
            }
            ("sentinel", _) => return Err("sentinel directive while not in sentinel mode".into()),
            _ if FORGOTTEN.contains(&name) => return Ok(()),
            _ => {}
        }
        let Some((index, row)) = Options::row(name) else {
            if self.ignores_unknown {
                self.warnings.push(format!("option '{name}' is not known"));
                return Ok(());
            }
            return Err(match nearest(name) {
                Some(near) => format!("{BAD_DIRECTIVE} (did you mean '{near}'?)"),
                None => BAD_DIRECTIVE.to_string(),
            });
        };
        let current = self.options.text(index);
        let adds = ADDING.contains(&row.name) && self.set.contains(&index) && words != [""];
        let all: Vec<&str> = if adds {
            current.split(' ').chain(words.iter().copied()).collect()
        } else {
            words.to_vec()
        };
        let value = self.options.parse(index, &all).map_err(|text| {
            if text == "wrong number of arguments" { BAD_DIRECTIVE.into() } else { text }
        })?;
        self.options.put(index, value);
        self.set.insert(index);
        // What turns something off that is not there is as asked for.
        let is_off = matches!(self.options.text(index).as_str(), "" | "no");
        if row.when == When::NoEffect && self.has_set(index) && !is_off {
            self.warnings.push(format!("option '{}' has no effect here", row.name));
        }
        Ok(())
    }

    fn include(&mut self, pattern: &str, depth: usize) -> Result<(), String> {
        if depth == DEPTH_MAX {
            return Err("files include each other too deep".into());
        }
        for path in matching(pattern) {
            self.read_file(&path, depth + 1).map_err(|error| error.as_line())?;
        }
        Ok(())
    }
}

/// The files that a path names whose last part may be a pattern, in order; no match is no file, a
/// plain path always is one.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let path = Path::new(pattern);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if !name.contains(['*', '?', '[']) {
        return vec![path.to_path_buf()];
    }
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let fits = |path: &PathBuf| {
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned());
        file.is_some_and(|file| commands::pattern::matches(name.as_bytes(), file.as_bytes()))
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(fits).collect();
    found.sort();
    found
}

/// The option that a wrong name most likely means: at most two letters away.
fn nearest(name: &str) -> Option<&'static str> {
    let distance = |row: &Row| letters_apart(name.as_bytes(), row.name.as_bytes());
    let near = TABLE.iter().min_by_key(|row| distance(row))?;
    (distance(near) <= 2).then_some(near.name)
}

/// Levenshtein's distance.
fn letters_apart(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// The command line, cut into options.
struct CommandLine {
    file: Option<String>,
    reads_stdin: bool,
    ignores_unknown: bool,
    options: Vec<(String, Vec<String>)>,
}

impl CommandLine {
    /// `[file] [-] [--name value ...] [--name=value]`, in any order but that the file is first.
    fn split(args: &[String]) -> Result<CommandLine, Error> {
        let mut line = CommandLine {
            file: None,
            reads_stdin: false,
            ignores_unknown: false,
            options: Vec::new(),
        };
        for (index, arg) in args.iter().enumerate() {
            if arg == "-" {
                line.reads_stdin = true;
            } else if let Some(option) = arg.strip_prefix("--").filter(|name| !name.is_empty()) {
                let (name, value) = match option.split_once('=') {
                    Some((name, value)) => (name, vec![value.to_string()]),
                    None => (option, Vec::new()),
                };
                line.options.push((name.to_ascii_lowercase(), value));
            } else if let Some((_, words)) = line.options.last_mut() {
                words.push(arg.clone());
            } else if index == 0 {
                line.file = Some(arg.clone());
            } else {
                return Err(Error::new(format!("'{arg}' is no option: options begin with --")));
            }
        }
        let is_switch = |(name, _): &(String, Vec<String>)| name == "ignore-unknown";
        if let Some((_, words)) = line.options.iter().find(|option| is_switch(option)) {
            line.ignores_unknown = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["yes"] | [] => true,
                ["no"] => false,
                _ => return Err(Error::new("--ignore-unknown: argument must be 'yes' or 'no'")),
            };
        }
        line.options.retain(|option| !is_switch(option));
        for (name, words) in &mut line.options {
            // One word of several, as from a shell's quotes: --save "60 1".
            if Options::row(name).is_some_and(|(_, row)| row.is_words()) && words.len() == 1 {
                let split = words[0].split_ascii_whitespace().map(str::to_string);
                let split: Vec<String> = split.collect();
                *words = if split.is_empty() { vec![String::new()] } else { split };
            }
        }
        Ok(line)
    }
}

/// The present configuration as a file's text: `text` with its comments and its order, the lines of
/// options that changed set right, and those that are not in it at the end.
pub fn rewritten(text: &str, options: &Options) -> String {
    const MARK: &str = "# Generated by CONFIG REWRITE";
    let mut written = HashSet::new();
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let bare = line.trim();
        let words = split_line(bare.as_bytes()).unwrap_or_default();
        let name = words.first().map(|name| String::from_utf8_lossy(name).into_owned());
        let row = name.filter(|_| !bare.starts_with('#')).and_then(|name| Options::row(&name));
        match row {
            // Each option is written where it stood first; its further lines go.
            Some((index, row)) if row.is_words() || options_differ(line, index, options) => {
                if written.insert(index) {
                    lines.extend(directives(index, options));
                }
            }
            Some((index, _)) => {
                written.insert(index);
                lines.push(line.to_string());
            }
            None => lines.push(line.to_string()),
        }
    }
    let mut marked = lines.iter().any(|line| line == MARK);
    for (index, row) in TABLE.iter().enumerate() {
        let is_default = options.value(index) == Options::default_value(index);
        // The number of cores is found out anew at each start.
        if is_default || written.contains(&index) || row.name == "threads" {
            continue;
        }
        if !std::mem::replace(&mut marked, true) {
            lines.push(MARK.to_string());
        }
        lines.extend(directives(index, options));
    }
    lines.join("\n") + "\n"
}

/// Whether a line says something else than the option's present value.
fn options_differ(line: &str, index: usize, options: &Options) -> bool {
    let words = split_line(line.trim().as_bytes()).unwrap_or_default();
    let words: Vec<String> =
        words.iter().skip(1).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    options.parse(index, &words) != Ok(options.value(index))
}

/// An option's lines in a configuration file, with its present value.
pub fn directives(index: usize, options: &Options) -> Vec<String> {
    let (row, value) = (&TABLE[index], options.value(index));
    let words: Vec<&str> = value.text.split(' ').filter(|word| !word.is_empty()).collect();
    let groups = match row.name {
        "save" if !words.is_empty() => 2,
        "client-output-buffer-limit" => 4,
        _ if row.is_words() && !words.is_empty() => words.len(),
        _ => return vec![format!("{} {}", row.name, shown(row, &value.text))],
    };
    words.chunks(groups).map(|words| format!("{} {}", row.name, words.join(" "))).collect()
}

/// A value as a file has it: sizes with a unit where that is exact, texts in quotes where needed.
fn shown(row: &Row, text: &str) -> String {
    if let (Kind::Bytes(..), Ok(bytes)) = (row.kind, text.parse::<u64>()) {
        let units = [(30, "gb"), (20, "mb"), (10, "kb")];
        let unit = units.into_iter().find(|(bits, _)| bytes > 0 && bytes % (1u64 << bits) == 0);
        return unit.map_or(text.to_string(), |(bits, unit)| format!("{}{unit}", bytes >> bits));
    }
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\' | b'#');
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_string();
    }
    let mut quoted = Vec::new();
    crate::hub::quote(&mut quoted, text.as_bytes());
    String::from_utf8_lossy(&quoted).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::index_of;

    fn read(text: &str) -> Result<Configuration, Error> {
        let mut configuration = Configuration::default();
        configuration.read_text(text.as_bytes(), 0).map(|()| configuration)
    }

    fn args(line: &str) -> Vec<String> {
        let words = split_line(line.as_bytes()).expect("quotes close");
        words.into_iter().map(|word| String::from_utf8(word).expect("UTF-8")).collect()
    }

    fn text(configuration: &Configuration, name: &str) -> String {
        configuration.options.text(Options::row(name).expect(name).0)
    }

    #[test]
    fn files_are_read() {
        let read = read(
            "# a comment\n\n  PORT 7000 \nrequirepass \"a b\\x21\"\nsave 900 1\nsave 300 10\n\
             logfile ''\nbind 127.0.0.1 ::1\nslave-priority 7\nrename-command FLUSHALL \"\"\n",
        );
        let read = read.map_err(|error| error.as_line()).expect("it is right");
        assert_eq!(read.options.number(const { index_of("port") }), 7000);
        assert_eq!(text(&read, "requirepass"), "a b!");
        assert_eq!(text(&read, "save"), "900 1 300 10");
        assert_eq!(text(&read, "bind"), "127.0.0.1 ::1");
        assert_eq!(read.renames, [("FLUSHALL".to_string(), String::new())]);
        let unused: Vec<_> = read.warnings.iter().filter(|text| text.contains("replica")).collect();
        assert_eq!(unused.len(), 1);
    }

    #[test]
    fn errors_name_their_line() {
        let cases = [
            ("port 1\nfoo bar", 2, BAD_DIRECTIVE),
            ("port", 1, BAD_DIRECTIVE),
            ("port 1 2", 1, BAD_DIRECTIVE),
            ("\n\nport x", 3, "argument couldn't be parsed into an integer"),
            ("logfile \"a", 1, "Unbalanced quotes in configuration line"),
            ("replicaof 127.0.0.1 6379", 1, "replication is not there yet"),
            ("user bob on", 1, "users of the access list are not there yet"),
            ("include /nowhere/at-all.conf", 1, "Fatal error, can't open config file"),
        ];
        for (file, line, words) in cases {
            let Err(error) = read(file) else { panic!("{file} is accepted") };
            assert_eq!(error.line.as_ref().map(|line| line.0), Some(line), "{file}");
            assert!(error.text.starts_with(words), "{}", error.text);
            assert!(error.as_redis().contains("*** FATAL CONFIG FILE ERROR (Redis 7.2.4) ***"));
        }
        let Err(error) = read("maxmemry 1") else { panic!("a misspelt option is accepted") };
        assert!(error.text.ends_with("(did you mean 'maxmemory'?)"));
    }

    #[test]
    fn flags_win_over_the_environment() {
        let environment = [("FOREBAY_HZ", "20"), ("FOREBAY_TIMEOUT", "5"), ("FOREBAY_BIN", "x")]
            .map(|(name, value)| (name.to_string(), value.to_string()));
        let line = args(
            "--timeout 7 --save '' --maxmemory=1mb --bind '127.0.0.1 ::1' \
             --slowlog-log-slower-than -1",
        );
        let read = Configuration::read(&line, environment);
        let read = read.map_err(|error| error.as_line()).expect("it is right");
        let want = [
            ("hz", "20"),
            ("timeout", "7"),
            ("save", ""),
            ("maxmemory", "1048576"),
            ("bind", "127.0.0.1 ::1"),
            ("slowlog-log-slower-than", "-1"),
        ];
        for (name, value) in want {
            assert_eq!(text(&read, name), value, "{name}");
        }
        let wrong = [
            ("--nope 1", "--nope: Bad directive or wrong number of arguments"),
            ("--port", "--port: Bad directive or wrong number of arguments"),
            ("a.conf b.conf", "'b.conf' is no option: options begin with --"),
        ];
        for (line, error) in wrong {
            let Err(read) = Configuration::read(&args(line), []) else { panic!("{line}") };
            assert_eq!(read.as_line(), error);
        }
        assert!(Configuration::read(&args("--nope 1 --ignore-unknown yes"), []).is_ok());
    }

    #[test]
    fn rewriting_keeps_comments_and_order() {
        let file =
            "# mine\nmaxmemory 1mb\nport 7000\n\n# saving\nsave 1 2\nsave 3 4\nmaxclients 9\n";
        let read = read(file).map_err(|error| error.as_line()).expect("it is right");
        assert_eq!(
            rewritten(file, &read.options),
            "# mine\nmaxmemory 1mb\nport 7000\n\n# saving\nsave 1 2\nsave 3 4\nmaxclients 9\n"
        );
        read.options.set("maxmemory", &["3gb"]).expect("a size");
        read.options.set("save", &[""]).expect("none");
        read.options.set("requirepass", &["a \"b"]).expect("a text");
        let again = rewritten(file, &read.options);
        let want = "# mine\nmaxmemory 3gb\nport 7000\n\n# saving\nsave \"\"\nmaxclients 9\n\
                    # Generated by CONFIG REWRITE\nrequirepass \"a \\\"b\"\n";
        assert_eq!(again, want);
        assert_eq!(rewritten(&again, &read.options), want);
    }
}
