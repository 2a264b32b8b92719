//! Whole databases: DBSIZE, FLUSHDB, FLUSHALL, SWAPDB.

use keyspace::effects::Freeing;
use keyspace::settings::freeing;
use resp::{Args, number};

use crate::command::{ALL_KEYS, Command, FAST, Family, Group, READONLY, WRITE};
use crate::context::Context;
use crate::error::Error;
use crate::keys::NO_SUCH_DB;
use crate::words::is;

const FLUSHES: Option<&[&str]> = Some(&["keyspace", "dangerous"]);

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Server,
    commands: &[
        Command {
            name: "DBSIZE",
            run: dbsize,
            flags: READONLY.with(FAST),
            summary: "Returns the number of keys in the database.",
            categories: Some(&["keyspace"]),
            tips: &["request_policy:all_shards", "response_policy:agg_sum"],
            ..Command::DEFAULT
        },
        Command {
            name: "FLUSHDB",
            run: flushdb,
            flags: WRITE.with(ALL_KEYS),
            usage: "[ASYNC | SYNC]",
            summary: "Removes every key of the database.",
            complexity: "O(N), N = keys of the database; they are freed after the reply",
            categories: FLUSHES,
            tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
            ..Command::DEFAULT
        },
        Command {
            name: "FLUSHALL",
            run: flushall,
            flags: WRITE.with(ALL_KEYS),
            usage: "[ASYNC | SYNC]",
            summary: "Removes every key of every database.",
            complexity: "O(N), N = all keys; they are freed after the reply",
            categories: FLUSHES,
            tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
            ..Command::DEFAULT
        },
        Command {
            name: "SWAPDB",
            run: swapdb,
            flags: WRITE.with(FAST).with(ALL_KEYS),
            usage: "index1 index2",
            summary: "Exchanges two databases, for all clients at once.",
            complexity: "O(N), N = keys with a time to live and clients that watch or wait",
            since: "4.0.0",
            categories: FLUSHES,
            ..Command::DEFAULT
        },
    ],
};

fn dbsize(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    cx.out.count(cx.keys.key_count());
    Ok(())
}

/// How the words ask for the freeing. Either way the keys are gone at once; the client waits for
/// the memory with SYNC.
fn flush_freeing(cx: &Context<'_>, args: Args<'_>) -> Result<Freeing, Error> {
    match args.get(1) {
        None => Ok(freeing(&cx.keys.space().settings.lazyfree_lazy_user_flush)),
        Some(word) if args.len() == 2 && is(word, "ASYNC") => Ok(Freeing::Background),
        Some(word) if args.len() == 2 && is(word, "SYNC") => Ok(Freeing::Here),
        Some(_) => Err(Error::SYNTAX),
    }
}

fn flush(cx: &mut Context<'_>, databases: std::ops::Range<usize>, freeing: Freeing) {
    for db in databases {
        cx.keys.effects.dirty += cx.keys.flush(db, freeing) as u64;
    }
    // Logged even if there was nothing, as in Redis: replicas may differ.
    cx.keys.effects.dirty += 1;
    cx.out.ok();
}

fn flushdb(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (freeing, db) = (flush_freeing(cx, args)?, cx.keys.db());
    flush(cx, db..db + 1, freeing);
    Ok(())
}

fn flushall(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let freeing = flush_freeing(cx, args)?;
    let databases = cx.keys.space().databases();
    flush(cx, 0..databases, freeing);
    Ok(())
}

fn swapdb(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let index = |at: usize, error: &'static str| {
        let number = number::integer(args.word(at)).and_then(|number| i32::try_from(number).ok());
        number.ok_or(Error::text(error))
    };
    let one = index(1, "ERR invalid first DB index")?;
    let other = index(2, "ERR invalid second DB index")?;
    let databases = cx.keys.space().databases();
    let check = |db: i32| usize::try_from(db).ok().filter(|db| *db < databases).ok_or(NO_SUCH_DB);
    let (one, other) = (check(one)?, check(other)?);
    if one != other {
        cx.keys.swap(one, other);
    }
    cx.keys.effects.dirty += 1;
    cx.out.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Client;

    #[test]
    fn flushing() {
        let mut client = Client::new();
        client.check(&[("MSET a 1 b 2", "+OK"), ("COPY a a DB 5", ":1"), ("WATCH a", "+OK")]);
        client.check(&[
            ("FLUSHDB ASYNC", "+OK"),
            ("MULTI", "+OK"),
            ("DBSIZE", "+QUEUED"),
            ("EXEC", "*-1"),
            ("DBSIZE", ":0"),
            ("SWAPDB 0 5", "+OK"),
            ("DBSIZE", ":1"),
            ("FLUSHALL", "+OK"),
            ("DBSIZE", ":0"),
            ("FLUSHALL NOW", "-ERR syntax error"),
            ("FLUSHDB SYNC ASYNC", "-ERR syntax error"),
        ]);
    }

    #[test]
    fn watches_break_only_if_a_key_goes_or_comes() {
        Client::new().check(&[
            ("SET other v", "+OK"),
            ("WATCH none", "+OK"),
            ("FLUSHALL", "+OK"),
            ("MULTI", "+OK"),
            ("EXEC", "*0"),
            ("SET a v", "+OK"),
            ("MOVE a 1", ":1"),
            ("WATCH a", "+OK"),
            ("SWAPDB 0 1", "+OK"),
            ("MULTI", "+OK"),
            ("EXEC", "*-1"),
        ]);
    }

    #[test]
    fn swapping() {
        Client::new().check(&[
            ("SET a 1", "+OK"),
            ("SWAPDB 0 0", "+OK"),
            ("GET a", "$1 1"),
            ("SWAPDB x 0", "-ERR invalid first DB index"),
            ("SWAPDB 0 x", "-ERR invalid second DB index"),
            ("SWAPDB 0 16", "-ERR DB index is out of range"),
            ("SWAPDB 0 -1", "-ERR DB index is out of range"),
        ]);
    }
}
