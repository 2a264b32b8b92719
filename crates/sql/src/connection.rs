//! One connection to a SQLite database: opened under guard, with its statements cached.
//!
//! ```text
//! text seen once            prepared, run, forgotten; its hash is remembered
//! text like one seen before run by the statement of all that differ in literals (literals.rs)
//! text seen again soon      prepared, run, kept: the least recently used one goes
//! named statement           kept as long as its name
//! ```
//!
//! **Invariant:** outside of a command, no transaction is open unless a group is
//! ([`Connection::begin_group`]); a command that fails has changed nothing.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::Arc;

use foldhash::fast::FixedState;
use rusqlite::OpenFlags;

use crate::budget::Budget;
use crate::error::SqlError;
use crate::lexer::{self, Verb};
use crate::limits::Limits;
use crate::raw::statement::{Handle, Shared, Statement};
use crate::raw::{clock, memory};
use crate::{calls, frozen, guard};

/// Texts whose statements are kept.
const CACHE_LEN: usize = 256;
/// The longest text whose statements are kept, in bytes.
const KEPT_TEXT_MAX: usize = 16 * 1024;
/// Texts remembered by their hash until they are seen again.
const SEEN_LEN: usize = 1024;

/// One statement of a text, with what is known of it.
pub struct Part {
    /// The statement.
    pub statement: Statement,
    /// What it does.
    pub verb: Verb,
    /// What the last run showed it to be: too long for where it arrived.
    pub is_long: bool,
    /// How often it ran.
    pub runs: u64,
    /// It may walk a whole table within one step of SQLite's machine.
    pub may_walk: bool,
    /// It looks at an attached file.
    pub reads_files: bool,
    /// What it did before it failed may stay (OR FAIL): it is undone with a savepoint around it.
    pub may_stay: bool,
    /// It can call commands.
    pub calls: bool,
    /// It writes, and only tables over live keys.
    pub writes_live: bool,
}

impl Part {
    /// Whether what it did before it failed may stay: by itself, or by a trigger where there are
    /// such.
    pub(crate) fn may_leave_rows(&self, by_triggers: bool) -> bool {
        let writes_rows = self.verb.is_row_work() && !self.statement.is_read_only();
        self.may_stay || (by_triggers && writes_rows)
    }
}

/// The statements of one text.
pub struct Script {
    /// In order.
    pub parts: Vec<Part>,
    /// The highest number among their parameters.
    pub parameters: usize,
    /// When it was last used, in uses of the cache.
    pub(crate) used: u64,
}

/// A named statement.
pub struct Named {
    /// Its text.
    pub text: Box<[u8]>,
    /// Its statements.
    pub script: Script,
}

type Texts<V> = HashMap<Box<[u8]>, V, FixedState>;

/// See the module. The statements go before the handle.
pub struct Connection {
    pub(crate) cached: Texts<Script>,
    pub(crate) named: Texts<Named>,
    seen: Box<[u64; SEEN_LEN]>,
    pub(crate) uses: u64,
    /// Room for a text without its literals.
    pub(crate) alike: Vec<u8>,
    pub(crate) bytes: usize,
    pub(crate) has_short_values: bool,
    pub(crate) on_file: bool,
    /// The size that the database may have, in bytes; 0 for any.
    pub(crate) bytes_max: u64,
    /// What its commands may take, as the database keeps it.
    pub(crate) limits: Limits,
    /// What the database says of its indexes may have changed.
    pub(crate) indexes_changed: bool,
    /// It has, or had, a trigger with RAISE(FAIL): what fails may leave rows behind.
    pub(crate) fails_stay: bool,
    /// What it says of its limits may have changed.
    pub(crate) limits_changed: bool,
    begin: Statement,
    commit: Statement,
    rollback: Statement,
    pub(crate) save: Statement,
    pub(crate) release: Statement,
    back: Statement,
    /// SQLite's side.
    pub handle: Shared,
    /// How long it may run.
    pub budget: Arc<Budget>,
    /// A transaction of several commands is open.
    pub in_group: bool,
}

/// The savepoint that a command stands in; SQL may not touch it.
pub const SAVEPOINT: &str = "forebay_command";

fn open(path: Option<&Path>) -> Result<rusqlite::Connection, SqlError> {
    clock::register().map_err(|error| SqlError::general(&error))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let path = path.unwrap_or(Path::new(":memory:"));
    let connection = rusqlite::Connection::open_with_flags_and_vfs(path, flags, clock::NAME)?;
    Ok(connection)
}

/// What every connection starts with.
const SETTINGS: &str = "PRAGMA foreign_keys=ON; PRAGMA temp_store=MEMORY; \
     PRAGMA trusted_schema=OFF; \
     PRAGMA cell_size_check=ON;";
/// What one in memory starts with, besides.
const IN_MEMORY: &str = "PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF;";
/// What one on file starts with, besides.
const ON_FILE: &str = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA busy_timeout=2000;";

impl Connection {
    /// Opens a database in memory, or on file.
    ///
    /// # Errors
    /// SQLite's.
    pub fn open(path: Option<&Path>) -> Result<Connection, SqlError> {
        Connection::open_with(path, SETTINGS)
    }

    /// The same, for reading only.
    ///
    /// # Errors
    /// SQLite's.
    pub fn open_to_read(path: Option<&Path>) -> Result<Connection, SqlError> {
        Connection::open_with(path, &format!("{SETTINGS} PRAGMA query_only=ON;"))
    }

    fn open_with(path: Option<&Path>, settings: &str) -> Result<Connection, SqlError> {
        let mut connection = open(path)?;
        connection.execute_batch(settings)?;
        connection.execute_batch(if path.is_some() { ON_FILE } else { IN_MEMORY })?;
        let budget = Arc::new(Budget::default());
        budget.watch(&mut connection)?;
        frozen::install(&connection)?;
        let live = crate::raw::live::install(&connection)?;
        calls::install(&connection)?;
        guard::install(&mut connection)?;
        connection.set_prepared_statement_cache_capacity(4);
        let handle = Handle::new(connection, live);
        let own = |text: &str| match Statement::prepare(&handle, text.as_bytes(), true)? {
            (Some(statement), _) => Ok(statement),
            (None, _) => Err(SqlError::general("an own statement is empty")),
        };
        Ok(Connection {
            cached: HashMap::with_hasher(FixedState::default()),
            named: HashMap::with_hasher(FixedState::default()),
            seen: Box::new([0; SEEN_LEN]),
            uses: 0,
            alike: Vec::new(),
            bytes: 0,
            has_short_values: false,
            on_file: path.is_some(),
            bytes_max: 0,
            limits: Limits::default(),
            indexes_changed: false,
            fails_stay: false,
            limits_changed: false,
            begin: own("BEGIN IMMEDIATE")?,
            commit: own("COMMIT")?,
            rollback: own("ROLLBACK")?,
            save: own(&format!("SAVEPOINT {SAVEPOINT}"))?,
            release: own(&format!("RELEASE {SAVEPOINT}"))?,
            back: own(&format!("ROLLBACK TO {SAVEPOINT}"))?,
            handle,
            budget,
            in_group: false,
        })
    }

    // Transactions.

    /// Opens a transaction for several commands.
    ///
    /// # Errors
    /// SQLite's.
    pub fn begin_group(&mut self) -> Result<(), SqlError> {
        debug_assert!(!self.in_group);
        self.budget.allow(i64::MAX, None);
        own(&mut self.begin)?;
        self.in_group = true;
        Ok(())
    }

    /// Commits the group's transaction; if it cannot be, it is rolled back.
    ///
    /// # Errors
    /// SQLite's; then nothing of the group is left.
    pub fn commit_group(&mut self) -> Result<(), SqlError> {
        self.in_group = false;
        self.budget.allow(i64::MAX, None);
        own(&mut self.commit).inspect_err(|_| self.rollback_group())
    }

    /// Takes back what the group has done.
    pub fn rollback_group(&mut self) {
        self.in_group = false;
        self.budget.allow(i64::MAX, None);
        if !self.handle.is_autocommit() {
            // It can only fail if no transaction is open, which is what is wanted.
            let _ = own(&mut self.rollback);
        }
    }

    /// Takes back what the command did.
    pub(crate) fn undo_command(&mut self) {
        memory::lift();
        self.budget.allow(i64::MAX, None);
        if !self.handle.is_autocommit() && own(&mut self.back).is_ok() {
            let _ = own(&mut self.release);
        }
    }

    // Statements.

    /// Bytes that the database and its statements take, as of the last look.
    pub fn bytes(&mut self) -> usize {
        self.uses += 1;
        if self.bytes == 0 || self.uses & 63 == 0 {
            self.bytes = self.handle.memory();
        }
        self.bytes
    }

    /// Whether a text that is not kept was seen lately; it is from now on.
    pub(crate) fn was_seen(&mut self, text: &[u8]) -> bool {
        let hash = FixedState::default().hash_one(text);
        let place = &mut self.seen[hash as usize % SEEN_LEN];
        std::mem::replace(place, hash) == hash
    }

    /// Keeps the statements of a text that is likely to come again.
    pub(crate) fn keep(&mut self, text: &[u8], parts: Vec<Part>, is_likely: bool) {
        let are_row_work = parts.iter().all(|part| part.verb.is_row_work());
        if !is_likely || text.len() > KEPT_TEXT_MAX || !are_row_work {
            return;
        }
        if self.cached.len() >= CACHE_LEN {
            // The older half goes: rare, and each lookup stays one.
            let mut ages: Vec<u64> = self.cached.values().map(|script| script.used).collect();
            let middle = ages.len() / 2;
            let (_, middle, _) = ages.select_nth_unstable(middle);
            let middle = *middle;
            self.cached.retain(|_, script| script.used > middle);
        }
        let parameters = parameters(&parts);
        self.cached.insert(text.into(), Script { parts, parameters, used: self.uses });
    }

    /// Remembers a trigger by its text, if its failures can leave rows behind.
    pub(crate) fn note_trigger(&mut self, text: &[u8]) {
        self.fails_stay |= lexer::has_word(text, b"fail");
    }

    /// Forgets all kept statements: the database will be another one.
    pub fn forget(&mut self) {
        self.cached.clear();
        self.named.clear();
    }
}

/// Runs one of a connection's own statements.
pub(crate) fn own(statement: &mut Statement) -> Result<(), SqlError> {
    statement.run(std::iter::empty(), |_| Ok::<_, SqlError>(true))
}

fn parameters(parts: &[Part]) -> usize {
    parts.iter().map(|part| part.statement.parameters()).max().unwrap_or(0)
}

const NUL: &str = "unrecognized token: a NUL character";

/// Prepares the first statement of a text; also returns how many bytes it took.
pub(crate) fn prepare(
    handle: &Shared,
    text: &[u8],
    keep: bool,
) -> Result<(Option<Part>, usize), SqlError> {
    guard::forget_seen();
    let (statement, used) = Statement::prepare(handle, text, keep)?;
    let reads_files = guard::saw_files();
    let writes_live = guard::writes_only(|table| handle.is_live(table));
    let calls = writes_live || guard::saw_calls();
    let Some(statement) = statement else {
        // SQLite ends its reading at a NUL: what follows would be passed over, or read for ever.
        let is_all = lexer::skip_blank(&text[used..]).is_empty();
        return if is_all { Ok((None, used)) } else { Err(SqlError::general(NUL)) };
    };
    let own = &text[..used];
    let verb = lexer::verb(own);
    let may_walk = match verb {
        Verb::Delete => !lexer::has_word(own, b"where"),
        Verb::Query => lexer::has_word(own, b"count") || lexer::has_word(own, b"match"),
        Verb::Change => false,
        _ => true,
    };
    let (is_long, runs) = (false, 0);
    let may_stay = !statement.is_read_only() && lexer::has_word(own, b"fail");
    Ok((
        Some(Part {
            statement,
            verb,
            is_long,
            runs,
            may_walk,
            reads_files,
            may_stay,
            calls,
            writes_live,
        }),
        used,
    ))
}

/// Prepares all statements of a text.
pub(crate) fn script_of(handle: &Shared, text: &[u8], keep: bool) -> Result<Script, SqlError> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while !lexer::skip_blank(rest).is_empty() {
        let (part, used) = prepare(handle, rest, keep)?;
        parts.extend(part);
        rest = &rest[used..];
    }
    Ok(Script { parameters: parameters(&parts), parts, used: 0 })
}
