//! What SQL may not do here: reach other files, change how the database is kept, load code.

use std::cell::{Cell, RefCell};

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;

use crate::error::SqlError;
use crate::metadata;

/// Pragmas that may be read and set.
const PRAGMAS: &[&str] = &[
    "application_id",
    "auto_vacuum",
    "automatic_index",
    "case_sensitive_like",
    "collation_list",
    "compile_options",
    "count_changes",
    "data_version",
    "database_list",
    "defer_foreign_keys",
    "foreign_key_check",
    "foreign_key_list",
    "foreign_keys",
    "freelist_count",
    "function_list",
    "ignore_check_constraints",
    "incremental_vacuum",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "module_list",
    "optimize",
    "page_count",
    "pragma_list",
    "quick_check",
    "recursive_triggers",
    "reverse_unordered_selects",
    "stats",
    "table_info",
    "table_list",
    "table_xinfo",
    "user_version",
];

/// Pragmas that may only be read.
const PRAGMAS_TO_READ: &[&str] = &[
    "busy_timeout",
    "cache_size",
    "encoding",
    "journal_mode",
    "locking_mode",
    "max_page_count",
    "mmap_size",
    "page_size",
    "query_only",
    "schema_version",
    "secure_delete",
    "synchronous",
    "temp_store",
    "trusted_schema",
];

/// The longest SQL text, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// The longest value or row, in bytes.
pub const VALUE_BYTES_MAX: usize = 512 << 20;

/// Files that may be attached to a database, and one that VACUUM needs.
pub const ATTACHED_MAX: i32 = 10;

/// The columns, parameters and depths that a statement may have.
const LIMITS: &[(Limit, i32)] = &[
    (Limit::SQLITE_LIMIT_SQL_LENGTH, TEXT_BYTES_MAX as i32),
    (Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX as i32),
    (Limit::SQLITE_LIMIT_ATTACHED, ATTACHED_MAX),
    (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 10_000),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 100),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 500),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 32_766),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];

fn may_pragma(name: &str, value: Option<&str>) -> bool {
    let is_in = |list: &[&str]| list.iter().any(|known| known.eq_ignore_ascii_case(name));
    is_in(PRAGMAS) || value.is_none() && is_in(PRAGMAS_TO_READ)
}

thread_local! {
    static SAW_FILES: Cell<bool> = const { Cell::new(false) };
    static SAW_CALLS: Cell<bool> = const { Cell::new(false) };
    static MADE_TRIGGER: Cell<bool> = const { Cell::new(false) };
    /// The tables that what is prepared writes.
    static WRITTEN: RefCell<Vec<Box<str>>> = const { RefCell::new(Vec::new()) };
    static IS_OWNER: Cell<bool> = const { Cell::new(false) };
}

/// Does something on a connection that SQL may not: the server's own statements.
pub fn as_owner<T>(run: impl FnOnce() -> T) -> T {
    let was = IS_OWNER.replace(true);
    let result = run();
    IS_OWNER.set(was);
    result
}

/// Forgets what was seen of statements before.
pub fn forget_seen() {
    SAW_FILES.set(false);
    SAW_CALLS.set(false);
    WRITTEN.with_borrow_mut(Vec::clear);
}

/// Whether what was prepared since can call commands.
pub fn saw_calls() -> bool {
    SAW_CALLS.get()
}

/// Whether a trigger was made, or prepared to be, since the last call.
pub fn take_made_trigger() -> bool {
    MADE_TRIGGER.take()
}

/// Whether what was prepared since writes, and only such tables.
pub fn writes_only(is_one: impl Fn(&str) -> bool) -> bool {
    WRITTEN.with_borrow(|written| !written.is_empty() && written.iter().all(|table| is_one(table)))
}

/// Whether what was prepared since looks at an attached file.
pub fn saw_files() -> bool {
    SAW_FILES.get()
}

fn judge(context: AuthContext<'_>) -> Authorization {
    if IS_OWNER.get() {
        return Authorization::Allow;
    }
    if context.database_name.is_some_and(|name| !["main", "temp"].contains(&name)) {
        SAW_FILES.set(true);
    }
    if writes_metadata(&context) {
        return Authorization::Deny;
    }
    match context.action {
        // VACUUM attaches a nameless file of its own.
        AuthAction::Attach { filename } if !filename.is_empty() => Authorization::Deny,
        AuthAction::CreateTrigger { .. } | AuthAction::CreateTempTrigger { .. } => {
            MADE_TRIGGER.set(true);
            Authorization::Allow
        }
        AuthAction::Pragma { pragma_name, pragma_value }
            if !may_pragma(pragma_name, pragma_value) =>
        {
            Authorization::Deny
        }
        AuthAction::Function { function_name } if is_forbidden(function_name) => {
            Authorization::Deny
        }
        AuthAction::Function { function_name } => {
            if function_name.eq_ignore_ascii_case(crate::calls::NAME) {
                SAW_CALLS.set(true);
            }
            Authorization::Allow
        }
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => {
            WRITTEN.with_borrow_mut(|written| {
                if written.last().is_none_or(|last| **last != *table_name) {
                    written.push(table_name.into());
                }
            });
            Authorization::Allow
        }
        _ => Authorization::Allow,
    }
}

/// Whether SQL is about to write what only the server writes. VACUUM writes that of another file.
fn writes_metadata(context: &AuthContext<'_>) -> bool {
    let (AuthAction::Insert { table_name }
    | AuthAction::Delete { table_name }
    | AuthAction::Update { table_name, .. }
    | AuthAction::DropTable { table_name }
    | AuthAction::AlterTable { table_name, .. }
    | AuthAction::CreateTrigger { table_name, .. }
    | AuthAction::CreateTempTrigger { table_name, .. }) = context.action
    else {
        return false;
    };
    table_name.eq_ignore_ascii_case(metadata::TABLE)
        && context.database_name.is_none_or(|name| ["main", "temp"].contains(&name))
}

fn is_forbidden(function: &str) -> bool {
    ["load_extension", "fts3_tokenizer"].iter().any(|name| function.eq_ignore_ascii_case(name))
}

/// Puts a connection under guard.
///
/// # Errors
/// SQLite's.
pub fn install(connection: &mut rusqlite::Connection) -> Result<(), SqlError> {
    use rusqlite::config::DbConfig::SQLITE_DBCONFIG_DEFENSIVE;
    for (limit, value) in LIMITS {
        connection.set_limit(*limit, *value)?;
    }
    connection.set_db_config(SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.authorizer(Some(judge))?;
    Ok(())
}
