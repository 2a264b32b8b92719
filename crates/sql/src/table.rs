//! The command table: every name of every dialect, each with how its words are read.

use commands::command::{
    ADMIN, ATOMIC, Command, DENY_OOM, FAST, Family, Group, KeySpec, NO_MULTI, NO_SCRIPT, READONLY,
    RO, RW, WRITE, after, at, first,
};

use crate::{create, cursor, native, serve, transaction, v1, v2};

/// Changes a database.
const CHANGES: Command = Command {
    run: serve::run,
    run_many: Some(serve::run_many),
    flags: WRITE.with(DENY_OOM).with(ATOMIC),
    keys: &[first(RW)],
    arity_override: -2,
    complexity: "Depends on the SQL",
    since: "1.0.0",
    ..Command::DEFAULT
};

/// Reads a database.
const READS: Command = Command { flags: READONLY.with(ATOMIC), keys: &[first(RO)], ..CHANGES };

/// Reads a database into a stream.
const INTO: Command = Command {
    run_many: None,
    flags: WRITE.with(DENY_OOM).with(ATOMIC),
    keys: INTO_KEYS,
    arity_override: -3,
    ..CHANGES
};

const INTO_KEYS: &[KeySpec] = &[at(1, RW), at(2, RO)];

/// Makes a database.
const CREATES: Command =
    Command { run_many: None, flags: WRITE.with(DENY_OOM), complexity: "O(1)", ..CHANGES };

const TELLS: Command = Command { flags: READONLY, arity_override: -1, ..Command::DEFAULT };

/// What the second dialect's EXEC and QUERY are told.
const WORDS: &str = "db <COMMAND sql | STATEMENT name> [NOW] [READ_ONLY] [INTO stream] \
     [NO_HEADER] [ARGS arg ...]";
/// What SQL.EXEC is told.
const VALUES: &str = "db sql [READONLY] [TIMEOUT ms] [ROWS rows] [BYTES bytes] [MEMORY bytes] \
     [VALUES value ... | TYPED types value ... | \
     NAMED name value ...]";

/// The family.
pub const FAMILY: Family = Family { group: Group::Sql, commands: COMMANDS };

/// Makes a command of a name and what it has in common with others.
macro_rules! row {
    ($name:literal { $($field:tt)* }) => { Command { name: $name, $($field)* } };
}

/// Makes a command of each name: those in one list differ in nothing else.
macro_rules! rows {
    ($([$($name:literal),+] => $fields:tt)*) => { &[$($(row!($name $fields)),+),*] };
}

/// The rows.
pub const COMMANDS: &[Command] = rows! {
    ["REDISQL.EXEC", "REDISQL.EXEC.NOW"] => {
        extra: Some(&v1::EXEC),
        usage: "db sql",
        summary: "Runs SQL on a database.",
        ..CHANGES
    }
    ["REDISQL.QUERY", "REDISQL.QUERY.NOW"] => {
        extra: Some(&v1::QUERY),
        usage: "db sql",
        summary: "Runs SQL that only reads.",
        ..READS
    }
    ["REDISQL.EXEC_STATEMENT", "REDISQL.V1.EXEC_STATEMENT", "ZEESQL.V1.EXEC_STATEMENT"] => {
        extra: Some(&v1::EXEC_STATEMENT),
        usage: "db name [arg ...]",
        summary: "Runs a named statement.",
        ..CHANGES
    }
    ["REDISQL.QUERY_STATEMENT", "REDISQL.V1.QUERY_STATEMENT", "ZEESQL.V1.QUERY_STATEMENT"] => {
        extra: Some(&v1::QUERY_STATEMENT),
        usage: "db name [arg ...]",
        summary: "Runs a named statement that only reads.",
        ..READS
    }
    ["REDISQL.CREATE_STATEMENT", "REDISQL.CREATE_STATEMENT.NOW", "REDISQL.V1.CREATE_STATEMENT",
     "REDISQL.V1.CREATE_STATEMENT.NOW", "ZEESQL.V1.CREATE_STATEMENT"] => {
        extra: Some(&v1::CREATE_STATEMENT),
        usage: "db name sql",
        summary: "Names a statement.",
        ..CHANGES
    }
    ["REDISQL.UPDATE_STATEMENT", "REDISQL.UPDATE_STATEMENT.NOW", "REDISQL.V1.UPDATE_STATEMENT",
     "REDISQL.V1.UPDATE_STATEMENT.NOW", "ZEESQL.V1.UPDATE_STATEMENT"] => {
        extra: Some(&v1::UPDATE_STATEMENT),
        usage: "db name sql",
        summary: "Changes a named statement.",
        ..CHANGES
    }
    ["REDISQL.DELETE_STATEMENT", "REDISQL.DELETE_STATEMENT.NOW", "REDISQL.V1.DELETE_STATEMENT",
     "REDISQL.V1.DELETE_STATEMENT.NOW", "ZEESQL.V1.DELETE_STATEMENT"] => {
        extra: Some(&v1::DELETE_STATEMENT),
        usage: "db name",
        summary: "Forgets a named statement.",
        ..CHANGES
    }
    ["REDISQL.QUERY.INTO", "REDISQL.QUERY.INTO.NOW", "REDISQL.V1.QUERY.INTO",
     "REDISQL.V1.QUERY.INTO.NOW", "ZEESQL.V1.QUERY.INTO"] => {
        extra: Some(&v1::QUERY_INTO),
        usage: "stream db sql",
        summary: "Adds the rows of a query to a stream.",
        ..INTO
    }
    ["REDISQL.QUERY_STATEMENT.INTO", "REDISQL.QUERY_STATEMENT.INTO.NOW",
     "REDISQL.V1.QUERY_STATEMENT.INTO", "REDISQL.V1.QUERY_STATEMENT.INTO.NOW",
     "ZEESQL.V1.QUERY_STATEMENT.INTO"] => {
        extra: Some(&v1::QUERY_STATEMENT_INTO),
        usage: "stream db name [arg ...]",
        summary: "Adds the rows of a named statement to a stream.",
        ..INTO
    }
    ["REDISQL.COPY", "REDISQL.COPY.NOW", "REDISQL.V1.COPY", "REDISQL.V1.COPY.NOW"] => {
        extra: Some(&v1::COPY),
        run_many: None,
        keys: &[at(1, RO), at(2, RW)],
        usage: "source destination",
        summary: "Makes a database a copy of another.",
        ..CHANGES
    }
    ["REDISQL.EXEC_STATEMENT.NOW", "REDISQL.V1.EXEC_STATEMENT.NOW"] => {
        extra: Some(&v1::EXEC_STATEMENT_NOW),
        usage: "db name [arg ...]",
        summary: "Runs a named statement.",
        ..CHANGES
    }
    ["REDISQL.QUERY_STATEMENT.NOW", "REDISQL.V1.QUERY_STATEMENT.NOW"] => {
        extra: Some(&v1::QUERY_STATEMENT_NOW),
        usage: "db name [arg ...]",
        summary: "Runs a named statement that only reads.",
        ..READS
    }
    ["REDISQL.CREATE_DB"] => {
        run: create::create_db,
        usage: "db [path]",
        summary: "Makes a database, in memory or on file.",
        ..CREATES
    }
    ["REDISQL.STATISTICS", "REDISQL.V1.STATISTICS", "REDISQL.V2.STATISTICS", "ZEESQL.STATISTICS",
     "ZEESQL.V2.STATISTICS"] => {
        run: create::tell_statistics,
        usage: "",
        summary: "Tells how often each command ran.",
        ..TELLS
    }
    ["REDISQL.VERSION", "REDISQL.V1.VERSION", "REDISQL.V2.VERSION", "ZEESQL.VERSION",
     "ZEESQL.V2.VERSION"] => {
        run: create::tell_version,
        usage: "",
        summary: "Tells the version of RediSQL that is spoken.",
        ..TELLS
    }
    ["REDISQL.V1.EXEC", "REDISQL.V1.EXEC.NOW", "ZEESQL.V1.EXEC"] => {
        extra: Some(&v1::EXEC_V1),
        usage: "db sql",
        summary: "Runs SQL on a database.",
        ..CHANGES
    }
    ["REDISQL.V1.QUERY", "REDISQL.V1.QUERY.NOW", "ZEESQL.V1.QUERY"] => {
        extra: Some(&v1::QUERY_V1),
        usage: "db sql",
        summary: "Runs SQL that only reads.",
        ..READS
    }
    ["REDISQL.V1.CREATE_DB", "ZEESQL.V1.CREATE_DB"] => {
        run: create::create_v1,
        usage: "db [path]",
        summary: "Makes a database, in memory or on file.",
        ..CREATES
    }
    ["REDISQL.V2.EXEC"] => {
        extra: Some(&v2::EXEC),
        keys: &[first(RW), after("INTO", 2, RW)],
        usage: WORDS,
        summary: "Runs SQL or a named statement.",
        ..CHANGES
    }
    ["REDISQL.V2.QUERY"] => {
        extra: Some(&v2::QUERY),
        keys: &[first(RO), after("INTO", 2, RW)],
        usage: WORDS,
        summary: "Runs SQL or a named statement that only reads.",
        ..READS
    }
    ["REDISQL.V2.STATEMENT", "ZEESQL.STATEMENT", "ZEESQL.V2.STATEMENT", "REDISQL.STATEMENT"] => {
        extra: Some(&v2::STATEMENT),
        usage: "db <NEW | UPDATE | DELETE | SHOW | LIST> [name] [sql]",
        summary: "Names, changes, forgets or tells statements.",
        ..CHANGES
    }
    ["REDISQL.V2.CREATE_DB", "ZEESQL.CREATE_DB", "ZEESQL.V2.CREATE_DB"] => {
        run: create::create_v2,
        usage: "db [PATH path] [CAN_EXIST | MUST_CREATE]",
        summary: "Makes a database, in memory or on file.",
        ..CREATES
    }
    ["ZEESQL.EXEC", "ZEESQL.V2.EXEC"] => {
        extra: Some(&v2::ZEE_EXEC),
        keys: &[first(RW), after("INTO", 2, RW)],
        usage: WORDS,
        summary: "Runs SQL or a named statement.",
        ..CHANGES
    }
    ["ZEESQL.QUERY", "ZEESQL.V2.QUERY"] => {
        extra: Some(&v2::ZEE_QUERY),
        keys: &[first(RO), after("INTO", 2, RW)],
        usage: WORDS,
        summary: "Runs SQL or a named statement that only reads.",
        ..READS
    }
    ["ZEESQL.COPY", "ZEESQL.V2.COPY"] => {
        extra: Some(&v2::COPY),
        run_many: None,
        keys: &[at(2, RO), at(4, RW)],
        usage: "FROM source TO destination [NOW]",
        summary: "Makes a database a copy of another.",
        ..CHANGES
    }
    ["ZEESQL.LICENSE"] => {
        run: create::license,
        usage: "[SET key]",
        summary: "Does nothing: there is no licence to buy.",
        ..TELLS
    }
    ["SQL.APPLY"] => {
        run: create::apply,
        run_many: None,
        flags: WRITE.with(ADMIN),
        arity_override: -6,
        usage: "db sequence now-ms seed command [arg ...]",
        summary: "Does again what the log says.",
        ..CHANGES
    }
    ["SQL.CREATE"] => {
        run: create::create_native,
        usage: "db [path]",
        summary: "Makes a database, in memory or on file.",
        ..CREATES
    }
    ["SQL.EXEC"] => {
        extra: Some(&native::EXEC),
        usage: VALUES,
        arity_override: -3,
        summary: "Runs SQL with typed values, and answers rows under names and types.",
        ..CHANGES
    }
    ["SQL.QUERY"] => {
        extra: Some(&native::QUERY),
        usage: "db sql [TIMEOUT ms] [ROWS rows] [BYTES bytes] [MEMORY bytes] [VALUES value ... | \
            TYPED types value ... | NAMED name value ...]",
        arity_override: -3,
        summary: "Runs SQL that only reads, as SQL.EXEC.",
        ..READS
    }
    ["SQL.CALL"] => {
        extra: Some(&native::CALL),
        usage: "db name [TIMEOUT ms] [ROWS rows] [BYTES bytes] [MEMORY bytes] [VALUES value ... | \
            TYPED types value ... | NAMED name value ...]",
        arity_override: -3,
        summary: "Runs a named statement, as SQL.EXEC.",
        ..CHANGES
    }
    ["SQL.BATCH"] => {
        extra: Some(&native::BATCH),
        usage: "db sql [TIMEOUT ms] [MEMORY bytes] <width | TYPED types> value [value ...]",
        arity_override: -5,
        summary: "Runs a statement once for each row of values, all or nothing.",
        complexity: "O(N), N = rows",
        ..CHANGES
    }
    ["SQL.EXPLAIN"] => {
        extra: Some(&native::EXPLAIN),
        usage: "db sql",
        arity_override: 3,
        summary: "Tells how SQLite would run a statement.",
        ..READS
    }
    ["SQL.STATS"] => {
        extra: Some(&native::STATS),
        usage: "db",
        arity_override: 2,
        summary: "Tells how often the kept statements ran, and in how many steps.",
        complexity: "O(N), N = kept statements",
        ..READS
    }
    ["SQL.LIMITS"] => {
        extra: Some(&native::LIMITS),
        usage: "db [TIMEOUT ms] [ROWS rows] [BYTES bytes] [MEMORY bytes] [SIZE bytes]",
        summary: "Tells or sets what the commands on a database may take; 0 = as the server.",
        complexity: "O(1)",
        ..CHANGES
    }
    ["SQL.SAVE"] => {
        extra: Some(&native::SAVE),
        usage: "db file",
        arity_override: 3,
        summary: "Writes a copy of a database into a file.",
        complexity: "O(N), N = bytes",
        ..READS
    }
    ["SQL.LOAD"] => {
        extra: Some(&native::LOAD),
        run_many: None,
        usage: "db file",
        arity_override: 3,
        summary: "Makes a database a copy of a SQLite file.",
        complexity: "O(N), N = bytes",
        ..CHANGES
    }
    ["SQL.ATTACH"] => {
        extra: Some(&native::ATTACH),
        run_many: None,
        usage: "db file name",
        arity_override: 4,
        summary: "Attaches a SQLite file to a database, to be read under a name.",
        complexity: "O(1)",
        ..CHANGES
    }
    ["SQL.DETACH"] => {
        extra: Some(&native::DETACH),
        run_many: None,
        usage: "db name",
        arity_override: 3,
        summary: "Lets go of an attached file.",
        complexity: "O(1)",
        ..CHANGES
    }
    ["SQL.CANCEL"] => {
        run: native::cancel,
        run_many: None,
        usage: "db",
        arity_override: 2,
        summary: "Stops what runs on a database now.",
        complexity: "O(1)",
        flags: READONLY.with(FAST),
        ..READS
    }
    ["SQL.BEGIN"] => {
        run: transaction::begin,
        run_many: None,
        flags: WRITE.with(DENY_OOM).with(NO_MULTI).with(NO_SCRIPT),
        usage: "db [READ]",
        summary: "Opens a transaction that spans this connection's commands on a database.",
        complexity: "O(1); O(N) with READ in memory, N = bytes",
        ..CHANGES
    }
    ["SQL.COMMIT"] => {
        run: transaction::commit,
        flags: NO_MULTI.with(NO_SCRIPT),
        usage: "",
        summary: "Commits this connection's SQL transaction.",
        since: "1.0.0",
        ..Command::DEFAULT
    }
    ["SQL.ROLLBACK"] => {
        run: transaction::rollback,
        flags: NO_MULTI.with(NO_SCRIPT),
        usage: "",
        summary: "Undoes this connection's SQL transaction.",
        since: "1.0.0",
        ..Command::DEFAULT
    }
    ["SQL.CURSOR"] => {
        run: cursor::open,
        run_many: None,
        flags: READONLY.with(NO_MULTI).with(NO_SCRIPT),
        usage: "db sql [TIMEOUT ms] [MEMORY bytes] [VALUES value ... | TYPED types value ... | \
            NAMED name value ...]",
        arity_override: -3,
        summary: "Opens a query whose rows are fetched in portions, from one instant.",
        ..READS
    }
    ["SQL.FETCH"] => {
        run: cursor::fetch,
        flags: NO_MULTI.with(NO_SCRIPT),
        usage: "cursor [count]",
        summary: "Fetches the next rows of a cursor.",
        complexity: "O(N), N = rows",
        since: "1.0.0",
        ..Command::DEFAULT
    }
    ["SQL.CLOSE"] => {
        run: cursor::close,
        flags: NO_MULTI.with(NO_SCRIPT),
        usage: "cursor",
        summary: "Closes a cursor.",
        since: "1.0.0",
        ..Command::DEFAULT
    }
};
