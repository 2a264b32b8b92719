//! The server's metrics, as a table, under the names that redis_exporter gives them, so that
//! dashboards made for Redis show Forebay as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_http::exposition::Kind::{self, Counter, Gauge};
use forebay_http::exposition::Page;
use forebay_http::{Component, Status};
use server::admin::info::{self, CommandCounts};
use server::options::index_of;
use server::pubsub::Channel;
use server::shared::{Counts, Shared};
use server::sys;

struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    read: fn(&Shared) -> f64,
}

const fn metric(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    read: fn(&Shared) -> f64,
) -> Metric {
    Metric { name, kind, help, read }
}

fn total(shared: &Shared, count: fn(&Counts) -> &AtomicU64) -> f64 {
    shared.total(|counts| count(counts).load(Ordering::Relaxed)) as f64
}

/// Metrics of one sample each.
const METRICS: &[Metric] = &[
    metric("redis_up", Gauge, "Whether the server answers.", |_| 1.0),
    metric("redis_uptime_in_seconds", Gauge, "Seconds since the start.", |shared| {
        (server::worker::now_ms() - shared.started_ms).max(0) as f64 / 1000.0
    }),
    metric(
        "redis_start_time_seconds",
        Gauge,
        "When it started, in seconds since 1970.",
        |shared| shared.started_ms as f64 / 1000.0,
    ),
    metric("redis_connected_clients", Gauge, "Clients connected.", |shared| {
        shared.total(|counts| counts.clients.load(Ordering::Relaxed) as u64) as f64
    }),
    metric("redis_blocked_clients", Gauge, "Clients in a blocking command.", |shared| {
        shared.total(|counts| counts.blocked.load(Ordering::Relaxed) as u64) as f64
    }),
    metric("redis_max_clients", Gauge, "Clients at most.", |shared| {
        shared.options.number(const { index_of("maxclients") }) as f64
    }),
    metric("redis_config_maxclients", Gauge, "The option maxclients.", |shared| {
        shared.options.number(const { index_of("maxclients") }) as f64
    }),
    metric("redis_config_maxmemory", Gauge, "The option maxmemory.", |shared| {
        shared.options.number(const { index_of("maxmemory") }) as f64
    }),
    metric("redis_connections_received_total", Counter, "Connections accepted.", |shared| {
        total(shared, |counts| &counts.connections)
    }),
    metric("redis_rejected_connections_total", Counter, "Connections turned away.", |shared| {
        shared.rejected_connections.load(Ordering::Relaxed) as f64
    }),
    metric("redis_memory_used_bytes", Gauge, "Bytes in use.", |_| sys::used_memory() as f64),
    metric("redis_memory_used_rss_bytes", Gauge, "Bytes of RAM that the process has.", |_| {
        sys::resident_memory() as f64
    }),
    metric("redis_memory_used_peak_bytes", Gauge, "The most bytes ever in use.", |shared| {
        shared.peak_memory() as f64
    }),
    metric("redis_memory_used_startup_bytes", Gauge, "Bytes in use after the start.", |shared| {
        shared.startup_memory as f64
    }),
    metric("redis_memory_used_dataset_bytes", Gauge, "Bytes in use since the start.", |shared| {
        sys::used_memory().saturating_sub(shared.startup_memory) as f64
    }),
    metric("redis_memory_max_bytes", Gauge, "Bytes allowed, 0 = no limit.", |shared| {
        shared.options.number(const { index_of("maxmemory") }) as f64
    }),
    metric("redis_mem_fragmentation_ratio", Gauge, "Bytes of RAM to bytes in use.", |_| {
        sys::resident_memory() as f64 / sys::used_memory().max(1) as f64
    }),
    metric("redis_commands_processed_total", Counter, "Commands run.", |shared| {
        total(shared, |counts| &counts.commands)
    }),
    metric("redis_instantaneous_ops_per_sec", Gauge, "Commands a second, lately.", |shared| {
        shared.rates()[0]
    }),
    metric("redis_net_input_bytes_total", Counter, "Bytes received.", |shared| {
        total(shared, |counts| &counts.input_bytes)
    }),
    metric("redis_net_output_bytes_total", Counter, "Bytes sent.", |shared| {
        total(shared, |counts| &counts.output_bytes)
    }),
    metric("redis_total_reads_processed", Counter, "Reads from sockets.", |shared| {
        total(shared, |counts| &counts.reads)
    }),
    metric("redis_total_writes_processed", Counter, "Writes to sockets.", |shared| {
        total(shared, |counts| &counts.writes)
    }),
    metric("redis_total_error_replies", Counter, "Error replies.", |shared| {
        total(shared, |counts| &counts.errors)
    }),
    metric("redis_expired_keys_total", Counter, "Keys that expired.", |shared| {
        shared.core.space.total(|tally| &tally.expired) as f64
    }),
    metric("redis_evicted_keys_total", Counter, "Keys evicted.", |shared| {
        shared.core.space.total(|tally| &tally.evicted) as f64
    }),
    metric("redis_keyspace_hits_total", Counter, "Reads that found their key.", |shared| {
        shared.core.space.total(|tally| &tally.hits) as f64
    }),
    metric("redis_keyspace_misses_total", Counter, "Reads that did not.", |shared| {
        shared.core.space.total(|tally| &tally.misses) as f64
    }),
    metric("redis_pubsub_channels", Gauge, "Channels listened to.", |shared| {
        shared.subscriptions.name_count(Channel::Exact) as f64
    }),
    metric("redis_pubsub_patterns", Gauge, "Patterns listened by.", |shared| {
        shared.subscriptions.name_count(Channel::Pattern) as f64
    }),
    metric("redis_pubsubshard_channels", Gauge, "Shard channels listened to.", |shared| {
        shared.subscriptions.name_count(Channel::Shard) as f64
    }),
    metric("redis_cpu_user_seconds_total", Counter, "CPU time in the program.", |_| {
        sys::cpu_seconds()[0]
    }),
    metric("redis_cpu_sys_seconds_total", Counter, "CPU time in the kernel.", |_| {
        sys::cpu_seconds()[1]
    }),
    metric("redis_connected_slaves", Gauge, "Replicas connected.", |_| 0.0),
    metric("redis_slowlog_length", Gauge, "Commands in the slow log.", |shared| {
        shared.records.slow_len() as f64
    }),
    metric("redis_slowlog_last_id", Gauge, "The slow log's newest number.", |shared| {
        shared.records.slow(1).first().map_or(0.0, |slow| slow.id as f64)
    }),
    metric(
        "redis_last_slow_execution_duration_seconds",
        Gauge,
        "How long the last slow command took.",
        |shared| shared.records.slow(1).first().map_or(0.0, |slow| slow.microseconds as f64 / 1e6),
    ),
    metric("forebay_threads", Gauge, "Event loops.", |shared| shared.threads() as f64),
    metric("forebay_expire_lag_seconds_max", Gauge, "The latest that a key expired.", |shared| {
        let tallies = shared.core.space.tallies().iter();
        let lags = tallies.map(|tally| tally.expire_lag_max_ms.load(Ordering::Relaxed));
        lags.max().unwrap_or(0) as f64 / 1000.0
    }),
    metric(
        "forebay_expire_lag_seconds_total",
        Counter,
        "The lags of all expired keys.",
        |shared| shared.core.space.total(|tally| &tally.expire_lag_sum_ms) as f64 / 1000.0,
    ),
];

/// Everything, as text.
pub fn text(shared: &Shared) -> String {
    let mut page = Page::default();
    page.metric("forebay_build_info", Gauge, "The version.");
    page.sample("forebay_build_info", &[("version", info::VERSION)], 1.0);
    page.metric("redis_instance_info", Gauge, "What this server is.");
    let policy = shared.options.text(const { index_of("maxmemory-policy") });
    let labels = [
        ("role", "master"),
        ("redis_version", info::REDIS_VERSION),
        ("redis_mode", "standalone"),
        ("run_id", &shared.run_id),
        ("maxmemory_policy", &policy),
    ];
    page.sample("redis_instance_info", &labels, 1.0);
    for metric in METRICS {
        page.metric(metric.name, metric.kind, metric.help);
        page.sample(metric.name, &[], (metric.read)(shared));
    }
    databases(&mut page, shared);
    commands(&mut page, shared);
    latencies(&mut page, shared);
    page.metric("redis_errors_total", Counter, "Error replies by their code.");
    for (code, count) in shared.records.errors() {
        page.sample("redis_errors_total", &[("err", &code)], count as f64);
    }
    page.into_text()
}

/// Counts something of a database.
type CountOf<'a> = &'a dyn Fn(usize) -> usize;

fn databases(page: &mut Page, shared: &Shared) {
    let space = &shared.core.space;
    let counts: [(&str, &str, CountOf<'_>); 2] = [
        ("redis_db_keys", "Keys.", &|db| space.key_count(db)),
        ("redis_db_keys_expiring", "Keys with a time to live.", &|db| space.volatile_count(db)),
    ];
    // As with redis_exporter, every database of a usual number of them, and those that hold keys.
    let shown = |db: &usize| *db < 16 || space.key_count(*db) > 0;
    for (name, help, count) in counts {
        page.metric(name, Gauge, help);
        for db in (0..space.databases()).filter(shown) {
            page.sample(name, &[("db", &format!("db{db}"))], count(db) as f64);
        }
    }
}

type ReadCount = fn(&CommandCounts) -> f64;

fn commands(page: &mut Page, shared: &Shared) {
    let all: Vec<_> = info::command_counts(shared).collect();
    let counts: [(&str, &str, ReadCount); 4] = [
        ("redis_commands_total", "Calls.", |counts| counts.calls as f64),
        ("redis_commands_duration_seconds_total", "Time spent in calls.", |counts| {
            counts.microseconds as f64 / 1e6
        }),
        ("redis_commands_rejected_calls_total", "Calls refused.", |counts| counts.rejected as f64),
        ("redis_commands_failed_calls_total", "Calls that failed.", |counts| counts.failed as f64),
    ];
    for (name, help, read) in counts {
        page.metric(name, Counter, help);
        for (command, counts) in &all {
            page.sample(name, &[("cmd", command)], read(counts));
        }
    }
}

fn latencies(page: &mut Page, shared: &Shared) {
    const NAME: &str = "redis_latency_percentiles_usec";
    page.metric(NAME, Gauge, "Microseconds that so many percent of the calls take at most.");
    for (command, summary) in info::command_latencies(shared) {
        for (quantile, percent) in [("50", 50.0), ("99", 99.0), ("99.9", 99.9)] {
            let labels = [("cmd", command), ("quantile", quantile)];
            page.sample(NAME, &labels, summary.percentile(percent));
        }
    }
}

/// The server as the HTTP door sees it.
pub struct ServerStatus(pub Arc<Shared>);

impl Status for ServerStatus {
    fn is_ready(&self) -> bool {
        !self.0.is_stopping.load(Ordering::Acquire)
    }

    fn components(&self) -> Vec<Component> {
        let shared = &self.0;
        let is_ready = self.is_ready();
        let detail = if is_ready {
            format!("{} event loops serve", shared.threads())
        } else {
            "the server ends".to_string()
        };
        let (used, max) =
            (sys::used_memory(), shared.options.number(const { index_of("maxmemory") }));
        let limit = if max == 0 { "no limit".into() } else { info::human(max as u64) };
        vec![
            Component { name: "loops", is_ready, detail },
            Component {
                name: "memory",
                is_ready: true,
                detail: format!("{} in use, {limit}", info::human(used)),
            },
        ]
    }

    fn metrics(&self) -> String {
        text(&self.0)
    }
}
