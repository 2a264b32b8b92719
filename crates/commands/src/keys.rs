//! Keys whatever they hold: DEL, EXISTS, TYPE, KEYS, RENAME, COPY, MOVE and their kin. Time to
//! live is in [`crate::expire`], whole databases are in [`crate::databases`].

use keyspace::effects::{Freeing, class};
use keyspace::raw::entry::Entry;
use keyspace::settings::freeing;
use keyspace::value::Value;
use resp::{Args, number};

use crate::command::{
    BLOCKING, Command, DENY_OOM, FAST, Family, Group, READONLY, REMOVE, RO, RO_META, RW, RW_TAKE,
    VISITS_ALL, WRITE, at, first, range,
};
use crate::context::Context;
use crate::error::Error;
use crate::string::string_len;
use crate::words::{integer, is};
use crate::{object, pattern, scan, sort};

/// For commands that take keys of any shard and whose integer replies add up.
const SUM_OF_SHARDS: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Generic,
    commands: &[
        Command {
            name: "DEL",
            run: del,
            flags: WRITE,
            keys: &[range(1, -1, 1, REMOVE)],
            usage: "key [key ...]",
            summary: "Deletes keys and returns how many were there.",
            complexity: "O(N), N = keys and the elements of their values",
            tips: SUM_OF_SHARDS,
            ..Command::DEFAULT
        },
        Command {
            name: "UNLINK",
            run: unlink,
            flags: WRITE.with(FAST),
            keys: &[range(1, -1, 1, REMOVE)],
            usage: "key [key ...]",
            summary: "Deletes keys; large values are freed in the background.",
            complexity: "O(N), N = keys",
            since: "4.0.0",
            tips: SUM_OF_SHARDS,
            ..Command::DEFAULT
        },
        Command {
            name: "EXISTS",
            run: exists,
            flags: READONLY.with(FAST),
            keys: &[range(1, -1, 1, RO_META)],
            usage: "key [key ...]",
            summary: "Counts how many of the keys are there; one named twice counts twice.",
            complexity: "O(N), N = keys",
            tips: SUM_OF_SHARDS,
            ..Command::DEFAULT
        },
        Command {
            name: "TOUCH",
            run: touch,
            flags: READONLY.with(FAST),
            keys: &[range(1, -1, 1, RO_META)],
            usage: "key [key ...]",
            summary: "Counts as a use of the keys, for eviction; returns how many are there.",
            complexity: "O(N), N = keys",
            since: "3.2.1",
            tips: SUM_OF_SHARDS,
            ..Command::DEFAULT
        },
        Command {
            name: "TYPE",
            run: type_,
            flags: READONLY.with(FAST),
            keys: &[first(RO_META)],
            usage: "key",
            summary: "Returns the type of a key's value, or none.",
            ..Command::DEFAULT
        },
        Command {
            name: "KEYS",
            run: keys,
            flags: READONLY.with(VISITS_ALL),
            usage: "pattern",
            summary: "Returns every key that matches a pattern.",
            complexity: "O(N), N = keys of the database",
            categories: Some(&["keyspace", "dangerous"]),
            tips: &["request_policy:all_shards", "nondeterministic_output_order"],
            ..Command::DEFAULT
        },
        scan::ROW,
        Command {
            name: "RANDOMKEY",
            run: randomkey,
            flags: READONLY.with(VISITS_ALL),
            summary: "Returns a key drawn at random.",
            tips: &[
                "request_policy:all_shards",
                "response_policy:special",
                "nondeterministic_output",
            ],
            ..Command::DEFAULT
        },
        Command {
            name: "RENAME",
            run: rename,
            flags: WRITE,
            keys: &[first(RW_TAKE), at(2, &["OW", "update"])],
            usage: "key newkey",
            summary: "Renames a key; what the new name held is lost.",
            ..Command::DEFAULT
        },
        Command {
            name: "RENAMENX",
            run: renamenx,
            flags: WRITE.with(FAST),
            keys: &[first(RW_TAKE), at(2, &["OW", "insert"])],
            usage: "key newkey",
            summary: "Renames a key if the new name is free.",
            ..Command::DEFAULT
        },
        Command {
            name: "COPY",
            run: copy,
            flags: WRITE.with(DENY_OOM),
            keys: &[first(RO), at(2, &["OW", "update"])],
            usage: "source destination [DB destination-db] [REPLACE]",
            summary: "Copies a key's value and time to live to another key.",
            complexity: "O(N), N = elements of a collection; O(1) for strings",
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "MOVE",
            run: move_,
            flags: WRITE.with(FAST),
            keys: &[first(RW)],
            usage: "key db",
            summary: "Moves a key to another database, unless it has one of that name.",
            ..Command::DEFAULT
        },
        Command {
            name: "WAIT",
            run: wait,
            flags: BLOCKING,
            usage: "numreplicas timeout",
            summary: "Returns how many replicas have this client's writes.",
            since: "3.0.0",
            categories: Some(&["connection"]),
            tips: &["request_policy:all_shards", "response_policy:agg_min"],
            ..Command::DEFAULT
        },
        object::ROW,
        sort::ROW,
        sort::ROW_RO,
    ],
};

fn del(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let option = &cx.keys.space().settings.lazyfree_lazy_user_del;
    delete(cx, args, freeing(option))
}

fn unlink(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    delete(cx, args, Freeing::Background)
}

fn delete(cx: &mut Context<'_>, args: Args<'_>, freeing: Freeing) -> Result<(), Error> {
    let mut removed = 0;
    for key in args.iter().skip(1) {
        if cx.keys.delete(key, freeing) {
            cx.keys.notify(class::GENERIC, "del", key);
            removed += 1;
        }
    }
    cx.out.count(removed);
    Ok(())
}

fn exists(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let mut found = 0;
    for key in args.iter().skip(1) {
        if cx.keys.look_up(key).is_some() {
            found += 1;
        } else {
            cx.keys.notify_miss(key);
        }
    }
    cx.out.count(found);
    Ok(())
}

fn touch(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let mut found = 0;
    for key in args.iter().skip(1) {
        // Counts as a use even for a client under NO-TOUCH.
        if cx.keys.look_up(key).is_some() {
            cx.keys.use_key(key);
            found += 1;
        } else {
            cx.keys.notify_miss(key);
        }
    }
    cx.out.count(found);
    Ok(())
}

fn type_(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let kind = cx.keys.look_up(args.word(1));
    if kind.is_none() {
        cx.keys.notify_miss(args.word(1));
    }
    cx.out.simple(kind.map_or("none", |kind| kind.name()));
    Ok(())
}

fn keys(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let wanted = args.word(1);
    let out = &mut *cx.out;
    let place = out.later();
    let mut found = 0;
    cx.keys.for_each(|entry| {
        if wanted == b"*" || pattern::matches(wanted, entry.key()) {
            out.bulk(entry.key());
            found += 1;
        }
    });
    cx.out.array_at(place, found);
    Ok(())
}

fn randomkey(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    match cx.keys.random_key() {
        Some(key) => cx.out.bulk(&key),
        None => cx.out.null(),
    }
    Ok(())
}

/// Puts a value taken or copied from another key, which held a string changed in place or not: a
/// difference that the value alone does not tell and that OBJECT ENCODING does.
pub fn put(cx: &mut Context<'_>, key: &[u8], value: Value, expire_at: Option<i64>, raw: bool) {
    cx.keys.put(key, value, expire_at);
    if raw {
        mark_raw(cx, key);
    }
}

/// Marks a string as changed in place.
pub fn mark_raw(cx: &mut Context<'_>, key: &[u8]) {
    if let Some(Ok(len)) = cx.keys.inspect(key, |entry| string_len(Some(entry.value()))) {
        // Asking for all of its bytes to be changed is what marks it.
        let _ = cx.keys.string_bytes(key, len);
    }
}

fn is_raw(cx: &Context<'_>, key: &[u8]) -> bool {
    cx.keys.inspect(key, Entry::is_changed_string).unwrap_or(false)
}

/// The two outcomes of a rename that changes nothing or something.
fn rename_key(cx: &mut Context<'_>, args: Args<'_>, must_be_free: bool) -> Result<bool, Error> {
    let (from, to) = (args.word(1), args.word(2));
    if !cx.keys.exists(from) {
        return Err(Error::NO_SUCH_KEY);
    }
    if from == to || must_be_free && cx.keys.exists(to) {
        return Ok(false);
    }
    let raw = is_raw(cx, from);
    let (value, expire_at) = cx.keys.take(from).ok_or(Error::NO_SUCH_KEY)?;
    put(cx, to, value, expire_at, raw);
    cx.keys.notify(class::GENERIC, "rename_from", from);
    cx.keys.notify(class::GENERIC, "rename_to", to);
    Ok(true)
}

fn rename(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    rename_key(cx, args, false)?;
    cx.out.ok();
    Ok(())
}

fn renamenx(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let renamed = rename_key(cx, args, true)?;
    cx.out.flag(renamed);
    Ok(())
}

const SAME_OBJECT: Error = Error::text("ERR source and destination objects are the same");
/// A database that is not there.
pub const NO_SUCH_DB: Error = Error::text("ERR DB index is out of range");

/// A database's number, as MOVE and COPY read it.
fn database(cx: &Context<'_>, word: &[u8]) -> Result<usize, Error> {
    const NOT_INT32: Error =
        Error::text("ERR value is out of range, value must between -2147483648 and 2147483647");
    let number = i32::try_from(integer(word)?).map_err(|_| NOT_INT32)?;
    let db = usize::try_from(number).map_err(|_| NO_SUCH_DB)?;
    if db < cx.keys.space().databases() { Ok(db) } else { Err(NO_SUCH_DB) }
}

fn copy(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (from, to) = (args.word(1), args.word(2));
    let own_db = cx.keys.db();
    let (mut db, mut replace) = (own_db, false);
    let mut index = 3;
    while index < args.len() {
        let word = args.word(index);
        match args.get(index + 1) {
            _ if is(word, "REPLACE") => replace = true,
            Some(number) if is(word, "DB") => {
                db = database(cx, number)?;
                index += 1;
            }
            _ => return Err(Error::SYNTAX),
        }
        index += 1;
    }
    if db == own_db && from == to {
        return Err(SAME_OBJECT);
    }
    let Some(value) = cx.keys.get(from).map(|value| value.to_value()) else {
        cx.keys.notify_miss(from);
        cx.out.flag(false);
        return Ok(());
    };
    let value = match value {
        Value::Foreign(shared) => Value::Foreign(shared.duplicate().map_err(Error::new)?),
        value => value,
    };
    let (expire_at, raw) = (cx.keys.expire_at(from).flatten(), is_raw(cx, from));
    cx.keys.select(db);
    let free = replace || !cx.keys.exists(to);
    if free {
        put(cx, to, value, expire_at, raw);
        cx.keys.notify(class::GENERIC, "copy_to", to);
    }
    cx.keys.select(own_db);
    cx.out.flag(free);
    Ok(())
}

fn move_(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let key = args.word(1);
    let (own_db, db) = (cx.keys.db(), database(cx, args.word(2))?);
    if db == own_db {
        return Err(SAME_OBJECT);
    }
    cx.keys.select(db);
    let taken = cx.keys.exists(key);
    cx.keys.select(own_db);
    if taken {
        cx.out.flag(false);
        return Ok(());
    }
    let raw = is_raw(cx, key);
    let Some((value, expire_at)) = cx.keys.take(key) else {
        cx.out.flag(false);
        return Ok(());
    };
    cx.keys.select(db);
    put(cx, key, value, expire_at, raw);
    cx.keys.select(own_db);
    cx.keys.notify(class::GENERIC, "move_from", key);
    cx.keys.select(db);
    cx.keys.notify(class::GENERIC, "move_to", key);
    cx.keys.select(own_db);
    cx.out.flag(true);
    Ok(())
}

/// There are no replicas to wait for: the answer is 0 at once, whatever the timeout.
fn wait(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    integer(args.word(1))?;
    match number::integer(args.word(2)) {
        None => Err(Error::text("ERR timeout is not an integer or out of range")),
        Some(..0) => Err(Error::NEGATIVE_TIMEOUT),
        Some(_) => {
            cx.out.int(0);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Client;
    use keyspace::effects::class;

    #[test]
    fn deleting_and_looking() {
        Client::new().check(&[
            ("MSET a 1 b 2 c 3", "+OK"),
            ("EXISTS a b a none", ":3"),
            ("TOUCH a none", ":1"),
            ("TYPE a", "+string"),
            ("TYPE none", "+none"),
            ("DBSIZE", ":3"),
            ("DEL a none a", ":1"),
            ("UNLINK b c", ":2"),
            ("DBSIZE", ":0"),
            ("RANDOMKEY", "$-1"),
            ("KEYS *", "*0"),
            ("SET hello 1", "+OK"),
            ("SET hallo 1", "+OK"),
            ("KEYS h[e]*", "*1 $5 hello"),
            ("DEL hallo", ":1"),
            ("RANDOMKEY", "$5 hello"),
            ("DEL", "-ERR wrong number of arguments for 'del' command"),
        ]);
    }

    #[test]
    fn keys_past_their_time_are_not_seen() {
        let mut client = Client::new();
        for key in 0..50 {
            client.run(&format!("SET key:{key} v PX 10"));
        }
        client.run("SET left v");
        client.now_ms += 10;
        client.check(&[
            ("KEYS *", "*1 $4 left"),
            ("RANDOMKEY", "$4 left"),
            ("SCAN 0 COUNT 1000", "*2 $1 0 *1 $4 left"),
            ("DEL left", ":1"),
            ("RANDOMKEY", "$-1"),
            ("DEL key:1", ":0"),
        ]);
    }

    #[test]
    fn renaming() {
        Client::new().check(&[
            ("RENAME a b", "-ERR no such key"),
            ("RENAME a a", "-ERR no such key"),
            ("MSET a 1 b 2", "+OK"),
            ("RENAME a a", "+OK"),
            ("RENAMENX a a", ":0"),
            ("RENAMENX a b", ":0"),
            ("PEXPIRE a 1000", ":1"),
            ("RENAME a b", "+OK"),
            ("PTTL b", ":1000"),
            ("MGET a b", "*2 $-1 $1 1"),
            ("RENAMENX b c", ":1"),
            ("KEYS *", "*1 $1 c"),
            ("APPEND c x", ":2"),
            ("RENAME c d", "+OK"),
            ("OBJECT ENCODING d", "$3 raw"),
            ("COPY d e", ":1"),
            ("OBJECT ENCODING e", "$3 raw"),
        ]);
    }

    #[test]
    fn copying_and_moving() {
        Client::new().check(&[
            ("SET a x PX 500", "+OK"),
            ("COPY a b", ":1"),
            ("PTTL b", ":500"),
            ("COPY a b", ":0"),
            ("COPY a b REPLACE", ":1"),
            ("COPY a a", "-ERR source and destination objects are the same"),
            ("COPY a a DB 1", ":1"),
            ("COPY none b", ":0"),
            ("COPY a b DB 99", "-ERR DB index is out of range"),
            ("COPY a b DB x", "-ERR value is not an integer or out of range"),
            ("COPY a b BAD", "-ERR syntax error"),
            ("MOVE a 0", "-ERR source and destination objects are the same"),
            ("MOVE a 16", "-ERR DB index is out of range"),
            ("MOVE a 1", ":0"),
            ("MOVE b 1", ":1"),
            ("MOVE b 1", ":0"),
            ("DBSIZE", ":1"),
            ("SWAPDB 0 1", "+OK"),
            ("DBSIZE", ":2"),
            ("PTTL b", ":500"),
        ]);
    }

    #[test]
    fn events_name_the_key_in_its_database() {
        let mut client = Client::new();
        let settings = &client.core.space.settings;
        settings.notify.store(class::ALL | class::KEYEVENT, std::sync::atomic::Ordering::Relaxed);
        client.run("SET k v");
        assert_eq!(client.events("RENAME k m"), ["0:rename_from:k", "0:rename_to:m"]);
        assert_eq!(client.events("MOVE m 3"), ["0:move_from:m", "3:move_to:m"]);
        client.run("SET k v");
        assert_eq!(client.events("COPY k n DB 2"), ["2:copy_to:n"]);
        assert_eq!(client.events("DEL k"), ["0:del:k"]);
        client.run("SET k v");
        assert_eq!(client.events("EXPIRE k 10"), ["0:expire:k"]);
        assert_eq!(client.events("PERSIST k"), ["0:persist:k"]);
        assert_eq!(client.events("EXPIRE k -1"), ["0:del:k"]);
    }

    #[test]
    fn waiting_for_replicas_is_over_at_once() {
        Client::new().check(&[
            ("WAIT 0 0", ":0"),
            ("WAIT 1 1000", ":0"),
            ("WAIT 1 -1", "-ERR timeout is negative"),
            ("WAIT 1 x", "-ERR timeout is not an integer or out of range"),
            ("WAIT x 1", "-ERR value is not an integer or out of range"),
        ]);
    }
}
