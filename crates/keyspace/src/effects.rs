//! What a command has done besides its reply: how much it changed, which keys became ready for
//! blocked clients, which keyspace events it caused, what to free. Collected under the locks,
//! acted on by the caller.

use crate::observe::Touched;
use crate::raw::entry::Entry;
use crate::raw::table::Table;
use crate::value::Value;

/// Classes of keyspace events, as the letters of `notify-keyspace-events`.
pub mod class {
    /// `K`: publish on the key's channel.
    pub const KEYSPACE: u32 = 1 << 0;
    /// `E`: publish on the event's channel.
    pub const KEYEVENT: u32 = 1 << 1;
    /// `g`: commands of any type (DEL, EXPIRE, ...).
    pub const GENERIC: u32 = 1 << 2;
    /// `$`: strings.
    pub const STRING: u32 = 1 << 3;
    /// `l`: lists.
    pub const LIST: u32 = 1 << 4;
    /// `s`: sets.
    pub const SET: u32 = 1 << 5;
    /// `h`: hashes.
    pub const HASH: u32 = 1 << 6;
    /// `z`: sorted sets.
    pub const ZSET: u32 = 1 << 7;
    /// `x`: a key expired.
    pub const EXPIRED: u32 = 1 << 8;
    /// `e`: a key was evicted.
    pub const EVICTED: u32 = 1 << 9;
    /// `t`: streams.
    pub const STREAM: u32 = 1 << 10;
    /// `m`: a key was looked up and not there (not part of `A`).
    pub const MISS: u32 = 1 << 11;
    /// `d`: modules.
    pub const MODULE: u32 = 1 << 13;
    /// `n`: a new key (not part of `A`).
    pub const NEW: u32 = 1 << 14;
    /// `A`: alias for `g$lshzxetd`.
    pub const ALL: u32 =
        GENERIC | STRING | LIST | SET | HASH | ZSET | EXPIRED | EVICTED | STREAM | MODULE;
    /// Every letter with its class.
    pub const LETTERS: [(char, u32); 15] = [
        ('A', ALL),
        ('g', GENERIC),
        ('$', STRING),
        ('l', LIST),
        ('s', SET),
        ('h', HASH),
        ('z', ZSET),
        ('x', EXPIRED),
        ('e', EVICTED),
        ('t', STREAM),
        ('d', MODULE),
        ('K', KEYSPACE),
        ('E', KEYEVENT),
        ('m', MISS),
        ('n', NEW),
    ];
}

/// One keyspace event.
#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    /// One of [`class`].
    pub class: u32,
    /// The event's name, such as `set`.
    pub name: &'static str,
    /// Database.
    pub db: usize,
    /// The key.
    pub key: Vec<u8>,
}

/// Memory to be freed after the locks are given back, possibly by another thread.
pub enum Garbage {
    /// One large value.
    Value(Value),
    /// All keys of a shard's database.
    Table(Table<Entry>),
}

/// What went without a command.
#[derive(Debug, PartialEq, Eq)]
pub struct Gone {
    /// Database.
    pub db: usize,
    /// The key.
    pub key: Vec<u8>,
    /// The fields of the hash that expired, where the key itself stays: `HDEL key field ...`. None
    /// for the key as a whole: `DEL key`.
    pub fields: Vec<Vec<u8>>,
}

/// Who frees what takes long to free. Neither does it under the locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freeing {
    /// The thread that took it out, at once.
    Here,
    /// The background thread.
    Background,
}

/// See the module.
#[derive(Default)]
pub struct Effects {
    /// How many changes were made; 0 = nothing for the log.
    pub dirty: u64,
    /// Keys that blocked clients wait for and that were written, with their database.
    pub ready: Vec<(usize, Vec<u8>)>,
    /// Events to publish, in order.
    pub events: Vec<Event>,
    /// What to write to the commit log instead of the command itself.
    pub rewrites: Option<Vec<Vec<Vec<u8>>>>,
    /// What to free once the locks are given back.
    pub garbage: Vec<Garbage>,
    /// What the background thread shall free.
    pub background: Vec<Garbage>,
    /// What the observer wants to know of.
    pub touched: Vec<Touched>,
    /// What expired or was evicted in passing, for the log.
    pub expired: Vec<Gone>,
}

impl Effects {
    /// Has something freed once the locks are given back.
    pub fn free(&mut self, garbage: Garbage, freeing: Freeing) {
        match freeing {
            Freeing::Here => self.garbage.push(garbage),
            Freeing::Background => self.background.push(garbage),
        }
    }

    /// Whether there is nothing to act on besides `dirty`.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.ready.is_empty()
            && self.events.is_empty()
            && self.garbage.is_empty()
            && self.background.is_empty()
            && self.expired.is_empty()
            && self.rewrites.is_none()
    }
}
