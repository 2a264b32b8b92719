//! How often each of RediSQL's commands ran, and how often well: REDISQL.STATISTICS.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($Count:ident $name:literal,)*) => {
        /// A command that is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Count { $($Count,)* Nothing }

        /// Their names, in the order of the reply.
        pub const NAMES: &[&str] = &[$($name),*];
    };
}

counts! {
    CreateDb "CREATE_DB",
    Exec "EXEC",
    Query "QUERY",
    QueryInto "QUERY.INTO",
    CreateStatement "CREATE_STATEMENT",
    ExecStatement "EXEC_STATEMENT",
    UpdateStatement "UPDATE_STATEMENT",
    DeleteStatement "DELETE_STATEMENT",
    QueryStatement "QUERY_STATEMENT",
    QueryStatementInto "QUERY_STATEMENT.INTO",
    Copy "COPY",
}

/// Well, badly.
static COUNTS: [[AtomicU64; 2]; NAMES.len()] =
    [const { [const { AtomicU64::new(0) }; 2] }; NAMES.len()];

/// Counts commands that ended.
pub fn add(count: Count, well: u64, badly: u64) {
    if let Some([ok, err]) = COUNTS.get(count as usize) {
        for (cell, more) in [(ok, well), (err, badly)] {
            if more > 0 {
                cell.fetch_add(more, Ordering::Relaxed);
            }
        }
    }
}

/// Every name with its count: all, well, badly.
pub fn all() -> impl Iterator<Item = (String, u64)> {
    NAMES.iter().zip(&COUNTS).flat_map(|(name, [ok, err])| {
        let (ok, err) = (ok.load(Ordering::Relaxed), err.load(Ordering::Relaxed));
        [(name.to_string(), ok + err), (format!("{name} OK"), ok), (format!("{name} ERR"), err)]
    })
}
