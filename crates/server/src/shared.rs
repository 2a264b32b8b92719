//! What all threads of the server share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use commands::engine::Core;
use keyspace::keyspace::add;

use crate::client::Client;
use crate::histogram::Histogram;
use crate::message::{Mailbox, Message};
use crate::options::Options;
use crate::persistence::Persistence;
use crate::pubsub::Subscriptions;

/// One thread's counts: written by it, read by all. Per command: calls, microseconds (in
/// nanoseconds inside), refused, failed.
#[repr(align(128))]
#[derive(Default)]
#[allow(missing_docs)]
pub struct Counts {
    pub commands: AtomicU64,
    pub connections: AtomicU64,
    pub input_bytes: AtomicU64,
    pub output_bytes: AtomicU64,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub errors: AtomicU64,
    pub evicted_clients: AtomicU64,
    /// Bytes that this thread's clients take.
    pub clients_memory: AtomicU64,
    pub clients: AtomicUsize,
    pub blocked: AtomicUsize,
    pub calls: Box<[AtomicU64]>,
    pub nanoseconds: Box<[AtomicU64]>,
    pub rejected: Box<[AtomicU64]>,
    pub failed: Box<[AtomicU64]>,
    /// Latencies, for commands that have been called.
    pub latencies: Box<[OnceLock<Box<Histogram>>]>,
}

impl Counts {
    fn new(commands: usize) -> Counts {
        let zeros = || (0..commands).map(|_| AtomicU64::new(0)).collect();
        Counts {
            calls: zeros(),
            nanoseconds: zeros(),
            rejected: zeros(),
            failed: zeros(),
            latencies: (0..commands).map(|_| OnceLock::new()).collect(),
            ..Counts::default()
        }
    }

    /// Sets all to zero (CONFIG RESETSTAT).
    pub fn reset(&self) {
        let all = [&self.commands, &self.connections, &self.input_bytes, &self.output_bytes];
        let more = [&self.reads, &self.writes, &self.errors, &self.evicted_clients];
        let tables = [&self.calls, &self.nanoseconds, &self.rejected, &self.failed];
        let tables = tables.into_iter().flat_map(|table| table.iter());
        all.into_iter()
            .chain(more)
            .chain(tables)
            .for_each(|count| count.store(0, Ordering::Relaxed));
        self.latencies.iter().filter_map(OnceLock::get).for_each(|histogram| histogram.reset());
    }

    /// Counts one call of a command that took so long.
    #[inline]
    pub fn call(&self, index: usize, nanoseconds: u64) {
        add(&self.commands, 1);
        add(&self.calls[index], 1);
        add(&self.nanoseconds[index], nanoseconds);
    }

    /// Notes the latency of so many calls of a command.
    #[inline]
    pub fn note_latency(&self, index: usize, nanoseconds: u64, calls: u64) {
        self.latencies[index].get_or_init(Box::default).note(nanoseconds, calls);
    }
}

/// The background thread's counts: values and tables.
#[derive(Debug, Default)]
pub struct Freeing {
    /// Still to be freed.
    pub pending: AtomicUsize,
    /// Freed since the start.
    pub freed: AtomicU64,
}

/// CLIENT PAUSE: until when, and whether only writes wait.
#[derive(Debug, Default)]
pub struct Pause {
    /// Milliseconds since 1970; 0 = no pause.
    pub until_ms: AtomicI64,
    /// Whether all commands wait, not only writes.
    pub all: AtomicBool,
}

/// Sets the log's level by its name in the configuration.
pub type SetLogLevel = Box<dyn Fn(&str) + Send + Sync>;

/// See the module.
pub struct Shared {
    /// Keys and commands.
    pub core: Core,
    /// The options.
    pub options: Options,
    /// Everybody who is connected, by id.
    pub clients: Mutex<HashMap<u64, Arc<Client>>>,
    /// Who listens to what.
    pub subscriptions: Subscriptions,
    /// Each thread's counts.
    pub counts: Box<[Counts]>,
    /// Each thread's mailbox, once it runs.
    pub mailboxes: OnceLock<Vec<Mailbox>>,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// When the server started, milliseconds since 1970.
    pub started_ms: i64,
    /// Forty hexadecimal digits, new at each start.
    pub run_id: String,
    /// Clients that watch every command (MONITOR).
    pub monitors: Mutex<Vec<(usize, u64)>>,
    /// How many of them.
    pub monitor_count: AtomicUsize,
    /// Connections to other servers (MIGRATE).
    pub migrate_targets: crate::families::migrate::Targets,
    /// Set when the server is about to end.
    pub is_stopping: AtomicBool,
    /// Where things are written that outlast commands: slow log, latency, error statistics.
    pub records: crate::records::Records,
    /// The file the configuration came from.
    pub config_file: String,
    /// What is kept on disk, and how that fares.
    pub persistence: Persistence,
    /// Takes memory to be freed in the background.
    pub free_later: Mutex<std::sync::mpsc::Sender<Vec<keyspace::effects::Garbage>>>,
    /// Sets what is worth a line in the log; the binary owns the log.
    pub set_log_level: OnceLock<SetLogLevel>,
    /// Scripts that run for long.
    pub busy: crate::busy::Busy,
    /// How much the background thread has to free, and has freed.
    pub freeing: Arc<Freeing>,
    /// Connections turned away at the door.
    pub rejected_connections: AtomicU64,
    /// Memory in use when the server had started, in bytes.
    pub startup_memory: u64,
    /// `client-output-buffer-limit`: normal, pubsub.
    output_limits: [OutputAtomics; 2],
    /// The append-only file.
    pub aof: crate::aof::Aof,
    next_client: AtomicU64,
    samples: Mutex<Samples>,
    /// Held by the one turn that runs on a thread that is no event loop.
    pub aside: Mutex<u64>,
}

#[derive(Default)]
struct OutputAtomics([AtomicU64; 3]);

/// What may wait to be sent to a client.
#[derive(Debug, Clone, Copy)]
pub struct OutputLimits {
    /// Bytes at which it is closed at once, 0 = never.
    pub hard_bytes: u64,
    /// Bytes at which it is closed if it stays above for long, 0 = never.
    pub soft_bytes: u64,
    /// How long that is, in seconds.
    pub soft_seconds: u64,
}

/// Rates over the last 16 samples, ten a second.
#[derive(Default)]
struct Samples {
    last: Option<(i64, [u64; 3])>,
    ring: std::collections::VecDeque<[f64; 3]>,
    peak_memory: u64,
}

/// Everything that must be known to make a [`Shared`].
pub struct Parts {
    /// Keys and commands.
    pub core: Core,
    /// The options.
    pub options: Options,
    /// Event loops.
    pub threads: usize,
    /// Now, in milliseconds since 1970.
    pub now_ms: i64,
    /// Random bits for the run id.
    pub seed: [u64; 3],
    /// The file the configuration came from.
    pub config_file: String,
    /// Takes memory to be freed in the background.
    pub free_later: std::sync::mpsc::Sender<Vec<keyspace::effects::Garbage>>,
    /// That thread's counts.
    pub freeing: Arc<Freeing>,
    /// Where data files lie.
    pub disk: Arc<dyn persist::disk::Disk>,
}

impl Shared {
    /// Puts the parts together.
    pub fn new(parts: Parts) -> Shared {
        crate::sys::calibrate();
        let commands = parts.core.registry.entries().len();
        let [a, b, c] = parts.seed;
        let run_id = format!("{a:016x}{b:016x}{:08x}", c as u32);
        Shared {
            core: parts.core,
            options: parts.options,
            clients: Mutex::default(),
            subscriptions: Subscriptions::default(),
            counts: (0..parts.threads).map(|_| Counts::new(commands)).collect(),
            mailboxes: OnceLock::new(),
            pause: Pause::default(),
            started_ms: parts.now_ms,
            run_id,
            monitors: Mutex::default(),
            monitor_count: AtomicUsize::new(0),
            migrate_targets: crate::families::migrate::Targets::default(),
            is_stopping: AtomicBool::new(false),
            records: crate::records::Records::default(),
            config_file: parts.config_file,
            persistence: Persistence::new(parts.now_ms),
            free_later: Mutex::new(parts.free_later),
            set_log_level: OnceLock::new(),
            busy: crate::busy::Busy::default(),
            freeing: parts.freeing,
            rejected_connections: AtomicU64::new(0),
            startup_memory: crate::sys::used_memory(),
            output_limits: Default::default(),
            aof: crate::aof::Aof::new(parts.disk, parts.threads),
            next_client: AtomicU64::new(1),
            samples: Mutex::default(),
            aside: Mutex::new(a ^ b),
        }
    }

    /// A number for a new client.
    pub fn next_client_id(&self) -> u64 {
        self.next_client.fetch_add(1, Ordering::Relaxed)
    }

    /// Wakes a thread.
    pub fn nudge(&self, thread: usize) {
        if let Some(mailboxes) = self.mailboxes.get() {
            mailboxes[thread].nudge();
        }
    }

    /// Sends a message to a thread.
    pub fn send(&self, thread: usize, message: Message) {
        if let Some(mailboxes) = self.mailboxes.get() {
            mailboxes[thread].send(message);
        }
    }

    /// Every client's record, by id ascending.
    pub fn all_clients(&self) -> Vec<Arc<Client>> {
        let clients = self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut all: Vec<_> = clients.values().cloned().collect();
        all.sort_by_key(|client| client.id);
        all
    }

    /// Number of event loops.
    pub fn threads(&self) -> usize {
        self.counts.len()
    }

    /// The sum of one count over all threads.
    pub fn total(&self, count: impl Fn(&Counts) -> u64) -> u64 {
        self.counts.iter().map(count).sum()
    }

    /// Makes every event loop end.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        (0..self.threads()).for_each(|thread| self.send(thread, Message::Stop));
    }

    /// The limits of a class of clients: 0 = normal, 1 = pubsub.
    pub fn output_limits(&self, class: usize) -> OutputLimits {
        let [hard, soft, seconds] = &self.output_limits[class].0;
        OutputLimits {
            hard_bytes: hard.load(Ordering::Relaxed),
            soft_bytes: soft.load(Ordering::Relaxed),
            soft_seconds: seconds.load(Ordering::Relaxed),
        }
    }

    /// Sets the limits of a class of clients.
    pub fn set_output_limits(&self, class: usize, limits: OutputLimits) {
        let values = [limits.hard_bytes, limits.soft_bytes, limits.soft_seconds];
        for (cell, value) in self.output_limits[class].0.iter().zip(values) {
            cell.store(value, Ordering::Relaxed);
        }
    }

    /// Takes a sample of commands, input and output bytes, for rates; keeps the memory's peak.
    pub fn sample(&self, now_ms: i64) {
        let of = |count: fn(&Counts) -> &AtomicU64| {
            self.total(|counts| count(counts).load(Ordering::Relaxed))
        };
        let now = [of(|c| &c.commands), of(|c| &c.input_bytes), of(|c| &c.output_bytes)];
        let mut samples = self.samples.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((then_ms, then)) = samples.last
            && now_ms > then_ms
        {
            let seconds = (now_ms - then_ms) as f64 / 1000.0;
            let rate = |index: usize| now[index].saturating_sub(then[index]) as f64 / seconds;
            samples.ring.push_back([rate(0), rate(1), rate(2)]);
            if samples.ring.len() > 16 {
                samples.ring.pop_front();
            }
        }
        samples.last = Some((now_ms, now));
        samples.peak_memory = samples.peak_memory.max(crate::sys::used_memory());
    }

    /// Commands, input bytes and output bytes a second, lately.
    pub fn rates(&self) -> [f64; 3] {
        let samples = self.samples.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let count = samples.ring.len().max(1) as f64;
        [0, 1, 2].map(|index| samples.ring.iter().map(|sample| sample[index]).sum::<f64>() / count)
    }

    /// The most memory in use at any sample, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let samples = self.samples.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        samples.peak_memory.max(crate::sys::used_memory())
    }

    /// Has memory freed by the background thread.
    pub fn free_later(&self, garbage: Vec<keyspace::effects::Garbage>) {
        self.freeing.pending.fetch_add(garbage.len(), Ordering::Relaxed);
        let sender = self.free_later.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // If the thread is gone the server is ending, and the memory with it.
        let _ = sender.send(garbage);
    }
}
