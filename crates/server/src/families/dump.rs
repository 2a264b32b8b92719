//! DUMP, RESTORE and RESTORE-ASKING: one key's value as bytes, and back.
//!
//! What RESTORE is given is always checked whole (`sanitize-dump-payload yes` in Redis's terms): a
//! payload can give an error, and nothing else but a sound value. It is logged with its time to
//! live as a point in time, so that a replay later means the same.

use std::sync::atomic::Ordering;

use commands::command::{
    Command, DANGEROUS, DENY_OOM, Family, Group, OW, READONLY, RO, WRITE, first,
};
use commands::context::Context;
use commands::error::Error;
use commands::words::{integer, is};
use keyspace::access;
use keyspace::effects::class;
use persist::rdb::decode::Limits;
use persist::rdb::dump::{self, Refusal};
use persist::rdb::encode::Compression;
use persist::rdb::reader::Checksum;
use resp::Args;

use crate::hub::Hub;
use crate::options::index_of;

const RESTORE: Command = Command {
    run: restore,
    flags: WRITE.with(DENY_OOM).with(DANGEROUS),
    keys: &[first(OW)],
    usage: "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
    summary: "Makes a key of what DUMP gave.",
    complexity: "O(N), N = bytes and elements",
    since: "2.6.0",
    ..Command::DEFAULT
};

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Generic,
    commands: &[
        Command {
            name: "DUMP",
            run: dump,
            flags: READONLY,
            keys: &[first(RO)],
            usage: "key",
            summary: "Returns a key's value as bytes, in the form of RDB files.",
            complexity: "O(N), N = bytes and elements",
            since: "2.6.0",
            tips: &["nondeterministic_output"],
            ..Command::DEFAULT
        },
        Command { name: "RESTORE", ..RESTORE },
        Command { name: "RESTORE-ASKING", since: "3.0.0", ..RESTORE },
    ],
};

fn dump(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let options = &Hub::of(cx.host).shared.options;
    let is_compressed = options.is_on(const { index_of("rdbcompression") });
    let compression = if is_compressed { Compression::Lzf } else { Compression::Off };
    match cx.keys.get(args.word(1)) {
        None => cx.out.null(),
        Some(value) => cx.out.bulk(&dump::dump(value, compression)),
    }
    Ok(())
}

/// RESTORE's options.
#[derive(Default)]
struct Wish {
    replace: bool,
    is_absolute: bool,
    idle_seconds: Option<u32>,
    frequency: Option<u8>,
}

fn options(args: Args<'_>) -> Result<Wish, Error> {
    let mut wish = Wish::default();
    let mut at = 4;
    while at < args.len() {
        let word = args.word(at);
        let has_next = at + 1 < args.len();
        if is(word, "REPLACE") {
            wish.replace = true;
        } else if is(word, "ABSTTL") {
            wish.is_absolute = true;
        } else if is(word, "IDLETIME") && has_next && wish.frequency.is_none() {
            at += 1;
            let seconds = u32::try_from(integer(args.word(at))?);
            wish.idle_seconds =
                Some(seconds.map_err(|_| Error::text("ERR Invalid IDLETIME value, must be >= 0"))?);
        } else if is(word, "FREQ") && has_next && wish.idle_seconds.is_none() {
            at += 1;
            let frequency = u8::try_from(integer(args.word(at))?);
            wish.frequency = Some(
                frequency
                    .map_err(|_| Error::text("ERR Invalid FREQ value, must be >= 0 and <= 255"))?,
            );
        } else {
            return Err(Error::SYNTAX);
        }
        at += 1;
    }
    Ok(wish)
}

fn restore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (key, now_ms) = (args.word(1), cx.keys.now_ms());
    let wish = options(args)?;
    if !wish.replace && cx.keys.exists(key) {
        return Err(Error::text("BUSYKEY Target key name already exists."));
    }
    let ttl = integer(args.word(2))?;
    if ttl < 0 {
        return Err(Error::text("ERR Invalid TTL value, must be >= 0"));
    }
    let at = if wish.is_absolute { Some(ttl) } else { ttl.checked_add(now_ms) };
    let at = at.ok_or_else(|| Error::invalid_expire(cx.command_name()))?;
    let expire_at = (ttl != 0).then_some(at);
    let limits = Limits::of(&cx.keys.space().settings);
    // A replay of the log has no server around it.
    let skips = Hub::try_of(cx.host)
        .is_some_and(|hub| hub.shared.persistence.skips_checksums.load(Ordering::Relaxed));
    let verify = if skips { Checksum::Ignore } else { Checksum::Verify };
    let value = dump::restore(args.word(3), limits, verify).map_err(|refusal| match refusal {
        Refusal::Footer => Error::text("ERR DUMP payload version or checksum are wrong"),
        Refusal::Content(error) => {
            tracing::warn!("RESTORE of a damaged payload: {error}");
            Error::text("ERR Bad data format")
        }
        Refusal::Empty => Error::text("ERR Bad data format"),
    })?;
    if expire_at.is_some_and(|at| at <= now_ms) {
        // It has expired already: what is left is that the old key goes.
        if cx.keys.remove(key) {
            cx.keys.rewrite(&[b"DEL", key]);
            cx.keys.notify(class::GENERIC, "del", key);
        }
        cx.out.ok();
        return Ok(());
    }
    cx.keys.put(key, value, expire_at);
    set_use(cx, key, &wish);
    cx.keys.notify(class::GENERIC, "restore", key);
    log(cx, args, at, &wish);
    cx.out.ok();
    Ok(())
}

fn set_use(cx: &mut Context<'_>, key: &[u8], wish: &Wish) {
    let (settings, now_ms) = (&cx.keys.space().settings, cx.keys.now_ms());
    let is_lfu = settings.policy().is_lfu();
    let access = match (wish.idle_seconds, wish.frequency) {
        (Some(seconds), _) if !is_lfu => access::from_idle(seconds, now_ms),
        (_, Some(frequency)) if is_lfu => {
            access::fresh(settings, now_ms) & !0xff | u32::from(frequency)
        }
        _ => return,
    };
    cx.keys.set_access(key, access);
}

/// Logs the command with its time to live as a point in time.
fn log(cx: &mut Context<'_>, args: Args<'_>, at: i64, wish: &Wish) {
    if wish.is_absolute || args.word(2) == b"0" || !cx.keys.space().is_logging() {
        return;
    }
    let at = at.to_string();
    let mut words = vec![&b"RESTORE"[..], args.word(1), at.as_bytes(), args.word(3), b"ABSTTL"];
    words.extend((4..args.len()).map(|index| args.word(index)));
    cx.keys.rewrite(&words);
}

#[cfg(test)]
mod tests {
    use crate::testing::Server;

    #[test]
    fn restore_says_what_is_wrong() {
        let mut server = Server::new(&[("enable-debug-command", "yes")]);
        server.check(&[
            ("DUMP none", "$-1"),
            ("SET k v", "+OK"),
            ("RESTORE k 0 x", "-BUSYKEY Target key name already exists."),
            ("RESTORE k -1 x REPLACE", "-ERR Invalid TTL value, must be >= 0"),
            ("RESTORE k a x REPLACE", "-ERR value is not an integer or out of range"),
            ("RESTORE k 0 x REPLACE", "-ERR DUMP payload version or checksum are wrong"),
            ("RESTORE k 0 x NOPE", "-ERR syntax error"),
            ("RESTORE k 0 x IDLETIME", "-ERR syntax error"),
            ("RESTORE k 0 x IDLETIME -1", "-ERR Invalid IDLETIME value, must be >= 0"),
            ("RESTORE k 0 x FREQ 256", "-ERR Invalid FREQ value, must be >= 0 and <= 255"),
            ("RESTORE k 0 x FREQ 1 IDLETIME 1", "-ERR syntax error"),
            ("DEBUG SET-SKIP-CHECKSUM-VALIDATION 1", "+OK"),
            // A set of one member whose intset has none.
            (
                "RESTORE e 0 \"\\x0b\\x08\\x02\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x0a\\x00\
                 \\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\"",
                "-ERR Bad data format",
            ),
            (
                "RESTORE s 0 \"\\x00\\xc0\\x07\\x0a\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\"",
                "+OK",
            ),
            ("GET s", "$1 7"),
            (
                "RESTORE s 1 \"\\x00\\xc0\\x07\\x0a\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\" \
                 ABSTTL REPLACE IDLETIME 5",
                "+OK",
            ),
            ("EXISTS s", ":0"),
            (
                "RESTORE s 5000 \"\\x00\\xc0\\x07\\x0a\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\
                 \\x00\" IDLETIME 5",
                "+OK",
            ),
            ("PTTL s", ":5000"),
            ("OBJECT IDLETIME s", ":5"),
        ]);
    }
}
