//! BGREWRITEAOF and WAITAOF.

use commands::command::{ADMIN, BLOCKING, Command, Family, Group, NO_SCRIPT};
use commands::context::Context;
use commands::error::Error;
use commands::words::integer;
use keyspace::value::Kind;
use resp::{Args, Writer};

use super::Phase;
use crate::hub::Hub;

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Server,
    commands: &[
        Command {
            name: "BGREWRITEAOF",
            run: bgrewriteaof,
            flags: ADMIN.with(NO_SCRIPT),
            summary: "Rewrites the append-only file in the background.",
            complexity: "O(1)",
            ..Command::DEFAULT
        },
        Command {
            name: "WAITAOF",
            run: waitaof,
            flags: NO_SCRIPT.with(BLOCKING),
            usage: "numlocal numreplicas timeout",
            summary: "Waits until this client's writes are safe in the append-only file.",
            complexity: "O(1)",
            since: "7.2.0",
            tips: &["request_policy:all_shards", "response_policy:agg_min"],
            ..Command::DEFAULT
        },
    ],
};

fn bgrewriteaof(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let shared = std::sync::Arc::clone(&Hub::of(cx.host).shared);
    let aof = &shared.aof;
    if aof.rewriting().0 {
        return Err(Error::text("ERR Background append only file rewriting already in progress"));
    }
    let has_image = shared.core.space.has_image() && !aof.is_ending();
    let is_busy = has_image || shared.persistence.is_saving();
    aof.ask_rewrite(is_busy);
    cx.out.simple(if is_busy {
        "Background append only file rewriting scheduled"
    } else {
        "Background append only file rewriting started"
    });
    Ok(())
}

/// What a client waits for in WAITAOF.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// The log's position after its last write.
    pub position: u64,
    /// Whether it waits for this server's file.
    pub is_local: bool,
    /// Replicas that it waits for; there are none, so their number is never reached.
    pub replicas: i64,
}

impl Wish {
    /// Writes what has been reached, given up to where the file is safe.
    pub fn write(&self, out: &mut Writer, durable: u64, is_on: bool) {
        out.array(2);
        out.flag(is_on && durable >= self.position);
        out.int(0);
    }

    /// Whether it has been reached.
    pub fn is_reached(&self, durable: u64) -> bool {
        (!self.is_local || durable >= self.position) && self.replicas <= 0
    }
}

fn waitaof(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let local = integer(args.word(1))?;
    if !(0..=1).contains(&local) {
        return Err(Error::text("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = integer(args.word(2))?;
    if replicas < 0 {
        return Err(Error::text("ERR value is out of range, must be positive"));
    }
    let timeout = integer(args.word(3));
    let timeout =
        timeout.map_err(|_| Error::text("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(Error::NEGATIVE_TIMEOUT);
    }
    let hub = Hub::of(cx.host);
    let aof = &hub.shared.aof;
    if local > 0 && !aof.is_on() {
        return Err(Error::text(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    let wish = Wish { position: cx.session.written, is_local: local > 0, replicas };
    let (durable, is_on) = (aof.log.durable(), aof.phase() == Phase::On);
    if wish.is_reached(durable) || cx.session.in_exec {
        wish.write(cx.out, durable, is_on);
        return Ok(());
    }
    if aof.log.policy() == persist::aof::log::Policy::No {
        // Nobody would sync it otherwise.
        aof.log.ask_sync();
    }
    hub.peer().wish = Some(wish);
    cx.block([], Kind::String, timeout, |_| {});
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Server;

    #[test]
    fn waiting_without_a_file_is_answered() {
        let mut server = Server::new(&[]);
        server.check(&[
            ("WAITAOF 0 0 0", "*2 :0 :0"),
            (
                "WAITAOF 1 0 0",
                "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
            ),
            ("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1"),
            ("WAITAOF 0 -1 0", "-ERR value is out of range, must be positive"),
            ("WAITAOF 0 0 -1", "-ERR timeout is negative"),
            ("WAITAOF 0 0 x", "-ERR timeout is not an integer or out of range"),
        ]);
    }
}
