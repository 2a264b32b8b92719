//! MEMORY: what keys take. The subcommands that need the allocator's own numbers (DOCTOR,
//! MALLOC-STATS, PURGE, STATS) belong to whoever owns the allocator and are not here.

use keyspace::raw::entry::Entry;
use keyspace::raw::packed::size_class;
use keyspace::value::ValueRef;
use resp::Args;

use crate::command::{Command, Family, Group, READONLY, RO_META, at};
use crate::context::Context;
use crate::error::Error;
use crate::help::HELP;
use crate::words::{integer, is};

/// A key's place in its shard's table, at the usual load, in bytes.
const TABLE_BYTES: usize = 10;

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Server,
    commands: &[Command {
        name: "MEMORY",
        summary: "Tells how memory is used.",
        complexity: "Depends on the subcommand",
        since: "4.0.0",
        sub: SUBCOMMANDS,
        ..Command::DEFAULT
    }],
};

/// The subcommands.
pub const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "USAGE",
        run: usage,
        flags: READONLY,
        keys: &[at(2, RO_META)],
        usage: "key [SAMPLES count]",
        summary: "Returns the bytes that a key and its value take; nothing is sampled.",
        complexity: "O(1), for lists O(N), N = nodes",
        since: "4.0.0",
        ..Command::DEFAULT
    },
    Command { since: "4.0.0", ..HELP },
];

/// Bytes that a key takes: its entry, what that points to, its place in the table.
pub fn usage_of(entry: &Entry) -> usize {
    let behind = match entry.value() {
        ValueRef::Number(_) | ValueRef::Bytes(_) => 0,
        // The share's counters and the vector's own three words lie before the bytes.
        ValueRef::Shared(block) => size_class(40) + size_class(block.capacity()),
        ValueRef::List(list) => list.memory(),
        ValueRef::Set(set) => set.memory(),
        ValueRef::Hash(hash) => hash.memory(),
        ValueRef::Zset(zset) => zset.memory(),
        ValueRef::Foreign(value) => value.memory(),
        ValueRef::Stream(stream) => stream.memory(),
    };
    size_class(entry.size()) + behind + TABLE_BYTES
}

fn usage(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let mut index = 3;
    while index < args.len() {
        match args.get(index + 1) {
            Some(count) if is(args.word(index), "SAMPLES") => {
                if integer(count)? < 0 {
                    return Err(Error::SYNTAX);
                }
            }
            _ => return Err(Error::SYNTAX),
        }
        index += 2;
    }
    match cx.keys.inspect(args.word(2), usage_of) {
        Some(bytes) => cx.out.count(bytes),
        None => cx.out.null(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Client;

    #[test]
    fn usage() {
        let mut client = Client::new();
        client.check(&[
            ("MEMORY USAGE k", "$-1"),
            ("SET key:000000000001 12345678901234567890123456789012", "+OK"),
            ("MEMORY USAGE key:000000000001", ":74"),
            ("MEMORY USAGE k SAMPLES", "-ERR syntax error"),
            ("MEMORY USAGE k SAMPLES -1", "-ERR syntax error"),
            ("MEMORY USAGE k SAMPLES x", "-ERR value is not an integer or out of range"),
            ("MEMORY NOPE", "-ERR unknown subcommand 'NOPE'. Try MEMORY HELP."),
        ]);
        client.run(&format!("SET long {}", "x".repeat(10_000)));
        let text = client.run("MEMORY USAGE long SAMPLES 0");
        let bytes: usize = text[1..].parse().expect("a number");
        assert!((10_000..13_000).contains(&bytes), "{bytes}");
    }
}
