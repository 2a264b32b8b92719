//! `forebay serve`: reads the configuration, starts the server, waits for its end.

use std::io::{self, Read};
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use server::admin::info::{REDIS_VERSION, VERSION};
use server::conf_file::Configuration;
use server::options::index_of;
use server::persistence::save::{self, AtEnd};
use server::shared::Shared;
use server::start::Running;
use server::sys;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{log, metrics, quota, saga, serve_help, systemd, tables};

/// Under which name the program was called: some answers differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// `forebay serve`.
    Forebay,
    /// `redis-server` or `valkey-server`: programs read what it prints.
    Redis,
}

/// The configuration is wrong.
const EXIT_USAGE: u8 = 2;
/// The server cannot start; and any error as Redis has it.
const EXIT_FAILED: u8 = 1;

/// Runs the server with these words of the command line: a configuration file, and options as
/// `--name value ...`.
pub fn run(args: &[String], name: Name) -> ExitCode {
    match args.first().map(String::as_str) {
        Some("--help" | "-h") => {
            print!("{}", serve_help::text());
            return ExitCode::SUCCESS;
        }
        Some("--version" | "-v") => {
            println!("{}", version(name));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let configuration = match Configuration::read(args, environment) {
        Ok(configuration) => configuration,
        Err(error) if name == Name::Redis => {
            eprint!("{}", error.as_redis());
            return ExitCode::from(EXIT_FAILED);
        }
        Err(error) => {
            eprintln!("forebay serve: {} (forebay serve --help)", error.as_line());
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match serve(configuration) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            match name {
                // Test suites look for it in the log.
                Name::Redis => tracing::error!("{text}"),
                Name::Forebay => eprintln!("forebay serve: {text}"),
            }
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn version(name: Name) -> String {
    match name {
        Name::Forebay => format!("forebay {VERSION} (behaves as Redis {REDIS_VERSION})"),
        Name::Redis => format!(
            "Redis server v={REDIS_VERSION} sha=00000000:0 malloc={} bits={} \
             build=forebay-{VERSION}",
            sys::allocator_name(),
            usize::BITS
        ),
    }
}

fn serve(configuration: Configuration) -> Result<(), String> {
    let options = &configuration.options;
    if options.is_on(const { index_of("daemonize") }) {
        sys::daemonize().map_err(|error| format!("daemonize: {}", sys::error_text(&error)))?;
    }
    let set_log_level = log::begin(options)?;
    catch_crashes(options)?;
    let (pid, threads) = (std::process::id(), options.number(const { index_of("threads") }));
    tracing::info!(
        "Forebay {VERSION}, behaves as Redis {REDIS_VERSION}, {threads} event loops, PID: {pid}"
    );
    match configuration.file.as_str() {
        "" => tracing::info!("no configuration file: defaults and the options given"),
        file => tracing::info!("configuration file: {file}"),
    }
    configuration.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let supervisor = systemd::Supervisor::find(options);
    let pidfile = options.text(const { index_of("pidfile") });

    plug_in(options);
    let families = crate::families::families();
    let disk = Arc::new(persist::disk::RealDisk);
    let running = server::start::start(configuration, &families, disk, random_bits())
        .map_err(|error| sys::error_text(&error))?;
    // It can be set only once, which is here.
    let _ = running.shared.set_log_level.set(set_log_level);
    let signals = watch_signals(Arc::clone(&running.shared), supervisor.clone());
    signals.map_err(|error| format!("signals: {error}"))?;
    let pidfile = Pidfile::write(pidfile);
    tracing::info!("Server initialized");
    let service = quota::start(&running.shared, random_bits())?;
    let sagas = saga::start(&running.shared, random_bits()())?;
    let cached = tables::start(&running.shared, random_bits())?;
    let door = open_http(&running.shared, service.as_ref(), sagas.as_ref(), cached.as_ref());
    tell(&running, door.as_ref().map(|door| door.address));
    running.wait_until_loaded();
    if !running.shared.is_stopping.load(Ordering::Acquire) {
        tracing::info!("Ready to accept connections");
    }
    sys::give_back_code();
    supervisor.tell("READY=1");
    let shared = Arc::clone(&running.shared);
    running.join();
    if let Some(service) = service {
        // What waits is stored and answered before the door closes.
        service.stop();
    }
    if let Some(door) = door {
        door.close();
    }
    if let Some(sagas) = sagas {
        sagas.stop();
    }
    drop(pidfile);
    if let Some(text) = shared.persistence.failure() {
        return Err(text);
    }
    tracing::info!("Forebay is now ready to exit, bye bye...");
    Ok(())
}

/// Has the log told of a crash.
fn catch_crashes(options: &server::options::Options) -> Result<(), String> {
    let about = format!(
        "forebay_version:{VERSION}\nredis_version:{REDIS_VERSION}\nos:{} {}\nprocess_id:{}\n\
         threads:{}\nbuild:{}, {}\n",
        std::env::consts::OS,
        std::env::consts::ARCH,
        std::process::id(),
        options.number(const { index_of("threads") }),
        if cfg!(debug_assertions) { "debug" } else { "release" },
        sys::allocator_name(),
    );
    let file = options.text(const { index_of("logfile") });
    let installed = server::crash::install(&file, about);
    installed.map_err(|error| format!("cannot catch signals: {}", sys::error_text(&error)))
}

/// Tells the crates that bring families what they need of each other.
fn plug_in(options: &server::options::Options) {
    let hooks = server::scripting::Hooks {
        counts: script_counts,
        sources: script::libraries::sources,
        load: script::functions::load_source,
    };
    // A second server in this process has the same ones.
    let _ = server::scripting::HOOKS.set(hooks);
    sql::register();
    let _ = server::apply::ALSO.set(set_sql);
    set_sql(options);
}

/// Carries the options of SQL over.
fn set_sql(options: &server::options::Options) {
    let settings = sql::settings::settings();
    settings.set_folder(std::path::Path::new(&options.text(const { index_of("dir") })));
    let attach = options.text(const { index_of("sql-attach-dir") });
    settings.set_attach_folder(&attach);
    let number = |index| options.number(index).max(0) as u64;
    settings.set_timeouts_ms(
        number(const { index_of("sql-timeout-ms") }),
        number(const { index_of("sql-unit-timeout-ms") }),
    );
    settings.set_waits_ms(
        number(const { index_of("sql-busy-wait-ms") }),
        number(const { index_of("sql-idle-timeout-ms") }),
        number(const { index_of("sql-transaction-timeout-ms") }),
    );
    settings.set_sessions_max(number(const { index_of("sql-sessions-max") }));
    settings.set_bounds(
        number(const { index_of("sql-rows-max") }),
        number(const { index_of("sql-bytes-max") }),
        number(const { index_of("sql-live-bytes-max") }),
    );
    settings.set_memory(
        number(const { index_of("sql-database-bytes-max") }),
        number(const { index_of("sql-memory-max") }),
    );
}

fn script_counts(registry: &commands::registry::Registry) -> server::scripting::Counts {
    let counts = script::scripts::counts(registry);
    server::scripting::Counts {
        scripts: counts.scripts as u64,
        evicted: counts.evicted,
        script_bytes: counts.script_bytes as u64,
        script_vm_bytes: counts.vm_bytes[0] as u64,
        libraries: counts.libraries as u64,
        functions: counts.functions as u64,
        library_bytes: counts.library_bytes as u64,
        function_vm_bytes: counts.vm_bytes[1] as u64,
    }
}

/// Says where the server listens and what to try next.
fn tell(running: &Running, http: Option<std::net::SocketAddr>) {
    for address in &running.addresses {
        tracing::info!("listening on {address}");
    }
    let options = &running.shared.options;
    let port = options.number(const { index_of("port") });
    let mut tries = Vec::new();
    if port != 0 {
        tries.push(format!("redis-cli -p {port}"));
        tries.push(format!("forebay cli -p {port}"));
    }
    if let Some(address) = http {
        tracing::info!("listening on {address} (HTTP)");
        tries.push(format!("curl http://{address}/readyz"));
    }
    if !tries.is_empty() {
        tracing::info!("try: {}", tries.join("  |  "));
    }
}

/// Opens the HTTP door; the server goes on without it.
fn open_http(
    shared: &Arc<Shared>,
    service: Option<&Arc<services::quota::service::Service>>,
    sagas: Option<&saga::Running>,
    cached: Option<&Arc<services::tables::service::Tables>>,
) -> Option<forebay_http::Door> {
    let port = shared.options.number(const { index_of("http-port") }) as u16;
    if port == 0 {
        return None;
    }
    let bind = shared.options.text(const { index_of("http-bind") });
    let status = Arc::new(metrics::ServerStatus(Arc::clone(shared)));
    let threads = match shared.options.number(const { index_of("http-threads") }) {
        0 => shared.threads(),
        threads => threads as usize,
    };
    let prefix = random_bits()() as u32;
    let quota = service.map(|service| quota::door(service, &shared.options, prefix));
    let saga = sagas.map(|sagas| sagas.door(&shared.options));
    let cached = cached.map(|cached| tables::door(cached, &shared.options));
    let door = TcpListener::bind((bind.as_str(), port))
        .and_then(|listener| forebay_http::open(listener, status, quota, saga, cached, threads));
    door.inspect_err(|error| {
        let why = sys::error_text(error);
        tracing::warn!("no HTTP on {bind}:{port}: {why}; --http-port chooses another port");
    })
    .ok()
}

/// Ends the server at the first SIGTERM or SIGINT, the process at the second.
fn watch_signals(shared: Arc<Shared>, supervisor: systemd::Supervisor) -> io::Result<()> {
    // SIGHUP is taken so that a closed terminal does not end the server.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut is_ending = false;
        for signal in signals.forever() {
            let name = match signal {
                SIGTERM => "SIGTERM",
                SIGINT => "SIGINT",
                _ => continue,
            };
            if std::mem::replace(&mut is_ending, true) {
                tracing::warn!("You insist... exiting now.");
                std::process::exit(i32::from(EXIT_FAILED));
            }
            tracing::info!("Received {name} scheduling shutdown...");
            supervisor.tell("STOPPING=1");
            match save::finish(&shared, AtEnd::AsConfigured) {
                Ok(()) => shared.stop(),
                Err(_) => {
                    is_ending = false;
                    tracing::warn!(
                        "{name} received but errors trying to shut down the server, check the logs \
                         for more information"
                    );
                }
            }
        }
    })?;
    Ok(())
}

/// Random bits from the system; if it has none, from the addresses and times of this process.
fn random_bits() -> impl FnMut() -> u64 + Send + 'static {
    use std::hash::{BuildHasher, RandomState};
    let mut source = std::fs::File::open("/dev/urandom").ok();
    let mut count = 0u64;
    move || {
        let mut bytes = [0; 8];
        let read = source.as_mut().map(|source| source.read_exact(&mut bytes));
        if matches!(read, Some(Ok(()))) {
            return u64::from_le_bytes(bytes);
        }
        count += 1;
        RandomState::new().hash_one(count)
    }
}

/// The file with the process's id; it goes with the server.
struct Pidfile(String);

impl Pidfile {
    fn write(path: String) -> Option<Pidfile> {
        if path.is_empty() {
            return None;
        }
        match std::fs::write(&path, format!("{}\n", std::process::id())) {
            Ok(()) => Some(Pidfile(path)),
            Err(error) => {
                tracing::warn!("pidfile {path}: {}", sys::error_text(&error));
                None
            }
        }
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
