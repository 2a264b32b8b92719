//! Sets up metered ingest: its database, its counters in the keyspace, its root key; and `forebay
//! quota verify`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use backends::address;
use backends::embedded::{Embedded, Engine};
use backends::journal::FileJournal;
use forebay_http::quota::Quota;
use forebay_http::saga::Guard;
use server::inner::{Inner, QUOTA};
use server::options::{Options, index_of};
use server::shared::Shared;
use services::database::{Connect, Database};
use services::quota::answer::Ack;
use services::quota::journal::{Journal, applied, decode};
use services::quota::secret;
use services::quota::service::{Parts, Service, Settings};
use services::quota::verify::check;
use services::quota::writer::Grouping;

/// How often idle sessions are ended.
const TIDY: Duration = Duration::from_secs(1);

/// Runs commands as a client inside the process.
pub struct InnerEngine(pub Inner);

impl Engine for InnerEngine {
    fn run(&self, words: &[&[u8]], now_ms: i64, read: &mut dyn FnMut(&[u8])) {
        self.0.run(words, now_ms, read);
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as i64
}

/// The database that `sql` names.
pub fn database(sql: &str, folder: &Path) -> Result<Arc<dyn Connect>, String> {
    address::open(sql, folder).map_err(|error| format!("sql: {error}"))
}

fn settings(options: &Options, root_hash: String) -> Settings {
    let ack = match options.text(const { index_of("quota-ack") }).as_str() {
        "sync" => Ack::Sync,
        "journal" => Ack::Journal,
        _ => Ack::Group,
    };
    let number = |index: usize| options.number(index).max(0) as u64;
    Settings {
        grouping: Grouping {
            ack,
            rows_max: number(const { index_of("quota-group-rows") }) as usize,
            linger: Duration::from_micros(number(const { index_of("quota-group-microseconds") })),
        },
        backlog_rows: number(const { index_of("quota-backlog-rows") }) as usize,
        wait: Duration::from_millis(number(const { index_of("quota-wait-ms") })),
        writers: number(const { index_of("quota-writers") }) as usize,
        flush: Duration::from_millis(number(const { index_of("quota-flush-ms") })),
        kept_ms: number(const { index_of("quota-kept-days") }) as i64 * 86_400_000,
        session_idle_ms: number(const { index_of("quota-session-seconds") }) as i64 * 1000,
        root_hash,
    }
}

/// The root key: as given, or from its file, which is made if it is not there.
fn root_key(given: String, file: &Path, random: &mut dyn FnMut() -> u64) -> Result<String, String> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    if !given.is_empty() {
        return Ok(given);
    }
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    if let Ok(key) = fs::read_to_string(file) {
        return Ok(key.trim().to_string());
    }
    let key = format!("fbroot_{}", secret::fresh(random));
    let mut new = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let new = new.as_mut().map_err(|error| format!("{}: {error}", file.display()))?;
    writeln!(new, "{key}").map_err(failed)?;
    tracing::info!("the root key of metered ingest is in {}", file.display());
    Ok(key)
}

/// Starts the service if the options ask for it.
pub fn start(
    shared: &Arc<Shared>,
    mut random: impl FnMut() -> u64 + Send + 'static,
) -> Result<Option<Arc<Service>>, String> {
    let options = &shared.options;
    if !options.is_on(const { index_of("quota") }) {
        return Ok(None);
    }
    let folder = PathBuf::from(options.text(const { index_of("dir") }));
    let connect = database(&options.text(const { index_of("sql") }), &folder)?;
    let given = options.text(const { index_of("quota-root-key") });
    let root_key = root_key(given, &folder.join("quota-root.key"), &mut random)?;
    let settings = settings(options, secret::digest(root_key.as_bytes()));
    let journal = FileJournal::open(&folder.join("quota-journal.log"))?;
    let inner = Inner::new(Arc::clone(shared), QUOTA, random());
    let parts = Parts {
        store: Arc::new(Embedded(InnerEngine(inner))),
        connect,
        clock: Arc::new(now_ms),
        random: Box::new(random),
        journal: Some(Box::new(journal)),
        settings,
    };
    let service = Service::start(parts).map_err(|error| format!("metered ingest: {error}"))?;
    crate::quota_commands::set(Arc::clone(&service));
    let weak = Arc::downgrade(&service);
    let tidy = thread::Builder::new().name("quota-tidy".into()).spawn(move || {
        while let Some(service) = weak.upgrade() {
            service.tidy(now_ms());
            drop(service);
            thread::sleep(TIDY);
        }
    });
    tidy.map_err(|error| error.to_string())?;
    Ok(Some(service))
}

/// `forebay quota`.
#[derive(clap::Args)]
pub struct QuotaArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Compare rows, counters and journal; exit with 1 at a difference of one
    Verify {
        /// The database: sqlite:FILE (below --dir), mysql://user@host/database,
        /// postgres://user@host/database
        #[arg(long, default_value = "sqlite:forebay.db")]
        sql: String,
        /// The server's folder
        #[arg(long, default_value = ".")]
        dir: PathBuf,
    },
}

/// Runs `forebay quota`.
pub fn run(args: QuotaArgs) -> ExitCode {
    let What::Verify { sql, dir } = args.what;
    match verify(&sql, &dir) {
        Ok(differences) => {
            differences.iter().for_each(|difference| println!("differs: {difference}"));
            ExitCode::from(u8::from(!differences.is_empty()))
        }
        Err(error) => {
            eprintln!("forebay quota verify: {error}");
            ExitCode::from(2)
        }
    }
}

fn verify(sql: &str, folder: &Path) -> Result<Vec<String>, String> {
    if let Some(file) = sql.strip_prefix("sqlite:").map(|file| folder.join(file))
        && !file.exists()
    {
        return Err(format!("there is no {}", file.display()));
    }
    let mut connection = database(sql, folder)?.connect().map_err(|error| error.to_string())?;
    let report = check(&mut *connection).map_err(|error| error.to_string())?;
    let (records, counters) = (report.records, report.counters);
    println!("{records} records, {counters} counters, {} differences", report.differences.len());
    let path = folder.join("quota-journal.log");
    if path.exists() {
        let waiting = waiting(&path, &mut *connection)?;
        println!("{waiting} records of the journal are still to come into the database");
    }
    Ok(report.differences)
}

/// Records in the journal that the database does not have; the next start brings them there.
fn waiting(path: &Path, connection: &mut dyn Database) -> Result<usize, String> {
    let mut journal = FileJournal::open(path)?;
    let applied = applied(connection, &journal.name()).map_err(|error| error.to_string())?;
    let mut waiting = 0;
    for line in journal.lines()? {
        let (number, batch) = decode(&line).ok_or("the journal has a line without sense")?;
        waiting += if number > applied { batch.records.len() } else { 0 };
    }
    Ok(waiting)
}

/// The service's door.
pub fn door(service: &Arc<Service>, options: &Options, prefix: u32) -> Quota {
    let older = options.is_on(const { index_of("quota-older-headers") });
    let hosts = options.text(const { index_of("quota-webhook-hosts") });
    let allowed = hosts.split_whitespace().map(str::to_string).collect();
    let guard = Guard { allowed, refuses_private: true };
    Quota::new(Arc::clone(service), older, guard, prefix)
}
