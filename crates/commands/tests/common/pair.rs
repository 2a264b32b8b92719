//! Forebay's commands beside a real redis-server: the same words, replies compared byte for byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use forebay_commands::testing::Client;

/// A redis-server of our own on a socket in a temporary folder.
pub struct Reference {
    server: Child,
    stream: BufReader<UnixStream>,
    folder: PathBuf,
}

impl Reference {
    /// Starts it; `None` where there is none.
    pub fn start(name: &str) -> Option<Reference> {
        let folder = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let socket = folder.join("socket");
        let started = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(&folder)
            .stdout(Stdio::null())
            .spawn();
        let Ok(mut server) = started else {
            println!("skipped: no redis-server here");
            return None;
        };
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(_) => assert!(server.try_wait().expect("our child").is_none(), "it stopped"),
            }
            std::thread::yield_now();
        };
        Some(Reference { server, stream: BufReader::new(stream), folder })
    }

    /// A command's reply in the form of [`Client::run`].
    pub fn run<W: AsRef<[u8]>>(&mut self, words: &[W]) -> String {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request).expect("the server takes requests");
        let mut reply = Vec::new();
        self.read(&mut reply);
        let text = String::from_utf8_lossy(&reply).replace("\r\n", " ");
        text.strip_suffix(' ').unwrap_or(&text).to_string()
    }

    /// Reads one whole reply, its bytes as they are.
    fn read(&mut self, reply: &mut Vec<u8>) {
        let start = reply.len();
        self.stream.read_until(b'\n', reply).expect("the server replies");
        let line = std::str::from_utf8(&reply[start..]).expect("a line of text").trim_end();
        let (kind, rest) = line.split_at(1);
        let number: i64 = if "$*~>%=".contains(kind) { rest.parse().expect("a length") } else { 0 };
        match kind {
            "$" | "=" if number >= 0 => {
                let end = reply.len() + number as usize + 2;
                let from = reply.len();
                reply.resize(end, 0);
                self.stream.read_exact(&mut reply[from..]).expect("the whole string");
            }
            "*" | "~" | ">" => (0..number).for_each(|_| self.read(reply)),
            "%" => (0..number * 2).for_each(|_| self.read(reply)),
            _ => {}
        }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Both servers, side by side.
pub struct Pair {
    /// Forebay.
    pub ours: Client,
    /// Redis.
    pub reference: Reference,
    count: usize,
}

impl Pair {
    /// Starts both; `None` where there is no redis-server.
    pub fn start(name: &str, resp3: bool) -> Option<Pair> {
        let mut reference = Reference::start(name)?;
        let mut ours = Client::new();
        if resp3 {
            reference.run(&["HELLO", "3"]);
            ours = ours.resp3();
        }
        Some(Pair { ours, reference, count: 0 })
    }

    /// Runs a command on both and compares the replies.
    pub fn check<W: AsRef<[u8]>>(&mut self, words: &[W]) -> String {
        self.check_but(words, str::to_owned)
    }

    /// The same, but for what `mask` hides.
    pub fn check_but<W: AsRef<[u8]>>(&mut self, words: &[W], mask: fn(&str) -> String) -> String {
        let ours = self.ours.run_words(words);
        let theirs = self.reference.run(words);
        let shown: Vec<_> =
            words.iter().map(|word| String::from_utf8_lossy(word.as_ref()).into_owned()).collect();
        assert_eq!(mask(&ours), mask(&theirs), "command {}: {shown:?}", self.count);
        self.count += 1;
        ours
    }

    /// As [`Pair::check`], for words with spaces between them.
    pub fn check_line(&mut self, line: &str) -> String {
        self.check(&line.split(' ').collect::<Vec<_>>())
    }
}
