//! SLOWLOG: commands that took long.

use commands::command::{ADMIN, Command, Family, Group, LOADING, STALE};
use commands::context::Context;
use commands::error::Error;
use commands::help::HELP;
use commands::words::integer;
use resp::Args;

use crate::hub::Hub;

const ROW: Command =
    Command { flags: ADMIN.with(LOADING).with(STALE), since: "2.2.12", ..Command::DEFAULT };

/// Entries that GET shows unless told otherwise.
const SHOWN: i64 = 10;

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Server,
    commands: &[Command {
        name: "SLOWLOG",
        summary: "Shows and empties the slow log.",
        complexity: "Depends on the subcommand",
        since: "2.2.12",
        sub: &[
            Command {
                name: "GET",
                run: get,
                usage: "[count]",
                summary: "Returns the newest entries, 10 unless told otherwise; -1 = all.",
                complexity: "O(N), N = entries returned",
                tips: &["request_policy:all_nodes", "nondeterministic_output"],
                ..ROW
            },
            Command {
                name: "LEN",
                run: len,
                summary: "Returns the number of entries.",
                tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
                ..ROW
            },
            Command {
                name: "RESET",
                run: reset,
                summary: "Removes all entries.",
                complexity: "O(N), N = entries",
                tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
                ..ROW
            },
            Command { since: "6.2.0", ..HELP },
        ],
        ..Command::DEFAULT
    }],
};

fn get(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let count = args.get(2).map_or(Ok(SHOWN), integer)?;
    if args.len() > 3 {
        return Err(Error::wrong_arity(cx.command_name()));
    }
    if count < -1 {
        return Err(Error::text("ERR count should be greater than or equal to -1"));
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let entries = Hub::of(cx.host).shared.records.slow(count);
    cx.out.array(entries.len());
    for slow in entries {
        cx.out.array(6);
        cx.out.int(slow.id as i64);
        cx.out.int(slow.unix_seconds);
        cx.out.int(slow.microseconds as i64);
        cx.out.array(slow.words.len());
        slow.words.iter().for_each(|word| cx.out.bulk(word));
        cx.out.text(&slow.addr);
        cx.out.text(&slow.name);
    }
    Ok(())
}

fn len(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let len = Hub::of(cx.host).shared.records.slow_len();
    cx.out.count(len);
    Ok(())
}

fn reset(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    Hub::of(cx.host).shared.records.slow_reset();
    cx.out.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Server;

    #[test]
    fn slow_commands_are_kept_without_secrets() {
        let mut server = Server::new(&[("slowlog-log-slower-than", "0")]);
        server.run("SET k v");
        server.run("CONFIG SET requirepass hidden timeout 3");
        let log = server.run("SLOWLOG GET 2");
        assert!(log.contains("$3 SET $1 k $1 v"), "{log}");
        assert!(log.contains("$11 requirepass $10 (redacted) $7 timeout $1 3"), "{log}");
        server.check(&[
            ("CONFIG SET slowlog-log-slower-than -1", "+OK"),
            ("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1"),
            ("SLOWLOG RESET", "+OK"),
            ("SLOWLOG LEN", ":0"),
            ("SLOWLOG GET", "*0"),
        ]);
    }
}
