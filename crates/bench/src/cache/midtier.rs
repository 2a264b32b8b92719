//! Mid-tiers without a cache of their own, in this process: one that asks the database each time,
//! and one that does the cache article's recipe with a Redis: GET of the address as JSON writes it,
//! else the database and SETEX. A thread a connection, each with connections of its own: faster
//! than what the article had.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use services::database::{Connect, Database};
use services::tables::schema::Table;

use super::stock;
use crate::client::{Client, Protocol};
use crate::measured::PREPARE_TIMEOUT;
use crate::target::Target;

/// A head that is longer is refused.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// A Redis, and for how many seconds answers stay there.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The Redis.
    pub redis: Target,
    /// Seconds.
    pub seconds: u32,
}

struct Shop {
    connect: Arc<dyn Connect>,
    table: Table,
    kept: Option<Kept>,
    queries: AtomicU64,
    is_over: AtomicBool,
}

/// A mid-tier that ends when dropped.
pub struct Midtier {
    /// Where it listens.
    pub port: u16,
    shop: Arc<Shop>,
}

impl Midtier {
    /// Starts one.
    pub fn start(
        connect: &Arc<dyn Connect>,
        table: &Table,
        kept: Option<Kept>,
    ) -> Result<Midtier, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let shop = Arc::new(Shop {
            connect: Arc::clone(connect),
            table: table.clone(),
            kept,
            queries: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let served = Arc::clone(&shop);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if served.is_over.load(Ordering::Acquire) {
                    return;
                }
                let shop = Arc::clone(&served);
                // The thread ends with the connection; what went wrong the client has seen.
                thread::spawn(move || shop.serve(stream));
            }
        });
        Ok(Midtier { port, shop })
    }

    /// How often it has asked the database.
    pub fn queries(&self) -> u64 {
        self.shop.queries.load(Ordering::Relaxed)
    }
}

impl Drop for Midtier {
    fn drop(&mut self) {
        self.shop.is_over.store(true, Ordering::Release);
        // So that the listener looks.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// An address as `JSON.stringify` writes it.
pub fn key(path: &str) -> String {
    serde_json::Value::from(path).to_string()
}

impl Shop {
    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let mut database: Option<Box<dyn Database>> = None;
        let mut redis = None;
        if let Some(kept) = &self.kept {
            redis = Client::connect(&kept.redis, Protocol::Resp2, PREPARE_TIMEOUT).ok();
        }
        let (mut buffer, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let head = loop {
                if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                    break buffer.drain(..end + 4).collect::<Vec<u8>>();
                }
                let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
                buffer.extend_from_slice(&piece[..count]);
                (buffer.len() < HEAD_BYTES_MAX).then_some(())?;
            };
            let path = std::str::from_utf8(&head).ok()?.split(' ').nth(1)?;
            let answer = self.answer(path, &mut database, redis.as_mut());
            let (status, body) = match answer {
                Ok(body) => ("200 OK", body),
                Err(why) => ("500 Internal Server Error", why.into_bytes()),
            };
            let mut out = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            )
            .into_bytes();
            out.extend_from_slice(&body);
            stream.write_all(&out).ok()?;
        }
    }

    fn answer(
        &self,
        path: &str,
        database: &mut Option<Box<dyn Database>>,
        redis: Option<&mut Client>,
    ) -> Result<Vec<u8>, String> {
        let Some((redis, kept)) = redis.zip(self.kept.as_ref()) else {
            return self.read(path, database);
        };
        let key = key(path);
        let found = redis.command(&["GET", &key]).map_err(|error| error.to_string())?;
        if let Some(body) = found.as_bytes() {
            return Ok(body.to_vec());
        }
        let body = self.read(path, database)?;
        let seconds = kept.seconds.to_string();
        let words = [b"SETEX", key.as_bytes(), seconds.as_bytes(), &body];
        redis.command(&words).map_err(|error| error.to_string())?;
        Ok(body)
    }

    fn read(&self, path: &str, at: &mut Option<Box<dyn Database>>) -> Result<Vec<u8>, String> {
        if at.is_none() {
            *at = Some(self.connect.connect().map_err(|error| error.to_string())?);
        }
        let database = at.as_mut().ok_or("no connection")?;
        self.queries.fetch_add(1, Ordering::Relaxed);
        stock::answer(&self.table, &mut **database, path)
    }
}
