//! What the commit log takes: the records of everything that changed keys, in one order.

/// The records of one command, one batch of pipelined commands, one transaction or one script.
#[derive(Debug, Clone, Copy)]
pub struct LogBatch<'a> {
    /// The database that the first record works in; the log selects it if it is in another.
    pub first_db: usize,
    /// The database after the last record: records that change it are among `bytes`.
    pub last_db: usize,
    /// The records, as requests of the protocol, one after the other.
    pub bytes: &'a [u8],
}

/// Takes every write in commit order: append-only file, replicas, change capture.
pub trait CommitLog: Send + Sync {
    /// Takes a batch, and returns the log's position after it, in bytes since the log began.
    /// Called while the shards that it changed are locked, so it must not wait for anything that
    /// needs them; batches appended by one thread after the other have growing positions.
    fn append(&self, batch: LogBatch<'_>) -> u64;
}
