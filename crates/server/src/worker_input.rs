//! Input of a worker's connections: reads what has arrived, cuts it into commands, keeps what is
//! not complete yet. See [`crate::worker`] for the loop, [`crate::worker_commands`] for running.
//!
//! **Invariant:** what has been read and not run is in exactly one place: the connection's `input`,
//! its parser (a long argument being filled), or its `queue` behind a command that waits.

use std::io::{self, Read};
use std::sync::atomic::Ordering;

use keyspace::keyspace::add;
use resp::request::{Limits, ProtocolError, Stop};

use crate::connection::Connection;
use crate::options::index_of;
use crate::worker::{READ_BYTES, Worker};
use crate::worker_commands::Ran;

/// Reads of one connection in one turn, at most.
const ROUNDS: usize = 16;
/// What a client may have sent unanswered before it has authenticated.
const UNAUTHENTICATED_BYTES: i64 = 1 << 20;
/// Commands parsed at a time.
const COMMANDS: usize = 512;

impl Worker {
    pub(crate) fn readable(&mut self, index: usize) {
        let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        // What was read ahead has told already whether there is more.
        connection.may_read |= connection.ahead.is_none();
        let killed = connection.peer.client.killed.load(Ordering::Relaxed);
        let open = !killed && self.serve(index, &mut connection);
        self.put_back(index, connection, open);
    }

    /// The client has shut down its side, maybe together with its last commands: a short read does
    /// not mean then that an event will tell of more.
    pub(crate) fn read_closed(&mut self, index: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(index) {
            connection.read_closed = true;
        }
    }

    pub(crate) fn put_back(&mut self, index: usize, connection: Box<Connection>, open: bool) {
        let client = &connection.peer.client;
        client.closes.store(connection.peer.closes, Ordering::Relaxed);
        let done = connection.peer.closes && connection.is_flushed();
        if self.is_nested && holds_places(&connection) {
            // To close it takes locks that the script holds in whose middle this is.
            self.connections[index] = Some(connection);
            return self.unfinished.push(index);
        }
        if !open || done || connection.is_broken || client.killed.load(Ordering::Relaxed) {
            return self.close(index, connection);
        }
        self.watch_memory(&connection);
        self.connections[index] = Some(connection);
    }

    /// Reads what has arrived and runs it; false when the connection has ended.
    fn serve(&mut self, index: usize, connection: &mut Connection) -> bool {
        for round in 0.. {
            if round == ROUNDS {
                self.unfinished.push(index);
                break;
            }
            match self.read(connection) {
                Ok(0) => return ended(connection),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connection.may_read = false;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.finish_output(connection).is_err() {
                return false;
            }
            if !connection.may_read {
                break;
            }
        }
        true
    }

    /// Reads once and runs what is complete. The number of bytes read.
    fn read(&mut self, connection: &mut Connection) -> io::Result<usize> {
        if connection.peer.closes {
            // What comes behind QUIT is read, so that closing does not reset the connection under
            // the replies, and thrown away.
            return connection.stream.read(&mut self.buffer);
        }
        let waits = connection.session.blocked.is_some() || !connection.queue.is_empty();
        if let Some((block, missing)) = connection.parser.block_to_fill() {
            let before = block.len();
            let result = (&mut connection.stream).take(missing as u64).read_to_end(block);
            let count = block.len() - before;
            self.count_input(connection, count);
            self.check_input_limit(connection)?;
            if count == missing && !waits {
                self.run_input(connection, 0);
            } else if count == 0 || result.is_err() {
                return result;
            }
            return Ok(count);
        }
        if let Some(count) = connection.ahead.take() {
            self.count_input(connection, count);
            if count > 0 && !waits {
                self.run_kept(connection);
            }
            return Ok(count);
        }
        let kept = connection.input.len();
        if waits || kept > READ_BYTES / 2 {
            return self.read_behind(connection, waits);
        }
        self.buffer[..kept].copy_from_slice(&connection.input);
        let count = connection.stream.read(&mut self.buffer[kept..])?;
        note_drained(connection, count < READ_BYTES - kept);
        self.count_input(connection, count);
        if count > 0 {
            connection.input.clear();
            self.run_input(connection, kept + count);
            self.check_input_limit(connection)?;
        }
        Ok(count)
    }

    /// Reads to the end of what is kept already: a long command, or input behind one that waits.
    fn read_behind(&mut self, connection: &mut Connection, waits: bool) -> io::Result<usize> {
        let count = connection.stream.read(&mut self.buffer)?;
        note_drained(connection, count < READ_BYTES);
        self.count_input(connection, count);
        connection.input.extend_from_slice(&self.buffer[..count]);
        self.check_input_limit(connection)?;
        if count > 0 && !waits {
            self.run_kept(connection);
        }
        Ok(count)
    }

    /// Ends a client that has more unanswered input than the options allow, or much of it before
    /// it has shown who it is.
    fn check_input_limit(&self, connection: &Connection) -> io::Result<()> {
        let options = &self.hub.shared.options;
        let max = options.number(const { index_of("client-query-buffer-limit") });
        let bytes = connection.input_bytes() as i64;
        // Offsets in what has arrived of a command have 32 bits: see `resp::request`.
        let too_much = bytes > max.min(i64::from(u32::MAX / 2))
            || bytes > UNAUTHENTICATED_BYTES && !connection.peer.is_authenticated;
        if too_much {
            return Err(io::Error::other("the client sent more than client-query-buffer-limit"));
        }
        Ok(())
    }

    fn count_input(&self, connection: &mut Connection, count: usize) {
        connection.last_read_bytes = count;
        let counts = self.hub.counts();
        add(&counts.input_bytes, count as u64);
        add(&counts.reads, 1);
        let client = &connection.peer.client;
        add(&client.total_in, count as u64);
        client.last_ms.store(self.hub.now_ms, Ordering::Relaxed);
    }

    /// Runs the commands in the first `len` bytes of the buffer; keeps the rest.
    fn run_input(&mut self, connection: &mut Connection, len: usize) {
        let buffer = std::mem::take(&mut self.buffer);
        if len == 0 {
            // A block has been filled: the command goes on with what is kept.
            self.buffer = buffer;
            return self.run_kept(connection);
        }
        let used = self.run_bytes(connection, &buffer[..len]);
        let moved = connection.parser.moved();
        connection.input.extend_from_slice(&buffer[used..len - moved]);
        self.buffer = buffer;
    }

    /// Runs the commands in what is kept.
    pub(crate) fn run_kept(&mut self, connection: &mut Connection) {
        let mut input = std::mem::take(&mut connection.input);
        let used = self.run_bytes(connection, &input);
        input.truncate(input.len() - connection.parser.moved());
        input.drain(..used);
        if input.capacity() > READ_BYTES && input.len() < READ_BYTES / 4 {
            input.shrink_to_fit();
        }
        connection.input = input;
    }

    /// Runs the commands in `input`; how many of its bytes are done with.
    fn run_bytes(&mut self, connection: &mut Connection, input: &[u8]) -> usize {
        let mut requests = std::mem::take(&mut self.requests);
        let mut used = 0;
        loop {
            let limits = self.limits(connection);
            requests.clear();
            // One by one until AUTH has run: what follows it has other limits.
            let count = if limits.unauthenticated { 1 } else { COMMANDS };
            let input = &input[used..];
            let (taken, stop) = connection.parser.parse(input, limits, count, &mut requests);
            let ran = self.run_requests(connection, &requests, input);
            used += taken;
            if connection.peer.closes {
                break;
            }
            if ran == Ran::Waits {
                if let Stop::Error(error) = stop {
                    connection.error = Some(error);
                }
                break;
            }
            match stop {
                Stop::Commands => {}
                Stop::Input => break,
                Stop::Error(error) => {
                    self.refuse_input(connection, error);
                    break;
                }
            }
        }
        requests.clear();
        self.requests = requests;
        used
    }

    /// Answers input that makes no sense; the connection is closed.
    pub(crate) fn refuse_input(&mut self, connection: &mut Connection, error: ProtocolError) {
        let text = format!("ERR {}", error.text());
        self.hub.shared.records.add_error(&text);
        self.out.error(&text);
        connection.peer.closes = true;
    }

    fn limits(&self, connection: &Connection) -> Limits {
        let max = &self.hub.shared.core.space.settings.proto_max_bulk_len;
        Limits {
            bulk_bytes_max: max.load(Ordering::Relaxed),
            unauthenticated: !connection.peer.is_authenticated,
        }
    }
}

/// Whether shards know of the client: it waits for keys, or watches some.
fn holds_places(connection: &Connection) -> bool {
    connection.session.blocked.is_some() || !connection.session.watched.is_empty()
}

/// The client has shut down its side. It still gets its replies, but no answer to what waits.
fn ended(connection: &mut Connection) -> bool {
    let waits = connection.session.blocked.is_some() || !connection.queue.is_empty();
    connection.peer.closes = true;
    connection.may_read = false;
    !waits && !connection.is_flushed()
}

/// After a read that did not fill its buffer: nothing is left, and an event will tell of more.
pub(crate) fn note_drained(connection: &mut Connection, was_short: bool) {
    if was_short && connection.stream.drains_on_short_read() && !connection.read_closed {
        connection.may_read = false;
    }
}
