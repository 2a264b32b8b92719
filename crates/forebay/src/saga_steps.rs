//! Runs sagas' steps on the keyspace and on the configured SQL database, each kind in a thread of
//! its own, one after the other (statements that wait at the same time share a commit); and the
//! stream of those that ended, and the archive.
//!
//! **Invariant:** a step is answered as done only after the log of the keyspace, or the database,
//! has it as safe as it makes anything: kill -9 undoes no step that is known as done.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_http::saga::Steps;
use server::inner::{Inner, SAGA};
use server::options::index_of;
use server::shared::Shared;
use services::database::{Connect, Database, DatabaseError, Statement, Value};
use services::saga::local::{self, Local};
use services::saga::policy::Rules;
use services::saga::transaction::Transaction;
use services::saga::view;
use services::saga::words::Verdict;

type Done = Box<dyn FnOnce(Verdict, String) + Send>;

enum Job {
    Run(Box<Local>, Done),
    /// A transaction's barrier may go.
    Forget(String),
    /// A row of the archive.
    Keep(Box<[Value; ARCHIVE_COLUMNS]>),
    /// An entry of the stream.
    Tell(Vec<String>),
}

const ARCHIVE_COLUMNS: usize = 8;
const ARCHIVE: &str = "CREATE TABLE IF NOT EXISTS saga_archive (\
    id bigint PRIMARY KEY, gid varchar(256) NOT NULL, kind varchar(45) NOT NULL, \
    status varchar(45) NOT NULL, name text NOT NULL, created_ms bigint NOT NULL, \
    finished_ms bigint NOT NULL, detail text NOT NULL)";
/// Rows of the archive that share a transaction, at most.
const ARCHIVE_ROWS: usize = 500;
/// Steps that share a transaction, at most: they hold their locks until it is committed.
const STEPS_TOGETHER: usize = 64;
/// Entries that the stream keeps, about.
const STREAM_ENTRIES: &str = "100000";

/// The two threads' doors, as far as there are any.
struct Threads {
    sql: Option<Mutex<mpsc::Sender<Job>>>,
    redis: Option<Mutex<mpsc::Sender<Job>>>,
    stream: String,
    archives: bool,
    rules: Rules,
}

fn send(to: &Option<Mutex<mpsc::Sender<Job>>>, job: Job) {
    let Some(to) = to else { return };
    let sender = to.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // Its thread ends with the process only.
    let _ = sender.send(job);
}

impl Steps for Threads {
    fn run(&self, local: Local, done: Done) {
        let to = if local.is_sql { &self.sql } else { &self.redis };
        send(to, Job::Run(Box::new(local), done));
    }

    fn finished(&self, t: &Transaction) {
        if self.stream.is_empty() {
            return;
        }
        let fields = [
            ("gid", &*t.gid),
            ("name", &*t.name),
            ("kind", t.kind.word()),
            ("status", t.status.word()),
            ("hold", t.hold.word()),
            ("reason", &*t.rollback_reason),
        ];
        let head = ["XADD", &self.stream, "MAXLEN", "~", STREAM_ENTRIES, "*"];
        let fields = fields.into_iter().flat_map(|(name, value)| [name, value]);
        let words = head.into_iter().chain(fields).map(str::to_string).collect();
        send(&self.redis, Job::Tell(words));
    }

    fn forget(&self, t: &Transaction) {
        if t.branches.iter().any(|branch| local::is_local(&branch.url)) {
            send(&self.sql, Job::Forget(t.gid.to_string()));
            send(&self.redis, Job::Forget(t.gid.to_string()));
        }
        if self.archives {
            let time = |ms: u64| Value::Int(i64::try_from(ms).unwrap_or(i64::MAX));
            send(
                &self.sql,
                Job::Keep(Box::new([
                    time(t.id),
                    (*t.gid).into(),
                    t.kind.word().into(),
                    t.status.word().into(),
                    (*t.name).into(),
                    time(t.created_ms),
                    time(t.finished_ms),
                    view::detail(t, &self.rules).to_string().into(),
                ])),
            );
        }
    }
}

/// Starts those threads that the options want, and makes their tables.
pub fn start(shared: &Arc<Shared>, seed: u64) -> Result<Option<Arc<dyn Steps>>, String> {
    let options = &shared.options;
    let has_steps = options.is_on(const { index_of("saga-local-steps") });
    let archives = options.is_on(const { index_of("saga-archive") });
    let stream = options.text(const { index_of("saga-finished-stream") });
    let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
        thread::Builder::new().name(name.into()).spawn(run).map_err(|error| error.to_string())
    };
    let (mut sql, mut redis) = (None, None);
    if has_steps || archives {
        let folder = PathBuf::from(options.text(const { index_of("dir") }));
        let connect = crate::quota::database(&options.text(const { index_of("sql") }), &folder)?;
        let mut database = connect.connect().map_err(|error| format!("sagas: {error}"))?;
        for table in [local::table(database.dialect()), ARCHIVE.to_string()] {
            match database.transact(&[Statement::run(table, Vec::new())]) {
                // Another server made it at the same moment.
                Ok(_) | Err(DatabaseError::Duplicate(_)) => {}
                Err(error) => return Err(format!("sagas: {error}")),
            }
        }
        let (sender, jobs) = mpsc::channel();
        spawn("saga-sql", Box::new(move || run_sql(&*connect, Some(database), &jobs)))?;
        sql = Some(Mutex::new(sender));
    }
    if has_steps || !stream.is_empty() {
        let (sender, jobs) = mpsc::channel();
        let inner = Inner::new(Arc::clone(shared), SAGA, seed);
        spawn("saga-redis", Box::new(move || run_redis(&inner, &jobs)))?;
        redis = Some(Mutex::new(sender));
    }
    if sql.is_none() && redis.is_none() {
        return Ok(None);
    }
    let rules = Rules::default();
    Ok(Some(Arc::new(Threads { sql, redis, stream, archives, rules })))
}

fn run_sql(
    connect: &dyn Connect,
    mut database: Option<Box<dyn Database>>,
    jobs: &mpsc::Receiver<Job>,
) {
    let mut next = None;
    while let Some(job) = next.take().or_else(|| jobs.recv().ok()) {
        let connected = match database.take() {
            Some(open) => Ok(open),
            None => connect.connect(),
        };
        let mut open = match connected {
            Ok(open) => open,
            Err(error) => {
                if let Job::Run(_, done) = job {
                    done(Verdict::Unknown, error.to_string());
                }
                continue;
            }
        };
        let is_lost = match job {
            Job::Run(local, done) => {
                let mut steps = vec![(local, done)];
                while steps.len() < STEPS_TOGETHER {
                    match jobs.try_recv() {
                        Ok(Job::Run(local, done)) => steps.push((local, done)),
                        Ok(other) => {
                            next = Some(other);
                            break;
                        }
                        Err(_) => break,
                    }
                }
                run_steps(&mut *open, steps)
            }
            Job::Forget(gid) => {
                let statement = Statement::run(local::FORGET, vec![Value::from(gid)]);
                matches!(open.transact(&[statement]), Err(DatabaseError::Lost(_)))
            }
            Job::Keep(row) => {
                let mut values = Vec::from(*row);
                while values.len() < ARCHIVE_ROWS * ARCHIVE_COLUMNS {
                    match jobs.try_recv() {
                        Ok(Job::Keep(row)) => values.extend(*row),
                        Ok(other) => {
                            next = Some(other);
                            break;
                        }
                        Err(_) => break,
                    }
                }
                keep(&mut *open, values)
            }
            Job::Tell(_) => false,
        };
        database = (!is_lost).then_some(open);
    }
}

/// Runs steps as one transaction; whether the database was lost.
fn run_steps(database: &mut dyn Database, steps: Vec<(Box<Local>, Done)>) -> bool {
    let (locals, answers): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
    let locals: Vec<&Local> = locals.iter().map(|local| &**local).collect();
    let outcomes = Local::run_sql_together(&locals, database);
    let is_lost = outcomes.iter().any(|(verdict, _)| *verdict == Verdict::Unknown);
    for (done, (verdict, text)) in answers.into_iter().zip(outcomes) {
        done(verdict, text);
    }
    is_lost
}

/// Puts rows into the archive; whether the database was lost.
fn keep(database: &mut dyn Database, values: Vec<Value>) -> bool {
    let statement = Statement::Insert {
        into: "saga_archive (id, gid, kind, status, name, created_ms, finished_ms, detail)",
        columns: ARCHIVE_COLUMNS,
        values,
        tail: database.dialect().or_ignore("id"),
    };
    let kept = database.transact(&[statement]);
    if let Err(error) = &kept {
        tracing::error!("sagas: forgotten ones are not in the archive: {error}");
    }
    matches!(kept, Err(DatabaseError::Lost(_)))
}

fn run_redis(inner: &Inner, jobs: &mpsc::Receiver<Job>) {
    let now_ms = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_millis() as i64
    };
    for job in jobs {
        match job {
            Job::Run(local, done) => {
                let words = local.redis_words();
                let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
                let (verdict, text) =
                    inner.run(&words, now_ms(), |reply| local::redis_verdict(&bulk(reply)));
                match verdict == Verdict::Success && !inner.wait_for_log() {
                    true => done(Verdict::Unknown, "the append-only file has it not yet".into()),
                    false => done(verdict, text),
                }
            }
            Job::Forget(gid) => {
                let key = local::barrier_key(&gid);
                inner.run(&[b"UNLINK", key.as_bytes()], now_ms(), |_| ());
            }
            Job::Tell(words) => {
                let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
                inner.run(&words, now_ms(), |_| ());
            }
            Job::Keep(_) => {}
        }
    }
}

/// The text of a bulk string; an error as it stands.
fn bulk(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply);
    match text.split_once("\r\n") {
        Some((head, rest)) if head.starts_with('$') => rest.trim_end_matches("\r\n").to_string(),
        Some((head, _)) => head.to_string(),
        None => text.into_owned(),
    }
}
