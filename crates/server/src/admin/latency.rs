//! LATENCY: events that took long, and the latencies of each command.

use std::fmt::Write;

use commands::command::{ADMIN, Command, Family, Group, LOADING, NO_SCRIPT, STALE};
use commands::context::Context;
use commands::error::Error;
use commands::help::HELP;
use resp::Args;

use super::info::command_latencies;
use crate::hub::Hub;
use crate::options::index_of;
use crate::records::Spikes;

const ROW: Command = Command {
    flags: ADMIN.with(NO_SCRIPT).with(LOADING).with(STALE),
    since: "2.8.13",
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    ..Command::DEFAULT
};

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Server,
    commands: &[Command {
        name: "LATENCY",
        summary: "Tells what took long, and how long commands take.",
        complexity: "Depends on the subcommand",
        since: "2.8.13",
        sub: &[
            Command {
                name: "LATEST",
                run: latest,
                summary: "Returns the newest latency of each event, and its longest.",
                ..ROW
            },
            Command {
                name: "HISTORY",
                run: history,
                usage: "event",
                summary: "Returns an event's latencies with their times.",
                ..ROW
            },
            Command {
                name: "RESET",
                run: reset,
                usage: "[event [event ...]]",
                summary: "Forgets the latencies of some events, or of all.",
                tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
                ..ROW
            },
            Command {
                name: "HISTOGRAM",
                run: histogram,
                usage: "[command [command ...]]",
                summary: "Returns how many calls of each command took how long.",
                complexity: "O(N), N = commands",
                since: "7.0.0",
                ..ROW
            },
            Command {
                name: "DOCTOR",
                run: doctor,
                summary: "Says in words what took long.",
                ..ROW
            },
            Command {
                name: "GRAPH",
                run: graph,
                usage: "event",
                summary: "Draws an event's latencies.",
                ..ROW
            },
            Command { since: "2.8.13", ..HELP },
        ],
        ..Command::DEFAULT
    }],
};

fn latest(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let all = Hub::of(cx.host).shared.records.latencies();
    cx.out.array(all.len());
    for (event, spikes) in all {
        let (when, ms) = spikes.samples.back().copied().unwrap_or_default();
        cx.out.array(4);
        cx.out.text(event);
        cx.out.int(when);
        cx.out.int(ms as i64);
        cx.out.int(spikes.max_ms as i64);
    }
    Ok(())
}

fn spikes_of(cx: &mut Context<'_>, event: &[u8]) -> Option<Spikes> {
    let mut all = Hub::of(cx.host).shared.records.latencies();
    all.remove(String::from_utf8_lossy(event).as_ref())
}

fn history(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let spikes = spikes_of(cx, args.word(2)).unwrap_or_default();
    cx.out.array(spikes.samples.len());
    for (when, ms) in spikes.samples {
        cx.out.array(2);
        cx.out.int(when);
        cx.out.int(ms as i64);
    }
    Ok(())
}

fn reset(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let names = || args.iter().skip(2);
    let named = |event: &str| names().any(|name| name.eq_ignore_ascii_case(event.as_bytes()));
    let forget = |event: &str| args.len() == 2 || named(event);
    let count = Hub::of(cx.host).shared.records.latency_reset(forget);
    cx.out.count(count);
    Ok(())
}

fn histogram(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let shared = std::sync::Arc::clone(&Hub::of(cx.host).shared);
    // A container stands for all its subcommands.
    let is_asked = |name: &str| {
        args.len() == 2
            || args.iter().skip(2).any(|word| {
                let word = String::from_utf8_lossy(word).to_ascii_lowercase();
                name == word || name.split('|').next() == Some(word.as_str())
            })
    };
    let mut count = 0;
    let place = cx.out.later();
    for (name, summary) in command_latencies(&shared).filter(|(name, _)| is_asked(name)) {
        let buckets = summary.doubling();
        cx.out.text(name);
        cx.out.map(2);
        cx.out.text("calls");
        cx.out.int(summary.calls() as i64);
        cx.out.text("histogram_usec");
        cx.out.map(buckets.len());
        for (microseconds, calls) in buckets {
            cx.out.int(microseconds as i64);
            cx.out.int(calls as i64);
        }
        count += 1;
    }
    cx.out.map_at(place, count);
    Ok(())
}

fn doctor(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let shared = &Hub::of(cx.host).shared;
    let threshold = shared.options.number(const { index_of("latency-monitor-threshold") });
    let all = shared.records.latencies();
    let mut text = String::new();
    if all.is_empty() && threshold == 0 {
        text.push_str(
            "Latency monitoring is disabled: nothing is known. 'CONFIG SET \
             latency-monitor-threshold <milliseconds>' turns it on; what is usual for your server \
             times ten is a good threshold.\n",
        );
    } else if all.is_empty() {
        let _ = writeln!(text, "Nothing has taken {threshold} ms or more. All is well.");
    }
    for (event, spikes) in &all {
        let (count, advice) = (spikes.samples.len() as u64, advice(event));
        let sum: u64 = spikes.samples.iter().map(|(_, ms)| ms).sum();
        let (average, longest) = (sum / count.max(1), spikes.max_ms);
        let _ = writeln!(
            text,
            "{event}: {count} latency spikes, {average} ms on average, {longest} ms at most. \
             {advice}"
        );
    }
    cx.out.verbatim("txt", &text);
    Ok(())
}

fn advice(event: &str) -> &'static str {
    match event {
        "command" => {
            "SLOWLOG GET shows which commands these were; look for those that visit many \
                      elements or keys."
        }
        "fast-command" => {
            "Commands that should be fast were not: the machine may be short of CPU \
                           or memory; see INFO cpu and the system's swap."
        }
        "expire-cycle" => "Many keys expire at one time: spread their times to live.",
        "eviction-cycle" => "Keys are evicted in numbers: raise maxmemory, or write less at once.",
        _ => "",
    }
}

/// Columns and rows of a graph.
const COLUMNS: usize = 80;
const ROWS: u64 = 4;

fn graph(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let event = String::from_utf8_lossy(args.word(2)).into_owned();
    let Some(spikes) = spikes_of(cx, args.word(2)) else {
        return Err(Error::new(format!("ERR No samples available for event '{event}'")));
    };
    let now = Hub::of(cx.host).now_ms / 1000;
    cx.out.verbatim("txt", &drawing(&event, &spikes, now));
    Ok(())
}

fn drawing(event: &str, spikes: &Spikes, now: i64) -> String {
    let skip = spikes.samples.len().saturating_sub(COLUMNS);
    let shown: Vec<(i64, u64)> = spikes.samples.iter().skip(skip).copied().collect();
    let high = shown.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
    let low = shown.iter().map(|(_, ms)| *ms).min().unwrap_or(0);
    let longest = spikes.max_ms;
    let mut text = format!("{event} - high {high} ms, low {low} ms (all time high {longest} ms)\n");
    let _ = writeln!(text, "{}", "-".repeat(COLUMNS));
    for row in (0..ROWS).rev() {
        let cell = |(_, ms): &(i64, u64)| {
            let height = (ms - low) * ROWS / (high - low).max(1);
            if height > row || row == 0 { '#' } else { ' ' }
        };
        let line: String = shown.iter().map(cell).collect();
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let ago = |sample: Option<&(i64, u64)>| sample.map_or(0, |(when, _)| now - when);
    let _ = writeln!(text, "{} s ago to {} s ago", ago(shown.first()), ago(shown.last()));
    text
}

#[cfg(test)]
mod tests {
    use crate::testing::Server;

    #[test]
    fn events_are_told() {
        let mut server = Server::new(&[]);
        assert!(server.run("LATENCY DOCTOR").contains("monitoring is disabled"));
        server.check(&[
            ("LATENCY LATEST", "*0"),
            ("LATENCY HISTORY command", "*0"),
            ("LATENCY GRAPH command", "-ERR No samples available for event 'command'"),
        ]);
        let records = &server.shared.records;
        records.add_latency("command", 100, 5);
        records.add_latency("command", 100, 9);
        records.add_latency("command", 101, 7);
        server.check(&[
            ("LATENCY LATEST", "*1 *4 $7 command :101 :7 :9"),
            ("LATENCY HISTORY command", "*2 *2 :100 :9 *2 :101 :7"),
        ]);
        assert!(server.run("LATENCY GRAPH command").contains("high 9 ms, low 7 ms"));
        assert!(server.run("LATENCY DOCTOR").contains("2 latency spikes, 8 ms on average"));
        server.check(&[("LATENCY RESET nothing", ":0"), ("LATENCY RESET", ":1")]);
    }

    #[test]
    fn every_call_is_in_the_histogram() {
        let mut server = Server::new(&[]);
        server.session.resp3 = true;
        (0..3).for_each(|_| drop(server.run("PING")));
        let told = server.run("LATENCY HISTOGRAM ping nothing");
        assert!(told.starts_with("%1 $4 ping %2 $5 calls :3 $14 histogram_usec %"), "{told}");
        assert!(told.ends_with(" :3"), "{told}");
        server.check(&[
            ("CONFIG SET latency-tracking no", "+OK"),
            ("CONFIG RESETSTAT", "+OK"),
            ("GET k", "_"),
            ("LATENCY HISTOGRAM get", "%0"),
        ]);
    }
}
