//! Sagas whose steps the server runs itself: the accounts on its keyspace and in its SQL database,
//! and the books that are looked at after each measurement.
//!
//! **Invariant:** what one step takes the other brings: both change by the same amount.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;

use crate::client::{Client, Protocol};
use crate::own_server::OwnServer;
use crate::target::Target;

use super::participants::AMOUNT;

/// How long a question about the books may wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where steps run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// As commands on the keyspace.
    Keys,
    /// As statements on the SQL database.
    Rows,
}

/// The accounts of one server.
pub struct Accounts {
    keys: Target,
    rows: PathBuf,
}

impl Accounts {
    /// Opens the accounts of a server that was started with `saga-local-steps`.
    ///
    /// # Errors
    /// Its database cannot be written.
    pub fn open(server: &OwnServer) -> Result<Accounts, String> {
        let rows = server.folder().join("forebay.db");
        let accounts = Accounts { keys: server.target.clone(), rows };
        let database = accounts.database()?;
        let made = database.execute_batch(
            "CREATE TABLE account (id TEXT PRIMARY KEY, amount INTEGER NOT NULL);
             INSERT INTO account VALUES ('out', 0), ('in', 0)",
        );
        made.map_err(|error| error.to_string())?;
        Ok(accounts)
    }

    fn database(&self) -> Result<Connection, String> {
        let open = || {
            let database = Connection::open(&self.rows)?;
            database.busy_timeout(PATIENCE)?;
            Ok(database)
        };
        open().map_err(|error: rusqlite::Error| format!("{}: {error}", self.rows.display()))
    }

    /// What has left and what has come since the server started.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn balance(&self, own: Own) -> Result<(i64, i64), String> {
        let (out, come) = match own {
            Own::Rows => {
                let database = self.database()?;
                let of = |id: &str| {
                    let sql = "SELECT amount FROM account WHERE id = ?";
                    database.query_row(sql, [id], |row| row.get::<_, i64>(0))
                };
                (of("out").map_err(|e| e.to_string())?, of("in").map_err(|e| e.to_string())?)
            }
            Own::Keys => {
                let mut client = Client::connect(&self.keys, Protocol::Resp2, PATIENCE)
                    .map_err(|error| error.to_string())?;
                let mut of = |key: &str| -> Result<i64, String> {
                    // By INCRBY: a number, whether or not the key is there.
                    let reply = client.command(&["INCRBY", key, "0"]);
                    let reply = reply.map_err(|error| error.to_string())?;
                    reply.as_integer().ok_or_else(|| format!("{key} is no number"))
                };
                (of("bench:out")?, of("bench:in")?)
            }
        };
        Ok((-out, come))
    }
}

/// The address of a step that moves an amount, and of what undoes it; as texts within JSON.
pub fn step(own: Own, is_out: bool) -> (String, String) {
    let word = if is_out { "out" } else { "in" };
    let amount = AMOUNT as i64 * if is_out { -1 } else { 1 };
    let sql = "UPDATE account SET amount = amount + ? WHERE id = ?";
    let address = |amount: i64| match own {
        Own::Keys => format!(r#"redis:["INCRBY","bench:{word}",{amount}]"#),
        Own::Rows => format!(r#"sql:{{"sql":"{sql}","args":[{amount},"{word}"],"rows":1}}"#),
    };
    let escaped = |text: String| text.replace('"', "\\\"");
    (escaped(address(amount)), escaped(address(-amount)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_texts_of_json() {
        for own in [Own::Keys, Own::Rows] {
            for is_out in [false, true] {
                let (action, back) = step(own, is_out);
                for text in [action, back] {
                    let read: String = serde_json::from_str(&format!("\"{text}\"")).unwrap();
                    let (_, json) = read.split_once(':').unwrap();
                    serde_json::from_str::<serde_json::Value>(json).unwrap();
                }
            }
        }
    }
}
