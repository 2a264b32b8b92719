//! DEBUG, as far as test suites use it and as it makes sense here; only where
//! `enable-debug-command` allows it.
//!
//! To clients it is one command, as in Redis: its subcommands are rows of its own table.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use commands::command::{ADMIN, Command, Family, Flags, Group, LOADING, NO_SCRIPT, STALE};
use commands::context::Context;
use commands::error::Error;
use commands::object::encoding_of;
use commands::words::{integer, is};
use keyspace::access;
use keyspace::effects::Freeing;
use keyspace::keys::{Expire, Keys};
use keyspace::load::OnDuplicate;
use keyspace::random::Random;
use keyspace::raw::entry::NewValue;
use keyspace::raw::shards::ShardSet;
use resp::Args;

use super::digest::Digest;
use crate::hub::Hub;
use crate::options::index_of;
use crate::persistence::{load, save};

const FLAGS: Flags = ADMIN.with(NO_SCRIPT).with(LOADING).with(STALE);
/// Turns something of Redis on or off that does not exist here.
const NOTHING: Command = Command {
    run: nothing,
    usage: "[arg [arg ...]]",
    summary: "Accepted; there is nothing to change.",
    ..Command::DEFAULT
};
/// Looks at one key.
const KEY: Command = Command { usage: "key", ..Command::DEFAULT };

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Server,
    commands: &[Command {
        name: "DEBUG",
        run: debug,
        summary: "For tests of the server.",
        complexity: "Depends on the subcommand",
        flags: FLAGS,
        usage: "subcommand [arg [arg ...]]",
        wants_all_keys: Some(wants_keys),
        ..Command::DEFAULT
    }],
};

const ROWS: &[Command] = &[
    Command {
        name: "SLEEP",
        run: sleep,
        usage: "seconds",
        summary: "Stops this connection's event loop, and all that wants keys, for so long.",
        ..Command::DEFAULT
    },
    Command { name: "SEGFAULT", run: segfault, summary: "Crashes the server.", ..Command::DEFAULT },
    Command {
        name: "PANIC",
        run: assert,
        summary: "Crashes the server by a failed assertion.",
        ..Command::DEFAULT
    },
    Command {
        name: "ASSERT",
        run: assert,
        summary: "Crashes the server by a failed assertion.",
        ..Command::DEFAULT
    },
    Command {
        name: "SET-ACTIVE-EXPIRE",
        run: set_active_expire,
        usage: "<0 | 1>",
        summary: "Whether keys that are due are removed though nobody asks for them.",
        ..Command::DEFAULT
    },
    Command {
        name: "OBJECT",
        run: object,
        summary: "Returns how a key's value is kept, as one line.",
        ..KEY
    },
    Command {
        name: "LISTPACK",
        run: listpack,
        summary: "Returns the encoding of a key's value.",
        ..KEY
    },
    Command {
        name: "HTSTATS-KEY",
        run: listpack,
        usage: "key [full]",
        summary: "Returns the encoding of a key's value.",
        ..KEY
    },
    Command {
        name: "HTSTATS",
        run: htstats,
        usage: "dbid [full]",
        summary: "Returns the number of keys of a database.",
        ..Command::DEFAULT
    },
    Command {
        name: "PROTOCOL",
        run: protocol,
        usage: "type",
        summary: "Returns a reply of this type.",
        ..Command::DEFAULT
    },
    Command {
        name: "STRINGMATCH-LEN",
        run: stringmatch_len,
        usage: "len pattern",
        summary: "Matches a pattern against so many letters a.",
        ..Command::DEFAULT
    },
    Command {
        name: "POPULATE",
        run: populate,
        usage: "count [prefix] [size]",
        summary: "Makes keys prefix:0, prefix:1 and so on, but for those that are there.",
        complexity: "O(N), N = keys",
        ..Command::DEFAULT
    },
    Command {
        name: "ERROR",
        run: error,
        usage: "text",
        summary: "Returns an error of this text.",
        ..Command::DEFAULT
    },
    Command {
        name: "LOG",
        run: log,
        usage: "text",
        summary: "Writes a line to the log.",
        ..Command::DEFAULT
    },
    Command { name: "JMAP", ..NOTHING },
    Command { name: "REPLYBUFFER", ..NOTHING },
    Command { name: "QUICKLIST-PACKED-THRESHOLD", ..NOTHING },
    Command { name: "SET-DISABLE-DENY-SCRIPTS", ..NOTHING },
    Command {
        name: "SET-SKIP-CHECKSUM-VALIDATION",
        run: set_skip_checksums,
        usage: "<0 | 1>",
        summary: "Whether RESTORE and loading take payloads whatever their checksum.",
        ..Command::DEFAULT
    },
    Command { name: "CHANGE-REPL-ID", ..NOTHING },
    Command { name: "PAUSE-CRON", ..NOTHING },
    Command { name: "DICT-RESIZING", ..NOTHING },
    Command {
        name: "AOF-FLUSH-SLEEP",
        run: aof_flush_sleep,
        usage: "microseconds",
        summary: "Sleeps before each write to the append-only file.",
        ..Command::DEFAULT
    },
    Command {
        name: "RELOAD",
        run: reload,
        usage: "[NOSAVE] [NOFLUSH] [MERGE]",
        summary: "Saves all data, empties the databases and loads it again.",
        complexity: "O(N), N = keys",
        ..Command::DEFAULT
    },
    Command {
        name: "DIGEST",
        run: digest,
        summary: "Returns a digest of all data, equal to that of a Redis with equal data.",
        complexity: "O(N), N = bytes and elements",
        ..Command::DEFAULT
    },
    Command {
        name: "DIGEST-VALUE",
        run: digest_value,
        usage: "key [key ...]",
        summary: "Returns a digest of each key's value.",
        complexity: "O(N), N = bytes and elements",
        ..Command::DEFAULT
    },
    Command {
        name: "LOADAOF",
        run: load_aof,
        summary: "Empties all databases and loads the append-only file.",
        ..Command::DEFAULT
    },
];

/// The subcommands that look at keys or make some, and the one that keeps others from them.
fn wants_keys(args: Args<'_>) -> bool {
    const NAMES: [&str; 7] =
        ["SLEEP", "OBJECT", "LISTPACK", "HTSTATS-KEY", "POPULATE", "DIGEST", "DIGEST-VALUE"];
    args.get(1).is_some_and(|word| NAMES.iter().any(|name| is(word, name)))
}

fn debug(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    gate(cx)?;
    if is(args.word(1), "HELP") && args.len() == 2 {
        return help(cx);
    }
    let len = args.len() as i32 - 1;
    let takes = |row: &Command| match row.arity() {
        arity @ 0.. => len == arity,
        arity => len >= -arity,
    };
    match ROWS.iter().find(|row| is(args.word(1), row.name)).filter(|row| takes(row)) {
        Some(row) => (row.run)(cx, args),
        None => {
            let word = String::from_utf8_lossy(args.word(1)).into_owned();
            Err(Error::new(format!(
                "ERR unknown subcommand or wrong number of arguments for '{word}'. Try DEBUG HELP."
            )))
        }
    }
}

fn help(cx: &mut Context<'_>) -> Result<(), Error> {
    cx.out.array(1 + ROWS.len() * 2);
    cx.out.simple("DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    for row in ROWS {
        cx.out.simple(format!("{} {}", row.name, row.usage).trim_end());
        cx.out.simple(&format!("    {}", row.summary));
    }
    Ok(())
}

/// Refuses unless `enable-debug-command` allows it to this client.
fn gate(cx: &mut Context<'_>) -> Result<(), Error> {
    let hub = Hub::of(cx.host);
    let is_local = {
        let client = &hub.peer().client;
        let host = client.addr.rsplit_once(':').map_or("", |(host, _)| host);
        let ip: Result<std::net::IpAddr, _> = host.trim_matches(['[', ']']).parse();
        client.is_unix || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
    };
    match hub.shared.options.text(const { index_of("enable-debug-command") }).as_str() {
        "yes" => Ok(()),
        "local" if is_local => Ok(()),
        _ => Err(Error::text(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
             \"local\", you can run it from a local connection, otherwise you need to set this \
             option in the configuration file, and then restart the server.",
        )),
    }
}

fn nothing(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    cx.out.ok();
    Ok(())
}

fn load_aof(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    if cx.session.in_exec {
        return Err(Error::text("ERR DEBUG LOADAOF cannot run in a transaction"));
    }
    let hub = Hub::of(cx.host);
    let shared = Arc::clone(&hub.shared);
    let thread = hub.thread;
    crate::aof::recovery::reload(&shared, thread)
        .map_err(|why| Error::new(format!("ERR {why}")))?;
    tracing::info!("Append Only File loaded by DEBUG LOADAOF");
    cx.out.ok();
    Ok(())
}

fn aof_flush_sleep(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let us = integer(args.word(2))?.clamp(0, 10_000_000);
    Hub::of(cx.host).shared.aof.log.sleep_us.store(us as u64, Ordering::Relaxed);
    cx.out.ok();
    Ok(())
}

fn digest(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let (db, space) = (cx.keys.db(), cx.keys.space());
    let mut all = Digest::default();
    for other in (0..space.databases()).filter(|db| space.key_count(*db) > 0) {
        cx.keys.select(other);
        all.database(other);
        cx.keys.for_each(|entry| all.entry(entry));
    }
    cx.keys.select(db);
    cx.out.simple(&all.hex());
    Ok(())
}

fn digest_value(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    cx.out.array(args.len() - 2);
    for key in args.iter().skip(2) {
        let mut digest = Digest::default();
        cx.keys.inspect(key, |entry| digest.value(entry));
        cx.out.simple(&digest.hex());
    }
    Ok(())
}

fn set_skip_checksums(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let skips = integer(args.word(2))? != 0;
    Hub::of(cx.host).shared.persistence.skips_checksums.store(skips, Ordering::Relaxed);
    cx.out.ok();
    Ok(())
}

fn reload(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (mut saves, mut flushes, mut duplicate) = (true, true, OnDuplicate::Refuse);
    for word in args.iter().skip(2) {
        match word {
            word if is(word, "NOSAVE") => saves = false,
            word if is(word, "NOFLUSH") => flushes = false,
            word if is(word, "MERGE") => duplicate = OnDuplicate::Replace,
            _ => {
                return Err(Error::text(
                    "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
                ));
            }
        }
    }
    if cx.session.in_exec {
        return Err(Error::text("ERR DEBUG RELOAD is not allowed inside a transaction"));
    }
    let hub = Hub::of(cx.host);
    let (shared, thread) = (Arc::clone(&hub.shared), hub.thread);
    save::stop(&shared);
    if saves {
        save::save(&shared).map_err(|text| Error::new(format!("ERR {text}")))?;
    }
    if flushes {
        let space = &shared.core.space;
        let random = Random::new(hub.random.bits());
        let held = space.lock(&ShardSet::ALL);
        let mut keys = Keys::new(space, held, space.tally(thread), cx.keys.now_ms(), random);
        for db in 0..space.databases() {
            keys.flush(db, Freeing::Background);
        }
        shared.free_later(std::mem::take(&mut keys.effects.garbage));
    }
    load::reload(&shared, duplicate).map_err(|text| {
        tracing::warn!("DEBUG RELOAD: {text}");
        Error::text("ERR Error trying to load the RDB dump, check server logs.")
    })?;
    tracing::info!("DB reloaded by DEBUG RELOAD");
    cx.out.ok();
    Ok(())
}

fn sleep(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let seconds = commands::words::float(args.word(2))?;
    let time = Duration::try_from_secs_f64(seconds)
        .map_err(|_| Error::text("ERR value is out of range, must be positive"))?;
    std::thread::sleep(time);
    cx.out.ok();
    Ok(())
}

fn segfault(_: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    crate::crash::fault()
}

fn assert(_: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    crate::crash::die(&format!("DEBUG {}", String::from_utf8_lossy(args.word(1))))
}

fn set_active_expire(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let is_on = integer(args.word(2))? != 0;
    cx.keys.space().settings.active_expire.store(is_on, Ordering::Relaxed);
    cx.out.ok();
    Ok(())
}

fn object(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let now_ms = cx.keys.now_ms();
    let told = cx.keys.inspect(args.word(2), |entry| {
        let idle = access::idle_seconds(entry.access(), now_ms);
        let (encoding, bytes) = (encoding_of(entry), commands::memory::usage_of(entry));
        format!(
            "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{bytes} lru:{} \
             lru_seconds_idle:{idle}",
            entry.access()
        )
    });
    cx.out.simple(&told.ok_or(Error::NO_SUCH_KEY)?);
    Ok(())
}

fn listpack(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let told = cx.keys.inspect(args.word(2), |entry| encoding_of(entry).to_string());
    cx.out.simple(&told.ok_or(Error::NO_SUCH_KEY)?);
    Ok(())
}

fn htstats(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let space = cx.keys.space();
    let db = usize::try_from(integer(args.word(2))?).ok().filter(|db| *db < space.databases());
    let db = db.ok_or(Error::text("ERR Out of range database"))?;
    let (keys, expires) = (space.key_count(db), space.volatile_count(db));
    let text = format!(
        "[Dictionary HT]\nnumber of elements: {keys}\n[Expires HT]\nnumber of elements: {expires}\n"
    );
    cx.out.verbatim("txt", &text);
    Ok(())
}

fn protocol(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let out = &mut *cx.out;
    match args.word(2).to_ascii_lowercase().as_slice() {
        b"string" => out.text("Hello World"),
        b"integer" => out.int(12345),
        // Not pi: the number that Redis answers.
        #[allow(clippy::approx_constant)]
        b"double" => out.double(3.141),
        b"null" => out.null(),
        b"array" => {
            out.array(3);
            (0..3).for_each(|number| out.int(number));
        }
        b"set" => {
            out.set(3);
            (0..3).for_each(|number| out.int(number));
        }
        b"map" => {
            out.map(3);
            for number in 0..3 {
                out.int(number);
                out.boolean(number == 1);
            }
        }
        b"attrib" => {
            if out.is_resp3() {
                out.raw(b"|1\r\n$14\r\nkey-popularity\r\n*2\r\n$7\r\nkey:123\r\n:90\r\n");
            }
            out.text("Some real reply following the attribute");
        }
        b"push" => {
            if !out.is_resp3() {
                return Err(Error::text("ERR RESP2 is not supported by this command"));
            }
            out.push(2);
            out.text("server-cpu-usage");
            out.int(42);
        }
        b"verbatim" => out.verbatim("txt", "This is a verbatim\nstring"),
        b"true" => out.boolean(true),
        b"false" => out.boolean(false),
        b"bignum" => out.big_number("1234567999999999999999999999999999999"),
        _ => {
            return Err(Error::text(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

fn stringmatch_len(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    const LEN_MAX: i64 = 1 << 24;
    let len = integer(args.word(2))?;
    if !(0..=LEN_MAX).contains(&len) {
        return Err(Error::OUT_OF_RANGE);
    }
    let text = vec![b'a'; len as usize];
    cx.out.flag(commands::pattern::matches(args.word(3), &text));
    Ok(())
}

fn populate(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let count = integer(args.word(2))?;
    let size = args.get(4).map_or(Ok(0), integer)?;
    if count < 0 || size < 0 || args.len() > 5 {
        return Err(Error::NOT_POSITIVE);
    }
    let prefix = args.get(3).unwrap_or(b"key");
    for number in 0..count {
        let key = [prefix, b":", number.to_string().as_bytes()].concat();
        if !cx.keys.exists(&key) {
            let mut value = format!("value:{number}").into_bytes();
            if size > 0 {
                value.resize(size as usize, 0);
            }
            cx.keys.set(&key, NewValue::Bytes(&value), Expire::Never);
            cx.keys.changed(&key);
        }
    }
    cx.out.ok();
    Ok(())
}

fn error(_: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    Err(Error::new(String::from_utf8_lossy(args.word(2)).into_owned()))
}

fn log(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    tracing::warn!("DEBUG LOG: {}", String::from_utf8_lossy(args.word(2)));
    cx.out.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Server;

    #[test]
    fn the_option_opens_it() {
        let mut server = Server::new(&[]);
        assert!(server.run("DEBUG JMAP").starts_with("-ERR DEBUG command not allowed."));
        let mut server = Server::new(&[("enable-debug-command", "local")]);
        server.check(&[
            ("DEBUG JMAP", "+OK"),
            (
                "DEBUG NOPE",
                "-ERR unknown subcommand or wrong number of arguments for 'NOPE'. Try DEBUG HELP.",
            ),
            (
                "DEBUG SLEEP",
                "-ERR unknown subcommand or wrong number of arguments for 'SLEEP'. Try DEBUG HELP.",
            ),
            ("DEBUG POPULATE 3 k 10", "+OK"),
            ("DBSIZE", ":3"),
            ("STRLEN k:2", ":10"),
            ("DEBUG LISTPACK k:1", "+embstr"),
            ("DEBUG OBJECT nope", "-ERR no such key"),
            ("DEBUG PROTOCOL double", "$5 3.141"),
            ("DEBUG PROTOCOL push", "-ERR RESP2 is not supported by this command"),
            ("DEBUG STRINGMATCH-LEN 10 a*b", ":0"),
            ("DEBUG ERROR 'X y'", "-X y"),
            ("DEBUG SET-ACTIVE-EXPIRE 0", "+OK"),
            ("DEBUG SLEEP -1", "-ERR value is out of range, must be positive"),
        ]);
    }
}
