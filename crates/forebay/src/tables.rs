//! Sets up cached tables: what is declared, the database, the kept answers in the keyspace, the
//! look for changes by others.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fs, thread};

use backends::compress::compress;
use backends::embedded::Embedded;
use forebay_http::tables::{Manner, Tables as Door};
use server::inner::{Inner, TABLES};
use server::options::{Options, index_of};
use server::shared::Shared;
use services::database::{Connect, Database, DatabaseError, Dialect};
use services::tables::schema::Declarations;
use services::tables::service::{Parts, Settings, Tables};
use services::tables::setup;
use services::tables::token::Verifier;

use crate::quota::{InnerEngine, database, now_ms};
use crate::table_commands;

/// The look for changes tries again after this when the database does not answer.
const PROBE_AGAIN: Duration = Duration::from_millis(500);
/// The least time between two looks.
const LOOK_GAP: Duration = Duration::from_millis(5);

fn settings(options: &Options, dialect: Dialect) -> Settings {
    let number = |index: usize| options.number(index).max(0) as u64;
    let readers = number(const { index_of("tables-readers") }) as usize;
    Settings {
        readers,
        // SQLite has one writer at a time.
        writers: if dialect == Dialect::Sqlite { 1 } else { readers },
        queue_max: number(const { index_of("tables-queue") }) as usize,
        wait_ms: number(const { index_of("tables-wait-ms") }),
        hot_bytes: number(const { index_of("tables-hot-bytes") }) as usize,
        probe_ms: number(const { index_of("tables-probe-ms") }),
        sample_one_in: number(const { index_of("tables-sample") }),
    }
}

/// What the file declares; without one, whatever the database has is served.
fn declarations(options: &Options, folder: &Path) -> Result<Declarations, String> {
    let file = options.text(const { index_of("tables-file") });
    if file.is_empty() {
        return Ok(Declarations { discover: true, tables: Vec::new() });
    }
    let file = folder.join(file);
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    Declarations::read(&text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Starts the service if the options ask for it.
pub fn start(
    shared: &Arc<Shared>,
    mut random: impl FnMut() -> u64,
) -> Result<Option<Arc<Tables>>, String> {
    let options = &shared.options;
    if !options.is_on(const { index_of("tables") }) {
        return Ok(None);
    }
    let folder = PathBuf::from(options.text(const { index_of("dir") }));
    let connect = database(&options.text(const { index_of("sql") }), &folder)?;
    let declarations = declarations(options, &folder)?;
    let settings = settings(options, connect.dialect());
    let failed = |error: &dyn std::fmt::Display| format!("tables: {error}");
    let probe_ms = settings.probe_ms;
    let mut connection = connect.connect().map_err(|error| failed(&error))?;
    let served = setup::prepare(&mut *connection, declarations, probe_ms);
    let served = served.map_err(|error| failed(&error))?;
    drop(connection);
    let inner = Inner::new(Arc::clone(shared), TABLES, random());
    let parts = Parts {
        connect: Arc::clone(&connect),
        shelf: Arc::new(Embedded(InnerEngine(inner))),
        clock: Arc::new(now_ms),
        compress,
        seed: random(),
        settings,
    };
    let tables = Tables::start(served, parts).map_err(|error| failed(&error))?;
    tracing::info!("tables: {}", tables.names().join(", "));
    if probe_ms > 0 {
        watch(Arc::downgrade(&tables), connect, Duration::from_millis(probe_ms))?;
    }
    table_commands::set(Arc::clone(&tables));
    Ok(Some(tables))
}

/// Looks for changes by others as long as the service lives.
fn watch(tables: Weak<Tables>, connect: Arc<dyn Connect>, every: Duration) -> Result<(), String> {
    let watching = thread::Builder::new().name("tables-probe".into()).spawn(move || {
        let (mut connection, mut mark) = (None, None);
        while let Some(tables) = tables.upgrade() {
            if connection.is_none() {
                connection = connect.connect().ok();
                mark = None;
            }
            let probed =
                connection.as_mut().map(|database| tables.probe(&mut **database, &mut mark));
            drop(tables);
            match probed {
                Some(Ok(())) => {
                    let Some(database) = &mut connection else { continue };
                    if pause(&mut **database, every).is_err() {
                        connection = None;
                    }
                }
                _ => {
                    connection = None;
                    thread::sleep(PROBE_AGAIN);
                }
            }
        }
    });
    watching.map(drop).map_err(|error| error.to_string())
}

/// Waits for the next look: until a trigger says that something has changed, where the database
/// can, and never for longer than `every`.
fn pause(database: &mut dyn Database, every: Duration) -> Result<(), DatabaseError> {
    // However much is changed: not more looks than this.
    let gap = LOOK_GAP.min(every);
    thread::sleep(gap);
    if database.listen(setup::CHANNEL, every - gap)?.is_none() {
        thread::sleep(every - gap);
    }
    Ok(())
}

/// The service's door.
pub fn door(tables: &Arc<Tables>, options: &Options) -> Door {
    let secret = options.text(const { index_of("tables-jwt-secret") });
    let verifier = (!secret.is_empty()).then(|| {
        let issuer = options.text(const { index_of("tables-jwt-issuer") });
        let audience = options.text(const { index_of("tables-jwt-audience") });
        Verifier::new(secret.as_bytes(), &issuer, &audience)
    });
    let manner = Manner {
        skips_version: options.is_on(const { index_of("tables-skip-version") }),
        origins: options.text(const { index_of("tables-cors") }),
    };
    Door::new(Arc::clone(tables), verifier, manner)
}
