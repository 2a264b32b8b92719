//! The floor: a server that runs nothing and answers `+OK`.
//!
//! What a real server costs above it is its own doing; what this one costs is the kernel's. It
//! does not parse. Without a fixed count it answers once per `*` received, since every request of
//! the load generator begins with one and has no other: finding bytes costs about as much as
//! having read them, and replies stay right when a batch arrives in pieces.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::options::{Cores, usage_error};
use crate::process::{self, CpuSource};
use crate::sys;
use crate::target::{Address, Target, TargetKind};

/// Answers +OK to everything: the least that a server can cost.
#[derive(clap::Args, Clone, Debug)]
pub struct NullServerArgs {
    /// Port to listen on, on the loopback address.
    #[arg(long, value_name = "PORT", default_value_t = 7999)]
    port: u16,
    /// Answer so many times per read, whatever was read, instead of once per request.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    per_read: Option<u32>,
    /// Run on this core.
    #[arg(long, value_name = "CORE")]
    pin: Option<Cores>,
}

/// How many replies a read is answered with.
#[derive(Clone, Copy, Debug)]
pub enum Answers {
    /// One per `*` in what was read.
    PerRequest,
    /// So many, whatever was read.
    PerRead(u32),
}

/// Serves until the process is ended.
pub fn run(args: &NullServerArgs) -> ExitCode {
    let listener = match TcpListener::bind(("127.0.0.1", args.port)) {
        Ok(listener) => listener,
        Err(error) => return usage_error("null-server", &format!("port {}: {error}", args.port)),
    };
    if let Some(core) = args.pin.as_ref().and_then(|cores| cores.0.first())
        && let Err(error) = sys::pin_current_thread(*core)
    {
        return usage_error("null-server", &format!("core {core}: {error}"));
    }
    let answers = args.per_read.map_or(Answers::PerRequest, Answers::PerRead);
    println!("null server on 127.0.0.1:{}, one thread; Ctrl-C ends it", args.port);
    match serve(listener, answers, &AtomicBool::new(false)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forebay bench null-server: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A null server on a thread of this process; it ends when dropped.
#[derive(Debug)]
pub struct NullServer {
    address: SocketAddr,
    thread_id: Option<u32>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NullServer {
    /// Starts one on a free port.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (ready, id) = mpsc::channel();
        let stop = Arc::clone(&is_over);
        let thread = thread::Builder::new().name("null-server".into()).spawn(move || {
            let _ = ready.send(process::own_thread_id());
            // An error ends the server, and with it the run that measures it.
            let _ = serve(listener, Answers::PerRequest, &stop);
        })?;
        let thread_id = id.recv().ok().flatten();
        Ok(NullServer { address, thread_id, is_over, thread: Some(thread) })
    }

    /// The server as something to measure.
    pub fn target(&self) -> Target {
        Target {
            name: "null".into(),
            address: Address::Tcp(self.address.ip().to_string(), self.address.port()),
            user: None,
            password: None,
            kind: TargetKind::Null,
            cpu: self.thread_id.map(CpuSource::Thread),
        }
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Peer {
    stream: TcpStream,
    out: Vec<u8>,
    written: usize,
}

fn serve(listener: TcpListener, answers: Answers, is_over: &AtomicBool) -> io::Result<()> {
    const LISTENER: Token = Token(usize::MAX - 1);
    listener.set_nonblocking(true)?;
    let mut listener = mio::net::TcpListener::from_std(listener);
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut peers: Vec<Option<Peer>> = Vec::new();
    let mut buffer = vec![0; 256 << 10];
    while !is_over.load(Ordering::Relaxed) {
        match poll.poll(&mut events, Some(Duration::from_millis(200))) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        }
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    let _ = stream.set_nodelay(true);
                    let slot = match peers.iter().position(Option::is_none) {
                        Some(slot) => slot,
                        None => {
                            peers.push(None);
                            peers.len() - 1
                        }
                    };
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    poll.registry().register(&mut stream, Token(slot), interest)?;
                    peers[slot] = Some(Peer { stream, out: Vec::new(), written: 0 });
                }
            } else if let Some(slot) = peers.get_mut(event.token().0) {
                let is_alive = slot.as_mut().is_some_and(|peer| answer(peer, &mut buffer, answers));
                if !is_alive {
                    *slot = None;
                }
            }
        }
    }
    Ok(())
}

/// Reads and answers; whether the connection lives.
fn answer(peer: &mut Peer, buffer: &mut [u8], answers: Answers) -> bool {
    loop {
        let bytes = match peer.stream.read(buffer) {
            Ok(0) => return false,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return flush(peer),
            Err(_) => return false,
        };
        let replies = match answers {
            Answers::PerRequest => memchr::memchr_iter(b'*', &buffer[..bytes]).count(),
            Answers::PerRead(count) => count as usize,
        };
        for _ in 0..replies {
            peer.out.extend_from_slice(b"+OK\r\n");
        }
        if !flush(peer) {
            return false;
        }
        if bytes < buffer.len() {
            return true;
        }
    }
}

fn flush(peer: &mut Peer) -> bool {
    while peer.written < peer.out.len() {
        match peer.stream.write(&peer.out[peer.written..]) {
            Ok(bytes) => peer.written += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Err(_) => return false,
        }
    }
    peer.out.clear();
    peer.written = 0;
    true
}
