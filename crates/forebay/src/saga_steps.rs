//! Runs sagas' steps on the keyspace and on the configured SQL database, each kind in a thread of
//! its own, one after the other.
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
use services::saga::words::Verdict;

type Done = Box<dyn FnOnce(Verdict, String) + Send>;

enum Job {
    Run(Box<Local>, Done),
    Forget(String),
}

/// The two threads' doors.
struct Threads {
    sql: Mutex<mpsc::Sender<Job>>,
    redis: Mutex<mpsc::Sender<Job>>,
}

fn send(to: &Mutex<mpsc::Sender<Job>>, job: Job) {
    let sender = to.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // Its thread ends with the process only.
    let _ = sender.send(job);
}

impl Steps for Threads {
    fn run(&self, local: Local, done: Done) {
        let to = if local.is_sql { &self.sql } else { &self.redis };
        send(to, Job::Run(Box::new(local), done));
    }

    fn forget(&self, gid: &str) {
        send(&self.sql, Job::Forget(gid.into()));
        send(&self.redis, Job::Forget(gid.into()));
    }
}

/// Starts the threads, and makes the barrier's table.
pub fn start(shared: &Arc<Shared>, seed: u64) -> Result<Arc<dyn Steps>, String> {
    let folder = PathBuf::from(shared.options.text(const { index_of("dir") }));
    let connect = crate::quota::database(&shared.options.text(const { index_of("sql") }), &folder)?;
    let mut database = connect.connect().map_err(|error| format!("sagas: {error}"))?;
    let made = database.transact(&[Statement::run(local::TABLE, Vec::new())]);
    made.map_err(|error| format!("sagas: {error}"))?;
    let (sql, sql_jobs) = mpsc::channel();
    let (redis, redis_jobs) = mpsc::channel();
    let inner = Inner::new(Arc::clone(shared), SAGA, seed);
    let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
        thread::Builder::new().name(name.into()).spawn(run).map_err(|error| error.to_string())
    };
    spawn("saga-sql", Box::new(move || run_sql(&*connect, Some(database), &sql_jobs)))?;
    spawn("saga-redis", Box::new(move || run_redis(&inner, &redis_jobs)))?;
    Ok(Arc::new(Threads { sql: Mutex::new(sql), redis: Mutex::new(redis) }))
}

fn run_sql(
    connect: &dyn Connect,
    mut database: Option<Box<dyn Database>>,
    jobs: &mpsc::Receiver<Job>,
) {
    for job in jobs {
        let connected = match database.take() {
            Some(open) => Ok(open),
            None => connect.connect(),
        };
        let (mut open, job) = match (connected, job) {
            (Ok(open), job) => (open, job),
            (Err(error), Job::Run(_, done)) => {
                done(Verdict::Unknown, error.to_string());
                continue;
            }
            (Err(_), Job::Forget(_)) => continue,
        };
        let is_lost = match job {
            Job::Run(local, done) => {
                let (verdict, text) = local.run_sql(&mut *open);
                let is_lost = verdict == Verdict::Unknown;
                done(verdict, text);
                is_lost
            }
            Job::Forget(gid) => {
                let statement = Statement::run(local::FORGET, vec![Value::from(gid)]);
                matches!(open.transact(&[statement]), Err(DatabaseError::Lost(_)))
            }
        };
        database = (!is_lost).then_some(open);
    }
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
