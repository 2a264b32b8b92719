//! Starts the server: opens the doors, then one event loop per thread.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use commands::command::Family;
use commands::engine::Core;
use commands::registry::Registry;
use keyspace::keyspace::Keyspace;
use mio::Poll;
use persist::disk::Disk;

use crate::conf_file::Configuration;
use crate::inner::INNER_CLIENTS;
use crate::listener::Listeners;
use crate::message::Mailbox;
use crate::options::{Options, index_of};
use crate::persistence::{self, LOADERS};
use crate::shared::{Freeing, Parts, Shared};
use crate::worker::{WAKER, Worker, now_ms};
use crate::{sys, tls};

/// A server that runs.
pub struct Running {
    /// What its threads share.
    pub shared: Arc<Shared>,
    /// Where it listens, in words.
    pub addresses: Vec<String>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Waits until what is on disk has been loaded, or the server is to end before that.
    pub fn wait_until_loaded(&self) {
        while self.shared.persistence.is_loading()
            && !self.shared.is_stopping.load(Ordering::Acquire)
        {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Waits until every event loop has ended and the log is safe.
    pub fn join(self) {
        for thread in self.threads {
            // A thread that panicked has said so; with `panic = abort` there is none.
            let _ = thread.join();
        }
        self.shared.aof.stop();
    }
}

fn text(options: &Options, index: usize) -> String {
    options.text(index)
}

fn open(options: &Options) -> io::Result<(Listeners, Vec<String>)> {
    let mut listeners = Listeners::default();
    let mut addresses = Vec::new();
    let bind = text(options, const { index_of("bind") });
    let words = |bound: Vec<SocketAddr>, what: &str| -> Vec<String> {
        bound.into_iter().map(|addr| format!("{addr} ({what})")).collect()
    };
    let port = options.number(const { index_of("port") }) as u16;
    if port != 0 {
        addresses.extend(words(listeners.open_tcp(&bind, port, false)?, "RESP"));
    }
    let tls_port = options.number(const { index_of("tls-port") }) as u16;
    if tls_port != 0 {
        listeners.set_tls(tls::config(&tls::TlsOptions {
            cert_file: text(options, const { index_of("tls-cert-file") }),
            key_file: text(options, const { index_of("tls-key-file") }),
            ca_cert_file: text(options, const { index_of("tls-ca-cert-file") }),
            auth_clients: text(options, const { index_of("tls-auth-clients") }),
        })?);
        addresses.extend(words(listeners.open_tcp(&bind, tls_port, true)?, "RESP over TLS"));
    }
    let path = text(options, const { index_of("unixsocket") });
    if !path.is_empty() {
        let mode = text(options, const { index_of("unixsocketperm") });
        listeners.open_unix(&path, u32::from_str_radix(&mode, 8).ok().filter(|mode| *mode != 0))?;
        addresses.push(format!("{path} (RESP)"));
    }
    listeners.set_backlog(options.number(const { index_of("tcp-backlog") }));
    Ok((listeners, addresses))
}

/// Lowers `maxclients` to what the system lets this process open.
fn fit_clients(options: &Options) {
    let asked = options.number(const { index_of("maxclients") }) as u64;
    let files = sys::raise_open_files(asked + crate::apply::OWN_FILES);
    let most = files.saturating_sub(crate::apply::OWN_FILES).max(1);
    if most < asked && options.set("maxclients", &[&most.to_string()]).is_ok() {
        tracing::warn!("maxclients is {most}, not {asked}: this process may open {files} files");
    }
}

/// Starts the thread that frees what takes long to free.
fn spawn_freer(
    garbage: mpsc::Receiver<Vec<keyspace::effects::Garbage>>,
    freeing: Arc<Freeing>,
) -> io::Result<()> {
    let freer = std::thread::Builder::new().name("free".into());
    freer.spawn(move || {
        let _registered = sys::register_thread();
        for garbage in garbage {
            let count = garbage.len();
            drop(garbage);
            freeing.pending.fetch_sub(count, Ordering::Relaxed);
            freeing.freed.fetch_add(count as u64, Ordering::Relaxed);
        }
    })?;
    Ok(())
}

/// Opens the doors and starts the loops. `disk` has the data files; `seed` gives
/// random bits.
pub fn start(
    configuration: Configuration,
    families: &[Family],
    disk: Arc<dyn Disk>,
    mut seed: impl FnMut() -> u64,
) -> io::Result<Running> {
    let Configuration { options, renames, file: config_file, .. } = configuration;
    keyspace::hasher::seed(seed());
    let threads = options.number(const { index_of("threads") }) as usize;
    let databases = options.number(const { index_of("databases") }) as usize;
    fit_clients(&options);
    let (mut listeners, addresses) = open(&options)?;
    let mut registry = Registry::new(families);
    for (from, to) in &renames {
        registry.rename(from, to).map_err(io::Error::other)?;
    }
    let space = Keyspace::new(databases, threads).with_loaders(LOADERS + INNER_CLIENTS);
    let core = Core { space, registry };
    let (sender, garbage) = mpsc::channel();
    let freeing = Arc::new(Freeing::default());
    let shared = Arc::new(Shared::new(Parts {
        core,
        options,
        threads,
        now_ms: now_ms(),
        seed: [seed(), seed(), seed()],
        config_file,
        free_later: sender,
        freeing: Arc::clone(&freeing),
        disk,
    }));
    crate::scripting::attach(&shared);
    if let Err((name, text)) = crate::apply::apply_all(&shared) {
        return Err(io::Error::other(format!("{name}: {text}")));
    }
    crate::aof::recovery::attach(&shared);
    let recovery = crate::aof::recovery::prepare(&shared).map_err(io::Error::other)?;
    let polls: Vec<Poll> = (0..threads).map(|_| Poll::new()).collect::<io::Result<_>>()?;
    let mailboxes = polls
        .iter()
        .map(|poll| mio::Waker::new(poll.registry(), WAKER).map(Mailbox::new))
        .collect::<io::Result<Vec<_>>>()?;
    assert!(shared.mailboxes.set(mailboxes).is_ok(), "set once");
    listeners.register(&polls[0])?;
    spawn_freer(garbage, freeing)?;
    shared.aof.start(&shared)?;
    match recovery {
        Some(recovery) => crate::aof::recovery::begin(&shared, recovery)?,
        None => persistence::load::begin(&shared)?,
    }
    let mut doors = Some(listeners);
    let mut handles = Vec::new();
    for (index, poll) in polls.into_iter().enumerate() {
        let worker = Worker::new(Arc::clone(&shared), index, poll, doors.take(), seed());
        let thread = std::thread::Builder::new().name(format!("loop-{index}"));
        handles.push(thread.spawn(move || worker.run())?);
    }
    Ok(Running { shared, addresses, threads: handles })
}
