//! Who listens to which channel: exact channels, patterns, and shard channels, for all threads.

use std::collections::HashMap;
use std::sync::RwLock;

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

    /// Those who listen to exactly this channel (or shard channel).
    pub fn listeners(&self, kind: Channel, name: &[u8]) -> Vec<Subscriber> {
        let lines = self.lines(kind).read().unwrap_or_else(|p| p.into_inner());
        lines.get(name).cloned().unwrap_or_default()
    }

    /// Those who listen by a pattern, each with the pattern.
    pub fn pattern_listeners(&self, channel: &[u8]) -> Vec<(Vec<u8>, Vec<Subscriber>)> {
        let lines = self.patterns.read().unwrap_or_else(|p| p.into_inner());
        let matching = lines.iter().filter(|(name, _)| pattern::matches(name, channel));
        matching.map(|(name, line)| (name.clone(), line.clone())).collect()
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
