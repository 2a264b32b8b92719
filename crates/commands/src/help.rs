//! The HELP subcommand of every container, written from the container's own rows.

use resp::Args;

use crate::command::{Command, LOADING, STALE};
use crate::context::Context;
use crate::error::Error;

/// The row; a container adds it to its `sub`, with its own `since` where that differs.
pub const HELP: Command = Command {
    name: "HELP",
    run: help,
    flags: LOADING.with(STALE),
    summary: "Says what the subcommands are.",
    since: "5.0.0",
    ..Command::DEFAULT
};

/// Two lines for each subcommand, in the frame that Redis puts around them.
pub fn help(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let container = cx.entry.full_name.split('|').next().unwrap_or_default();
    let entry = cx.core.registry.lookup(container.as_bytes());
    let entry = entry.expect("a subcommand runs only inside its container");
    let rows = entry.subs.iter().map(|index| &cx.core.registry.entries()[*index].command);
    let rows = rows.filter(|row| row.name != HELP.name);
    let place = cx.out.later();
    let mut lines = 3;
    let name = entry.command.name;
    cx.out.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for row in rows {
        let space = if row.usage.is_empty() { "" } else { " " };
        cx.out.simple(&format!("{}{space}{}", row.name, row.usage));
        cx.out.simple(&format!("    {}", row.summary));
        lines += 2;
    }
    cx.out.simple("HELP");
    cx.out.simple("    Print this help.");
    cx.out.array_at(place, lines);
    Ok(())
}
