//! `Database` over PostgreSQL.
//!
//! Statements are prepared once in a connection. A transaction is known before it begins: BEGIN,
//! its statements and COMMIT are sent together and answered together, one round trip. If one fails
//! the server passes over the rest and COMMIT rolls back. Rows of one insert travel as one array
//! for each column, so that a single prepared statement takes any number of them.
//!
//! Values are sent as text, which every type reads, and come back in the server's binary form.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use services::database::{
    AsyncDatabase, Connect, Database, DatabaseError, Dialect, Inside, Ran, Row, Soon, Statement,
    Step, Stepped, Value,
};
use tokio::sync::Notify;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls, Statement as Prepared};

use crate::marks::numbered;
use crate::postgres_values::{Cell, Written, array};
use crate::runtime::{CONNECT_TIMEOUT, LOCK_WAIT_S, STATEMENT_TIMEOUT, Turning, limited};
use crate::unit::{self, Stepwise};

/// Statements that stay prepared in a connection; when there are more, all are forgotten.
const STATEMENTS_KEPT: usize = 256;
/// Bytes of the rows that one insert carries.
const ROWS_BYTES_MAX: usize = 8 << 20;

/// Where a server is: `postgres://user:password@host:port/database`, with `?host=FOLDER` for a unix
/// socket in that folder.
pub struct Postgres {
    config: Config,
}

impl Postgres {
    /// The server that an address names.
    pub fn new(url: &str) -> Result<Postgres, String> {
        let mut config: Config = url.parse().map_err(|error: Error| words(&error))?;
        config.application_name("forebay").connect_timeout(CONNECT_TIMEOUT);
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err("a database is named: postgres://user@host/database".into());
        }
        if config.get_hosts().is_empty() {
            config.host_path(Path::new("/var/run/postgresql"));
        }
        Ok(Postgres { config })
    }
}

impl Connect for Postgres {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn connect(&self) -> Result<Box<dyn Database>, DatabaseError> {
        let mut turning = Turning::new()?;
        let heard = Arc::new(Notify::new());
        let told = Arc::clone(&heard);
        let client = turning.wait(CONNECT_TIMEOUT, greeted(self.config.clone(), told))?;
        let (prepared, channel) = (HashMap::new(), None);
        Ok(Box::new(Open { client, turning, prepared, heard, channel }))
    }

    fn connect_async(&self) -> Option<Soon<'static, Box<dyn AsyncDatabase>>> {
        let client = greeted(self.config.clone(), Arc::default());
        Some(Box::pin(async move {
            let client = limited(CONNECT_TIMEOUT, client).await?;
            Ok(Box::new(Driven { client, prepared: HashMap::new() }) as Box<dyn AsyncDatabase>)
        }))
    }
}

/// A new connection, driven by a task of this event loop, which tells `heard` of notifications and
/// of the end.
async fn greeted(config: Config, heard: Arc<Notify>) -> Result<Client, DatabaseError> {
    let (client, mut connection) = config.connect(NoTls).await.map_err(|err| error(&err))?;
    // Its end is told to whoever asks next, and to whoever listens.
    tokio::spawn(async move {
        while let Some(Ok(told)) = poll_fn(|context| connection.poll_message(context)).await {
            if matches!(told, AsyncMessage::Notification(_)) {
                heard.notify_one();
            }
        }
        heard.notify_one();
    });
    let set = format!(
        "SET lock_timeout = '{LOCK_WAIT_S}s'; SET standard_conforming_strings = on; \
         SET client_min_messages = warning; SET timezone = 'UTC'"
    );
    client.batch_execute(&set).await.map_err(|err| error(&err))?;
    Ok(client)
}

/// A connection that somebody else's event loop drives.
struct Driven {
    client: Client,
    prepared: HashMap<String, Arc<Prepared>>,
}

impl AsyncDatabase for Driven {
    fn query<'a>(&'a mut self, sql: &'a str, values: &'a [Value]) -> Soon<'a, Vec<Row>> {
        let mut desk = Desk { client: &self.client, prepared: &mut self.prepared };
        Box::pin(limited(STATEMENT_TIMEOUT, async move {
            desk.run(sql, values).await.map(|ran| ran.rows)
        }))
    }

    fn transact<'a>(&'a mut self, statements: &'a [Statement]) -> Soon<'a, Vec<u64>> {
        let desk = Desk { client: &self.client, prepared: &mut self.prepared };
        Box::pin(limited(STATEMENT_TIMEOUT, transact(desk, statements)))
    }
}

struct Open {
    client: Client,
    turning: Turning,
    prepared: HashMap<String, Arc<Prepared>>,
    /// A notification has come.
    heard: Arc<Notify>,
    /// Where it listens.
    channel: Option<String>,
}

/// What an error says, with all that the server said.
fn words(error: &Error) -> String {
    match error.as_db_error() {
        Some(told) => {
            let detail = told.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
            format!("{}{detail} ({})", told.message(), told.code().code())
        }
        None => {
            let cause = std::error::Error::source(error);
            cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
        }
    }
}

/// Errors by their SQLSTATE (PostgreSQL's documentation, appendix A).
fn error(error: &Error) -> DatabaseError {
    let text = words(error);
    let Some(state) = error.code() else {
        // Without one it is the client's: a broken connection, or a value that does not fit.
        let is_lost = error.is_closed() || std::error::Error::source(error).is_some_and(is_io);
        return if is_lost { DatabaseError::Lost(text) } else { DatabaseError::Refused(text) };
    };
    let duplicates = [
        &SqlState::UNIQUE_VIOLATION,
        &SqlState::DUPLICATE_TABLE,
        &SqlState::DUPLICATE_COLUMN,
        &SqlState::DUPLICATE_OBJECT,
    ];
    let busy = [
        &SqlState::T_R_SERIALIZATION_FAILURE,
        &SqlState::T_R_DEADLOCK_DETECTED,
        &SqlState::LOCK_NOT_AVAILABLE,
        &SqlState::QUERY_CANCELED,
        &SqlState::TOO_MANY_CONNECTIONS,
        &SqlState::CANNOT_CONNECT_NOW,
        &SqlState::READ_ONLY_SQL_TRANSACTION,
    ];
    let class = &state.code()[..2];
    if duplicates.contains(&state) {
        DatabaseError::Duplicate(text)
    } else if busy.contains(&state) {
        DatabaseError::Busy(text)
    } else if class == "08" || class == "57" {
        DatabaseError::Lost(text)
    } else {
        DatabaseError::Refused(text)
    }
}

fn is_io(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<std::io::Error>().is_some()
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<u64, Error>> + Send + 'a>>;

/// Waits for all of them; they begin in their order.
async fn all(mut asked: Vec<Answer<'_>>) -> Vec<Result<u64, Error>> {
    let mut answers: Vec<Option<Result<u64, Error>>> = asked.iter().map(|_| None).collect();
    poll_fn(move |context| {
        let mut is_done = true;
        for (future, answer) in asked.iter_mut().zip(&mut answers) {
            if answer.is_some() {
                continue;
            }
            match future.as_mut().poll(context) {
                Poll::Ready(result) => *answer = Some(result),
                Poll::Pending => is_done = false,
            }
        }
        if !is_done {
            return Poll::Pending;
        }
        Poll::Ready(answers.iter_mut().filter_map(Option::take).collect())
    })
    .await
}

/// One prepared statement with its values, and the statement of the transaction it is a piece of.
struct Piece {
    prepared: Arc<Prepared>,
    values: Vec<Written>,
    owner: usize,
}

/// Prepares statements and keeps them.
struct Desk<'a> {
    client: &'a Client,
    prepared: &'a mut HashMap<String, Arc<Prepared>>,
}

impl Desk<'_> {
    async fn prepare(&mut self, sql: &str) -> Result<Arc<Prepared>, DatabaseError> {
        self.prepare_as(sql, || numbered(sql)).await
    }

    async fn prepare_as(
        &mut self,
        name: &str,
        text: impl FnOnce() -> String,
    ) -> Result<Arc<Prepared>, DatabaseError> {
        if let Some(prepared) = self.prepared.get(name) {
            return Ok(Arc::clone(prepared));
        }
        let prepared = self.client.prepare(&text()).await.map_err(|err| error(&err))?;
        if self.prepared.len() >= STATEMENTS_KEPT {
            self.prepared.clear();
        }
        let prepared = Arc::new(prepared);
        self.prepared.insert(name.to_string(), Arc::clone(&prepared));
        Ok(prepared)
    }

    /// An insert of any number of rows: the types of its columns are those of one row.
    async fn insert(
        &mut self,
        into: &str,
        columns: usize,
        tail: &str,
    ) -> Result<Arc<Prepared>, DatabaseError> {
        let name = format!("INSERT INTO {into} SELECT {columns} {tail}");
        if let Some(prepared) = self.prepared.get(&name) {
            return Ok(Arc::clone(prepared));
        }
        let marks: Vec<String> = (1..=columns).map(|index| format!("${index}")).collect();
        let one_row = format!("INSERT INTO {into} VALUES ({}) {tail}", marks.join(", "));
        let one_row = self.client.prepare(&one_row).await.map_err(|err| error(&err))?;
        let arrays: Vec<String> = one_row
            .params()
            .iter()
            .enumerate()
            .map(|(index, kind)| format!("${}::{}[]", index + 1, kind.name()))
            .collect();
        let text = format!("INSERT INTO {into} SELECT * FROM unnest({}) {tail}", arrays.join(", "));
        self.prepare_as(&name, || text).await
    }

    async fn run(&mut self, sql: &str, values: &[Value]) -> Result<Ran, DatabaseError> {
        let values: Vec<Written> = values.iter().map(Written::of).collect();
        let prepared = self.prepare(sql).await?;
        fits(&prepared, values.len())?;
        if prepared.columns().is_empty() {
            let changed = self.client.execute(&*prepared, &given(&values)).await;
            let changed = changed.map_err(|err| error(&err))?;
            return Ok(Ran { changed, rows: Vec::new() });
        }
        let rows = self.client.query(&*prepared, &given(&values)).await;
        let mut all = Vec::new();
        for row in rows.map_err(|err| error(&err))? {
            let cells: Result<Row, Error> = (0..row.len())
                .map(|index| row.try_get::<_, Cell>(index).map(|cell| cell.0))
                .collect();
            all.push(cells.map_err(|err| error(&err))?);
        }
        Ok(Ran { changed: 0, rows: all })
    }

    async fn steps(&mut self, statements: &[Statement]) -> Result<Vec<Piece>, DatabaseError> {
        let mut steps = Vec::with_capacity(statements.len());
        for (owner, statement) in statements.iter().enumerate() {
            match statement {
                Statement::Run { sql, values } => {
                    let prepared = self.prepare(sql).await?;
                    let values = values.iter().map(Written::of).collect();
                    steps.push(Piece { prepared, values, owner });
                }
                Statement::Insert { into, columns, values, tail } => {
                    let prepared = self.insert(into, *columns, tail).await?;
                    for rows in pieces(values, *columns) {
                        let values = (0..*columns).map(|column| array(rows, column, *columns));
                        let prepared = Arc::clone(&prepared);
                        steps.push(Piece { prepared, values: values.collect(), owner });
                    }
                }
            }
        }
        for step in &steps {
            fits(&step.prepared, step.values.len())?;
        }
        Ok(steps)
    }
}

fn fits(prepared: &Prepared, count: usize) -> Result<(), DatabaseError> {
    let marks = prepared.params().len();
    if marks == count {
        return Ok(());
    }
    Err(DatabaseError::Refused(format!("{count} values for {marks} marks")))
}

/// Cuts rows into pieces that one message carries well.
fn pieces(values: &[Value], columns: usize) -> Vec<&[Value]> {
    let (mut pieces, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (index, row) in values.chunks(columns).enumerate() {
        bytes += row.iter().map(|value| value.text().len() + 8).sum::<usize>();
        let end = (index + 1) * columns;
        if bytes > ROWS_BYTES_MAX || end >= values.len() {
            pieces.push(&values[start..end.min(values.len())]);
            (start, bytes) = (end, 0);
        }
    }
    pieces
}

fn given(values: &[Written]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

/// Runs the steps between BEGIN and COMMIT; a step alone is its own transaction.
async fn run(client: &Client, steps: &[Piece]) -> Result<Vec<u64>, DatabaseError> {
    let is_alone = steps.len() == 1;
    let plain = |sql: &'static str| -> Answer<'_> {
        Box::pin(async move { client.batch_execute(sql).await.map(|()| 0) })
    };
    let mut asked: Vec<Answer<'_>> = Vec::with_capacity(steps.len() + 2);
    if !is_alone {
        asked.push(plain("BEGIN"));
    }
    for step in steps {
        asked.push(Box::pin(
            async move { client.execute(&*step.prepared, &given(&step.values)).await },
        ));
    }
    if !is_alone {
        asked.push(plain("COMMIT"));
    }
    let answers = all(asked).await;
    let mut counts = Vec::with_capacity(answers.len());
    for answer in &answers {
        match answer {
            Ok(count) => counts.push(*count),
            // The first error is the reason of the others; what was lost after it does not matter,
            // because nothing can be committed any more.
            Err(err) => return Err(error(err)),
        }
    }
    if !is_alone {
        counts.remove(0);
    }
    Ok(counts)
}

impl Open {
    fn desk(&mut self) -> (&mut Turning, Desk<'_>) {
        let Open { client, turning, prepared, .. } = self;
        (turning, Desk { client, prepared })
    }
}

impl Stepwise for Open {
    const DIALECT: Dialect = Dialect::Postgres;
    const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

    fn plain(&mut self, sql: &'static str) -> Result<(), DatabaseError> {
        let (turning, desk) = self.desk();
        turning.wait(STATEMENT_TIMEOUT, async {
            desk.client.batch_execute(sql).await.map_err(|err| error(&err))
        })
    }

    fn run_prepared(&mut self, sql: &str, values: &[Value]) -> Result<Ran, DatabaseError> {
        let (turning, mut desk) = self.desk();
        turning.wait(STATEMENT_TIMEOUT, desk.run(sql, values))
    }
}

impl Database for Open {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        self.run_prepared(sql, values).map(|ran| ran.rows)
    }

    fn transact(&mut self, statements: &[Statement]) -> Result<Vec<u64>, DatabaseError> {
        let (turning, desk) = self.desk();
        turning.wait(STATEMENT_TIMEOUT, transact(desk, statements))
    }

    fn unit(&mut self, steps: &[Step]) -> Result<Vec<Stepped>, DatabaseError> {
        unit::alone(self, steps)
    }

    fn listen(&mut self, channel: &str, most: Duration) -> Result<Option<bool>, DatabaseError> {
        if self.channel.as_deref() != Some(channel) {
            let sql = format!("LISTEN \"{}\"", channel.replace('"', "\"\""));
            let (turning, desk) = self.desk();
            turning.wait(STATEMENT_TIMEOUT, async {
                desk.client.batch_execute(&sql).await.map_err(|err| error(&err))
            })?;
            self.channel = Some(channel.to_string());
        }
        let heard = Arc::clone(&self.heard);
        self.turning.wait(STATEMENT_TIMEOUT, async move {
            let told = tokio::time::timeout(most, heard.notified()).await;
            Ok(Some(told.is_ok()))
        })
    }

    fn within(&mut self, inside: Inside<'_>) -> Result<(), DatabaseError> {
        unit::within(self, inside)
    }
}

async fn transact(mut desk: Desk<'_>, statements: &[Statement]) -> Result<Vec<u64>, DatabaseError> {
    let steps = match desk.steps(statements).await {
        Ok(steps) if steps.is_empty() => return Ok(vec![0; statements.len()]),
        // What a step before it makes is not there yet: one by one, then.
        Err(DatabaseError::Refused(_)) if statements.len() > 1 => {
            return one_by_one(&mut desk, statements).await;
        }
        steps => steps?,
    };
    let counts = run(desk.client, &steps).await?;
    let mut sums = vec![0; statements.len()];
    for (step, count) in steps.iter().zip(counts) {
        sums[step.owner] += count;
    }
    Ok(sums)
}

/// A transaction whose statements need what others of it make: each is prepared when those before
/// it have been done.
async fn one_by_one(
    desk: &mut Desk<'_>,
    statements: &[Statement],
) -> Result<Vec<u64>, DatabaseError> {
    let begun = desk.client.batch_execute("BEGIN").await;
    begun.map_err(|err| error(&err))?;
    let mut sums = Vec::with_capacity(statements.len());
    for statement in statements {
        let steps = desk.steps(std::slice::from_ref(statement)).await;
        let counts = match steps {
            Ok(steps) => {
                let mut sum = 0;
                let mut result = Ok(());
                for step in steps {
                    let done = desk.client.execute(&*step.prepared, &given(&step.values)).await;
                    match done {
                        Ok(count) => sum += count,
                        Err(err) => {
                            result = Err(error(&err));
                            break;
                        }
                    }
                }
                result.map(|()| sum)
            }
            Err(error) => Err(error),
        };
        match counts {
            Ok(count) => sums.push(count),
            Err(error) => {
                let undone = desk.client.batch_execute("ROLLBACK").await;
                return match undone {
                    Ok(()) => Err(error),
                    Err(_) => Err(DatabaseError::Lost(error.to_string())),
                };
            }
        }
    }
    desk.client.batch_execute("COMMIT").await.map_err(|err| error(&err))?;
    Ok(sums)
}
