//! Running a command's SQL on a connection: bind, step, answer, undo what failed.
//!
//! ```text
//! one statement        runs as it is: SQLite undoes it if it fails
//! several statements   stand in a savepoint: all or nothing; BEGIN and COMMIT among them open and
//!                      close a savepoint inside
//! ```
//!
//! **Invariant:** a command that fails has changed nothing. If SQLite rolls back more than the
//! command (an interrupted write, ON CONFLICT ROLLBACK), that is said by [`Failure::GroupLost`].

use resp::Args;
use resp::number::{double_text, integer};

use crate::budget::Stopped;
use crate::connection::{Connection, Part, own, prepare, script_of};
use crate::error::{Failure, SqlError};
use crate::lexer::{self, Verb};
use crate::limits::{Limits, narrower};
use crate::live::{self, Sight};
use crate::raw::memory;
use crate::raw::statement::{Cell, Shared, Statement};
use crate::reply::{Answer, Counts};
use crate::{calls, guard, literals};

/// Where SQL runs, and so how long it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On the thread of a connection, between other clients' commands.
    Here,
    /// On the database's own thread, together with others' commands.
    Group,
    /// On the database's own thread, alone, for so many milliseconds.
    Thread(u64),
    /// Inside a transaction with keys, for so many milliseconds.
    Unit(u64),
}

impl Place {
    /// What the log says is done again: no limit may stop it.
    pub const REPLAY: Place = Place::Thread(u64::MAX / 4);
}

/// Looks that are allowed on a connection's thread: each 500 steps, 10 to 20 microseconds.
const TICKS_HERE: i64 = 4;
/// Looks that are allowed to one of several commands in a transaction: some tens of milliseconds.
const TICKS_GROUP: i64 = 2000;
/// Databases up to this size may be walked anywhere, in bytes.
const SMALL_BYTES: usize = 256 * 1024;
/// The longest value that SQL may make on a connection's thread, in bytes.
const VALUE_HERE_MAX: usize = 1 << 20;
/// The longest text that is prepared on a connection's thread, in bytes.
const TEXT_HERE_MAX: usize = 64 * 1024;

/// What is run.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// A text.
    Text(&'a [u8]),
    /// A named statement.
    Named(&'a [u8]),
}

impl<'a> Source<'a> {
    /// The text, or the name.
    fn text(&self) -> &'a [u8] {
        match self {
            Source::Text(text) | Source::Named(text) => text,
        }
    }
}

/// The values for the parameters.
#[derive(Clone, Copy)]
pub enum Values<'a> {
    /// None were given.
    None,
    /// Words, each of the type it looks like; there must be as many as there are parameters.
    Words(Args<'a>),
    /// The same, but missing ones are NULL.
    Padded(Args<'a>),
    /// The same, but missing ones are NULL, and SQLite says so if there are too many.
    Given(Args<'a>),
    /// Each of the type that its letter says.
    Typed(&'a [u8], Args<'a>),
    /// These: the literals of a text.
    Cells(&'a [Cell<'a>]),
    /// Names with their values.
    Named(Args<'a>),
    /// So many words for each run, by their looks or of the types that the letters say.
    Rows {
        /// One letter for each value, or none.
        letters: &'a [u8],
        /// Words of one run.
        width: usize,
        /// All words.
        words: Args<'a>,
    },
}

impl Values<'_> {
    fn len(&self) -> usize {
        match self {
            Values::None => 0,
            Values::Words(words) | Values::Padded(words) | Values::Given(words) => words.len(),
            Values::Typed(letters, _) => letters.len(),
            Values::Cells(cells) => cells.len(),
            Values::Named(words) => words.len() / 2,
            Values::Rows { letters: b"", width, .. } => *width,
            Values::Rows { letters, .. } => letters.len(),
        }
    }

    /// How often the statement is run.
    fn runs(&self) -> usize {
        match self {
            Values::Rows { width, words, .. } => words.len() / width,
            _ => 1,
        }
    }

    /// A value of one of the runs.
    fn cell(&self, run: usize, index: usize) -> Cell<'_> {
        match self {
            Values::None => Cell::Null,
            Values::Words(words) | Values::Padded(words) | Values::Given(words) => {
                words.get(index).map_or(Cell::Null, typed)
            }
            Values::Typed(letters, words) => lettered(letters, *words, index),
            Values::Cells(cells) => cells.get(index).copied().unwrap_or(Cell::Null),
            Values::Rows { letters: b"", width, words } => typed(words.word(run * width + index)),
            Values::Rows { letters, width, words } => {
                lettered(letters, words.from(run * width), index)
            }
            Values::Named(_) => Cell::Null,
        }
    }

    /// The values of one run of a statement.
    ///
    /// # Errors
    /// If they do not fit it.
    pub(crate) fn cells(&self, statement: &Statement) -> Result<Vec<Cell<'_>>, Failure> {
        self.check(statement.parameters())?;
        match self {
            Values::Named(words) => by_name(statement, *words),
            _ => {
                let count = self.len().min(statement.parameters());
                Ok((0..count).map(|index| self.cell(0, index)).collect())
            }
        }
    }

    /// Whether they fit a script with so many parameters.
    fn check(&self, parameters: usize) -> Result<(), Failure> {
        match self {
            Values::Words(words) if words.len() != parameters => Err(Failure::refused(MISUSE)),
            Values::Padded(words) if words.len() > parameters => Err(Failure::refused(MISUSE)),
            Values::Given(_) | Values::Typed(..) | Values::Rows { .. }
                if self.len() > parameters =>
            {
                Err(SqlError::new(rusqlite::ffi::SQLITE_RANGE, RANGE.to_string()).into())
            }
            _ => Ok(()),
        }
    }
}

const MISUSE: &str = "RediSQL MISUSE, only parameters in the form `?NNN`, where `N` is a digit, \
     are supported, also no gap should be present.";
const RANGE: &str = "column index out of range";

/// A word as the value it looks like: an integer or a number in its shortest form, text, or, if it
/// is no UTF-8 or holds a NUL, bytes.
pub fn typed(word: &[u8]) -> Cell<'_> {
    match word {
        [b'0'..=b'9' | b'-', ..] if word.len() <= 24 => {
            if let Some(number) = integer(word) {
                return Cell::Int(number);
            }
            let text = std::str::from_utf8(word).unwrap_or_default();
            match text.parse::<f64>() {
                Ok(number)
                    if number.is_finite() && text.contains('.') && double_text(number) == text =>
                {
                    Cell::Real(number)
                }
                _ => Cell::Text(word),
            }
        }
        _ if word.contains(&0) || std::str::from_utf8(word).is_err() => Cell::Blob(word),
        _ => Cell::Text(word),
    }
}

/// The value at `index` of the type that its letter says; NULL takes no word.
fn lettered<'a>(letters: &[u8], words: Args<'a>, index: usize) -> Cell<'a> {
    let before = letters[..index].iter().filter(|letter| **letter != b'n').count();
    let word = || words.get(before).unwrap_or_default();
    match letters[index] {
        b'i' => integer(word()).map_or(Cell::Null, Cell::Int),
        b'r' => resp::number::double(word()).map_or(Cell::Null, Cell::Real),
        b't' => Cell::Text(word()),
        b'b' => Cell::Blob(word()),
        _ => Cell::Null,
    }
}

/// The values of a statement's parameters by their names.
fn by_name<'a>(statement: &Statement, words: Args<'a>) -> Result<Vec<Cell<'a>>, Failure> {
    let mut cells = vec![Cell::Null; statement.parameters()];
    for pair in (0..words.len()).step_by(2) {
        let wanted = words.word(pair);
        let is_it = |index: &usize| {
            let name = statement.parameter_name(index + 1).unwrap_or_default();
            name == wanted || name.get(1..) == Some(wanted)
        };
        let Some(index) = (0..cells.len()).find(is_it) else {
            let name = String::from_utf8_lossy(wanted);
            return Err(Failure::Refused(format!("ERR no parameter is called {name}")));
        };
        cells[index] = typed(words.word(pair + 1));
    }
    Ok(cells)
}

/// What a command asks to be run.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// What.
    pub source: Source<'a>,
    /// With which values.
    pub values: Values<'a>,
    /// It may not change anything.
    pub reads: bool,
    /// What it may take.
    pub limits: Limits,
}

impl<'a> Request<'a> {
    /// A request without limits of its own.
    pub fn new(source: Source<'a>, values: Values<'a>, reads: bool) -> Request<'a> {
        Request { source, values, reads, limits: Limits::default() }
    }
}

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Done {
    /// Changes and the last rowid.
    pub counts: Counts,
    /// Something was changed: it belongs into the log.
    pub wrote: bool,
}

const NOT_READ_ONLY: &str = "Statement is not read only but it may modify the database, use \
     `EXEC_STATEMENT` instead.";
/// What is said of a name that is not known.
pub(crate) const NO_STATEMENT: &str = "The statement is not present in the database";
const OPEN_END: &str = "ERR a transaction must end in the command that begins it, or be one of \
     MULTI or SQL.BEGIN";
const FILES: &str =
    "attached files are only read, and not by a statement that writes: see SQL.LOAD";
const TIMED_OUT: &str = "It was impossible to return the whole result before the timeout expired.";
const CANCELLED: &str = "ERR the statement was cancelled";
const TOO_MUCH_MEMORY: &str = "ERR the statement takes more memory than sql-memory-max, its \
     database's limit or its own allow";

/// One run's state.
struct Runner<'c, 'a, 'w> {
    handle: &'c Shared,
    place: Place,
    /// The database is small enough to be walked anywhere.
    is_small: bool,
    on_file: bool,
    request: &'a Request<'a>,
    answer: &'c mut Answer<'w>,
    /// A BEGIN of the command itself is open, and so many calls were made before it.
    began: bool,
    calls_before: usize,
    /// The command's savepoints, each with the calls made before it.
    savepoints: Vec<(String, usize)>,
    /// What was written so far: tables of the database, or those over live keys.
    wrote_tables: bool,
    wrote_live: bool,
    wrote: bool,
}

impl<'c, 'a, 'w> Runner<'c, 'a, 'w> {
    fn new(
        handle: &'c Shared,
        place: Place,
        (is_small, on_file): (bool, bool),
        request: &'a Request<'a>,
        answer: &'c mut Answer<'w>,
    ) -> Self {
        Runner {
            handle,
            place,
            is_small,
            on_file,
            request,
            answer,
            began: false,
            calls_before: 0,
            savepoints: Vec::new(),
            wrote_tables: false,
            wrote_live: false,
            wrote: false,
        }
    }

    /// Whether a statement may run where the command is.
    fn check(&self, part: &Part, is_alone: bool) -> Result<(), Failure> {
        if self.request.reads && !part.statement.is_read_only() {
            return Err(Failure::refused(NOT_READ_ONLY));
        }
        if part.reads_files && !part.statement.is_read_only() {
            return Err(SqlError::new(rusqlite::ffi::SQLITE_AUTH, FILES.into()).into());
        }
        let calls_here = part.calls && !self.request.reads && !part.statement.is_explain();
        if calls_here && calls::mode() == calls::Mode::Elsewhere {
            calls::ask();
            return Err(Failure::NeedsUnit);
        }
        match part.verb {
            Verb::Attach => {
                let code = rusqlite::ffi::SQLITE_AUTH;
                return Err(SqlError::new(code, "not authorized".into()).into());
            }
            Verb::Begin | Verb::Savepoint if is_alone => return Err(Failure::refused(OPEN_END)),
            Verb::Vacuum if self.place == Place::Group => return Err(Failure::TooLong),
            Verb::Vacuum if !is_alone || matches!(self.place, Place::Unit(_)) => {
                return Err(SqlError::general("cannot VACUUM from within a transaction").into());
            }
            _ => {}
        }
        if self.place != Place::Here {
            return Ok(());
        }
        let walks = part.may_walk && !self.is_small;
        let writes_file = self.on_file && !part.statement.is_read_only();
        let is_long = part.is_long || walks || writes_file || part.verb == Verb::Vacuum;
        if is_long { Err(Failure::TooLong) } else { Ok(()) }
    }

    /// Runs one statement; the rows of the last one are answered.
    fn part(&mut self, part: &mut Part, is_last: bool, is_alone: bool) -> Result<(), Failure> {
        self.check(part, is_alone)?;
        if matches!(part.verb, Verb::Begin | Verb::Commit | Verb::Rollback) {
            return self.control(part.verb);
        }
        let values = &self.request.values;
        let bound = values.len().min(part.statement.parameters());
        let before = if self.place == Place::Here { 0 } else { part.statement.steps() };
        let named = match values {
            Values::Named(words) => by_name(&part.statement, *words)?,
            _ => Vec::new(),
        };
        self.see(part)?;
        if part.verb == Verb::Vacuum {
            // It takes as much as the database, which is bounded by itself.
            memory::lift();
        }
        let rows_before = self.handle.total_changes();
        let answer = &mut *self.answer;
        let mut row = |row: &Statement| if is_last { answer.row(row) } else { Ok(true) };
        let mut result = Ok(());
        if !named.is_empty() {
            result = part.statement.run(named.into_iter(), &mut row);
        } else {
            for run in 0..values.runs() {
                let cells = (0..bound).map(|index| values.cell(run, index));
                result = part.statement.run(cells, &mut row);
                if result.is_err() {
                    break;
                }
            }
        }
        part.runs += 1;
        if let Err(failure) = result {
            part.is_long |= self.place == Place::Here && is_interrupt(&failure);
            return Err(failure);
        }
        if part.writes_live {
            calls::note_live_rows(self.handle.total_changes() - rows_before);
        }
        if part.verb == Verb::Savepoint {
            self.note_savepoint(part.statement.text())?;
        }
        if is_last {
            self.answer.no_rows(&part.statement);
        }
        if self.place != Place::Here {
            let steps = part.statement.steps() - before;
            part.is_long = steps > TICKS_HERE * i64::from(crate::budget::TICK) / 2;
        }
        let may_change = matches!(part.verb, Verb::Schema | Verb::Pragma | Verb::Vacuum);
        self.wrote |= may_change && !(part.statement.is_read_only() && part.verb != Verb::Pragma);
        Ok(())
    }

    /// Looks at what a statement writes, and so what it gets to see of the keys.
    fn see(&mut self, part: &Part) -> Result<(), Failure> {
        const BOTH: &str = "ERR a command writes tables or live keys, not both: see MULTI";
        let writes = !part.statement.is_read_only();
        self.wrote_live |= writes && part.writes_live;
        self.wrote_tables |= writes && !part.writes_live && part.verb != Verb::Savepoint;
        if self.wrote_live && self.wrote_tables {
            return Err(Failure::refused(BOTH));
        }
        live::set_sight(if writes && !part.writes_live {
            Sight::Refused
        } else if calls::mode() == calls::Mode::Ignored {
            Sight::Nothing
        } else if calls::live_rows() > 0 {
            Sight::Stale
        } else {
            Sight::Copies
        });
        Ok(())
    }

    /// Keeps count of the calls that belong to a savepoint, and forgets those that were undone.
    fn note_savepoint(&mut self, text: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(lexer::skip_blank(text)).to_lowercase();
        let mut words =
            text.split(|c: char| c.is_whitespace() || c == ';').filter(|w| !w.is_empty());
        let (verb, name) =
            (words.next().unwrap_or_default(), words.next_back().unwrap_or_default());
        let name = name.trim_matches(|c| "\"'`[]".contains(c)).to_string();
        if verb == "savepoint" {
            self.savepoints.push((name, calls::count()));
            return Ok(());
        }
        let known = self.savepoints.iter().rposition(|(known, _)| *known == name);
        match known {
            Some(at) if verb == "rollback" => {
                calls::back_to(self.savepoints[at].1);
                self.savepoints.truncate(at + 1);
            }
            Some(at) => self.savepoints.truncate(at),
            None if calls::count() > 0 => {
                return Err(Failure::refused("ERR the savepoint's name is not understood"));
            }
            None => {}
        }
        Ok(())
    }

    /// BEGIN, COMMIT, ROLLBACK inside one command.
    fn control(&mut self, verb: Verb) -> Result<(), Failure> {
        let batch = |text: &str| {
            self.handle.connection().execute_batch(text).map_err(|error| Failure::Sql(error.into()))
        };
        let refuse = |text| Err(Failure::Sql(SqlError::general(text)));
        match (verb, self.began) {
            (Verb::Begin, true) => {
                return refuse("cannot start a transaction within a transaction");
            }
            (Verb::Begin, false) => batch("SAVEPOINT forebay_user")?,
            (Verb::Commit, false) => return refuse("cannot commit - no transaction is active"),
            (Verb::Commit, true) => batch("RELEASE forebay_user")?,
            (_, false) => return refuse("cannot rollback - no transaction is active"),
            (_, true) => {
                batch("ROLLBACK TO forebay_user; RELEASE forebay_user")?;
                calls::back_to(self.calls_before);
            }
        }
        self.calls_before = calls::count();
        self.began = verb == Verb::Begin;
        Ok(())
    }

    /// Runs the statements of a script.
    fn parts(&mut self, parts: &mut [Part]) -> Result<(), Failure> {
        let count = parts.len();
        for (index, part) in parts.iter_mut().enumerate() {
            self.part(part, index + 1 == count, count == 1)?;
        }
        if self.began { Err(Failure::refused(OPEN_END)) } else { Ok(()) }
    }

    /// Runs a first statement and those that follow it in the text, each of which is prepared after
    /// what comes before it has run: it may need it. Returns them.
    fn text(&mut self, first: Part, mut rest: &[u8]) -> Result<Vec<Part>, Failure> {
        let (mut parts, mut part) = (Vec::new(), first);
        let is_alone = lexer::skip_blank(rest).is_empty();
        loop {
            let is_last = lexer::skip_blank(rest).is_empty();
            self.part(&mut part, is_last, is_alone)?;
            parts.push(part);
            if is_last {
                break;
            }
            let (next, used) = prepare(self.handle, rest, true)?;
            rest = &rest[used..];
            let Some(next) = next else { break };
            part = next;
        }
        if self.began { Err(Failure::refused(OPEN_END)) } else { Ok(parts) }
    }
}

fn is_interrupt(failure: &Failure) -> bool {
    matches!(failure, Failure::Sql(error) if error.code & 0xff == rusqlite::ffi::SQLITE_INTERRUPT)
}

impl Connection {
    /// Runs a request within limits; its rows go to `answer`, which the
    /// caller ends.
    ///
    /// # Errors
    /// Any [`Failure`]; nothing is changed then, and the answer is as it was.
    pub fn execute(
        &mut self,
        request: &Request<'_>,
        limits: Limits,
        answer: &mut Answer<'_>,
        place: Place,
    ) -> Result<Done, Failure> {
        self.allow(request, place, limits);
        let calls_before = calls::begin(request.reads);
        let changes = self.handle.total_changes();
        let result = self.source(request, answer, place);
        memory::lift();
        if guard::take_made_trigger() {
            // A text of several statements stands in a savepoint anyway.
            self.note_trigger(request.source.text());
        }
        match result {
            Ok(wrote) => {
                let changes = self.handle.total_changes() - changes;
                let wrote = wrote || changes > calls::live_rows();
                let last_rowid = (changes > 0).then(|| self.handle.last_rowid());
                let counts = Counts { changes, last_rowid };
                Ok(Done { counts, wrote })
            }
            Err(failure) => {
                answer.clear();
                calls::back_to(calls_before);
                Err(self.judge(failure, place))
            }
        }
    }

    /// Has a command keep to what it may take.
    fn allow(&mut self, request: &Request<'_>, place: Place, limits: Limits) {
        let (ticks, time_ms) = match place {
            // Rows in bulk cost the client as much as they cost here.
            Place::Here => (TICKS_HERE + request.values.runs() as i64 / 8, None),
            Place::Group => (TICKS_GROUP, None),
            Place::Thread(ms) | Place::Unit(ms) => (i64::MAX, Some(ms)),
        };
        let time_ms = narrower(time_ms.unwrap_or(0), limits.timeout_ms);
        let is_timed = time_ms > 0 && place != Place::Here;
        self.budget.allow(ticks, is_timed.then_some(time_ms));
        if matches!(place, Place::Group | Place::Thread(_)) {
            self.budget.allow_yield();
        }
        self.limit_values(place == Place::Here);
        self.limit_size(limits.size);
        memory::allow(limits.memory);
    }

    /// What a failure means on a connection that only reads, for one alone.
    pub(crate) fn judge_reader(&mut self, failure: Failure) -> Failure {
        self.judge(failure, Place::Thread(0))
    }

    /// What a failure means for the command, and for the group it is in.
    fn judge(&mut self, failure: Failure, place: Place) -> Failure {
        let needs_unit = calls::was_asked();
        if needs_unit || live::has_wants() {
            if self.in_group && self.handle.is_autocommit() {
                self.in_group = false;
                return Failure::GroupLost;
            }
            return if needs_unit { Failure::NeedsUnit } else { Failure::NeedsKeys };
        }
        if self.in_group && self.handle.is_autocommit() {
            self.in_group = false;
            // Alone in its transaction, it took nobody with it.
            if !matches!(place, Place::Thread(_)) {
                return Failure::GroupLost;
            }
        }
        if is_interrupt(&failure) {
            return match self.budget.stopped() {
                Stopped::Steps => Failure::TooLong,
                Stopped::Time => Failure::refused(TIMED_OUT),
                Stopped::Cancelled => Failure::refused(CANCELLED),
                Stopped::Yielded => Failure::Yielded,
                Stopped::No => failure,
            };
        }
        match &failure {
            Failure::Sql(error)
                if place == Place::Here && error.code & 0xff == rusqlite::ffi::SQLITE_TOOBIG =>
            {
                Failure::TooLong
            }
            Failure::Sql(error)
                if error.code & 0xff == rusqlite::ffi::SQLITE_NOMEM && memory::was_short() =>
            {
                Failure::refused(TOO_MUCH_MEMORY)
            }
            _ => failure,
        }
    }

    /// Keeps the database to so many bytes; 0 for any.
    fn limit_size(&mut self, most: u64) {
        if std::mem::replace(&mut self.bytes_max, most) != most {
            self.handle.limit_size(most);
        }
    }

    fn limit_values(&mut self, short: bool) {
        if std::mem::replace(&mut self.has_short_values, short) != short {
            let most = if short { VALUE_HERE_MAX } else { guard::VALUE_BYTES_MAX };
            self.handle.limit_length(most);
        }
    }

    fn source(
        &mut self,
        request: &Request<'_>,
        answer: &mut Answer<'_>,
        place: Place,
    ) -> Result<bool, Failure> {
        let is_small = place != Place::Here || self.bytes < SMALL_BYTES;
        let on_file = self.on_file;
        self.uses += 1;
        let script = match request.source {
            Source::Named(name) => match self.named.get_mut(name) {
                Some(named) => Some(&mut named.script),
                None => return Err(Failure::refused(NO_STATEMENT)),
            },
            Source::Text(text) => self.cached.get_mut(text),
        };
        if let Some(script) = script {
            script.used = self.uses;
            request.values.check(script.parameters)?;
            let mut runner = Runner::new(&self.handle, place, (is_small, on_file), request, answer);
            if let [part] = &mut script.parts[..]
                && request.values.runs() == 1
                && !part.may_leave_rows(self.fails_stay)
            {
                runner.part(part, true, true)?;
                return Ok(runner.wrote);
            }
            own(&mut self.save)?;
            let result = runner.parts(&mut script.parts);
            let wrote = runner.wrote;
            return self.end_command(result).map(|()| wrote);
        }
        let handle = self.handle.share();
        let runner = Runner::new(&handle, place, (is_small, on_file), request, answer);
        let Source::Text(text) = request.source else { return Ok(false) };
        self.fresh(text, runner)
    }

    /// Runs a text that is not kept.
    fn fresh(&mut self, text: &[u8], mut runner: Runner<'_, '_, '_>) -> Result<bool, Failure> {
        let (request, place) = (runner.request, runner.place);
        let handle = runner.handle;
        if place == Place::Here && text.len() > TEXT_HERE_MAX {
            return Err(Failure::TooLong);
        }
        let keeps = self.was_seen(text);
        if !keeps && !self.fails_stay && matches!(request.values, Values::None) {
            let mut alike = std::mem::take(&mut self.alike);
            let wrote = self.alike(text, &mut alike, &mut runner);
            self.alike = alike;
            if let Some(wrote) = wrote? {
                return Ok(wrote);
            }
        }
        if request.values.len() > 0 {
            // How many parameters there are is known once all statements are prepared.
            let mut script = script_of(handle, text, keeps)?;
            request.values.check(script.parameters)?;
            own(&mut self.save)?;
            let result = runner.parts(&mut script.parts);
            let wrote = runner.wrote;
            self.end_command(result)?;
            self.keep(text, script.parts, keeps);
            return Ok(wrote);
        }
        let (first, used) = prepare(handle, text, keeps)?;
        let Some(first) = first else { return Ok(false) };
        request.values.check(first.statement.parameters())?;
        let rest = &text[used..];
        let may_leave = first.may_leave_rows(self.fails_stay);
        let is_alone = lexer::skip_blank(rest).is_empty() && !may_leave;
        let result = if is_alone {
            runner.text(first, rest)?
        } else {
            own(&mut self.save)?;
            let result = runner.text(first, rest);
            let (parts, result) = match result {
                Ok(parts) => (parts, Ok(())),
                Err(failure) => (Vec::new(), Err(failure)),
            };
            self.end_command(result)?;
            parts
        };
        let wrote = runner.wrote;
        self.keep(text, result, keeps);
        Ok(wrote)
    }

    /// Runs a text by the kept statement of those that differ from it in their literals only, if
    /// there is one or it is time for it; whether it wrote.
    fn alike(
        &mut self,
        text: &[u8],
        alike: &mut Vec<u8>,
        runner: &mut Runner<'_, '_, '_>,
    ) -> Result<Option<bool>, Failure> {
        let Some(literals) = literals::take(text, alike) else { return Ok(None) };
        if !self.cached.contains_key(&alike[..]) {
            if !self.was_seen(alike) {
                return Ok(None);
            }
            match script_of(runner.handle, alike, true) {
                Ok(script) if script.parts.len() == 1 && !script.parts[0].may_stay => {
                    self.keep(alike, script.parts, true)
                }
                // The text itself says what is wrong with it.
                _ => return Ok(None),
            }
        }
        let Some(script) = self.cached.get_mut(&alike[..]) else { return Ok(None) };
        script.used = self.uses;
        let ([part], true) = (&mut script.parts[..], script.parameters == literals.cells().len())
        else {
            return Ok(None);
        };
        let values = Values::Cells(literals.cells());
        let request = Request { source: Source::Text(alike), values, ..*runner.request };
        let known = (runner.is_small, runner.on_file);
        let answer = &mut *runner.answer;
        let mut runner = Runner::new(runner.handle, runner.place, known, &request, answer);
        runner.part(part, true, true)?;
        Ok(Some(runner.wrote))
    }

    /// Ends a command of several statements: keeps what it did, or takes it back.
    fn end_command(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        let result = result.and_then(|()| Ok(own(&mut self.release)?));
        if result.is_err() {
            let stopped = self.budget.stopped();
            self.undo_command();
            self.budget.note(stopped);
        }
        result
    }
}
