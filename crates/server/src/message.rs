//! What threads tell each other: each thread has a mailbox, and a waker that ends its poll.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use resp::Writer;

use crate::connection::Stream;

/// One message to a thread.
pub enum Message {
    /// A connection that it shall serve from now on.
    Adopt(Box<Stream>, Arrived),
    /// The reply of a client that was blocked; it may go on.
    Served(u64, Box<Writer>),
    /// Bytes for clients that listen: a published message, an invalidation, a MONITOR line.
    Push(Vec<u64>, Arc<Pushed>),
    /// CLIENT KILL: close it.
    Kill(u64),
    /// CLIENT UNBLOCK has ended its wait: answer it with an error, or as if timed out.
    Unblock(u64, bool),
    /// CLIENT PAUSE ended: look at what waits.
    Unpause,
    /// The server ends.
    Stop,
}

/// How a connection arrived.
#[derive(Debug, Clone)]
pub struct Arrived {
    /// Where from, as `address:port` or the socket's path and `:0`.
    pub addr: String,
    /// Where to.
    pub laddr: String,
    /// By the unix socket.
    pub is_unix: bool,
    /// By the TLS port.
    pub is_tls: bool,
}

/// A message for subscribers, written once for all of them; each takes its own protocol's form.
#[derive(Debug)]
pub struct Pushed {
    /// As RESP2 has it.
    pub resp2: Vec<u8>,
    /// As RESP3 has it.
    pub resp3: Vec<u8>,
}

impl Pushed {
    /// A push message of these words.
    pub fn new(words: &[&[u8]]) -> Pushed {
        let write = |resp3| {
            let mut writer = Writer::new(resp3);
            writer.push(words.len());
            words.iter().for_each(|word| writer.bulk(word));
            writer.to_vec()
        };
        Pushed { resp2: write(false), resp3: write(true) }
    }

    /// The form for one protocol.
    pub fn bytes(&self, resp3: bool) -> &[u8] {
        if resp3 { &self.resp3 } else { &self.resp2 }
    }
}

/// A thread's mailbox.
pub struct Mailbox {
    messages: Mutex<Vec<Message>>,
    waker: mio::Waker,
    is_awake: AtomicBool,
}

impl Mailbox {
    /// An empty mailbox that wakes its thread by `waker`.
    pub fn new(waker: mio::Waker) -> Mailbox {
        Mailbox { messages: Mutex::default(), waker, is_awake: AtomicBool::new(false) }
    }

    /// Puts a message in and wakes the thread if it may sleep.
    pub fn send(&self, message: Message) {
        self.messages.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(message);
        if !self.is_awake.swap(true, Ordering::AcqRel) {
            // A full pipe means that it is about to wake anyway.
            let _ = self.waker.wake();
        }
    }

    /// Wakes the thread if it may sleep, without a message.
    pub fn nudge(&self) {
        if !self.is_awake.swap(true, Ordering::AcqRel) {
            let _ = self.waker.wake();
        }
    }

    /// Takes all messages out.
    pub fn take(&self) -> Vec<Message> {
        if !self.is_awake.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.messages.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}
