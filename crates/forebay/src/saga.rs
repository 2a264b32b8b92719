//! Sets up the coordinator of sagas: its log, its calls over HTTP, its options.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use forebay_http::saga::{Calls, Clock, Guard, HttpCaller, Limits, Saga, Served, Trust};
use persist::disk::RealDisk;
use persist::journal::{Journal, Log};
use server::admin::info::VERSION;
use server::options::{Options, index_of};
use server::shared::Shared;
use server::sys;
use services::saga::coordinator::{Coordinator, Settings};
use services::saga::policy::Rules;
use services::saga::state::Logged;
use services::saga::words::Durability;

use crate::{saga_commands, saga_steps};

/// How long the end of the server waits for the log.
const LAST_SYNC: Duration = Duration::from_secs(5);

/// A coordinator that goes on with what its log holds.
pub struct Running {
    coordinator: Arc<Coordinator>,
    caller: Arc<HttpCaller>,
    clock: Arc<Clock>,
    log: Arc<dyn Journal>,
}

fn settings(options: &Options) -> Settings {
    let number = |index: usize| options.number(index).max(0) as u64;
    let small = |index: usize| u32::try_from(options.number(index)).unwrap_or(u32::MAX);
    let durability = options.text(const { index_of("saga-durability") });
    Settings {
        rules: Rules {
            timeout_to_fail_s: small(const { index_of("saga-timeout-seconds") }),
            retry_interval_s: small(const { index_of("saga-retry-seconds") }),
            request_timeout_s: small(const { index_of("saga-request-seconds") }),
            retry_wait_ms_max: number(const { index_of("saga-retry-seconds-max") }) * 1000,
            tries_max: small(const { index_of("saga-tries-max") }),
        },
        durability: Durability::of_word(&durability).unwrap_or(Durability::EverySecond),
        unfinished_max: number(const { index_of("saga-unfinished-max") }) as usize,
        succeed_keep_ms: number(const { index_of("saga-keep-seconds") }) * 1000,
        failed_keep_ms: number(const { index_of("saga-keep-failed-seconds") }) * 1000,
        finished_max: number(const { index_of("saga-keep-max") }) as usize,
        finished_bytes_max: number(const { index_of("saga-keep-bytes") }),
        local_steps: options.is_on(const { index_of("saga-local-steps") }),
    }
}

/// Starts the coordinator if the options ask for it.
pub fn start(shared: &Arc<Shared>, seed: u64) -> Result<Option<Running>, String> {
    let options = &shared.options;
    if !options.is_on(const { index_of("saga") }) {
        return Ok(None);
    }
    let folder = PathBuf::from(options.text(const { index_of("dir") })).join("sagas");
    let settings = settings(options);
    let coordinator = Arc::new(Coordinator::new(settings.clone()));
    let mut records = 0u64;
    let log = Log::open(Arc::new(RealDisk), &folder, Default::default(), &mut |at, record| {
        records += 1;
        coordinator.replay(at, record);
    });
    let log: Arc<dyn Journal> = Arc::new(log.map_err(|error| format!("sagas: {error}"))?);
    let clock = Arc::new(Clock::new(seed));
    let hosts = options.text(const { index_of("saga-branch-hosts") });
    let allowed = hosts.split_whitespace().map(str::to_string).collect();
    let guard = Guard { allowed, refuses_private: false };
    let limits = Limits {
        calls_max: options.number(const { index_of("saga-target-calls-max") }) as usize,
        failures_max: options.number(const { index_of("saga-target-failures-max") }) as u32,
    };
    let webhook = options.text(const { index_of("saga-webhook") });
    let trust = match options.text(const { index_of("saga-ca-cert-file") }) {
        file if file.is_empty() => Trust::of_system(),
        file => Trust::of_file(&file).map_err(|error| format!("saga-ca-cert-file: {error}"))?,
    };
    let steps = saga_steps::start(shared, seed)?;
    let caller = HttpCaller::new(Arc::clone(&clock), guard, trust, limits, webhook, steps);
    let caller = Arc::new(caller);
    let calls = Arc::new(Calls(Arc::clone(&caller)));
    coordinator.start(Arc::new(Logged(Arc::clone(&log))), calls, clock.moment());
    saga_commands::set(Arc::clone(&coordinator), Arc::clone(&clock));
    let unfinished = coordinator.unfinished_count();
    tracing::info!("sagas: {records} records read, {unfinished} transactions to go on with");
    Ok(Some(Running { coordinator, caller, clock, log }))
}

/// Listens for gRPC; the server goes on without it.
fn grpc(bind: &str, port: u16) -> Option<TcpListener> {
    let listener = TcpListener::bind((bind, port)).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    match listener {
        Ok(listener) => {
            tracing::info!("listening on {bind}:{port} (gRPC)");
            Some(listener)
        }
        Err(error) => {
            let why = sys::error_text(&error);
            tracing::warn!("no gRPC on {bind}:{port}: {why}; --saga-grpc-port chooses another");
            None
        }
    }
}

impl Running {
    /// Its door.
    pub fn door(&self, options: &Options) -> Saga {
        let port = options.number(const { index_of("saga-grpc-port") }) as u16;
        let bind = options.text(const { index_of("http-bind") });
        let grpc = (port != 0).then(|| grpc(&bind, port)).flatten();
        Saga {
            coordinator: Arc::clone(&self.coordinator),
            caller: Arc::clone(&self.caller),
            clock: Arc::clone(&self.clock),
            api_key: options.text(const { index_of("saga-api-key") }),
            version: VERSION,
            grpc,
            served: Served::default(),
        }
    }

    /// Makes everything that was recorded safe.
    pub fn stop(&self) {
        let (sender, receiver) = mpsc::channel();
        let done = move |is_safe| {
            // The server may have given up waiting.
            let _ = sender.send(is_safe);
        };
        self.log.when_safe(self.log.end(), Box::new(done));
        if receiver.recv_timeout(LAST_SYNC) != Ok(true) {
            tracing::warn!("sagas: the end of the log may not be on the disk");
        }
    }
}
