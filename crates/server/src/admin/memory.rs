//! MEMORY as far as the allocator tells it. MEMORY USAGE is `commands::memory`'s: the registry
//! joins both.

use commands::command::{Command, Family, Group, NONE};
use commands::context::Context;
use commands::error::Error;
use resp::Args;

use super::info::human;
use crate::hub::Hub;
use crate::sys;

const ROW: Command = Command { flags: NONE, since: "4.0.0", ..Command::DEFAULT };

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Server,
    commands: &[Command {
        name: "MEMORY",
        summary: "Tells how memory is used.",
        complexity: "Depends on the subcommand",
        since: "4.0.0",
        sub: &[
            Command {
                name: "DOCTOR",
                run: doctor,
                summary: "Says in words whether memory is used well.",
                tips: &["nondeterministic_output"],
                ..ROW
            },
            Command {
                name: "MALLOC-STATS",
                run: malloc_stats,
                summary: "Returns the allocator's own report.",
                complexity: "Depends on the allocator",
                tips: &["nondeterministic_output"],
                ..ROW
            },
            Command {
                name: "PURGE",
                run: purge,
                summary: "Gives memory that the allocator keeps back to the system.",
                complexity: "Depends on the allocator",
                tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
                ..ROW
            },
            Command {
                name: "STATS",
                run: stats,
                summary: "Returns what takes memory.",
                tips: &["nondeterministic_output"],
                ..ROW
            },
        ],
        ..Command::DEFAULT
    }],
};

/// Below so many bytes nothing can be said.
const SMALL: u64 = 5 << 20;

fn doctor(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let shared = &Hub::of(cx.host).shared;
    let (used, rss, peak) = (sys::used_memory(), sys::resident_memory(), shared.peak_memory());
    let mut text = String::new();
    if used < SMALL {
        text = format!("Only {} are in use: too little to say anything.\n", human(used));
    } else {
        if rss > used + used / 2 {
            let (rss, used) = (human(rss), human(used));
            text += &format!("{rss} of RAM for {used} in use: MEMORY PURGE may give some back.\n");
        }
        if peak > used + used / 2 {
            let (peak, used) = (human(peak), human(used));
            text += &format!("{peak} were in use once, {used} are now.\n");
        }
    }
    if text.is_empty() {
        text.push_str("Memory is used well.\n");
    }
    cx.out.verbatim("txt", &text);
    Ok(())
}

fn malloc_stats(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    cx.out.verbatim("txt", &sys::allocator_report());
    Ok(())
}

fn purge(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    if !sys::purge() {
        return Err(Error::text("ERR Error purging dirty pages"));
    }
    cx.out.ok();
    Ok(())
}

fn stats(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let shared = std::sync::Arc::clone(&Hub::of(cx.host).shared);
    let space = &shared.core.space;
    let (used, peak, rss) = (sys::used_memory(), shared.peak_memory(), sys::resident_memory());
    let [allocated, active, resident, _] = sys::allocator();
    let startup = shared.startup_memory.min(used);
    let dataset = used - startup;
    let keys: u64 = (0..space.databases()).map(|db| space.key_count(db) as u64).sum();
    let place = cx.out.later();
    let mut count = 0;
    let out = &mut *cx.out;
    let mut number = |out: &mut resp::Writer, name: &str, value: u64| {
        out.text(name);
        out.int(value as i64);
        count += 1;
    };
    number(out, "peak.allocated", peak);
    number(out, "total.allocated", used);
    number(out, "startup.allocated", startup);
    for name in ["replication.backlog", "clients.slaves", "clients.normal", "cluster.links"] {
        number(out, name, 0);
    }
    number(out, "aof.buffer", 0);
    let scripts = crate::scripting::counts(&shared);
    number(out, "lua.caches", scripts.script_bytes);
    number(out, "functions.caches", scripts.library_bytes);
    number(out, "overhead.total", startup);
    number(out, "keys.count", keys);
    number(out, "keys.bytes-per-key", dataset.checked_div(keys).unwrap_or(0));
    number(out, "dataset.bytes", dataset);
    number(out, "allocator.allocated", allocated);
    number(out, "allocator.active", active);
    number(out, "allocator.resident", resident);
    number(out, "allocator-fragmentation.bytes", active.saturating_sub(allocated));
    number(out, "allocator-rss.bytes", resident.saturating_sub(active));
    number(out, "rss-overhead.bytes", rss.saturating_sub(resident));
    number(out, "fragmentation.bytes", rss.saturating_sub(used));
    let ratio = |above: u64, below: u64| above as f64 / below.max(1) as f64;
    for (name, value) in [
        ("dataset.percentage", ratio(dataset, used) * 100.0),
        ("peak.percentage", ratio(used, peak) * 100.0),
        ("allocator-fragmentation.ratio", ratio(active, allocated)),
        ("allocator-rss.ratio", ratio(resident, active)),
        ("rss-overhead.ratio", ratio(rss, resident)),
        ("fragmentation", ratio(rss, used)),
    ] {
        out.text(name);
        out.double(value);
        count += 1;
    }
    out.map_at(place, count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Server;

    #[test]
    fn both_halves_of_memory_are_there() {
        let mut server = Server::new(&[]);
        server.check(&[("SET k v", "+OK"), ("MEMORY USAGE nothing", "$-1")]);
        assert!(server.run("MEMORY STATS").contains("$10 keys.count :1"));
        assert!(server.run("MEMORY DOCTOR").starts_with('$'));
        let help = server.run("MEMORY HELP");
        assert!(help.contains("USAGE key") && help.contains("PURGE"), "{help}");
    }
}
