//! A store for tests of rules: a map, no server around it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use throttle::admit;

use crate::store::{Charge, Store, StoreError, Throttle, Throttled};

/// See the module.
#[derive(Debug, Default)]
pub struct MemoryStore {
    numbers: Mutex<HashMap<String, i64>>,
    texts: Mutex<HashMap<String, (String, i64)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl MemoryStore {
    /// Forgets everything, as a store may.
    pub fn clear(&self) {
        lock(&self.numbers).clear();
        lock(&self.texts).clear();
    }
}

impl Store for MemoryStore {
    fn is_own(&self) -> bool {
        true
    }

    fn charge(&self, key: &str, cost: i64, limit: i64, _: i64) -> Result<Charge, StoreError> {
        let mut numbers = lock(&self.numbers);
        let Some(used) = numbers.get_mut(key) else { return Ok(Charge::Missing) };
        if cost >= 0 && used.saturating_add(cost) > limit {
            return Ok(Charge::Over(*used));
        }
        *used += cost;
        Ok(Charge::Done(*used))
    }

    fn put(&self, key: &str, used: i64, _: i64, _: i64) -> Result<(), StoreError> {
        lock(&self.numbers).insert(key.to_string(), used);
        Ok(())
    }

    fn read(&self, key: &str, _: i64) -> Result<Option<i64>, StoreError> {
        Ok(lock(&self.numbers).get(key).copied())
    }

    fn throttle(
        &self,
        key: &str,
        throttle: Throttle,
        quantity: i64,
        now_ms: i64,
    ) -> Result<Throttled, StoreError> {
        let mut numbers = lock(&self.numbers);
        let (keep, verdict) = admit(numbers.get(key).copied(), throttle, quantity, now_ms * 1000);
        if let Some(keep) = keep {
            numbers.insert(key.to_string(), keep);
        }
        Ok(verdict)
    }

    fn set_text(&self, key: &str, text: &str, expire: i64, _: i64) -> Result<(), StoreError> {
        lock(&self.texts).insert(key.to_string(), (text.to_string(), expire));
        Ok(())
    }

    fn touch_text(&self, key: &str, expire: i64, now: i64) -> Result<Option<String>, StoreError> {
        let mut texts = lock(&self.texts);
        let Some((text, at)) = texts.get_mut(key).filter(|(_, at)| *at > now) else {
            return Ok(None);
        };
        *at = expire;
        Ok(Some(text.clone()))
    }

    fn remove(&self, key: &str, _: i64) -> Result<bool, StoreError> {
        Ok(lock(&self.texts).remove(key).is_some())
    }
}
