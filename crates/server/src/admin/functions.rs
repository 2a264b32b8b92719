//! FUNCTION, as far as it goes without Lua: there are no libraries, so there is nothing to list and
//! nothing to remove.

use commands::command::{Command, Family, Group, NO_SCRIPT, WRITE};
use commands::context::Context;
use commands::error::Error;
use commands::help::HELP;
use commands::words::is;
use resp::Args;

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Scripting,
    commands: &[Command {
        name: "FUNCTION",
        summary: "Manages libraries of functions; there are none yet.",
        complexity: "Depends on the subcommand",
        since: "7.0.0",
        sub: &[
            Command {
                name: "FLUSH",
                run: flush,
                flags: NO_SCRIPT.with(WRITE),
                usage: "[ASYNC | SYNC]",
                summary: "Removes all libraries; there are none yet.",
                since: "7.0.0",
                tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
                ..Command::DEFAULT
            },
            Command { since: "7.0.0", ..HELP },
        ],
        ..Command::DEFAULT
    }],
};

/// Answers OK: before libraries can be loaded, none are left. Scripts that clean a server up,
/// Redis's test suite before each of its blocks among them, call it beside FLUSHALL and stop at an
/// error.
fn flush(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    match args.get(2) {
        None => {}
        Some(word) if args.len() == 3 && (is(word, "ASYNC") || is(word, "SYNC")) => {}
        Some(_) => {
            const BAD: Error = Error::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
            return Err(BAD);
        }
    }
    cx.out.ok();
    Ok(())
}
