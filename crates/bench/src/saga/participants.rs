//! Two accounts behind HTTP: what the branches of measured sagas call.
//!
//! **Invariant:** a branch that is called again moves nothing again, so that what left one account
//! is what came to the other once everything is finished. What a server still owes from an earlier
//! measurement is answered, and counts for nothing in this one.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What each branch moves.
pub const AMOUNT: u64 = 30;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
    content-length: 25\r\n\r\n{\"dtm_result\":\"SUCCESS\"}\r\n";

/// What the books say.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Balance {
    /// What left the first account.
    pub left: u64,
    /// What came to the second.
    pub came: u64,
    /// Calls, repeated ones included.
    pub calls: u64,
}

#[derive(Default)]
struct Books {
    /// The measurement: the first part of the paths that count.
    run: u64,
    balance: Balance,
    seen: HashSet<u64>,
}

/// The participants' server; it ends with the process.
pub struct Participants {
    /// Where it listens.
    pub address: SocketAddr,
    books: Arc<Mutex<Books>>,
}

impl Participants {
    /// Starts it.
    ///
    /// # Errors
    /// No port, or no thread.
    pub fn start() -> io::Result<Participants> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let books = Arc::new(Mutex::new(Books::default()));
        let (own, hasher) = (Arc::clone(&books), RandomState::new());
        let name = || std::thread::Builder::new().name("participants".into());
        name().spawn(move || {
            for stream in listener.incoming().flatten() {
                let (books, hasher) = (Arc::clone(&own), hasher.clone());
                // Who cannot be served sees a closed connection, and calls again.
                let _ = name().spawn(move || serve(stream, &books, &hasher));
            }
        })?;
        Ok(Participants { address, books })
    }

    /// What the books say now.
    pub fn balance(&self) -> Balance {
        self.books.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).balance
    }

    /// Opens new books for another measurement; where its branches begin, as `http://HOST/RUN`.
    pub fn begin(&self) -> String {
        let mut books = self.books.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let run = books.run + 1;
        *books = Books { run, ..Books::default() };
        format!("http://{}/{run}", self.address)
    }
}

fn serve(stream: TcpStream, books: &Mutex<Books>, hasher: &RandomState) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        io::copy(&mut (&mut reader).take(length), &mut io::sink())?;
        note(&first, books, hasher);
        reader.get_mut().write_all(ANSWER)?;
    }
}

/// Moves the money of a call, unless it has been here before.
fn note(first: &str, books: &Mutex<Books>, hasher: &RandomState) {
    let path = first.split(' ').nth(1).unwrap_or_default();
    let mut books = books.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let what = path.split('?').next().unwrap_or_default();
    let Some((run, what)) = what.trim_start_matches('/').split_once('/') else { return };
    if run.parse() != Ok(books.run) {
        return;
    }
    books.balance.calls += 1;
    if !books.seen.insert(hasher.hash_one(path)) {
        return;
    }
    match what {
        "out" => books.balance.left += AMOUNT,
        "in" => books.balance.came += AMOUNT,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_once_and_in_its_own_measurement() {
        let participants = Participants::start().unwrap();
        let mut stream = TcpStream::connect(participants.address).unwrap();
        let mut call = |path: &str| {
            let request = format!("POST {path} HTTP/1.1\r\nContent-Length: 2\r\n\r\n{{}}");
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = vec![0; ANSWER.len()];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, ANSWER);
        };
        let first = participants.begin();
        let (_, run) = first.rsplit_once('/').unwrap();
        for path in ["out?gid=1", "in?gid=1", "out?gid=1", "out?gid=2"] {
            call(&format!("/{run}/{path}"));
        }
        let wanted = Balance { left: 2 * AMOUNT, came: AMOUNT, calls: 4 };
        assert_eq!(participants.balance(), wanted);
        assert_ne!(participants.begin(), first);
        assert_eq!(participants.balance(), Balance::default());
        // Somebody is late.
        call(&format!("/{run}/in?gid=2"));
        assert_eq!(participants.balance(), Balance::default());
    }
}
