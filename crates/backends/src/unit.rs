//! Work on a connection whose statements are run one after the other: units of steps, and
//! transactions that go on as their statements turn out. The same for all products that are asked
//! over a network.
//!
//! **Invariant:** after an error the transaction is rolled back, or the connection is lost.

use services::database::{
    DatabaseError, Dialect, Inside, Ran, Statement, Step, Stepped, Value, Within,
};

/// A connection.
pub trait Stepwise {
    /// The SQL.
    const DIALECT: Dialect;
    /// Begins a transaction that reads one state of the database.
    const SNAPSHOT: &str;

    /// Runs a statement without values or rows.
    fn plain(&mut self, sql: &'static str) -> Result<(), DatabaseError>;

    /// Runs a prepared statement.
    fn run_prepared(&mut self, sql: &str, values: &[Value]) -> Result<Ran, DatabaseError>;

    /// Ends a transaction.
    fn commit(&mut self) -> Result<(), DatabaseError> {
        self.plain("COMMIT")
    }
}

/// Whether any step changes rows.
pub fn writes(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::Write(_)))
}

/// Runs the steps, up to the first that fails.
pub fn run(
    steps: &[Step],
    mut run: impl FnMut(&str, &[Value]) -> Result<Ran, DatabaseError>,
) -> Result<Vec<Stepped>, DatabaseError> {
    let one = |step: &Step| match step {
        Step::Read { sql, values } => run(sql, values).map(|ran| Stepped::Rows(ran.rows)),
        Step::Write(Statement::Run { sql, values }) => {
            run(sql, values).map(|ran| Stepped::Changed(ran.changed))
        }
        Step::Write(Statement::Insert { .. }) => {
            Err(DatabaseError::Refused("rows in bulk are no step of a unit".into()))
        }
    };
    steps.iter().map(one).collect()
}

/// Runs the steps in a transaction of their own.
pub fn alone<C: Stepwise>(
    connection: &mut C,
    steps: &[Step],
) -> Result<Vec<Stepped>, DatabaseError> {
    connection.plain(if writes(steps) { "BEGIN" } else { C::SNAPSHOT })?;
    match run(steps, |sql, values| connection.run_prepared(sql, values)) {
        Ok(done) => connection.commit().map(|()| done),
        Err(error) => Err(undone(connection, error)),
    }
}

/// Runs a transaction that asks as it goes.
pub fn within<C: Stepwise>(connection: &mut C, inside: Inside<'_>) -> Result<(), DatabaseError> {
    connection.plain("BEGIN")?;
    match inside(&mut UnderWay(connection)) {
        Ok(true) => connection.commit(),
        Ok(false) => connection.plain("ROLLBACK"),
        Err(error) => Err(undone(connection, error)),
    }
}

/// Rolls back after an error, unless the connection is gone; the error that matters then.
fn undone<C: Stepwise>(connection: &mut C, error: DatabaseError) -> DatabaseError {
    if matches!(error, DatabaseError::Lost(_)) {
        return error;
    }
    connection.plain("ROLLBACK").err().unwrap_or(error)
}

struct UnderWay<'a, C>(&'a mut C);

impl<C: Stepwise> Within for UnderWay<'_, C> {
    fn dialect(&self) -> Dialect {
        C::DIALECT
    }

    fn run(&mut self, sql: &str, values: &[Value]) -> Result<Ran, DatabaseError> {
        self.0.run_prepared(sql, values)
    }

    fn plain(&mut self, sql: &'static str) -> Result<(), DatabaseError> {
        self.0.plain(sql)
    }
}
