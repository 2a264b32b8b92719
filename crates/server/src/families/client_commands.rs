//! CLIENT and MONITOR: looking at, naming, holding back and ending connections, one's own and
//! others', whichever thread serves them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use commands::command::{ADMIN, Command, Family, Flags, Group, LOADING, NO_SCRIPT, STALE};
use commands::context::Context;
use commands::error::Error;
use commands::help::HELP;
use commands::words::{integer, is};
use resp::{Args, number};

use super::client_list::{self, Running};
use super::hub;
use crate::access;
use crate::client::Client;
use crate::connection::Replies;
use crate::hub::Hub;
use crate::message::Message;

const FLAGS: Flags = NO_SCRIPT.with(LOADING).with(STALE);
const ADMIN_FLAGS: Flags = FLAGS.with(ADMIN);

const OWN: Command = Command { flags: FLAGS, ..Command::DEFAULT };
const ALL: Command = Command { complexity: "O(N), N = clients", flags: ADMIN_FLAGS, ..OWN };

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Connection,
    commands: &[
        Command {
            name: "CLIENT",
            summary: "Looks at and changes connections.",
            complexity: "Depends on the subcommand",
            since: "2.4.0",
            sub: CLIENT,
            ..Command::DEFAULT
        },
        Command {
            name: "MONITOR",
            run: monitor,
            flags: ADMIN_FLAGS,
            summary: "Shows every command that the server runs, as it runs.",
            categories: Some(&[]),
            ..Command::DEFAULT
        },
    ],
};

const CLIENT: &[Command] = &[
    Command {
        name: "CACHING",
        run: caching,
        usage: "<YES | NO>",
        summary: "Says whether the keys of the next command are to be tracked.",
        since: "6.0.0",
        ..OWN
    },
    Command {
        name: "GETNAME",
        run: getname,
        summary: "Returns the name of the connection.",
        since: "2.6.9",
        ..OWN
    },
    Command {
        name: "GETREDIR",
        run: getredir,
        summary: "Returns the client that invalidation messages go to.",
        since: "6.0.0",
        ..OWN
    },
    Command { since: "5.0.0", ..HELP },
    Command {
        name: "ID",
        run: id,
        summary: "Returns the number of the connection.",
        since: "5.0.0",
        ..OWN
    },
    Command {
        name: "INFO",
        run: info,
        summary: "Tells about the connection.",
        tips: &["nondeterministic_output"],
        since: "6.2.0",
        ..OWN
    },
    Command {
        name: "KILL",
        run: kill,
        usage: "<ip:port | [ID client-id] [TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] \
                [USER username] [ADDR ip:port] [LADDR ip:port] [SKIPME <YES | NO>] \
                [MAXAGE maxage]>",
        arity_override: -2,
        summary: "Closes connections.",
        since: "2.4.0",
        ..ALL
    },
    Command {
        name: "LIST",
        run: list,
        usage: "[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]]",
        summary: "Tells about all connections.",
        tips: &["nondeterministic_output"],
        since: "2.4.0",
        ..ALL
    },
    Command {
        name: "NO-EVICT",
        run: no_evict,
        flags: ADMIN_FLAGS,
        usage: "<ON | OFF>",
        summary: "Exempts the connection from being closed when clients take too much memory.",
        since: "7.0.0",
        ..OWN
    },
    Command {
        name: "NO-TOUCH",
        run: no_touch,
        usage: "<ON | OFF>",
        summary: "Says whether the connection's commands count as use of their keys.",
        since: "7.2.0",
        ..OWN
    },
    Command {
        name: "PAUSE",
        run: pause,
        flags: ADMIN_FLAGS,
        usage: "timeout [WRITE | ALL]",
        summary: "Holds commands back for a while.",
        since: "3.0.0",
        ..OWN
    },
    Command {
        name: "REPLY",
        run: reply,
        usage: "<ON | OFF | SKIP>",
        summary: "Says whether commands are answered.",
        since: "3.2.0",
        ..OWN
    },
    Command {
        name: "SETINFO",
        run: setinfo,
        usage: "<LIB-NAME libname | LIB-VER libver>",
        summary: "Sets what CLIENT LIST tells of the client's library.",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        since: "7.2.0",
        ..OWN
    },
    Command {
        name: "SETNAME",
        run: setname,
        usage: "connection-name",
        summary: "Names the connection.",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        since: "2.6.9",
        ..OWN
    },
    Command {
        name: "TRACKING",
        run: tracking,
        usage: "<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] \
                [OPTIN] [OPTOUT] [NOLOOP]",
        summary: "Asks for messages when keys that were read change.",
        since: "6.0.0",
        ..OWN
    },
    Command {
        name: "TRACKINGINFO",
        run: trackinginfo,
        summary: "Tells how the connection tracks keys.",
        since: "6.2.0",
        ..OWN
    },
    Command {
        name: "UNBLOCK",
        run: unblock,
        flags: ADMIN_FLAGS,
        usage: "client-id [TIMEOUT | ERROR]",
        summary: "Ends the wait of a blocked client.",
        complexity: "O(log N), N = clients",
        since: "5.0.0",
        ..OWN
    },
    Command {
        name: "UNPAUSE",
        run: unpause,
        summary: "Ends CLIENT PAUSE.",
        complexity: "O(N), N = clients held back",
        since: "6.2.0",
        ..ALL
    },
];

// Names.

/// Checks a name: no spaces, no control characters. `what` begins the error.
pub fn check_name(name: &[u8], what: &str) -> Result<(), Error> {
    if name.iter().all(u8::is_ascii_graphic) {
        return Ok(());
    }
    let text = format!("ERR {what} cannot contain spaces, newlines or special characters.");
    Err(Error::new(text))
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn client(cx: &mut Context<'_>) -> Arc<Client> {
    Arc::clone(&hub(cx).peer().client)
}

fn id(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    cx.out.int(cx.session.id as i64);
    Ok(())
}

fn getname(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    match client(cx).names().name.as_str() {
        "" => cx.out.null(),
        name => cx.out.text(name),
    }
    Ok(())
}

fn setname(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    check_name(args.word(2), "Client names")?;
    client(cx).rename(|names| names.name = text(args.word(2)));
    cx.out.ok();
    Ok(())
}

fn setinfo(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (option, value) = (args.word(2), args.word(3));
    let is_name = is(option, "LIB-NAME");
    if !is_name && !is(option, "LIB-VER") {
        return Err(Error::new(format!("ERR Unrecognized option '{}'", text(option))));
    }
    check_name(value, &text(option))?;
    client(cx).rename(|names| {
        *(if is_name { &mut names.lib_name } else { &mut names.lib_ver }) = text(value);
    });
    cx.out.ok();
    Ok(())
}

// Telling.

/// Brings the client's record up to date and says what only its own thread knows.
fn running(cx: &mut Context<'_>, args: Args<'_>) -> Running {
    let client = client(cx);
    client.note(cx.session);
    let words_bytes = args.iter().map(<[u8]>::len).sum();
    let digits = |number: usize| number.checked_ilog10().unwrap_or(0) as usize + 1;
    let frames: usize = args.iter().map(|word| 5 + digits(word.len())).sum();
    let input_bytes = 3 + digits(args.len()) + frames + words_bytes;
    Running { id: client.id, command: cx.entry.full_name.clone(), words_bytes, input_bytes }
}

fn info(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let running = running(cx, args);
    let client = client(cx);
    let line = client_list::line(hub(cx), &client, &running);
    cx.out.verbatim("txt", &(line + "\n"));
    Ok(())
}

/// The kind of clients that a word means, as [`Client::kind`] has it.
fn kind(word: &[u8]) -> Result<&'static str, Error> {
    let kinds = [
        ("normal", "normal"),
        ("slave", "replica"),
        ("replica", "replica"),
        ("pubsub", "pubsub"),
        ("master", "master"),
    ];
    let found = kinds.iter().find(|(name, _)| is(word, name));
    let error = || Error::new(format!("ERR Unknown client type '{}'", text(word)));
    found.map(|(_, kind)| *kind).ok_or_else(error)
}

fn list(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let mut wanted = None;
    let mut ids: Option<Vec<u64>> = None;
    match args.get(2) {
        None => {}
        Some(word) if is(word, "TYPE") && args.len() == 4 => wanted = Some(kind(args.word(3))?),
        Some(word) if is(word, "ID") && args.len() > 3 => {
            const BAD: Error = Error::text("ERR Invalid client ID");
            let read = |word| number::integer(word).and_then(|id| u64::try_from(id).ok());
            let all: Option<Vec<u64>> = args.iter().skip(3).map(read).collect();
            ids = Some(all.ok_or(BAD)?);
        }
        Some(_) => return Err(Error::SYNTAX),
    }
    let running = running(cx, args);
    let hub = hub(cx);
    let all = hub.shared.all_clients();
    let clients: Vec<&Arc<Client>> = match &ids {
        // In the order asked for, as Redis has it.
        Some(ids) => {
            ids.iter().filter_map(|id| all.iter().find(|client| client.id == *id)).collect()
        }
        None => all.iter().collect(),
    };
    let mut lines = String::new();
    for client in clients.into_iter().filter(|c| wanted.is_none_or(|kind| c.kind() == kind)) {
        lines += &client_list::line(hub, client, &running);
        lines.push('\n');
    }
    cx.out.verbatim("txt", &lines);
    Ok(())
}

// Ending.

/// Which clients CLIENT KILL means.
#[derive(Default)]
struct Filters {
    id: Option<u64>,
    addr: Option<String>,
    laddr: Option<String>,
    user: Option<String>,
    kind: Option<&'static str>,
    age_seconds_min: Option<i64>,
    with_me: bool,
}

impl Filters {
    fn read(args: Args<'_>) -> Result<Filters, Error> {
        let mut filters = Filters::default();
        for at in (2..args.len()).step_by(2) {
            let (word, value) = (args.word(at), args.get(at + 1).ok_or(Error::SYNTAX)?);
            if is(word, "ID") {
                const BAD: Error = Error::text("ERR client-id should be greater than 0");
                let id = number::integer(value).filter(|id| *id > 0).ok_or(BAD)?;
                filters.id = Some(id as u64);
            } else if is(word, "ADDR") {
                filters.addr = Some(text(value));
            } else if is(word, "LADDR") {
                filters.laddr = Some(text(value));
            } else if is(word, "TYPE") {
                filters.kind = Some(kind(value)?);
            } else if is(word, "USER") {
                if value != access::DEFAULT_USER.as_bytes() {
                    return Err(Error::new(format!("ERR No such user '{}'", text(value))));
                }
                filters.user = Some(text(value));
            } else if is(word, "SKIPME") {
                filters.with_me = match value {
                    yes if is(yes, "YES") => false,
                    no if is(no, "NO") => true,
                    _ => return Err(Error::SYNTAX),
                };
            } else if is(word, "MAXAGE") {
                const NO_INTEGER: Error =
                    Error::text("ERR maxage is not an integer or out of range");
                const BAD: Error = Error::text("ERR maxage should be greater than 0");
                let age = number::integer(value).ok_or(NO_INTEGER)?;
                filters.age_seconds_min = Some(Some(age).filter(|age| *age > 0).ok_or(BAD)?);
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(filters)
    }

    fn match_client(&self, client: &Client, me: u64, now_ms: i64) -> bool {
        let is_text =
            |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
        self.id.is_none_or(|id| id == client.id)
            && is_text(&self.addr, &client.addr)
            && is_text(&self.laddr, &client.laddr)
            && self.kind.is_none_or(|kind| kind == client.kind())
            && (self.user.is_none() || is_text(&self.user, &client.names().user))
            && self.age_seconds_min.is_none_or(|age| (now_ms - client.created_ms) / 1000 >= age)
            && (self.with_me || client.id != me)
    }
}

fn kill(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let is_old_form = args.len() == 3;
    let filters = if is_old_form {
        Filters { addr: Some(text(args.word(2))), with_me: true, ..Filters::default() }
    } else {
        Filters::read(args)?
    };
    let me = cx.session.id;
    let hub = hub(cx);
    let now_ms = hub.now_ms;
    let mut count = 0;
    for client in hub.shared.all_clients() {
        if filters.match_client(&client, me, now_ms) {
            end(hub, &client, me);
            count += 1;
        }
    }
    match (is_old_form, count) {
        (true, 0) => return Err(Error::text("ERR No such client")),
        (true, _) => cx.out.ok(),
        (false, count) => cx.out.int(count),
    }
    Ok(())
}

/// Ends a client: oneself after the reply, others at once. Nobody sees it any more from now on,
/// though its thread may still be about to close it.
fn end(hub: &mut Hub, client: &Client, me: u64) {
    if client.id == me {
        hub.peer().closes = true;
        return;
    }
    client.killed.store(true, Ordering::Relaxed);
    let shared = Arc::clone(&hub.shared);
    shared.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&client.id);
    shared.send(client.thread, Message::Kill(client.id));
}

fn unblock(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let with_error = match args.get(3) {
        None => false,
        Some(word) if args.len() == 4 && is(word, "TIMEOUT") => false,
        Some(word) if args.len() == 4 && is(word, "ERROR") => true,
        Some(_) => {
            return Err(Error::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    let id = integer(args.word(2))? as u64;
    let shared = Arc::clone(&hub(cx).shared);
    let found = {
        let clients = shared.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        clients.get(&id).cloned()
    };
    let ended = found.filter(|client| end_wait(client));
    if let Some(client) = &ended {
        shared.send(client.thread, Message::Unblock(id, with_error));
    }
    cx.out.flag(ended.is_some());
    Ok(())
}

/// Ends a client's wait, if it is not served first; its thread has to answer it.
fn end_wait(client: &Client) -> bool {
    let waiter = client.waiter.lock().unwrap_or_else(|p| p.into_inner()).clone();
    let Some(waiter) = waiter else { return false };
    loop {
        if waiter.try_begin() {
            waiter.end();
            return true;
        }
        if waiter.has_ended() {
            return false;
        }
        // Somebody tries to serve it: over in a moment, but it may wait on then.
        std::thread::yield_now();
    }
}

// Holding back.

fn pause(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let all = match args.get(3) {
        None => true,
        Some(word) if args.len() == 4 && is(word, "ALL") => true,
        Some(word) if args.len() == 4 && is(word, "WRITE") => false,
        Some(_) if args.len() == 4 => {
            return Err(Error::text("ERR CLIENT PAUSE mode must be WRITE or ALL"));
        }
        Some(_) => return Err(Error::wrong_arity("client|pause")),
    };
    const NO_INTEGER: Error = Error::text("ERR timeout is not an integer or out of range");
    let ms = number::integer(args.word(2)).ok_or(NO_INTEGER)?;
    if ms < 0 {
        return Err(Error::NEGATIVE_TIMEOUT);
    }
    let now_ms = crate::worker::now_ms();
    let until_ms = now_ms.checked_add(ms).ok_or(Error::text("ERR timeout is out of range"))?;
    let pause = &hub(cx).shared.pause;
    // Of pauses that overlap, the stricter and the longer one count.
    if all {
        pause.all.store(true, Ordering::Relaxed);
    } else if pause.until_ms.load(Ordering::Relaxed) <= now_ms {
        pause.all.store(false, Ordering::Relaxed);
    }
    pause.until_ms.fetch_max(until_ms, Ordering::Relaxed);
    cx.out.ok();
    Ok(())
}

fn unpause(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let shared = Arc::clone(&hub(cx).shared);
    shared.pause.until_ms.store(0, Ordering::Relaxed);
    (0..shared.threads()).for_each(|thread| shared.send(thread, Message::Unpause));
    cx.out.ok();
    Ok(())
}

// Switches.

fn on_off(word: &[u8]) -> Result<bool, Error> {
    match word {
        on if is(on, "ON") => Ok(true),
        off if is(off, "OFF") => Ok(false),
        _ => Err(Error::SYNTAX),
    }
}

fn switch(
    cx: &mut Context<'_>,
    word: &[u8],
    flag: fn(&Client) -> &AtomicBool,
) -> Result<bool, Error> {
    let on = on_off(word)?;
    flag(&client(cx)).store(on, Ordering::Relaxed);
    cx.out.ok();
    Ok(on)
}

fn no_evict(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    switch(cx, args.word(2), |client| &client.no_evict)?;
    Ok(())
}

fn no_touch(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    cx.session.no_touch = switch(cx, args.word(2), |client| &client.no_touch)?;
    Ok(())
}

fn reply(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let peer = hub(cx).peer();
    match args.word(2) {
        on if is(on, "ON") => {
            peer.replies = Replies::On;
            peer.mutes = false;
            cx.out.ok();
        }
        off if is(off, "OFF") => peer.replies = Replies::Off,
        skip if is(skip, "SKIP") => {
            if peer.replies != Replies::Off {
                peer.replies = Replies::Skip;
            }
        }
        _ => return Err(Error::SYNTAX),
    }
    Ok(())
}

// Tracking: not there yet.

fn tracking(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if on_off(args.word(2))? {
        return Err(Error::text("ERR CLIENT TRACKING ON is not supported yet"));
    }
    cx.out.ok();
    Ok(())
}

fn trackinginfo(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let out = &mut cx.out;
    out.map(3);
    out.text("flags");
    out.set(1);
    out.text("off");
    out.text("redirect");
    out.int(-1);
    out.text("prefixes");
    out.array(0);
    Ok(())
}

fn getredir(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    cx.out.int(-1);
    Ok(())
}

fn caching(_: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    Err(Error::text(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
         OPTOUT mode enabled",
    ))
}

// Watching.

fn monitor(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    if cx.session.in_exec {
        return Err(Error::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    let id = cx.session.id;
    let hub = hub(cx);
    if !hub.peer().client.monitor.swap(true, Ordering::Relaxed) {
        crate::monitor::join(&hub.shared, (hub.thread, id));
        cx.out.ok();
    }
    Ok(())
}
