//! ACL, as far as it is there: one user, `default`, with all rights, whose password is the option
//! `requirepass`. What would take rights away is refused, never ignored.

use std::io::Read;

use commands::categories::{CATEGORIES, has};
use commands::command::{ADMIN, Command, Family, Group, LOADING, NO_SCRIPT, STALE};
use commands::context::Context;
use commands::error::Error;
use commands::help::HELP;
use commands::words::integer;
use resp::Args;

use crate::hub::Hub;
use crate::options::index_of;

const NO_USERS: Error = Error::text(
    "ERR users of the access list are not there yet: there is only 'default', with all rights, \
     and its password is the option requirepass",
);
const ALL_RIGHTS: &str = "~* &* +@all";

const OPEN: Command =
    Command { flags: NO_SCRIPT.with(LOADING).with(STALE), since: "6.0.0", ..Command::DEFAULT };
const CLOSED: Command = Command {
    flags: ADMIN.with(NO_SCRIPT).with(LOADING).with(STALE),
    since: "6.0.0",
    ..Command::DEFAULT
};

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Server,
    commands: &[Command {
        name: "ACL",
        summary: "Tells who may do what.",
        complexity: "Depends on the subcommand",
        since: "6.0.0",
        sub: &[
            Command {
                name: "WHOAMI",
                run: whoami,
                summary: "Returns the user of this connection.",
                ..OPEN
            },
            Command {
                name: "CAT",
                run: cat,
                usage: "[category]",
                summary: "Returns the categories, or the commands of one.",
                ..OPEN
            },
            Command {
                name: "GENPASS",
                run: genpass,
                usage: "[bits]",
                summary: "Returns a random password.",
                ..OPEN
            },
            Command { name: "USERS", run: users, summary: "Returns the users' names.", ..CLOSED },
            Command { name: "LIST", run: list, summary: "Returns the users' rules.", ..CLOSED },
            Command {
                name: "GETUSER",
                run: getuser,
                usage: "username",
                summary: "Returns a user's rules.",
                ..CLOSED
            },
            Command {
                name: "LOG",
                run: log,
                usage: "[count | RESET]",
                summary: "Returns what was refused: nothing is.",
                ..CLOSED
            },
            Command {
                name: "SETUSER",
                run: refused,
                usage: "username [rule [rule ...]]",
                summary: "Makes or changes a user; not there yet.",
                ..CLOSED
            },
            Command {
                name: "DELUSER",
                run: refused,
                usage: "username [username ...]",
                summary: "Removes users; not there yet.",
                ..CLOSED
            },
            Command {
                name: "LOAD",
                run: refused,
                summary: "Reads the file of users; not there yet.",
                ..CLOSED
            },
            Command {
                name: "SAVE",
                run: refused,
                summary: "Writes the file of users; not there yet.",
                ..CLOSED
            },
            Command { since: "6.0.0", ..HELP },
        ],
        ..Command::DEFAULT
    }],
};

fn whoami(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    cx.out.text("default");
    Ok(())
}

fn cat(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if args.len() > 3 {
        return Err(Error::wrong_arity(cx.command_name()));
    }
    let Some(word) = args.get(2) else {
        cx.out.array(CATEGORIES.len());
        CATEGORIES.iter().for_each(|name| cx.out.text(name));
        return Ok(());
    };
    let found = CATEGORIES.iter().find(|name| name.as_bytes().eq_ignore_ascii_case(word));
    let Some(category) = found else {
        let word = String::from_utf8_lossy(word).into_owned();
        return Err(Error::new(format!("ERR Unknown category '{word}'")));
    };
    let entries = cx.core.registry.entries().iter();
    let names: Vec<&str> = entries
        .filter(|entry| has(entry, category))
        .map(|entry| entry.full_name.as_str())
        .collect();
    cx.out.array(names.len());
    names.iter().for_each(|name| cx.out.text(name));
    Ok(())
}

fn genpass(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    const BITS_MAX: i64 = 4096;
    let bits = args.get(2).map_or(Ok(256), integer)?;
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(Error::text(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a \
             positive number up to 4096",
        ));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|_| Error::text("ERR the system gives no random bytes"))?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    cx.out.text(&text[..digits]);
    Ok(())
}

fn users(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    cx.out.array(1);
    cx.out.text("default");
    Ok(())
}

/// The hash of the default user's password, as the access list shows passwords.
fn password_hash(cx: &mut Context<'_>) -> Option<String> {
    let password = Hub::of(cx.host).shared.options.text(const { index_of("requirepass") });
    if password.is_empty() {
        return None;
    }
    // SHA-256 is part of the TLS library.
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let hash = suite.tls13()?.common.hash_provider.hash(password.as_bytes());
    Some(hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn list(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let rules = match password_hash(cx) {
        Some(hash) => format!("user default on sanitize-payload #{hash} {ALL_RIGHTS}"),
        None => format!("user default on nopass sanitize-payload {ALL_RIGHTS}"),
    };
    cx.out.array(1);
    cx.out.text(&rules);
    Ok(())
}

fn getuser(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if args.word(2) != b"default" {
        cx.out.null();
        return Ok(());
    }
    let hash = password_hash(cx);
    let out = &mut *cx.out;
    out.map(6);
    out.text("flags");
    let flags: &[&str] = match hash {
        Some(_) => &["on", "sanitize-payload"],
        None => &["on", "nopass", "sanitize-payload"],
    };
    out.array(flags.len());
    flags.iter().for_each(|flag| out.text(flag));
    out.text("passwords");
    out.array(hash.iter().len());
    hash.iter().for_each(|hash| out.text(hash));
    for (name, value) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        out.text(name);
        out.text(value);
    }
    out.text("selectors");
    out.array(0);
    Ok(())
}

fn log(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    match args.get(2) {
        Some(word) if commands::words::is(word, "RESET") => cx.out.ok(),
        Some(count) => {
            integer(count)?;
            cx.out.array(0);
        }
        None => cx.out.array(0),
    }
    Ok(())
}

fn refused(_: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    Err(NO_USERS)
}

#[cfg(test)]
mod tests {
    use crate::testing::Server;

    #[test]
    fn there_is_one_user() {
        let mut server = Server::new(&[]);
        server.check(&[
            ("ACL WHOAMI", "$7 default"),
            ("ACL USERS", "*1 $7 default"),
            ("ACL LIST", "*1 $51 user default on nopass sanitize-payload ~* &* +@all"),
            ("ACL GETUSER nobody", "$-1"),
            ("ACL CAT nope", "-ERR Unknown category 'nope'"),
            ("ACL LOG", "*0"),
            ("CONFIG SET requirepass abc", "+OK"),
        ]);
        // The hash that sha256sum gives for abc.
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(server.run("ACL LIST").contains(hash));
        assert!(server.run("ACL GETUSER default").contains(hash));
        assert!(server.run("ACL SETUSER bob on").starts_with("-ERR users"));
        assert!(server.run("ACL CAT string").contains("getrange"));
        assert_eq!(server.run("ACL GENPASS 5").len(), "$2 xx".len());
        assert!(server.run("ACL GENPASS 0").starts_with("-ERR ACL GENPASS"));
    }
}
