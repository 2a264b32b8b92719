//! The prompt: line editing with history, hints and completion; streams until Ctrl-C.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use resp::reply::Value;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hint, Hinter};
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

use super::connection::{self, Connection, Error, Waiting};
use super::hints::Hints;
use super::show::Style;
use super::{CliArgs, Success, UsageOf, print, words};

/// Lines that the history keeps.
const HISTORY_LINES_MAX: usize = 2000;

/// Runs until the end of input or `quit`.
pub fn run(args: &CliArgs, style: Style, usage_of: UsageOf) -> Result<Success, Error> {
    let interrupted = Arc::new(AtomicBool::new(false));
    // While a line is edited the terminal hands Ctrl-C to the editor; this is for waits.
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted))
        .map_err(Error::Output)?;
    let mut session = Session {
        args,
        style,
        interrupted,
        connection: None,
        database: args.database,
        is_in_transaction: false,
    };
    let mut editor = editor()?;
    let history = history_file();
    if let Some(file) = &history {
        // The first time there is none.
        let _ = editor.load_history(file);
    }
    let hints = session.connect().and_then(|connection| Hints::load(connection, usage_of));
    match hints {
        Ok(hints) => editor.set_helper(Some(Assistant { hints })),
        Err(error) => {
            eprintln!("{error}");
            session.connection = None;
            editor.set_helper(Some(Assistant { hints: Hints::from_docs(&Value::Null, usage_of) }));
        }
    }
    loop {
        let line = match editor.readline(&session.prompt()) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(Error::Output(io::Error::other(error))),
        };
        let Some(words) = words::split(line.as_bytes()) else {
            println!("Invalid argument(s): unbalanced quotes");
            continue;
        };
        let Some(first) = words.first() else { continue };
        if !holds_a_password(&words) {
            let _ = editor.add_history_entry(line.trim());
        }
        match first.to_ascii_lowercase().as_slice() {
            b"quit" | b"exit" => break,
            b"clear" => {
                let _ = editor.clear_screen();
            }
            b"help" | b"?" => help(editor.helper(), &words[1..]),
            _ => session.run_line(&words)?,
        }
    }
    if let Some(file) = &history
        && let Err(error) = editor.save_history(file)
    {
        eprintln!("cannot keep the history in {}: {error}", file.display());
    }
    Ok(Success::All)
}

struct Session<'a> {
    args: &'a CliArgs,
    style: Style,
    interrupted: Arc<AtomicBool>,
    connection: Option<Connection>,
    database: u32,
    is_in_transaction: bool,
}

impl Session<'_> {
    fn prompt(&self) -> String {
        if self.connection.is_none() {
            return "not connected> ".into();
        }
        let place = match &self.args.socket {
            Some(path) => format!("redis {}", path.display()),
            None => format!("{}:{}", self.args.host, self.args.port),
        };
        let database = match self.database {
            0 => String::new(),
            number => format!("[{number}]"),
        };
        let transaction = if self.is_in_transaction { "(TX)" } else { "" };
        format!("{place}{database}{transaction}> ")
    }

    /// The connection, made anew where there is none, in the database that was chosen last.
    fn connect(&mut self) -> Result<&mut Connection, Error> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                self.is_in_transaction = false;
                self.interrupted.store(false, Ordering::Relaxed);
                let args = CliArgs { database: self.database, ..self.args.clone() };
                Connection::open(&args, Waiting::Until(Arc::clone(&self.interrupted)))?
            }
        };
        Ok(self.connection.insert(connection))
    }

    /// Runs a command, as often as a number in front of it says.
    fn run_line(&mut self, words: &[Vec<u8>]) -> Result<(), Error> {
        let count = std::str::from_utf8(&words[0]).ok().and_then(|word| word.parse::<u32>().ok());
        let (count, words) = match count {
            Some(count) if words.len() > 1 => (i64::from(count), &words[1..]),
            _ => (self.args.repeat, words),
        };
        let interval = Duration::try_from_secs_f64(self.args.interval).unwrap_or_default();
        let mut left = count;
        while left != 0 {
            match self.call(words) {
                Ok(()) => {}
                // The terminal is gone.
                Err(Error::Output(error)) => return Err(Error::Output(error)),
                Err(Error::Interrupted) => {
                    // What is still to come would be taken for the next command's reply.
                    self.connection = None;
                    println!();
                    let _ = self.connect();
                    return Ok(());
                }
                Err(error) => {
                    self.connection = None;
                    println!("{error}");
                    return Ok(());
                }
            }
            left = if left > 0 { left - 1 } else { left };
            if left != 0 {
                std::thread::sleep(interval);
                if self.interrupted.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn call(&mut self, words: &[Vec<u8>]) -> Result<(), Error> {
        let style = self.style;
        self.interrupted.store(false, Ordering::Relaxed);
        let was_connected = self.connection.is_some();
        let mut sent = self.connect().and_then(|connection| connection.send(words));
        if was_connected && matches!(sent, Err(Error::Closed(_))) {
            // The server closed an idle connection: nothing has run, so it can be sent again.
            self.connection = None;
            sent = self.connect().and_then(|connection| connection.send(words));
        }
        sent?;
        let connection = self.connect()?;
        if connection::is_stream(words) {
            if style == Style::Pretty {
                println!("Reading messages... (press Ctrl-C to quit)");
            }
            loop {
                let value = connection.receive()?;
                print(&value, style)?;
                if value.is_error() {
                    return Ok(());
                }
            }
        }
        let value = connection.receive_reply(words, |push| print(push, style))?;
        print(&value, style)?;
        self.note_state(words, &value);
        io::stdout().flush().map_err(Error::Output)
    }

    /// Keeps what the prompt shows: the database, and whether a transaction is open.
    fn note_state(&mut self, words: &[Vec<u8>], value: &Value) {
        match words[0].to_ascii_uppercase().as_slice() {
            b"DISCARD" | b"EXEC" | b"RESET" => self.is_in_transaction = false,
            _ if value.is_error() => return,
            b"MULTI" => self.is_in_transaction = true,
            b"SELECT" if !self.is_in_transaction => {
                let number = words.get(1).and_then(|word| std::str::from_utf8(word).ok());
                self.database = number.and_then(|n| n.parse().ok()).unwrap_or(self.database);
            }
            _ => {}
        }
        if words[0].eq_ignore_ascii_case(b"RESET") && !value.is_error() {
            self.database = 0;
        }
    }
}

/// Whether a command should not be kept in a file.
fn holds_a_password(words: &[Vec<u8>]) -> bool {
    let is = |index: usize, name: &str| {
        words.get(index).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let mentions = |name: &str| (1..words.len()).any(|index| is(index, name));
    is(0, "AUTH")
        || (is(0, "HELLO") && mentions("AUTH"))
        || (is(0, "MIGRATE") && (mentions("AUTH") || mentions("AUTH2")))
        || (is(0, "ACL") && is(1, "SETUSER"))
        || (is(0, "CONFIG") && is(1, "SET") && (mentions("requirepass") || mentions("masterauth")))
}

fn history_file() -> Option<PathBuf> {
    if let Some(file) = std::env::var_os("FOREBAY_HISTORY") {
        return if file.is_empty() { None } else { Some(file.into()) };
    }
    std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".forebay_history"))
}

fn help(assistant: Option<&Assistant>, words: &[Vec<u8>]) {
    let words: Vec<String> =
        words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let Some(hints) = assistant.map(|assistant| &assistant.hints).filter(|_| !words.is_empty())
    else {
        println!("help COMMAND     usage of a command; Tab completes names");
        println!("5 INCR counter   runs a command five times");
        println!("quit, clear      leave, clear the screen");
        return;
    };
    match hints.find(&words) {
        None => println!("nothing is known of {}", words.join(" ")),
        Some((description, length)) => {
            println!(
                "{} {}",
                words[..length].join(" ").to_uppercase(),
                description.arguments.join(" ")
            );
            for (name, text) in [("summary", &description.summary), ("since", &description.since)] {
                if !text.is_empty() {
                    println!("  {name}: {text}");
                }
            }
        }
    }
}

fn editor() -> Result<Editor<Assistant, DefaultHistory>, Error> {
    let failed = |error: ReadlineError| Error::Output(io::Error::other(error));
    let config = Config::builder()
        .max_history_size(HISTORY_LINES_MAX)
        .map_err(failed)?
        .history_ignore_space(true)
        .build();
    Editor::with_config(config).map_err(failed)
}

/// What helps while a line is typed.
struct Assistant {
    hints: Hints,
}

impl Helper for Assistant {}
impl Validator for Assistant {}

impl Highlighter for Assistant {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(format!("\x1b[90m{hint}\x1b[0m"))
    }
}

/// A hint that is shown and never taken over into the line.
struct Usage(String);

impl Hint for Usage {
    fn display(&self) -> &str {
        &self.0
    }

    fn completion(&self) -> Option<&str> {
        None
    }
}

impl Hinter for Assistant {
    type Hint = Usage;

    fn hint(&self, line: &str, cursor: usize, _context: &Context<'_>) -> Option<Usage> {
        if cursor < line.len() {
            return None;
        }
        let words = words::split(line.as_bytes())?;
        let words: Vec<String> =
            words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let rest = self.hints.remaining(&words)?;
        let blank = if line.ends_with(' ') { "" } else { " " };
        Some(Usage(format!("{blank}{rest}")))
    }
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..cursor];
        let mut names = self.hints.names(typed);
        // Subcommands once their command stands, not before.
        if !typed.contains(' ') {
            names.retain(|name| !name.contains(' '));
        }
        if typed.bytes().any(|byte| byte.is_ascii_lowercase()) {
            names.iter_mut().for_each(|name| *name = name.to_lowercase());
        }
        Ok((0, names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_with_passwords_are_told() {
        let held = |line: &str| holds_a_password(&words::split(line.as_bytes()).unwrap());
        for line in [
            "auth pw",
            "HELLO 3 AUTH u p",
            "config set requirepass x",
            "ACL SETUSER u on >p",
            "migrate h 1 k 0 1 AUTH p",
        ] {
            assert!(held(line), "{line}");
        }
        for line in ["GET auth", "CONFIG GET requirepass", "HELLO 3", "ACL LIST"] {
            assert!(!held(line), "{line}");
        }
    }
}
