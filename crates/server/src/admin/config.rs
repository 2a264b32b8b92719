//! CONFIG: the options, read and changed while the server runs.

use std::sync::atomic::Ordering;

use commands::command::{ADMIN, Command, Family, Group, LOADING, NO_SCRIPT, STALE};
use commands::context::Context;
use commands::error::Error;
use commands::help::HELP;
use commands::pattern::matches_any_case;
use resp::Args;

use crate::apply::apply_all;
use crate::conf_file::rewritten;
use crate::hub::Hub;
use crate::option_table::TABLE;
use crate::options::{Options, Row, Value, When, index_of};
use crate::shared::Shared;

const ROW: Command = Command {
    flags: ADMIN.with(NO_SCRIPT).with(LOADING).with(STALE),
    since: "2.0.0",
    ..Command::DEFAULT
};

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Server,
    commands: &[Command {
        name: "CONFIG",
        summary: "Reads and changes the server's options.",
        complexity: "Depends on the subcommand",
        since: "2.0.0",
        sub: &[
            Command {
                name: "GET",
                run: get,
                usage: "parameter [parameter ...]",
                summary: "Returns the options that match one of the patterns, with their values.",
                complexity: "O(N * M), N = options, M = patterns",
                ..ROW
            },
            Command {
                name: "SET",
                run: set,
                usage: "parameter value [parameter value ...]",
                summary: "Sets options, all of them or none.",
                complexity: "O(N), N = options set",
                ..ROW
            },
            Command {
                name: "RESETSTAT",
                run: resetstat,
                summary: "Sets the statistics of INFO to zero.",
                ..ROW
            },
            Command {
                name: "REWRITE",
                run: rewrite,
                summary: "Writes the present options into the configuration file.",
                since: "2.8.0",
                ..ROW
            },
            Command { since: "5.0.0", ..HELP },
        ],
        ..Command::DEFAULT
    }],
};

fn get(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let options = &Hub::of(cx.host).shared.options;
    let mut count = 0;
    let place = cx.out.later();
    for (index, row) in TABLE.iter().enumerate() {
        // An older name has an entry of its own, as in Redis.
        for name in std::iter::once(&row.name).chain(row.aliases) {
            let mut patterns = args.iter().skip(2);
            if patterns.any(|pattern| matches_any_case(pattern, name.as_bytes())) {
                cx.out.text(name);
                cx.out.text(&options.text(index));
                count += 1;
            }
        }
    }
    cx.out.map_at(place, count);
    Ok(())
}

fn failed(name: &str, text: &str) -> Error {
    Error::new(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {text}"))
}

fn set(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if !args.len().is_multiple_of(2) {
        return Err(Error::SYNTAX);
    }
    let shared = std::sync::Arc::clone(&Hub::of(cx.host).shared);
    let mut changes: Vec<(usize, Value)> = Vec::new();
    for at in (2..args.len()).step_by(2) {
        let name = String::from_utf8_lossy(args.word(at)).into_owned();
        let Some((index, row)) = Options::row(&name) else {
            return Err(Error::new(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            )));
        };
        if changes.iter().any(|(other, _)| *other == index) {
            return Err(failed(&name, "duplicate parameter"));
        }
        check_may_set(&shared, row).map_err(|text| failed(&name, text))?;
        let text = String::from_utf8_lossy(args.word(at + 1)).into_owned();
        let words: Vec<&str> =
            if row.is_words() { text.split(' ').collect() } else { vec![text.as_str()] };
        let value = shared.options.parse(index, &words);
        changes.push((index, value.map_err(|text| failed(row.name, &text))?));
    }
    change(&shared, changes).map_err(|(name, text)| failed(name, &text))?;
    cx.out.ok();
    Ok(())
}

fn check_may_set(shared: &Shared, row: &Row) -> Result<(), &'static str> {
    let allows = shared.options.text(const { index_of("enable-protected-configs") });
    match row.when {
        When::Start => Err("can't set immutable config"),
        When::Protected if allows == "no" => Err("can't set protected config"),
        _ => Ok(()),
    }
}

/// Sets values and carries them over; if the system refuses one, all are as before.
fn change(shared: &Shared, changes: Vec<(usize, Value)>) -> Result<(), (&'static str, String)> {
    let before: Vec<(usize, Value)> =
        changes.iter().map(|(index, _)| (*index, shared.options.value(*index))).collect();
    let put = |(index, value)| shared.options.put(index, value);
    changes.into_iter().for_each(put);
    apply_all(shared).inspect_err(|_| {
        before.into_iter().for_each(put);
        // What was in force before can be again.
        let _ = apply_all(shared);
    })
}

/// Sets the statistics to zero. The other threads write theirs without locks, so that a count
/// made in this very moment may survive.
pub fn reset_statistics(shared: &Shared) {
    shared.counts.iter().for_each(crate::shared::Counts::reset);
    for tally in shared.core.space.tallies() {
        let counts = [
            &tally.hits,
            &tally.misses,
            &tally.expired,
            &tally.evicted,
            &tally.expire_lag_max_ms,
            &tally.expire_lag_sum_ms,
        ];
        counts.into_iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
    shared.rejected_connections.store(0, Ordering::Relaxed);
    shared.records.errors_reset();
}

fn resetstat(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    reset_statistics(&Hub::of(cx.host).shared);
    cx.out.ok();
    Ok(())
}

fn rewrite(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let shared = &Hub::of(cx.host).shared;
    if shared.config_file.is_empty() {
        return Err(Error::text("ERR The server is running without a config file"));
    }
    let file = std::path::Path::new(&shared.config_file);
    rewrite_file(file, &shared.options)
        .map_err(|error| Error::new(format!("ERR Rewriting config file: {error}")))?;
    cx.out.ok();
    Ok(())
}

/// Replaces the file in one step: it is whole at every moment.
fn rewrite_file(file: &std::path::Path, options: &Options) -> std::io::Result<()> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        other => other?,
    };
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let next = std::path::PathBuf::from(name);
    let written = std::fs::write(&next, rewritten(&text, options)).and_then(|()| {
        if let Ok(known) = std::fs::metadata(file) {
            std::fs::set_permissions(&next, known.permissions())?;
        }
        std::fs::File::open(&next)?.sync_all()?;
        std::fs::rename(&next, file)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&next);
    }
    written
}

#[cfg(test)]
mod tests {
    use crate::testing::Server;

    #[test]
    fn options_are_read_and_set() {
        let mut server = Server::new(&[]);
        server.check(&[
            ("CONFIG GET MAXMEM*LRU nothing*", "*0"),
            ("CONFIG GET maxmemory", "*2 $9 maxmemory $1 0"),
            ("CONFIG SET maxmemory 1mb maxmemory-policy allkeys-lru", "+OK"),
            (
                "CONFIG GET maxmemory maxmemory-p*",
                "*4 $9 maxmemory $7 1048576 $16 maxmemory-policy $11 allkeys-lru",
            ),
            ("CONFIG GET slave-priority", "*2 $14 slave-priority $3 100"),
            ("CONFIG SET save '900 1 300 10'", "+OK"),
            ("CONFIG GET save", "*2 $4 save $12 900 1 300 10"),
            ("CONFIG SET save ''", "+OK"),
            ("CONFIG GET save", "*2 $4 save $0 "),
            ("CONFIG SET notify-keyspace-events KEA", "+OK"),
            ("CONFIG GET notify-keyspace-events", "*2 $22 notify-keyspace-events $3 AKE"),
            ("CONFIG SET client-output-buffer-limit 'normal 1k 0 0'", "+OK"),
            ("CONFIG SET hash-max-ziplist-entries 3", "+OK"),
        ]);
        assert_eq!(server.shared.output_limits(0).hard_bytes, 1000);
        assert_eq!(server.shared.core.space.settings.hash_limits().listpack_entries, 3);
    }

    #[test]
    fn wrong_values_change_nothing() {
        let mut server = Server::new(&[]);
        let failed = |name: &str, text: &str| {
            format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {text}")
        };
        let cases = [
            (
                "CONFIG SET maxmemory",
                "-ERR wrong number of arguments for 'config|set' command".into(),
            ),
            ("CONFIG SET maxmemory 1 hz", "-ERR syntax error".into()),
            (
                "CONFIG SET maxmemory 1 nope 2",
                "-ERR Unknown option or number of arguments for CONFIG SET - 'nope'".into(),
            ),
            ("CONFIG SET maxmemory 1 maxmemory 2", failed("maxmemory", "duplicate parameter")),
            ("CONFIG SET maxmemory 1 port 7", failed("port", "can't set immutable config")),
            ("CONFIG SET maxmemory 1 dir /tmp", failed("dir", "can't set protected config")),
            (
                "CONFIG SET maxmemory 1 appendonly x",
                failed("appendonly", "argument must be 'yes' or 'no'"),
            ),
        ];
        for (line, want) in cases {
            assert_eq!(server.run(line), want, "{line}");
            assert_eq!(server.run("CONFIG GET maxmemory"), "*2 $9 maxmemory $1 0");
        }
        let mut server = Server::new(&[("enable-protected-configs", "yes")]);
        let text = "No such file or directory";
        assert_eq!(server.run("CONFIG SET maxmemory 1 dir /nowhere"), failed("dir", text));
        server.check(&[
            ("CONFIG GET maxmemory", "*2 $9 maxmemory $1 0"),
            ("CONFIG REWRITE", "-ERR The server is running without a config file"),
            ("CONFIG RESETSTAT", "+OK"),
            ("CONFIG NOPE", "-ERR unknown subcommand 'NOPE'. Try CONFIG HELP."),
        ]);
        assert!(server.run("CONFIG HELP").contains("CONFIG <subcommand>"));
    }
}
