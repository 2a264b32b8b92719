//! OBJECT: how a value is kept, and when its key was last used.

use keyspace::access;
use keyspace::raw::entry::Entry;
use keyspace::value::ValueRef;
use resp::Args;

use crate::command::{Command, READONLY, RO_META, at};
use crate::context::Context;
use crate::error::Error;
use crate::help::HELP;

/// The longest string that Redis keeps in one block with its header, in bytes.
const EMBSTR_BYTES_MAX: usize = 44;

const ASKS: Command = Command {
    flags: READONLY,
    keys: &[at(2, RO_META)],
    usage: "key",
    since: "2.2.3",
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

/// The row.
pub const ROW: Command = Command {
    name: "OBJECT",
    summary: "Tells how values are kept and keys are used.",
    complexity: "Depends on the subcommand",
    since: "2.2.3",
    sub: &[
        Command {
            name: "ENCODING",
            run: encoding,
            summary: "Returns the name of the form that a value is kept in.",
            ..ASKS
        },
        Command {
            name: "FREQ",
            run: freq,
            summary: "Returns how often a key was used, as a logarithm that decays.",
            since: "4.0.0",
            ..ASKS
        },
        Command {
            name: "IDLETIME",
            run: idletime,
            summary: "Returns the seconds since a key was last used.",
            ..ASKS
        },
        Command {
            name: "REFCOUNT",
            run: refcount,
            summary: "Returns the number of references to a value: 1.",
            ..ASKS
        },
        Command { since: "6.2.0", ..HELP },
    ],
    ..Command::DEFAULT
};

/// The name of the form that an entry's value is kept in, as Redis calls it.
pub fn encoding_of(entry: &Entry) -> &'static str {
    match entry.value() {
        ValueRef::Number(_) => "int",
        ValueRef::Bytes(bytes) if bytes.len() <= EMBSTR_BYTES_MAX && !entry.is_changed_string() => {
            "embstr"
        }
        ValueRef::Bytes(_) | ValueRef::Shared(_) => "raw",
        ValueRef::List(list) => list.encoding(),
        ValueRef::Set(set) => set.encoding(),
        ValueRef::Hash(hash) => hash.encoding(),
        ValueRef::Zset(zset) => zset.encoding(),
        ValueRef::Foreign(value) => value.encoding(),
        ValueRef::Stream(_) => "stream",
    }
}

fn encoding(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    match cx.keys.inspect(args.word(2), encoding_of) {
        Some(name) => cx.out.text(name),
        None => cx.out.null(),
    }
    Ok(())
}

fn freq(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let Some(bits) = cx.keys.inspect(args.word(2), Entry::access) else {
        cx.out.null();
        return Ok(());
    };
    let settings = &cx.keys.space().settings;
    if !settings.policy().is_lfu() {
        return Err(Error::text(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
             note that when switching between policies at runtime LRU and LFU data will take some \
             time to adjust.",
        ));
    }
    cx.out.int(access::frequency(settings, bits, cx.keys.now_ms()).into());
    Ok(())
}

fn idletime(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let Some(bits) = cx.keys.inspect(args.word(2), Entry::access) else {
        cx.out.null();
        return Ok(());
    };
    if cx.keys.space().settings.policy().is_lfu() {
        return Err(Error::text(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
             switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    cx.out.int(access::idle_seconds(bits, cx.keys.now_ms()).into());
    Ok(())
}

fn refcount(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if cx.keys.exists(args.word(2)) {
        cx.out.int(1)
    } else {
        cx.out.null()
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Client;
    use keyspace::settings::Policy;

    #[test]
    fn encodings_of_strings() {
        let long = "x".repeat(45);
        Client::new().check(&[
            ("SET k 123", "+OK"),
            ("OBJECT ENCODING k", "$3 int"),
            ("SET k 0123", "+OK"),
            ("OBJECT ENCODING k", "$6 embstr"),
            ("APPEND k x", ":5"),
            ("OBJECT ENCODING k", "$3 raw"),
            (&format!("SET k {}", &long[..44]), "+OK"),
            ("OBJECT ENCODING k", "$6 embstr"),
            (&format!("SET k {long}"), "+OK"),
            ("OBJECT ENCODING k", "$3 raw"),
            ("OBJECT REFCOUNT k", ":1"),
            ("OBJECT ENCODING none", "$-1"),
            ("OBJECT", "-ERR wrong number of arguments for 'object' command"),
            ("OBJECT encoding", "-ERR wrong number of arguments for 'object|encoding' command"),
            ("OBJECT nope k", "-ERR unknown subcommand 'nope'. Try OBJECT HELP."),
        ]);
    }

    #[test]
    fn use_of_keys() {
        let mut client = Client::new();
        client.run("SET k v");
        client.now_ms += 5000;
        client.check(&[("OBJECT IDLETIME k", ":5"), ("TYPE k", "+string")]);
        client.check(&[
            ("OBJECT IDLETIME k", ":5"),
            ("GET k", "$1 v"),
            ("OBJECT IDLETIME k", ":0"),
        ]);
        assert!(client.run("OBJECT FREQ k").starts_with("-ERR An LFU maxmemory policy is not"));
        client.core.space.settings.set_policy(Policy::AllKeysLfu);
        client.run("SET m v");
        client.check(&[("OBJECT FREQ m", ":5"), ("OBJECT FREQ none", "$-1")]);
        assert!(client.run("OBJECT IDLETIME k").starts_with("-ERR An LFU maxmemory policy is sel"));
    }

    #[test]
    fn help() {
        let help = Client::new().run("OBJECT HELP");
        assert!(help.starts_with("*11 +OBJECT <subcommand> [<arg> [value] [opt] ...]. Sub"));
    }
}
