//! The HTTP door: health, readiness, metrics, and the API of metered ingest. It knows nothing of
//! the server behind it but what [`Status`] and the services tell, and runs in one thread of its
//! own, so that it answers whatever the event loops do.

pub mod exposition;
mod problem;
mod query;
pub mod quota;
mod routes;
pub mod saga;
pub mod tables;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use axum::serve::ListenerExt;
use tokio::sync::oneshot;

/// Requests that run when the server ends may take so long to finish.
const DRAIN: Duration = Duration::from_secs(3);

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
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Door {
    /// Closes it: no new connections, running requests are answered, three seconds at most.
    pub fn close(self) {
        // The thread may have ended by itself.
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// Serves HTTP on `listener` until the door is closed.
pub fn open(
    listener: TcpListener,
    status: Arc<dyn Status>,
    quota: Option<quota::Quota>,
    saga: Option<saga::Saga>,
    tables: Option<tables::Tables>,
) -> io::Result<Door> {
    let doors = routes::Doors { status, quota, saga, tables };
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = thread::Builder::new().name("http".into()).spawn(move || {
        runtime.block_on(async move {
            if let Err(error) = serve(listener, doors, stopped).await {
                tracing::error!(%error, "HTTP ends");
            }
        });
    })?;
    Ok(Door { address, stop, thread })
}

async fn serve(
    listener: TcpListener,
    doors: routes::Doors,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?.tap_io(|socket| {
        // Without it an answer may wait 40 ms for the client's acknowledgement.
        let _ = socket.set_nodelay(true);
    });
    if let Some(saga) = &doors.saga {
        saga.attach();
    }
    let (ending, ended) = oneshot::channel();
    let serving = axum::serve(listener, routes::routes(doors)).with_graceful_shutdown(async {
        let _ = stopped.await;
        let _ = ending.send(());
    });
    tokio::select! {
        result = serving.into_future() => result,
        () = async {
            let _ = ended.await;
            tokio::time::sleep(DRAIN).await;
        } => Ok(()),
    }
}
