//! A database whose transactions fail as a test says, over a connection for a thread or one for an
//! event loop.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use services::database::{
    AsyncDatabase, Connect, Database, DatabaseError, Dialect, Row, Soon, Statement, Value,
};

/// What goes wrong with a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    LostBefore,
    LostAfter,
    Busy,
    Refused,
}

pub type Faults = Arc<Mutex<VecDeque<Fault>>>;

impl Fault {
    fn next(faults: &Faults) -> Fault {
        faults.lock().expect("unpoisoned").pop_front().unwrap_or(Fault::None)
    }

    /// What happens before the transaction.
    fn before(self) -> Result<(), DatabaseError> {
        let why = "the test says so".to_string();
        match self {
            Fault::None | Fault::LostAfter => Ok(()),
            Fault::LostBefore => Err(DatabaseError::Lost(why)),
            Fault::Busy => Err(DatabaseError::Busy(why)),
            Fault::Refused => Err(DatabaseError::Refused(why)),
        }
    }

    /// What is told of it.
    fn after(self, done: Result<Vec<u64>, DatabaseError>) -> Result<Vec<u64>, DatabaseError> {
        match self {
            Fault::LostAfter => done.and(Err(DatabaseError::Lost("the test says so".into()))),
            _ => done,
        }
    }
}

pub struct Faulty {
    pub inner: Arc<dyn Connect>,
    pub faults: Faults,
    /// Whether lone requests may be stored by the thread that they come by.
    pub has_lanes: bool,
}

/// The same for an event loop.
struct FaultyAsync {
    inner: Inner,
    faults: Faults,
}

enum Inner {
    Async(Box<dyn AsyncDatabase>),
    /// Its answers are there as soon as it is asked.
    Here(Box<dyn Database>),
}

impl AsyncDatabase for FaultyAsync {
    fn query<'a>(&'a mut self, sql: &'a str, values: &'a [Value]) -> Soon<'a, Vec<Row>> {
        match &mut self.inner {
            Inner::Async(inner) => inner.query(sql, values),
            Inner::Here(inner) => Box::pin(std::future::ready(inner.query(sql, values))),
        }
    }

    fn transact<'a>(&'a mut self, statements: &'a [Statement]) -> Soon<'a, Vec<u64>> {
        let fault = Fault::next(&self.faults);
        Box::pin(async move {
            fault.before()?;
            let done = match &mut self.inner {
                Inner::Async(inner) => inner.transact(statements).await,
                Inner::Here(inner) => inner.transact(statements),
            };
            fault.after(done)
        })
    }
}

struct FaultyDatabase {
    inner: Box<dyn Database>,
    faults: Faults,
}

impl Connect for Faulty {
    fn dialect(&self) -> Dialect {
        self.inner.dialect()
    }

    fn connect(&self) -> Result<Box<dyn Database>, DatabaseError> {
        let (inner, faults) = (self.inner.connect()?, Arc::clone(&self.faults));
        Ok(Box::new(FaultyDatabase { inner, faults }))
    }

    fn connect_async(&self) -> Option<Soon<'static, Box<dyn AsyncDatabase>>> {
        let (inner, faults) = (Arc::clone(&self.inner), Arc::clone(&self.faults));
        self.has_lanes.then(|| -> Soon<'static, Box<dyn AsyncDatabase>> {
            Box::pin(async move {
                let inner = match inner.connect_async() {
                    Some(opened) => Inner::Async(opened.await?),
                    None => Inner::Here(inner.connect()?),
                };
                Ok(Box::new(FaultyAsync { inner, faults }) as Box<dyn AsyncDatabase>)
            })
        })
    }
}

impl Database for FaultyDatabase {
    fn dialect(&self) -> Dialect {
        self.inner.dialect()
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        self.inner.query(sql, values)
    }

    fn transact(&mut self, statements: &[Statement]) -> Result<Vec<u64>, DatabaseError> {
        let fault = Fault::next(&self.faults);
        fault.before()?;
        fault.after(self.inner.transact(statements))
    }
}
