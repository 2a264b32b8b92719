//! ACL categories of commands: from their flags, and from their group or row.

use crate::command::{ADMIN, BLOCKING, DANGEROUS, FAST, PUBSUB, READONLY, WRITE};
use crate::registry::Entry;

/// Every category, in the order in which ACL CAT tells them.
pub const CATEGORIES: [&str; 22] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
    "sql",
];

/// Whether a command is in a category.
pub fn has(entry: &Entry, category: &str) -> bool {
    let (row, flags) = (&entry.command, entry.command.flags);
    // A container is never run itself, so its group says nothing about it.
    let is_container = !row.sub.is_empty();
    let own = match row.categories {
        Some(categories) => categories.contains(&category),
        None => !is_container && entry.group.category() == Some(category),
    };
    own || match category {
        "read" => flags.has(READONLY) && !has(entry, "scripting"),
        "write" => flags.has(WRITE),
        "pubsub" => flags.has(PUBSUB),
        "admin" => flags.has(ADMIN),
        "fast" => flags.has(FAST),
        "slow" => !flags.has(FAST),
        "blocking" => flags.has(BLOCKING),
        "dangerous" => flags.has(DANGEROUS) || flags.has(ADMIN),
        _ => false,
    }
}

/// A command's categories.
pub fn of(entry: &Entry) -> impl Iterator<Item = &'static str> {
    CATEGORIES.into_iter().filter(|category| has(entry, category))
}
