//! The steps of a unit of work, for products that run them one after the other.

use services::database::{DatabaseError, Ran, Statement, Step, Stepped, Value};

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
