//! What is asked of a table, and what is answered.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::matching::Matcher;
use super::page::Page;
use super::query::{Shape, Target};
use super::schema::Table;
use super::trust::Trust;
use super::versions::Versions;
use crate::database::{DatabaseError, Value};
use crate::pace::Pace;
use crate::quota::secret::digest;

/// Keys longer than this end in a digest, in bytes.
const KEY_BYTES_MAX: usize = 240;

/// A table that is served.
#[derive(Debug)]
pub struct Served {
    /// What it is.
    pub table: Table,
    /// What is known of its version.
    pub versions: Arc<Versions>,
    /// Which columns are compared in memory as in the database.
    pub trust: Trust,
    /// How changes by others are noticed.
    pub watch: Watch,
    /// The version when the service began, and when the change was made that led to it.
    pub begun: (i64, i64),
    /// Whether kept answers are known to be of this database's past, not of one that was undone.
    pub is_compared: AtomicBool,
    /// What work on it has cost lately.
    pub paces: Arc<Paces>,
}

/// What work on a table has cost lately.
#[derive(Debug, Default)]
pub struct Paces {
    /// Changes.
    pub change: Pace,
    /// Reading one row.
    pub row: Pace,
}

/// How changes by others are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// Triggers count them, and the count is looked at so often, in milliseconds.
    Triggers(u64),
    /// Not at all: an answer may be as old as its time to live.
    Nothing,
}

/// A question whose answer can be kept: equal ones have the same key.
#[derive(Debug)]
pub struct Ask {
    /// The table.
    pub served: Arc<Served>,
    /// What is to be read.
    pub target: Target,
    /// Whose rows, where the table has owners.
    pub owner: Option<Arc<str>>,
    /// The shape of the answer.
    pub shape: Shape,
    /// The key of the answer: `cache:TABLE:SHAPE[:u=OWNER]:what`.
    pub key: Arc<str>,
}

/// Text as a part of a key: no colons, blanks or control characters.
fn escaped(text: &str) -> String {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@|".contains(&byte);
    let escape = |byte: u8| match byte {
        byte if good(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02x}"),
    };
    text.bytes().map(escape).collect()
}

/// How the keys of a table begin.
pub fn prefix(table: &str) -> String {
    format!("cache:{table}:")
}

impl Ask {
    /// A question. `user` counts only where the table has owners.
    pub fn new(served: &Arc<Served>, target: Target, shape: Shape, user: Option<&Arc<str>>) -> Ask {
        let table = &served.table;
        let owner = table.owner.and(user.map(Arc::clone));
        let number = if shape == Shape::Zumo2 { '2' } else { '3' };
        let mut key = format!("{}{number}:", prefix(&table.name));
        if table.owner.is_some() {
            key += &format!("u={}:", escaped(owner.as_deref().unwrap_or("")));
        }
        let what = target.canonical(table);
        if key.len() + what.len() > KEY_BYTES_MAX || what.bytes().any(|byte| byte < b' ') {
            key += &format!("{}#{}", &what[..2], &digest(what.as_bytes())[..40]);
        } else {
            key += &what;
        }
        Ask { served: Arc::clone(served), target, owner, shape, key: key.into() }
    }

    /// Whether an answer with this label is as good as a new one.
    pub fn is_good(&self, label: i64) -> bool {
        match &self.target {
            Target::List(_) => self.served.versions.is_list_good(label),
            Target::One { id, .. } => self.served.versions.is_row_good(id, label),
        }
    }

    /// Whether a list that was right at version `from` is right at `to`: nothing has changed since
    /// then but rows that are certainly not of it.
    pub fn outlives(&self, from: i64, to: i64) -> bool {
        let Target::List(query) = &self.target else { return false };
        let Served { table, trust, versions, .. } = &*self.served;
        let mut matcher = Matcher::new(query, table, trust, self.owner.as_deref());
        versions.only(from, to, |touched| matcher.is_spared(touched))
    }
}

/// What a request allows. Ages are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Control {
    /// `no-cache`: the answer has to be a new one.
    pub no_cache: bool,
    /// `no-store`: it is not to be kept.
    pub no_store: bool,
    /// `only-if-cached`: it must not be a new one.
    pub only_if_cached: bool,
    /// `max-age`
    pub max_age_ms: Option<u64>,
    /// `min-fresh`
    pub min_fresh_ms: u64,
    /// `max-stale`; what is stale is not wanted if `Some(0)`.
    pub max_stale_ms: Option<u64>,
    /// The table's version that the client knows of: nothing older will do.
    pub at_least: i64,
}

/// Why an answer is a new one; the words of RFC 9211.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    /// The table is not cached, or the request wants nothing kept.
    Bypass,
    /// There was none.
    UriMiss,
    /// The request demanded it.
    Request,
    /// There was one past its time.
    Expired,
    /// There was one from before a change of the table.
    Changed,
}

impl Forward {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Forward::Bypass => "bypass",
            Forward::UriMiss => "uri-miss",
            Forward::Request => "request",
            Forward::Expired | Forward::Changed => "stale",
        }
    }
}

/// Where an answer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// Memory, fresh.
    Hit,
    /// Memory, past its time while it is renewed.
    Stale,
    /// Memory, because the database did not answer in time.
    StaleIfError,
    /// The database.
    New {
        /// Why.
        why: Forward,
        /// Whether it is kept now.
        is_kept: bool,
        /// Whether another request had begun the query.
        is_shared: bool,
    },
}

/// An answer and where it comes from.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The answer.
    pub page: Arc<Page>,
    /// Where it comes from.
    pub from: From,
    /// How old it is.
    pub age_ms: i64,
    /// How long it is fresh from now on; below 0 if it is not.
    pub fresh_ms: i64,
}

impl Answer {
    /// Whether it lies there for others.
    pub fn is_kept(&self) -> bool {
        matches!(self.from, From::Hit | From::Stale | From::New { is_kept: true, .. })
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// `only-if-cached`, and there is none.
    NotKept,
    /// Too many wait already, or it took too long.
    Busy(&'static str),
    /// The database has not come to the version that the client knows of.
    Behind,
    /// The database did not do it.
    Database(DatabaseError),
}

/// What a change is to do.
#[derive(Debug, Clone)]
pub enum Verb {
    /// A new row.
    Insert,
    /// Columns of a row set.
    Update,
    /// All columns of a row set.
    Replace,
    /// A row removed, or marked.
    Delete,
    /// The mark taken away.
    Undelete,
}

/// A change of one row.
#[derive(Debug)]
pub struct Change {
    /// The table.
    pub served: Arc<Served>,
    /// What is to be done.
    pub verb: Verb,
    /// The row; null for a new one whose number the database gives.
    pub id: Value,
    /// Columns and what to set them to, `id` not among them.
    pub sets: Vec<(usize, Value)>,
    /// Whose row it has to be.
    pub owner: Option<Arc<str>>,
    /// The `version` that the row has to have.
    pub condition: Option<String>,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum Changed {
    /// It is done; the row, or none if it is gone, and the table's version now.
    Done {
        /// The row's values, all columns.
        row: Option<Vec<Value>>,
        /// The table's version.
        version: i64,
    },
    /// There is no such row.
    NotFound,
    /// The row is marked as deleted.
    Deleted,
    /// The row has another version; this is the row.
    Mismatch(Vec<Value>),
    /// There is a row with this id.
    Exists,
}

/// Takes an answer of the database, once.
pub type Done = Box<dyn FnOnce(Result<Filled, Fault>) + Send>;

/// A new answer.
#[derive(Debug, Clone)]
pub struct Filled {
    /// It.
    pub page: Arc<Page>,
    /// Whether it is kept.
    pub is_kept: bool,
}

/// Takes what became of a change, once.
pub type ChangeDone = Box<dyn FnOnce(Result<Changed, Fault>) + Send>;
