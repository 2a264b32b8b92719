//! What has happened, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// One more.
    pub fn add(&self) {
        self.more(1);
    }

    /// So many more.
    pub fn more(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! stats {
    ($($name:ident: $doc:literal;)*) => {
        /// All counts.
        #[derive(Debug, Default)]
        pub struct Stats {
            $(#[doc = $doc] pub $name: Count,)*
        }

        impl Stats {
            /// Every count: its name, what it is, how many.
            pub fn rows(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), $doc, self.$name.get())),*]
            }
        }
    };
}

stats! {
    hits: "Answers from memory that were fresh.";
    stale_hits: "Answers from memory past their time, while they were renewed.";
    error_hits: "Answers from memory because the database did not answer.";
    misses: "Requests that had to wait for the database.";
    collapsed: "Requests that waited for a query that another one had begun.";
    fills: "Queries of the database to make an answer.";
    fill_errors: "Queries that failed.";
    refills: "Queries done again because the table changed meanwhile.";
    early_refreshes: "Answers renewed before their time was over.";
    kept: "Answers that were kept.";
    outrun: "Answers not kept because the table had changed when they came.";
    outlived: "Lists that stayed right because changes could not touch them.";
    too_large: "Answers not kept because they are too large.";
    not_admitted: "Answers not kept because they cost little and were asked for once.";
    shelf_errors: "Answers that the keyspace did not take or give.";
    overloaded: "Requests refused because too many wait for the database.";
    writes: "Changes made.";
    write_errors: "Changes that failed.";
    foreign_changes: "Changes of tables by others that were noticed.";
    purged: "Answers removed on request.";
    samples: "Answers from memory compared with the database.";
    mismatches: "Of these, those that were not the same though the table had not changed.";
}
