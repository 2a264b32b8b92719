//! PING and ECHO.
use crate::command::{Command, FAST, Family, Group, LOADING, STALE, SUBSCRIBED};
use crate::context::Context;
use crate::error::Error;
use resp::Args;

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Connection,
    commands: &[
        Command {
            name: "PING",
            run: ping,
            flags: FAST.with(LOADING).with(STALE).with(SUBSCRIBED),
            usage: "[message]",
            summary: "Answers PONG, or the message.",
            ..Command::DEFAULT
        },
        Command {
            name: "ECHO",
            run: echo,
            flags: FAST.with(LOADING).with(STALE),
            usage: "message",
            summary: "Answers the message.",
            ..Command::DEFAULT
        },
    ],
};

fn ping(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    match args.get(1) {
        _ if args.len() > 2 => return Err(Error::wrong_arity("ping")),
        Some(message) => cx.out.bulk(message),
        None => cx.out.simple("PONG"),
    }
    Ok(())
}

fn echo(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    cx.out.bulk(args.word(1));
    Ok(())
}
