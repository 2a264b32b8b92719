//! Who listens to which channel: exact channels, patterns, and shard channels, for all threads.
//!
//! **Invariant:** a message is handed to its listeners' threads while the tables are read-locked:
//! once a subscription has been taken back, no message for it is sent any more.
//! **Invariant:** messages are handed over one after the other, so that all listeners see all
//! messages in one order.

use std::collections::HashMap;
use std::sync::{Mutex, RwLock};

use commands::pattern;

/// The kinds of subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// SUBSCRIBE.
    Exact,
    /// PSUBSCRIBE.
    Pattern,
    /// SSUBSCRIBE.
    Shard,
}

/// A subscriber: its thread and its client id.
pub type Subscriber = (usize, u64);

type Lines = HashMap<Vec<u8>, Vec<Subscriber>>;

/// All subscriptions.
#[derive(Default)]
pub struct Subscriptions {
    exact: RwLock<Lines>,
    patterns: RwLock<Lines>,
    shard: RwLock<Lines>,
    order: Mutex<()>,
}

impl Subscriptions {
    fn lines(&self, kind: Channel) -> &RwLock<Lines> {
        match kind {
            Channel::Exact => &self.exact,
            Channel::Pattern => &self.patterns,
            Channel::Shard => &self.shard,
        }
    }

    /// Adds a subscription; the caller knows that the client does not have it.
    pub fn add(&self, kind: Channel, name: &[u8], subscriber: Subscriber) {
        let mut lines = self.lines(kind).write().unwrap_or_else(|p| p.into_inner());
        lines.entry(name.to_vec()).or_default().push(subscriber);
    }

    /// Takes a subscription back.
    pub fn remove(&self, kind: Channel, name: &[u8], subscriber: Subscriber) {
        let mut lines = self.lines(kind).write().unwrap_or_else(|p| p.into_inner());
        if let Some(line) = lines.get_mut(name) {
            line.retain(|other| *other != subscriber);
            if line.is_empty() {
                lines.remove(name);
            }
        }
    }

    /// Calls `hand` for each line of those who listen to a channel (or shard channel), with the
    /// pattern if it is by one. How many they are.
    pub fn reach(
        &self,
        kind: Channel,
        channel: &[u8],
        mut hand: impl FnMut(Option<&[u8]>, &[Subscriber]),
    ) -> usize {
        let lines = self.lines(kind).read().unwrap_or_else(|p| p.into_inner());
        let patterns = self.patterns.read().unwrap_or_else(|p| p.into_inner());
        let line = lines.get(channel);
        let matching: Vec<_> = patterns
            .iter()
            .filter(|(name, _)| kind == Channel::Exact && pattern::matches(name, channel))
            .collect();
        if line.is_none() && matching.is_empty() {
            return 0;
        }
        let _order = self.order.lock().unwrap_or_else(|p| p.into_inner());
        if let Some(line) = line {
            hand(None, line);
        }
        matching.iter().for_each(|(name, line)| hand(Some(name), line));
        line.map_or(0, Vec::len) + matching.iter().map(|(_, line)| line.len()).sum::<usize>()
    }

    /// The names of a kind that anybody listens to, each with how many do.
    pub fn names(&self, kind: Channel) -> Vec<(Vec<u8>, usize)> {
        let lines = self.lines(kind).read().unwrap_or_else(|p| p.into_inner());
        lines.iter().map(|(name, line)| (name.clone(), line.len())).collect()
    }

    /// How many listen to exactly this channel.
    pub fn count(&self, kind: Channel, name: &[u8]) -> usize {
        let lines = self.lines(kind).read().unwrap_or_else(|p| p.into_inner());
        lines.get(name).map_or(0, Vec::len)
    }

    /// Number of names of a kind.
    pub fn name_count(&self, kind: Channel) -> usize {
        self.lines(kind).read().unwrap_or_else(|p| p.into_inner()).len()
    }
}
