//! The command table's row: everything that is known of a command, beside its handler.
//!
//! COMMAND, COMMAND DOCS, ACL categories, arity checks, lock sets, `forebay cli`'s hints and
//! docs/commands.md all come from these constants. Arity is not written: it is counted from the
//! usage's required words.

use crate::context::Context;
use crate::error::Error;
use crate::registry::Entry;
use resp::{Args, Requests};

/// What runs a command. An `Err` is its reply; nothing may have been written or changed then.
pub type Run = fn(&mut Context<'_>, Args<'_>) -> Result<(), Error>;

/// Commands of a pipeline that come one after the other and are run together.
pub struct Pipeline<'p> {
    /// What each of them is.
    pub entries: &'p [&'p Entry],
    /// All commands that came.
    pub requests: &'p Requests,
    /// Their bytes.
    pub input: &'p [u8],
    /// The first of them.
    pub first: usize,
}

impl<'p> Pipeline<'p> {
    /// The words of one of them.
    pub fn args(&self, index: usize) -> Args<'p> {
        self.requests.command(self.first + index, self.input)
    }
}

/// Runs several commands that have one key, the same, at once: all their replies, errors included,
/// and their log records are its work. Returns how many it took, at least one; bit N is set if the
/// Nth one failed. It may leave the client blocked: the replies of those it took and has not
/// answered then come together.
pub type RunMany = fn(&mut Context<'_>, &Pipeline<'_>) -> (usize, u64);

/// A command's properties, as bits.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// Both.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether all of `other` are in here.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

macro_rules! flags {
    ($($name:ident = $bit:expr, $text:expr, $doc:literal;)*) => {
        $(#[doc = $doc] pub const $name: Flags = Flags(1 << $bit);)*
        /// Every flag that COMMAND INFO tells, with its name there.
        pub const FLAG_NAMES: &[(Flags, &str)] = &[$(($name, $text)),*];
    };
}

flags! {
    WRITE = 0, "write", "May change keys.";
    READONLY = 1, "readonly", "Reads keys, changes none.";
    DENY_OOM = 2, "denyoom", "Refused when memory is short.";
    ADMIN = 3, "admin", "For administrators.";
    PUBSUB = 4, "pubsub", "Publish and subscribe.";
    NO_SCRIPT = 5, "noscript", "Not from scripts.";
    RANDOM = 6, "", "Not the same reply each time.";
    BLOCKING = 7, "blocking", "May make the client wait.";
    LOADING = 8, "loading", "Allowed while data is being loaded.";
    STALE = 9, "stale", "Allowed on a replica that lost its primary.";
    SKIP_MONITOR = 10, "skip_monitor", "Not shown by MONITOR.";
    SKIP_SLOWLOG = 11, "skip_slowlog", "Not kept in the slow log.";
    FAST = 12, "fast", "Constant or logarithmic time.";
    NO_AUTH = 13, "no_auth", "Allowed before authentication.";
    MAY_REPLICATE = 14, "", "Is replicated though it changes no key.";
    NO_MULTI = 15, "no_multi", "Not inside MULTI.";
    MOVABLE_KEYS = 16, "movablekeys", "Where its keys are depends on its words.";
    ALLOW_BUSY = 17, "allow_busy", "Allowed while a script is busy.";
    NO_MANDATORY_KEYS = 18, "no_mandatory_keys", "May come without a key.";
    NO_ASYNC_LOADING = 19, "no_async_loading", "Refused while a replica loads beside serving.";
    ALL_KEYS = 20, "", "Works on the whole keyspace: takes every lock.";
    TRANSACTION = 21, "", "Controls MULTI itself: never queued.";
    DANGEROUS = 22, "", "In the ACL category `dangerous` (ADMIN commands are anyway).";
    SUBSCRIBED = 23, "", "Allowed to a RESP2 client that has subscriptions.";
    VISITS_ALL = 24, "", "Looks at undeclared keys, shard by shard; in EXEC, takes every lock.";
    SCRIPT = 25, "", "Runs a script, which may touch undeclared keys; in EXEC, takes every lock.";
    ATOMIC = 26, "", "Makes a transaction that has it all or nothing: an error undoes it.";
}

/// No flag.
pub const NONE: Flags = Flags(0);

/// Where a command's keys are among its words.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum Find {
    /// From `first` to `last` (negative: from the end; -1 = the last word), each `step`-th.
    Range { first: usize, last: i32, step: usize },
    /// The word at `at` says how many keys follow it, from the word after it on.
    Count { at: usize },
    /// The word after this one, wherever it stands from `from` on; the last one if there are more
    /// (STORE in GEORADIUS).
    After { keyword: &'static str, from: usize },
    /// As `After`, among options of which some take words of their own, given with their number:
    /// those words are no options (STORE in SORT).
    Option { keyword: &'static str, from: usize, others: &'static [(&'static str, usize)] },
    /// Keys whose names are not among the words (BY and GET in SORT).
    Unknown,
    /// As many keys as fit in half of what follows this word (STREAMS).
    HalfAfter { keyword: &'static str, from: usize },
    /// The word at `at`, unless there is the option `keyword` (MIGRATE's one key).
    Unless {
        at: usize,
        keyword: &'static str,
        from: usize,
        others: &'static [(&'static str, usize)],
    },
    /// All that follows the option `keyword` (KEYS in MIGRATE), found as in `Option`.
    Rest { keyword: &'static str, from: usize, others: &'static [(&'static str, usize)] },
}

/// One group of keys and what is done to them.
#[derive(Debug, Clone, Copy)]
pub struct KeySpec {
    /// Where they are.
    pub find: Find,
    /// The flags of COMMAND INFO's key specifications, such as `RW`, `access`, `update`.
    pub flags: &'static [&'static str],
}

impl KeySpec {
    const fn range(
        first: usize,
        last: i32,
        step: usize,
        flags: &'static [&'static str],
    ) -> KeySpec {
        KeySpec { find: Find::Range { first, last, step }, flags }
    }
}

/// Read and returned.
pub const RO: &[&str] = &["RO", "access"];
/// Only looked at for its existence, type or length.
pub const RO_META: &[&str] = &["RO"];
/// Read, returned and changed.
pub const RW: &[&str] = &["RW", "access", "update"];
/// Changed depending on what it held, which is not returned.
pub const RW_UPDATE: &[&str] = &["RW", "update"];
/// New data is added to it.
pub const RW_INSERT: &[&str] = &["RW", "insert"];
/// Data is taken out of it and returned.
pub const RW_TAKE: &[&str] = &["RW", "access", "delete"];
/// Data is taken out of it.
pub const RM: &[&str] = &["RW", "delete"];
/// Overwritten.
pub const OW: &[&str] = &["OW", "update"];
/// Removed.
pub const REMOVE: &[&str] = &["RM", "delete"];

/// No key.
pub const NO_KEYS: &[KeySpec] = &[];

/// The first word after the name.
pub const fn first(flags: &'static [&'static str]) -> KeySpec {
    KeySpec::range(1, 1, 1, flags)
}

/// The word at `index`.
pub const fn at(index: usize, flags: &'static [&'static str]) -> KeySpec {
    KeySpec::range(index, index as i32, 1, flags)
}

/// The words from `index` to `last` (negative: from the end), each `step`-th.
pub const fn range(
    index: usize,
    last: i32,
    step: usize,
    flags: &'static [&'static str],
) -> KeySpec {
    KeySpec::range(index, last, step, flags)
}

/// As many as the word at `index` says, after it.
pub const fn counted(index: usize, flags: &'static [&'static str]) -> KeySpec {
    KeySpec { find: Find::Count { at: index }, flags }
}

/// The word after `keyword`, which stands at `from` or later.
pub const fn after(keyword: &'static str, from: usize, flags: &'static [&'static str]) -> KeySpec {
    KeySpec { find: Find::After { keyword, from }, flags }
}

/// The word after the option `keyword`, where `others` are options that take words as well.
pub const fn option(
    keyword: &'static str,
    from: usize,
    others: &'static [(&'static str, usize)],
    flags: &'static [&'static str],
) -> KeySpec {
    KeySpec { find: Find::Option { keyword, from, others }, flags }
}

/// Keys that the words do not name.
pub const fn unknown(flags: &'static [&'static str]) -> KeySpec {
    KeySpec { find: Find::Unknown, flags }
}

/// Groups of commands, as COMMAND DOCS and the ACL name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Group {
    Generic,
    String,
    Bitmap,
    List,
    Set,
    SortedSet,
    Hash,
    Stream,
    Geo,
    HyperLogLog,
    PubSub,
    Transactions,
    Connection,
    Server,
    Scripting,
    Sql,
}

impl Group {
    /// The name in COMMAND DOCS.
    pub fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::Bitmap => "bitmap",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Hash => "hash",
            Group::Stream => "stream",
            Group::Geo => "geo",
            Group::HyperLogLog => "hyperloglog",
            Group::PubSub => "pubsub",
            Group::Transactions => "transactions",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Scripting => "scripting",
            Group::Sql => "sql",
        }
    }

    /// The ACL category of all the group's commands, if it has one.
    pub fn category(self) -> Option<&'static str> {
        Some(match self {
            Group::Generic => "keyspace",
            Group::String => "string",
            Group::Bitmap => "bitmap",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sortedset",
            Group::Hash => "hash",
            Group::Stream => "stream",
            Group::Geo => "geo",
            Group::HyperLogLog => "hyperloglog",
            Group::PubSub => "pubsub",
            Group::Transactions => "transaction",
            Group::Connection => "connection",
            Group::Scripting => "scripting",
            Group::Sql => "sql",
            Group::Server => return None,
        })
    }
}

/// A command; see the module.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// In capitals; a subcommand's own word only.
    pub name: &'static str,
    /// Its handler; never called for a command that has subcommands and gets one.
    pub run: Run,
    /// Runs several of one key together, if that is cheaper: commands with the same function.
    pub run_many: Option<RunMany>,
    /// What its family knows of it, for handlers that serve several commands.
    pub extra: Option<&'static (dyn std::any::Any + Send + Sync)>,
    /// Its properties.
    pub flags: Flags,
    /// Its keys.
    pub keys: &'static [KeySpec],
    /// The word that is looked up inside the collection at the first key (a field, a member), 0 if
    /// there is none: it is fetched into the cache ahead when the command comes in a batch.
    pub element: usize,
    /// Whether the words ask for every lock though the table does not (SORT with BY). Called with
    /// the whole command.
    pub wants_all_keys: Option<fn(Args<'_>) -> bool>,
    /// The words after the name, in Redis's notation: `key [NX | XX] [GET] element [element ...]`.
    pub usage: &'static str,
    /// Words, name included, when `usage` cannot say it; negative: at least.
    pub arity_override: i32,
    /// One sentence.
    pub summary: &'static str,
    /// In O notation.
    pub complexity: &'static str,
    /// The version of Redis (or Valkey) that first had it.
    pub since: &'static str,
    /// ACL categories besides those that follow from its flags; `None` = its group's.
    pub categories: Option<&'static [&'static str]>,
    /// Hints for clients and proxies, as COMMAND INFO tells them.
    pub tips: &'static [&'static str],
    /// The version that advised against it, if one has, and what to use instead.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// Its subcommands; a command that has any is only a container.
    pub sub: &'static [Command],
}

fn unreachable(_: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    Err(Error::text("ERR this command needs a subcommand"))
}

impl Command {
    /// What a row need not say: no flags, no keys, no subcommands.
    pub const DEFAULT: Command = Command {
        name: "",
        run: unreachable,
        run_many: None,
        extra: None,
        flags: NONE,
        keys: NO_KEYS,
        element: 0,
        wants_all_keys: None,
        usage: "",
        arity_override: 0,
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        categories: None,
        tips: &[],
        deprecated: None,
        sub: &[],
    };

    /// Number of words, the name included; negative: at least so many.
    pub const fn arity(&self) -> i32 {
        if self.arity_override != 0 {
            return self.arity_override;
        }
        if !self.sub.is_empty() {
            return -2;
        }
        count_words(self.usage.as_bytes())
    }
}

/// Counts the words outside brackets, one for the name; a `...` or an optional part makes it a
/// minimum. Alternatives in `<a | b>` count as the shorter one when all have one word.
const fn count_words(usage: &[u8]) -> i32 {
    let mut words = 1;
    let mut open = false;
    let mut depth = 0;
    let mut index = 0;
    let mut in_word = false;
    // Inside <a | b c>: only the first alternative counts.
    let mut angle = 0;
    let mut skipping = false;
    while index < usage.len() {
        let byte = usage[index];
        if byte == b'[' {
            depth += 1;
            open = true;
            in_word = false;
        } else if byte == b']' {
            depth -= 1;
            in_word = false;
        } else if depth == 0 && byte == b'<' {
            angle += 1;
            in_word = false;
        } else if depth == 0 && byte == b'>' {
            angle -= 1;
            skipping = false;
            in_word = false;
        } else if depth == 0 && byte == b'|' {
            skipping = angle > 0;
            in_word = false;
        } else if byte == b' ' {
            in_word = false;
        } else if depth == 0 && !in_word && !skipping {
            in_word = true;
            if byte == b'.' {
                open = true;
            } else {
                words += 1;
            }
        }
        index += 1;
    }
    if open { -words } else { words }
}

/// Commands that belong together: one file of a crate.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// The group of all its commands.
    pub group: Group,
    /// Its rows.
    pub commands: &'static [Command],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arity_is_counted_from_the_usage() {
        let cases = [
            ("", 1),
            ("key", 2),
            ("key value [NX | XX] [GET]", -3),
            ("key field value [field value ...]", -4),
            ("key index", 3),
            ("key <BEFORE | AFTER> pivot element", 5),
            ("numkeys key [key ...] <LEFT | RIGHT> [COUNT count]", -4),
            ("[section [section ...]]", -1),
        ];
        for (usage, arity) in cases {
            assert_eq!(Command { usage, ..Command::DEFAULT }.arity(), arity, "{usage}");
        }
    }
}
