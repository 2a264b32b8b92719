//! A server that an experiment starts for itself: on a free port, with a folder of its own that is
//! removed with it, on one core or wherever the system puts it.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Client, Protocol};
use crate::process::CpuSource;
use crate::sys;
use crate::target::{Address, Target, TargetKind};

/// How long it may take to start.
const START: Duration = Duration::from_secs(30);

/// A server of this program, ended when dropped.
#[derive(Debug)]
pub struct OwnServer {
    child: Child,
    folder: PathBuf,
    /// The server as something to measure.
    pub target: Target,
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        // What cannot be killed has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A new folder for a run's files.
///
/// # Errors
/// If it cannot be made.
pub fn new_folder() -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("forebay-bench-{}-{count}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

impl OwnServer {
    /// Starts `forebay serve` of this program without persistence, with `options` besides, pinned
    /// to a core if one is given.
    ///
    /// # Errors
    /// If it cannot be started or does not answer.
    pub fn start(name: &str, core: Option<usize>, options: &[&str]) -> io::Result<OwnServer> {
        Self::start_program(&std::env::current_exe()?, name, core, options)
    }

    /// The same with another program.
    ///
    /// # Errors
    /// As [`OwnServer::start`].
    pub fn start_program(
        program: &Path,
        name: &str,
        core: Option<usize>,
        options: &[&str],
    ) -> io::Result<OwnServer> {
        let folder = new_folder()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = std::fs::File::create(folder.join("log"))?;
        let mut command = Command::new(program);
        command
            .args(["serve", "--http-port", "0", "--save", "", "--port", &port.to_string()])
            .arg("--dir")
            .arg(&folder)
            .args(options)
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log);
        let child = spawn(command, core)?;
        let target = Target {
            name: name.to_owned(),
            address: Address::Tcp("127.0.0.1".into(), port),
            user: None,
            password: None,
            kind: TargetKind::Server,
            cpu: Some(CpuSource::Process(child.id())),
        };
        let mut server = OwnServer { child, folder, target };
        server.wait()?;
        Ok(server)
    }

    fn wait(&mut self) -> io::Result<()> {
        let began = Instant::now();
        while began.elapsed() < START {
            if let Some(status) = self.child.try_wait()? {
                let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("the server ended ({status}): {log}")));
            }
            let client = Client::connect(&self.target, Protocol::Resp2, START);
            if client.is_ok_and(|mut client| client.command(&["PING"]).is_ok()) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(io::Error::other("the server does not start"))
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Starts a program from a thread that is pinned: a process begins on the cores of the thread that
/// starts it.
fn spawn(mut command: Command, core: Option<usize>) -> io::Result<Child> {
    let Some(core) = core else { return command.spawn() };
    let thread = std::thread::spawn(move || {
        sys::pin_current_thread(core)?;
        command.spawn()
    });
    thread.join().unwrap_or_else(|_| Err(io::Error::other("starting the server failed")))
}
