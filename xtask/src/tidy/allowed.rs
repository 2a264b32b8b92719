//! The exceptions from the house style, each with the reason why it is better than the rule.

/// Where `unsafe` may stand: a path, or a folder where it ends in a slash.
pub const UNSAFE_PLACES: &[&str] = &[
    // Packed entries and tables: the memory per item is the point of them.
    "crates/keyspace/src/raw/",
    // Lua's C interface.
    "crates/script/src/raw/",
    // System calls that the standard library does not have.
    "crates/server/src/sys.rs",
    "crates/bench/src/sys.rs",
    // Signal handlers.
    "crates/server/src/crash.rs",
    // SQLite through its own interface: rows without copies, its clock and its memory.
    "crates/sql/src/raw/",
    // The name under which jemalloc looks for its settings.
    "crates/forebay/src/allocator.rs",
];

/// Functions over 60 lines: path, name, reason. Only what is one flat table written as code.
pub const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[];

/// Files over 800 lines: path, reason. Only tables.
pub const LONG_FILES: &[(&str, &str)] = &[];
