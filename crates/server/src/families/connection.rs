//! AUTH, HELLO, SELECT, PING, ECHO, QUIT, RESET: a client's own connection.

use std::sync::atomic::Ordering;

use commands::command::{
    ALLOW_BUSY, Command, FAST, Family, Flags, Group, LOADING, NO_AUTH, NO_SCRIPT, STALE,
    SUBSCRIBED, TRANSACTION,
};
use commands::context::Context;
use commands::error::Error;
use commands::words::is;
use resp::{Args, number};

use super::{client_commands, hub, pubsub_commands};
use crate::access;
use crate::admin::info::REDIS_VERSION;
use crate::connection::Replies;
use crate::hub::Hub;

const BASE: Flags = LOADING.with(STALE).with(FAST);
/// Before the client has shown who it is.
const ALWAYS: Flags = BASE.with(NO_SCRIPT).with(NO_AUTH).with(ALLOW_BUSY);

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Connection,
    commands: &[
        Command {
            name: "AUTH",
            run: auth,
            flags: ALWAYS,
            usage: "[username] password",
            summary: "Shows who the client is.",
            complexity: "O(N), N = passwords of the user",
            ..Command::DEFAULT
        },
        Command {
            name: "ECHO",
            run: echo,
            flags: BASE,
            usage: "message",
            summary: "Answers the message.",
            ..Command::DEFAULT
        },
        Command {
            name: "HELLO",
            run: hello,
            flags: ALWAYS,
            usage: "[protover [AUTH username password] [SETNAME clientname]]",
            summary: "Chooses the protocol, and tells about the server.",
            since: "6.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "PING",
            run: ping,
            flags: FAST.with(SUBSCRIBED),
            usage: "[message]",
            summary: "Answers PONG, or the message.",
            tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
            ..Command::DEFAULT
        },
        Command {
            name: "QUIT",
            run: quit,
            flags: ALWAYS.with(SUBSCRIBED).with(TRANSACTION),
            arity_override: -1,
            summary: "Closes the connection.",
            deprecated: Some(("7.2.0", "just closing the connection")),
            ..Command::DEFAULT
        },
        Command {
            name: "RESET",
            run: reset,
            flags: ALWAYS.with(SUBSCRIBED).with(TRANSACTION),
            summary: "Puts the connection back into the state of a new one.",
            since: "6.2.0",
            ..Command::DEFAULT
        },
        Command {
            name: "SELECT",
            run: select,
            flags: BASE,
            usage: "index",
            summary: "Chooses the database.",
            ..Command::DEFAULT
        },
    ],
};

fn auth(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let hub = hub(cx);
    let (user, password) = match args.len() {
        2 if !access::needs_password(&hub.shared) => {
            return Err(Error::text(
                "ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?",
            ));
        }
        2 => (access::DEFAULT_USER.as_bytes(), args.word(1)),
        3 => (args.word(1), args.word(2)),
        _ => return Err(Error::SYNTAX),
    };
    log_in(cx, user, password)?;
    cx.out.ok();
    Ok(())
}

fn log_in(cx: &mut Context<'_>, user: &[u8], password: &[u8]) -> Result<(), Error> {
    let hub = hub(cx);
    if !access::is_known(&hub.shared, user, password) {
        return Err(access::WRONG_PASSWORD);
    }
    let peer = hub.peer();
    peer.is_authenticated = true;
    peer.client.rename(|names| names.user = access::DEFAULT_USER.into());
    Ok(())
}

fn echo(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    cx.out.bulk(args.word(1));
    Ok(())
}

/// HELLO's options.
#[derive(Default)]
struct Hello<'a> {
    auth: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

fn hello_options<'a>(args: Args<'a>) -> Result<Hello<'a>, Error> {
    let mut options = Hello::default();
    let mut at = 2;
    while at < args.len() {
        let (word, more) = (args.word(at), args.len() - at - 1);
        if is(word, "AUTH") && more >= 2 {
            options.auth = Some((args.word(at + 1), args.word(at + 2)));
            at += 3;
        } else if is(word, "SETNAME") && more >= 1 {
            client_commands::check_name(args.word(at + 1), "Client names")?;
            options.name = Some(args.word(at + 1));
            at += 2;
        } else {
            let word = String::from_utf8_lossy(word);
            return Err(Error::new(format!("ERR Syntax error in HELLO option '{word}'")));
        }
    }
    Ok(options)
}

fn hello(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    const NO_INTEGER: Error = Error::text("ERR Protocol version is not an integer or out of range");
    let version = match args.get(1) {
        Some(word) => Some(number::integer(word).ok_or(NO_INTEGER)?),
        None => None,
    };
    if version.is_some_and(|version| !(2..=3).contains(&version)) {
        return Err(Error::text("NOPROTO unsupported protocol version"));
    }
    let options = hello_options(args)?;
    if let Some((user, password)) = options.auth {
        log_in(cx, user, password)?;
    }
    let peer = hub(cx).peer();
    if !peer.is_authenticated {
        return Err(Error::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = options.name {
        peer.client.rename(|names| names.name = String::from_utf8_lossy(name).into());
    }
    if let Some(version) = version {
        speak(cx, version == 3);
    }
    let proto = if cx.session.resp3 { 3 } else { 2 };
    let id = cx.session.id as i64;
    let out = &mut cx.out;
    out.map(7);
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        out.text(key);
        out.text(value);
    }
    for (key, value) in [("proto", proto), ("id", id)] {
        out.text(key);
        out.int(value);
    }
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        out.text(key);
        out.text(value);
    }
    out.text("modules");
    out.array(0);
    Ok(())
}

/// Changes the protocol, this reply's included.
fn speak(cx: &mut Context<'_>, resp3: bool) {
    cx.session.resp3 = resp3;
    cx.out.set_resp3(resp3);
}

fn ping(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if args.len() > 2 {
        return Err(Error::wrong_arity("ping"));
    }
    // A script in a file may say PING, where there is no client.
    let hub = Hub::try_of(cx.host);
    if !cx.session.resp3 && hub.is_some_and(|hub| hub.peer().subscriptions() > 0) {
        cx.out.array(2);
        cx.out.text("pong");
        cx.out.bulk(args.get(1).unwrap_or_default());
        return Ok(());
    }
    match args.get(1) {
        Some(message) => cx.out.bulk(message),
        None => cx.out.simple("PONG"),
    }
    Ok(())
}

fn quit(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    hub(cx).peer().closes = true;
    cx.out.ok();
    Ok(())
}

fn reset(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let session = &mut *cx.session;
    session.multi = None;
    session.kept = None;
    session.db = 0;
    session.no_touch = false;
    session.forget_watches();
    pubsub_commands::leave_all(cx);
    speak(cx, false);
    let thread = hub(cx).thread;
    let who = (thread, cx.session.id);
    let hub = hub(cx);
    let needs_password = access::needs_password(&hub.shared);
    let peer = hub.peer();
    peer.is_authenticated = !needs_password;
    peer.replies = Replies::On;
    let client = &peer.client;
    let was_monitor = client.monitor.swap(false, Ordering::Relaxed);
    client.no_touch.store(false, Ordering::Relaxed);
    client.no_evict.store(false, Ordering::Relaxed);
    client.rename(|names| {
        names.name.clear();
        names.user = access::DEFAULT_USER.into();
    });
    if was_monitor {
        crate::monitor::leave(&hub.shared, who);
        hub.forget_own();
    }
    cx.out.simple("RESET");
    Ok(())
}

fn select(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let index = commands::words::integer(args.word(1))?;
    if i32::try_from(index).is_err() {
        let (low, high) = (i32::MIN, i32::MAX);
        let text = format!("ERR value is out of range, value must between {low} and {high}");
        return Err(Error::new(text));
    }
    let count = cx.core.space.databases();
    match usize::try_from(index) {
        Ok(db) if db < count => cx.session.db = db,
        _ => return Err(Error::text("ERR DB index is out of range")),
    }
    cx.out.ok();
    Ok(())
}
