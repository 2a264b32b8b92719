//! Where kept answers lie: as keys of the keyspace, to be looked at, removed, evicted and made
//! durable as all others; and, in front, the hot ones as they are sent.
//!
//! **Invariant:** a hot answer is used only while its key still holds it: what is removed or
//! evicted there is not served.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use foldhash::fast::RandomState;

use super::page::Page;

/// Looks at so many hot answers to find one that was used long ago.
const SAMPLES: usize = 8;

/// The keyspace, as far as answers need it. An error is never more than an answer not kept.
pub trait Shelf: Send + Sync {
    /// Whether a key's value begins with these bytes.
    fn begins(&self, key: &str, start: &[u8], now_ms: i64) -> Result<bool, String>;

    /// A key's value.
    fn get(&self, key: &str, now_ms: i64) -> Result<Option<Vec<u8>>, String>;

    /// Sets a key that is forgotten at `expire_at_ms`.
    fn put(&self, key: &str, value: &[u8], expire_at_ms: i64, now_ms: i64) -> Result<(), String>;

    /// Forgets the keys that begin like this; how many there were.
    fn purge(&self, prefix: &str, now_ms: i64) -> Result<u64, String>;
}

/// Hot answers, bounded by their bytes.
pub struct Hot {
    bytes_max: usize,
    tick: AtomicU64,
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    bytes: usize,
    pages: HashMap<Arc<str>, (Arc<Page>, u64), RandomState>,
}

impl Hot {
    /// Room for so many bytes.
    pub fn new(bytes_max: usize) -> Hot {
        Hot { bytes_max, tick: AtomicU64::new(0), pages: Mutex::default() }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A hot answer.
    pub fn get(&self, key: &str) -> Option<Arc<Page>> {
        let tick = self.tick.fetch_add(1, Ordering::Relaxed);
        let mut pages = self.pages();
        let (page, used) = pages.pages.get_mut(key)?;
        *used = tick;
        Some(Arc::clone(page))
    }

    /// Keeps an answer; others go if there is no room.
    pub fn put(&self, key: &Arc<str>, page: &Arc<Page>) {
        let (bytes, tick) = (page.bytes() + key.len(), self.tick.fetch_add(1, Ordering::Relaxed));
        let mut pages = self.pages();
        pages.remove(key);
        if bytes > self.bytes_max / 4 {
            return;
        }
        pages.bytes += bytes;
        pages.pages.insert(Arc::clone(key), (Arc::clone(page), tick));
        while pages.bytes > self.bytes_max {
            // The map's order is no order, so the first ones are a sample.
            let sample = pages.pages.iter().take(SAMPLES);
            let oldest = sample.min_by_key(|(_, (_, used))| *used).map(|(key, _)| Arc::clone(key));
            let Some(oldest) = oldest else { break };
            pages.remove(&oldest);
        }
    }

    /// Forgets an answer.
    pub fn remove(&self, key: &str) {
        self.pages().remove(key);
    }

    /// Forgets the answers whose keys begin like this.
    pub fn purge(&self, prefix: &str) {
        let mut pages = self.pages();
        let keys = pages.pages.keys().filter(|key| key.starts_with(prefix));
        let keys: Vec<Arc<str>> = keys.map(Arc::clone).collect();
        keys.iter().for_each(|key| pages.remove(key));
    }

    /// How many there are, and their bytes.
    pub fn size(&self) -> (usize, usize) {
        let pages = self.pages();
        (pages.pages.len(), pages.bytes)
    }
}

impl Pages {
    fn remove(&mut self, key: &str) {
        if let Some((key, (page, _))) = self.pages.remove_entry(key) {
            self.bytes -= page.bytes() + key.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_bounded() {
        let hot = Hot::new(20_000);
        let page = |len: usize| {
            let body = vec![b'x'; len].into();
            Arc::new(Page { bodies: [body, "".into(), "".into(), "".into()], ..Page::default() })
        };
        let key = |name: &str| -> Arc<str> { name.into() };
        for number in 0..100 {
            hot.put(&key(&number.to_string()), &page(300));
            assert!(hot.size().1 <= 20_000);
        }
        assert!(hot.get("99").is_some() && hot.size().0 == 7);
        hot.put(&key("large"), &page(3000));
        assert!(hot.get("large").is_none());
        hot.purge("9");
        assert!(hot.get("99").is_none());
        (0..100).for_each(|number| hot.remove(&number.to_string()));
        assert_eq!(hot.size(), (0, 0));
    }
}
