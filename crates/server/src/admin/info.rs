//! INFO: what the server knows of itself, as lines of `field:value` in sections.
//!
//! **Invariant:** no lock of the keyspace is taken: all numbers are counted where things happen.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use commands::command::{Command, Family, Group, LOADING, STALE};
use commands::context::Context;
use commands::error::Error;
use resp::Args;

use crate::histogram::Summary;
use crate::hub::Hub;
use crate::options::index_of;
use crate::pubsub::Channel;
use crate::shared::{Counts, Shared};
use crate::sys;

/// The version of Redis that this server behaves as.
pub const REDIS_VERSION: &str = "7.2.4";
/// This server's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Server,
    commands: &[Command {
        name: "INFO",
        run: info,
        flags: LOADING.with(STALE).with(commands::command::DANGEROUS),
        usage: "[section [section ...]]",
        summary: "Tells about the server: versions, clients, memory, statistics.",
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        ..Command::DEFAULT
    }],
};

/// What a section's writer works with.
struct Page<'a> {
    shared: &'a Shared,
    now_ms: i64,
    out: String,
}

type Section = (&'static str, Asked, fn(&mut Page<'_>));

/// When a section is shown.
#[derive(PartialEq, Eq)]
enum Asked {
    /// When nothing is asked for.
    Default,
    /// When it or all is asked for.
    All,
}

const SECTIONS: &[Section] = &[
    ("server", Asked::Default, server),
    ("clients", Asked::Default, clients),
    ("memory", Asked::Default, memory),
    ("persistence", Asked::Default, persistence),
    ("stats", Asked::Default, stats),
    ("replication", Asked::Default, replication),
    ("cpu", Asked::Default, cpu),
    ("modules", Asked::Default, modules),
    ("commandstats", Asked::All, commandstats),
    ("errorstats", Asked::Default, errorstats),
    ("latencystats", Asked::All, latencystats),
    ("cluster", Asked::Default, cluster),
    ("keyspace", Asked::Default, keyspace),
];

fn info(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let hub = Hub::of(cx.host);
    let names = args.iter().skip(1).map(|name| String::from_utf8_lossy(name).to_ascii_lowercase());
    let text = text(&hub.shared, hub.now_ms, &names.collect::<Vec<_>>());
    cx.out.verbatim("txt", &text);
    Ok(())
}

/// The sections of these names; without names, those of the default. Unknown ones are nothing.
pub fn text(shared: &Shared, now_ms: i64, names: &[String]) -> String {
    let mut page = Page { shared, now_ms, out: String::with_capacity(8192) };
    let asked = |name: &str| names.iter().any(|asked| asked == name);
    let all = asked("all") || asked("everything");
    let default = names.is_empty() || asked("default");
    for (name, when, write) in SECTIONS {
        if all || asked(name) || default && *when == Asked::Default {
            if !page.out.is_empty() {
                page.out.push_str("\r\n");
            }
            let (first, rest) = name.split_at(1);
            let _ = write!(page.out, "# {}{rest}\r\n", first.to_ascii_uppercase());
            write(&mut page);
        }
    }
    page.out
}

/// Bytes for people: `1.50M`.
pub fn human(bytes: u64) -> String {
    let units = [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];
    match units.into_iter().find(|(bits, _)| bytes >> bits > 0) {
        Some((bits, unit)) => format!("{:.2}{unit}", bytes as f64 / (1u64 << bits) as f64),
        None => format!("{bytes}B"),
    }
}

impl Page<'_> {
    fn field(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = write!(self.out, "{name}:{value}\r\n");
    }

    fn fields(&mut self, fields: &[(&str, u64)]) {
        fields.iter().for_each(|(name, value)| self.field(name, value));
    }

    /// Fields that say of something that is not there that it is not.
    fn zeros(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.field(name, 0));
    }

    /// A field with bytes, and one with the same for people.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        self.field(&format!("{name}_human"), human(bytes));
    }

    fn ratio(&mut self, name: &str, above: u64, below: u64) {
        self.field(name, format!("{:.2}", above as f64 / below.max(1) as f64));
    }

    fn number(&self, index: usize) -> i64 {
        self.shared.options.number(index)
    }

    fn option(&self, index: usize) -> String {
        self.shared.options.text(index)
    }

    fn total(&self, count: fn(&Counts) -> &AtomicU64) -> u64 {
        self.shared.total(|counts| count(counts).load(Ordering::Relaxed))
    }
}

fn server(page: &mut Page<'_>) {
    let shared = page.shared;
    let kernel = |file| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{file}"));
        text.unwrap_or_default().trim().to_string()
    };
    page.field("redis_version", REDIS_VERSION);
    page.field("forebay_version", VERSION);
    page.field("redis_git_sha1", "00000000");
    page.zeros(&["redis_git_dirty"]);
    page.field("redis_build_id", "0");
    page.field("redis_mode", "standalone");
    let (name, release, arch) = (kernel("ostype"), kernel("osrelease"), std::env::consts::ARCH);
    page.field("os", format!("{name} {release} {arch}"));
    page.field("arch_bits", usize::BITS);
    page.field("monotonic_clock", "POSIX clock_gettime");
    page.field("multiplexing_api", "epoll");
    page.field("atomicvar_api", "rust");
    page.field("process_id", std::process::id());
    page.field("process_supervised", page.option(const { index_of("supervised") }));
    page.field("run_id", &shared.run_id);
    let port = page.number(const { index_of("port") });
    let tls_port = page.number(const { index_of("tls-port") });
    page.field("tcp_port", if port == 0 { tls_port } else { port });
    page.field("http_port", page.number(const { index_of("http-port") }));
    page.field("server_time_usec", crate::worker::now_us());
    let uptime = (page.now_ms - shared.started_ms).max(0) / 1000;
    page.field("uptime_in_seconds", uptime);
    page.field("uptime_in_days", uptime / 86_400);
    let hz = page.number(const { index_of("hz") });
    page.field("hz", hz);
    page.field("configured_hz", hz);
    page.field("lru_clock", (page.now_ms / 1000) & 0xff_ffff);
    let executable = std::env::current_exe().unwrap_or_default();
    page.field("executable", executable.display());
    page.field("config_file", &shared.config_file);
    page.field("io_threads_active", 0);
    page.field("threads", shared.threads());
    if port != 0 {
        let bind = page.option(const { index_of("bind") }).replace(' ', ",bind=");
        page.field("listener0", format!("name=tcp,bind={bind},port={port}"));
    }
}

fn clients(page: &mut Page<'_>) {
    let shared = page.shared;
    let of = |count: fn(&Counts) -> &std::sync::atomic::AtomicUsize| {
        shared.total(|counts| count(counts).load(Ordering::Relaxed) as u64)
    };
    page.field("connected_clients", of(|counts| &counts.clients));
    page.zeros(&["cluster_connections"]);
    page.field("maxclients", page.number(const { index_of("maxclients") }));
    page.zeros(&["client_recent_max_input_buffer", "client_recent_max_output_buffer"]);
    let blocked = of(|counts| &counts.blocked);
    page.field("blocked_clients", blocked);
    page.zeros(&["tracking_clients", "clients_in_timeout_table", "total_blocking_keys"]);
    page.zeros(&["total_blocking_keys_on_nokey"]);
    page.field("monitor_clients", shared.monitor_count.load(Ordering::Relaxed));
}

fn script_memory(page: &mut Page<'_>) {
    let counts = crate::scripting::counts(page.shared);
    page.field("used_memory_vm_eval", counts.script_vm_bytes);
    page.bytes("used_memory_lua", counts.script_vm_bytes);
    page.field("used_memory_scripts_eval", counts.script_bytes);
    page.field("number_of_cached_scripts", counts.scripts);
    page.field("number_of_functions", counts.functions);
    page.field("number_of_libraries", counts.libraries);
    page.field("used_memory_vm_functions", counts.function_vm_bytes);
    page.bytes("used_memory_vm_total", counts.script_vm_bytes + counts.function_vm_bytes);
    page.field("used_memory_functions", counts.library_bytes);
    page.bytes("used_memory_scripts", counts.script_bytes + counts.library_bytes);
}

fn memory(page: &mut Page<'_>) {
    let shared = page.shared;
    let (used, peak, rss) = (sys::used_memory(), shared.peak_memory(), sys::resident_memory());
    let [allocated, active, resident, retained] = sys::allocator();
    page.bytes("used_memory", used);
    page.bytes("used_memory_rss", rss);
    page.bytes("used_memory_peak", peak);
    let percent = |part: u64, all: u64| format!("{:.2}%", part as f64 * 100.0 / all.max(1) as f64);
    page.field("used_memory_peak_perc", percent(used, peak));
    let startup = shared.startup_memory.min(used);
    let dataset = used - startup;
    page.fields(&[("used_memory_overhead", startup), ("used_memory_startup", startup)]);
    page.field("used_memory_dataset", dataset);
    page.field("used_memory_dataset_perc", percent(dataset, used));
    page.field("allocator_allocated", allocated);
    page.field("allocator_active", active);
    page.field("allocator_resident", resident);
    page.field("allocator_retained", retained);
    page.bytes("total_system_memory", sys::total_memory());
    script_memory(page);
    page.bytes("maxmemory", page.number(const { index_of("maxmemory") }) as u64);
    page.field("maxmemory_policy", page.option(const { index_of("maxmemory-policy") }));
    page.ratio("allocator_frag_ratio", active, allocated);
    page.field("allocator_frag_bytes", active.saturating_sub(allocated));
    page.ratio("allocator_rss_ratio", resident, active);
    page.field("allocator_rss_bytes", resident as i64 - active as i64);
    page.ratio("rss_overhead_ratio", rss, resident);
    page.field("rss_overhead_bytes", rss as i64 - resident as i64);
    page.ratio("mem_fragmentation_ratio", rss, used);
    page.field("mem_fragmentation_bytes", rss as i64 - used as i64);
    page.zeros(&["mem_not_counted_for_evict", "mem_replication_backlog"]);
    page.zeros(&["mem_total_replication_buffers", "mem_clients_slaves"]);
    page.field("mem_clients_normal", page.total(|counts| &counts.clients_memory));
    page.zeros(&["mem_cluster_links", "mem_aof_buffer"]);
    page.field("mem_allocator", sys::allocator_name());
    page.zeros(&["active_defrag_running"]);
    page.field("lazyfree_pending_objects", shared.freeing.pending.load(Ordering::Relaxed));
    page.field("lazyfreed_objects", shared.freeing.freed.load(Ordering::Relaxed));
}

fn persistence(page: &mut Page<'_>) {
    let (shared, now_ms) = (page.shared, page.now_ms);
    crate::persistence::fields(shared, now_ms, |name, value| page.field(name, value));
    append_only_file(page);
    page.zeros(&["module_fork_in_progress", "module_fork_last_cow_size"]);
    crate::persistence::loading_fields(shared, now_ms, |name, value| page.field(name, value));
}

fn append_only_file(page: &mut Page<'_>) {
    let aof = &page.shared.aof;
    let word = |is_well| if is_well { "ok" } else { "err" };
    let (mut runs, since, mut is_scheduled) = aof.rewriting();
    // Wanted, and not begun for an image that is being taken: its thread may not have said so yet.
    let waits = page.shared.core.space.has_image() || page.shared.persistence.is_saving();
    if runs && since.is_none() && waits {
        (runs, is_scheduled) = (false, true);
    }
    let rewrites = aof.rewrites();
    page.field("aof_enabled", u8::from(aof.is_on()));
    page.field("aof_rewrite_in_progress", u8::from(runs));
    page.field("aof_rewrite_scheduled", u8::from(is_scheduled));
    page.field("aof_last_rewrite_time_sec", rewrites.last_seconds);
    let seconds = since.map_or(-1, |since| since.elapsed().as_secs() as i64);
    page.field("aof_current_rewrite_time_sec", seconds);
    page.field("aof_last_bgrewrite_status", word(rewrites.last_ok));
    page.field("aof_rewrites", rewrites.done);
    page.field("aof_rewrites_consecutive_failures", rewrites.failures_in_a_row);
    page.field("aof_last_write_status", word(!aof.log.is_failing()));
    page.zeros(&["aof_last_cow_size"]);
    if aof.is_on() {
        let (current, base) = aof.sizes();
        page.fields(&[("aof_current_size", current), ("aof_base_size", base)]);
        page.zeros(&["aof_pending_rewrite"]);
        page.field("aof_buffer_length", aof.log.pending_bytes());
        page.zeros(&["aof_pending_bio_fsync", "aof_delayed_fsync"]);
        page.field("aof_refused_writes", aof.refused.load(Ordering::Relaxed));
        page.field("aof_position", aof.log.appended());
        page.field("aof_durable_position", aof.log.durable());
    }
}

fn stats(page: &mut Page<'_>) {
    let shared = page.shared;
    let space = &shared.core.space;
    let [commands, input, output] = shared.rates();
    page.field("total_connections_received", page.total(|counts| &counts.connections));
    page.field("total_commands_processed", page.total(|counts| &counts.commands));
    page.field("instantaneous_ops_per_sec", commands as u64);
    page.field("total_net_input_bytes", page.total(|counts| &counts.input_bytes));
    page.field("total_net_output_bytes", page.total(|counts| &counts.output_bytes));
    page.zeros(&["total_net_repl_input_bytes", "total_net_repl_output_bytes"]);
    page.field("instantaneous_input_kbps", format!("{:.2}", input / 1024.0));
    page.field("instantaneous_output_kbps", format!("{:.2}", output / 1024.0));
    page.field("instantaneous_input_repl_kbps", "0.00");
    page.field("instantaneous_output_repl_kbps", "0.00");
    page.field("rejected_connections", shared.rejected_connections.load(Ordering::Relaxed));
    page.zeros(&["sync_full", "sync_partial_ok", "sync_partial_err"]);
    let expired = space.total(|tally| &tally.expired);
    page.field("expired_keys", expired);
    page.field("expired_subkeys", space.total(|tally| &tally.expired_fields));
    page.field("expired_stale_perc", "0.00");
    page.zeros(&["expired_time_cap_reached_count", "expire_cycle_cpu_milliseconds"]);
    expire_lag(page, expired);
    page.field("evicted_keys", space.total(|tally| &tally.evicted));
    page.field("evicted_clients", page.total(|counts| &counts.evicted_clients));
    page.field("evicted_scripts", crate::scripting::counts(shared).evicted);
    page.zeros(&["total_eviction_exceeded_time"]);
    page.zeros(&["current_eviction_exceeded_time"]);
    page.field("keyspace_hits", space.total(|tally| &tally.hits));
    page.field("keyspace_misses", space.total(|tally| &tally.misses));
    page.field("pubsub_channels", shared.subscriptions.name_count(Channel::Exact));
    page.field("pubsub_patterns", shared.subscriptions.name_count(Channel::Pattern));
    page.field("pubsubshard_channels", shared.subscriptions.name_count(Channel::Shard));
    page.zeros(&["latest_fork_usec", "total_forks"]);
    page.field("migrate_cached_sockets", shared.migrate_targets.count());
    page.zeros(&["slave_expires_tracked_keys", "active_defrag_hits", "active_defrag_misses"]);
    page.zeros(&["active_defrag_key_hits", "active_defrag_key_misses"]);
    page.zeros(&["total_active_defrag_time", "current_active_defrag_time"]);
    page.zeros(&["tracking_total_keys", "tracking_total_items", "tracking_total_prefixes"]);
    page.zeros(&["unexpected_error_replies"]);
    page.field("total_error_replies", page.total(|counts| &counts.errors));
    page.zeros(&["dump_payload_sanitizations"]);
    page.field("total_reads_processed", page.total(|counts| &counts.reads));
    page.field("total_writes_processed", page.total(|counts| &counts.writes));
    page.zeros(&["io_threaded_reads_processed", "io_threaded_writes_processed"]);
    page.zeros(&["reply_buffer_shrinks", "reply_buffer_expands", "acl_access_denied_auth"]);
    page.zeros(&["acl_access_denied_cmd", "acl_access_denied_key", "acl_access_denied_channel"]);
}

/// How late keys that expire are removed: at most and on average since the last RESETSTAT, and how
/// long the oldest one that is due has been waiting just now.
fn expire_lag(page: &mut Page<'_>, expired: u64) {
    let space = &page.shared.core.space;
    let lags = space.tallies().iter().map(|tally| &tally.expire_lag_max_ms);
    let max = lags.map(|lag| lag.load(Ordering::Relaxed)).max().unwrap_or(0);
    let sum = space.total(|tally| &tally.expire_lag_sum_ms);
    let waiting = page.now_ms.saturating_sub(space.next_due_ms()).max(0);
    page.field("expire_lag_ms_max", max);
    page.ratio("expire_lag_ms_avg", sum, expired);
    page.field("expire_lag_ms_now", waiting);
}

fn replication(page: &mut Page<'_>) {
    page.field("role", "master");
    page.zeros(&["connected_slaves"]);
    page.field("master_failover_state", "no-failover");
    page.field("master_replid", &page.shared.run_id);
    page.field("master_replid2", "0".repeat(40));
    page.zeros(&["master_repl_offset"]);
    page.field("second_repl_offset", -1);
    page.zeros(&["repl_backlog_active"]);
    page.field("repl_backlog_size", page.number(const { index_of("repl-backlog-size") }));
    page.zeros(&["repl_backlog_first_byte_offset", "repl_backlog_histlen"]);
}

fn cpu(page: &mut Page<'_>) {
    let [user, system, thread_user, thread_system] = sys::cpu_seconds();
    let seconds = |seconds: f64| format!("{seconds:.6}");
    page.field("used_cpu_sys", seconds(system));
    page.field("used_cpu_user", seconds(user));
    page.field("used_cpu_sys_children", seconds(0.0));
    page.field("used_cpu_user_children", seconds(0.0));
    // Of the event loop that answers this.
    page.field("used_cpu_sys_main_thread", seconds(thread_system));
    page.field("used_cpu_user_main_thread", seconds(thread_user));
}

fn modules(_: &mut Page<'_>) {}

/// One command's counts over all threads.
#[derive(Debug, Clone, Copy)]
pub struct CommandCounts {
    /// Calls.
    pub calls: u64,
    /// Microseconds spent in them.
    pub microseconds: u64,
    /// Refused before they ran.
    pub rejected: u64,
    /// Ran and failed.
    pub failed: u64,
}

/// The counts of every command that was ever called or refused, with its name.
pub fn command_counts(shared: &Shared) -> impl Iterator<Item = (&str, CommandCounts)> {
    shared.core.registry.entries().iter().filter_map(|entry| {
        let sum = |cells: fn(&Counts) -> &[AtomicU64]| {
            shared.total(|counts| cells(counts)[entry.index].load(Ordering::Relaxed))
        };
        let counts = CommandCounts {
            calls: sum(|counts| &counts.calls),
            microseconds: sum(|counts| &counts.nanoseconds) / 1000,
            rejected: sum(|counts| &counts.rejected),
            failed: sum(|counts| &counts.failed),
        };
        let is_used = counts.calls + counts.rejected + counts.failed > 0;
        is_used.then_some((entry.full_name.as_str(), counts))
    })
}

fn commandstats(page: &mut Page<'_>) {
    for (name, counts) in command_counts(page.shared) {
        let CommandCounts { calls, microseconds, rejected, failed } = counts;
        let each = microseconds as f64 / calls.max(1) as f64;
        let _ = write!(
            page.out,
            "cmdstat_{name}:calls={calls},usec={microseconds},usec_per_call={each:.2},\
             rejected_calls={rejected},failed_calls={failed}\r\n"
        );
    }
}

fn errorstats(page: &mut Page<'_>) {
    for (code, count) in page.shared.records.errors() {
        let _ = write!(page.out, "errorstat_{code}:count={count}\r\n");
    }
}

/// The latencies of every command that was called while they were counted, with its name.
pub fn command_latencies(shared: &Shared) -> impl Iterator<Item = (&str, Summary)> {
    shared.core.registry.entries().iter().filter_map(|entry| {
        let threads = shared.counts.iter().filter_map(|counts| counts.latencies[entry.index].get());
        let summary = Summary::of(threads.map(|histogram| &**histogram));
        (summary.calls() > 0).then_some((entry.full_name.as_str(), summary))
    })
}

fn latencystats(page: &mut Page<'_>) {
    let percentiles = page.option(const { index_of("latency-tracking-info-percentiles") });
    let percentiles: Vec<f64> =
        percentiles.split(' ').filter_map(|word| word.parse().ok()).collect();
    for (name, summary) in command_latencies(page.shared) {
        let shown = percentiles.iter().map(|p| format!("p{p}={:.3}", summary.percentile(*p)));
        let shown = shown.collect::<Vec<_>>().join(",");
        let _ = write!(page.out, "latency_percentiles_usec_{name}:{shown}\r\n");
    }
}

fn cluster(page: &mut Page<'_>) {
    page.zeros(&["cluster_enabled"]);
}

fn keyspace(page: &mut Page<'_>) {
    let space = &page.shared.core.space;
    for db in 0..space.databases() {
        let (keys, expires) = (space.key_count(db), space.volatile_count(db));
        if keys > 0 {
            let ttl = space.average_ttl_ms(db, page.now_ms);
            page.field(&format!("db{db}"), format!("keys={keys},expires={expires},avg_ttl={ttl}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Server;

    fn field<'t>(text: &'t str, name: &str) -> &'t str {
        let line = text.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no field {name} in {text}"))
    }

    fn ask(server: &Server, names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        text(&server.shared, server.shared.started_ms + 90_000, &names)
    }

    #[test]
    fn sections_are_those_asked_for() {
        let server = Server::new(&[]);
        let titles = |names: &[&str]| -> Vec<String> {
            let text = ask(&server, names);
            text.split("\r\n").filter_map(|l| l.strip_prefix("# ")).map(str::to_string).collect()
        };
        let default = titles(&[]);
        assert_eq!(default[0], "Server");
        assert!(!default.contains(&"Commandstats".to_string()));
        assert_eq!(titles(&["all"]).len(), SECTIONS.len());
        assert_eq!(titles(&["keyspace", "cpu"]), ["Cpu", "Keyspace"]);
        assert_eq!(titles(&["nothing"]), [""; 0]);
        assert_eq!(titles(&["default", "commandstats"]).len(), default.len() + 1);
    }

    #[test]
    fn every_line_is_a_field() {
        let mut server = Server::new(&[]);
        server.check(&[("SET k v", "+OK"), ("SET e v EX 100", "+OK"), ("GET k", "$1 v")]);
        server.run("GET nothing");
        server.run("INCR k");
        let text = ask(&server, &["everything"]);
        for line in text.split("\r\n").filter(|line| !line.is_empty()) {
            assert!(line.starts_with("# ") || line.contains(':'), "{line}");
        }
        for (name, value) in [
            ("redis_version", "7.2.4"),
            ("redis_mode", "standalone"),
            ("uptime_in_seconds", "90"),
            ("role", "master"),
            ("total_commands_processed", "5"),
            ("keyspace_hits", "1"),
            ("keyspace_misses", "1"),
            ("db0", "keys=2,expires=1,avg_ttl=15000"),
            ("errorstat_ERR", "count=1"),
            ("maxmemory_policy", "noeviction"),
        ] {
            assert_eq!(field(&text, name), value, "{name}");
        }
        assert!(field(&text, "cmdstat_incr").contains("failed_calls=1"));
        assert!(field(&text, "latency_percentiles_usec_get").starts_with("p50="));
        server.run("CONFIG RESETSTAT");
        let text = ask(&server, &["stats", "commandstats"]);
        assert_eq!(field(&text, "keyspace_hits"), "0");
        assert!(!text.contains("cmdstat_get"));
    }

    #[test]
    fn bytes_are_shown_for_people() {
        let cases = [(0, "0B"), (1023, "1023B"), (1536, "1.50K"), (5 << 30, "5.00G")];
        for (bytes, text) in cases {
            assert_eq!(human(bytes), text);
        }
    }
}
