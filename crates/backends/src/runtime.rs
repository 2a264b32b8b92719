//! A connection of an asynchronous client, used from one thread at a time: each has an event loop
//! of its own, which turns only while something is asked. Nothing hops to another thread.
//!
//! **Invariant:** each use ends: by an answer, or by [`DatabaseError::Lost`] when its time is over.
//! After that nothing more is asked of the connection.

use std::future::Future;
use std::time::Duration;

use services::database::DatabaseError;
use tokio::runtime::{Builder, Runtime};

/// How long a new connection may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a statement or a transaction may take. Locks are waited for for a shorter time.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a statement waits for somebody else's lock, in seconds.
pub const LOCK_WAIT_S: u32 = 5;

/// See the module.
pub struct Turning {
    runtime: Runtime,
    is_over: bool,
}

impl Turning {
    /// An event loop.
    pub fn new() -> Result<Turning, DatabaseError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| DatabaseError::Lost(error.to_string()))?;
        Ok(Turning { runtime, is_over: false })
    }

    /// Turns until this is done, for so long at most.
    pub fn wait<T>(
        &mut self,
        within: Duration,
        work: impl Future<Output = Result<T, DatabaseError>>,
    ) -> Result<T, DatabaseError> {
        if self.is_over {
            return Err(DatabaseError::Lost("the connection was given up".into()));
        }
        let result = self.runtime.block_on(limited(within, work));
        self.is_over = matches!(result, Err(DatabaseError::Lost(_)));
        result
    }

    /// Lets something be dropped that needs the loop to be there.
    pub fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.runtime.enter()
    }
}

/// Waits for so long at most.
pub async fn limited<T>(
    within: Duration,
    work: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    let done = tokio::time::timeout(within, work).await;
    done.unwrap_or_else(|_| {
        Err(DatabaseError::Lost(format!("no answer in {} seconds", within.as_secs())))
    })
}
