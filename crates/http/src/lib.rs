//! The HTTP door: health, readiness, metrics, and the API of metered ingest. It knows nothing of
//! the server behind it but what [`Status`] and the services tell, and runs in threads of its
//! own, so that it answers whatever the event loops do. A connection stays with its thread.

mod alone;
mod body;
pub mod exposition;
pub mod fixed;
mod problem;
mod query;
pub mod quota;
mod routes;
pub mod saga;
mod serve;
pub mod tables;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use tokio::sync::{mpsc, watch};

/// How long no connection is taken after one could not be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a server tells about itself. Called in the HTTP thread: it must not wait for long.
pub trait Status: Send + Sync + 'static {
    /// Whether clients shall be sent here.
    fn is_ready(&self) -> bool;

    /// The server's parts, each with whether it works.
    fn components(&self) -> Vec<Component>;

    /// All metrics, in Prometheus's text format; see [`exposition`].
    fn metrics(&self) -> String;
}

/// A part of the server, for people who ask why it is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// Its name.
    pub name: &'static str,
    /// Whether it works.
    pub is_ready: bool,
    /// What there is to say about it.
    pub detail: String,
}

/// A door that is open.
pub struct Door {
    /// Where.
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Door {
    /// Closes it: no new connections, running requests are answered, three seconds at most.
    pub fn close(self) {
        // The threads may have ended by themselves.
        let _ = self.stop.send(true);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// Serves HTTP on `listener` with so many threads until the door is closed.
///
/// # Errors
/// No threads, or no runtime for them.
pub fn open(
    listener: TcpListener,
    status: Arc<dyn Status>,
    quota: Option<quota::Quota>,
    saga: Option<saga::Saga>,
    tables: Option<tables::Tables>,
    threads: usize,
) -> io::Result<Door> {
    let (quota, saga, tables) = (quota.map(Arc::new), saga.map(Arc::new), tables.map(Arc::new));
    let doors = Arc::new(routes::Doors { status, quota, saga, tables });
    let enter = move |is_first: bool, stopped: &watch::Receiver<bool>| {
        if let (true, Some(quota)) = (is_first, &doors.quota) {
            quota.attach();
        }
        if let Some(saga) = &doors.saga {
            saga.attach();
            saga.serve_grpc(&doors, stopped);
        }
        routes::routes(Arc::clone(&doors))
    };
    start(listener, threads, Arc::new(enter))
}

/// What a thread serves until it is told to stop; asked within its runtime, by one of the threads
/// with `true`.
type Enter = Arc<dyn Fn(bool, &watch::Receiver<bool>) -> serve::Answer + Send + Sync>;

fn start(listener: TcpListener, threads: usize, enter: Enter) -> io::Result<Door> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    let (mut handed, mut all) = (Vec::new(), Vec::new());
    for number in 0..threads.max(1) {
        let (sender, connections) = mpsc::unbounded_channel();
        handed.push(sender);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (enter, stopped) = (Arc::clone(&enter), stopped.clone());
        let accept = (number + 1 == threads.max(1)).then(|| {
            let (handed, stopped) = (std::mem::take(&mut handed), stopped.clone());
            listener.try_clone().map(|listener| accept(listener, handed, stopped))
        });
        let accept = accept.transpose()?;
        let thread = thread::Builder::new().name("http".into()).spawn(move || {
            runtime.block_on(async move {
                let answer = enter(accept.is_some(), &stopped);
                if let Some(accept) = accept {
                    tokio::spawn(accept);
                }
                serve::serve(connections, answer, stopped).await;
            });
        })?;
        all.push(thread);
    }
    Ok(Door { address, stop, threads: all })
}

/// Takes connections and hands them to the threads in turn.
async fn accept(
    listener: TcpListener,
    threads: Vec<mpsc::UnboundedSender<TcpStream>>,
    mut stopped: watch::Receiver<bool>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "HTTP ends"),
    };
    for thread in threads.iter().cycle() {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        match accepted.and_then(|(socket, _)| {
            // Without it an answer may wait 40 ms for the client's acknowledgement.
            socket.set_nodelay(true)?;
            socket.into_std()
        }) {
            // A thread ends with the door only.
            Ok(connection) => drop(thread.send(connection)),
            // Out of descriptors, most likely: some are given back soon.
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}
