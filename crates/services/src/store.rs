//! Where counters live while they are hot: the embedded keyspace, or a cluster that several
//! servers share. Each operation touches one key and happens at once, so a cluster can do it where
//! the key is.
//!
//! **Invariant:** a counter never passes its limit by [`Store::charge`], however many call it.
//! **Invariant:** a store may forget a counter at any time (eviction, DEL, a restart); then
//! [`Charge::Missing`] says so, and the caller loads it from the database.

use std::fmt;

pub use throttle::{Throttle, Throttled};

/// What became of a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// Done; what the counter holds now.
    Done(i64),
    /// It would pass the limit; what the counter holds.
    Over(i64),
    /// There is no such counter.
    Missing,
}

/// The store does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError(pub String);

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store of counters does not answer: {}", self.0)
    }
}

impl std::error::Error for StoreError {}

/// See the module. Times are in milliseconds since 1970.
pub trait Store: Send + Sync {
    /// Whether only this server charges its counters: then those that are there when it starts are
    /// older than the database, and not believed.
    fn is_own(&self) -> bool;

    /// Adds `cost` to a counter unless it would pass `limit`.
    fn charge(&self, key: &str, cost: i64, limit: i64, now_ms: i64) -> Result<Charge, StoreError>;

    /// Makes a counter that is forgotten at `expire_at_ms`, whatever it held.
    fn put(&self, key: &str, used: i64, expire_at_ms: i64, now_ms: i64) -> Result<(), StoreError>;

    /// What a counter holds, if it is there.
    fn read(&self, key: &str, now_ms: i64) -> Result<Option<i64>, StoreError>;

    /// Lets `quantity` through a throttle, or not.
    fn throttle(
        &self,
        key: &str,
        throttle: Throttle,
        quantity: i64,
        now_ms: i64,
    ) -> Result<Throttled, StoreError>;

    /// Sets a text that is forgotten at `expire_at_ms`.
    fn set_text(
        &self,
        key: &str,
        text: &str,
        expire_at_ms: i64,
        now_ms: i64,
    ) -> Result<(), StoreError>;

    /// A text; it lives until `expire_at_ms` from now on.
    fn touch_text(
        &self,
        key: &str,
        expire_at_ms: i64,
        now_ms: i64,
    ) -> Result<Option<String>, StoreError>;

    /// Forgets a key; whether it was there.
    fn remove(&self, key: &str, now_ms: i64) -> Result<bool, StoreError>;
}
