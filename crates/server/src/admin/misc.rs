//! Commands about the server as a whole: its time, its role; and those of parts that are not there
//! yet, which say so.

use commands::command::{ADMIN, Command, FAST, Family, Group, LOADING, NO_SCRIPT, STALE};
use commands::context::Context;
use commands::error::Error;
use commands::help::HELP;
use commands::words::{integer, is};
use resp::Args;

use super::info::REDIS_VERSION;
use crate::hub::Hub;

const NO_REPLICATION: Error = Error::text("ERR replication is not there yet");
const NO_MODULES: Error = Error::text("ERR modules are not there and will not be");
const NO_CLUSTER: Error = Error::text("ERR This instance has cluster support disabled");

const ADMINS: Command =
    Command { flags: ADMIN.with(NO_SCRIPT).with(LOADING).with(STALE), ..Command::DEFAULT };

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Server,
    commands: &[
        Command {
            name: "TIME",
            run: time,
            flags: FAST.with(LOADING).with(STALE),
            summary: "Returns the server's time: seconds since 1970, and microseconds.",
            since: "2.6.0",
            tips: &["nondeterministic_output"],
            ..Command::DEFAULT
        },
        Command {
            name: "LOLWUT",
            run: lolwut,
            flags: FAST,
            usage: "[VERSION version] [number [number ...]]",
            arity_override: -1,
            summary: "Draws the water behind a dam, with the version under it.",
            since: "5.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "ROLE",
            run: role,
            flags: FAST.with(NO_SCRIPT).with(LOADING).with(STALE).with(ADMIN),
            summary: "Returns the server's role in replication: master.",
            since: "2.8.12",
            ..Command::DEFAULT
        },
        Command {
            name: "REPLICAOF",
            run: replicaof,
            flags: ADMIN.with(NO_SCRIPT).with(STALE),
            usage: "host port",
            summary: "Follows another server; only NO ONE so far.",
            since: "5.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "SLAVEOF",
            run: replicaof,
            flags: ADMIN.with(NO_SCRIPT).with(STALE),
            usage: "host port",
            summary: "Follows another server; only NO ONE so far.",
            deprecated: Some(("5.0.0", "`REPLICAOF`")),
            ..Command::DEFAULT
        },
        Command {
            name: "MODULE",
            summary: "Lists modules; there are none.",
            complexity: "Depends on the subcommand",
            since: "4.0.0",
            sub: &[
                Command {
                    name: "LIST",
                    run: module_list,
                    flags: ADMIN.with(NO_SCRIPT),
                    summary: "Returns the modules: none.",
                    since: "4.0.0",
                    tips: &["nondeterministic_output_order"],
                    ..Command::DEFAULT
                },
                Command {
                    name: "LOAD",
                    run: no_modules,
                    flags: ADMIN.with(NO_SCRIPT),
                    usage: "path [arg [arg ...]]",
                    summary: "Loads a module: refused.",
                    since: "4.0.0",
                    ..Command::DEFAULT
                },
                Command {
                    name: "UNLOAD",
                    run: no_modules,
                    flags: ADMIN.with(NO_SCRIPT),
                    usage: "name",
                    summary: "Unloads a module: refused.",
                    since: "4.0.0",
                    ..Command::DEFAULT
                },
                Command { since: "5.0.0", ..HELP },
            ],
            ..Command::DEFAULT
        },
        Command {
            name: "CLUSTER",
            run: no_cluster,
            usage: "subcommand [arg [arg ...]]",
            summary: "Refused: this server is not a node of a cluster.",
            since: "3.0.0",
            flags: STALE.with(NO_SCRIPT),
            ..Command::DEFAULT
        },
        Command {
            name: "READONLY",
            run: no_cluster,
            flags: FAST.with(LOADING).with(STALE),
            summary: "Refused: this server is not a node of a cluster.",
            since: "3.0.0",
            ..ADMINS
        },
        Command {
            name: "READWRITE",
            run: no_cluster,
            flags: FAST.with(LOADING).with(STALE),
            summary: "Refused: this server is not a node of a cluster.",
            since: "3.0.0",
            ..ADMINS
        },
        Command {
            name: "ASKING",
            run: no_cluster,
            flags: FAST,
            summary: "Refused: this server is not a node of a cluster.",
            since: "3.0.0",
            ..ADMINS
        },
    ],
};

fn time(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let now = crate::worker::now_us();
    cx.out.array(2);
    cx.out.bulk_int(now / 1_000_000);
    cx.out.bulk_int(now % 1_000_000);
    Ok(())
}

/// A drawing's size unless told otherwise, and the largest.
const SIZE: (usize, usize) = (56, 10);
const SIZE_MAX: (i64, i64) = (200, 60);

/// `LOLWUT [VERSION n] [columns [rows]]`; the numbers are what Redis's drawings take, too.
fn lolwut(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let from =
        if args.get(1).is_some_and(|word| is(word, "VERSION")) && args.len() > 2 { 3 } else { 1 };
    if from == 3 {
        integer(args.word(2))?;
    }
    let mut numbers = args.iter().skip(from).map(integer);
    let columns = numbers.next().transpose()?.map_or(SIZE.0, |n| n.clamp(1, SIZE_MAX.0) as usize);
    let rows = numbers.next().transpose()?.map_or(SIZE.1, |n| n.clamp(1, SIZE_MAX.1) as usize);
    let bits = Hub::of(cx.host).random.bits();
    let text = format!("{}\nRedis ver. {REDIS_VERSION}\n", basin(columns, rows, bits));
    cx.out.verbatim("txt", &text);
    Ok(())
}

/// Waves between two banks, calmer with depth, and the dam to the right.
fn basin(columns: usize, rows: usize, bits: u64) -> String {
    let phase = |shift: u32| (bits >> shift & 0xff) as f64 / 40.0;
    let mut text = String::new();
    for row in 0..rows {
        let depth = row as f64 / rows as f64;
        for column in 0..columns {
            let x = column as f64;
            let wave = (x / 5.0 + phase(0) + depth * 3.0).sin()
                + (x / 11.0 + phase(8) - depth * 5.0).sin() * 0.7;
            let height = wave * (1.0 - depth) - (0.6 - depth * 2.0);
            text.push(match height {
                height if height < -0.5 => ' ',
                height if height < 0.0 => '.',
                height if height < 0.6 => '~',
                height if height < 1.2 => '=',
                _ => '#',
            });
        }
        text.push_str("||\n");
    }
    text
}

fn role(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    cx.out.array(3);
    cx.out.text("master");
    cx.out.int(0);
    cx.out.array(0);
    Ok(())
}

fn replicaof(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if is(args.word(1), "NO") && is(args.word(2), "ONE") {
        cx.out.ok();
        return Ok(());
    }
    Err(NO_REPLICATION)
}

fn module_list(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    cx.out.array(0);
    Ok(())
}

fn no_modules(_: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    Err(NO_MODULES)
}

fn no_cluster(_: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    Err(NO_CLUSTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Server;

    #[test]
    fn what_is_not_there_says_so() {
        Server::new(&[]).check(&[
            ("ROLE", "*3 $6 master :0 *0"),
            ("REPLICAOF NO ONE", "+OK"),
            ("SLAVEOF 127.0.0.1 6379", "-ERR replication is not there yet"),
            ("MODULE LIST", "*0"),
            ("CLUSTER INFO", "-ERR This instance has cluster support disabled"),
            ("READONLY", "-ERR This instance has cluster support disabled"),
            ("LOLWUT VERSION x", "-ERR value is not an integer or out of range"),
        ]);
    }

    #[test]
    fn drawings_have_their_size() {
        for (columns, rows) in [(1, 1), (7, 3), (200, 60)] {
            let text = basin(columns, rows, 0x1234);
            assert_eq!(text.lines().count(), rows);
            assert!(text.lines().all(|line| line.len() == columns + 2));
        }
        let mut server = Server::new(&[]);
        assert!(server.run("LOLWUT VERSION 5 20 4").contains("Redis ver. 7.2.4"));
    }
}
