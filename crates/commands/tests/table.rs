//! The command table is complete and agrees with itself.

use std::collections::HashSet;

use forebay_commands::FAMILIES;
use forebay_commands::command::{Find, MAY_REPLICATE, NO_MANDATORY_KEYS, PUBSUB, READONLY};
use forebay_commands::command::{TRANSACTION, WRITE};
use forebay_commands::registry::{Entry, Registry};

fn each(check: impl Fn(&Entry)) {
    Registry::new(FAMILIES).entries().iter().for_each(check);
}

#[test]
fn names_are_unique() {
    let registry = Registry::new(FAMILIES);
    let mut seen = HashSet::new();
    for entry in registry.entries() {
        assert!(seen.insert(entry.full_name.clone()), "{} is there twice", entry.full_name);
        let found = registry.by_full_name(entry.full_name.as_bytes());
        assert_eq!(found.map(|found| found.index), Some(entry.index), "{}", entry.full_name);
    }
}

#[test]
fn rows_say_everything() {
    each(|entry| {
        let (row, name) = (&entry.command, &entry.full_name);
        assert!(
            row.name.bytes().all(|byte| byte.is_ascii_uppercase()
                || b"_-.".contains(&byte)
                || byte.is_ascii_digit()),
            "{name}"
        );
        assert!(row.summary.ends_with('.') && row.summary.len() > 10, "{name}: {}", row.summary);
        assert!(row.since.split('.').count() == 3, "{name}: since {}", row.since);
        assert!(!row.complexity.is_empty(), "{name}");
        assert!(row.sub.is_empty() || row.keys.is_empty(), "{name}: a container with keys");
        assert!(
            row.sub.is_empty() || row.sub.iter().any(|sub| sub.name == "HELP"),
            "{name}: no HELP"
        );
    });
}

#[test]
fn usage_lines_close_their_brackets() {
    each(|entry| {
        let mut open = Vec::new();
        for byte in entry.command.usage.bytes() {
            match byte {
                b'[' | b'<' => open.push(byte),
                b']' => assert_eq!(open.pop(), Some(b'['), "{}", entry.full_name),
                b'>' => assert_eq!(open.pop(), Some(b'<'), "{}", entry.full_name),
                _ => {}
            }
        }
        assert!(open.is_empty(), "{}: {}", entry.full_name, entry.command.usage);
    });
}

#[test]
fn commands_with_keys_read_or_write() {
    each(|entry| {
        let flags = entry.command.flags;
        let (reads, writes) = (flags.has(READONLY), flags.has(WRITE));
        assert!(!(reads && writes), "{} reads and writes", entry.full_name);
        let others = [TRANSACTION, MAY_REPLICATE, PUBSUB];
        let is_other = others.into_iter().any(|other| flags.has(other));
        let neither = !reads && !writes && !entry.command.keys.is_empty();
        assert!(!neither || is_other, "{} neither reads nor writes its keys", entry.full_name);
        let changes = |spec: &forebay_commands::command::KeySpec| !spec.flags.contains(&"RO");
        let changes = entry.command.keys.iter().any(changes);
        // PFCOUNT reads, and keeps what it counted.
        let keeps = flags.has(MAY_REPLICATE);
        assert!(!(reads && changes) || keeps, "{} is read-only and changes a key", entry.full_name);
    });
}

#[test]
fn keys_lie_within_the_words() {
    each(|entry| {
        if entry.command.flags.has(NO_MANDATORY_KEYS) {
            return;
        }
        let words = entry.arity.unsigned_abs() as usize;
        let name = &entry.full_name;
        for spec in entry.command.keys {
            let kinds = ["RO", "RW", "OW", "RM"];
            let is_kind = |flag: &&&str| kinds.contains(*flag);
            assert_eq!(spec.flags.iter().filter(is_kind).count(), 1, "{name}: {:?}", spec.flags);
            match spec.find {
                Find::Range { first, last, step } => {
                    // Keys may be optional from the first word beyond the fixed ones on.
                    let end = words + usize::from(entry.arity < 0 && last < 0);
                    assert!((1..end).contains(&first) && step > 0, "{name}: key at {first}");
                    assert!(last < words as i32, "{name}: keys to {last}");
                }
                Find::Count { at } => assert!((1..words).contains(&at), "{name}: count at {at}"),
                Find::After { from, .. } | Find::Option { from, .. } => {
                    assert!(from >= words && entry.arity < 0, "{name}: option from {from}");
                }
                Find::HalfAfter { from, .. } => assert!(from < words, "{name}"),
                Find::Unless { at, from, .. } => assert!(at < words && from >= words, "{name}"),
                Find::Rest { from, .. } => assert!(from >= words, "{name}: option from {from}"),
                Find::Unknown => {}
            }
        }
    });
}
