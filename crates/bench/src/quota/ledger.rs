//! The SQL side of all arms: the account's two tables, the service's own, and what the database
//! says of itself.

use std::path::Path;
use std::sync::Arc;

use backends::address;
use services::database::{Connect, Database, DatabaseError, Dialect, Statement};

use crate::process::{self, CpuSource};

/// Tables of the service.
const OWN: [&str; 11] = [
    "schema",
    "org",
    "key",
    "counter",
    "record",
    "batch",
    "idempotency",
    "audit",
    "webhook",
    "threshold",
    "delivery",
];

/// See the module.
pub struct Ledger {
    database: Box<dyn Database>,
    connect: Arc<dyn Connect>,
    /// Product and version.
    pub version: String,
    /// The settings that say when a commit is on disk.
    pub durability: String,
    /// The server's process, if it is here.
    pub pid: Option<u32>,
    counts_exactly: bool,
}

fn text(error: DatabaseError) -> String {
    error.to_string()
}

/// The path of the unix socket that an address names, if it names one.
fn socket(address: &str, dialect: Dialect) -> Option<String> {
    let name = if dialect == Dialect::Mysql { "socket=" } else { "host=" };
    let query = address.split_once('?')?.1;
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name))?;
    let mut path = Vec::new();
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    let path = String::from_utf8(path).ok()?;
    Some(if dialect == Dialect::Postgres { format!("{path}/.s.PGSQL.5432") } else { path })
}

impl Ledger {
    /// Opens the database and asks what it is.
    pub fn open(sql: &str) -> Result<Ledger, String> {
        let connect = address::open(sql, Path::new("."))?;
        let dialect = connect.dialect();
        let mut database = connect.connect().map_err(text)?;
        let mut ask = |sql: &str| {
            let row = database.query(sql, &[]).ok().and_then(|mut rows| rows.pop());
            row.map(|row| match &row[row.len() - 1] {
                services::database::Value::Text(text) => text.clone(),
                value => value.int().to_string(),
            })
        };
        let (version, settings): (_, &[&str]) = match dialect {
            Dialect::Mysql => (
                ask("SELECT VERSION()").map(|version| match version.contains("Maria") {
                    true => format!("MariaDB {version}"),
                    false => format!("MySQL {version}"),
                }),
                &["innodb_flush_log_at_trx_commit", "sync_binlog", "log_bin"],
            ),
            Dialect::Postgres => (
                ask("SHOW server_version").map(|version| format!("PostgreSQL {version}")),
                &["fsync", "synchronous_commit", "wal_sync_method"],
            ),
            Dialect::Sqlite => {
                (ask("SELECT sqlite_version()").map(|version| format!("SQLite {version}")), &[])
            }
        };
        let told = settings.iter().map(|name| {
            let sql = match dialect {
                Dialect::Mysql => format!("SELECT @@GLOBAL.{name}"),
                _ => format!("SHOW {name}"),
            };
            format!("{name}={}", ask(&sql).unwrap_or_else(|| "unknown".into()))
        });
        let durability = told.collect::<Vec<_>>().join(", ");
        let pid =
            socket(sql, dialect).and_then(|path| process::pid_listening_on_path(Path::new(&path)));
        let enable = Statement::run("SET GLOBAL innodb_monitor_enable = 'trx_rw_commits'", vec![]);
        let counts_exactly = dialect == Dialect::Postgres
            || dialect == Dialect::Mysql && database.transact(&[enable]).is_ok();
        let version = version.unwrap_or_else(|| "unknown".into());
        Ok(Ledger { database, connect, version, durability, pid, counts_exactly })
    }

    /// What it is called.
    pub fn product(&self) -> &'static str {
        match self.connect.dialect() {
            Dialect::Mysql => "mysql://",
            Dialect::Postgres => "postgres://",
            Dialect::Sqlite => "sqlite:",
        }
    }

    /// Whose CPU time is the database's.
    pub fn cpu(&self) -> Option<CpuSource> {
        match self.connect.dialect() {
            Dialect::Postgres => self.pid.map(CpuSource::Family),
            _ => self.pid.map(CpuSource::Process),
        }
    }

    /// Where [`Ledger::commits`] comes from.
    pub fn counted(&self) -> &'static str {
        match (self.connect.dialect(), self.counts_exactly) {
            (Dialect::Mysql, true) => "trx_rw_commits of INNODB_METRICS, transactions that wrote",
            (Dialect::Postgres, _) => "transaction numbers given out, one for each that wrote",
            _ => "none to be had",
        }
    }

    fn run(&mut self, sql: &str) -> Result<(), String> {
        self.database.transact(&[Statement::run(sql, vec![])]).map(drop).map_err(text)
    }

    fn one(&mut self, sql: &str) -> Result<i64, String> {
        let rows = self.database.query(sql, &[]).map_err(text)?;
        Ok(rows.first().map_or(0, |row| row[0].int()))
    }

    /// Transactions so far that wrote something.
    pub fn commits(&mut self) -> Result<Option<i64>, String> {
        if !self.counts_exactly {
            return Ok(None);
        }
        let sql = match self.connect.dialect() {
            Dialect::Postgres => "SELECT txid_snapshot_xmax(txid_current_snapshot())",
            _ => {
                "SELECT CAST(count AS SIGNED) FROM information_schema.INNODB_METRICS \
                 WHERE name = 'trx_rw_commits'"
            }
        };
        self.one(sql).map(Some)
    }

    /// Drops everything.
    pub fn drop_all(&mut self) -> Result<(), String> {
        let own = OWN.map(|name| format!("quota_{name}"));
        for table in own.iter().map(String::as_str).chain(["counter", "storage"]) {
            self.run(&format!("DROP TABLE IF EXISTS {table}"))?;
        }
        Ok(())
    }

    /// The account's tables, empty, with a counter for each organisation.
    pub fn make_anew(&mut self, orgs: u32) -> Result<(), String> {
        self.drop_all()?;
        let (id, index, engine) = match self.connect.dialect() {
            Dialect::Mysql => {
                ("INT NOT NULL AUTO_INCREMENT PRIMARY KEY", "`index`", "ENGINE=InnoDB")
            }
            Dialect::Postgres => {
                ("INT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", "\"index\"", "")
            }
            Dialect::Sqlite => ("INTEGER PRIMARY KEY AUTOINCREMENT", "\"index\"", ""),
        };
        self.run(&format!(
            "CREATE TABLE counter (OrganisationID INT NOT NULL PRIMARY KEY, \
             counter INT NOT NULL) {engine}"
        ))?;
        self.run(&format!(
            "CREATE TABLE storage (StorageID {id}, DateTimeReceived TIMESTAMP NOT NULL \
             DEFAULT CURRENT_TIMESTAMP, {index} INT NOT NULL) {engine}"
        ))?;
        let values = (0..i64::from(orgs)).flat_map(|org| [org.into(), 0.into()]).collect();
        let into = "counter (OrganisationID, counter)";
        let rows = Statement::Insert { into, columns: 2, values, tail: String::new() };
        self.database.transact(&[rows]).map(drop).map_err(text)
    }

    /// Writes an absolute count, as the account does at the end of a session.
    pub fn flush(&mut self, org: u32, count: i64) -> Result<(), String> {
        let sql = "UPDATE counter SET counter = ? WHERE OrganisationID = ?";
        let values = vec![count.into(), i64::from(org).into()];
        self.database.transact(&[Statement::run(sql, values)]).map(drop).map_err(text)
    }

    /// Rows, different rows and counters of the account's tables.
    pub fn of_account(&mut self) -> Result<[i64; 3], String> {
        let index = if self.connect.dialect() == Dialect::Mysql { "`index`" } else { "\"index\"" };
        Ok([
            self.one("SELECT COUNT(*) FROM storage")?,
            self.one(&format!("SELECT COUNT(DISTINCT {index}) FROM storage"))?,
            self.one("SELECT SUM(counter) FROM counter")?,
        ])
    }

    /// Rows, different rows, and the counters' records of the service's tables.
    pub fn of_service(&mut self) -> Result<[i64; 3], String> {
        Ok([
            self.one("SELECT COUNT(*) FROM quota_record")?,
            self.one("SELECT COUNT(DISTINCT data) FROM quota_record")?,
            self.counted_records()?,
        ])
    }

    /// The counters' records alone.
    pub fn counted_records(&mut self) -> Result<i64, String> {
        self.one("SELECT COALESCE(SUM(records), 0) FROM quota_counter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_found_in_addresses() {
        let mysql = socket("mysql://root@localhost/a?x=1&socket=%2Ftmp%2Fs", Dialect::Mysql);
        assert_eq!(mysql.as_deref(), Some("/tmp/s"));
        let postgres = socket("postgres://root@/a?host=/tmp", Dialect::Postgres);
        assert_eq!(postgres.as_deref(), Some("/tmp/.s.PGSQL.5432"));
        assert_eq!(socket("mysql://root@localhost/a", Dialect::Mysql), None);
        assert_eq!(socket("mysql://h/a?socket=%2", Dialect::Mysql), None);
    }
}
