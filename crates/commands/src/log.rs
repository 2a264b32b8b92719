//! The records that a command, a batch, a transaction or a script leaves for the commit log.
//!
//! Invariant: what is one unit to clients (a transaction, a script, a command that leaves several
//! records) is one unit in the log: MULTI and EXEC stand around it where it has more than one
//! record, as in Redis (`server.c`, `propagatePendingCommands`).

use std::cell::Cell;

use keyspace::commit::LogBatch;
use resp::write_request;

/// What a client would send to have the same done again.
#[derive(Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
    first_db: usize,
    db: usize,
    /// Open units inside each other: only the outermost one counts.
    depth: u32,
    /// Where the open unit starts in `bytes`.
    unit_start: usize,
    /// Records of the open unit.
    unit_records: usize,
}

/// A place in the records to go back to.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    bytes: usize,
    db: usize,
    unit_start: usize,
    unit_records: usize,
}

/// The buffer that is kept for the next batch, in bytes at most.
const SPARE_MAX: usize = 1 << 20;

thread_local! {
    /// This thread's buffer, empty: one batch after the other uses it.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

impl Records {
    /// Whether there is nothing to log.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Starts a unit.
    pub fn open(&mut self) {
        if self.depth == 0 {
            self.unit_start = self.bytes.len();
            self.unit_records = 0;
        }
        self.depth += 1;
    }

    /// Adds one command, which works in database `db`.
    pub fn push<'w>(&mut self, db: usize, words: impl ExactSizeIterator<Item = &'w [u8]>) {
        if self.bytes.is_empty() {
            self.first_db = db;
            self.db = db;
            if self.bytes.capacity() == 0 {
                self.bytes = SPARE.take();
            }
        }
        if db != self.db {
            self.db = db;
            write_request(&mut self.bytes, [&b"SELECT"[..], db.to_string().as_bytes()].into_iter());
        }
        if self.depth > 0 {
            if self.unit_records == 0 {
                self.unit_start = self.bytes.len();
                self.bytes.extend_from_slice(MULTI);
            }
            self.unit_records += 1;
        }
        write_request(&mut self.bytes, words);
    }

    /// Ends a unit.
    pub fn close(&mut self) {
        self.depth -= 1;
        if self.depth > 0 {
            return;
        }
        match self.unit_records {
            0 => {}
            1 => drop(self.bytes.drain(self.unit_start..self.unit_start + MULTI.len())),
            _ => self.bytes.extend_from_slice(EXEC),
        }
    }

    /// Where the records end now.
    pub fn mark(&self) -> Mark {
        let Records { db, unit_start, unit_records, .. } = *self;
        Mark { bytes: self.bytes.len(), db, unit_start, unit_records }
    }

    /// Forgets what was added since the mark, which was taken in the same unit.
    pub fn back_to(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        (self.db, self.unit_start) = (mark.db, mark.unit_start);
        self.unit_records = mark.unit_records;
    }

    /// Gives the buffer back for this thread's next batch, once the log has it.
    pub fn give_back(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() <= SPARE_MAX {
            bytes.clear();
            SPARE.set(bytes);
        }
    }

    /// What has been collected, for the log.
    pub fn batch(&self) -> LogBatch<'_> {
        LogBatch { first_db: self.first_db, last_db: self.db, bytes: &self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(records: &mut Records, db: usize, line: &str) {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        records.push(db, words.into_iter());
    }

    fn text(records: &Records) -> String {
        let requests = String::from_utf8_lossy(records.batch().bytes).replace("\r\n", " ");
        let words = requests.split(' ').filter(|word| !word.starts_with('$') && !word.is_empty());
        words
            .map(|word| if word.starts_with('*') { "|" } else { word })
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn one_record_needs_no_transaction() {
        let mut records = Records::default();
        records.open();
        push(&mut records, 3, "SET a 1");
        records.close();
        assert_eq!(text(&records), "| SET a 1");
        assert_eq!((records.batch().first_db, records.batch().last_db), (3, 3));
    }

    #[test]
    fn several_records_are_one_unit() {
        let mut records = Records::default();
        push(&mut records, 0, "DEL x");
        records.open();
        push(&mut records, 0, "SET a 1");
        records.open();
        push(&mut records, 2, "INCR b");
        records.close();
        records.close();
        push(&mut records, 2, "DEL y");
        let want = "| DEL x | MULTI | SET a 1 | SELECT 2 | INCR b | EXEC | DEL y";
        assert_eq!(text(&records), want);
        assert_eq!((records.batch().first_db, records.batch().last_db), (0, 2));
    }

    #[test]
    fn a_unit_that_writes_nothing_leaves_nothing() {
        let mut records = Records::default();
        records.open();
        records.close();
        assert!(records.is_empty());
    }
}
