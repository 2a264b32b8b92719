//! What the tests of tables share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::schema::{Column, Kind, Table};
use super::shelf::Shelf;

/// A table with every type, system columns and an owner.
pub fn table() -> Table {
    let column = |(name, kind): (&str, Kind)| Column { name: name.to_string(), kind };
    let columns = [
        ("id", Kind::Text),
        ("text", Kind::Text),
        ("note", Kind::Text),
        ("rank", Kind::Int),
        ("price", Kind::Real),
        ("done", Kind::Bool),
        ("due", Kind::Date),
        ("createdAt", Kind::Date),
        ("updatedAt", Kind::Date),
        ("version", Kind::Text),
        ("deleted", Kind::Bool),
        ("owner", Kind::Text),
    ];
    let mut table = Table::new("todo", columns.map(column).into()).expect("it is well-formed");
    table.owner = table.find("owner");
    table
}

/// A shelf that is a map; it can be made to fail.
#[derive(Debug, Default)]
pub struct MemoryShelf {
    keys: Mutex<HashMap<String, (Vec<u8>, i64)>>,
    /// Whether every call fails.
    pub is_broken: AtomicBool,
}

type Keys = HashMap<String, (Vec<u8>, i64)>;

impl MemoryShelf {
    fn keys(&self) -> Result<MutexGuard<'_, Keys>, String> {
        if self.is_broken.load(Ordering::Acquire) {
            return Err("broken".into());
        }
        Ok(self.keys.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// The keys there are.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.keys().map(|keys| keys.keys().cloned().collect()).unwrap_or_default();
        names.sort();
        names
    }

    /// Forgets a key.
    pub fn remove(&self, key: &str) {
        let _ = self.keys().map(|mut keys| keys.remove(key));
    }
}

impl Shelf for MemoryShelf {
    fn begins(&self, key: &str, start: &[u8], now_ms: i64) -> Result<bool, String> {
        let keys = self.keys()?;
        Ok(keys.get(key).is_some_and(|(value, at)| *at > now_ms && value.starts_with(start)))
    }

    fn get(&self, key: &str, now_ms: i64) -> Result<Option<Vec<u8>>, String> {
        let keys = self.keys()?;
        Ok(keys.get(key).filter(|(_, at)| *at > now_ms).map(|(value, _)| value.clone()))
    }

    fn put(&self, key: &str, value: &[u8], expire_at_ms: i64, _: i64) -> Result<(), String> {
        self.keys()?.insert(key.to_string(), (value.to_vec(), expire_at_ms));
        Ok(())
    }

    fn purge(&self, prefix: &str, _: i64) -> Result<u64, String> {
        let mut keys = self.keys()?;
        let before = keys.len();
        keys.retain(|key, _| !key.starts_with(prefix));
        Ok((before - keys.len()) as u64)
    }
}
